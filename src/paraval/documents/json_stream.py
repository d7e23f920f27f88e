"""A JSON document read from its beginning to its end, a piece at a time.

As strict as `json.parse_strictly`, and never more of the file in memory than one value and what
was read with it. What the pieces mean is for others to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from paraval.documents.json import DECODER, SHOWN_CHARACTERS

CHUNK = 1 << 18
MOST_IN_A_VALUE = 1 << 26
"""Characters. A trial has an answer of a megabyte at most."""

_SPACE = " \t\r\n"
_BEHIND_A_VALUE = frozenset(_SPACE + ",:]}")


class JsonPieces:
    """Where a reader stands in a document. ValueError says what is wrong, and in which line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._lines_before = 0
        """Of what is no longer in the text."""

    def members(self) -> Iterator[str]:
        """The keys of the object that is the whole document; its values are for the caller to read,
        each before the next key is asked for."""
        self._expect("{")
        seen: set[str] = set()
        if not self._skip("}"):
            while True:
                yield self._key(seen)
                if self._skip("}"):
                    break
                self._expect(",")
        if self._next():
            raise self._wrong("something follows behind its end")

    def items(self) -> Iterator[Any]:
        """The values of the list that comes next."""
        self._expect("[")
        if self._skip("]"):
            return
        while True:
            yield self.value()
            if self._skip("]"):
                return
            self._expect(",")

    def value(self) -> Any:
        """All of the value that comes next."""
        self._next()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Cut where the text ends, or wrong: more of it tells.
                if not self._read_on():
                    raise self._wrong(f"not valid JSON: {error.msg}", error.pos) from None
                continue
            except RecursionError:
                raise self._wrong("nested too deeply") from None
            except ValueError as error:
                raise self._wrong(f"not valid JSON: {error}") from None
            # A number may go on behind the text's end.
            if self._text[end : end + 1] not in _BEHIND_A_VALUE and self._read_on():
                continue
            self._at = end
            return value

    @property
    def line(self) -> int:
        """Where it stands."""
        return self._line_of(self._at)

    # ---- signs

    def _key(self, seen: set[str]) -> str:
        if self._next() != '"':
            raise self._wrong("not valid JSON: a key in quotes is missing")
        key = str(self.value())
        if key in seen:
            raise self._wrong(f"the key '{key[:SHOWN_CHARACTERS]}' is there twice")
        seen.add(key)
        self._expect(":")
        return key

    def _next(self) -> str:
        """The next sign that is no space; nothing at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._read_on():
                return ""

    def _skip(self, sign: str) -> bool:
        """Whether it came next; then it is passed."""
        found = self._next() == sign
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            there = self._next()
            found = f"'{there}'" if there else "the end"
            raise self._wrong(f"not valid JSON: '{sign}' is missing before {found}")

    # ---- the text

    def _read_on(self) -> bool:
        """Whether there was more. What is passed already is let go of."""
        kept = len(self._text) - self._at
        if kept > MOST_IN_A_VALUE:
            return False
        # As much again as there is, so that a long value is not read over and over.
        more = self._file.read(max(CHUNK, kept))
        if more:
            self._lines_before += self._text.count("\n", 0, self._at)
            self._text = self._text[self._at :] + more
            self._at = 0
        return bool(more)

    def _line_of(self, place: int) -> int:
        return 1 + self._lines_before + self._text.count("\n", 0, place)

    def _wrong(self, what: str, place: int | None = None) -> ValueError:
        return ValueError(f"line {self._line_of(self._at if place is None else place)}: {what}")
