"""What a text of a race is set on: so wide, with or without colour and UTF-8; harmless in all."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from paraval.report.text import columns, cut, cut_middle, one_line, printable, to_ascii

LONGEST = 400
NARROWEST = 48
"""A table in less would not hold a name beside its figures."""
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h)\b|%)")
_HOLD = "\N{NO-BREAK SPACE}"
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""All but the tab: what ends a line elsewhere would forge one here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What can be shown where the text goes."""

    width: int = 80
    colour: bool = False
    unicode: bool = True

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def safe(self, text: str, limit: int = LONGEST) -> str:
        """What others wrote, on one line."""
        return self._spelt(one_line(text, limit))

    def verbatim(self, line: str, limit: int) -> str:
        """A line of a file: its spaces stay, and what does more than show itself is escaped."""
        near = _CONTROLS.sub(_escaped, line[: limit * 4])
        return self.cut(self._spelt(printable(near).expandtabs(8)), limit)

    def cut(self, text: str, limit: int) -> str:
        return cut(text, limit, self.ellipsis)

    def cut_middle(self, text: str, limit: int) -> str:
        return cut_middle(text, limit, self.ellipsis)

    def paint(self, text: str, style: str) -> str:
        is_painted = self.colour and style and text.strip()
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if is_painted else text

    def wrapped(self, text: str, width: int | None = None) -> list[str]:
        """Broken between words, but not between a number and its unit."""
        room = self.width if width is None else max(width, 1)
        held = _UNIT.sub(_HOLD, text)
        # Lines are measured in characters, and some of other people's take two columns.
        room = room if columns(held) <= len(held) else max(room // 2, 1)
        lines = textwrap.wrap(held, room, break_on_hyphens=False)
        return [line.replace(_HOLD, " ") for line in lines] or [""]

    def hung(self, start: str, text: str, most: int | None = None) -> list[str]:
        """The text behind its start, on at most so many lines, which stand under one another."""
        room = self.width - columns(start)
        lines = self.wrapped(text, room)
        if most is not None and len(lines) > most:
            last = " ".join(lines[most - 1 :])
            lines = [*lines[: most - 1], self.cut(last, room)]
        first, *others = lines
        indent = " " * columns(start)
        return [f"{start}{first}".rstrip(), *(indent + line for line in others)]

    def _spelt(self, text: str) -> str:
        return text if self.unicode else to_ascii(text)


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")
