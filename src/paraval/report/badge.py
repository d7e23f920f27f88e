"""A run's badge: the pass rate with its interval, for shields.io or the front matter of a text.

Callers pass only complete runs, never an outage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import RunInfo
from paraval.report.summary.tally import Summary
from paraval.text.terminal import one_line
from paraval.text.words import percent, percent_range

_LONGEST_LABEL = 60
_COLORS = (
    (0.95, "brightgreen"),
    (0.9, "green"),
    (0.85, "yellowgreen"),
    (0.7, "yellow"),
    (0.5, "orange"),
)
"""Minimum pass rates of the colors; below all, red."""
_FRONT_MATTER = re.compile(
    r"\ufeff?---[ \t]*\r?\n(?P<keys>.*?)^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadgeFigures:
    """The latest figures of a suite, or of one of its variants."""

    run: RunInfo
    summary: Summary
    """Of judged trials, at least one."""
    choice: Mapping[str, str] = field(default_factory=dict)
    """Axis -> value, if a variant was selected."""

    @property
    def rate(self) -> float:
        assert self.summary.pass_rate is not None, "something was judged"
        return self.summary.pass_rate

    @property
    def message(self) -> str:
        """`92% (85–96%)`."""
        interval = self.summary.pass_rate_interval
        assert interval is not None, "something was judged"
        return f"{percent(self.rate)} ({percent_range(*interval)})"


def shields_json(figures: BadgeFigures) -> str:
    """As https://shields.io/badges/endpoint-badge defines it; other fields would be refused."""
    colors = (color for least, color in _COLORS if figures.rate >= least)
    told = {
        "schemaVersion": 1,
        "label": one_line(figures.run.suite, _LONGEST_LABEL) or "pass rate",
        "message": figures.message,
        "color": next(colors, "red"),
    }
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def is_badge(text: str) -> bool:
    """Whether a file is a badge that may be replaced by another."""
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("schemaVersion") == 1 and "message" in told


def with_front_matter(text: str, figures: BadgeFigures, name: str) -> str:
    """The text with `pass_rate` and `last_tested` in its front matter; RequestError if that begins
    and does not end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if text.removeprefix("\ufeff").startswith("---"):
        found = _FRONT_MATTER.match(text)
        if found is None:
            raise RequestError(
                f"{name}: its front matter starts in line 1 and has no end",
                hint="end it with a line of three dashes (---)",
            )
        start, end, keys = *found.span("keys"), found["keys"]
    else:
        start = end = len(text) - len(text.removeprefix("\ufeff"))
        keys = ""
    day = f"{datetime.fromtimestamp(figures.run.started_at, UTC):%Y-%m-%d}"
    for key, value in (("pass_rate", figures.message), ("last_tested", day)):
        line = f"{key}: {value}"
        keys, number = re.subn(rf"^{key}:[^\r\n]*", line, keys, count=1, flags=re.MULTILINE)
        keys += f"{line}{newline}" * (not number)
    dashes = f"---{newline}" * (start == end and not text[:start].rstrip("\ufeff"))
    return f"{text[:start]}{dashes}{keys}{dashes}{text[end:]}"
