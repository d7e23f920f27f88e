"""Control groups: they catch every fork, and enforce limits on a whole process tree.

A warden finds out once where it may make groups (`find_places`), and its supervisors make theirs
below:

    <the group this process is in>/paraval-<warden's pid>-<its start>-<pid namespace>/
        k<pid>    a supervisor and all that it starts, only in v2
        out       where a supervisor goes while its own group is killed
        b<pid>-<n>    one command that has limits

A supervisor lives in its group, so that commands are born there: moving a process takes up to ten
milliseconds, and this way it happens once for many commands. Only a command with limits is moved by
itself. If nothing is writable, all of this does nothing, and only the process table is used. The
groups of a dead warden are recognized by name, and removed by the next warden.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from paraval.processes.fast_imports import signal
from paraval.processes.tree import read_entry, send_signal

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "paraval-"
_REMOVE_PATIENCE_S = 0.1
_LOOK_AGAIN_S = 0.002
_V2_CONTROLLERS = ("memory", "pids")


class CgroupDir:
    """A group in which others may be created."""

    __slots__ = ("folder", "version")

    def __init__(self, folder: str, version: int) -> None:
        self.folder = folder
        self.version = version


class CgroupDirs:
    """Where groups may be created, by purpose; None: nowhere."""

    __slots__ = ("kill", "memory", "processes")

    def __init__(
        self, kill: CgroupDir | None, memory: CgroupDir | None, processes: CgroupDir | None
    ) -> None:
        self.kill = kill
        self.memory = memory
        self.processes = processes

    def all(self) -> list[CgroupDir]:
        """Each once."""
        found = {
            place.folder: place
            for place in (self.kill, self.memory, self.processes)
            if place is not None
        }
        return list(found.values())


def find_places() -> CgroupDirs:
    """The places where this process may create groups."""
    if sys.platform != "linux":
        return CgroupDirs(None, None, None)
    folders = own_folders(_read("/proc/self/cgroup"), _read("/proc/self/mountinfo"))
    writable = {name: folder for name, folder in folders.items() if _is_writable(folder)}
    unified = writable.get("")
    kill = CgroupDir(unified, 2) if unified is not None else None
    return CgroupDirs(kill, _controlled("memory", writable), _controlled("pids", writable))


def own_folders(groups: str, mounts: str) -> dict[str, str]:
    """Controller -> the folder of the group this process is in; v2 has an empty name."""
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    folders: dict[str, str] = {}
    for line in mounts.splitlines():
        fields = line.split(" ")
        root, point = fields[3], _unescaped(fields[4])
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        controllers = {"cgroup2": [""], "cgroup": options.split(",")}
        for name in controllers.get(kind, []):
            # A mount shows only what is below its root.
            below = _relative(paths[name], _unescaped(root)) if name in paths else None
            if below is not None:
                folders.setdefault(name, point + below)
    return folders


def _relative(path: str, root: str) -> str | None:
    root = root.rstrip("/")
    if path != root and not path.startswith(root + "/"):
        return None
    return path[len(root) :].rstrip("/")


def _unescaped(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _is_writable(folder: str) -> bool:
    # Moving a process requires write access to the lowest common ancestor of both groups.
    return os.access(folder, os.W_OK | os.X_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)


def _controlled(controller: str, writable: dict[str, str]) -> CgroupDir | None:
    unified = writable.get("")
    if unified is not None and controller in _read(f"{unified}/cgroup.controllers").split():
        # Only the root may have both processes and controllers for the groups below it, and only
        # the root has no type.
        handed_down = controller in _read(f"{unified}/cgroup.subtree_control").split()
        if handed_down or not os.access(f"{unified}/cgroup.type", os.F_OK):
            return CgroupDir(unified, 2)
    return CgroupDir(writable[controller], 1) if controller in writable else None


class Cgroups:
    """The groups of one warden and its supervisors."""

    def __init__(self, places: CgroupDirs) -> None:
        self._places = places
        self._name = _own_name() if places.all() else ""
        self._home: str | None = None
        """This supervisor's own group; None: it has none."""
        self._boxes = 0

    # ---- for the warden

    def heal(self) -> None:
        """Kill what is left in the groups of dead wardens, and remove the groups that are empty.

        The others go next time.
        """
        for place in self._places.all():
            for name in _names(place.folder):
                if _is_stale(name, self._name):
                    _clear(f"{place.folder}/{name}")

    def forget(self, supervisor: int) -> None:
        """Clean up after a dead supervisor: kill what is left in its group, and remove the
        group."""
        if self._places.kill is not None:
            _clear(f"{self._places.kill.folder}/{self._name}/k{supervisor}")

    def close(self) -> None:
        """Remove all groups; the supervisors are gone."""
        for place in self._places.all():
            _clear(f"{place.folder}/{self._name}")
        self.heal()

    # ---- for a supervisor

    def settle(self) -> None:
        """Move this process into a group of its own, where its commands will be born."""
        if self._places.kill is None:
            return
        base = f"{self._places.kill.folder}/{self._name}"
        home = f"{base}/k{os.getpid()}"
        if _make(base) and _make(home) and _write(f"{home}/cgroup.procs", b"0"):
            self._home = home

    def kill_all_but_this(self) -> None:
        """Kill a tree that outruns the walk through the process table."""
        if self._home is None:
            return
        outside = f"{self._home.rpartition('/')[0]}/out"
        if _make(outside) and _write(f"{outside}/cgroup.procs", b"0"):
            _write(f"{self._home}/cgroup.kill", b"1")
            _write(f"{self._home}/cgroup.procs", b"0")

    def box(self, memory: int | None, processes: int | None) -> CommandCgroups | None:
        """A group for one command, with these limits as far as they can be enforced."""
        places = {
            place.folder: place.version
            for place, limit in (
                (self._places.memory, memory),
                (self._places.processes, processes),
            )
            if place is not None and limit is not None
        }
        if not places:
            return None
        self._boxes += 1
        bases = {f"{folder}/{self._name}": version for folder, version in places.items()}
        name = f"b{os.getpid()}-{self._boxes}"
        folders = [f"{base}/{name}" for base, version in bases.items() if _make_base(base, version)]
        box = CommandCgroups([folder for folder in folders if _make(folder)])
        box.limit(memory, processes)
        return box


class CommandCgroups:
    """The groups of one command that has limits: one in v2, or one per limit in v1."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders

    def limit(self, memory: int | None, processes: int | None) -> None:
        for folder in self._folders:
            if memory is not None:
                limit = b"%d" % memory
                _write(f"{folder}/memory.max", limit)
                _write(f"{folder}/memory.swap.max", b"0")
                # All of it or none: half a tree is useless.
                _write(f"{folder}/memory.oom.group", b"1")
                _write(f"{folder}/memory.limit_in_bytes", limit)
                _write(f"{folder}/memory.memsw.limit_in_bytes", limit)
            if processes is not None:
                _write(f"{folder}/pids.max", b"%d" % processes)

    def enter(self) -> None:
        """Move the calling process, which is about to become the command."""
        for folder in self._folders:
            _write(f"{folder}/cgroup.procs", b"0")

    def kill(self) -> None:
        for folder in self._folders:
            _write(f"{folder}/cgroup.kill", b"1")

    @property
    def peak_bytes(self) -> int:
        """Peak memory; 0 if not counted."""
        names = ("memory.peak", "memory.max_usage_in_bytes")
        return max(
            (_number(_read(f"{folder}/{name}")) for folder in self._folders for name in names),
            default=0,
        )

    @property
    def out_of_memory(self) -> bool:
        names = ("memory.events", "memory.oom_control")
        return any(
            _count(_read(f"{folder}/{name}"), "oom_kill")
            for folder in self._folders
            for name in names
        )

    def remove(self) -> None:
        for folder in self._folders:
            _clear(folder)


# ---- names


def _own_name() -> str:
    entry = read_entry(os.getpid())
    start = entry.start_time if entry is not None else 0
    return f"{PREFIX}{os.getpid()}-{start}-{_namespace()}"


def _namespace() -> str:
    """Part of the name, since pids differ between containers."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115 - pathlib is heavy here
    except OSError:
        return "0"


def _is_stale(name: str, own: str) -> bool:
    parts = name[len(PREFIX) :].split("-")
    if not name.startswith(PREFIX) or len(parts) != 3 or not all(p.isdigit() for p in parts):
        return False
    if name == own or parts[2] != _namespace():
        return False
    entry = read_entry(int(parts[0]))
    return entry is None or entry.is_dead or entry.start_time != int(parts[1])


# ---- files


def _make_base(folder: str, version: int) -> bool:
    if not _make(folder):
        return False
    if version == 2:
        for controller in _V2_CONTROLLERS:
            for above in (folder.rpartition("/")[0], folder):
                _write(f"{above}/cgroup.subtree_control", b"+" + controller.encode())
    return True


def _make(folder: str) -> bool:
    try:
        os.mkdir(folder)  # noqa: PTH102 - pathlib is heavy here
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _clear(folder: str) -> None:
    """Kill everything in a group and below, and remove the groups if they empty in time."""
    if _remove(folder):
        return
    below = [f"{folder}/{name}" for name in _names(folder)]
    if not _write(f"{folder}/cgroup.kill", b"1"):
        _kill_members([folder, *below])
    until = time.monotonic() + _REMOVE_PATIENCE_S
    while not all([*map(_remove, below), _remove(folder)]) and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)


def _remove(folder: str) -> bool:
    """True: it is gone."""
    try:
        os.rmdir(folder)  # noqa: PTH106 - pathlib is heavy here
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill_members(folders: Iterable[str]) -> None:
    """Kill one by one, as v1 requires."""
    for folder in folders:
        for pid in _read(f"{folder}/cgroup.procs").split():
            if pid != "0":  # a process that is not visible in this namespace
                send_signal(int(pid), signal.SIGKILL)


def _names(folder: str) -> list[str]:
    """The groups in it."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read(path: str) -> str:
    """Empty if there is nothing to read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    content = b""
    try:
        while chunk := os.read(file, 1 << 16):
            content += chunk
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.EOPNOTSUPP, errno.ESRCH):
            raise
    finally:
        os.close(file)
    return content.decode(errors="surrogateescape")


def _write(path: str, content: bytes) -> bool:
    """False: it was refused, or there is no such file."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(file, content)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def _count(text: str, name: str) -> int:
    """For a file whose lines contain a name and a number each."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value)
    return 0
