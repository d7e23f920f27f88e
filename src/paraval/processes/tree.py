"""The process table, and the descendants of a process: finding and signaling them.

A subreaper inherits every orphan below it, so on Linux nothing that a command starts can leave the
tree: no new session, double fork or cleared environment helps. Without subreapers (macOS), only the
process group of the command is known.
"""

from __future__ import annotations

import ctypes
import os
import sys

from paraval.processes.fast_imports import signal

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

HAS_SUBREAPER = sys.platform == "linux"

PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True) if HAS_SUBREAPER else None


class ProcessEntry:
    """One process, as in /proc/<pid>/stat."""

    __slots__ = (
        *("group", "parent", "pid", "session", "start_time", "state"),
        *("cpu_ticks", "name", "reaped_ticks", "rss_pages"),
    )

    def __init__(self, pid: int, stat: bytes) -> None:
        # The name is in parentheses and may itself contain parentheses and blanks: the last one
        # counts.
        closing = stat.rindex(b")")
        fields = stat[closing + 2 :].split(None, 22)
        self.pid = pid
        self.name = stat[stat.index(b"(") + 1 : closing]
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.start_time = int(fields[19])
        """In clock ticks since boot."""
        self.cpu_ticks = int(fields[11]) + int(fields[12])
        self.reaped_ticks = int(fields[13]) + int(fields[14])
        """Of the children that it has waited for, and theirs."""
        self.rss_pages = int(fields[21])

    @property
    def is_dead(self) -> bool:
        """A zombie does nothing any more; its parent has yet to reap it."""
        return self.state in "ZXx"


def become_subreaper() -> None:
    if _libc is None:
        return
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_unreadable() -> None:
    """Hide the environment and the memory of this process and its forks from the user's other
    processes. Ignores refusals: nothing can be done about them."""
    if _libc is not None:
        _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def read_entry(pid: int) -> ProcessEntry | None:
    """The process with this pid, even if a zombie; None if there is none."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.read(file, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(file)
    return ProcessEntry(pid, stat) if stat else None


def process_table() -> dict[int, ProcessEntry]:
    """All processes that are visible now."""
    names = os.listdir("/proc")  # noqa: PTH208 - pathlib is slow to load, and slower at this
    entries = (read_entry(int(name)) for name in names if name.isdigit())
    return {entry.pid: entry for entry in entries if entry is not None}


def descendants(roots: Iterable[int], table: dict[int, ProcessEntry]) -> list[ProcessEntry]:
    """All descendants of the roots, without the roots, parents before children."""
    return below(roots, by_parent(table))


def by_parent(table: dict[int, ProcessEntry]) -> dict[int, list[ProcessEntry]]:
    children: dict[int, list[ProcessEntry]] = {}
    for entry in table.values():
        children.setdefault(entry.parent, []).append(entry)
    return children


def below(roots: Iterable[int], children: dict[int, list[ProcessEntry]]) -> list[ProcessEntry]:
    """Like `descendants`; removes what it finds from `children`."""
    found: list[ProcessEntry] = []
    waiting = list(roots)
    while waiting:
        born = children.pop(waiting.pop(), [])
        found += born
        waiting += [entry.pid for entry in born]
    return found


def signal_entries(entries: Iterable[ProcessEntry], signum: int) -> None:
    """Signal exactly these: a process that has ended is spared, even if its pid was reused."""
    for entry in entries:
        now = read_entry(entry.pid)
        if now is not None and now.start_time == entry.start_time:
            send_signal(entry.pid, signum)


def kill_entries(entries: Iterable[ProcessEntry]) -> None:
    """Send SIGKILL to these processes and their whole groups.

    The kernel signals a group atomically, so a chain of processes that each start the next and exit
    cannot outrun it. A group lies within a session, and commands start in one of their own: except
    for the group of this process itself, the group of a descendant contains only descendants.
    """
    entries = list(entries)
    signal_entries(entries, signal.SIGKILL)
    for group in {entry.group for entry in entries if entry.session != os.getsid(0)}:
        send_group_signal(group, signal.SIGKILL)


def send_signal(pid: int, signum: int) -> bool:
    """False: there is no such process or group, or no permission to signal it."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_group_signal(group: int, signum: int) -> bool:
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True
