"""Writing a run while it goes on: one thread, one connection, commits in groups.

The engine says what happened and goes on at once; it is told when that is on disk. What is not yet
on disk did not happen: after a kill at any instant, a resume finds every result that was
acknowledged, once. Plans and locks are made by `store`; what becomes of a full disk is the engine's
to decide: here, nothing is lost while it does.

A trial that the engine leaves for later is told by `record_end` too: a result that is SKIPPED and
not final. It is no attempt, whatever its number: it only keeps the reason.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from paraval.errors import StoreError
from paraval.records import Attempt, AttemptResult, Outcome, Plan, RunInfo, Trial, TrialResult
from paraval.store.connection import (
    RUN_FILE,
    close_as_one_file,
    explained,
    explaining,
)
from paraval.store.encoding import to_columns
from paraval.store.folder import artifacts_of
from paraval.store.growing import NewRows, Numbering
from paraval.store.locks import RunLock
from paraval.store.planned import Replaced
from paraval.store.reader import read_info, read_known_results
from paraval.store.schema import NO_ATTEMPT
from paraval.store.spending import Sum, spent_in, sum_of

SMALL_BATCH = 32
LARGEST_BATCH = 1000
BUSY_TRIES = 4
"""Each waits for SQLite's own 30 s: a lock held for less than two minutes costs time, no result."""

OnDurable = Callable[[], None]
Deliver = Callable[[list[OnDurable]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An engine's hold on a run, from `store`: what the ledger uses, and ends when it is closed."""

    folder: Path
    connection: sqlite3.Connection
    lock: RunLock
    session: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class _Start:
    attempt: Attempt
    at: float
    on_durable: OnDurable


@dataclass(frozen=True, slots=True)
class _End:
    attempt: Attempt
    result: AttemptResult
    at: float
    final: bool
    queued_s: float | None
    on_durable: OnDurable

    @property
    def is_held_back(self) -> bool:
        return not self.final and self.result.outcome is Outcome.SKIPPED


@dataclass(frozen=True, slots=True)
class _Addition:
    rows: NewRows


class _Last(Enum):
    """What is queued after all changes."""

    STOP = "write what there is, once, and end"


_Change = _Start | _End | _Addition


class Ledger:
    """What happens in a run, as it happens. A context manager; `open` it before recording."""

    def __init__(
        self, hold: Hold, *, replaced: Replaced, on_close: Callable[[RunInfo], None]
    ) -> None:
        self.folder = hold.folder
        self.plan = hold.plan
        self._place = str(hold.folder)
        self.changed = replaced.changed
        """Trials that had a result and have none any more, because their key is another now."""
        self.dropped = replaced.dropped
        """Trials that had a result and are not in the plan any more."""
        self._hold = hold
        self._connection = hold.connection
        self._on_close = on_close
        self._started = time.monotonic()
        self._queue: queue.SimpleQueue[_Change | _Last] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._closed = False
        self._numbering: Numbering | None = None
        with explaining(self.folder / RUN_FILE):
            self._made: dict[int, int] = dict(self._connection.execute(_ATTEMPTS_MADE))
            self._made_by_key: dict[str, int] = {}
            """For trials that are yet to be named."""
            if not hold.plan.trials:
                self._made_by_key.update(self._connection.execute(_ATTEMPTS_BY_KEY))
            self._done = self._read_done()
            self.run = read_info(self._connection, hold.folder, worked_on=True)
            """As it was when the ledger was made; after `close`, as it ended."""

    def _read_done(self) -> dict[int, Outcome]:
        return {index: Outcome(outcome) for index, outcome in self._connection.execute(_DONE)}

    @property
    def done(self) -> Mapping[int, Outcome]:
        """Trial index -> outcome, of the results that were there when the ledger was made."""
        return MappingProxyType(self._done)

    def attempts_made(self, index: int) -> int:
        """The number of the trial's last attempt, of whatever engine; 0 before the first."""
        return self._made.get(index, 0)

    def attempt_folder(self, trial: Trial, number: int) -> str:
        return f"{self._place}/{artifacts_of(trial.key, number)}"

    def forget_errors(self, chosen: Collection[int] | None = None) -> int:
        """Delete the results that are errors, so that their trials run again; attempts stay.

        Only those of the chosen trials, by index, where there is a choice.
        """
        if self._writer is not None:
            raise RuntimeError("errors are forgotten before the ledger is opened")
        with explaining(self.folder / RUN_FILE):
            keys = self._keys_of_errors(chosen)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM result WHERE key = ?", keys)
            self._connection.execute("COMMIT")
            self._done = self._read_done()
        return len(keys)

    def _keys_of_errors(self, chosen: Collection[int] | None) -> list[tuple[str]]:
        if not self.plan.trials:
            # Which of its trials will be named again, nobody knows yet.
            rows = self._connection.execute("SELECT key, outcome FROM result").fetchall()
            return [(key,) for key, outcome in rows if Outcome(outcome).is_error]
        return [
            (self.plan.trials[index].key,)
            for index, outcome in self._done.items()
            if outcome.is_error and (chosen is None or index in chosen)
        ]

    def known_results(self) -> dict[str, TrialResult]:
        """Every result that there is, by its trial's key, whether that is in the plan or not."""
        if self._writer is not None:
            raise RuntimeError("what is known is asked before the ledger is opened")
        with explaining(self.folder / RUN_FILE):
            return read_known_results(self._connection)

    def spent(self) -> Sum:
        """What all attempts so far spent.

        Also those of trials that are in the plan no more: their money is gone all the same.
        """
        if self._writer is not None:
            raise RuntimeError("what was spent is asked before the ledger is opened")
        with explaining(self.folder / RUN_FILE):
            return sum_of(content for (content,) in self._connection.execute(_WITH_A_COST))

    def spent_usd(self) -> float:
        """As far as it is known."""
        return self.spent().usd

    def unpriced_attempts(self) -> Counter[int]:
        """Trial index -> how many of its attempts may have cost something that nobody knows."""
        with explaining(self.folder / RUN_FILE):
            rows = self._connection.execute(_OF_UNKNOWN_COST).fetchall()
        return Counter(index for index, content in rows if _may_have_cost(content))

    # ---- the engine's calls: none of them blocks

    def open(self, deliver: Deliver, on_failure: Callable[[StoreError], None]) -> None:
        """Start writing. Both are called from the writer's thread.

        `deliver` gets the callbacks of everything that one commit made durable, in one call.
        `on_failure` is called when a write fails for good: the changes are kept, none of their
        callbacks is called, and nothing is written until `close`, which tries once more.
        A failure is told once: by this call, or, if it comes to light then, by `close`.
        """
        if self._writer is not None or self._closed:
            raise RuntimeError("a ledger is opened once")
        self._work = _Writing(self._hold, self._queue, deliver, on_failure)
        self._writer = threading.Thread(
            target=self._work.until_stopped, name="paraval-ledger", daemon=True
        )
        # A daemon, since an engine that ends without `close` must end like a killed one, not hang.
        self._writer.start()

    def add(self, trials: Sequence[Trial]) -> None:
        """More trials of the run; on disk no later than what is recorded of them after this."""
        if self._numbering is None:
            self._numbering = Numbering(self.plan)
        for trial in trials:
            self._made[trial.index] = self._made_by_key.get(trial.key, 0)
        self._queue.put(_Addition(self._numbering.rows_of(trials)))

    def record_start(self, attempt: Attempt, at: float, on_durable: OnDurable) -> None:
        """The attempt is about to start; start it when `on_durable` is called."""
        index, number = attempt.id
        self._made[index] = max(number, self._made.get(index, 0))
        self._queue.put(_Start(attempt, at, on_durable))

    def record_end(
        self,
        attempt: Attempt,
        result: AttemptResult,
        *,
        final: bool,
        queued_s: float | None,
        on_durable: OnDurable,
    ) -> None:
        """The attempt ended; `final`: this is the trial's result, unless it has one already."""
        self._queue.put(_End(attempt, result, time.time(), final, queued_s, on_durable))

    # ---- the end

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
            # What the engine failed with comes first.
            if error is None:
                raise

    def close(self, *, interrupted: bool, held_back: bool = False) -> None:
        """Write what is queued and how the session ended; let go of the run. Once is enough.

        `held_back`: trials were left for later on purpose, which is no interruption.
        """
        if self._closed:
            return
        self._closed = True
        failure: Exception | None = None
        if self._writer is not None:
            self._queue.put(_Last.STOP)
            self._writer.join()
            failure = self._work.failure
        told = self._writer is not None and self._work.waits
        reason = "interrupted" if interrupted else "held_back" if held_back else "finished"
        try:
            # Each by itself: how the run stands can be read also where its end cannot be written.
            for step in (partial(self._write_session_end, reason), self._read_end):
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

    def _write_session_end(self, reason: str) -> None:
        wall_s = time.monotonic() - self._started
        self._connection.execute(
            "UPDATE session SET ended_at = ?, wall_s = ?, reason = ? WHERE number = ?",
            (time.time(), wall_s, reason, self._hold.session),
        )


class _Writing:
    """The writer's thread: takes what is queued, commits it in one go, tells that it is durable."""

    def __init__(
        self,
        hold: Hold,
        changes: queue.SimpleQueue[_Change | _Last],
        deliver: Deliver,
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self._connection = hold.connection
        self._path = hold.folder / RUN_FILE
        self._session = hold.session
        self._queue = changes
        self._deliver = deliver
        self._on_failure = on_failure
        self._kept: list[_Change] = []
        self.waits = False
        """A failure was told: changes are kept, and nothing is tried until `close`."""
        self.failure: Exception | None = None
        """What `close` has to raise, as nobody was told: a last write's or a callback's error."""

    def until_stopped(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._collect()
            if self._kept and (stopping or not self.waits):
                self._commit_kept(stopping=stopping)

    def _collect(self) -> bool:
        """Wait for one change, then take those that are there too; whether that was the last."""
        item = self._queue.get()
        # Attempts that are told of together start together, end together and queue here together.
        # To take only a part of a long queue breaks such convoys up.
        most = min(LARGEST_BATCH, max(SMALL_BATCH, self._queue.qsize() // 4))
        while not isinstance(item, _Last):
            self._kept.append(item)
            if len(self._kept) >= most:
                return False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return False
        return True

    def _commit_kept(self, *, stopping: bool) -> None:
        try:
            self._write(self._kept)
        except Exception as error:  # noqa: BLE001 - the thread must tell of anything, and live on
            self._fail(error, stopping=stopping)
            return
        durable = [one.on_durable for one in self._kept if not isinstance(one, _Addition)]
        self._kept = []
        self.waits = False
        try:
            self._deliver(durable)
        except Exception as error:  # noqa: BLE001 - the engine's; results still queued come first
            self.failure = error

    def _fail(self, error: Exception, *, stopping: bool) -> None:
        if stopping and self.waits:
            return
        self.waits = True
        if isinstance(error, sqlite3.Error):
            failure = explained(error, self._path)
        else:
            failure = StoreError(
                f"{self._path} cannot be written: {error!r}",
                hint="what was recorded before is safe, and the run can be resumed",
            )
        failure.__cause__ = error
        if stopping:
            self.failure = failure
        else:
            self._on_failure(failure)

    def _write(self, changes: Sequence[_Change]) -> None:
        starts = [_start_row(c, self._session) for c in changes if isinstance(c, _Start)]
        ends = [change for change in changes if isinstance(change, _End)]
        added = NewRows()
        for change in changes:
            if isinstance(change, _Addition):
                added.extend(change.rows)
        rows = _Rows(
            added=added,
            starts=starts,
            ends=[_end_row(end, self._session) for end in ends if not end.is_held_back],
            held_back=[_held_back_row(end, self._session) for end in ends if end.is_held_back],
            results=[_result_row(end) for end in ends if end.final],
        )
        for tries_left in reversed(range(BUSY_TRIES)):
            try:
                self._transact(rows)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not tries_left:
                    raise
            else:
                return

    def _transact(self, rows: _Rows) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            _add(self._connection, rows.added)
            _INSERT_START.execute(self._connection, rows.starts)
            _UPSERT_END.execute(self._connection, rows.ends)
            _UPSERT_HELD_BACK.execute(self._connection, rows.held_back)
            _INSERT_RESULT.execute(self._connection, rows.results)
            execute("COMMIT")
        except BaseException:
            # A full disk has rolled back already, and then this raises; the first error counts.
            with suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise


def _may_have_cost(content: str | None) -> bool:
    """Whether an attempt may have cost more than it told; without content, it never ended."""
    target, judging = spent_in(content or "")
    return (
        target is None
        or target.cost_usd is None
        or (judging is not None and judging.cost_usd is None)
    )


_Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What one transaction writes."""

    added: NewRows
    starts: list[_Row]
    ends: list[_Row]
    held_back: list[_Row]
    results: list[_Row]


def _start_row(start: _Start, session: int) -> _Row:
    return (start.attempt.trial.key, start.attempt.number, session, start.at)


def _end_row(end: _End, session: int) -> _Row:
    started_at = end.at - end.result.duration_s
    key, number = end.attempt.trial.key, end.attempt.number
    return (key, number, session, started_at, end.at, *to_columns(end.result))


def _held_back_row(end: _End, session: int) -> _Row:
    columns = to_columns(end.result)
    return (end.attempt.trial.key, NO_ATTEMPT, session, end.at, end.at, *columns)


def _result_row(end: _End) -> _Row:
    return (end.attempt.trial.key, end.attempt.number, end.result.outcome.value, end.queued_s)


@dataclass(frozen=True, slots=True)
class _Insert:
    """A statement that takes many rows at once.

    Each statement makes this thread give up Python's lock and ask for it again, which takes long
    while the engine's loop is busy: few statements, not few rows, are what makes commits quick.
    """

    into: str
    columns: int
    conflict: str

    def execute(self, connection: sqlite3.Connection, rows: Sequence[_Row]) -> None:
        done = 0
        for size in _ROWS_AT_ONCE:
            while len(rows) - done >= size:
                values = [value for row in rows[done : done + size] for value in row]
                connection.execute(self._sql(size), values)
                done += size

    def _sql(self, rows: int) -> str:
        places = f"({', '.join('?' * self.columns)})"
        values = ", ".join([places] * rows)
        return f"INSERT INTO {self.into} VALUES {values} {self.conflict}"  # noqa: S608 - all ours


def _add(connection: sqlite3.Connection, added: NewRows) -> None:
    if not added.trials:
        return
    _INSERT_VARIANT.execute(connection, added.variants)
    _INSERT_CASE.execute(connection, added.cases)
    _INSERT_TRIAL.execute(connection, added.trials)
    connection.execute("UPDATE run SET trials = trials + ?", (len(added.trials),))


_ROWS_AT_ONCE = (50, 8, 1)
"""Few sizes, so that SQLite's prepared statements are found again."""

_INSERT_VARIANT = _Insert("variant", 2, "")
_INSERT_CASE = _Insert("case_", 3, "")
_INSERT_TRIAL = _Insert("trial", 5, "")

_INSERT_START = _Insert("attempt (key, number, session, started_at)", 4, "ON CONFLICT DO NOTHING")

# Also for an attempt whose start was never recorded, such as one refused before it began.
_UPSERT_END = _Insert(
    "attempt",
    10,
    """
    ON CONFLICT (key, number) DO UPDATE SET
        ended_at = excluded.ended_at, outcome = excluded.outcome, score = excluded.score,
        duration_s = excluded.duration_s, exit_code = excluded.exit_code,
        content = excluded.content
    WHERE ended_at IS NULL
    """,
)

# The last reason counts, and nothing else is remembered of a trial that was left for later.
_UPSERT_HELD_BACK = _Insert(
    "attempt",
    10,
    """
    ON CONFLICT (key, number) DO UPDATE SET
        session = excluded.session, started_at = excluded.started_at,
        ended_at = excluded.ended_at, content = excluded.content
    """,
)

_INSERT_RESULT = _Insert("result", 4, "ON CONFLICT DO NOTHING")

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
