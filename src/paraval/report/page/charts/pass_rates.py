"""Pass rates as bars, each with its interval and the range that errors leave open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.report.page.charts.data import Interval, RateRow
from paraval.report.page.charts.svg import (
    NOTHING,
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
    upright,
)
from paraval.text.words import UNKNOWN, counted, percent, percent_range

_HEIGHT = 26
_BAR = (5, 16)
"""Top and height of a bar."""
_MIDDLE = _BAR[0] + _BAR[1] / 2
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def rate_bars(rows: Sequence[RateRow]) -> Markup:
    """One bar per row, from 0 to 100%; empty without rows."""
    if not rows:
        return NOTHING
    drawn = [row(one.label, _figure(one), _strip(one)) for one in rows]
    return chart(
        "rates",
        lines([*drawn, axis([(place, percent(place)) for place in _QUARTERS])]),
        legend(_legend(rows)),
    )


def _strip(one: RateRow) -> Markup:
    return strip(_HEIGHT, _shapes(one), title=one.label or "pass rate", words=_words(one))


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


def _figure(one: RateRow) -> str:
    rate, interval = one.rate, one.interval
    if rate is None:
        return UNKNOWN if not one.errors else counted(one.errors, "error")
    return percent(rate) if interval is None else f"{percent(rate)} ({percent_range(*interval)})"


def _words(one: RateRow) -> str:
    rate, interval, hidden = one.rate, one.interval, _hidden(one)
    if rate is None:
        said = "Nothing was judged."
    else:
        said = f"{percent(rate)} of {counted(one.judged, 'judged trial')} passed"
        said += f", interval {percent_range(*interval)}." if interval else "."
    if one.errors:
        said += f" {counted(one.errors, 'error')}"
        said += f" could make it {percent_range(*hidden)}." if hidden else "."
    return said


def _legend(rows: Sequence[RateRow]) -> Iterator[tuple[Markup, str]]:
    if any(one.interval is not None for one in rows):
        ends = (element("line", x1=x, x2=x, y1=3, y2=11, class_="whisker") for x in (2, 24))
        across = element("line", x1=2, x2=24, y1=7, y2=7, class_="whisker")
        yield element("g", across, *ends), "95% interval"
    if any(_hidden(one) is not None for one in rows):
        sign = element("line", x1=0, x2=26, y1=7, y2=7, class_="hatch", stroke_width=12)
        yield sign, "range if errors are counted"


def _hidden(one: RateRow) -> Interval | None:
    if not one.errors or one.worst is None or one.best is None:
        return None
    return one.worst, one.best
