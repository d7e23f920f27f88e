"""Identifies a process beyond its reusable pid; finds what a dead engine left; and hides the
engine's environment from its children."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from paraval.processes.tree import (
    PR_SET_DUMPABLE,
    ProcessEntry,
    descendants,
    process_table,
    read_entry,
    send_signal,
)

# The engine's own environment is hidden from what it starts: it contains keys that commands must
# not see. (A warden and its supervisors are never readable.)

_PR_GET_DUMPABLE = 3


class _Privacy:
    """Counts how many need privacy now; the last one to leave restores the former state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the count and the former value: engines may run in several threads."""
        self._wanted_by = 0
        self._former = 1

    def begin(self) -> None:
        with self._lock:
            if not self._wanted_by:
                self._former = _prctl(_PR_GET_DUMPABLE, 0)
                _prctl(PR_SET_DUMPABLE, 0)
            self._wanted_by += 1

    def end(self) -> None:
        with self._lock:
            self._wanted_by -= 1
            # 2 (readable only by root) cannot be set, and only the kernel ever sets it: staying
            # private is the closest.
            if not self._wanted_by and self._former == 1:
                _prctl(PR_SET_DUMPABLE, 1)


_privacy = _Privacy()


@contextmanager
def unreadable_environment() -> Iterator[None]:
    """While active, no other process of this user can read this one's environment; Linux only.

    It also prevents core dumps and tracing.
    """
    if sys.platform != "linux":
        yield
        return
    _privacy.begin()
    try:
        yield
    finally:
        _privacy.end()


def _prctl(option: int, value: int) -> int:
    """-1 if refused: nothing can be done about it."""
    return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0))


RUN_VARIABLE = "PARAVAL_RUN"
"""Set in the environment of every command of a run, to the run's marker."""
LEFTOVER_PATIENCE_S = 10.0
_LOOK_AGAIN_S = 0.02


class ProcessIdentity(NamedTuple):
    """Identifies a process uniquely: pids are reused, but not with the same start time."""

    pid: int
    start_time: float
    """On Linux in clock ticks since boot, elsewhere in seconds since the epoch."""


def process_identity(pid: int) -> ProcessIdentity | None:
    """None: there is no such process, or it is a zombie."""
    if sys.platform == "linux":
        entry = read_entry(pid)
        if entry is None or entry.is_dead:
            return None
        return ProcessIdentity(pid=pid, start_time=entry.start_time)
    return _identity_by_psutil(pid)


def is_alive(identity: tuple[int, float]) -> bool:
    return process_identity(identity[0]) == tuple(identity)


def end_leftovers(marker: str) -> int:
    """Kill all of this user's processes that belong to the run with this marker, and return how
    many.

    Those are the processes with `PARAVAL_RUN=<marker>` in their environment, and their descendants;
    never this process or one of its ancestors.
    """
    find = _leftovers if sys.platform == "linux" else _leftovers_by_psutil
    seen: set[ProcessIdentity] = set()
    until = time.monotonic() + LEFTOVER_PATIENCE_S
    while (found := find(marker)) and time.monotonic() < until:
        seen |= found
        # Oldest first: a parent may react to the end of its children.
        for identity in sorted(found, key=lambda one: (one.start_time, one.pid)):
            if is_alive(identity):
                send_signal(identity.pid, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)
    return len(seen)


def _leftovers(marker: str) -> set[ProcessIdentity]:
    table = process_table()
    wanted = f"{RUN_VARIABLE}={marker}".encode(errors="surrogateescape")
    spared = _self_and_ancestors(table)
    marked = [pid for pid in table if pid not in spared and wanted in _environment(pid)]
    found = [table[pid] for pid in marked] + descendants(marked, table)
    return {
        ProcessIdentity(pid=entry.pid, start_time=entry.start_time)
        for entry in found
        if not entry.is_dead and entry.pid not in spared
    }


def _self_and_ancestors(table: dict[int, ProcessEntry]) -> set[int]:
    line: set[int] = set()
    pid = os.getpid()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def _environment(pid: int) -> list[bytes]:
    """Its variables; empty if it belongs to another user, or is gone."""
    folder = Path("/proc", str(pid))
    try:
        if folder.stat().st_uid != os.geteuid():
            return []
        return (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


# ---- without /proc


def _identity_by_psutil(pid: int) -> ProcessIdentity | None:
    import psutil  # noqa: PLC0415 - not needed on Linux, the main platform

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessIdentity(pid=pid, start_time=process.create_time())
    except psutil.Error:
        return None


def _leftovers_by_psutil(marker: str) -> set[ProcessIdentity]:
    import psutil  # noqa: PLC0415 - not needed on Linux, the main platform

    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    found: set[ProcessIdentity] = set()
    for process in psutil.process_iter():
        try:
            if process.pid in spared or process.environ().get(RUN_VARIABLE) != marker:
                continue
            found |= {
                ProcessIdentity(pid=one.pid, start_time=one.create_time())
                for one in (process, *process.children(recursive=True))
                if one.status() != psutil.STATUS_ZOMBIE
            }
        except psutil.Error:
            continue
    return found
