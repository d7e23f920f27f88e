"""Differences with their intervals around a line at zero, as in a forest plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.report.compare.sentences import signed, signed_points, signed_range
from paraval.report.page.charts.data import ForestRow
from paraval.report.page.charts.svg import (
    Scale,
    chart,
    element,
    grid,
    level,
    share,
    strip,
    tick_line,
    upright,
)

_HEIGHT = 26
_MIDDLE = _HEIGHT / 2
_REACHES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)


def interval_plot(one: ForestRow, reach: float) -> Markup:
    """A difference beside the sentence about it."""
    shapes = _shapes(one, Scale(low=-reach, high=reach))
    drawn = strip(_HEIGHT, shapes, title=one.label or "difference", words=_words(one))
    return chart("forest", drawn)


def interval_axis(reach: float) -> Markup:
    """The axis below several plots of the same reach."""
    ticks = ((0.0, f"{signed(-reach)} worse"), (0.5, "0"), (1.0, f"better {signed(reach)}"))
    return chart("forest", tick_line(ticks))


def reach_of(rows: Sequence[ForestRow]) -> float:
    """The smallest round difference that covers all of them."""
    ends = [abs(end) for one in rows for end in (one.difference, *(one.interval or ()))]
    return next((reach for reach in _REACHES if reach >= max(ends, default=0.0)), 1.0)


def _shapes(one: ForestRow, scale: Scale) -> Iterator[Markup]:
    yield grid((0.0, 0.25, 0.75, 1.0), _HEIGHT)
    yield upright(0.5, 0, _HEIGHT, "zero")
    kind = _kind(one)
    if (interval := one.interval) is not None:
        low, high = map(scale.place, interval)
        yield level(low, high, _MIDDLE, f"reach {kind}")
        yield from (upright(end, _MIDDLE - 5, _MIDDLE + 5, f"reach {kind}") for end in (low, high))
    at = share(scale.place(one.difference))
    yield element("circle", cx=at, cy=_MIDDLE, r=5, class_=f"dot {kind}")


def _kind(one: ForestRow) -> str:
    if not one.shown:
        return "open"
    return "better" if one.difference > 0 else "worse"


def _words(one: ForestRow) -> str:
    interval = one.interval
    described = signed_points(one.difference)
    if interval is not None:
        described += f", interval {signed_range(interval)}"
    if not one.shown:
        return f"{described}: no difference shown."
    return f"{described}: {_kind(one)}."
