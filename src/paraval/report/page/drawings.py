"""The charts of a page, each with its heading; those without anything to draw are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from paraval.report.page.charts.data import TrendPoint
from paraval.report.page.charts.durations import durations
from paraval.report.page.charts.scatter import time_cost
from paraval.report.page.charts.timeline import timeline
from paraval.report.page.charts.trend import trend
from paraval.report.page.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing under a heading."""

    anchor: str
    heading: str
    drawing: Markup
    is_wide: bool = False


def charts_of(figures: Figures, slots: int, past: Sequence[TrendPoint]) -> Iterator[Chart]:
    """`slots`: how many trials the run may have had at once. `past`: the suite over its runs."""
    drawn = (
        Chart(anchor="cost", heading="Time against cost", drawing=time_cost(figures.time_cost)),
        Chart(
            anchor="timeline",
            heading="Who ran when",
            drawing=timeline(figures.spans, slots),
            is_wide=True,
        ),
        Chart(
            anchor="durations",
            heading="How long trials took",
            drawing=durations(figures.durations),
        ),
        Chart(anchor="history", heading="History", drawing=trend(past), is_wide=True),
    )
    return (chart for chart in drawn if chart.drawing)
