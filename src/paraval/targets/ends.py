"""The end of a process in words, and as the failure that it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from paraval.processes.children import Ended
from paraval.records import Failure, Outcome

LAST_WORDS_BYTES = 4096


def unexpected_end(ended: Ended, stderr: str, *, what: str = "") -> Failure:
    """An end that gave no answer: the machine's fault where it is, else a crash.

    `what` is put before, such as "its process ended: ".
    """
    if ended.failure is not None:
        kind = Outcome.INFRA_ERROR if ended.failure.transient else Outcome.CRASHED
        return Failure(kind=kind, message=f"{what}{ended.failure.message}")
    how = f"exit code {ended.exit_code}"
    if ended.signal is not None:
        how = f"killed by {signal_name(ended.signal)}"
    return Failure(kind=Outcome.CRASHED, message=f"{what}{how}{last_words(stderr)}")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(path: str) -> str:
    """The last line that it wrote to stderr, as `: line`; nothing where there is none."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LAST_WORDS_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1][:500]}" if said else ""
