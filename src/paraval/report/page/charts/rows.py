"""Charts of one line a thing: its name, a strip that is as wide as there is room, its figure.

Names and figures are text of the page, so that they stay readable on a telephone; only the strip is
drawn, in shares of its width, so that nothing in it is stretched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from paraval.report.page.charts.svg import NOTHING, element, share, short, together

LONGEST_NAME = 48


def chart(kind: str, *parts: Markup | None) -> Markup:
    """A whole drawing."""
    return element("figure", *parts, class_=f"chart {kind}")


def lines(rows: Iterable[Markup]) -> Markup:
    return element("div", *rows, class_="rows")


def row(label: str, figure: str, strip: Markup, colour: str = "") -> Markup:
    """A name, what it comes to, and its strip, in the colour of a class."""
    name = short(label, LONGEST_NAME)
    full = None if name == label else label
    return element(
        "div",
        element("span", name, class_="name", title=full),
        element("span", figure, class_="figure"),
        strip,
        class_=f"row {colour}".rstrip(),
    )


def strip(height: int, shapes: Iterable[Markup], *, title: str, words: str) -> Markup:
    """A drawing across the whole width, and the same in words."""
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
    """The values below all strips. The same is in each strip's words, so readers are spared it."""
    words = together(tick_text(place, 14, text) for place, text in ticks)
    drawn = element(
        "svg", words, width="100%", height=18, overflow="visible", aria_hidden="true", class_="axis"
    )
    return element("div", drawn, class_="row")


def tick_text(place: float, at: float, text: str) -> Markup:
    anchor = "start" if place < 0.02 else "end" if place > 0.98 else "middle"
    return element("text", text, x=share(place), y=at, text_anchor=anchor)


def legend(items: Iterable[tuple[Markup, str]]) -> Markup:
    """What each sign means. Each is drawn as in the chart, on 26 by 14."""
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
