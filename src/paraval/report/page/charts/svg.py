"""Builds all markup of charts: elements, rows, scales and the one style sheet.

Untrusted text is made printable, put on one line, cut, and escaped. Element and attribute names are
ours; anything that could run, load or style something is refused, since the page's policy forbids
inline styles and scripts as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

from markupsafe import Markup, escape

from paraval.dataclass import dataclass
from paraval.text.terminal import one_line, printable
from paraval.text.words import duration

# The style sheet of all charts, for the page to include.


def chart_styles() -> str:
    return files("paraval.report.page.charts").joinpath("charts.css").read_text(encoding="utf-8")


# Scales: from values to positions, and round tick values.

_ROUND_TIMES = (
    *(digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5)),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18000.0),
    *(digit * 36_000.0 * 10**power for power in range(6) for digit in (1, 2, 5)),
)
_ROUNDEST_TIMES = (
    *(10.0**power for power in range(-6, 2)),
    *(60.0, 600.0, 3600.0),
    *(36_000.0 * 10**power for power in range(6)),
)
_ROUND_NUMBERS = tuple(digit * 10.0**power for power in range(-9, 10) for digit in (1, 2, 5))
_ROUNDEST_NUMBERS = tuple(10.0**power for power in range(-9, 10))
_LOG_BEYOND = 10
"""If the largest value is more than this many times the smallest, the axis is logarithmic."""
_SMALLEST_SHARE = 1e-9
"""Share of the largest value: anything below it, including 0, is at the left edge of a logarithmic
axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The values at both edges."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 to 1; values outside are clamped to the edges."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5


def scale_of(values: Iterable[float], *, always_log: bool = False) -> Scale:
    """A scale for all values: from 0, or logarithmic if they are far apart."""
    known = [value for value in values if math.isfinite(value) and value >= 0]
    high = max(known, default=0.0) or 1.0
    low = min((value for value in known if value > high * _SMALLEST_SHARE), default=high)
    if always_log or high > low * _LOG_BEYOND:
        # Some margin, so that no mark is cut off at the edge.
        air = max((high / low) ** 0.06, 1.15)
        return Scale(low=low / air, high=high * air, is_log=True)
    return Scale(low=0.0, high=high * 1.1)


def time_ticks(scale: Scale, most: int = 5) -> list[float]:
    """Round times within a scale, about this many at most."""
    return _log_ticks(scale, (_ROUND_TIMES, _ROUNDEST_TIMES), most) or _even(
        scale, _ROUND_TIMES, most
    )


def number_ticks(scale: Scale, most: int = 5) -> list[float]:
    """Round numbers within a scale, about this many at most."""
    return _log_ticks(scale, (_ROUND_NUMBERS, _ROUNDEST_NUMBERS), most) or _even(
        scale, _ROUND_NUMBERS, most
    )


def tick_time(seconds: float) -> str:
    """`1 min` and not `1 min 00 s`: ticks are round."""
    if 0 < seconds < 0.001:
        return f"{seconds * 1000:g} ms"
    return re.sub(r" 00 (s|min)$|\.0(?= s)", "", duration(seconds)) if seconds else "0"


def _even(scale: Scale, round_values: Sequence[float], most: int) -> list[float]:
    """Equal steps; none on a logarithmic scale, where they would not look equal."""
    if scale.is_log:
        return []
    steps = (step for step in round_values if (scale.high - scale.low) / step <= most)
    step = next(steps, scale.high - scale.low)
    first = math.ceil(scale.low / step)
    return [index * step for index in range(first, math.floor(scale.high / step) + 1)]


def _log_ticks(scale: Scale, tiers: Sequence[Sequence[float]], most: int) -> list[float]:
    """All round values if they are far enough apart, else the roundest, else some."""
    if not scale.is_log:
        return []
    fine, roundest = (
        [value for value in tier if scale.low <= value <= scale.high] for tier in tiers
    )
    spread = _apart(fine, scale, 0.8 / most)
    # A single tick shows no distance.
    if len(spread) == len(fine) or len(roundest) < 2:
        return spread
    return _apart(roundest, scale, 0.8 / most)


def _apart(values: Sequence[float], scale: Scale, distance: float) -> list[float]:
    """Without those too close to the previous one."""
    kept: list[float] = []
    for value in values:
        if not kept or scale.place(value) - scale.place(kept[-1]) >= distance:
            kept.append(value)
    return kept


Child = Markup | str | None
Value = str | float | None

NOTHING = Markup()

_SHAPES = frozenset(("rect", "line", "circle", "path"))
_DRAWN = frozenset(("svg", "g", "text", "title", "desc"))
_WRITTEN = frozenset(("a", "b", "div", "span", "p", "figure", "ul", "li"))
_TABLE = frozenset(("table", "thead", "tbody", "tr", "th", "td"))
_ELEMENTS = _SHAPES | _DRAWN | _WRITTEN | _TABLE

_PLACES = frozenset(("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "dx", "r", "width", "height"))
_FORMS = frozenset(("d", "viewBox", "preserveAspectRatio", "pathLength", "overflow"))
_LOOKS = frozenset(("class", "text-anchor", "stroke-width", "stroke-dasharray"))
_MEANINGS = frozenset(("role", "scope", "colspan", "tabindex", "aria-hidden"))
_ATTRIBUTES = _PLACES | _FORMS | _LOOKS | _MEANINGS
_FREE_TEXT = frozenset(("title", "aria-label"))
_PLAIN_VALUE = re.compile(r"[\w #%.,()-]*", re.ASCII)
_OUR_ANCHOR = re.compile(r"#[a-z][a-z0-9-]*")
_LONGEST_TEXT = 600


def element(name: str, *children: Child, **attributes: Value) -> Markup:
    """One element. Strings among the children are escaped; None and empty ones are left out.

    Attributes are written with `_` for `-`, and `class_` for `class`; None and an empty class leave
    one out.
    """
    if name not in _ELEMENTS:
        raise ValueError(f"charts have no element {name!r}")
    told = "".join(
        _attribute(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None and (value != "" or key != "class_")
    )
    inner = together(children)
    if not inner and name in _SHAPES:
        return Markup(f"<{name}{told}/>")  # noqa: S704 - made of checked and escaped parts
    return Markup(f"<{name}{told}>{inner}</{name}>")  # noqa: S704 - made of checked and escaped parts


def together(children: Iterable[Child]) -> Markup:
    """Concatenate markup."""
    return NOTHING.join(
        child if isinstance(child, Markup) else text(child)
        for child in children
        if child is not None
    )


def text(raw: str) -> Markup:
    """Text that can only show itself."""
    return escape(printable(raw))


def short(raw: str, columns: int) -> str:
    """A label on one line of limited width. Not escaped yet: elements do that."""
    return one_line(raw, columns)


def number(value: float) -> str:
    """As few digits as a drawing needs."""
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits in ("-0", "") else digits


def share(value: float) -> str:
    """A position between the left edge (0) and the right one (1), at any width."""
    return f"{number(100 * value)}%"


def _attribute(name: str, value: str | float) -> str:
    if name in _FREE_TEXT:
        return f' {name}="{escape(one_line(str(value), _LONGEST_TEXT))}"'
    told = value if isinstance(value, str) else number(value)
    if name == "href":
        fits = _OUR_ANCHOR.fullmatch(told)
    else:
        fits = _PLAIN_VALUE.fullmatch(told) if name in _ATTRIBUTES else None
    if fits is None:
        raise ValueError(f"charts have no attribute {name}={told!r}")
    return f' {name}="{told}"'


# Charts with one line per item: its name, a strip as wide as there is room, its figure.

LONGEST_NAME = 48


def chart(kind: str, *parts: Markup | None) -> Markup:
    """A whole chart."""
    return element("figure", *parts, class_=f"chart {kind}")


def lines(rows: Iterable[Markup]) -> Markup:
    return element("div", *rows, class_="rows")


def row(label: str, figure: str, strip: Markup, color: str = "") -> Markup:
    """A name, its figure, and its strip, in the color of a class."""
    name = short(label, LONGEST_NAME)
    full = None if name == label else label
    return element(
        "div",
        element("span", name, class_="name", title=full),
        element("span", figure, class_="figure"),
        strip,
        class_=f"row {color}".rstrip(),
    )


def strip(height: int, shapes: Iterable[Markup], *, title: str, words: str) -> Markup:
    """A drawing across the whole width, and its text alternative."""
    return element(
        "svg",
        element("title", short(title, 200)),
        element("desc", words),
        *shapes,
        role="img",
        width="100%",
        height=height,
        overflow="visible",
    )


def grid(places: Iterable[float], height: int) -> Markup:
    """Fine lines from the axis up through a strip."""
    return together(upright(place, 0, height, "grid") for place in places)


def upright(place: float, top: float, bottom: float, kind: str) -> Markup:
    at = share(place)
    return element("line", x1=at, x2=at, y1=top, y2=bottom, class_=kind)


def level(start: float, end: float, at: float, kind: str, width: float | None = None) -> Markup:
    """A line from left to right."""
    return element(
        "line",
        x1=share(start),
        x2=share(end),
        y1=at,
        y2=at,
        class_=kind,
        stroke_width=width,
    )


def axis(ticks: Sequence[tuple[float, str]]) -> Markup:
    """The tick values below all strips."""
    return element("div", tick_line(ticks), class_="row")


def tick_line(ticks: Iterable[tuple[float, str]]) -> Markup:
    """Hidden from screen readers: each strip has it in words."""
    words = together(tick_text(place, 14, text) for place, text in ticks)
    return element(
        "svg", words, width="100%", height=18, overflow="visible", aria_hidden="true", class_="axis"
    )


def tick_text(place: float, at: float, text: str) -> Markup:
    anchor = "start" if place < 0.02 else "end" if place > 0.98 else "middle"
    return element("text", text, x=share(place), y=at, text_anchor=anchor)


def stretched(width: int, height: int, *shapes: Markup, y: int = 0) -> Markup:
    """Paths cannot use shares of a width: their view box is stretched instead."""
    return element(
        "svg",
        *shapes,
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        y=y,
        width="100%",
        height=height,
    )


def hill(shares: Sequence[float], height: int, y: int = 0) -> Markup:
    """A step for each share of the height."""
    steps = "".join(f"V{number(height - height * one)}h1" for one in shares)
    path = element("path", d=f"M0 {height}{steps}V{height}Z", class_="hill")
    return stretched(len(shares), height, path, y=y)


def legend(items: Iterable[tuple[Markup, str]]) -> Markup:
    """The legend. Each sign is drawn as in the chart, 26 by 14."""
    told = [
        element(
            "li",
            element("svg", sign, width=26, height=14, aria_hidden="true", overflow="visible"),
            element("span", words),
        )
        for sign, words in items
    ]
    return element("ul", *told, class_="legend") if told else NOTHING


def note(*sentences: str) -> Markup:
    told = " ".join(filter(None, sentences))
    return element("p", told, class_="note") if told else NOTHING
