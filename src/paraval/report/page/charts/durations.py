"""Trial durations, one line per variant, on one logarithmic axis: each trial, or a histogram."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.report.page.charts.data import Durations, color_class
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    axis,
    chart,
    element,
    grid,
    hill,
    legend,
    lines,
    row,
    scale_of,
    share,
    strip,
    tick_time,
    time_ticks,
    upright,
)
from paraval.statistics.rates import quantile
from paraval.text.words import counted, duration

_HEIGHT = 34
_BINS = 80
_MOST_DOTS = 60
_FEWEST_FOR_P95 = 20
"""With fewer trials, p95 means nothing: the longest is shown instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedTrials:
    """The timed trials of a variant."""

    label: str
    color: str
    seconds: Sequence[float]
    """Sorted."""
    median: float
    p95: float | None
    """None: too few trials."""
    timeouts: int

    @property
    def is_few(self) -> bool:
        """Whether each trial is drawn."""
        return len(self.seconds) <= _MOST_DOTS


def durations(series: Sequence[Durations]) -> Markup:
    """Empty if no trial was timed."""
    colored = [(one, color_class(index, len(series))) for index, one in enumerate(series)]
    timed = [one for one in (_timed(*pair) for pair in colored) if one is not None]
    if not timed:
        return NOTHING
    ends = (end for one in timed for end in (one.seconds[0], one.seconds[-1]))
    scale = scale_of(ends, always_log=True)
    ticks = [(scale.place(value), tick_time(value)) for value in time_ticks(scale)]
    places = [place for place, _ in ticks]
    drawn = [row(one.label, _figure(one), _strip(one, scale, places), one.color) for one in timed]
    return chart("durations", lines([*drawn, axis(ticks)]), legend(_legend(timed)))


def _timed(one: Durations, color: str) -> _TimedTrials | None:
    seconds = sorted(value for value in one.seconds if math.isfinite(value) and value >= 0)
    if not seconds:
        return None
    return _TimedTrials(
        label=one.label,
        color=color,
        seconds=seconds,
        median=quantile(seconds, 0.5),
        p95=quantile(seconds, 0.95) if len(seconds) >= _FEWEST_FOR_P95 else None,
        timeouts=one.timeouts,
    )


def _strip(one: _TimedTrials, scale: Scale, ticks: Sequence[float]) -> Markup:
    shapes = _shapes(one, scale, ticks)
    return strip(_HEIGHT, shapes, title=one.label or "durations", words=_words(one))


def _shapes(one: _TimedTrials, scale: Scale, ticks: Sequence[float]) -> Iterator[Markup]:
    yield grid(ticks, _HEIGHT)
    if one.is_few:
        for value in one.seconds:
            yield element("circle", cx=share(scale.place(value)), cy=_HEIGHT / 2, r=4, class_="one")
    else:
        yield _histogram(one.seconds, scale)
    yield upright(scale.place(one.median), 2, _HEIGHT - 2, "median")
    if one.p95 is not None:
        yield upright(scale.place(one.p95), 2, _HEIGHT - 2, "late")


def _histogram(seconds: Sequence[float], scale: Scale) -> Markup:
    bins = [0] * _BINS
    for value in seconds:
        bins[min(int(scale.place(value) * _BINS), _BINS - 1)] += 1
    return hill([count / max(bins) for count in bins], _HEIGHT - 4, y=2)


def _figure(one: _TimedTrials) -> str:
    middle = duration(one.median)
    described = middle if len(one.seconds) == 1 else f"median {middle}, {_late(one)}"
    return f"{described}{_timeouts(one)}"


def _late(one: _TimedTrials) -> str:
    if one.p95 is None:
        return f"longest {duration(one.seconds[-1])}"
    return f"p95 {duration(one.p95)}"


def _words(one: _TimedTrials) -> str:
    described = f"{counted(len(one.seconds), 'trial')}, median {duration(one.median)}, {_late(one)}"
    span = f"from {duration(one.seconds[0])} to {duration(one.seconds[-1])}"
    return f"{described}, {span}{_timeouts(one)}."


def _timeouts(one: _TimedTrials) -> str:
    return f"; {counted(one.timeouts, 'timeout')} not counted" if one.timeouts else ""


def _legend(timed: Sequence[_TimedTrials]) -> Iterator[tuple[Markup, str]]:
    if any(one.is_few for one in timed):
        yield element("circle", cx=13, cy=7, r=4, class_="one"), "a trial"
    if not all(one.is_few for one in timed):
        sign = element("path", d="M1 13V9h6V3h6V6h6V11h6V13Z", class_="hill")
        yield sign, "number of trials"
    yield element("line", x1=13, x2=13, y1=0, y2=14, class_="median"), "median"
    if any(one.p95 is not None for one in timed):
        late = element("line", x1=13, x2=13, y1=0, y2=14, class_="late")
        yield late, "p95: 1 in 20 takes longer"
