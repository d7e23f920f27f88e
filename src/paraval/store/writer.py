"""The writer thread of a run: turns events into rows and commits them in groups; loses nothing on a
full disk."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from enum import Enum
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.records import Attempt, AttemptResult, Outcome, Plan, Trial
from paraval.store.connection import RESUMABLE, RUN_FILE, explained
from paraval.store.encoding import case_json, name_text, to_columns, variant_json
from paraval.store.exchanges import ExchangeRows, KnownTexts
from paraval.store.locks import RunLock
from paraval.store.plan_rows import plan_rows
from paraval.store.schema import NO_ATTEMPT

# Trials that are added during a run, as rows: numbered here, written by the ledger.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """Additions to a plan, in the shape of its tables."""

    variants: list[tuple[int, str]] = field(default_factory=list)
    cases: list[tuple[int, str, str]] = field(default_factory=list)
    trials: list[tuple[int, str, int, int, int]] = field(default_factory=list)

    def extend(self, more: NewRows) -> None:
        self.variants.extend(more.variants)
        self.cases.extend(more.cases)
        self.trials.extend(more.trials)


class Numbering:
    """Numbers of a plan's cases and variants, and of those added later."""

    def __init__(self, plan: Plan) -> None:
        rows = plan_rows(plan)
        self._variants = {choices: number for number, choices in rows.variants}
        self._cases = {case_id: number for number, case_id, _ in rows.cases}

    def rows_of(self, trials: Sequence[Trial]) -> NewRows:
        """A case with several trials is written as in the first of them."""
        rows = NewRows()
        for trial in trials:
            case, choices = trial.case, variant_json(trial.variant)
            if choices not in self._variants:
                self._variants[choices] = len(self._variants)
                rows.variants.append((self._variants[choices], choices))
            if case.id not in self._cases:
                self._cases[case.id] = len(self._cases)
                # Names may come from any program and contain lone surrogates.
                rows.cases.append((self._cases[case.id], name_text(case.id), case_json(case)))
            numbers = (self._cases[case.id], self._variants[choices], trial.repeat)
            rows.trials.append((trial.index, trial.key, *numbers))
        return rows


# Events of a run as rows of its tables, and statements that write very many of them.

OnDurable = Callable[[], None]


@dataclass(frozen=True, slots=True)
class StartRow:
    attempt: Attempt
    at: float
    on_durable: OnDurable
    is_ahead: bool = False
    """Nothing waits for it yet."""


@dataclass(frozen=True, slots=True)
class UnusedStart:
    """An attempt whose start was recorded does not start. No one waits for that."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class EndRow:
    attempt: Attempt
    result: AttemptResult
    at: float
    final: bool
    queued_s: float | None
    on_durable: OnDurable

    @property
    def is_held_back(self) -> bool:
        """Not an attempt: the reason why there was none, for now or for good."""
        left_for_later = not self.final and self.result.outcome is Outcome.SKIPPED
        return left_for_later or self.attempt.number == NO_ATTEMPT


@dataclass(frozen=True, slots=True)
class AddedTrials:
    """More trials. No one waits for them to be durable: what is recorded of them comes after."""

    rows: NewRows


@dataclass(frozen=True, slots=True)
class ChangedSettings:
    """What a user changed during the run. No one waits for it to be durable."""

    parallel: int
    selection: str
    """JSON."""


Change = StartRow | UnusedStart | EndRow | AddedTrials | ChangedSettings
_AWAITED = (StartRow, EndRow)
"""Changes that someone waits for."""

_Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows that one transaction writes."""

    added: NewRows
    starts: list[_Row]
    unused: list[_Row]
    ends: list[_Row]
    held_back: list[_Row]
    results: list[_Row]
    sent: ExchangeRows
    settings: list[_Row]


def rows_of(changes: Sequence[Change], session: int, known_texts: KnownTexts) -> Rows:
    ends = [change for change in changes if isinstance(change, EndRow)]
    added = NewRows()
    for change in changes:
        if isinstance(change, AddedTrials):
            added.extend(change.rows)
    starts: dict[tuple[str, int], _Row] = {}
    unused: dict[tuple[str, int], None] = {}
    for change in changes:
        # In order: what was taken back may have been recorded again.
        if isinstance(change, StartRow):
            attempt = (change.attempt.trial.key, change.attempt.number)
            starts[attempt] = (*attempt, session, change.at)
            unused.pop(attempt, None)
        elif isinstance(change, UnusedStart):
            attempt = (change.attempt.trial.key, change.attempt.number)
            starts.pop(attempt, None)
            unused[attempt] = None
    sent = ExchangeRows(known_texts)
    for end in ends:
        if end.result.exchanges and not end.is_held_back:
            sent.add(end.attempt.trial.key, end.attempt.number, end.result.exchanges)
    return Rows(
        added=added,
        starts=list(starts.values()),
        unused=list(unused),
        ends=[_end_row(end, session) for end in ends if not end.is_held_back],
        held_back=[_held_back_row(end, session) for end in ends if end.is_held_back],
        results=[_result_row(end) for end in ends if end.final],
        sent=sent,
        settings=[
            (change.parallel, change.selection)
            for change in changes
            if isinstance(change, ChangedSettings)
        ],
    )


def write(connection: sqlite3.Connection, rows: Rows) -> None:
    """Write within the caller's transaction."""
    _add(connection, rows.added)
    _INSERT_START.execute(connection, rows.starts)
    if rows.unused:
        connection.executemany(_DELETE_START, rows.unused)
    _UPSERT_END.execute(connection, rows.ends)
    _UPSERT_HELD_BACK.execute(connection, rows.held_back)
    _INSERT_RESULT.execute(connection, rows.results)
    _INSERT_EXCHANGE.execute(connection, rows.sent.exchanges)
    _INSERT_TEXT.execute(connection, list(rows.sent.texts.items()))
    for changed in rows.settings:
        connection.execute("UPDATE run SET parallel = ?, selection = ?", changed)


def _end_row(end: EndRow, session: int) -> _Row:
    started_at = end.at - end.result.duration_s
    key, number = end.attempt.trial.key, end.attempt.number
    return (key, number, session, started_at, end.at, *to_columns(end.result))


def _held_back_row(end: EndRow, session: int) -> _Row:
    columns = to_columns(end.result)
    return (end.attempt.trial.key, NO_ATTEMPT, session, end.at, end.at, *columns)


def _result_row(end: EndRow) -> _Row:
    return (end.attempt.trial.key, end.attempt.number, end.result.outcome.value, end.queued_s)


@dataclass(frozen=True, slots=True)
class _Insert:
    """A statement that inserts many rows at a time.

    Each statement makes this thread release and reacquire the GIL, which is slow while the engine's
    loop is busy: few statements, not few rows, make commits quick.
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
"""Few distinct sizes, so that SQLite's prepared statements are reused."""

_INSERT_VARIANT = _Insert("variant", 2, "")
_INSERT_CASE = _Insert("case_", 3, "")
_INSERT_TRIAL = _Insert("trial", 5, "")

_INSERT_START = _Insert("attempt (key, number, session, started_at)", 4, "ON CONFLICT DO NOTHING")

_DELETE_START = "DELETE FROM attempt WHERE key = ? AND number = ? AND ended_at IS NULL"

# Also for an attempt whose start was never recorded, such as one refused before it began. A start
# that was recorded ahead was earlier than the real one.
_UPSERT_END = _Insert(
    "attempt",
    10,
    """
    ON CONFLICT (key, number) DO UPDATE SET
        started_at = max(started_at, excluded.started_at), ended_at = excluded.ended_at,
        outcome = excluded.outcome, score = excluded.score, duration_s = excluded.duration_s,
        exit_code = excluded.exit_code, content = excluded.content
    WHERE ended_at IS NULL
    """,
)

# The last reason counts; nothing else is kept of a postponed trial.
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
_INSERT_EXCHANGE = _Insert("exchange", 3, "ON CONFLICT DO NOTHING")
_INSERT_TEXT = _Insert("long_text", 2, "ON CONFLICT DO NOTHING")

LINGER_S = 0.01
"""How long changes that no one waits for are gathered: few large commits cost less than many."""
SMALL_BATCH = 32
LARGEST_BATCH = 1000
BUSY_TRIES = 4
"""Retries. Each waits for SQLite's own 30 s: a lock held for under two minutes costs time, not
results."""

Deliver = Callable[[list[OnDurable]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHold:
    """An engine's hold on a run, from `store`: used by the ledger, and released when it is
    closed."""

    folder: Path
    connection: sqlite3.Connection
    lock: RunLock
    session: int
    plan: Plan


class LastChange(Enum):
    """Queued after all changes."""

    STOP = "write what there is, once, and end"


class WriterThread:
    """The writer thread: takes what is queued, commits it in one transaction, reports it
    durable."""

    def __init__(
        self,
        hold: RunHold,
        changes: queue.SimpleQueue[Change | LastChange],
        deliver: Deliver,
        on_failure: Callable[[StoreError], None],
        also_write: Callable[[], None],
    ) -> None:
        self._connection = hold.connection
        self._path = hold.folder / RUN_FILE
        self._session = hold.session
        self._queue = changes
        self._deliver = deliver
        self._on_failure = on_failure
        self._also_write = also_write
        self._kept: list[Change] = []
        self._known_texts = KnownTexts()
        self._lingers = False
        """Starts are recorded ahead, so that ends may wait for one another."""
        self.is_urgent = threading.Event()
        """Set when someone waits for a start that is queued."""
        self.waits = False
        """A failure has been reported: changes are kept, and nothing is tried until `close`."""
        self.failure: Exception | None = None
        """The error for `close` to raise because no one has seen it: from the last write or a
        callback."""

    def until_stopped(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._collect()
            if self._kept and (stopping or not self.waits):
                self._commit_kept(stopping=stopping)
            # Last: callers who wait for a commit wait for nothing else.
            self._also_write()

    def _collect(self) -> bool:
        """Wait for one change, then take those already queued; returns whether that was the
        last."""
        item = self._queue.get()
        if self._lingers:
            self.is_urgent.wait(LINGER_S)
            most = LARGEST_BATCH
        else:
            # Attempts reported durable together start, end and queue here together. Taking only
            # part of a long queue breaks up such convoys.
            most = min(LARGEST_BATCH, max(SMALL_BATCH, self._queue.qsize() // 4))
        self.is_urgent.clear()
        self._lingers = False
        while not isinstance(item, LastChange):
            self._kept.append(item)
            self._lingers = self._lingers or (isinstance(item, StartRow) and item.is_ahead)
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
        except Exception as error:  # noqa: BLE001 - the thread must report anything, and survive
            self._fail(error, stopping=stopping)
            return
        durable = [one.on_durable for one in self._kept if isinstance(one, _AWAITED)]
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
            failure = StoreError(f"{self._path} cannot be written: {error!r}", hint=RESUMABLE)
        failure.__cause__ = error
        if stopping:
            self.failure = failure
        else:
            self._on_failure(failure)

    def _write(self, changes: Sequence[Change]) -> None:
        rows = rows_of(changes, self._session, self._known_texts)
        for tries_left in reversed(range(BUSY_TRIES)):
            try:
                self._transact(rows)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not tries_left:
                    raise
            else:
                self._known_texts.written.update(rows.sent.texts)
                return

    def _transact(self, rows: Rows) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            write(self._connection, rows)
            execute("COMMIT")
        except BaseException:
            # A full disk has rolled back already, and then this raises; the first error counts.
            with suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise
