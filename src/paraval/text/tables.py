"""Tables and lists, on a terminal and in Markdown.

Callers quote untrusted text (`Page.quote`, `Markdown.quote`); this module only aligns, wraps and
cuts text.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from paraval.dataclass import dataclass
from paraval.text.terminal import columns, cut, cut_middle, one_line, printable, to_ascii
from paraval.text.words import counted

NARROWEST = 40
LONGEST_NAME = 150
LONGEST_IN_A_SENTENCE = 48
_GAP = "  "
_LONGEST_BESIDE = 28
"""Labels up to this width stay on the line of their figures, even if columns are dropped."""
_SHORTEST_LABEL = 8
_WITH_BRACKETS = 60
"""On pages with fewer columns, table columns use their narrow form."""
_LEAST_FOR_BESIDE = 24
"""With fewer columns left, the text beside a row goes below it."""
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ASCII_MARKS = {"✗": "x"}
_TOGETHER = re.compile(
    r"(?<=\d) (?=(?:ms|s|min|h|points?|cases?)\b|%)"  # a number and its unit
    r"|(?<=\bp) (?=[=<] \d)|(?<=\bp [=<]) (?=\d)"  # p = 0.03
)
_HOLD = "\N{NO-BREAK SPACE}"
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""All but the tab: characters that end a line elsewhere could forge a line here."""

T = TypeVar("T")


# ---- where text goes


class Medium:
    """Where text is shown: how it quotes untrusted text, and how much room it has."""

    is_terminal = False

    def quote(self, text: str, limit: int = LONGEST_NAME) -> str:
        """Untrusted text on one line, without any effect."""
        raise NotImplementedError

    def name(self, text: str) -> str:
        """A name within a sentence, shortened to leave room for the rest."""
        raise NotImplementedError

    def most(self, on_a_terminal: int, elsewhere: int) -> int:
        return on_a_terminal if self.is_terminal else elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Medium):
    """A terminal, or a file like one; it reads the same without color and without UTF-8."""

    width: int = 80
    color: bool = False
    unicode: bool = True

    is_terminal = True

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def quote(self, text: str, limit: int = LONGEST_NAME) -> str:
        return self._spelt(one_line(text, limit))

    def name(self, text: str) -> str:
        return self.cut_middle(self.quote(text), LONGEST_IN_A_SENTENCE)

    def verbatim(self, line: str) -> str:
        """A line of a file: spaces are kept, control characters escaped."""
        return self._spelt(printable(_CONTROLS.sub(_escaped, line)))

    def line_of(self, line: str) -> str:
        """A line of a file, cut to the page's width."""
        near = self.verbatim(line[: self.width * 4]).expandtabs(8)
        return cut(near, self.width, self.ellipsis)

    def cut_middle(self, text: str, limit: int) -> str:
        return cut_middle(text, limit, self.ellipsis)

    def paint(self, text: str, style: str) -> str:
        is_painted = self.color and style and text.strip()
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if is_painted else text

    def wrapped(self, text: str, start: str = "", most: int | None = None) -> list[str]:
        """The text after its start, wrapped to at most `most` aligned lines.

        Lines break between words, but not between a number and its unit.
        """
        width = max(self.width - columns(start), 1)
        held = _TOGETHER.sub(_HOLD, text)
        # Lines are measured in characters, but some characters take two columns.
        room = width if columns(held) <= len(held) else max(width // 2, 1)
        lines = textwrap.wrap(held, room, break_on_hyphens=False) or [""]
        if most is not None and len(lines) > most:
            lines[most - 1 :] = [cut(" ".join(lines[most - 1 :]), width, self.ellipsis)]
        first, *others = (line.replace(_HOLD, " ") for line in lines)
        return [f"{start}{first}".rstrip(), *(" " * columns(start) + line for line in others)]

    def _spelt(self, text: str) -> str:
        return text if self.unicode else to_ascii(text)


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")


# ---- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[T]):
    """A heading, and a function that makes the cell of each row."""

    heading: str
    cell: Callable[[T], str]
    narrow: str = ""
    """The heading if there is no room for the parenthesized part of the cells."""
    is_spare: bool = False
    """Whether a narrow page may drop it, the last ones first."""
    is_left: bool = False
    style: str = ""
    """Style of cells that are not 0."""
    unit: str = ""
    """What the cells count, below the heading of a page."""


_PLAIN: Column[str] = Column(heading="", cell=str, is_left=True)
"""The column of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A label, cells, and text beside and below them."""

    label: str = ""
    cells: tuple[str, ...] = ()
    beside: str = ""
    below: tuple[str, ...] = ()
    is_part: bool = False
    """Whether it is a part of the row above."""
    mark: str = ""
    """On terminals, before the label."""
    style: str = ""
    """Style of the mark and the first cell; without them, of all lines."""
    strong: bool = False
    """Whether it is bold in Markdown, which has no color."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; without headings, a list."""

    rows: Sequence[TableRow]
    columns: Sequence[Column[Any]] = ()
    label: str = ""
    """The heading of the labels."""
    beside: str = ""
    """The heading of the text beside."""
    total: TableRow | None = None
    """The last row, however many rows are left out."""
    label_share: float | None = None
    """Share of the page's width; longer labels are cut in the middle. None: labels are never cut,
    and get their own line if necessary."""
    beside_lines: int | None = None
    """Maximum lines of the text beside."""
    between: str = ": "
    """In Markdown lists, the separator before the text beside."""
    unshown: int = 0
    """Rows that were already left out."""
    noun: str = "more"
    """Names what is left out: `… and 3 more`."""
    hint: str = ""
    """Text after that."""
    most_bytes: int = 12_000
    """In Markdown."""
    keeps_last: bool = False
    """Whether Markdown leaves out the first rows, not the last."""

    @property
    def has_headings(self) -> bool:
        return bool(self.label or any(column.heading for column in self.columns))

    def more(self, left_out: int) -> str:
        plural = "more" if self.noun == "more" else None
        return f"and {counted(left_out, self.noun, plural)}{self.hint}"


def list_of(texts: Sequence[str], **options: Any) -> Table:
    """A list of sentences or names."""
    return Table(rows=[TableRow(beside=text) for text in texts], **options)


def table_lines(table: Table, page: Page) -> list[str]:
    """A table on a terminal."""
    lines: list[str] = []
    if table.rows or table.total:
        lines += _Layout(table, page).lines()
    if table.unshown:
        # Not wrapped: it may have a command to copy.
        lines.append(f"{_GAP}{page.ellipsis} {table.more(table.unshown)}")
    return lines


class _Layout:
    """Which columns fit a page, the width of labels, and where the text beside begins."""

    def __init__(self, table: Table, page: Page) -> None:
        self._table, self._page = table, page
        self._rows = [*table.rows, *([table.total] if table.total else [])]
        self._columns = table.columns or [_PLAIN] * len(self._rows[0].cells)
        self._start = 0 if table.has_headings else len(_GAP) + 2 * bool(self._rows[0].mark)
        self._narrow = page.width < _WITH_BRACKETS
        self._widths: dict[tuple[int, bool], int] = {}
        self._labels = [_GAP * row.is_part + row.label for row in self._rows]
        widths = [columns(label) for label in self._labels]
        heading = len(table.label)
        longest = max(heading, *widths)
        least = max([heading, *(width for width in widths if width <= _LONGEST_BESIDE)])
        if table.label_share is not None:
            least = longest = min(longest, max(int(page.width * table.label_share), heading))
        self._fit(least)
        taken = self._taken()
        shortest = 0 if table.label_share is None else min(_SHORTEST_LABEL, longest)
        self._label_width = max(min(longest, page.width - self._start - taken), shortest)
        before = self._label_width + taken
        self._beside = self._start + before + len(_GAP) * bool(before)
        self._is_beside = not before or page.width - self._beside >= _LEAST_FOR_BESIDE

    def _fit(self, least: int) -> None:
        """Drop spare columns first, then parenthesized parts, then the last columns."""
        every = range(len(self._columns))
        spare = [place for place in every if self._columns[place].is_spare]
        room = self._page.width - self._start
        for narrow in sorted({self._narrow, True}):
            self._narrow = narrow
            for kept in range(len(spare), -1, -1):
                self._shown = [place for place in every if place not in spare[kept:]]
                if self._taken() + least <= room:
                    return
        while len(self._shown) > 1 and self._taken() > room - _SHORTEST_LABEL:
            self._shown.pop()

    def _taken(self) -> int:
        return sum(len(_GAP) + self._width(place) for place in self._shown)

    def _width(self, place: int) -> int:
        form = place, self._narrow
        if form not in self._widths:
            widths = map(len, self._cells(place))
            self._widths[form] = max(columns(self._heading(place)), *widths)
        return self._widths[form]

    def _heading(self, place: int) -> str:
        column = self._columns[place]
        return column.narrow if self._narrow and column.narrow else column.heading

    def _cells(self, place: int) -> list[str]:
        """The cells of one column; they are our own text, so each character is one column wide."""
        cells = [row.cells[place] for row in self._rows]
        is_narrow = self._narrow and self._columns[place].narrow
        return [cell.partition(" (")[0] for cell in cells] if is_narrow else cells

    def lines(self) -> Iterator[str]:
        page = self._page
        shown = [
            (self._columns[place], self._heading(place), self._cells(place), self._width(place))
            for place in self._shown
        ]
        if self._table.has_headings:
            heads = (_aligned(column, heading, width) for column, heading, _, width in shown)
            line = "".join((_padded(self._table.label, self._label_width), *heads))
            line += _GAP + self._table.beside if self._is_beside else ""
            yield page.paint(line.rstrip(), "bold")
        for number, row in enumerate(self._rows):
            figures = ""
            for column, _, cells, width in shown:
                cell = cells[number]
                style = column.style * (cell != "0") if figures else row.style or column.style
                figures += page.paint(_aligned(column, cell, width), style)
            style = "" if row.cells or row.mark else row.style
            yield from (page.paint(line, style) for line in self._row(number, figures))
            for text in row.below:
                yield from page.wrapped(text, _GAP * 2, self._table.beside_lines)

    def _row(self, number: int, figures: str) -> Iterator[str]:
        page, row, label = self._page, self._rows[number], self._labels[number]
        if columns(label) > self._label_width:
            if self._table.label_share is None:
                yield page.cut_middle(label, page.width)
                label = ""
            label = page.cut_middle(label, self._label_width)
        mark = row.mark if page.unicode else _ASCII_MARKS.get(row.mark, row.mark)
        start = f"{_GAP}{page.paint(mark, row.style)} " if mark else " " * self._start
        line = f"{start}{_padded(label, self._label_width)}{figures}"
        if not row.beside or not self._is_beside:
            yield line.rstrip()
        at = self._beside if self._is_beside else 2 * len(_GAP)
        lines = page.wrapped(row.beside, " " * at, self._table.beside_lines) if row.beside else []
        if lines and self._is_beside:
            yield f"{line}{_GAP * (at > self._start)}{lines.pop(0)[at:]}"
        yield from lines


def _aligned(column: Column[Any], text: str, width: int) -> str:
    return _GAP + (_padded(text, width) if column.is_left else text.rjust(width))


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


# ---- in Markdown


def table_markdown(table: Table) -> str:
    """A table in Markdown, without a final newline; empty without rows."""
    has_notes = any(row.beside or row.below for row in table.rows)
    width = 1 + len(table.columns) + has_notes
    lines = [
        (row, _markdown_row(row, width) if table.has_headings else _item(row, table.between))
        for row in (reversed(table.rows) if table.keeps_last else table.rows)
    ]
    kept = sum(
        end <= table.most_bytes for end in accumulate(len(line.encode()) + 1 for _, line in lines)
    )
    while table.keeps_last and 0 < kept < len(lines) and lines[kept - 1][0].is_part:
        # The row that it is a part of does not fit.
        kept -= 1
    body = [line for _, line in lines[:kept]]
    if left_out := sum(not row.is_part for row, _ in lines[kept:]) + table.unshown:
        more = f"… {table.more(left_out)}"
        body.append(_in_bars([more], width) if table.has_headings else f"\n{more}")
    if table.keeps_last:
        body.reverse()
    if table.total is not None:
        body.append(_markdown_row(table.total, width))
    if not body or not table.has_headings:
        return "\n".join(body)
    headings = [table.label, *(column.heading for column in table.columns), table.beside]
    rules = ["---", *("---" if column.is_left else "---:" for column in table.columns), "---"]
    return "\n".join((_in_bars(headings[:width], width), _in_bars(rules[:width], width), *body))


def _markdown_row(row: TableRow, width: int) -> str:
    label = f"· {row.label}" if row.is_part else row.label
    notes = "<br>".join(filter(None, (row.beside, *row.below)))
    return _in_bars([label, *row.cells, notes][:width], width)


def _in_bars(cells: Sequence[str], width: int) -> str:
    return f"| {' | '.join((*cells, *[''] * (width - len(cells))))} |"


def _item(row: TableRow, between: str) -> str:
    said = " ".join(filter(None, (row.label, *row.cells)))
    text = between.join(filter(None, (said, row.beside)))
    bold = f"**{text}**" if row.strong else text
    return "\n".join((f"- {bold}", *(f"  - {line}" for line in row.below)))
