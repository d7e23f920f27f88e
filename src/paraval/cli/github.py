"""Output for GitHub Actions: the report in the job summary, and annotations for gates.

`inert_streams` keeps other people's text from being run as a command there.
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
"""Size of a step's summary; GitHub shows nothing of a larger one."""
LONGEST_NAME = 100


def report_to_github(contents: Contents) -> None:
    """Write the summary and annotations if run by GitHub Actions. No run fails because of it."""
    append_summary(lambda: run_text(contents, Markdown()))
    if is_on_actions():
        for line in gate_annotations(contents):
            _command(line)


def append_summary(markdown: Callable[[], str]) -> None:
    """Append to the job summary, if GitHub names its file; the text is made only then."""
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
        talk(f"note: the report was not added to the job summary: {one_line(why, 300)}")


def _why_not(file: Path, size: int) -> str | None:
    if not file.exists():
        return None
    if not file.is_file():
        # Writing to a pipe might wait forever for a reader.
        return f"{file} is not a regular file"
    taken = file.stat().st_size
    full = taken + size > MOST_SUMMARY_BYTES
    return f"it already has {taken:,} bytes, and GitHub shows at most 1 MiB" if full else None


def gate_annotations(contents: Contents) -> Iterator[str]:
    """Workflow commands for a gate that did not pass, and for errors."""
    gate, summary = contents.gate, contents.summary
    title = f"paraval: {one_line(contents.run.suite, LONGEST_NAME)}"
    if gate.verdict is GateVerdict.MISSED:
        yield annotation("error", title, gate.sentence)
    elif gate.exit_code:
        yield annotation("warning", title, gate.sentence)
    if summary.errors:
        kinds = listed(f"{number:,} {kind}" for kind, number in summary.errors_by_kind.items())
        have = "has" if summary.errors == 1 else "have"
        message = f"{counted(summary.errors, 'error')} {have} no verdict: {kinds}."
        yield annotation("warning", title, message)


def annotation(kind: str, title: str, message: str) -> str:
    """A workflow command, safe whatever the texts contain."""
    return f"::{kind} title={_escaped(title, also=':,')}::{_escaped(message)}"


def _escaped(text: str, *, also: str = "") -> str:
    """Escape text for GitHub; the escape sign itself comes first."""
    for sign in ("%", "\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _command(line: str) -> None:
    """Print a command to stderr, which Actions reads too; stdout is for data."""
    if isinstance(sys.stderr, InertStream):
        with suppress(OSError):
            sys.stderr.command(line)
    else:
        talk(line)
