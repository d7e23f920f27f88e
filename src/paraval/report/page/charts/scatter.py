"""Quality against cost, one point per variant, with the Pareto frontier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from paraval.report.page.charts.data import QualityCost, color_class
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    chart,
    element,
    legend,
    level,
    note,
    number_ticks,
    scale_of,
    share,
    short,
    strip,
    tick_text,
    upright,
)
from paraval.text.words import counted, duration, listed, money, percent

_HEIGHT = 350
_TOP = 32
_BOTTOM = 310
_LINE = 14
"""The height of a line of text."""
_NAME = 0.3
"""Share of the width that a name may take."""
_RADIUS = 6
_LONGEST_LABEL = 32
_MOST_POINTS = 200
_MOST_TOLD = 6
_FEWEST_POINTS = 2
"""A single point compares with nothing: a table shows as much."""


def quality_cost(points: Sequence[QualityCost]) -> Markup:
    """Empty if there are fewer than two variants, or all were free."""
    if len(points) < _FEWEST_POINTS or not any(one.usd for one in points):
        return NOTHING
    colored = [
        (one, color_class(index, len(points))) for index, one in enumerate(points[:_MOST_POINTS])
    ]
    shown = [one for one, _ in colored]
    cost = scale_of(one.usd for one in shown)
    rate = Scale(low=0.0 if min(one.rate for one in shown) < 0.5 else 0.5, high=1.0)
    frontier = frontier_of(points)
    # Frontier points are labeled first, while there is room, and drawn above others.
    colored.sort(key=lambda pair: pair[0] not in frontier)
    names = list(_names([one for one, _ in colored], cost, rate))
    marks = (
        _mark(one, color, cost, rate, on_frontier=one in frontier)
        for one, color in reversed(colored)
    )
    more = len(points) - len(shown)
    return chart(
        "scatter",
        strip(
            _HEIGHT,
            (*_axes(cost, rate), *_steps(frontier, cost, rate), *marks, *names),
            title="Pass rate against cost, by variant",
            words=" ".join(f"{short(one.label, 80)}: {_figures(one)}." for one in shown),
        ),
        legend(_legend()),
        note(
            _told(frontier) if len(frontier) <= _MOST_TOLD else "",
            "Logarithmic: cost." if cost.is_log else "",
            "Some labels don't fit; hover over a point to see its name."
            if len(names) < len(shown)
            else "",
            f"{counted(more, 'more variant')} left out." if more else "",
        ),
    )


def frontier_of(points: Sequence[QualityCost]) -> list[QualityCost]:
    """Those that nothing else beats: passing as much for less, or more for as much."""
    found: list[QualityCost] = []
    for one in sorted(points, key=lambda point: (point.usd, -point.rate)):
        if not found or one.rate > found[-1].rate or (one.usd, one.rate) == _place(found[-1]):
            found.append(one)
    return found


def _place(one: QualityCost) -> tuple[float, float]:
    return one.usd, one.rate


def _down(one: QualityCost, rate: Scale) -> float:
    return _BOTTOM - rate.place(one.rate) * (_BOTTOM - _TOP)


def _steps(frontier: Sequence[QualityCost], cost: Scale, rate: Scale) -> Iterator[Markup]:
    """The frontier as a stair, and shaded below it what it beats."""
    ends = [*(cost.place(one.usd) for one in frontier), 1.0]
    for one, (start, end) in zip(frontier, pairwise(ends), strict=True):
        y = _down(one, rate)
        x, width = share(start), share(end - start)
        yield element("rect", x=x, width=width, y=y, height=_BOTTOM - y, class_="beaten")
        yield level(start, end, y, "frontier")
    for before, after in pairwise(frontier):
        yield upright(cost.place(after.usd), _down(after, rate), _down(before, rate), "frontier")


def _names(points: Sequence[QualityCost], cost: Scale, rate: Scale) -> Iterator[Markup]:
    """Beside their points, unless another name is there."""
    taken: list[tuple[float, float]] = []
    for one in points:
        x, y = cost.place(one.usd), _down(one, rate)
        start = x if x < 0.5 else x - _NAME
        if all(abs(y - line) >= _LINE or abs(start - other) >= _NAME for other, line in taken):
            taken.append((start, y))
            away, anchor = (2, "start") if x < 0.5 else (-2, "end")
            name = short(one.label, _LONGEST_LABEL)
            yield element("text", name, x=share(x), dx=away, y=y - 9, text_anchor=anchor)


def _mark(one: QualityCost, color: str, cost: Scale, rate: Scale, *, on_frontier: bool) -> Markup:
    kind = "best" if on_frontier else "other"
    at: dict[str, str | float] = {"cx": share(cost.place(one.usd)), "cy": _down(one, rate)}
    return element(
        "g",
        element("title", f"{short(one.label, 80)}: {_figures(one)}"),
        element("circle", **at, r=_RADIUS, class_=f"dot {kind}"),
        class_=color,
    )


def _axes(cost: Scale, rate: Scale) -> Iterator[Markup]:
    for usd in number_ticks(cost):
        place = cost.place(usd)
        yield upright(place, _TOP, _BOTTOM, "grid")
        yield element("g", tick_text(place, _BOTTOM + 16, money(usd)), class_="tick")
    for passed in (0.0, 0.25, 0.5, 0.75, 1.0):
        if passed >= rate.low:
            y = _BOTTOM - rate.place(passed) * (_BOTTOM - _TOP)
            yield level(0.0, 1.0, y, "grid")
            yield element("g", tick_text(0.0, y - 3, percent(passed)), class_="tick")
    what = (
        tick_text(1.0, _BOTTOM + 34, "cost per judged trial →"),
        tick_text(0.0, 10, "↑ pass rate"),
    )
    yield element("g", *what, class_="tick")


def _figures(one: QualityCost) -> str:
    time = "" if one.seconds is None else f", median {duration(one.seconds)}"
    return f"{percent(one.rate)} passed, {money(one.usd)} per judged trial{time}"


def _told(frontier: Sequence[QualityCost]) -> str:
    """The frontier in words: its names may have no room in the chart."""
    names = (f"{short(one.label, 40)} ({percent(one.rate)}, {money(one.usd)})" for one in frontier)
    return f"Pareto frontier: {listed(names)}."


def _legend() -> Iterator[tuple[Markup, str]]:
    stair = element("line", x1=1, x2=25, y1=7, y2=7, class_="frontier")
    dot = element("circle", cx=13, cy=7, r=5, class_="dot best")
    yield element("g", stair, dot), "Pareto frontier: nothing passes as much for less"
    yield element("circle", cx=13, cy=7, r=5, class_="dot other"), "beaten by another variant"
