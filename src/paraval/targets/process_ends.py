"""Describe the end of a process: its failure, and notes on it."""

from __future__ import annotations

import os
import signal

from paraval.plain_files import is_plain_file
from paraval.processes.children import Command, ProcessEnd
from paraval.processes.commands import LOST
from paraval.records import Failure, Outcome, TargetLimits
from paraval.targets.answer import InvalidOutputError, open_plain_file

LAST_WORDS_BYTES = 4096


def never_started(ended: ProcessEnd) -> bool:
    """Whether it was certainly never started; False if its watchers were killed."""
    return ended.failure is not None and ended.failure.code != LOST.code


def unexpected_end(
    ended: ProcessEnd, stderr: str, *, what: str = "", limits: TargetLimits | None = None
) -> Failure:
    """Return the failure for an end without an answer: the machine's fault if so, else a crash.

    `what` is a prefix such as "its process ended: ".
    """
    if ended.failure is not None:
        kind = Outcome.INFRA_ERROR if ended.failure.transient else Outcome.CRASHED
        return Failure(kind=kind, message=f"{what}{ended.failure.message}")
    if ended.out_of_memory:
        return _out_of_memory(limits or TargetLimits(), what)
    how = f"exit code {ended.exit_code}"
    if ended.signal is not None:
        how = f"killed by {signal_name(ended.signal)}"
    return Failure(kind=Outcome.CRASHED, message=f"{what}{how}{last_words(stderr)}")


def _out_of_memory(limits: TargetLimits, what: str) -> Failure:
    if limits.memory_bytes is None:
        # It had no reservation and no limit: with fewer neighbors it may fit.
        message = f"{what}out of memory: the system ran out and killed it"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    message = f"{what}out of memory: it used more than {megabytes(limits.memory_bytes)}"
    return Failure(kind=Outcome.CRASHED, message=f"{message} (limits.memory)")


def megabytes(amount: int) -> str:
    """`500 MB`, `1.5 GB`."""
    if amount >= 1_000_000_000:
        return f"{amount / 1e9:.3g} GB"
    return f"{amount / 1e6:.3g} MB"


def artifacts_of(command: Command, ended: ProcessEnd) -> dict[str, str]:
    """Return its logs by name; those of a command that was lost may be uncounted."""
    is_lost = ended.failure is not None or ended.timed_out
    logs = (
        ("stdout", ended.stdout_bytes, command.stdout),
        ("stderr", ended.stderr_bytes, command.stderr),
    )
    return {name: path for name, size, path in logs if size or (is_lost and is_plain_file(path))}


def notes_of(ended: ProcessEnd, *more: str) -> tuple[str, ...]:
    notes = []
    if ended.leaked:
        plural = "process" if ended.leaked == 1 else "processes"
        notes.append(f"left {ended.leaked} {plural} running; stopped")
    notes.extend(
        f"{name}: {total:,} bytes, of which only the beginning and the end were kept"
        for name, total, cut in (
            ("stdout", ended.stdout_bytes, ended.stdout_cut),
            ("stderr", ended.stderr_bytes, ended.stderr_cut),
        )
        if cut
    )
    if ended.log_error:
        notes.append(f"its output could not be saved: {ended.log_error}")
    if ended.survivors:
        notes.append(f"{ended.survivors} of its processes could not be stopped yet")
    return (*notes, *(note for note in more if note))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(path: str) -> str:
    """Return the last line it wrote to stderr, as `: line`; "" if there is none."""
    try:
        descriptor = open_plain_file(path)
    except InvalidOutputError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LAST_WORDS_BYTES))
        lines = file.read(LAST_WORDS_BYTES).decode(errors="replace").split("\n")
    written = [line.strip() for line in lines if line.strip()]
    return f": {written[-1][:500]}" if written else ""
