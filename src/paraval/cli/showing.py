"""The report of a run on stdout, as fits where stdout goes; and times as programs read them."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from typing import TextIO

from paraval.report.document import Report
from paraval.report.terminal import summary_text

WIDTH_OF_A_LOG = 100
WIDEST = 120


def has_colour(stream: TextIO) -> bool:
    """Whether colour is wanted there: a terminal, unless NO_COLOR or TERM say otherwise."""
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
    if not stream.isatty():
        return WIDTH_OF_A_LOG
    return min(shutil.get_terminal_size().columns, WIDEST)


def print_report(report: Report) -> None:
    stream = sys.stdout
    if stream is None:
        # Started with stdout closed: there is nowhere to print to.
        return
    text = summary_text(
        report, width=width_of(stream), colour=has_colour(stream), unicode=has_unicode(stream)
    )
    stream.write(f"{text}\n")
    stream.flush()


def iso(at: float) -> str:
    """Seconds since the epoch as `2026-03-01T12:00:00.000Z`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
