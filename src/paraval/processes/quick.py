"""Runs short programs of our own to their end: git, `--version`. Blocking; use a thread in an event
loop.

For users' commands see `children`: programs started here are trusted to leave nothing behind, but
still have a timeout.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from paraval.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickResult:
    """How it ended."""

    exit_code: int | None
    """None: it could not be started, or timed out; see `stderr`."""
    stdout: bytes = b""
    stderr: str = ""
    timed_out: bool = False

    @property
    def is_well(self) -> bool:
        return self.exit_code == 0


class KillSwitch:
    """Lets programs in any thread be killed immediately from another one."""

    def __init__(self) -> None:
        # Guards the two below.
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._is_pulled = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Programs run within this context can be killed by `pull`."""
        token = _LEASH.set(self)
        try:
            yield
        finally:
            _LEASH.reset(token)

    def pull(self) -> None:
        """Kill all of them, and from now on each that is started."""
        with self._lock:
            self._is_pulled = True
            for process in self._processes:
                if process.poll() is None:
                    _kill_group(process)

    @contextmanager
    def on(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        with self._lock:
            self._processes.add(process)
            if self._is_pulled:
                _kill_group(process)
        try:
            yield
        finally:
            with self._lock:
                self._processes.discard(process)


_LEASH: ContextVar[KillSwitch | None] = ContextVar("leash", default=None)


def run_quickly(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: bytes = b"",
    timeout: float = 60.0,
) -> QuickResult:
    """Run a program and wait for it; its whole process group ends with it, or at the timeout."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return QuickResult(exit_code=None, stderr=f"cannot start '{argv[0]}': {error}")
    with process, (_LEASH.get() or KillSwitch()).on(process):
        try:
            stdout, stderr = process.communicate(stdin or None, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            process.wait()
            return QuickResult(
                exit_code=None, timed_out=True, stderr=f"'{argv[0]}' timed out after {timeout:g} s"
            )
        except BaseException:
            _kill_group(process)
            raise
        # Kill what it left in its group: usually nothing, and the group is already gone.
        _kill_group(process)
    return QuickResult(
        exit_code=process.returncode, stdout=stdout, stderr=stderr.decode(errors="replace").strip()
    )


def start_detached(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    has_begun: Callable[[], bool],
    patience_s: float = 30.0,
) -> int | None:
    """Start a program that outlives this one, with its output in a file, and wait until it has
    begun its work, or for as long as this. Returns its exit code if it has ended, else None."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    give_up_at = time.monotonic() + patience_s
    while not has_begun() and time.monotonic() < give_up_at:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0.1)
    # Collects it when it ends: it would be a zombie for as long as this process lives.
    threading.Thread(target=process.wait, daemon=True).start()
    return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
