"""One engine per run: a lock on `engine.lock` in the run's folder, held while the engine lives.

The kernel releases the lock (flock) when its process ends, however that happens. The file's content
(pid, start time, host) is for people only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from paraval.errors import RunBusyError, StoreError
from paraval.plain_files import read_plain_file

LOCK_FILE = "engine.lock"
PATIENCE_S = 0.3
"""Seconds: an observer takes the lock for an instant to see whether it is free, without being an
engine."""

LARGEST_BYTES = 10_000
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link or a pipe in its place must neither redirect nor block the open."""
_REMOVE = "remove it if no engine is working on the run"

Identity = tuple[int, float]
"""A process: its pid, and its start time, since pids are reused. For display only: both can recur
after a reboot, and the lock decides anyway."""

_held: set[int] = set()


def _close_inherited() -> None:
    """Close the lock in a forked child, which would otherwise keep it after the engine's death."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_close_inherited)


class RunLock:
    """The exclusive right to work on a run. Made by `acquire`, ended by `release` or exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(descriptor)

    @classmethod
    def acquire(cls, folder: Path, identity: Identity) -> RunLock:
        """Take the lock, or raise RunBusyError within a second. A dead engine's lock is free."""
        try:
            descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o644)
        except OSError as error:
            raise _no_lock(folder, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StoreError(f"{folder / LOCK_FILE} is not a regular file", hint=_REMOVE)
        try:
            locked = _lock_patiently(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise _no_lock(folder, error) from error
        if not locked:
            os.close(descriptor)
            raise _busy(folder)
        _write_owner(descriptor, identity)
        return cls(descriptor)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        # A forked child has closed it already, and the descriptor may be another file there.
        if descriptor is None or descriptor not in _held:
            return
        _held.discard(descriptor)
        # Emptied, not removed: a process that opened the file meanwhile must lock this very one. If
        # even that fails, a stale owner remains in a file that no process has locked.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def is_worked_on(folder: Path) -> bool:
    """Whether a living engine holds the run."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | _AS_IT_IS)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (
        OSError
    ):  # a filesystem without locks, such as a read-only archive: no engine works there
        return False
    finally:
        os.close(descriptor)
    return False


def _lock_patiently(descriptor: int) -> bool:
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.02)
        else:
            return True


def _write_owner(descriptor: int, identity: Identity) -> None:
    pid, start_time = identity
    owner = {"pid": pid, "start_time": start_time, "host": socket.gethostname()}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
    except OSError:
        # On a full disk the lock still works; only its owner's name is missing from messages.
        return


def _no_lock(folder: Path, error: OSError) -> StoreError:
    if error.errno == errno.ELOOP:
        return StoreError(f"{folder / LOCK_FILE} is not a regular file", hint=_REMOVE)
    return StoreError(
        f"cannot lock run {folder.name}: {error.strerror} ({folder / LOCK_FILE})",
        hint="the folder must be writable, with free space, on a local disk",
    )


def _busy(folder: Path) -> RunBusyError:
    owner = read_owner(folder)
    pid = owner.get("pid")
    if not isinstance(pid, int):
        return RunBusyError(f"run {folder.name} is in use by another paraval process", pid=None)
    return RunBusyError(
        f"run {folder.name} is in use by another paraval process: pid {pid} on {owner.get('host')}",
        pid=pid,
        hint=f"wait for it to end, or stop it with: kill -INT {pid}",
    )


def read_owner(folder: Path) -> dict[str, object]:
    """The engine that holds the run, or held it last: pid, start_time, host. Empty if unknown."""
    try:
        owner = json.loads(read_plain_file(LOCK_FILE, LARGEST_BYTES, within=str(folder)))
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}
