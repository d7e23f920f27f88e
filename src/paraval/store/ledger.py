"""Records a run as it happens, without blocking the engine.

The engine reports each event and continues; a callback runs when the event is on disk. What is not
on disk did not happen: after a kill at any instant, a resume finds every acknowledged result
exactly once. `store` writes plans and takes locks; the engine decides what to do about a full disk,
and nothing is lost meanwhile.

A trial that the engine postpones is also recorded by `record_end`: as a result that is SKIPPED and
not final. It is not an attempt, whatever its number; it only stores the reason. A trial that is
skipped for good has the number 0 and is final: no resume runs it, unless errors are retried.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Self

from paraval.errors import StoreError
from paraval.records import (
    Attempt,
    AttemptResult,
    Limits,
    Outcome,
    RunInfo,
    RunNotice,
    Trial,
    TrialResult,
)
from paraval.store.connection import RUN_FILE, close_as_one_file, explaining
from paraval.store.encoding import to_json
from paraval.store.folder import artifacts_of
from paraval.store.plan_rows import ReplacedResults, write_waits
from paraval.store.reader import read_known_results
from paraval.store.run_info import Sum, read_info, spent_in, sum_of
from paraval.store.writer import (
    AddedTrials,
    Change,
    ChangedSettings,
    Deliver,
    EndRow,
    LastChange,
    Numbering,
    OnDurable,
    RunHold,
    StartRow,
    UnusedStart,
    WriterThread,
)


class Ledger:
    """The record of a run in progress. A context manager; `open` it before recording."""

    def __init__(
        self, hold: RunHold, *, replaced: ReplacedResults, on_close: Callable[[RunInfo], None]
    ) -> None:
        self.folder = hold.folder
        self.plan = hold.plan
        self._place = str(hold.folder)
        self.changed = replaced.changed
        """Number of trials whose results no longer count because their key changed."""
        self.dropped = replaced.dropped
        """Number of trials with a result that are no longer in the plan."""
        self._hold = hold
        self._connection = hold.connection
        self._on_close = on_close
        self._started = time.monotonic()
        self._queue: queue.SimpleQueue[Change | LastChange] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._closed = False
        self._waits: tuple[RunNotice, ...] = ()
        self._numbering: Numbering | None = None
        with explaining(self.folder / RUN_FILE):
            self._made: dict[int, int] = dict(self._connection.execute(_ATTEMPTS_MADE))
            self._made_by_key: dict[str, int] = {}
            """Numbers for trials that are yet to be added."""
            if not hold.plan.trials:
                self._made_by_key.update(self._connection.execute(_ATTEMPTS_BY_KEY))
            self._done = self._read_done()
            self.run = read_info(self._connection, hold.folder, worked_on=True)
            """The run's info when the ledger was created; after `close`, as it ended."""

    def _read_done(self) -> dict[int, Outcome]:
        return {index: Outcome(outcome) for index, outcome in self._connection.execute(_DONE)}

    @property
    def done(self) -> Mapping[int, Outcome]:
        """Trial index -> outcome, for results that existed when the ledger was created."""
        return MappingProxyType(self._done)

    def attempts_made(self, index: int) -> int:
        """The number of the trial's last attempt by any engine; 0 before the first."""
        return self._made.get(index, 0)

    def attempt_folder(self, trial: Trial, number: int) -> str:
        return f"{self._place}/{artifacts_of(trial.key, number)}"

    def forget_unsuccessful(
        self, chosen: Collection[int] | None = None, *, failed_too: bool = False
    ) -> int:
        """Delete results that are errors, and wrong answers if asked, so that their trials run
        again; attempts are kept.

        `chosen` limits this to some trials, by index. The decision of an early stop depended on
        these results, so all trials that it skipped are forgotten too, chosen or not, and decided
        again.
        """
        if self._writer is not None:
            raise RuntimeError("results are forgotten before the ledger is opened")
        with explaining(self.folder / RUN_FILE):
            keys = self._keys_of_unsuccessful(chosen, failed_too=failed_too)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM result WHERE key = ?", keys)
            if keys and self.plan.stop is not None:
                self._forget_left_out()
            self._connection.execute("COMMIT")
            self._done = self._read_done()
        return len(keys)

    def _forget_left_out(self) -> None:
        left_out = self._connection.execute("SELECT key FROM result WHERE number = 0").fetchall()
        self._connection.executemany("DELETE FROM result WHERE key = ?", left_out)
        # Not an attempt, but the reason for a skip that no longer holds.
        self._connection.executemany("DELETE FROM attempt WHERE key = ? AND number = 0", left_out)

    def _keys_of_unsuccessful(
        self, chosen: Collection[int] | None, *, failed_too: bool
    ) -> list[tuple[str]]:
        if not self.plan.trials:
            # Which of its trials will be added again is not known yet.
            rows = self._connection.execute("SELECT key, outcome FROM result").fetchall()
            return [(key,) for key, outcome in rows if Outcome(outcome).is_error]
        return [
            (self.plan.trials[index].key,)
            for index, outcome in self._done.items()
            if (outcome.is_error or (failed_too and outcome is Outcome.FAILED))
            and (chosen is None or index in chosen)
        ]

    def known_results(self) -> dict[str, TrialResult]:
        """Every result by its trial's key, whether the key is in the plan or not."""
        if self._writer is not None:
            raise RuntimeError("what is known is asked before the ledger is opened")
        with explaining(self.folder / RUN_FILE):
            return read_known_results(self._connection)

    def spent(self) -> Sum:
        """Total spending of all attempts so far.

        Includes trials that are no longer in the plan: their money is spent all the same.
        """
        if self._writer is not None:
            raise RuntimeError("what was spent is asked before the ledger is opened")
        with explaining(self.folder / RUN_FILE):
            return sum_of(content for (content,) in self._connection.execute(_WITH_A_COST))

    def spent_usd(self) -> float:
        """The known part of it."""
        return self.spent().usd

    def unpriced_attempts(self) -> Counter[int]:
        """Trial index -> number of its attempts that may have an unknown cost."""
        with explaining(self.folder / RUN_FILE):
            rows = self._connection.execute(_OF_UNKNOWN_COST).fetchall()
        if self.plan.regraded_from is not None:
            # Its answers cost nothing, whether their cost is known or not.
            return Counter(index for index, content in rows if content is None)
        return Counter(index for index, content in rows if _may_have_cost(content))

    # ---- called by the engine; none of these blocks

    def open(
        self,
        deliver: Deliver,
        on_failure: Callable[[StoreError], None],
        also_write: Callable[[], None] = lambda: None,
    ) -> None:
        """Start writing. All three callbacks are called from the writer's thread.

        `deliver` gets the callbacks of everything that one commit made durable, in one call.
        `on_failure` is called when a write fails for good: the changes are kept, none of their
        callbacks is called, and nothing is written until `close`, which tries once more. A failure
        is reported once: by this call or by `close`, whichever notices it. `also_write` is called
        after each batch, for what can be written later; it must not raise.
        """
        if self._writer is not None or self._closed:
            raise RuntimeError("a ledger is opened once")
        self._work = WriterThread(self._hold, self._queue, deliver, on_failure, also_write)
        self._writer = threading.Thread(
            target=self._work.until_stopped, name="paraval-ledger", daemon=True
        )
        # A daemon thread: an engine that ends without `close` must end like a killed one, not hang.
        self._writer.start()

    def add(self, trials: Sequence[Trial]) -> None:
        """Add trials to the run; durable no later than what is recorded of them after this."""
        if self._numbering is None:
            self._numbering = Numbering(self.plan)
        for trial in trials:
            self._made[trial.index] = self._made_by_key.get(trial.key, 0)
        self._queue.put(AddedTrials(self._numbering.rows_of(trials)))

    def change(self, limits: Limits, **selection: object) -> None:
        """Record what a user changed, for the report and for a resume."""
        changed = {**self.plan.selection, **selection}
        self.plan = replace(self.plan, limits=limits, selection=changed)
        self._queue.put(ChangedSettings(limits.parallel, to_json(changed)))

    def record_start(self, attempt: Attempt, at: float, on_durable: OnDurable) -> None:
        """Record that the attempt is about to start; start it when `on_durable` is called."""
        self._record(attempt, at, on_durable, is_ahead=False)
        self.hurry()

    def record_ahead(self, attempt: Attempt, at: float, on_durable: OnDurable) -> None:
        """Record the start of an attempt that does not start yet: it is written with what is
        recorded after it, unless someone calls `hurry`."""
        self._record(attempt, at, on_durable, is_ahead=True)

    def _record(
        self, attempt: Attempt, at: float, on_durable: OnDurable, *, is_ahead: bool
    ) -> None:
        index, number = attempt.id
        self._made[index] = max(number, self._made.get(index, 0))
        self._queue.put(StartRow(attempt, at, on_durable, is_ahead))

    def note_waits(self, waits: Sequence[RunNotice]) -> None:
        """Record at the end what held the run back."""
        self._waits = tuple(waits)

    def hurry(self) -> None:
        """Someone waits for what was recorded."""
        self._work.is_urgent.set()

    def take_back(self, attempt: Attempt) -> None:
        """An attempt whose start was recorded does not start."""
        index, number = attempt.id
        self._made[index] = number - 1
        self._queue.put(UnusedStart(attempt))

    def record_end(
        self,
        attempt: Attempt,
        result: AttemptResult,
        *,
        final: bool,
        queued_s: float | None,
        on_durable: OnDurable,
        at: float | None = None,
    ) -> None:
        """Record the attempt's end, now or `at` another time.

        `final`: it is the trial's result, unless that already has one.
        """
        at = time.time() if at is None else at
        self._queue.put(EndRow(attempt, result, at, final, queued_s, on_durable))

    # ---- closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close(interrupted=error is not None)
        except StoreError:
            # The engine's own error takes precedence.
            if error is None:
                raise

    def close(
        self, *, interrupted: bool, held_back: bool = False, ended: float | None = None
    ) -> None:
        """Write what is queued and how the session ended, and release the run. May be called again.

        `held_back`: trials were postponed on purpose, which is not an interruption. `ended`:
        when the run ended, if that was not now.
        """
        if self._closed:
            return
        self._closed = True
        failure: Exception | None = None
        if self._writer is not None:
            self._queue.put(LastChange.STOP)
            self.hurry()
            self._writer.join()
            failure = self._work.failure
        told = self._writer is not None and self._work.waits
        reason = "interrupted" if interrupted else "held_back" if held_back else "finished"
        try:
            # Separately, so that the run's state can be read even if its end cannot be written.
            for step in (partial(self._write_session_end, reason, ended), self._read_end):
                try:
                    with explaining(self.folder / RUN_FILE):
                        step()
                except StoreError as error:
                    failure = failure or (None if told else error)
        finally:
            close_as_one_file(self._connection)
            self._hold.lock.release()
        if not self.run.running:
            self._on_close(self.run)
        if failure is not None:
            raise failure

    def _read_end(self) -> None:
        self.run = read_info(self._connection, self.folder, worked_on=False)

    def _write_session_end(self, reason: str, ended: float | None) -> None:
        if self._waits:
            write_waits(self._connection, self._waits)
        wall_s = time.monotonic() - self._started
        if ended is not None:
            wall_s = ended - self.run.started_at
        self._connection.execute(
            "UPDATE session SET ended_at = ?, wall_s = ?, reason = ? WHERE number = ?",
            (time.time() if ended is None else ended, wall_s, reason, self._hold.session),
        )


def _may_have_cost(content: str | None) -> bool:
    """Whether an attempt may have cost more than it reported; without content, it never ended."""
    target, judging = spent_in(content or "")
    return (
        target is None
        or target.cost_usd is None
        or (judging is not None and judging.cost_usd is None)
    )


_WITH_A_COST = """
    SELECT content FROM attempt WHERE instr(content, '"cost_usd"') OR ended_at IS NULL
"""

_OF_UNKNOWN_COST = """
    SELECT trial.idx, attempt.content FROM attempt JOIN trial USING (key)
    WHERE attempt.number > 0 AND (
        ended_at IS NULL
        OR instr(attempt.content, '"cost_usd":null')
        OR NOT instr(attempt.content, '"cost_usd"')
    )
"""

_DONE = "SELECT trial.idx, result.outcome FROM trial JOIN result USING (key)"

_ATTEMPTS_MADE = """
    SELECT trial.idx, max(attempt.number) FROM attempt JOIN trial USING (key) GROUP BY attempt.key
"""

_ATTEMPTS_BY_KEY = "SELECT key, max(number) FROM attempt GROUP BY key"
