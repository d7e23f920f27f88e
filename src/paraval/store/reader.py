"""Reads a run, while it is in progress or long after, here or in a copy of its folder.

Rows are fetched in pages, each a short read of its own: a slow observer delays neither the engine's
log nor a resume, and 100,000 trials need no more memory than one page.
"""

from __future__ import annotations

import fnmatch
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pydantic_core import from_json

from paraval.dataclass import dataclass
from paraval.records import (
    AttemptRecord,
    AttemptResult,
    Case,
    Exchange,
    Failure,
    Outcome,
    RunInfo,
    TrialResult,
    Variant,
)
from paraval.settings import is_of_tests
from paraval.store.connection import (
    FAULTS,
    RUN_FILE,
    ReadingFile,
    explained,
    explaining,
    require_whole,
)
from paraval.store.encoding import (
    EndedColumns,
    case_of,
    checked_number,
    checked_text,
    from_columns,
    mapping_of,
    required_time,
    required_whole,
    selection_of,
)
from paraval.store.exchanges import read_exchanges
from paraval.store.folder import artifacts_of
from paraval.store.locks import is_worked_on
from paraval.store.run_info import read_info
from paraval.store.schema import GROWS, NO_ATTEMPT

PAGE_ROWS = 500
NOT_NAMED = -1
"""The index of a result whose trial is not in the plan yet."""
_LONGEST_WHY = 200
_NO_TRIAL: Mapping[str, Any] = {"index": NOT_NAMED, "case_id": "", "variant": {}, "repeat": 0}


class TrialEntry(NamedTuple):
    """A trial's place in the plan, by the numbers of its case and variant."""

    trial: int
    """Its index."""
    case: int
    variant: int
    repeat: int


class AttemptBrief(NamedTuple):
    """An attempt in short, as lists of very many show it."""

    row: int
    trial: int
    number: int
    """0: none; the reason why the trial was postponed or skipped."""
    session: int
    started_at: float
    outcome: Outcome | None = None
    """None: it has not ended."""
    duration_s: float = 0.0
    usd: float | None = None
    """What is known of its cost, judges included."""
    is_partly_unknown: bool = False
    """Some of its cost is unknown."""
    failed_by: tuple[str, ...] = ()
    """The graders that failed its answer."""
    why: str = ""
    """The first of their reasons, or its error."""
    decides: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """What happened in a run since it was read last."""

    session: int
    """The number of its last engine; another one may have changed the plan."""
    trials: Sequence[TrialEntry]
    """Those that were added ..."""
    attempts: Sequence[AttemptBrief]
    """... those that started or ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTally:
    """A run in a few figures."""

    outcomes: Mapping[Outcome, int]
    pass_rate: float | None
    """Averaged by case and variant, as in reports; None if nothing was judged."""
    usd: float | None
    is_partly_unknown: bool = False
    """Some of the cost is unknown."""


class RunReader:
    """One run's folder, read-only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / RUN_FILE
        self._file = ReadingFile(self._path, worked_on=is_worked_on(folder))
        self._connection = self._file.connection
        self._variants: dict[int, Variant] = {}
        self._is_checked = False

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
            return selection_of(text)

    def grows(self) -> bool:
        """Whether trials are added during the run."""
        with explaining(self._path):
            (digest,) = self._connection.execute("SELECT plan_digest FROM run").fetchone()
        return bool(digest == GROWS)

    def not_run(self) -> int:
        """Number of trials that were skipped for good."""
        with explaining(self._path):
            (number,) = self._connection.execute(_NOT_RUN).fetchone()
        return int(number)

    def known_results(self) -> dict[str, TrialResult]:
        """Every result by its trial's key, whether the key is in the plan or not."""
        with explaining(self._path):
            return read_known_results(self._connection)

    def verdicts(self) -> dict[str, Counter[Outcome]]:
        """How often attempts at each trial passed and failed, by its key; judged attempts only."""
        found: dict[str, Counter[Outcome]] = {}
        with explaining(self._path):
            for key, outcome, number in self._connection.execute(_VERDICTS):
                found.setdefault(key, Counter())[Outcome(outcome)] = number
        return found

    def last_ends(self) -> dict[str, TrialResult]:
        """How the trials that the last engine added ended, by their keys and in its order.

        Postponed trials are skipped, with the reason; unfinished ones are absent. Empty if the
        engine added none.
        """
        with explaining(self._path):
            ended = {**read_left_for_later(self._connection), **self.known_results()}
            rows = self._connection.execute(_NAMED).fetchall()
            return {
                key: replace(
                    ended[key],
                    index=index,
                    case_id=checked_text(case_id),
                    variant=mapping_of(choices),
                    repeat=required_whole(repeat),
                )
                for index, key, case_id, choices, repeat in rows
                if key in ended
            }

    def results(self, *, case: str | None = None) -> Iterator[TrialResult]:
        """Every trial in plan order, or those of cases that match a glob; trials without a result
        as skipped, with the reason."""
        worked_on = is_worked_on(self._folder)
        if case is None:
            self._require_whole(worked_on=worked_on)
        with explaining(self._path):
            cases = self._numbers_of(case)
        index = 0
        try:  # One for all, since there may be very many.
            for index, *row in self._pages(_RESULTS, {"cases": cases}):
                yield self._trial_result(_ResultRow(index, *row), worked_on=worked_on)
        except FAULTS as error:
            raise explained(error, self._path, f"trial {index}") from error

    def _require_whole(self, *, worked_on: bool) -> None:
        if not (worked_on or self._is_checked):
            with explaining(self._path):
                require_whole(self._connection, self._path)
            self._is_checked = True

    def result(self, index: int) -> TrialResult:
        """One trial, by its index in the plan."""
        with explaining(self._path, f"trial {index}"):
            found = self._connection.execute(
                f"{_RESULTS} LIMIT 1", {"after_0": index - 1, "cases": None}
            )
            return self._trial_result(_ResultRow(*found.fetchone()), worked_on=False)

    def answered(self) -> Iterator[tuple[int, str, Variant, int]]:
        """The trials that have a result: index, case, variant and repeat; not those skipped."""
        self._require_whole(worked_on=is_worked_on(self._folder))
        for index, case_id, variant, repeat in self._pages(_ANSWERED, {}):
            with explaining(self._path, f"trial {index}"):
                found = checked_text(case_id), self._variant(variant), required_whole(repeat)
            yield index, *found

    def pending(self, case: str) -> list[tuple[int, Variant]]:
        """The trials of a case that have no result yet: index and variant."""
        with explaining(self._path):
            rows = self._connection.execute(_PENDING, (case,)).fetchall()
            return [(index, self._variant(variant)) for index, variant in rows]

    def _trial_result(self, row: _ResultRow, *, worked_on: bool) -> TrialResult:
        decided = _ended_result(row[-5:])
        retries: list[AttemptResult] = []
        # Most trials have one attempt: others are read only where they exist. A trial skipped for
        # good has no deciding attempt.
        if row.attempts > bool(row.decided_by):
            retries = _read_retries(self._connection, row.key, row.decided_by)
        return TrialResult.decided_by(
            decided or self._no_result(row, worked_on=worked_on),
            retries,
            index=row.trial,
            case_id=checked_text(row.case_id),
            variant=self._variant(row.variant),
            repeat=required_whole(row.repeat),
            attempts=row.attempts,
            queued_s=checked_number(row.queued_s),
            unended=self._never_ended(row, worked_on=worked_on) if row.unended else 0,
        )

    def _never_ended(self, row: _ResultRow, *, worked_on: bool) -> int:
        """Unfinished attempts of dead engines: those of a live engine may still end."""
        found = self._connection.execute(_UNENDED, {"key": row.key, "worked_on": worked_on})
        (number,) = found.fetchone()
        return int(number)

    def _no_result(self, row: _ResultRow, *, worked_on: bool) -> AttemptResult:
        """A trial without a result, as skipped for the recorded reason or the apparent one."""
        held_back = self._connection.execute(_HELD_BACK, {"key": row.key, "worked_on": worked_on})
        if (columns := held_back.fetchone()) is not None:
            return from_columns(EndedColumns(*columns))
        if worked_on and row.unended:
            message = "still running"
        elif not worked_on and row.unended:
            message = "interrupted"
            if not is_of_tests(self.selection()):
                message += "; a resume runs them again"
        elif not worked_on:
            message = "not run: the run was interrupted"
        else:
            message = "not run yet: the run is in progress"
        failure = Failure(kind=Outcome.SKIPPED, message=message)
        return AttemptResult(outcome=Outcome.SKIPPED, error=failure)

    def attempts(
        self, *, case: str | None = None, index: int | None = None
    ) -> Iterator[AttemptRecord]:
        """Attempts by plan order and number; for cases that match a glob, or for one trial."""
        with explaining(self._path):
            cases = self._numbers_of(case)
        for row in self._pages(_ATTEMPTS, {"only": index, "cases": cases}, cursor_columns=2):
            with explaining(self._path, f"trial {row[0]}"):
                attempt = self._attempt(row)
            yield attempt

    def _numbers_of(self, pattern: str | None) -> str | None:
        """The numbers of the cases that match a glob, as JSON; None for all."""
        if pattern is None:
            return None
        rows = self._connection.execute("SELECT number, id FROM case_")
        # An id may contain what globs have a meaning for.
        fits = (n for n, name in rows if name == pattern or fnmatch.fnmatchcase(str(name), pattern))
        return json.dumps(list(fits))

    def exchanges(self, index: int, number: int | None = None) -> tuple[Exchange, ...]:
        """What the trial's attempt with this number sent and got back: its target, then its
        judges. None: the attempt that decided the trial. Empty in runs of earlier versions."""
        with explaining(self._path, f"trial {index}"):
            return read_exchanges(self._connection, index, number)

    def cases(self) -> Iterator[Case]:
        """The cases in plan order, without fields that only a run needs, such as locks."""
        for number, case_id, content in self._pages(_CASES, {}):
            with explaining(self._path, f"case {number}"):
                case = case_of(case_id, content)
            yield case

    def tags(self) -> dict[str, tuple[str, ...]]:
        """The tags of the cases that have some, by their ids."""
        with explaining(self._path):
            rows = self._connection.execute(_TAGGED)
            return {case_id: case_of(case_id, content).tags for case_id, content in rows}

    # ---- in short, for viewers

    def changes_since(self, *, trials: int, row: int, unended: Collection[int]) -> RunChanges:
        """Trials from this index on, attempts after this row, and those that had not ended: one
        that is missing did not start after all."""
        with explaining(self._path):
            execute = self._connection.execute
            (session,) = execute("SELECT max(number) FROM session").fetchone()
            added = execute(_ADDED_TRIALS, (trials,)).fetchall()
            rows = execute(_ATTEMPTS_AT, (json.dumps(list(unended)),)).fetchall() if unended else []
            rows += execute(_ATTEMPTS_AFTER, (row,)).fetchall()
            return RunChanges(
                session=session,
                trials=[TrialEntry(*one) for one in added],
                attempts=[_brief(one) for one in rows],
            )

    def case_names(self) -> list[tuple[str, tuple[str, ...]]]:
        """The id and the tags of every case, by number."""
        with explaining(self._path):
            rows = self._connection.execute("SELECT id, content FROM case_ ORDER BY number")
            return [
                (
                    checked_text(case_id),
                    case_of(case_id, content).tags if '"tags"' in content else (),
                )
                for case_id, content in rows
            ]

    def cases_at(self, numbers: Collection[int]) -> dict[int, Case]:
        """Some of the cases, by number."""
        with explaining(self._path):
            rows = self._connection.execute(_CASES_AT, (json.dumps(list(numbers)),))
            return {number: case_of(case_id, content) for number, case_id, content in rows}

    def cases_with(self, text: str) -> set[int]:
        """Numbers of the cases with this text in their id, input, expectation, tags, answers,
        reasons or errors. Case matters only beyond ASCII."""
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]
        for sign in "\\%_":
            escaped = escaped.replace(sign, f"\\{sign}")
        with explaining(self._path):
            rows = self._connection.execute(_CASES_WITH, {"text": f"%{escaped}%"})
            return {number for (number,) in rows}

    def variants(self) -> list[Variant]:
        """All variants, by number."""
        with explaining(self._path):
            rows = self._connection.execute("SELECT number FROM variant ORDER BY number").fetchall()
            return [self._variant(number) for (number,) in rows]

    def tally(self) -> RunTally:
        with explaining(self._path):
            outcomes = self._connection.execute(_OUTCOMES).fetchall()
            (rate,) = self._connection.execute(_PASS_RATE).fetchone()
            priced = self._connection.execute(_PRICED)
            costs = [_usd(from_json(content)) for (content,) in priced]
            known = [usd for usd, _ in costs if usd is not None]
            return RunTally(
                outcomes={Outcome(outcome): number for outcome, number in outcomes},
                pass_rate=rate,
                usd=math.fsum(known) if known else None,
                is_partly_unknown=any(unknown for _, unknown in costs),
            )

    def _attempt(self, row: tuple[Any, ...]) -> AttemptRecord:
        trial, number, key, case_id, variant, repeat, started_at, *ended = row
        return AttemptRecord(
            index=trial,
            case_id=checked_text(case_id),
            variant=self._variant(variant),
            repeat=required_whole(repeat),
            number=required_whole(number),
            started_at=required_time(started_at),
            folder=artifacts_of(checked_text(key), number),
            result=_ended_result(ended),
        )

    def _pages(
        self, sql: str, parameters: Mapping[str, Any], *, cursor_columns: int = 1
    ) -> Iterator[tuple[Any, ...]]:
        """All rows, page by page, each continuing after the last by its first columns."""
        after: tuple[Any, ...] = (-1,) * cursor_columns
        while True:
            cursor = {f"after_{place}": value for place, value in enumerate(after)}
            with explaining(self._path):
                page = self._connection.execute(
                    f"{sql} LIMIT {PAGE_ROWS}", {**parameters, **cursor}
                ).fetchall()
                # Pages of a damaged file can point back to each other; then there would be no last
                # page.
                if page and not page[-1][:cursor_columns] > after:
                    raise ValueError("its rows are out of order")
            yield from page
            if len(page) < PAGE_ROWS:
                return
            after = page[-1][:cursor_columns]

    def _variant(self, number: int) -> Variant:
        if number not in self._variants:
            sql = "SELECT choices FROM variant WHERE number = ?"
            self._variants[number] = mapping_of(
                self._connection.execute(sql, (number,)).fetchone()[0]
            )
        return self._variants[number]


def _brief(columns: tuple[Any, ...]) -> AttemptBrief:
    """Fast, since there may be very many."""
    row, trial, number, session, started_at, outcome, duration_s, content, decided_by = columns
    if outcome is None or content is None:
        return AttemptBrief(row, trial, number, session, started_at)
    usd, is_partly_unknown, why = None, False, ""
    failed_by: tuple[str, ...] = ()
    # Most attempts have nothing to tell: they passed, and have no price.
    if outcome != Outcome.PASSED or '"cost_usd"' in content:
        told = from_json(content)
        usd, is_partly_unknown = _usd(told)
        if outcome != Outcome.PASSED:
            failed = [one for one in told.get("grades", ()) if not one.get("passed")]
            failed_by = tuple(str(one.get("grader", "")) for one in failed)
            reasons = [(told.get("error") or {}).get("message")]
            reasons += [one.get("reason") for one in failed]
            why = str(next(filter(None, reasons), ""))[:_LONGEST_WHY]
    return AttemptBrief(
        *(row, trial, number, session, started_at, Outcome(outcome), duration_s or 0.0),
        *(usd, is_partly_unknown, failed_by, why, number == decided_by),
    )


def _usd(content: Mapping[str, Any]) -> tuple[float | None, bool]:
    """What the answers cost, cached ones as when they were requested, of contents too many to
    check; and whether some of it is unknown."""
    total, is_partly_unknown = None, False
    target = content.get("spend") or content.get("output")
    for spend in (target, content.get("judging")):
        if spend is not None and "cost_usd" in spend:
            usd = spend["cost_usd"]
            if usd is None:
                usd, is_partly_unknown = spend.get("part_usd"), True
            if spend.get("cached"):
                then = spend.get("cached_usd")
                is_partly_unknown = is_partly_unknown or then is None
                usd = (usd or 0.0) + then if then is not None else usd or None
            if usd is not None:
                total = usd + (total or 0.0)
    return total if total is None or math.isfinite(total) else None, is_partly_unknown


def _ended_result(columns: Sequence[Any]) -> AttemptResult | None:
    ended = columns[0] is not None
    return from_columns(EndedColumns(*columns)) if ended else None


def read_known_results(connection: sqlite3.Connection) -> dict[str, TrialResult]:
    """Results by key, from any connection to the run, without their trials: callers match them by
    key."""
    known: dict[str, TrialResult] = {}
    for key, number, queued_s, *decided in connection.execute(_KNOWN):
        known[key] = TrialResult.decided_by(
            from_columns(EndedColumns(*decided)),
            # As above.
            _read_retries(connection, key, number) if number != 1 else (),
            **_NO_TRIAL,
            attempts=number,
            queued_s=checked_number(queued_s),
        )
    return known


def _read_retries(
    connection: sqlite3.Connection, key: str, decided_by: int | None
) -> list[AttemptResult]:
    rows = connection.execute(_RETRIES, (key, decided_by)).fetchall()
    return [from_columns(EndedColumns(*columns)) for columns in rows]


def read_left_for_later(connection: sqlite3.Connection) -> dict[str, TrialResult]:
    """Trials that the last engine skipped, by their keys, as results with the reason."""
    return {
        key: TrialResult.decided_by(from_columns(EndedColumns(*columns)), **_NO_TRIAL, attempts=0)
        for key, *columns in connection.execute(_LEFT_FOR_LATER)
    }


class _ResultRow(NamedTuple):
    """A row of the query below; its last five columns belong to the deciding attempt."""

    trial: int
    key: str
    case_id: str
    variant: int
    repeat: int
    attempts: int
    unended: int
    queued_s: float | None
    decided_by: int | None
    outcome: str | None
    score: float | None
    duration_s: float | None
    exit_code: int | None
    content: str | None


_OF_CASES = "(:cases IS NULL OR trial.case_ IN (SELECT value FROM json_each(:cases)))"

_RESULTS = f"""
    SELECT trial.idx, trial.key, case_.id, trial.variant, trial.repeat,
        (SELECT count(*) FROM attempt WHERE attempt.key = trial.key AND number > {NO_ATTEMPT}),
        (SELECT count(*) FROM attempt WHERE attempt.key = trial.key AND ended_at IS NULL),
        result.queued_s, result.number, result.outcome, decided.score, decided.duration_s,
        decided.exit_code, decided.content
    FROM trial
    JOIN case_ ON case_.number = trial.case_
    LEFT JOIN result ON result.key = trial.key
    LEFT JOIN attempt AS decided ON decided.key = trial.key AND decided.number = result.number
    WHERE trial.idx > :after_0 AND {_OF_CASES} ORDER BY trial.idx
"""  # noqa: S608 - our own number

_NOT_RUN = f"""
    SELECT count(*) FROM trial JOIN result USING (key)
    JOIN attempt ON attempt.key = result.key AND attempt.number = result.number
    WHERE attempt.outcome = '{Outcome.SKIPPED}'
"""  # noqa: S608 - our own word

_VERDICTS = f"""
    SELECT key, outcome, count(*) FROM attempt
    WHERE outcome IN ('{Outcome.PASSED}', '{Outcome.FAILED}')
    GROUP BY key, outcome
"""  # noqa: S608 - our own words

_KNOWN = """
    SELECT result.key, result.number, result.queued_s,
        decided.outcome, decided.score, decided.duration_s, decided.exit_code, decided.content
    FROM result JOIN attempt AS decided
        ON decided.key = result.key AND decided.number = result.number
"""

_NAMED = """
    SELECT trial.idx, trial.key, case_.id, variant.choices, trial.repeat
    FROM trial
    JOIN case_ ON case_.number = trial.case_ JOIN variant ON variant.number = trial.variant
    ORDER BY trial.idx
"""

_ANSWERED = f"""
    SELECT trial.idx, case_.id, trial.variant, trial.repeat
    FROM trial JOIN case_ ON case_.number = trial.case_ JOIN result ON result.key = trial.key
    WHERE trial.idx > :after_0 AND result.outcome <> '{Outcome.SKIPPED}' ORDER BY trial.idx
"""  # noqa: S608 - our own word

_PENDING = """
    SELECT trial.idx, trial.variant FROM trial JOIN case_ ON case_.number = trial.case_
    WHERE case_.id = ? AND trial.key NOT IN (SELECT key FROM result) ORDER BY trial.idx
"""

_LEFT_FOR_LATER = f"""
    SELECT key, outcome, score, duration_s, exit_code, content FROM attempt
    WHERE number = {NO_ATTEMPT} AND session = (SELECT max(number) FROM session)
"""  # noqa: S608 - our own number

_RETRIES = f"""
    SELECT outcome, score, duration_s, exit_code, content FROM attempt
    WHERE key = ? AND number > {NO_ATTEMPT} AND number IS NOT ? AND ended_at IS NOT NULL
    ORDER BY number
"""  # noqa: S608 - our own number

_UNENDED = """
    SELECT count(*) FROM attempt WHERE key = :key AND ended_at IS NULL
        AND NOT (:worked_on AND session = (SELECT max(number) FROM session))
"""

# A reason holds until the trial is attempted again, or until a new engine decides otherwise.
_HELD_BACK = f"""
    SELECT outcome, score, duration_s, exit_code, content FROM attempt AS held_back
    WHERE key = :key AND number = {NO_ATTEMPT}
        AND NOT EXISTS (
            SELECT 1 FROM attempt
            WHERE attempt.key = :key AND number > {NO_ATTEMPT} AND session > held_back.session
        )
        AND (NOT :worked_on OR session = (SELECT max(number) FROM session))
"""  # noqa: S608 - our own number

_TAGGED = """SELECT id, content FROM case_ WHERE instr(content, '"tags"') ORDER BY number"""
_CASES = "SELECT number, id, content FROM case_ WHERE number > :after_0 ORDER BY number"

_ATTEMPTS = f"""
    SELECT trial.idx, attempt.number, attempt.key, case_.id, trial.variant, trial.repeat,
        attempt.started_at, attempt.outcome, attempt.score, attempt.duration_s, attempt.exit_code,
        attempt.content
    FROM trial
    JOIN case_ ON case_.number = trial.case_
    JOIN attempt ON attempt.key = trial.key AND attempt.number > {NO_ATTEMPT}
    WHERE (trial.idx, attempt.number) > (:after_0, :after_1)
        AND (:only IS NULL OR trial.idx = :only) AND {_OF_CASES}
    ORDER BY trial.idx, attempt.number
"""  # noqa: S608 - our own number

_ADDED_TRIALS = "SELECT idx, case_, variant, repeat FROM trial WHERE idx >= ? ORDER BY idx"
_BRIEFS = """
    SELECT attempt.rowid, trial.idx, attempt.number, attempt.session, attempt.started_at,
        attempt.outcome, attempt.duration_s, attempt.content, result.number
    FROM attempt JOIN trial ON trial.key = attempt.key
    LEFT JOIN result ON result.key = attempt.key
"""
_ATTEMPTS_AFTER = f"{_BRIEFS} WHERE attempt.rowid > ? ORDER BY attempt.rowid"
_ATTEMPTS_AT = f"{_BRIEFS} WHERE attempt.rowid IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own text
_CASES_AT = "SELECT number, id, content FROM case_ WHERE number IN (SELECT value FROM json_each(?))"
_CASES_WITH = r"""
    SELECT number FROM case_ WHERE id LIKE :text ESCAPE '\' OR content LIKE :text ESCAPE '\'
    UNION SELECT trial.case_ FROM attempt JOIN trial ON trial.key = attempt.key
    WHERE attempt.content LIKE :text ESCAPE '\'
"""
_OUTCOMES = "SELECT outcome, count(*) FROM trial JOIN result USING (key) GROUP BY outcome"
_PASS_RATE = f"""
    SELECT avg(share) FROM (
        SELECT avg(outcome = '{Outcome.PASSED}') AS share FROM trial JOIN result USING (key)
        WHERE outcome IN ('{Outcome.PASSED}', '{Outcome.FAILED}') GROUP BY case_, variant)
"""  # noqa: S608 - our own words
_PRICED = """
    SELECT content FROM trial JOIN attempt USING (key) WHERE instr(content, '"cost_usd"')
"""
