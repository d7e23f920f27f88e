"""What GitHub Actions is told: the report on the page of a job, and annotations for gates.

What keeps text of others from being a command there is in `inert_streams`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from paraval.cli.error_messages import talk
from paraval.cli.inert_streams import InertStream, is_on_actions
from paraval.report.contents import Contents
from paraval.report.formats.run_text import run_text
from paraval.report.gate import GateVerdict
from paraval.text.document import Markdown
from paraval.text.terminal import one_line
from paraval.text.words import counted, listed

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
MOST_SUMMARY_BYTES = 1 << 20
"""Of a step; past it, GitHub shows none of it."""
LONGEST_NAME = 100


def tell_github(contents: Contents) -> None:
    """Where a job of GitHub's runs this; nothing elsewhere. No run fails because of it."""
    append_summary(lambda: run_text(contents, Markdown()))
    if is_on_actions():
        for line in gate_annotations(contents):
            _command(line)


def append_summary(markdown: Callable[[], str]) -> None:
    """To the page of the job, where GitHub says which file that is; made only there."""
    name = os.environ.get(SUMMARY_VARIABLE)
    if not name:
        return
    text = markdown().encode(errors="replace") + b"\n"
    try:
        why = _why_not(Path(name), len(text))
        if why is None:
            with Path(name).open("ab") as summary:
                summary.write(text)
    except (OSError, ValueError) as error:
        why = str(error)
    if why is not None:
        talk(f"note: the report is not in the step's summary: {one_line(why, 300)}")


def _why_not(file: Path, size: int) -> str | None:
    if not file.exists():
        return None
    if not file.is_file():
        # A pipe might wait for ever for somebody to read it.
        return f"{file} is no ordinary file"
    taken = file.stat().st_size
    full = taken + size > MOST_SUMMARY_BYTES
    return (
        f"{taken:,} bytes are there already, and GitHub shows no more than 1 MiB" if full else None
    )


def gate_annotations(contents: Contents) -> Iterator[str]:
    """Commands: of a gate that is not met, and of errors."""
    gate, summary = contents.gate, contents.summary
    title = f"paraval: {one_line(contents.run.suite, LONGEST_NAME)}"
    if gate.verdict is GateVerdict.MISSED:
        yield annotation("error", title, gate.sentence)
    elif gate.verdict is GateVerdict.UNKNOWN:
        yield annotation("warning", title, gate.sentence)
    if summary.errors:
        kinds = listed(f"{number:,} {kind}" for kind, number in summary.errors_by_kind.items())
        have = "has" if summary.errors == 1 else "have"
        told = f"{counted(summary.errors, 'error')} {have} no verdict: {kinds}."
        yield annotation("warning", title, told)


def annotation(kind: str, title: str, message: str) -> str:
    """A workflow command, whatever is in the texts."""
    return f"::{kind} title={_escaped(title, also=':,')}::{_escaped(message)}"


def _escaped(text: str, *, also: str = "") -> str:
    """As GitHub reads it back; the sign of escapes first."""
    for sign in ("%", "\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _command(line: str) -> None:
    """To stderr, which Actions reads as it does stdout; stdout is for data."""
    if isinstance(sys.stderr, InertStream):
        with suppress(OSError):
            sys.stderr.command(line)
    else:
        talk(line)
