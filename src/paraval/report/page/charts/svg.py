"""The only place that makes markup for charts: elements by name, attributes checked, text escaped.

Text of others can do nothing but show itself: it is printable, on one line, cut, and escaped.
Elements and attributes are ours; one that could run, load or style anything is refused, since the
page's policy forbids inline styles and scripts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from paraval.report.text import one_line, printable

Child = Markup | str | None
Value = str | float | None

NOTHING = Markup()

_SHAPES = frozenset(("rect", "line", "circle", "path"))
_DRAWN = frozenset(("svg", "g", "text", "title", "desc"))
_WRITTEN = frozenset(("a", "b", "div", "span", "p", "figure", "ul", "li"))
_TABLE = frozenset(("table", "thead", "tbody", "tr", "th", "td"))
_ELEMENTS = _SHAPES | _DRAWN | _WRITTEN | _TABLE

_PLACES = frozenset(("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"))
_FORMS = frozenset(("d", "viewBox", "preserveAspectRatio", "pathLength", "overflow", "transform"))
_LOOKS = frozenset(("class", "text-anchor", "stroke-width", "stroke-dasharray"))
_MEANINGS = frozenset(("role", "scope", "tabindex", "aria-hidden"))
_ATTRIBUTES = _PLACES | _FORMS | _LOOKS | _MEANINGS
_FREE_TEXT = frozenset(("title", "aria-label"))
_PLAIN_VALUE = re.compile(r"[\w #%.,()-]*", re.ASCII)
_OUR_ANCHOR = re.compile(r"#[a-z][a-z0-9-]*")
_LONGEST_TEXT = 600


def element(name: str, *children: Child, **attributes: Value) -> Markup:
    """One element. Strings among the children are escaped; None and empty ones are left out.

    Attributes are written with `_` for `-`, and `class_` for `class`; None leaves one out, and so
    does a class that is empty.
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
    """One after the other."""
    return NOTHING.join(
        child if isinstance(child, Markup) else text(child)
        for child in children
        if child is not None
    )


def text(raw: str) -> Markup:
    """Text that does nothing but show itself."""
    return escape(printable(raw))


def short(raw: str, columns: int) -> str:
    """A label on one line of so many columns. Not escaped yet: the elements do that."""
    return one_line(raw, columns)


def number(value: float) -> str:
    """As few digits as a drawing needs."""
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits in ("-0", "") else digits


def share(value: float) -> str:
    """A place between the left edge (0) and the right one (1), whatever the width."""
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
