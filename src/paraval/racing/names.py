"""What candidates may be called: their names are shown in terminals, and name them in commands."""

from __future__ import annotations

import os
import re
import unicodedata

from paraval.racing.steps import BASELINE

LONGEST_NAME = 100
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, those that turn or hide text, halves of characters, ends of lines."""

_DIGITS = re.compile(r"[0-9]{1,100}")
"""Python reads no numbers of some thousand digits."""


def why_no_name(name: str) -> str | None:
    """Why a candidate cannot be called so; None where it can."""
    if not name.strip():
        return "a name cannot be empty"
    if len(name) > LONGEST_NAME:
        return f"a name has at most {LONGEST_NAME} characters, not {len(name):,}"
    if any(unicodedata.category(character) in _UNSHOWN for character in name):
        return f"a name holds no control characters: {name!a}"
    if name.casefold() == BASELINE:
        return f"'{name}' is what the repository as it is is called; choose another name"
    return None


def natural_order(path: str) -> tuple[list[tuple[int, int, str]], str]:
    """A key to sort by: `a2` comes before `a10`, and `heap.patch` before `heap-again.patch`."""
    name, ending = os.path.splitext(path)  # noqa: PTH122 - of texts, empty ones too
    numbered = [
        (0, int(part), "") if _DIGITS.fullmatch(part) else (1, 0, part)
        for part in re.split(r"(\d+)", name)
    ]
    return numbered, ending
