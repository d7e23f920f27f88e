"""One row of text below what pytest writes to a terminal, even below a line that it has not ended.

It takes the place of the file that pytest's reporter writes to. The cursor always stays where the
reporter believes it to be. What is drawn makes its own row first (the screen may scroll for it), so
that the place to come back to, once noted, does not move any more.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any, TextIO

from paraval.report.text import columns, cut, to_ascii

MAKE_A_ROW_BELOW = "\x1bD\x1b[A"
SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"
CLEAR_BELOW, CLEAR_TO_LINE_END = "\x1b[J", "\x1b[K"
NARROWEST = 20
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")


class Footer:
    """A file that others write to, and the row below."""

    def __init__(self, file: TextIO, width: Callable[[], int] | None = None) -> None:
        self.file = file
        self._width = width or (lambda: _width_of(file))
        self._is_ascii = not _can_show("·…", file)
        # pytest may write from a test's thread, as with --setup-show.
        self._lock = threading.Lock()
        """Guards all below, and the order of what is written."""
        self._column = 0
        """How wide the line is that others have not ended; it may be more than one row."""
        self._text = ""
        self._is_shown = False

    # ---- for those that write

    def write(self, text: str) -> int:
        with self._lock:
            before = ""
            if self._is_shown and self._gets_in_the_way(text):
                before, self._is_shown = CLEAR_BELOW, False
            self.file.write(before + text)
            self._follow(text)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            if self._text and not self._is_shown:
                self._draw()
            self.file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    # ---- for the one that draws

    def show(self, text: str) -> None:
        """In the row below; an empty text clears it."""
        with self._lock:
            if text == self._text and self._is_shown == bool(text):
                return
            self._text = text
            if text:
                self._draw()
            elif self._is_shown:
                self.file.write(CLEAR_BELOW)
                self._is_shown = False
            self.file.flush()

    def _draw(self) -> None:
        width = self._width()
        if width < NARROWEST or (self._column and self._column % width == 0):
            # At the very end of a row, a terminal is in a state that cannot be come back to.
            return
        row = cut(to_ascii(self._text) if self._is_ascii else self._text, width - 1)
        if self._column == 0:
            drawn = f"{row}{CLEAR_TO_LINE_END}\r"
        else:
            drawn = f"{MAKE_A_ROW_BELOW}{SAVE_CURSOR}\r\n{row}{CLEAR_TO_LINE_END}{RESTORE_CURSOR}"
        self.file.write(drawn)
        self._is_shown = True

    def _gets_in_the_way(self, text: str) -> bool:
        if self._column == 0 or "\n" in text or "\r" in text:
            return True
        width = max(self._width(), 1)
        return self._column % width + columns(_SEQUENCE.sub("", text)) >= width - 1

    def _follow(self, text: str) -> None:
        _, ended, rest = text.rpartition("\n")
        _, returned, rest = rest.rpartition("\r")
        if ended or returned:
            self._column = 0
        self._column += columns(_SEQUENCE.sub("", rest).expandtabs())


def _can_show(signs: str, file: TextIO) -> bool:
    try:
        signs.encode(file.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError, TypeError):
        return False
    return True


def _width_of(file: TextIO) -> int:
    try:
        told = os.get_terminal_size(file.fileno()).columns
    except (OSError, ValueError):
        return 0
    # A pseudo terminal that nobody gave a size to tells none: then a user may.
    given = os.environ.get("COLUMNS", "")
    return told or (int(given) if given.isdecimal() else 0)
