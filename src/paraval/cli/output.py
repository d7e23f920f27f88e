"""Reports on stdout, laid out to fit its width; figures and times in tables and JSON."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from paraval.cli.error_messages import discard_stdout, talk
from paraval.records import RunInfo
from paraval.runner.resume import how_to_resume
from paraval.text.tables import NARROWEST, Page
from paraval.text.words import UNKNOWN, percent

if TYPE_CHECKING:
    from paraval.report.summary.tally import Summary

WIDTH_OF_A_LOG = 100
WIDEST = 120
_WIDTH = re.compile("[1-9][0-9]{1,3}")
"""A usable value of COLUMNS."""


def has_color(stream: TextIO) -> bool:
    """Whether to print in color: on a terminal, unless NO_COLOR or TERM=dumb forbids it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def has_unicode(stream: TextIO | None) -> bool:
    try:
        "✓…·".encode((stream and stream.encoding) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width_of(stream: TextIO) -> int:
    """The terminal's width; in a log, COLUMNS, which is set there only on purpose."""
    if stream.isatty():
        return min(shutil.get_terminal_size().columns, WIDEST)
    asked = os.environ.get("COLUMNS", "")
    return min(int(asked), WIDEST) if _WIDTH.fullmatch(asked) else WIDTH_OF_A_LOG


def page_on(stream: TextIO) -> Page:
    return Page(
        width=max(width_of(stream), NARROWEST),
        color=has_color(stream),
        unicode=has_unicode(stream),
    )


def print_shown(text: Callable[[Page], str]) -> None:
    """Print to stdout, laid out to fit; nothing if stdout was closed from the start."""
    if sys.stdout is not None:
        sys.stdout.write(f"{text(page_on(sys.stdout))}\n")
        sys.stdout.flush()


def print_at_end(text: Callable[[Page], str]) -> None:
    """Print, but let neither a closed pipe nor a full disk hide how a run ended."""
    try:
        print_shown(text)
    except OSError as error:
        discard_stdout()
        if not isinstance(error, BrokenPipeError):
            talk(f"note: the report could not be printed: {error.strerror}")


def rate_of(summary: Summary) -> str:
    return UNKNOWN if summary.pass_rate is None else percent(summary.pass_rate)


def own_name() -> str:
    """How to call this program from here: by name, or by its path if it is not on PATH."""
    if shutil.which("paraval") or not sys.argv[0].endswith("paraval"):
        return "paraval"
    return os.path.relpath(sys.argv[0])


def command_to_resume(run: RunInfo) -> str:
    """The command that resumes a run, as it can be typed here."""
    return how_to_resume(run).replace("paraval", own_name(), 1)


def iso(at: float) -> str:
    """Format seconds since the epoch as `2026-03-01T12:00:00.000Z`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
