"""The cases of a page, written one by one within the page's size limit.

Results, attempts and cases are three streams in plan order, read in parallel: only one trial is in
memory at a time, with as much of its text as a page shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import TextIO

from paraval.dataclass import dataclass
from paraval.records import AttemptRecord, Case, TrialResult
from paraval.report.compare.case_results import CaseBook, Cell
from paraval.report.contents import Contents
from paraval.report.page.artifacts import (
    WEIGHT_OF_A_TRIAL,
    PageBudget,
    expected_size,
)
from paraval.report.page.figures import PageFigures, case_anchor
from paraval.report.page.rendering import rendered
from paraval.report.page.side_by_side import (
    LONGEST_NAME,
    CaseColumns,
    CaseInput,
    asked_of,
    show_command,
)
from paraval.text.terminal import one_line
from paraval.text.words import counted, listed

# Filters over cases. The style sheet does the filtering.

FILTERS = {
    "wrong": "with failures",
    "error": "with errors",
    "skip": "with skipped trials",
    "flaky": "flaky",
    "pass": "all passed",
}
"""A CSS class of a case's section -> the filter's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter over cases."""

    kind: str
    name: str
    number: int


def filters_of(book: CaseBook) -> list[Filter]:
    """All cases, plus every filter that would show some cases but not all."""
    numbers = Counter(kind for _, cells in book.rows() for kind in filters_showing(cells.values()))
    some = [
        Filter(kind=kind, name=name, number=numbers[kind])
        for kind, name in FILTERS.items()
        if 0 < numbers[kind] < len(book)
    ]
    return [Filter(kind="all", name="all", number=len(book)), *some]


def filters_showing(cells: Collection[Cell]) -> Iterator[str]:
    """The filters that show a case with these cells."""
    found = {
        "wrong": any(cell.failed for cell in cells),
        "error": any(cell.errors for cell in cells),
        "skip": any(cell.skipped for cell in cells),
    }
    yield from (kind for kind, is_so in found.items() if is_so)
    if any(cell.is_flaky for cell in cells):
        yield "flaky"
    if not any(found.values()):
        yield "pass"


_MOST_WAITING = 1_000
"""Cases read before their trials arrived: only if a plan was made in pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """A case's heading: how all its trials ended, and its input."""

    number: int
    """By its first trial, from 0."""
    name: str
    passed: int
    failed: int
    errors: int
    skipped: int
    shown_by: tuple[str, ...]
    """The filters that show it."""
    is_again: bool
    """True: the case began further up, and other cases came between."""
    case: Case | None
    """As in the suite; None if it was not kept, or is further up."""
    asked: CaseInput

    @property
    def is_flaky(self) -> bool:
        return "flaky" in self.shown_by

    @property
    def kinds(self) -> str:
        """CSS classes for the filters."""
        if self.is_again:
            # The first part shows how the whole case went, so no filter hides this one.
            return " ".join(FILTERS)
        return " ".join(self.shown_by)


def case_views(contents: Contents) -> Iterator[tuple[CaseView, Iterator[TrialResult]]]:
    """Each case with its trials, which must be read before the next case."""
    cells = {}
    numbers: dict[str, int] = {}
    rows = iter(contents.book.rows())
    known = _CasesByName(contents.cases())
    for case_id, results in groupby(contents.trials, key=lambda result: result.case_id):
        is_again = case_id in numbers
        while case_id not in numbers:
            # A run in progress may have more results by now than the book was made from.
            name, cells[len(numbers)] = next(rows, (case_id, {}))
            numbers[name] = len(numbers)
        number = numbers[case_id]
        found = cells.pop(number, {}).values()
        yield _case_view(case_id, number, list(found), known, is_again=is_again), results


def _case_view(
    case_id: str, number: int, cells: list[Cell], known: _CasesByName, *, is_again: bool
) -> CaseView:
    case = None if is_again else known.take(case_id)
    return CaseView(
        number=number,
        name=one_line(case_id, LONGEST_NAME),
        passed=sum(cell.passed for cell in cells),
        failed=sum(cell.failed for cell in cells),
        errors=sum(cell.errors for cell in cells),
        skipped=sum(cell.skipped for cell in cells),
        shown_by=tuple(filters_showing(cells)),
        is_again=is_again,
        case=case,
        asked=asked_of(case),
    )


class _CasesByName:
    """Cases in plan order, returned as their trials arrive, mostly in the same order."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = iter(cases)
        self._waiting: dict[str, Case] = {}

    def take(self, case_id: str) -> Case | None:
        while case_id not in self._waiting and len(self._waiting) < _MOST_WAITING:
            case = next(self._cases, None)
            if case is None:
                break
            self._waiting[case.id] = case
        return self._waiting.pop(case_id, None)


class AttemptsByTrial:
    """The stream of attempts, by trial."""

    def __init__(self, attempts: Iterator[AttemptRecord]) -> None:
        self._attempts = attempts
        self._next = next(attempts, None)

    def of(self, index: int) -> Iterator[AttemptRecord]:
        """The attempts of one trial; they must be read before the next trial's."""
        while self._next is not None and self._next.index <= index:
            attempt = self._next
            self._next = next(self._attempts, None)
            if attempt.index == index:
                yield attempt


_A_LINE = 300
"""Approximate size of a trial in one line."""

# Sections of cases, written one by one within the page's size limit.


class CaseWriter:
    """Writes cases while there is room; linked cases are always included, at least in short."""

    def __init__(
        self,
        contents: Contents,
        figures: PageFigures,
        room: PageBudget,
        file: TextIO,
        *,
        linked_cases: frozenset[str],
    ) -> None:
        """`linked_cases`: by their anchors."""
        self._contents = contents
        self._run = contents.run
        self._attempts = AttemptsByTrial(contents.attempts())
        self._linked_cases = linked_cases
        self._linked_trials = figures.linked_trials
        self._room = room
        self._file = file
        self._in_short = 0
        self._left_out = 0

    def write(self) -> None:
        for case, results in case_views(self._contents):
            self._write_case(case, results)

    def not_here(self) -> str:
        """What the page leaves out, and where to find it; empty if it shows everything."""
        parts = [
            f"{counted(number, 'trial')} {how}"
            for number, how in (
                (self._in_short, "in one line only"),
                (self._left_out, "not at all"),
            )
            if number
        ]
        if not parts:
            return ""
        run_id = self._contents.run.id
        return (
            f"To stay small enough for browsers, this page shows {listed(parts)}."
            f" Everything: paraval report {run_id} -o report.jsonl"
        )

    def _write_case(self, case: CaseView, results: Iterator[TrialResult]) -> None:
        # A case without room for any of its trials has no section either.
        is_linked = case_anchor(case.number) in self._linked_cases and not case.is_again
        start = self._start(case) if is_linked else ""
        columns = CaseColumns(case.case)
        left_out = 0
        for result in results:
            is_shown = self._add(result, columns)
            start = start or (self._start(case) if is_shown else "")
            left_out += not is_shown
        if start:
            more = f"… and {counted(left_out, 'more trial')}" if left_out else ""
            self._file.write(start)
            self._file.write(columns.html())
            self._file.write(rendered("case_end.html", left_out=more))
        self._left_out += left_out

    def _start(self, case: CaseView) -> str:
        anchor = "" if case.is_again else case_anchor(case.number)
        text = rendered("case_start.html", case=case, asked=case.asked, anchor=anchor)
        if not self._room.may_hold(len(text), passed=not (case.failed or case.errors)):
            text = rendered("case_start.html", case=case, asked=CaseInput(), anchor=anchor)
        self._room.take(len(text))
        return text

    def _add(self, result: TrialResult, columns: CaseColumns) -> bool:
        """In full, in short, or not at all."""
        self._room.came_by(result)
        attempts = self._attempts.of(result.index)
        body = None
        # Reading and rendering what will not be shown takes as long as showing it.
        expected = expected_size(result)
        if self._room.may_hold_trial(result, expected):
            asked = columns.asked(result, self._contents.exchanges(result.index))
            if not self._room.may_hold_trial(result, expected + len(asked)):
                asked = rendered("not_asked.html", command=show_command(result, self._run))
            body = columns.body(result, self._run, attempts, asked)
            weight = len(body) + WEIGHT_OF_A_TRIAL
            if not self._room.may_hold_trial(result, weight):
                body = None
        if body is None:
            weight = WEIGHT_OF_A_TRIAL + _A_LINE
            is_linked = result.index in self._linked_trials
            if not is_linked and not self._room.may_hold_in_short(result, weight):
                return False
            self._in_short += 1
            self._room.was_told_in_short(weight)
        self._room.take(weight)
        columns.add(result, body)
        return True
