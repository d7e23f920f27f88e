"""A history as one self-contained page: no script, no network access."""

from __future__ import annotations

from paraval.report.history.history import History
from paraval.report.history.history_table import (
    closing_of,
    drawn_of,
    heading,
    history_table,
    points_of,
)
from paraval.report.page.charts.trend import trend
from paraval.report.page.rendering import HtmlPage, policy, rendered, style
from paraval.text.words import counted


def history_page(history: History) -> str:
    page = HtmlPage()
    table = history_table(history, page)
    return rendered(
        "history.html",
        policy=policy(),
        style=style(),
        suite=history.suite,
        heading=heading(history, page.quote),
        drawing=trend(list(points_of(history.entries))),
        undrawn=_undrawn(len(history.entries) - len(drawn_of(history.entries))),
        table=table,
        closing=closing_of(history, page.quote),
        news=[(row.label, row.below) for row in table.rows if row.below],
    )


def _undrawn(number: int) -> str:
    if not number:
        return ""
    are = "is" if number == 1 else "are"
    return f"{counted(number, 'run')} {are} not drawn: partial, or with other cases."
