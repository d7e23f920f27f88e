"""The cases of a page, one after another: what was asked, and how each of its trials went.

Results, attempts and cases are three streams in plan order, read side by side: at any time one
trial is held, with as much of its text as a page shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from paraval.records import AttemptRecord, Case, TrialResult
from paraval.report.comparing.cells import Cell
from paraval.report.contents import Contents
from paraval.report.page.excerpts import Excerpt, beginning_of_value
from paraval.report.page.filters import FILTERS, filters_showing
from paraval.report.text import one_line

LONGEST_NAME = 200
_MOST_TAGS = 20
_MOST_WAITING = 1_000
"""Cases that were read before their trials came: only where a plan was made in pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A case as the suite has it."""

    tags: tuple[str, ...] = ()
    input: Excerpt | None = None
    expect: Excerpt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """A case's heading: how all its trials ended, and what was asked."""

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
    """True: a part of it stands further up, since other cases came between."""
    asked: Asked

    @property
    def is_flaky(self) -> bool:
        return "flaky" in self.shown_by

    @property
    def kinds(self) -> str:
        """Classes that filters choose by."""
        if self.is_again:
            # How the whole case went is told at its first part: no filter hides this one.
            return " ".join(FILTERS)
        return " ".join(self.shown_by)


def case_views(contents: Contents) -> Iterator[tuple[CaseView, Iterator[TrialResult]]]:
    """Each case with its trials; these must be read before the next case is."""
    cells = {}
    numbers: dict[str, int] = {}
    rows = iter(contents.book.rows())
    asked = _AskedByName(contents.cases())
    for case_id, results in groupby(contents.trials, key=lambda result: result.case_id):
        is_again = case_id in numbers
        while case_id not in numbers:
            # A run that goes on may have more results by now than the book was made of.
            name, cells[len(numbers)] = next(rows, (case_id, {}))
            numbers[name] = len(numbers)
        number = numbers[case_id]
        found = cells.pop(number, {}).values()
        yield _case_view(case_id, number, list(found), asked, is_again=is_again), results


def _case_view(
    case_id: str, number: int, cells: list[Cell], asked: _AskedByName, *, is_again: bool
) -> CaseView:
    return CaseView(
        number=number,
        name=one_line(case_id, LONGEST_NAME),
        passed=sum(cell.passed for cell in cells),
        failed=sum(cell.failed for cell in cells),
        errors=sum(cell.errors for cell in cells),
        skipped=sum(cell.skipped for cell in cells),
        shown_by=tuple(filters_showing(cells)),
        is_again=is_again,
        asked=Asked() if is_again else asked.take(case_id),
    )


class _AskedByName:
    """Cases in plan order, handed out as their trials come by, which is mostly the same order."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = iter(cases)
        self._waiting: dict[str, Asked] = {}

    def take(self, case_id: str) -> Asked:
        while case_id not in self._waiting and len(self._waiting) < _MOST_WAITING:
            case = next(self._cases, None)
            if case is None:
                break
            self._waiting[case.id] = _asked(case)
        return self._waiting.pop(case_id, Asked())


def _asked(case: Case) -> Asked:
    return Asked(
        tags=tuple(one_line(tag, LONGEST_NAME) for tag in case.tags[:_MOST_TAGS]),
        input=beginning_of_value(case.input),
        expect=beginning_of_value(case.expect),
    )


class AttemptsByTrial:
    """The stream of attempts, handed out by trial."""

    def __init__(self, attempts: Iterator[AttemptRecord]) -> None:
        self._attempts = attempts
        self._next = next(attempts, None)

    def of(self, index: int) -> Iterator[AttemptRecord]:
        """Those at one trial; they must be read before the next trial's are asked for."""
        while self._next is not None and self._next.index <= index:
            attempt = self._next
            self._next = next(self._attempts, None)
            if attempt.index == index:
                yield attempt
