"""A pass rate as a bar and a difference as a dot, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.report.compare.sentences import signed, signed_points, signed_range
from paraval.report.page.charts.data import DifferenceRow, Interval, RateRow
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
from paraval.text.words import counted, percent, percent_range

_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BAR_HEIGHT = 14
_BAR = (3, 8)
"""Top and height of a bar."""
_BAR_MIDDLE = _BAR[0] + _BAR[1] / 2
_DOT_HEIGHT = 26
_REACHES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)


def rate_bar(one: RateRow) -> Markup:
    """A bar from 0 to 100%, with the range that errors leave open."""
    shapes, title = _bar(one), one.label or "pass rate"
    return chart("rates", strip(_BAR_HEIGHT, shapes, title=title, words=_rate_words(one)))


def interval_plot(one: DifferenceRow, reach: float) -> Markup:
    """A difference beside the sentence about it, around a line at zero."""
    shapes, title = _dot(one, Scale(low=-reach, high=reach)), one.label or "difference"
    return chart("forest", strip(_DOT_HEIGHT, shapes, title=title, words=_difference_words(one)))


def interval_axis(reach: float) -> Markup:
    """The axis below several plots of the same reach."""
    ticks = ((0.0, f"{signed(-reach)} worse"), (0.5, "0"), (1.0, f"better {signed(reach)}"))
    return chart("forest", tick_line(ticks))


def reach_of(rows: Sequence[DifferenceRow]) -> float:
    """The smallest round difference that covers all of them."""
    ends = [abs(end) for one in rows for end in (one.difference, *(one.interval or ()))]
    return next((reach for reach in _REACHES if reach >= max(ends, default=0.0)), 1.0)


def _whisker(interval: Interval, middle: float, kind: str) -> Iterator[Markup]:
    yield level(*interval, middle, kind)
    yield from (upright(end, middle - 5, middle + 5, kind) for end in interval)


def _bar(one: RateRow) -> Iterator[Markup]:
    yield grid(_QUARTERS, _BAR_HEIGHT)
    if (rate := one.rate) is not None:
        top, height = _BAR
        yield element("rect", x=0, y=top, width=share(rate), height=height, class_="bar")
    if (hidden := _hidden(one)) is not None:
        # A thick dashed line is a hatch without a pattern, and so without an id that charts would
        # share.
        yield level(*hidden, _BAR_MIDDLE, "hatch", _BAR[1])
    if one.interval is not None:
        yield element("g", *_whisker(one.interval, _BAR_MIDDLE, "whisker"))


def _rate_words(one: RateRow) -> str:
    rate, interval, hidden = one.rate, one.interval, _hidden(one)
    if rate is None:
        said = "Nothing was judged."
    else:
        trials = counted(one.judged, "judged trial")
        said = f"{percent(rate)} of {trials} passed"
        if one.is_by_case:
            said = f"Pass rate {percent(rate)}, the mean of cases, over {trials}"
        said += f", interval {percent_range(*interval)}." if interval else "."
    if one.errors:
        said += f" {counted(one.errors, 'error')}"
        said += f" could make it {percent_range(*hidden)}." if hidden else "."
    return said


def _hidden(one: RateRow) -> Interval | None:
    if not one.errors or one.worst is None or one.best is None:
        return None
    return one.worst, one.best


def _dot(one: DifferenceRow, scale: Scale) -> Iterator[Markup]:
    middle, kind = _DOT_HEIGHT / 2, _kind(one)
    yield grid((0.0, 0.25, 0.75, 1.0), _DOT_HEIGHT)
    yield upright(0.5, 0, _DOT_HEIGHT, "zero")
    if one.interval is not None:
        low, high = map(scale.place, one.interval)
        yield from _whisker((low, high), middle, f"reach {kind}")
    at = share(scale.place(one.difference))
    yield element("circle", cx=at, cy=middle, r=5, class_=f"dot {kind}")


def _kind(one: DifferenceRow) -> str:
    if not one.shown:
        return "open"
    return "better" if one.difference > 0 else "worse"


def _difference_words(one: DifferenceRow) -> str:
    described = signed_points(one.difference)
    if one.interval is not None:
        described += f", interval {signed_range(one.interval)}"
    return f"{described}: {_kind(one) if one.shown else 'no difference shown'}."
