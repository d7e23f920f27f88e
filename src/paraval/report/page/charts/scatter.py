"""Time against cost, a point a variant: what is quick, what is cheap, and what passes.

Labels stand beside their points, which cannot be done in shares of a width. So it is drawn twice,
for narrow and for wide places, and the styles show one of the two at about its own size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup

from paraval.report.page.charts.data import TimeCost, colour_class
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    chart,
    element,
    finite,
    legend,
    note,
    number,
    number_ticks,
    scale_of,
    short,
    tick_time,
    time_ticks,
    together,
)
from paraval.text.terminal import columns
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent

# Room for labels: each beside its point, where it covers neither a point nor another label.

_LINE = 14
"""The height of a line of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelBox:
    left: float
    top: float
    right: float
    bottom: float

    @staticmethod
    def around(x: float, y: float, radius: float) -> LabelBox:
        return LabelBox(left=x - radius, top=y - radius, right=x + radius, bottom=y + radius)

    def meets(self, other: LabelBox) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not beside and self.top < other.bottom and other.top < self.bottom

    def holds(self, other: LabelBox) -> bool:
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


class LabelPosition(NamedTuple):
    """Where a text begins (or has its middle, or ends), on its base line."""

    x: float
    y: float
    anchor: str


class Labels:
    """What is taken of a drawing so far."""

    def __init__(self, room: LabelBox) -> None:
        self._room = room
        self._taken: list[LabelBox] = []

    def take(self, box: LabelBox) -> None:
        self._taken.append(box)

    def put(self, x: float, y: float, width: float, away: float) -> LabelPosition | None:
        """Beside a point, the first of eight places that is free; None: there is none."""
        for spot in _spots(x, y, away):
            start = {"start": 0.0, "middle": width / 2, "end": width}[spot.anchor]
            left = spot.x - start
            box = LabelBox(left=left, right=left + width, top=spot.y - _LINE + 3, bottom=spot.y + 3)
            if self._room.holds(box) and not any(box.meets(other) for other in self._taken):
                self.take(box)
                return spot
        return None


def _spots(x: float, y: float, away: float) -> tuple[LabelPosition, ...]:
    # A text reaches 3 below its base line and 11 above it.
    above, below = y - away - 1, y + away + 9
    return (
        LabelPosition(x + away, y + 4, "start"),
        LabelPosition(x - away, y + 4, "end"),
        LabelPosition(x, above, "middle"),
        LabelPosition(x, below, "middle"),
        LabelPosition(x + away / 2, above, "start"),
        LabelPosition(x + away / 2, below, "start"),
        LabelPosition(x - away / 2, above, "end"),
        LabelPosition(x - away / 2, below, "end"),
    )


_LETTER = 6.6
"""The mean width of a letter at 12 pixels."""
_DIGIT = 7.7
"""The width of a digit at 12 pixels, in the widest of the usual fonts."""
_TICK_GAP = 6
_COST_TICKS = 5
_RADIUS = 8
_MOST_POINTS = 200
_MOST_TOLD = 6
_FEWEST_POINTS = 2
"""One alone stands against nothing: a table tells as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlotArea:
    kind: str
    width: int
    height: int
    longest_label: int

    left: float = 58
    right: int = 14
    top: int = 26
    bottom: int = 40

    def x(self, place: float) -> float:
        return self.left + place * (self.width - self.left - self.right)

    def y(self, place: float) -> float:
        return self.height - self.bottom - place * (self.height - self.top - self.bottom)


_PAPERS = (
    _PlotArea(kind="narrow", width=340, height=300, longest_label=18),
    _PlotArea(kind="wide", width=760, height=380, longest_label=32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlotPoint:
    label: str
    seconds: float
    usd: float
    rate: float | None
    colour: str
    is_thrifty: bool
    """Nothing else passes as much for less."""


def time_cost(points: Sequence[TimeCost]) -> Markup:
    """Nothing where fewer than two variants have both a time and a cost, or all was free."""
    known = _known(points)
    if len(known) < _FEWEST_POINTS or not any(one.usd for one in known):
        return NOTHING
    shown = known[:_MOST_POINTS]
    time, cost = scale_of(one.seconds for one in shown), scale_of(one.usd for one in shown)
    papers = [_drawing(shown, time, cost, paper) for paper in _PAPERS]
    nameless = any(number_of < len(shown) for _, number_of in papers)
    return chart(
        "scatter",
        *(drawn for drawn, _ in papers),
        legend(_legend(shown)),
        note(
            _thrifty(shown),
            _unequal(time, cost),
            "Some names have no room; pointing at a point tells its own." if nameless else "",
            _left_out(len(points) - len(known), "without time or cost"),
            _left_out(len(known) - len(shown), "more"),
        ),
    )


def _thrifty(points: Sequence[_PlotPoint]) -> str:
    """What a reader looks for, in words: the names may have no room."""
    thrifty = sorted((one for one in points if one.is_thrifty), key=lambda one: one.usd)
    if not thrifty or len(thrifty) > _MOST_TOLD:
        return ""
    return f"Cheapest for what passes: {listed(map(_told, thrifty))}."


def _told(one: _PlotPoint) -> str:
    rate = UNKNOWN if one.rate is None else percent(one.rate)
    return f"{short(one.label, 40)} ({rate}, {money(one.usd)})"


def _left_out(number_of: int, which: str) -> str:
    return f"{counted(number_of, 'variant')} {which} left out." if number_of else ""


def _known(points: Sequence[TimeCost]) -> list[_PlotPoint]:
    told = []
    for index, one in enumerate(points):
        seconds, usd = finite(one.seconds), finite(one.usd)
        if seconds is not None and usd is not None and seconds >= 0 and usd >= 0:
            told.append((one.label, seconds, usd, _rate(one), colour_class(index, len(points))))
    rated = [(usd, rate) for _, _, usd, rate, _ in told if rate is not None]
    return [
        _PlotPoint(
            label=label,
            seconds=seconds,
            usd=usd,
            rate=rate,
            colour=colour,
            is_thrifty=rate is not None and _is_thrifty(usd, rate, rated),
        )
        for label, seconds, usd, rate, colour in told
    ]


def _rate(one: TimeCost) -> float | None:
    rate = finite(one.rate)
    return None if rate is None else min(max(rate, 0.0), 1.0)


def _is_thrifty(usd: float, rate: float, others: Sequence[tuple[float, float]]) -> bool:
    return not any(
        cost <= usd and passes >= rate and (cost < usd or passes > rate) for cost, passes in others
    )


def _drawing(
    points: Sequence[_PlotPoint], time: Scale, cost: Scale, paper: _PlotArea
) -> tuple[Markup, int]:
    """The drawing, and how many of its points have their names beside them."""
    paper = _with_room_for_ticks(paper, cost)
    places = [(paper.x(time.place(one.seconds)), paper.y(cost.place(one.usd))) for one in points]
    # Those that a reader looks for first are named first, while there is room.
    order = sorted(range(len(points)), key=lambda index: not points[index].is_thrifty)
    labels = [short(points[index].label, paper.longest_label) for index in order]
    names = _names(labels, [places[index] for index in order], paper)
    drawn = element(
        "svg",
        element("title", "Time against cost, by variant"),
        element("desc", " ".join(map(_words, points))),
        _axes(time, cost, paper),
        *(_mark(points[index], *places[index]) for index in reversed(order)),
        *names,
        role="img",
        viewBox=f"0 0 {paper.width} {paper.height}",
        width="100%",
        class_=paper.kind,
    )
    return drawn, len(names)


def _with_room_for_ticks(paper: _PlotArea, cost: Scale) -> _PlotArea:
    """Small costs have many digits: they must not run over the edge."""
    longest = max((columns(money(usd)) for usd in number_ticks(cost, _COST_TICKS)), default=0)
    return replace(paper, left=max(paper.left, longest * _DIGIT + _TICK_GAP + 2))


def _names(
    labels: Sequence[str], places: Sequence[tuple[float, float]], paper: _PlotArea
) -> list[Markup]:
    room = Labels(LabelBox(left=paper.left, top=4, right=paper.width - 2, bottom=paper.y(0)))
    for x, y in places:
        room.take(LabelBox.around(x, y, _RADIUS + 2))
    spots = [
        (label, room.put(x, y, columns(label) * _LETTER, _RADIUS + 4))
        for label, (x, y) in zip(labels, places, strict=True)
    ]
    return [
        element("text", label, x=spot.x, y=spot.y, text_anchor=spot.anchor)
        for label, spot in spots
        if spot is not None
    ]


def _mark(one: _PlotPoint, x: float, y: float) -> Markup:
    kind = "thrifty" if one.is_thrifty else "other"
    at = {"cx": x, "cy": y}
    whole = element("circle", **at, r=_RADIUS, class_="ring")
    dot = element("circle", **at, r=3.5, class_=f"dot {kind}")
    title = element("title", f"{short(one.label, 80)}: {_figures(one)}")
    return element("g", title, whole, _passed(one, x, y), dot, class_=one.colour)


def _passed(one: _PlotPoint, x: float, y: float) -> Markup | None:
    """The part of the ring that stands for what passed, from the top on."""
    if not one.rate:
        return None
    return element(
        "circle",
        cx=x,
        cy=y,
        r=_RADIUS,
        class_="passed",
        pathLength=100,
        stroke_dasharray=f"{number(100 * one.rate)} 100",
        transform=f"rotate(-90 {number(x)} {number(y)})",
    )


def _axes(time: Scale, cost: Scale, paper: _PlotArea) -> Markup:
    bottom, right = paper.y(0), paper.x(1)
    parts = []
    for seconds in time_ticks(time, 4 if paper.kind == "narrow" else 7):
        x = paper.x(time.place(seconds))
        parts.append(element("line", x1=x, x2=x, y1=paper.top, y2=bottom, class_="grid"))
        parts.append(
            element(
                "text", tick_time(seconds), x=x, y=bottom + 16, text_anchor="middle", class_="tick"
            )
        )
    for usd in number_ticks(cost, _COST_TICKS):
        y = paper.y(cost.place(usd))
        parts.append(element("line", x1=paper.left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(
            element(
                "text",
                money(usd),
                x=paper.left - _TICK_GAP,
                y=y + 4,
                text_anchor="end",
                class_="tick",
            )
        )
    below = element(
        "text", "median time →", x=right, y=bottom + 34, text_anchor="end", class_="what"
    )
    above = element("text", "↑ cost a trial", x=0, y=12, class_="what")
    return together((*parts, below, above))


def _figures(one: _PlotPoint) -> str:
    rate = UNKNOWN if one.rate is None else f"{percent(one.rate)} passed"
    return f"{duration(one.seconds)}, {money(one.usd)} a trial, {rate}"


def _words(one: _PlotPoint) -> str:
    thrifty = "; the cheapest for what passes" if one.is_thrifty else ""
    return f"{short(one.label, 80)}: {_figures(one)}{thrifty}."


def _legend(points: Sequence[_PlotPoint]) -> list[tuple[Markup, str]]:
    at = {"cx": 13, "cy": 7}
    ring = element("circle", **at, r=6, class_="ring")
    part = element(
        "circle",
        **at,
        r=6,
        class_="passed",
        pathLength=100,
        stroke_dasharray="75 100",
        transform="rotate(-90 13 7)",
    )
    items = []
    if any(one.rate is not None for one in points):
        items.append((element("g", ring, part), "the share that passed"))
    if any(one.is_thrifty for one in points):
        items.append(
            (element("circle", **at, r=4, class_="dot thrifty"), "cheapest for what passes")
        )
    return items


def _unequal(time: Scale, cost: Scale) -> str:
    logs = [name for name, scale in (("time", time), ("cost", cost)) if scale.is_log]
    return f"Logarithmic: {' and '.join(logs)}." if logs else ""
