"""What a person or a program sees of a run while it goes on: a bar, lines, or JSON.

An onlooker is told each Happening and, several times a second, the time. It writes to one stream
and decides nothing; what the run came to is the report's business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from paraval.cli.progress.bar import Bar
from paraval.cli.progress.json_events import JsonEvents
from paraval.cli.progress.lines import Pen, ProgressLines
from paraval.errors import RequestError
from paraval.records import Happening

MODES = ("auto", "bar", "lines", "json", "none")


class ProgressObserver(Protocol):
    """Someone who is told what happens. Nothing that it does can disturb the run."""

    def __call__(self, event: Happening) -> None: ...

    def tick(self, now: float) -> None:
        """Called several times a second, with the time of the clock that `choose` was given."""

    def close(self) -> None:
        """Leave the stream as it was found. May be called again."""


class NullObserver:
    """Shows nothing."""

    def __call__(self, event: Happening) -> None:
        """Nothing is said."""

    def tick(self, now: float) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """Nothing was changed."""


def choose(
    mode: str,
    stream: TextIO,
    verbose: bool,
    *,
    clock: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] | None = None,
) -> ProgressObserver:
    """The onlooker for a mode: `auto` is a bar on a terminal that can show one, else lines."""
    if mode not in MODES:
        raise RequestError(f"there is no progress '{mode}'", hint=f"choose {', '.join(MODES)}")
    environ = os.environ if environ is None else environ
    pen = Pen(stream)
    if mode == "none":
        return NullObserver()
    if mode == "json":
        return JsonEvents(pen)
    if _shows_a_bar(mode, stream, environ):
        colour = not environ.get("NO_COLOR")
        return Bar(pen, verbose=verbose, colour=colour, clock=clock)
    return ProgressLines(pen, verbose=verbose, clock=clock)


def _shows_a_bar(mode: str, stream: TextIO, environ: Mapping[str, str]) -> bool:
    if mode == "lines" or environ.get("TERM", "") in {"", "dumb"}:
        return False
    try:
        is_terminal = stream.isatty()
    except ValueError:  # It is closed.
        return False
    # CI services lend a terminal, and keep a log of it.
    return is_terminal and (mode == "bar" or not environ.get("CI"))
