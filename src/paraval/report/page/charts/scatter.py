"""Cost against time, one point per variant, with labels where they cover nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.report.page.charts.data import TimeCost, color_class
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    chart,
    element,
    legend,
    level,
    note,
    number,
    number_ticks,
    scale_of,
    share,
    short,
    strip,
    tick_text,
    tick_time,
    time_ticks,
    upright,
)
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent

_HEIGHT = 350
_TOP = 26
_BOTTOM = 310
_LINE = 14
"""The height of a line of text."""
_RADIUS = 8
_LONGEST_LABEL = 32
_MOST_POINTS = 200
_MOST_TOLD = 6
_FEWEST_POINTS = 2
"""A single point compares with nothing: a table shows as much."""


def time_cost(points: Sequence[TimeCost]) -> Markup:
    """Empty if there are fewer than two variants, or all were free."""
    if len(points) < _FEWEST_POINTS or not any(one.usd for one in points):
        return NOTHING
    colored = [
        (one, color_class(index, len(points))) for index, one in enumerate(points[:_MOST_POINTS])
    ]
    # Frontier points are labeled first, while there is room, and drawn above others.
    colored.sort(key=lambda pair: not _is_thrifty(pair[0], points))
    shown = [one for one, _ in colored]
    time, cost = scale_of(one.seconds for one in shown), scale_of(one.usd for one in shown)
    names = list(_names(shown, time, cost))
    marks = (
        _mark(one, color, time, cost, is_thrifty=_is_thrifty(one, points))
        for one, color in reversed(colored)
    )
    thrifty = sorted((one for one in shown if _is_thrifty(one, points)), key=lambda one: one.usd)
    more = len(points) - len(shown)
    return chart(
        "scatter",
        strip(
            _HEIGHT,
            (*_axes(time, cost), *marks, *names),
            title="Cost against time, by variant",
            words=" ".join(f"{short(one.label, 80)}: {_figures(one)}." for one in shown),
        ),
        legend(_legend()),
        note(
            _told(thrifty) if len(thrifty) <= _MOST_TOLD else "",
            _unequal(time, cost),
            "Some labels don't fit; hover over a point to see its name."
            if len(names) < len(shown)
            else "",
            f"{counted(more, 'more variant')} left out." if more else "",
        ),
    )


def _is_thrifty(one: TimeCost, others: Sequence[TimeCost]) -> bool:
    """Whether it is on the Pareto frontier: nothing else passes as much for less."""
    rate = one.rate
    return rate is not None and not any(
        other.rate is not None
        and other.usd <= one.usd
        and other.rate >= rate
        and (other.usd < one.usd or other.rate > rate)
        for other in others
    )


def _down(one: TimeCost, cost: Scale) -> float:
    return _BOTTOM - cost.place(one.usd) * (_BOTTOM - _TOP)


def _names(points: Sequence[TimeCost], time: Scale, cost: Scale) -> Iterator[Markup]:
    """Beside their points, unless another name is on the same line."""
    lines: list[float] = []
    for one in points:
        x, y = time.place(one.seconds), _down(one, cost)
        if all(abs(y - other) >= _LINE for other in lines):
            lines.append(y)
            away, anchor = (_RADIUS + 4, "start") if x < 0.5 else (-_RADIUS - 4, "end")
            name = short(one.label, _LONGEST_LABEL)
            yield element("text", name, x=share(x), dx=away, y=y + 4, text_anchor=anchor)


def _mark(one: TimeCost, color: str, time: Scale, cost: Scale, *, is_thrifty: bool) -> Markup:
    at: dict[str, str | float] = {"cx": share(time.place(one.seconds)), "cy": _down(one, cost)}
    kind = "thrifty" if is_thrifty else "other"
    return element(
        "g",
        element("title", f"{short(one.label, 80)}: {_figures(one)}"),
        element("circle", **at, r=_RADIUS, class_="ring"),
        _passed(one.rate, _RADIUS, **at) if one.rate else None,
        element("circle", **at, r=3.5, class_=f"dot {kind}"),
        class_=color,
    )


def _passed(rate: float, radius: float, **at: str | float) -> Markup:
    """The part of the ring that shows the pass rate."""
    dashes = f"{number(100 * rate)} 100"
    return element(
        "circle", **at, r=radius, class_="passed", pathLength=100, stroke_dasharray=dashes
    )


def _axes(time: Scale, cost: Scale) -> Iterator[Markup]:
    for seconds in time_ticks(time):
        place = time.place(seconds)
        yield upright(place, _TOP, _BOTTOM, "grid")
        yield element("g", tick_text(place, _BOTTOM + 16, tick_time(seconds)), class_="tick")
    for usd in number_ticks(cost):
        y = _BOTTOM - cost.place(usd) * (_BOTTOM - _TOP)
        yield level(0.0, 1.0, y, "grid")
        yield element("g", tick_text(0.0, y - 3, money(usd)), class_="tick")
    what = (tick_text(1.0, _BOTTOM + 34, "median time →"), tick_text(0.0, 12, "↑ cost per trial"))
    yield element("g", *what, class_="tick")


def _figures(one: TimeCost) -> str:
    rate = UNKNOWN if one.rate is None else f"{percent(one.rate)} passed"
    return f"{duration(one.seconds)}, {money(one.usd)} per trial, {rate}"


def _told(thrifty: Sequence[TimeCost]) -> str:
    """The frontier in words: its names may have no room in the chart."""
    told = listed(
        f"{short(one.label, 40)} ({percent(one.rate or 0.0)}, {money(one.usd)})" for one in thrifty
    )
    return f"Pareto frontier: {told}." if told else ""


def _legend() -> Iterator[tuple[Markup, str]]:
    ring = element("circle", cx=13, cy=7, r=6, class_="ring")
    yield element("g", ring, _passed(0.75, 6, cx=13, cy=7)), "pass rate"
    dot = element("circle", cx=13, cy=7, r=4, class_="dot thrifty")
    yield dot, "Pareto frontier (cheapest for its pass rate)"


def _unequal(time: Scale, cost: Scale) -> str:
    logs = [name for name, scale in (("time", time), ("cost", cost)) if scale.is_log]
    return f"Logarithmic: {' and '.join(logs)}." if logs else ""
