"""Runs a command in a sandbox: bubblewrap's arguments, and whether it works here.

It sees the system's own folders, the programs on its PATH and what it is given; it writes only
where allowed; and without `network` it has no connections. It protects against mistakes and
curiosity, not against code that attacks the kernel.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path, PurePosixPath

from paraval.dataclass import dataclass
from paraval.processes.quick import run_quickly

PROGRAM = "bwrap"
SYSTEM_FOLDERS = frozenset(
    {"bin", "boot", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "snap"}
    | {"sys", "usr", "dev", "proc"}
)
"""Folders of `/` with programs and settings, visible in sandboxes. All others are for data of users
and services: they contain sockets, which can be connected to wherever they are visible."""
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - those in the sandbox
_KEPT = (
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/current-system",
    "/var/cache/fontconfig",
    "/var/lib/ca-certificates",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    "/var/lib/texmf",
)
"""Where /etc/resolv.conf may lead to, where NixOS has its programs, and what belongs to /usr."""
_TRY_TIMEOUT_S = 10.0
_SHOW = "--ro-bind-try"
_MOST_ENTRIES = 1_000
_MOST_STEPS = 1_000
"""When following links, which may lead in a circle."""
_PACKAGES = "node_modules"
"""Where programs find each other's files, at any depth."""
_MIXED = ".local"
"""Where many programs are installed next to data of all kinds."""
_LONGEST_FIRST_LINE = 256
_NAME_SERVERS = "/etc/resolv.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a command may do to the outside world.

    If it dies of signal n, the exit code is 128 + n, as in a shell.
    """

    writable: tuple[str, ...] = ()
    """Existing absolute folders. Everything else is read-only."""
    hidden: tuple[str, ...] = ()
    """Absolute folders that look empty inside, except for what is writable within them. So do
    temporary folders, homes, and all others of `/` but the system's own."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Absolute writable folders -> where they appear, in a temporary folder."""
    readable: tuple[str, ...] = ()
    """Absolute paths that are visible although they are within hidden folders. The command's
    program and those on its PATH need not be listed."""
    named: tuple[str, ...] = ()
    """The same, for this command only."""
    network: bool = False
    """False: only a loopback interface of its own."""
    hides: bool = True
    """False: it sees everything, and only cannot write elsewhere. What it writes to temporary
    folders of the machine is gone with it ..."""
    kept: str | None = None
    """... or below this absolute folder, if it is given."""

    def __post_init__(self) -> None:
        for folder in (
            *self.writable,
            *self.renamed,
            *self.hidden,
            *self.readable,
            *self.named,
        ):
            if not folder.startswith("/"):
                raise ValueError(f"a sandbox needs absolute paths, not '{folder}'")


def sandboxed(
    argv: tuple[str, ...], sandbox: Sandbox, cwd: str, env: Mapping[str, str]
) -> tuple[str, ...]:
    """The command line that runs `argv` in the sandbox; `env` is passed unchanged."""
    mounts = _mounts(sandbox, cwd, argv[0], env) if sandbox.hides else _open_mounts(sandbox)
    return (
        shutil.which(PROGRAM) or PROGRAM,
        *_namespaces(sandbox),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        # Root could set there which program the kernel starts outside.
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *(word for mount in mounts for word in mount),
        *("--chdir", cwd, "--"),
        *argv,
    )


def _open_mounts(sandbox: Sandbox) -> Iterator[tuple[str, ...]]:
    """Temporary folders of its own, with what is in the machine's; then what is writable."""
    if sandbox.kept is not None:
        yield _kept_below(sandbox.kept, "/dev/shm")  # noqa: S108 - in the sandbox
    for folder in {os.path.realpath(folder) for folder in _TEMPORARY}:
        with suppress(OSError), os.scandir(folder) as entries:
            yield _kept_below(sandbox.kept, folder) if sandbox.kept else ("--tmpfs", folder)
            for entry in islice(entries, _MOST_ENTRIES):
                kind = "--symlink" if entry.is_symlink() else _SHOW
                shown = os.readlink(entry.path) if entry.is_symlink() else entry.path  # noqa: PTH115 - quick
                yield kind, shown, entry.path
    for folder in sorted({os.path.realpath(folder) for folder in sandbox.writable}):
        yield "--bind", folder, folder


def _kept_below(top: str, folder: str) -> tuple[str, ...]:
    os.makedirs(f"{top}{folder}", exist_ok=True)  # noqa: PTH103 - text
    return ("--bind", f"{top}{folder}", folder)


def _namespaces(sandbox: Sandbox) -> Iterator[str]:
    yield "--unshare-all"
    if sandbox.network:
        yield "--share-net"
    # Prevents injecting input into the engine's own terminal (CVE-2017-5226).
    yield "--new-session"
    # Otherwise a command run as root could mount what it wants.
    yield from ("--cap-drop", "ALL")
    # Not --die-with-parent: it would end what a command leaves behind before it can be counted. The
    # supervisor, and the warden after it, are certain to end it.


def _mounts(
    sandbox: Sandbox, cwd: str, program: str, env: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """The mounts, outer folders first: later mounts lie on top."""
    view = _View(_covered(sandbox))
    writable = {view.end_of(folder) for folder in sandbox.writable}
    for path in (*_KEPT, _NAME_SERVERS, *sandbox.readable, *sandbox.named):
        view.show(view.end_of(path))
    view.show_programs(program, cwd, env.get("PATH", os.defpath))
    if not _lies_in(here := view.end_of(cwd), writable):
        # A writable folder must not become read-only again.
        view.show(here)
    mounts: dict[str, tuple[str, ...]] = {path: ("--tmpfs", path) for path in view.covered}
    mounts |= {path: (_SHOW, path, path) for path in view.shown}
    mounts |= {path: ("--bind", path, path) for path in writable}
    mounts |= {view.end_of(seen): ("--bind", path, seen) for path, seen in sandbox.renamed.items()}
    for link, target in view.links.items():
        if not _is_there(link, mounts):
            mounts[link] = ("--symlink", target, link)
    order = sorted(mounts, key=lambda path: len(PurePosixPath(path).parts))
    # Last, when everything visible in them is in place.
    free = {*map(os.path.realpath, _TEMPORARY), *writable}
    locked = (("--remount-ro", path) for path in view.covered - free)
    return [mounts[path] for path in order] + list(locked)


def _is_there(path: str, mounts: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether the path in the sandbox is the machine's own."""
    for place in map(str, PurePosixPath(path).parents):
        if place in mounts:
            return mounts[place][0] != "--tmpfs"
    return True


def _covered(sandbox: Sandbox) -> frozenset[str]:
    # Sockets are writable even on a read-only file system: docker's would be a way out.
    data = (f"/{name}" for name in os.listdir("/") if name not in SYSTEM_FOLDERS)  # noqa: PTH208 - quick
    # A missing folder cannot be created on a read-only file system.
    wanted = {os.path.realpath(folder) for folder in (*sandbox.hidden, *_TEMPORARY, *data)}
    system = {"/", *(f"/{name}" for name in SYSTEM_FOLDERS)}
    return frozenset(folder for folder in wanted - system if Path(folder).is_dir())


class _View:
    """What is visible within hidden folders."""

    def __init__(self, covered: frozenset[str]) -> None:
        self.covered = covered
        self.shown: set[str] = set()
        self.links: dict[str, str] = {}
        """Links on the way to what is shown: path -> target."""
        self._looked_at: set[str] = set()
        self._home = os.path.realpath(Path.home())

    def show(self, path: str) -> None:
        if path in self.covered or not _lies_in(path, self.covered):
            return
        # Not what this user cannot access: mounting it would be refused.
        if os.access(path, os.F_OK):
            self.shown.add(path)

    def end_of(self, path: str) -> str:
        """The target, if it is a link."""
        return self.names_of(path)[-1]

    def names_of(self, path: str) -> list[str]:
        """The chain of links to a file, then the file itself."""
        here, rest, names = "/", _parts(path), []
        for _ in range(_MOST_STEPS):
            if not rest:
                break
            step = os.path.normpath(os.path.join(here, rest.pop(0)))  # noqa: PTH118 - text
            try:
                target = os.readlink(step)  # noqa: PTH115 - quick
            except OSError:
                here = step
                continue
            self.links[step] = target
            if not rest:
                names.append(step)
            here = "/" if target.startswith("/") else here
            rest = [*_parts(target), *rest]
        return [*names, here]

    # ---- programs

    def show_programs(self, program: str, cwd: str, search_path: str) -> None:
        """Show this program, and all that it can start by name."""
        for folder in search_path.split(os.pathsep):
            if folder.startswith("/") and _lies_in(real := self.end_of(folder), self.covered):
                self._show_installation(real)
                for link in _links_in(real):
                    self._show_program(link)
        if "/" in program:
            self._show_program(os.path.join(cwd, program), search_path)  # noqa: PTH118 - text
        elif found := shutil.which(program, path=search_path):
            self._show_program(found, search_path)

    def _show_program(self, path: str, search_path: str = "") -> None:
        """Show a program under each of its names: it may look for its own files by any of them."""
        names = self.names_of(path)
        for name in names:
            folder = os.path.dirname(name)  # noqa: PTH120 - text
            if folder in self.covered and name not in self.links:
                self.show(name)
            else:
                self._show_installation(folder)
        interpreter = _interpreter_of(names[-1], search_path)
        if interpreter is not None:
            for name in self.names_of(interpreter):
                self._show_installation(os.path.dirname(name))  # noqa: PTH120

    def _show_installation(self, folder: str) -> None:
        """Show the folder of a program, and what the program was installed with."""
        if folder in self._looked_at:
            return
        self._looked_at.add(folder)
        path = PurePosixPath(folder)
        whole = path
        if _PACKAGES in path.parts:
            whole = PurePosixPath(*path.parts[: path.parts.index(_PACKAGES) + 1])
        elif path.name == "bin":
            whole = path.parent
        if whole.name == _MIXED:
            self.show(str(whole / "lib"))
        # Hidden folders, and the whole home, are never part of an installation.
        is_more = any(_lies_in(other, [str(whole)]) for other in (*self.covered, self._home))
        self.show(folder if is_more or whole.name == _MIXED else str(whole))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _links_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_symlink()]
    except OSError:
        return []


def _interpreter_of(program: str, search_path: str) -> str | None:
    """The interpreter in a script's first line."""
    if not os.path.isfile(program):  # noqa: PTH113 - quick; a pipe would keep us waiting
        return None
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - quick
            first = file.read(_LONGEST_FIRST_LINE).split(b"\n", 1)[0]
    except OSError:
        return None
    words = os.fsdecode(first.removeprefix(b"#!")).split()
    if not first.startswith(b"#!") or not words:
        return None
    if PurePosixPath(words[0]).name != "env":
        return words[0]
    return shutil.which(words[-1], path=search_path)


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    # Not with pathlib, which is slow for the many checks before each start.
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


@functools.cache
def why_no_sandbox() -> str | None:
    """Why there is no sandbox here, and how to get one; None: it works, which was tried."""
    if sys.platform != "linux":
        return "a sandbox needs Linux (bubblewrap)\nhint: remove `sandbox: true`"
    if shutil.which(PROGRAM) is None:
        return (
            "a sandbox needs bubblewrap, but 'bwrap' is not on PATH\n"
            "hint: install it (Debian and Ubuntu: apt-get install bubblewrap; Fedora: dnf install"
            " bubblewrap), or remove `sandbox: true`"
        )
    trial = sandboxed(("true",), Sandbox(), "/", {})
    ended = run_quickly(trial, env={"PATH": "/usr/bin:/bin"}, timeout=_TRY_TIMEOUT_S)
    if ended.is_well:
        return None
    return (
        f"bubblewrap is installed but does not work here: {ended.stderr}\n"
        "hint: it needs user namespaces; a container must allow them (docker run"
        " --security-opt seccomp=unconfined --security-opt apparmor=unconfined), Ubuntu 24.04 needs"
        " sysctl kernel.apparmor_restrict_unprivileged_userns=0; or remove `sandbox: true`"
    )
