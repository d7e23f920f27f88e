"""Forest plot: differences with their intervals around a line at zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.report.compare.sentences import signed, signed_points, signed_range
from paraval.report.page.charts.data import ForestRow
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    axis,
    chart,
    element,
    grid,
    legend,
    level,
    lines,
    row,
    share,
    strip,
    tick_line,
    upright,
)

_HEIGHT = 26
_MIDDLE = _HEIGHT / 2
_SIDES = ((0.25, "← worse"), (0.75, "better →"))
_REACHES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)


def forest(rows: Sequence[ForestRow], reach: float | None = None) -> Markup:
    """One line per row, in points; `reach` is the largest difference on the axis.

    With a reach, several charts share an axis; without it, the axis fits its rows.
    """
    if not rows:
        return NOTHING
    most = reach_of(rows) if reach is None else reach
    scale = Scale(low=-most, high=most)
    drawn = [row(one.label, _figure(one), _strip(one, scale)) for one in rows]
    places = (-most, -most / 2, 0.0, most / 2, most)
    # The unit is in the middle, where it has room on a phone, too.
    ticks = [(scale.place(value), signed(value) if value else "0 points") for value in places]
    return chart("forest", lines([axis(_SIDES), *drawn, axis(ticks)]), legend(_legend(rows)))


def interval_plot(one: ForestRow, reach: float) -> Markup:
    """A difference beside the sentence about it."""
    return chart("forest", _strip(one, Scale(low=-reach, high=reach)))


def interval_axis(reach: float) -> Markup:
    """The axis below several plots of the same reach."""
    ticks = ((0.0, f"{signed(-reach)} worse"), (0.5, "0"), (1.0, f"better {signed(reach)}"))
    return chart("forest", tick_line(ticks))


def reach_of(rows: Sequence[ForestRow]) -> float:
    """The smallest round difference that covers all of them."""
    ends = [abs(end) for one in rows for end in (one.difference, *(one.interval or ()))]
    return next((reach for reach in _REACHES if reach >= max(ends, default=0.0)), 1.0)


def _strip(one: ForestRow, scale: Scale) -> Markup:
    shapes = _shapes(one, scale)
    return strip(_HEIGHT, shapes, title=one.label or "difference", words=_words(one))


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


def _figure(one: ForestRow) -> str:
    interval = one.interval
    described = signed(one.difference)
    return described if interval is None else f"{described} ({signed_range(interval)})"


def _words(one: ForestRow) -> str:
    interval = one.interval
    described = signed_points(one.difference)
    if interval is not None:
        described += f", interval {signed_range(interval)}"
    if not one.shown:
        return f"{described}: no difference shown."
    return f"{described}: {_kind(one)}."


def _legend(rows: Sequence[ForestRow]) -> Iterator[tuple[Markup, str]]:
    dots = (("better", "better"), ("worse", "worse"), ("open", "no difference shown"))
    present = {_kind(one) for one in rows}
    for kind, words in dots:
        if kind in present:
            across = element("line", x1=1, x2=25, y1=7, y2=7, class_=f"reach {kind}")
            dot = element("circle", cx=13, cy=7, r=5, class_=f"dot {kind}")
            yield element("g", across, dot), words
