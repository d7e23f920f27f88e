"""The report of a run on stdout, as fits where stdout goes; and times as programs read them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from paraval.cli.error_messages import let_go_of_stdout, talk
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.report import Report
from paraval.text.document import NARROWEST
from paraval.text.tables import Page

WIDTH_OF_A_LOG = 100
WIDEST = 120
_WIDTH = re.compile("[1-9][0-9]{1,3}")
"""As COLUMNS may have it."""


def has_color(stream: TextIO) -> bool:
    """Whether color is wanted there: a terminal, unless NO_COLOR or TERM say otherwise."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def has_unicode(stream: TextIO) -> bool:
    try:
        "✓…·".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width_of(stream: TextIO) -> int:
    """The terminal's; of a log, what COLUMNS says, which is set there only on purpose."""
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
    """To stdout, as fits there; nothing where the program was started with it closed."""
    if sys.stdout is not None:
        sys.stdout.write(f"{text(page_on(sys.stdout))}\n")
        sys.stdout.flush()


def print_at_end(text: Callable[[Page], str]) -> None:
    """A reader who has gone, or a full disk, must not hide how a run ended."""
    try:
        print_shown(text)
    except OSError as error:
        let_go_of_stdout()
        if not isinstance(error, BrokenPipeError):
            talk(f"note: the report could not be printed: {error.strerror}")


def print_report(report: Report, detail: TextDetail) -> None:
    print_shown(lambda page: run_text(report, page, detail))


def iso(at: float) -> str:
    """Seconds since the epoch as `2026-03-01T12:00:00.000Z`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
