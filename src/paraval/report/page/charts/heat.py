"""Cases by variants as a table of links: failures at a glance and by keyboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from markupsafe import Markup

from paraval.records import Variant, value_text
from paraval.report.page.charts.data import HeatCell, HeatRow
from paraval.report.page.charts.svg import NOTHING, chart, element, short
from paraval.report.summary.columns import WITHOUT_MATRIX
from paraval.text.terminal import cut_middle
from paraval.text.words import counted, listed, telling_axes, variant_label

_LONGEST_CASE = 40
_LONGEST_NAME = 200
_LONGEST_VALUE = 80
_HEAD = 105
"""Letters that fit above all columns; a head has its share of them."""
_SHORTEST_HEAD = 7
_MOST_FITTING = 24
"""With more variants, the table is wider than the page."""
_PARTS = ((1, 4), (2, 3), (4, 2))
"""Up to so many variants: how many tables stand side by side."""
_LEAST_IN_A_PART = 8

_STATES = {
    "p": ("✓", "passed"),
    "x": ("✗", "failed"),
    "f": ("±", "passed and failed"),
    "e": ("!", "error"),
    "s": ("\N{EN DASH}", "skipped"),
    "n": ("", "not run"),
}
"""Each state with its sign and meaning."""


def heat_map(variants: Sequence[Variant], rows: Sequence[HeatRow]) -> Markup:
    """One row per case, one column per variant; each cell links to its case.

    With few variants and many cases, the cases stand in several tables side by side.
    """
    if not rows or not variants:
        return NOTHING
    parts = next((parts for most, parts in _PARTS if len(variants) <= most), 1)
    size = max(-(-len(rows) // parts), _LEAST_IN_A_PART)
    head = element("thead", *_heads(variants, parts))
    tables = [
        element(
            "table",
            head,
            element("tbody", *map(_line, rows[start : start + size])),
            class_="several" if len(variants) <= _MOST_FITTING else "several many",
        )
        for start in range(0, len(rows), size)
    ]
    few = " few" if len(tables) == 1 and len(variants) <= _PARTS[-1][0] else ""
    side = element("div", *tables, class_=f"parts parts-{len(tables)}{few}")
    box = element("div", side, class_="box", role="region", tabindex=0, aria_label=_words(rows))
    return chart("heat", box, _legend(rows))


def _heads(variants: Sequence[Variant], parts: int) -> Iterator[Markup]:
    """A line for each axis on which variants differ, the outer ones over their inner values."""
    axes = telling_axes(variants)
    if not axes:
        label = variant_label(variants[0]) or WITHOUT_MATRIX
        yield element("tr", element("th", "case", scope="col"), _head(label, 1, _HEAD // parts))
    room = _HEAD // parts // len(variants)
    for depth, axis in enumerate(axes, start=1):
        outer = [[value_text(one.get(name, "")) for name in axes[:depth]] for one in variants]
        groups = [(path[-1], len(list(same))) for path, same in groupby(outer)]
        what = f"case / {axis}" if depth == len(axes) else axis
        corner = element("th", short(what, _LONGEST_VALUE), scope="col")
        yield element("tr", corner, *(_head(name, span, room * span) for name, span in groups))


def _head(value: str, span: int, room: int) -> Markup:
    name = cut_middle(short(value, _LONGEST_VALUE), max(room, _SHORTEST_HEAD))
    return element(
        "th",
        element("span", name),
        scope="col" if span == 1 else "colgroup",
        colspan=None if span == 1 else span,
        title=None if name == value else value,
    )


def _line(one: HeatRow) -> Markup:
    name = cut_middle(short(one.label, _LONGEST_NAME), _LONGEST_CASE)
    link = f"#{one.anchor}"
    full = None if name == one.label else one.label
    case = element("th", element("a", name, href=link), scope="row", title=full)
    return element("tr", case, *(_cell(cell, link) for cell in one.cells))


def _cell(cell: HeatCell, link: str) -> Markup:
    state = state_of(cell)
    sign, _ = _STATES[state]
    if cell.errors and state in "pxf":
        sign += "!"
    if not sign:
        return element("td", class_=state)
    several = sum(cell) > 1
    shade = f"f f{_fourth(cell)}" if state == "f" else state
    count = element("span", f"{cell.passed}/{cell.passed + cell.failed}") if several else None
    inner = element("a", sign, count, href=link, title=_repeats(cell) if several else None)
    return element("td", inner, class_=shade)


def state_of(cell: HeatCell) -> str:
    """One letter, also the CSS class; errors beside verdicts do not change them."""
    if cell.passed and cell.failed:
        return "f"
    if cell.passed or cell.failed:
        return "p" if cell.passed else "x"
    if cell.errors:
        return "e"
    return "s" if cell.skipped else "n"


def _fourth(cell: HeatCell) -> int:
    """How much of it passed, from 1 to 4."""
    return min(int(4 * cell.passed / (cell.passed + cell.failed)) + 1, 4)


def _repeats(cell: HeatCell) -> str:
    """`2 passed, 1 failed`."""
    parts = zip(cell, ("passed", "failed", "errors", "skipped"), strict=True)
    return ", ".join(f"{number} {word}" for number, word in parts if number)


def _words(rows: Sequence[HeatRow]) -> str:
    counts = Counter(state_of(cell) for one in rows for cell in one.cells)
    parts = (
        f"{counts[state]:,} {meaning}" for state, (_, meaning) in _STATES.items() if counts[state]
    )
    return f"{counted(len(rows), 'case')} by variant: {listed(parts) or 'none ran'}"


def _legend(rows: Sequence[HeatRow]) -> Markup:
    cells = [cell for one in rows for cell in one.cells]
    present = {state_of(cell) for cell in cells}
    items = [
        element("li", element("span", sign, class_=f"key {state}"), element("span", meaning))
        for state, (sign, meaning) in _STATES.items()
        if state in present
    ]
    if any(cell.errors and cell.passed + cell.failed for cell in cells):
        added = element("span", "✓!", class_="key p")
        items.append(element("li", added, element("span", "with errors (no verdict)")))
    return element("ul", *items, class_="legend")
