"""Progress as one line at the bottom of a terminal, below pytest's own, and gone at the end.

`12/200 · 15 running · 2 wait for openai (4 s) · 1 failed · 0:04 · ETA 8 s · longest: test_x 6 s`.
How it stays below is for `Footer`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from paraval.pytest_plugin.options import ProgressForm
from paraval.pytest_plugin.progress.lines import Lines
from paraval.pytest_plugin.progress.progress import (
    LONGEST_NAME,
    Progress,
    Silence,
    letter_of,
    names_of,
    refuser_in,
)
from paraval.text.terminal import columns, cut, cut_middle, printable, to_ascii
from paraval.text.words import rough_time

if TYPE_CHECKING:
    import pytest

    from paraval.pytest_plugin.running.protocol import ItemResult
    from paraval.records import Failure

REDRAW_S = 0.1
LONG_S = 2.0
"""Which test runs longest is said from here on."""


class TerminalLine:
    """The line of a run."""

    def __init__(
        self,
        reporter: Any,
        nodeids: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] | None = None,
    ) -> None:
        # Private, but so for many years, and there is no public way to what the reporter writes.
        self._writer: Any = reporter._tw
        self._footer = Footer(self._writer._file, width)
        self._writer._file = self._footer
        self._names = names_of(nodeids)
        self._clock = clock
        self._began = clock()
        self._drawn_at = float("-inf")
        self._running: dict[str, float] = {}
        """By node id, in the order of their starts: when that was."""
        self._waiting: dict[str, tuple[str, float]] = {}
        """By node id: for whom, and until when."""
        self._done = self._failed = self._errors = 0
        self._eta_s: float | None = None
        self._told_at = self._began
        self._is_closed = False

    def started(self, nodeid: str) -> None:
        self._waiting.pop(nodeid, None)
        self._running[nodeid] = self._clock()
        self.tick()

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        self._running.pop(nodeid, None)
        self._waiting[nodeid] = (refuser_in(failure), self._clock() + seconds)
        self.tick()

    def ended(self, end: ItemResult, eta_s: float | None) -> None:
        self._running.pop(end.item.nodeid, None)
        self._waiting.pop(end.item.nodeid, None)
        letter = letter_of(end)
        self._done += 1
        self._failed += letter == "F"
        self._errors += letter == "E"
        self._eta_s, self._told_at = eta_s, self._clock()
        self.tick()

    def put_off(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self.tick()

    def tick(self) -> None:
        now = self._clock()
        if not self._is_closed and now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            self._footer.show(self._text(now))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._footer.show("")
            self._writer._file = self._footer.file

    def _text(self, now: float) -> str:
        parts = [f"{self._done}/{len(self._names)}", f"{len(self._running)} running"]
        parts += self._waits(now)
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._errors:
            parts.append("1 error" if self._errors == 1 else f"{self._errors} errors")
        parts.append("{}:{:02}".format(*divmod(int(now - self._began), 60)))
        if self._eta_s is not None and self._done < len(self._names):
            parts.append(f"ETA {rough_time(max(self._eta_s - (now - self._told_at), 0.0))}")
        # The first that still runs has run longest.
        for nodeid, began in self._running.items():
            if now - began >= LONG_S:
                name = cut_middle(printable(self._names.get(nodeid, nodeid)), LONGEST_NAME)
                parts.append(f"longest: {name} {int(now - began)} s")
            break
        return " · ".join(parts)

    def _waits(self, now: float) -> list[str]:
        """For each that tests wait for: how many do, and when the first goes on."""
        untils: dict[str, list[float]] = {}
        for refuser, until in self._waiting.values():
            untils.setdefault(refuser, []).append(until)
        return [
            f"{len(times)} {'waits' if len(times) == 1 else 'wait'}"
            f"{refuser and f' for {printable(refuser)}'} ({rough_time(max(min(times) - now, 0.0))})"
            for refuser, times in untils.items()
        ]


# ---- a row below


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


# ---- which form


def progress_for(
    config: pytest.Config,
    form: ProgressForm,
    nodeids: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
) -> Progress:
    """In the form that was asked for, as far as there is a reporter that can show it."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or form is ProgressForm.NONE:
        return Silence()
    if form is ProgressForm.LINES:
        return Lines(reporter, nodeids)
    if not _can_show_a_line(config, reporter, os.environ if environ is None else environ):
        return Silence()
    return TerminalLine(reporter, nodeids)


def _can_show_a_line(config: pytest.Config, reporter: Any, environ: Mapping[str, str]) -> bool:
    # CI services lend a terminal, and keep a log of it. With -s, tests write there as they like.
    return (
        _is_terminal(reporter)
        and environ.get("TERM", "") not in {"", "dumb"}
        and not environ.get("NO_COLOR")
        and not environ.get("CI")
        and config.getoption("capture", "no") != "no"
    )


def _is_terminal(reporter: Any) -> bool:
    is_one = reporter.isatty
    # On pytest 8 it is known from the start.
    return bool(is_one() if callable(is_one) else is_one)
