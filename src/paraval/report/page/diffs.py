"""A patch as runs of lines of one kind, so that a page can colour them; text alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADS = ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")


class Piece(NamedTuple):
    """Lines that follow one another and are of one kind."""

    kind: str
    """`add`, `del`, `head`, `at`; empty: what stays."""
    text: str


def pieces(patch: str) -> Iterator[Piece]:
    # Not by `splitlines`: in a changed file a form feed ends no line.
    lines = _LINE.findall(patch)
    for kind, group in groupby(lines, key=_kind):
        yield Piece(kind, "".join(group))


def _kind(line: str) -> str:
    if line.startswith(_HEADS):
        return "head"
    if line.startswith("@@"):
        return "at"
    return {"+": "add", "-": "del"}.get(line[:1], "")
