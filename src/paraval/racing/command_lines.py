"""Commands as people write them: a list, or one text, which is split as a shell would.

No shell is used: what would need one is refused.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence

PYTHON = "{python}"
"""Stands for the Python that paraval runs with, as an argument of its own."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATOR = re.compile(r"\|+|&+|;+|<+|>+")
_EXPANSION = re.compile(r"\$(\w+|\{[^}]*\}?|[(@*#?$!-])|`")
"""Also within double quotes."""
_UNQUOTED = re.compile(r"[\"'$`\\!]")
"""What cannot stand within double quotes as it is."""


class NeedsShellError(ValueError):
    """What a shell would do with a line, and nobody does here."""

    def __init__(self, asked: str, line: str) -> None:
        quoted = f'"{line}"' if not _UNQUOTED.search(line) else f"'{line}'"
        super().__init__(self._told(asked, f"[sh, -c, {quoted}]"))
        self._asked, self._line = asked, line

    def told_of_flag(self, flag: str) -> str:
        """As the shell in which it is typed takes it."""
        line = f'sh -c "{self._line}"'
        if _UNQUOTED.search(self._line):
            line = f"sh -c {shlex.quote(self._line)}"
        return self._told(self._asked, f"{flag} {shlex.quote(line)}")

    def _told(self, asked: str, instead: str) -> str:
        return (
            f"{asked!r} would need a shell, and none is used; put it in quotes, or write {instead}"
        )


def arguments_of(written: str | Sequence[str]) -> tuple[str, ...]:
    """The program and its arguments; ValueError says what is wrong."""
    arguments = _split(written) if isinstance(written, str) else list(written)
    if not arguments or not arguments[0].strip():
        raise ValueError("names no program")
    if any("\0" in argument for argument in arguments):
        raise ValueError("holds a NUL character, which no argument can")
    return tuple(sys.executable if one == PYTHON else one for one in arguments)


def _split(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError:
        raise ValueError(f"a quotation mark or a backslash in {line!r} is left open") from None
    asked = next(_asked_of_a_shell(line), None)
    if asked is not None:
        raise NeedsShellError(asked, line)
    if words and _ASSIGNMENT.match(words[0]):
        raise ValueError(f"{words[0]!r} would need a shell, and none is used; put env before it")
    return words


def _asked_of_a_shell(line: str) -> Iterator[str]:
    """What a shell would not take as it is written."""
    quote, place = "", 0
    while place < len(line):
        character = line[place]
        if character == "\\" and quote != "'":
            place += 2
            continue
        if character in ("'", '"') and quote in ("", character):
            quote = "" if quote else character
        elif quote != "'" and (expansion := _EXPANSION.match(line, place)):
            yield expansion[0]
        elif not quote and (operator := _OPERATOR.match(line, place)):
            yield operator[0]
        place += 1
