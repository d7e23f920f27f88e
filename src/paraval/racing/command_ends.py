"""How a test command ended that gave no exit code of its tests, and the last that it printed."""

from __future__ import annotations

import os
import signal

from paraval.processes.children import Command, Ended
from paraval.records import Failure, Outcome
from paraval.targets.answer import InvalidOutputError, seconds
from paraval.targets.ends import last_words, signal_name, unexpected_end
from paraval.targets.plain_files import open_plain_file

LAST_BYTES = 2000
_SHELLS_OFFSET = 128
"""In a sandbox, one that dies of signal n ends with the exit code 128 + n; so does a shell whose
command does."""
_OF_A_CRASH = frozenset(
    {
        *(signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
        *(signal.SIGKILL, signal.SIGSEGV),
    }
)
"""Where there is no sandbox, another such code may well be the program's own."""


def failure_of(ended: Ended, command: Command) -> Failure | None:
    """None: it came to an end of its own."""
    if ended.failure is not None:
        return Failure(
            kind=Outcome.INFRA_ERROR,
            message=ended.failure.message,
            lasting=not ended.failure.transient,
        )
    if ended.timed_out:
        assert command.timeout is not None
        message = f"not done after {seconds(command.timeout)}; ended"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.signal is not None or (ended.out_of_memory and ended.exit_code != 0):
        return unexpected_end(ended, command.stderr, limits=command.limits)
    number = (ended.exit_code or 0) - _SHELLS_OFFSET
    if number in _OF_A_CRASH or (command.sandbox is not None and 0 < number < signal.NSIG):
        words = last_words(command.stderr)
        return Failure(kind=Outcome.CRASHED, message=f"killed by {signal_name(number)}{words}")
    return None


def last_printed(command: Command) -> str:
    """The end of what it printed, errors last."""
    said = [text for path in (command.stdout, command.stderr) if (text := _end_of(path))]
    return "\n".join(said)


def _end_of(path: str) -> str:
    try:
        descriptor = open_plain_file(path)
    except InvalidOutputError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LAST_BYTES))
        return file.read(LAST_BYTES).decode(errors="replace").strip()
