"""Reading a run, while it goes on or long after, here or in a copy of its folder.

Rows are fetched in pages, each a short read of its own: an onlooker that takes its time holds up
neither the engine's log nor a resume, and 100,000 trials need no more memory than one page.
"""

from __future__ import annotations

import fnmatch
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paraval.records import (
    AttemptRecord,
    AttemptResult,
    Failure,
    Outcome,
    RunInfo,
    TrialResult,
    Variant,
)
from paraval.store.connection import RUN_FILE, ReadingFile, explaining
from paraval.store.encoding import EndedColumns, from_columns
from paraval.store.folder import artifacts_of
from paraval.store.locks import is_worked_on

PAGE_ROWS = 500


class RunReader:
    """One run's folder, read-only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / RUN_FILE
        self._file = ReadingFile(self._path, worked_on=is_worked_on(folder))
        self._connection = self._file.connection
        self._variants: dict[int, Variant] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def info(self) -> RunInfo:
        with explaining(self._path):
            return read_info(self._connection, self._folder, worked_on=is_worked_on(self._folder))

    def selection(self) -> Mapping[str, Any]:
        """The filters and overrides that the run was planned with."""
        with explaining(self._path):
            (text,) = self._connection.execute("SELECT selection FROM run").fetchone()
            selection: dict[str, Any] = json.loads(text)
        return selection

    def results(self) -> Iterator[TrialResult]:
        """Every trial, in plan order; those without a result as skipped, with the reason."""
        worked_on = is_worked_on(self._folder)
        for row in self._pages(_RESULTS, {}):
            with explaining(self._path):
                result = self._trial_result(row, worked_on=worked_on)
            yield result

    def _trial_result(self, row: tuple[Any, ...], *, worked_on: bool) -> TrialResult:
        index, case_id, variant, repeat, attempts, total_s, unended, queued_s, *ended = row
        return TrialResult(
            index=index,
            case_id=case_id,
            variant=self._variant(variant),
            repeat=repeat,
            result=_ended_result(ended) or _no_result(worked_on=worked_on, unended=unended),
            attempts=attempts,
            queued_s=queued_s,
            total_s=total_s,
        )

    def attempts(
        self, *, case: str | None = None, index: int | None = None
    ) -> Iterator[AttemptRecord]:
        """Attempts by plan order and number; of the cases that a glob fits, or of one trial."""
        self._connection.create_function(
            "case_fits", 1, lambda name: case is None or fnmatch.fnmatchcase(name, case)
        )
        for row in self._pages(_ATTEMPTS, {"only": index}, cursor_columns=2):
            with explaining(self._path):
                attempt = self._attempt(row)
            yield attempt

    def _attempt(self, row: tuple[Any, ...]) -> AttemptRecord:
        trial, number, key, case_id, variant, repeat, started_at, *ended = row
        return AttemptRecord(
            index=trial,
            case_id=case_id,
            variant=self._variant(variant),
            repeat=repeat,
            number=number,
            started_at=started_at,
            folder=artifacts_of(key, number),
            result=_ended_result(ended),
        )

    def _pages(
        self, sql: str, parameters: Mapping[str, Any], *, cursor_columns: int = 1
    ) -> Iterator[tuple[Any, ...]]:
        """All rows, page after page, each from where the last one ended: by the first columns."""
        after: tuple[Any, ...] = (-1,) * cursor_columns
        while True:
            cursor = {f"after_{place}": value for place, value in enumerate(after)}
            with explaining(self._path):
                page = self._connection.execute(
                    f"{sql} LIMIT {PAGE_ROWS}", {**parameters, **cursor}
                ).fetchall()
            yield from page
            if len(page) < PAGE_ROWS:
                return
            after = page[-1][:cursor_columns]

    def _variant(self, number: int) -> Variant:
        if number not in self._variants:
            sql = "SELECT choices FROM variant WHERE number = ?"
            self._variants[number] = json.loads(
                self._connection.execute(sql, (number,)).fetchone()[0]
            )
        return self._variants[number]


def _ended_result(columns: Sequence[Any]) -> AttemptResult | None:
    ended = columns[0] is not None
    return from_columns(EndedColumns(*columns)) if ended else None


def _no_result(*, worked_on: bool, unended: int) -> AttemptResult:
    if not worked_on:
        message = "not run: the run was interrupted"
    elif unended:
        message = "still running"
    else:
        message = "not run yet: the run goes on"
    failure = Failure(kind=Outcome.SKIPPED, message=message)
    return AttemptResult(outcome=Outcome.SKIPPED, error=failure)


def read_info(connection: sqlite3.Connection, folder: Path, *, worked_on: bool) -> RunInfo:
    """The run as its file tells it, by any connection to it."""
    run_id, suite, source, parallel, seed, fail_under, trials = connection.execute(
        "SELECT id, suite, source, parallel, seed, fail_under, trials FROM run"
    ).fetchone()
    started_at, sessions = connection.execute(
        "SELECT min(started_at), count(*) FROM session"
    ).fetchone()
    (ended_at,) = connection.execute(
        "SELECT ended_at FROM session ORDER BY number DESC LIMIT 1"
    ).fetchone()
    (done,) = connection.execute("SELECT count(*) FROM trial JOIN result USING (key)").fetchone()
    return RunInfo(
        id=run_id,
        suite=suite,
        source=source,
        folder=str(folder),
        trials=trials,
        parallel=parallel,
        seed=int(seed),
        started_at=started_at,
        ended_at=None if worked_on else ended_at,
        wall_s=_wall_s(connection),
        resumed=sessions - 1,
        interrupted=not worked_on and done < trials,
        fail_under=fail_under,
        done=done,
        running=worked_on,
    )


def _wall_s(connection: sqlite3.Connection) -> float:
    """The sessions' own measure; for one that has none, from its start to its last sign of life."""
    total = 0.0
    for number, started_at, wall_s in connection.execute(
        "SELECT number, started_at, wall_s FROM session"
    ).fetchall():
        total += (
            wall_s if wall_s is not None else last_sign_of_life(connection, number) - started_at
        )
    return total


def last_sign_of_life(connection: sqlite3.Connection, session: int) -> float:
    (at,) = connection.execute(
        "SELECT max(at) FROM ("
        " SELECT started_at AS at FROM session WHERE number = :session UNION ALL"
        " SELECT max(coalesce(ended_at, started_at)) FROM attempt WHERE session = :session)",
        {"session": session},
    ).fetchone()
    return float(at)


_RESULTS = """
    SELECT trial.idx, case_.id, trial.variant, trial.repeat,
        (SELECT count(*) FROM attempt WHERE attempt.key = trial.key),
        (SELECT total(duration_s) FROM attempt WHERE attempt.key = trial.key),
        (SELECT count(*) FROM attempt WHERE attempt.key = trial.key AND ended_at IS NULL),
        result.queued_s, result.outcome, decided.score, decided.duration_s, decided.exit_code,
        decided.content
    FROM trial
    JOIN case_ ON case_.number = trial.case_
    LEFT JOIN result ON result.key = trial.key
    LEFT JOIN attempt AS decided ON decided.key = trial.key AND decided.number = result.number
    WHERE trial.idx > :after_0 ORDER BY trial.idx
"""

_ATTEMPTS = """
    SELECT trial.idx, attempt.number, attempt.key, case_.id, trial.variant, trial.repeat,
        attempt.started_at, attempt.outcome, attempt.score, attempt.duration_s, attempt.exit_code,
        attempt.content
    FROM trial
    JOIN case_ ON case_.number = trial.case_
    JOIN attempt ON attempt.key = trial.key
    WHERE (trial.idx, attempt.number) > (:after_0, :after_1)
        AND (:only IS NULL OR trial.idx = :only) AND case_fits(case_.id)
    ORDER BY trial.idx, attempt.number
"""
