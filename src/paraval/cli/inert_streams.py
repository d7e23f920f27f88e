"""Output that GitHub Actions takes for text, whoever wrote it.

There, a line is a command where it begins with `::`, or holds `##[`: a model's answer could fail a
job, or hide what comes after it.

What `paraval logs` and `paraval diff` hand on goes to a file with every byte as it is: there,
Actions does not look.
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

# Signs that take no room: comparisons of text may pass over them. And bytes that are no text, since
# such a sign may come in pieces.
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
    """From here on, nothing that is printed as text is a command, but what `command` writes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            setattr(sys, name, cast("TextIO", InertStream(stream)))


class InertStream:
    """A text stream in which no line is a command of Actions.

    The last sign of what would be one is written as JSON escapes it: a JSON document still says the
    same, and a person sees what stood there.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""
        """What is known of the line that has not ended yet."""
        self._bytes: BinaryIO | None = None

    def write(self, text: str) -> int:
        self._stream.write(self._inert(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def command(self, line: str) -> None:
        """One of ours, on a line of its own."""
        self._stream.write(f"\n{line}\n" if self._line else f"{line}\n")
        self._stream.flush()
        self._line = ""

    @property
    def buffer(self) -> BinaryIO:
        """For bytes; those that go to a file are nothing that Actions reads."""
        if self._bytes is None:
            raw: BinaryIO = self._stream.buffer
            self._bytes = raw if _is_file(raw) else cast("BinaryIO", _InertBytes(raw, self._inert))
        return self._bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _inert(self, text: str) -> str:
        """A command may come in pieces: those that are written already cannot be changed."""
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
    """The binary side of such a stream."""

    def __init__(self, raw: BinaryIO, inert: Callable[[str], str]) -> None:
        self._raw = raw
        self._inert = inert
        self._is_told = False

    def write(self, data: bytes) -> int:
        made = self._inert(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        self._raw.write(made)
        if made != data and not self._is_told:
            self._is_told = True
            talk(
                "note: signs were escaped that GitHub Actions would take for commands;"
                " write to a file to have every byte"
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
    """The last line, as much of it as tells whether what comes next makes it a command."""
    start = max(text.rfind("\n"), text.rfind("\r")) + 1
    line = text[_end_of_leading(text, start) :]
    # With a sign before it, what is kept is not taken for the beginning of the line.
    return line if len(line) <= _MOST_KEPT else f".{line[-_MOST_KEPT:]}"


def _end_of_leading(text: str, start: int) -> int:
    blank = _LEADING.match(text, start)
    return start if blank is None else blank.end()
