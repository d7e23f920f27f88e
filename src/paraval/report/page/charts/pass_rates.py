"""A pass rate as a bar, with its interval and the range that errors leave open."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from paraval.report.page.charts.data import Interval, RateRow
from paraval.report.page.charts.svg import (
    chart,
    element,
    grid,
    level,
    share,
    strip,
    upright,
)
from paraval.text.words import counted, percent, percent_range

_HEIGHT = 14
_BAR = (3, 8)
"""Top and height of a bar."""
_MIDDLE = _BAR[0] + _BAR[1] / 2
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def rate_bar(one: RateRow) -> Markup:
    """A bar from 0 to 100%."""
    drawn = strip(_HEIGHT, _shapes(one), title=one.label or "pass rate", words=_words(one))
    return chart("rates", drawn)


def _shapes(one: RateRow) -> Iterator[Markup]:
    yield grid(_QUARTERS, _HEIGHT)
    if (rate := one.rate) is not None:
        top, height = _BAR
        yield element("rect", x=0, y=top, width=share(rate), height=height, class_="bar")
    if (hidden := _hidden(one)) is not None:
        yield _hatch(*hidden)
    if (interval := one.interval) is not None:
        yield _whisker(*interval)


def _hatch(low: float, high: float) -> Markup:
    # A thick dashed line is a hatch without a pattern, and so without an id that charts would
    # share.
    return level(low, high, _MIDDLE, "hatch", _BAR[1])


def _whisker(low: float, high: float) -> Markup:
    ends = (upright(place, _MIDDLE - 5, _MIDDLE + 5, "whisker") for place in (low, high))
    return element("g", level(low, high, _MIDDLE, "whisker"), *ends)


def _words(one: RateRow) -> str:
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
