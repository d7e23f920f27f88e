"""What happens in a run as rows of its tables, and the statements that write very many of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paraval.records import Attempt, AttemptResult, Outcome
from paraval.store.encoding import to_columns
from paraval.store.growing import NewRows
from paraval.store.schema import NO_ATTEMPT

OnDurable = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Start:
    attempt: Attempt
    at: float
    on_durable: OnDurable


@dataclass(frozen=True, slots=True)
class End:
    attempt: Attempt
    result: AttemptResult
    at: float
    final: bool
    queued_s: float | None
    on_durable: OnDurable

    @property
    def is_held_back(self) -> bool:
        """It is no attempt: it tells why there was none, for now or for good."""
        left_for_later = not self.final and self.result.outcome is Outcome.SKIPPED
        return left_for_later or self.attempt.number == NO_ATTEMPT


@dataclass(frozen=True, slots=True)
class Addition:
    """More trials. Nobody waits for it to be on disk: what is recorded of them comes after it."""

    rows: NewRows


Change = Start | End | Addition

_Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What one transaction writes."""

    added: NewRows
    starts: list[_Row]
    ends: list[_Row]
    held_back: list[_Row]
    results: list[_Row]


def rows_of(changes: Sequence[Change], session: int) -> Rows:
    ends = [change for change in changes if isinstance(change, End)]
    added = NewRows()
    for change in changes:
        if isinstance(change, Addition):
            added.extend(change.rows)
    return Rows(
        added=added,
        starts=[_start_row(change, session) for change in changes if isinstance(change, Start)],
        ends=[_end_row(end, session) for end in ends if not end.is_held_back],
        held_back=[_held_back_row(end, session) for end in ends if end.is_held_back],
        results=[_result_row(end) for end in ends if end.final],
    )


def write(connection: sqlite3.Connection, rows: Rows) -> None:
    """In the caller's transaction."""
    _add(connection, rows.added)
    _INSERT_START.execute(connection, rows.starts)
    _UPSERT_END.execute(connection, rows.ends)
    _UPSERT_HELD_BACK.execute(connection, rows.held_back)
    _INSERT_RESULT.execute(connection, rows.results)


def _start_row(start: Start, session: int) -> _Row:
    return (start.attempt.trial.key, start.attempt.number, session, start.at)


def _end_row(end: End, session: int) -> _Row:
    started_at = end.at - end.result.duration_s
    key, number = end.attempt.trial.key, end.attempt.number
    return (key, number, session, started_at, end.at, *to_columns(end.result))


def _held_back_row(end: End, session: int) -> _Row:
    columns = to_columns(end.result)
    return (end.attempt.trial.key, NO_ATTEMPT, session, end.at, end.at, *columns)


def _result_row(end: End) -> _Row:
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
