"""The earlier runs of the suite, as far as a page draws them: complete ones, and this one last."""

from __future__ import annotations

from paraval.errors import ParavalError
from paraval.report.contents import Contents
from paraval.report.history.gathering import Past
from paraval.report.history.points import points_of
from paraval.report.page.charts.data import TrendPoint


def past_of(contents: Contents) -> list[TrendPoint]:
    """Nothing where there is no earlier run: a single point is no history."""
    past = Past(tells_shifts=False)
    try:
        earlier = list(past.entries(contents.earlier()))
    except ParavalError:
        # The page is about this run: it does without the others where the store cannot list them.
        return []
    if not earlier:
        return []
    return list(points_of([*earlier, past.add(contents, contents.run)]))
