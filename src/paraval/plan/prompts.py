"""Texts that may stand in the suite or in a file of their own: prompts and rubrics."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from paraval.plan.documents import beside, read_text, why_unreadable
from paraval.plan.places import Spot, shown

_FILE = re.compile(r"\A[^\s{}]+\.(?:md|txt|prompt)\Z")
"""One word that ends like this is the path of a file; nobody asks a model just that."""
_FILE_WITH_A_FIELD = re.compile(r"\A(?=\S*\{)\S+\.(?:md|txt|prompt)\Z")
_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?:[A-Za-z_][\w.-]*[ \t]*:.*\n)(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)"
)
"""What a prompt's file says of itself to people and tools: it is not for the model. A rule at the
start of a text is none: its first line names no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text, and where it stands."""

    text: str
    spot: Spot
    in_file: bool = False
    lines_before: int = 0
    """In its file."""

    def spot_at(self, offset: int) -> Spot:
        """Where a part of it stands: in a file of its own, the line of that part."""
        if not self.in_file:
            return self.spot
        return replace(self.spot, line=self.lines_before + self.text.count("\n", 0, offset) + 1)


def names_a_file(written: str) -> bool:
    return _FILE.match(written) is not None


def read_prompt(written: str, spot: Spot, folder: Path) -> Prompt | None:
    """The text itself, or that of the file it names; None after telling why it cannot be had."""
    if _FILE_WITH_A_FIELD.match(written):
        spot.report(
            f"{shown(written)} would be sent as it is: a prompt file's name cannot hold a field;"
            " name each file in the matrix, as in AXIS: {NAME: {chat: {prompt: FILE}}}"
        )
        return None
    if not names_a_file(written):
        return Prompt(text=written, spot=spot)
    reason = why_unreadable(folder / written)
    if reason:
        spot.report(f"{shown(written)}: {reason}")
        return None
    there = beside(written, spot)
    text = read_text(folder / written, there)
    if text is None:
        return None
    front = _FRONT_MATTER.match(text)
    words = text[front.end() :] if front else text
    if not words.strip():
        there.report("the file is empty")
        return None
    return Prompt(
        # Editors end a file with a line break that its author does not mean.
        text=words.removesuffix("\n").removesuffix("\r"),
        spot=there,
        in_file=True,
        lines_before=front[0].count("\n") if front else 0,
    )
