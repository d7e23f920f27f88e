"""Cases by variants as a table of links: failures at a glance and by keyboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from paraval.report.page.charts.data import HeatCell, HeatRow
from paraval.report.page.charts.svg import NOTHING, chart, element, short
from paraval.text.words import counted, listed

_LONGEST_CASE = 48
_LONGEST_VARIANT = 30
_UPRIGHT_FROM = 7
"""From this many variants on, their names are vertical to save width."""

_STATES = {
    "p": ("✓", "passed"),
    "x": ("✗", "failed"),
    "f": ("±", "passed and failed"),
    "e": ("!", "error"),
    "s": ("\N{EN DASH}", "skipped"),
    "n": ("", "not run"),
}
"""Each state with its sign and meaning."""


def heat_map(variants: Sequence[str], rows: Sequence[HeatRow]) -> Markup:
    """One row per case, one column per variant; each cell links to its case."""
    if not rows or not variants:
        return NOTHING
    corner = element("th", "case", scope="col")
    table = element(
        "table",
        element("thead", element("tr", corner, *map(_heading, variants))),
        element("tbody", *map(_line, rows)),
        class_=_width(len(variants)),
    )
    box = element("div", table, class_="box", role="region", tabindex=0, aria_label=_words(rows))
    return chart("heat", box, _legend(rows))


def _width(variants: int) -> str:
    return "few" if variants == 1 else "several" if variants < _UPRIGHT_FROM else "several upright"


def _heading(variant: str) -> Markup:
    name = short(variant, _LONGEST_VARIANT)
    shown = element("span", name)
    return element("th", shown, scope="col", title=None if name == variant else variant)


def _line(one: HeatRow) -> Markup:
    name, link = short(one.label, _LONGEST_CASE), f"#{one.anchor}"
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
    inner = element("a", sign, href=link, title=_repeats(cell) if several else None)
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
