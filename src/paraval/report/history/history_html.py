"""A history as one page that needs nothing else: no script, no network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paraval.report.history.history import History, HistoryEntry
from paraval.report.history.history_table import (
    PARTIAL_LEGEND,
    HistoryColumn,
    cell_of,
    columns_of,
    drawn_of,
    heading,
    left_out,
    notes,
    points_of,
    rows_of,
)
from paraval.report.page.charts.trend import trend
from paraval.report.page.rendering import policy, rendered, style
from paraval.text.terminal import one_line
from paraval.text.words import counted

_LONGEST_NAME = 150
_LONGEST_LABEL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _HistoryLine:
    """A row of the table."""

    label: str
    is_run: bool
    cells: tuple[str, ...]


def history_page(history: History) -> str:
    shown = columns_of(history)
    closing = [PARTIAL_LEGEND] if any(entry.is_partial for entry in history.entries) else []
    return rendered(
        "history.html",
        policy=policy(),
        style=style(),
        suite=history.suite,
        heading=heading(history, _name),
        drawing=trend(list(points_of(history.entries))),
        undrawn=_undrawn(len(history.entries) - len(drawn_of(history.entries))),
        headings=[column.heading for column in shown],
        lines=[line for entry in history.entries for line in _lines(entry, shown)],
        closing=[*closing, *left_out(history)],
        news=[(entry.run.id, told) for entry in history.entries if (told := notes(entry, _name))],
    )


def _lines(entry: HistoryEntry, shown: list[HistoryColumn]) -> Iterator[_HistoryLine]:
    for row in rows_of(entry):
        cells = tuple(cell_of(column, row) for column in shown)
        yield _HistoryLine(
            label=one_line(row.label, _LONGEST_LABEL), is_run=row.is_run, cells=cells
        )


def _undrawn(number: int) -> str:
    if not number:
        return ""
    are = "is" if number == 1 else "are"
    return f"{counted(number, 'run')} {are} not drawn: partial, or over other cases."


def _name(text: str) -> str:
    return one_line(text, _LONGEST_NAME)
