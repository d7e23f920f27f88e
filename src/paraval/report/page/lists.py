"""The tables and lists of a page, worded as on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paraval.report.deed_words import deed_sections
from paraval.report.page.figures import Figures, Unpassed
from paraval.report.page.trials import SIGNS
from paraval.report.summary import Summary
from paraval.report.table import TOTAL, columns_of, rows_of
from paraval.report.text import one_line
from paraval.report.unpassed import errors_heading, wrong_heading

_MOST_ROWS = 500
_LONGEST_LABEL = 200
_IN_PLAIN_SIGHT = 20
"""Of a list: timings and charts stand below it."""


_UNITS = {
    "pass rate (95 %)": "of what was judged",
    "errors": "trials",
    "could be": "with errors",
    "cost": "in all",
    "median": "of a trial",
    "score": "from 0 to 1",
    "passed": "trials",
    "failed": "trials",
    "skipped": "trials",
    "p95": "of a trial",
    "judges": "in all",
    "tokens": "in all",
}
"""What the figures under a heading of the table count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Of a column."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    label: str
    cells: tuple[str, ...]
    is_total: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The summary's figures by variant."""

    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpassedList:
    """Wrong answers, or errors."""

    kind: str
    heading: str
    trials: tuple[Unpassed, ...]
    """Those that are read at once ..."""
    more: tuple[Unpassed, ...]
    """... those that are there to be opened ..."""
    left_out: int
    """... and how many are not in the list."""

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedList:
    """What agents did, or what was changed."""

    anchor: str
    heading: str
    lines: tuple[tuple[str, str], ...]
    alarms: tuple[str, ...]


def table_of(summary: Summary) -> Table:
    columns = columns_of(summary)
    rows = rows_of(summary) if summary.variants else []
    shown = rows if len(rows) <= _MOST_ROWS else [*rows[: _MOST_ROWS - 1], rows[-1]]
    return Table(
        headings=tuple(
            Heading(name=column.heading, unit=_UNITS.get(column.heading, "")) for column in columns
        ),
        rows=tuple(
            Row(
                label=one_line(label, _LONGEST_LABEL),
                cells=tuple(column.cell(tally) for column in columns),
                is_total=tally is summary and label == TOTAL,
            )
            for label, tally in shown
        ),
        left_out=len(rows) - len(shown),
    )


def lists_of(summary: Summary, figures: Figures) -> Iterator[UnpassedList]:
    for kind, heading, trials, number in (
        ("wrong", wrong_heading, figures.wrong, summary.failed),
        ("error", errors_heading, figures.errors, summary.errors),
    ):
        if trials:
            left = number - len(trials)
            yield UnpassedList(
                kind=kind,
                heading=heading(summary),
                trials=trials[:_IN_PLAIN_SIGHT],
                more=trials[_IN_PLAIN_SIGHT:],
                left_out=left,
            )


def nothing_unpassed(summary: Summary) -> str:
    if not summary.judged:
        return "Nothing was judged."
    return "Every trial that was judged passed, and there was no error."


def deed_lists(summary: Summary) -> Iterator[DeedList]:
    for number, section in enumerate(deed_sections(summary, _named)):
        yield DeedList(
            anchor=f"deeds-{number}",
            heading=section.heading,
            lines=tuple((_named(label), text) for label, text in section.lines[:_MOST_ROWS]),
            alarms=section.alarms[:_MOST_ROWS],
        )


def _named(text: str) -> str:
    return one_line(text, _LONGEST_LABEL)
