"""The progress display: lines as they come and, on a terminal, rows below them.

`Footer` keeps rows below whatever is written to a file. `Display` prints lines above such rows, or
only lines if there is no terminal that can show rows. Their content comes from the callers: suites,
races and the pytest plugin.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, TextIO, TypeVar

from paraval.text.terminal import ELLIPSIS, SIGNS, columns, cut, to_ascii
from paraval.text.words import rough_time

T = TypeVar("T")
REDRAW_S = 0.1
WIDEST = 110
NARROWEST = 20

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"
CLEAR_BELOW, CLEAR_TO_LINE_END = "\x1b[J", "\x1b[K"
DOWN_OR_SCROLL = "\x1bD"
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")


# ---- what a stream can show


def can_show(signs: str, stream: Any) -> bool:
    try:
        signs.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError, TypeError):
        return False
    return True


def shows_rows(environ: Any) -> bool:
    """Whether, according to the environment, the terminal can move its cursor."""
    return environ.get("TERM", "") not in {"", "dumb"}


def terminal_width(stream: TextIO, otherwise: int) -> int:
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        width = 0
    # A pseudo terminal whose size was never set reports 0: then COLUMNS may have it.
    given = os.environ.get("COLUMNS", "")
    return width or (int(given) if given.isdecimal() else 0) or otherwise


def _terminal_height(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).lines or 24
    except (OSError, ValueError):
        return 24


def fit(text: str, width: float, *, is_ascii: bool) -> str:
    """Cut a row to this many columns; a row that is cut loses its colors."""
    spelt = to_ascii(text) if is_ascii else text
    plain = _SEQUENCE.sub("", spelt) if "\x1b" in spelt else spelt
    if width == math.inf or columns(plain) <= width:
        return spelt
    return cut(plain, int(width), "..." if is_ascii else ELLIPSIS)


class SafeStream:
    """A stream that never raises, and is flushed at each write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_gone = False
        self.is_ascii = not can_show(SIGNS, stream)

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def write(self, text: str) -> None:
        if self._is_gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BlockingIOError:
            pass  # A child made the terminal non-blocking, and it is full: this piece is lost.
        except (OSError, ValueError):
            # The reader went away, or the stream is closed: the run continues unseen.
            self._is_gone = True

    def flush(self) -> None:
        """Do nothing: every write is flushed."""


# ---- rows at the foot of a terminal


class Footer:
    """A file that others write to, with rows below what they write."""

    def __init__(
        self,
        file: TextIO | SafeStream,
        width: Callable[[], int] | None = None,
        *,
        narrowest: int = NARROWEST,
    ) -> None:
        self.file: Any = file
        self._width = width or (lambda: terminal_width(self.file, 0))
        self._narrowest = narrowest
        self._is_ascii = not can_show("·…", file)
        # pytest may write from a test's thread, as with --setup-show.
        self._lock = threading.Lock()
        """Guards the fields below, and the order of writes."""
        self._column = 0
        """Width of the unfinished line of the other writers; it may span several rows."""
        self._rows: tuple[str, ...] = ()
        self._is_shown = False
        self._drawn_at = -math.inf

    # ---- for the writers

    def write(self, text: str) -> int:
        with self._lock:
            self.file.write(self._passed_on(text))
        return len(text)

    def flush(self) -> None:
        with self._lock:
            if self._rows and not self._is_shown:
                self.file.write(self._drawn())
            self.file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    # ---- for drawing

    def is_due(self, now: float) -> bool:
        """Whether it is time to draw again; if so, the wait starts over."""
        is_due = now - self._drawn_at >= REDRAW_S
        if is_due:
            self._drawn_at = now
        return is_due

    def show(self, *rows: str, above: str = "") -> None:
        """Draw rows, and text above them, in one write; without rows, clear them."""
        rows = rows if any(rows) else ()
        with self._lock:
            if not above and rows == self._rows and self._is_shown == bool(rows):
                return
            self._rows = rows
            written = self._passed_on(above) if above else ""
            if rows:
                written += self._drawn()
            elif self._is_shown:
                written += CLEAR_BELOW
                self._is_shown = False
            self.file.write(written)
            self.file.flush()

    def _drawn(self) -> str:
        width = self._width()
        if width < self._narrowest or (self._column and self._column % width == 0):
            # At the very end of a row, a terminal is in a state that cannot be restored.
            return ""
        self._is_shown = True
        rows = [
            fit(row, width - 1, is_ascii=self._is_ascii) + CLEAR_TO_LINE_END for row in self._rows
        ]
        drawn, number = "\r\n".join(rows), len(rows)
        if self._column:
            room = f"{DOWN_OR_SCROLL * number}\x1b[{number}A"
            return f"{room}{SAVE_CURSOR}\r\n{drawn}{RESTORE_CURSOR}"
        return f"{drawn}\r" + (f"\x1b[{number - 1}A" if number > 1 else "")

    def _passed_on(self, text: str) -> str:
        before = ""
        if self._is_shown and self._gets_in_the_way(text):
            before, self._is_shown = CLEAR_BELOW, False
        _, ended, rest = text.rpartition("\n")
        _, returned, rest = rest.rpartition("\r")
        if ended or returned:
            self._column = 0
        self._column += columns(_SEQUENCE.sub("", rest).expandtabs())
        return before + text

    def _gets_in_the_way(self, text: str) -> bool:
        if self._column == 0 or "\n" in text or "\r" in text:
            return True
        width = max(self._width(), 1)
        return self._column % width + columns(_SEQUENCE.sub("", text)) >= width - 1


class Display:
    """Prints lines; if live, above rows that are redrawn in place and removed at the end.

    It has no thread: it writes when it is called, at most ten times a second.
    """

    def __init__(self, stream: TextIO, *, is_live: bool, clock: Callable[[], float]) -> None:
        self._stream = SafeStream(stream)
        self._width = partial(terminal_width, stream, 80)
        self._height = partial(_terminal_height, stream)
        self._footer = Footer(self._stream, self._width, narrowest=1)
        self._clock = clock
        self._above: list[str] = []
        """Lines that are not written yet."""
        self._rows: Callable[[int], Sequence[str]] | None = None
        self._hides_cursor = False
        self.is_live = is_live
        self.is_ascii = self._stream.is_ascii
        self.last_line_at = clock()

    @property
    def is_begun(self) -> bool:
        return self._rows is not None

    def begin(self, rows: Callable[[int], Sequence[str]]) -> None:
        """Start to show rows, which `rows` makes for a number of columns."""
        self._rows = rows
        self.last_line_at = self._clock()
        if self.is_live:
            # However the program ends, the terminal gets its cursor back.
            atexit.register(self.close)

    def line(self, text: str, *, is_cut: bool = True) -> None:
        """Print a line; `is_cut`: to one row of a live terminal. Others are written to a log at
        once."""
        self.last_line_at = self._clock()
        width = self._width() - 1 if is_cut and self.is_live else math.inf
        shown = fit(text, width, is_ascii=self.is_ascii)
        self._above.append(f"{shown}\r\n" if self.is_live else f"{shown}\n")
        if not (self.is_live or is_cut):
            self._write_above()

    def tick(self, now: float) -> None:
        """Write what there is to write, if it is time to."""
        if self._rows is None:
            self._write_above()
        elif not self.is_live:
            if self._above and self._footer.is_due(now):
                self._write_above()
        elif self._footer.is_due(now):
            if not self._hides_cursor:
                self._hides_cursor = True
                self._above.append(HIDE_CURSOR)
            rows = self._rows(min(self._width() - 1, WIDEST))
            # The rows above a terminal's top could not be redrawn.
            self._write_above(*rows[: max(1, self._height() - 1)])

    def close(self) -> None:
        """Leave the terminal as it was found. May be called again."""
        self._rows = None
        if self._hides_cursor:
            self._hides_cursor = False
            self._above.append(SHOW_CURSOR)
        self._write_above()
        atexit.unregister(self.close)

    def _write_above(self, *rows: str) -> None:
        above, self._above = "".join(self._above), []
        if self.is_live:
            self._footer.show(*rows, above=above)
        elif above:
            self._stream.write(above)


# ---- parts of rows and lines


class Running(Generic[T]):
    """What is running, the longest-running first."""

    def __init__(self) -> None:
        self._since: dict[Hashable, tuple[T, float]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, key: Hashable, what: T, now: float) -> None:
        self._since[key] = (what, now)

    def end(self, key: Hashable) -> None:
        self._since.pop(key, None)

    def longest(self, now: float) -> tuple[T, float] | None:
        """The first, and for how long it has been running."""
        for what, since in self._since.values():
            return what, max(0.0, now - since)
        return None

    def first(self, count: int) -> list[T]:
        return [what for (what, _), _ in zip(self._since.values(), range(count), strict=False)]


class ResultLines:
    """`hello  1.2 s  (ETA 8 s)`: names and times in columns as wide as the widest so far."""

    def __init__(self, name_width: int = 0) -> None:
        self._name_width = name_width
        self._time_width = 0

    def line(self, name: str, took: str, *more: str) -> str:
        width = columns(name)
        self._name_width = max(self._name_width, width)
        self._time_width = max(self._time_width, len(took))
        padding = " " * (self._name_width - width)
        return "  ".join(
            (f"{name}{padding}", f"{took:>{self._time_width}}", *filter(None, more))
        ).rstrip()


def place(done: int, total: int) -> str:
    """`[ 3/20]`."""
    return f"[{done:>{len(str(total))}}/{total}]"


def eta(seconds: float | None, done: int, total: int) -> str:
    """`ETA 8 s`; empty at the end, and if it is unknown."""
    return "" if seconds is None or done >= total else f"ETA {rough_time(seconds)}"
