"""How long trials took, a line a variant, on one logarithmic axis: each trial, or how many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.report.page.charts.data import Durations
from paraval.report.page.charts.rows import (
    axis,
    chart,
    grid,
    legend,
    lines,
    row,
    strip,
    upright,
)
from paraval.report.page.charts.scales import Scale, scale_of, tick_time, time_ticks
from paraval.report.page.charts.svg import NOTHING, element, number, share
from paraval.report.wording import counted, duration
from paraval.statistics.means import quantile

_HEIGHT = 34
_BINS = 80
_MOST_DOTS = 60
_FEWEST_FOR_P95 = 20
"""Among fewer, one in twenty is nobody: the longest is told instead."""


def durations(series: Sequence[Durations]) -> Markup:
    """Nothing where no trial was timed."""
    timed = [(one.label, _timed(one.seconds)) for one in series]
    timed = [(label, values) for label, values in timed if values]
    if not timed:
        return NOTHING
    scale = scale_of(
        (end for _, values in timed for end in (values[0], values[-1])), always_log=True
    )
    ticks = [(scale.place(value), tick_time(value)) for value in time_ticks(scale)]
    places = [place for place, _ in ticks]
    drawn = [
        row(label, _figure(values), _strip(label, values, scale, places)) for label, values in timed
    ]
    return chart("durations", lines([*drawn, axis(ticks)]), legend(_legend(timed)))


def _timed(values: Sequence[float]) -> list[float]:
    return sorted(value for value in values if math.isfinite(value) and value >= 0)


def _strip(label: str, values: list[float], scale: Scale, ticks: Sequence[float]) -> Markup:
    shapes = _shapes(values, scale, ticks)
    return strip(_HEIGHT, shapes, title=label or "durations", words=_words(values))


def _shapes(values: list[float], scale: Scale, ticks: Sequence[float]) -> Iterator[Markup]:
    yield grid(ticks, _HEIGHT)
    if len(values) <= _MOST_DOTS:
        middle = _HEIGHT / 2
        for value in values:
            yield element("circle", cx=share(scale.place(value)), cy=middle, r=4, class_="one")
    else:
        yield _histogram(values, scale)
    yield upright(scale.place(quantile(values, 0.5)), 2, _HEIGHT - 2, "median")
    if len(values) >= _FEWEST_FOR_P95:
        yield upright(scale.place(quantile(values, 0.95)), 2, _HEIGHT - 2, "late")


def _histogram(values: list[float], scale: Scale) -> Markup:
    """Stretched to the width there is: it has neither text nor lines that would show it."""
    bins = [0] * _BINS
    for value in values:
        bins[min(int(scale.place(value) * _BINS), _BINS - 1)] += 1
    high = max(bins)
    steps = "".join(f"V{number(30 - 30 * count / high)}h1" for count in bins)
    path = element("path", d=f"M0 30{steps}V30Z", class_="hill")
    return element(
        "svg",
        path,
        viewBox=f"0 0 {_BINS} 30",
        preserveAspectRatio="none",
        x=0,
        y=2,
        width="100%",
        height=_HEIGHT - 4,
    )


def _figure(values: list[float]) -> str:
    middle = duration(quantile(values, 0.5))
    if len(values) == 1:
        return middle
    return f"{middle}, {_late(values)}"


def _late(values: list[float]) -> str:
    if len(values) >= _FEWEST_FOR_P95:
        return f"p95 {duration(quantile(values, 0.95))}"
    return f"longest {duration(values[-1])}"


def _words(values: list[float]) -> str:
    said = f"{counted(len(values), 'trial')}, median {duration(quantile(values, 0.5))}"
    return f"{said}, {_late(values)}, from {duration(values[0])} to {duration(values[-1])}."


def _legend(timed: Sequence[tuple[str, list[float]]]) -> Iterator[tuple[Markup, str]]:
    if any(len(values) <= _MOST_DOTS for _, values in timed):
        yield element("circle", cx=13, cy=7, r=4, class_="one"), "a trial"
    if any(len(values) > _MOST_DOTS for _, values in timed):
        hill = element("path", d="M1 13V9h6V3h6V6h6V11h6V13Z", class_="hill")
        yield hill, "how many took so long"
    yield element("line", x1=13, x2=13, y1=0, y2=14, class_="median"), "median"
    if any(len(values) >= _FEWEST_FOR_P95 for _, values in timed):
        late = element("line", x1=13, x2=13, y1=0, y2=14, class_="late")
        yield late, "p95: one in twenty takes longer"
