"""Which cases a reader may choose to see. The choosing itself is done by the style sheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from paraval.report.comparing.cells import CaseBook, Cell

FILTERS = {
    "wrong": "with wrong answers",
    "error": "with errors",
    "skip": "with skipped trials",
    "flaky": "flaky",
    "pass": "passed throughout",
}
"""A class of a case's section -> what the choice is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A choice of cases."""

    kind: str
    name: str
    number: int


def filters_of(book: CaseBook) -> list[Filter]:
    """All, and whatever else would show some cases but not all of them."""
    numbers = Counter(kind for _, cells in book.rows() for kind in filters_showing(cells.values()))
    some = [
        Filter(kind=kind, name=name, number=numbers[kind])
        for kind, name in FILTERS.items()
        if 0 < numbers[kind] < len(book)
    ]
    return [Filter(kind="all", name="all", number=len(book)), *some]


def filters_showing(cells: Collection[Cell]) -> Iterator[str]:
    """Those that show a case with these cells."""
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
