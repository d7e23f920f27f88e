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

from paraval.report.page.charts.svg import chart_styles
from paraval.text.tables import Medium
from paraval.text.terminal import one_line, printable

_HERE = Path(__file__).parent
_NAME_OF_A_KEY = re.compile("`([^`\n]{1,80})`")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    # HTML drops the first line break in a <pre>: ours is added, or one of the text's would be lost.
    environment.globals["newline"] = Markup("\n")
    environment.filters["marked"] = marked
    return environment


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else printable(str(value))


def marked(sentence: str) -> Markup:
    """A sentence shared by all report formats, with its `keys` set apart for HTML."""
    shown = escape(printable(sentence))
    return Markup(_NAME_OF_A_KEY.sub(r"<code>\1</code>", str(shown)))  # noqa: S704 - escaped above


def templates_with(folder: Path) -> Environment:
    """The templates of this folder, which may include those of the page, by the same rules."""
    page = _environment()
    assert page.loader is not None
    return page.overlay(loader=ChoiceLoader([FileSystemLoader(folder), page.loader]))


class HtmlPage(Medium):
    """Templates escape what is quoted here."""

    def quote(self, text: str, limit: int = 300) -> str:
        return one_line(text, limit)

    def name(self, text: str) -> str:
        return self.quote(text, 80)


def rendered(name: str, **values: Any) -> Markup:
    text = _environment().get_template(name).render(values)
    return Markup(text)  # noqa: S704 - templates escape what they print


def rendered_in_pieces(name: str, **values: Any) -> Iterator[str]:
    return _environment().get_template(name).generate(values)


@cache
def style() -> Markup:
    """All style rules, in one element."""
    text = chart_styles() + (_HERE / "page.css").read_text(encoding="utf-8")
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
