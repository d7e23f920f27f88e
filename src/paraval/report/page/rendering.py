"""Templates, and the rule that untrusted text never acts on the page.

Whatever a template prints is first made visible (`printable`: control characters, direction
overrides) and then escaped; only our own markup passes. No template can forget it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from paraval.report.compare.claims import signed
from paraval.report.page.plots import Scale
from paraval.text.tables import Medium
from paraval.text.terminal import one_line, printable
from paraval.text.words import duration, money, percent, percent_range

_HERE = Path(__file__).parent
_NAME_OF_A_KEY = re.compile("`([^`\n]{1,80})`")


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    # HTML drops the first line break in a <pre>: ours is added, or one of the text's would be lost.
    made.globals["newline"] = Markup("\n")
    made.globals["signed"] = signed
    made.globals["scale_to"] = lambda reach: Scale(low=-reach, high=reach)
    made.filters["marked"] = marked
    made.filters["line"] = lambda text, most=300: one_line(str(text), most)
    made.filters["share"] = lambda value: f"{100 * value:.4g}%"
    made.filters.update(money=money, percent=percent, duration=duration)
    made.filters["range"] = lambda interval: percent_range(*interval)
    made.filters["described"] = lambda point: f"{one_line(point.label, 80)}: {point.words}"
    return made


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else printable(str(value))


def marked(sentence: str) -> Markup:
    """A sentence shared by all report formats, with its `keys` set apart for HTML."""
    shown = escape(printable(sentence))
    return Markup(_NAME_OF_A_KEY.sub(r"<code>\1</code>", str(shown)))  # noqa: S704 - escaped above


def templates_with(folder: Path) -> Environment:
    """The templates of this folder, which may include those of the page, by the same rules."""
    page = environment()
    assert page.loader is not None
    return page.overlay(loader=ChoiceLoader([FileSystemLoader(folder), page.loader]))


class HtmlPage(Medium):
    """Templates escape what is quoted here."""

    def quote(self, text: str, limit: int = 300) -> str:
        return one_line(text, limit)

    def name(self, text: str) -> str:
        return self.quote(text, 80)


def rendered(name: str, **values: Any) -> Markup:
    text = environment().get_template(name).render(values)
    return Markup(text)  # noqa: S704 - templates escape what they print


def rendered_page(name: str, **values: Any) -> Iterator[str]:
    """A whole page, in pieces."""
    head = {"policy": policy(), "style": style()}
    return environment().get_template(name).generate(head | values)


@cache
def style() -> Markup:
    """All style rules, in one element."""
    sheets = (_HERE / name for name in ("charts.css", "page.css"))
    text = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    if "</" in text or "<!--" in text:
        raise ValueError("a style sheet must not hold what ends its element")
    return Markup(text)  # noqa: S704 - our own files, and looked at above


def policy() -> str:
    """What a browser may do with the page: apply our one style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'none';"
        " base-uri 'none'; form-action 'none'"
    )
