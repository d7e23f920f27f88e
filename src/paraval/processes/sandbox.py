"""A command in a sandbox: bubblewrap's arguments, and whether it works here.

All of the machine can be read but what is hidden, nothing is written but what is said, and without
`network` there is nobody to talk to. It bounds mistakes and curiosity; it is no wall against code
that attacks the kernel.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paraval.processes.quick import run_quickly

PROGRAM = "bwrap"
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - those in the sandbox
_SOCKETS = "/run"
_KEPT_OF_SOCKETS = (
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/current-system",
)
"""Where /etc/resolv.conf may lead to, and where NixOS has its programs."""
_TRY_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a command may do to the world outside.

    One that dies of signal n in it ends with the exit code 128 + n, as a shell tells it.
    """

    writable: tuple[str, ...] = ()
    """Absolute folders that exist. All else is read-only."""
    hidden: tuple[str, ...] = ()
    """Absolute folders that look empty in it; what is writable within them can be seen."""
    readable: tuple[str, ...] = ()
    """Absolute paths that can be seen although they lie in what is hidden. Temporary folders always
    are: other programs have their sockets there."""
    network: bool = False
    """False: a loopback interface of its own, and nothing else."""

    def __post_init__(self) -> None:
        for folder in (*self.writable, *self.hidden, *self.readable):
            if not folder.startswith("/"):
                raise ValueError(f"a sandbox needs absolute folders, not '{folder}'")


def sandboxed(
    argv: tuple[str, ...], sandbox: Sandbox, cwd: str, env: Mapping[str, str]
) -> tuple[str, ...]:
    """The command line that runs `argv` in the sandbox; `env` is handed to it as it is."""
    return (
        shutil.which(PROGRAM) or PROGRAM,
        *_namespaces(sandbox),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        # Root could set there which program the kernel starts, outside.
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *_mounts(sandbox, os.path.realpath(cwd), _programs(argv[0], env)),
        *("--chdir", cwd, "--"),
        *argv,
    )


def _namespaces(sandbox: Sandbox) -> Iterator[str]:
    yield "--unshare-all"
    if sandbox.network:
        yield "--share-net"
    # Against keys pressed into the engine's own terminal (CVE-2017-5226).
    yield "--new-session"
    # Without this, one who is root outside could mount what it wants.
    yield from ("--cap-drop", "ALL")
    # Not --die-with-parent: it would end what a command leaves behind before it can be counted.
    # The keeper, and the warden after it, end it for certain.


def _programs(program: str, env: Mapping[str, str]) -> list[str]:
    """Where the command and what it starts are looked for."""
    folders = env.get("PATH", "").split(os.pathsep)
    if program.startswith("/"):
        # By its name and by what that stands for; beside both it may have what it needs.
        folders += [os.path.dirname(path) for path in (program, os.path.realpath(program))]  # noqa: PTH120
    return [folder for folder in folders if folder.startswith("/")]


def _mounts(sandbox: Sandbox, cwd: str, programs: list[str]) -> Iterator[str]:
    """A folder before those within it: what is mounted later lies on top."""
    writable, covered = _real(sandbox.writable), _covered(sandbox)
    mounts: dict[str, tuple[str, ...]] = {folder: ("--tmpfs", folder) for folder in covered}
    mounts |= {folder: ("--ro-bind-try", folder, folder) for folder in _KEPT_OF_SOCKETS}
    for folder in _real((*sandbox.readable, *programs, cwd)):
        if _lies_in(folder, covered) and folder not in covered:
            mounts[folder] = ("--ro-bind-try", folder, folder)
    mounts |= {folder: ("--bind", folder, folder) for folder in writable}
    for folder in sorted(mounts, key=lambda folder: len(PurePosixPath(folder).parts)):
        # A folder of its own within one that may be written to would make it read-only again.
        if folder != cwd or cwd in writable or not _lies_in(cwd, writable):
            yield from mounts[folder]


def _covered(sandbox: Sandbox) -> set[str]:
    # A socket can be written to on a read-only file system too: docker's would be a way out.
    wanted = {*sandbox.hidden, _SOCKETS, *_TEMPORARY}
    # Where there is none, nothing can be made on what is read-only.
    return {folder for folder in _real(wanted) if Path(folder).is_dir()}


def _real(folders: Iterable[str]) -> set[str]:
    return {os.path.realpath(folder) for folder in folders}


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


@functools.cache
def why_no_sandbox() -> str | None:
    """None: it works here, which was tried. Else why not, and how to get it."""
    if sys.platform != "linux":
        return "a sandbox needs Linux (bubblewrap)\nhint: leave out `sandbox: true` here"
    if shutil.which(PROGRAM) is None:
        return (
            "a sandbox needs bubblewrap, and there is no 'bwrap' on PATH\n"
            "hint: install it (Debian and Ubuntu: apt-get install bubblewrap; Fedora: dnf install"
            " bubblewrap), or leave out `sandbox: true`"
        )
    trial = sandboxed(("true",), Sandbox(), "/", {})
    ended = run_quickly(trial, env={"PATH": "/usr/bin:/bin"}, timeout=_TRY_TIMEOUT_S)
    if ended.is_well:
        return None
    return (
        f"bubblewrap is installed and does not work here: {ended.stderr}\n"
        "hint: it needs user namespaces; a container must allow them (docker run"
        " --security-opt seccomp=unconfined --security-opt apparmor=unconfined), Ubuntu 24.04 needs"
        " sysctl kernel.apparmor_restrict_unprivileged_userns=0; or leave out `sandbox: true`"
    )
