"""A command and its end: what the engine asks of a supervisor, and what it gets back.

Includes their encoding, but not their transport.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.processes.priority import MOST_CPUS, MOST_NICE
from paraval.processes.sandbox import Sandbox, sandboxed
from paraval.processes.wire import frame, message_frame, portable
from paraval.records import TargetLimits
from paraval.settings import LOG_LIMIT_BYTES

_TRANSIENT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start, with which input, where its output goes, and how long it may take."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """The complete environment: nothing is added from this process's own."""
    cwd: str
    stdin: bytes = b""
    stdout: str
    """The log file of each stream; created, with its folders, when the first byte comes."""
    stderr: str
    timeout: float | None = None
    grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    log_limit: int = LOG_LIMIT_BYTES
    limits: TargetLimits = field(default_factory=TargetLimits)
    """Memory and processes are limited where cgroups allow (see `limits_enforced`); open files and
    file sizes everywhere."""
    nice: int = 0
    """Niceness, from 0 to 19."""
    cpus: tuple[int, ...] = ()
    """CPU numbers: it and all that it starts run only on these, unless they choose others
    themselves. If the system refuses, it runs on any (see `ProcessEnd.pinned`). Empty: on any."""
    tag: int | None = None
    """The key for it in `Warden.loads`: the trial's index. None: not included."""
    sandbox: Sandbox | None = None

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a command needs the name of a program")
        if self.stdout == self.stderr != os.devnull:
            raise ValueError(f"stdout and stderr need a log file each, not both '{self.stdout}'")
        if not 0 <= self.nice <= MOST_NICE:
            raise ValueError(f"niceness must be from 0 to {MOST_NICE}, not {self.nice}")
        if not all(0 <= cpu < MOST_CPUS for cpu in self.cpus):
            raise ValueError(f"CPUs are numbered from 0 to {MOST_CPUS - 1}, not {self.cpus}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailure:
    """Why a command has no exit status."""

    code: str
    """The system's name for it, such as ENOENT; LOST if its supervising processes were killed."""
    message: str
    transient: bool
    """True: nothing is wrong with the command; another try may well work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedLogs:
    """What went into a pair of logs."""

    stdout_bytes: int = 0
    """All output, kept or not."""
    stderr_bytes: int = 0
    stdout_cut: bool = False
    """True: the log is full, and the middle of the output was left out."""
    stderr_cut: bool = False
    log_error: str | None = None
    """Why a log contains less than it has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd(CapturedLogs):
    """How a command ended. Nothing of it is left, except for `survivors`."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    cancelled: bool = False
    leaked: int = 0
    """Processes that were still there when the command itself had exited, and were killed."""
    survivors: int = 0
    """Processes that SIGKILL has not ended yet (stuck in the kernel); their supervisor keeps
    trying."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    pinned: bool = False
    """It ran on the requested CPUs, and on no others."""
    max_rss_bytes: int = 0
    """Of its largest process; on Linux never less than the supervisor's own 10 MB or so."""
    memory_bytes: int = 0
    """Peak memory of its whole tree, as far as measured: counted by its cgroup if its memory is
    limited (including files that it read), else the largest value of `Warden.loads`."""
    out_of_memory: bool = False
    """The kernel killed some of it because it exceeded its memory limit."""
    failure: SpawnFailure | None = None


LOST = SpawnFailure(
    code="LOST",
    message="the supervising processes of the command were killed; it may have been started",
    transient=True,
)
SILENT = replace(
    LOST,
    message="the command's supervising process was unresponsive long after its deadline and was"
    " killed; did the command stop it?",
)


def request_of(command: Command) -> bytes:
    folder = _absolute(command.cwd)
    argv = command.argv
    if command.sandbox is not None:
        argv = sandboxed(argv, command.sandbox, folder, command.env)
    message = {
        "argv": [portable(argument) for argument in argv],
        "program": portable(command.argv[0]),
        "env": {portable(name): portable(value) for name, value in command.env.items()},
        "cwd": portable(folder),
        **log_paths(command.stdout, command.stderr),
        "timeout": command.timeout,
        "grace": command.grace,
        "log_limit": command.log_limit,
        "memory": command.limits.memory_bytes,
        "processes": command.limits.processes,
        "open_files": command.limits.open_files,
        "file_bytes": command.limits.file_bytes,
        "nice": command.nice,
        "cpus": list(command.cpus),
        "sandboxed": command.sandbox is not None,
    }
    return message_frame(message) + frame(command.stdin)


def log_paths(stdout: str, stderr: str) -> dict[str, str]:
    return {
        "stdout": portable(_absolute(stdout)),
        "stderr": portable(_absolute(stderr)),
    }


def _absolute(path: str) -> str:
    # The supervisor's working directory differs: a relative path would mean another file there.
    return path if path.startswith("/") else str(Path(path).absolute())


def failure_of(command: Command, error: OSError | UnicodeEncodeError) -> SpawnFailure:
    start = f"cannot start '{ascii(command.argv[0])[1:-1]}': "
    if isinstance(error, UnicodeEncodeError):
        reason = f"text that cannot be encoded: {ascii(error.object)[:80]}"
        return SpawnFailure(code="EILSEQ", message=start + reason, transient=False)
    number = error.errno or 0
    return SpawnFailure(
        code=errno.errorcode.get(number, str(number)),
        message=start + (error.strerror or str(error)),
        transient=number in _TRANSIENT,
    )
