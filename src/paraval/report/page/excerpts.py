"""Text of others, as much of it as a page shows, and a word on what is not there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from paraval.report.wording import counted

LONGEST_TEXT = 20_000
"""Characters of an answer, an input or a diff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A piece of text, raw: whoever shows it makes it harmless."""

    text: str
    left_out: str = ""
    """How much is not there; empty where nothing is missing."""


def beginning(text: str, most: int = LONGEST_TEXT) -> Excerpt:
    if len(text) <= most:
        return Excerpt(text=text)
    more = counted(len(text) - most, "more character")
    return Excerpt(text=text[:most], left_out=more)


def beginning_of_value(value: Any) -> Excerpt | None:
    """Text as it is, everything else as JSON; None for nothing."""
    if value is None:
        return None
    if isinstance(value, str):
        return beginning(value)
    return beginning(json.dumps(value, ensure_ascii=False, indent=2, default=str))
