"""Keeps GitHub Actions from running what models and programs print.

In a job's output, a line that begins with `::` or contains `##[` is a command: a model's answer
could fail the job, or hide what follows.

What `paraval logs` and `paraval diff` write to a file stays as it is, since Actions does not read
files.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, TextIO, cast

from paraval.cli.error_messages import talk

ACTIONS_VARIABLE = "GITHUB_ACTIONS"

# Invisible characters, which a comparison of text may ignore; and bytes that are not text, since
# such a character may arrive in pieces.
_NOTHING = "\u00ad\u200b-\u200f\u2060-\u206f\ufeff\udc80-\udcff"
_ACTING = re.compile(
    rf"(?:^|(?<=[\r\n]))[\s{_NOTHING}]*:[{_NOTHING}]*:"
    rf"|#[{_NOTHING}]*#[{_NOTHING}]*\["
)
_LEADING = re.compile(rf"[\s{_NOTHING}]*")
_MOST_KEPT = 200


def is_on_actions() -> bool:
    return os.environ.get(ACTIONS_VARIABLE) == "true"


def make_streams_inert() -> None:
    """Escape commands in all text that is printed from now on, except by `command`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            setattr(sys, name, cast("TextIO", InertStream(stream)))


class InertStream:
    """A text stream in which no line is a command for Actions.

    The last character of a would-be command is written as a JSON escape: a JSON document keeps its
    meaning, and a person can still read the original.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""
        """The current line so far, as much of it as matters."""
        self._bytes: BinaryIO | None = None

    def write(self, text: str) -> int:
        self._stream.write(self._inert(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def command(self, line: str) -> None:
        """Write a command of our own, on its own line."""
        self._stream.write(f"\n{line}\n" if self._line else f"{line}\n")
        self._stream.flush()
        self._line = ""

    @property
    def buffer(self) -> BinaryIO:
        """The binary stream; unchanged if it is a file, which Actions does not read."""
        if self._bytes is None:
            raw: BinaryIO = self._stream.buffer
            self._bytes = raw if _is_file(raw) else cast("BinaryIO", _InertBytes(raw, self._inert))
        return self._bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _inert(self, text: str) -> str:
        """Escape commands, also those that arrive in pieces: only the last piece can be changed."""
        written = len(self._line)
        whole = self._line + text
        parts, done = [], written
        for match in _ACTING.finditer(whole):
            last = match.end() - 1
            if last >= written:
                parts += [whole[done:last], f"\\u{ord(whole[last]):04x}"]
                done = last + 1
        parts.append(whole[done:])
        self._line = _unended(whole)
        return "".join(parts)


class _InertBytes:
    """The binary side of an `InertStream`."""

    def __init__(self, raw: BinaryIO, inert: Callable[[str], str]) -> None:
        self._raw = raw
        self._inert = inert
        self._has_warned = False

    def write(self, data: bytes) -> int:
        made = self._inert(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        self._raw.write(made)
        if made != data and not self._has_warned:
            self._has_warned = True
            talk(
                "note: escaped characters that GitHub Actions would treat as commands;"
                " write to a file to get the exact bytes"
            )
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def _is_file(raw: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
    except OSError:
        return False


def _unended(text: str) -> str:
    """The last line, as much of it as decides whether what follows makes it a command."""
    start = max(text.rfind("\n"), text.rfind("\r")) + 1
    line = text[_end_of_leading(text, start) :]
    # The dot keeps the rest from looking like the beginning of a line.
    return line if len(line) <= _MOST_KEPT else f".{line[-_MOST_KEPT:]}"


def _end_of_leading(text: str, start: int) -> int:
    blank = _LEADING.match(text, start)
    return start if blank is None else blank.end()
