"""A history on the terminal; it reads the same without colour and without UTF-8."""

from __future__ import annotations

from collections.abc import Iterator

from paraval.report.history.records import Entry, History
from paraval.report.history.table import Column, Row, cell_of, columns_of, rows_of
from paraval.report.history.words import PARTIAL_LEGEND, heading, left_out, notes
from paraval.report.text import columns, cut_middle
from paraval.report.versus.as_text import Paper
from paraval.report.wording import counted

_GAP = "  "
_INDENT = "  "
_LONGEST_BESIDE = 28
"""Labels up to so wide stand in full beside all figures."""
_SHORTEST_BESIDE = 20
"""As wide as the id of a run: labels are never cut to less."""
_WITH_INTERVALS = 38


def history_text(history: History, page: Paper) -> str:
    """Ends without a newline."""
    blocks = [[page.safe(heading(history, page.safe))], list(_table(history, page))]
    closing = [PARTIAL_LEGEND] if any(entry.is_partial for entry in history.entries) else []
    closing += left_out(history)
    blocks.append([line for sentence in closing for line in page.wrapped(page.safe(sentence))])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _table(history: History, page: Paper) -> Iterator[str]:
    rows = {entry.run.id: list(rows_of(entry)) for entry in history.entries}
    every = [row for of_run in rows.values() for row in of_run]
    if not every:
        return
    shown, width = _fitting(history, every, page)
    widths = [_width_of(column, every) for column in shown]
    heads = zip(shown, widths, strict=True)
    yield "run".ljust(width) + "".join(f"{_GAP}{one.heading:>{wide}}" for one, wide in heads)
    for entry in history.entries:
        for row in rows[entry.run.id]:
            cells = zip(shown, widths, strict=True)
            figures = "".join(f"{_GAP}{cell_of(one, row):>{wide}}" for one, wide in cells)
            yield f"{_label(row, width, page)}{figures}".rstrip()
        yield from _notes(entry, page, tells_errors=len(shown) > 1)


def _fitting(history: History, rows: list[Row], page: Paper) -> tuple[list[Column], int]:
    """As many columns as fit beside the labels, and how wide those may be."""
    longest = max(columns(_INDENT * (not row.is_run) + page.safe(row.label)) for row in rows)
    beside = max(min(longest, _LONGEST_BESIDE), len("run"))
    least = min(beside, _SHORTEST_BESIDE)
    for shown in _choices(history, page):
        taken = sum(len(_GAP) + _width_of(column, rows) for column in shown)
        if taken + least <= page.width:
            return shown, min(longest, page.width - taken)
    return shown, least


def _choices(history: History, page: Paper) -> Iterator[list[Column]]:
    """What can be spared goes first, then the intervals; one column stays."""
    for intervals in (True, False) if page.width >= _WITH_INTERVALS else (False,):
        every = columns_of(history, intervals=intervals)
        for number in range(len(every), 0, -1):
            yield every[:number]


def _width_of(column: Column, rows: list[Row]) -> int:
    return max(len(column.heading), *(len(cell_of(column, row)) for row in rows))


def _label(row: Row, width: int, page: Paper) -> str:
    start = "" if row.is_run else _INDENT
    shown = start + cut_middle(page.safe(row.label), width - len(start), page.ellipsis)
    return shown + " " * (width - columns(shown))


def _notes(entry: Entry, page: Paper, *, tells_errors: bool) -> Iterator[str]:
    """Errors are told even where there is no room for their column."""
    errors = entry.summary.errors
    missing = [] if tells_errors or not errors else [counted(errors, "error")]
    for note in [*missing, *notes(entry, page.safe)]:
        yield from page.wrapped(note, _INDENT * 2)
