"""The store's folder: checked for whether it can hold runs before anything is spent."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

from paraval.errors import StoreError

RUNS_FOLDER = "runs"
_RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
LEAST_FREE_BYTES = 20_000_000

NETWORK_FILESYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.davfs2", "fuse.gcsfuse"}
    | {"fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "panfs", "smb3", "smbfs"}
)
"""Network filesystems, which lack the shared memory that SQLite's write-ahead log needs."""

OPTION = "--store DIR"
"""The option to name in messages; pytest has another."""
_WAY_OUT = f"choose another folder with {OPTION}"


def prepare_folder(root: Path) -> None:
    """Create the store's folder if it is missing, for its user only: prompts and answers are in it.
    StoreError if it cannot hold runs."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / RUNS_FOLDER).mkdir(parents=True, exist_ok=True)
        _ignore_in_git(root)
    except OSError as error:
        raise unusable(root, error) from error
    require_writable(root / RUNS_FOLDER)


def require_writable(folder: Path) -> None:
    """StoreError unless the folder is local, writable and has free space."""
    filesystem = filesystem_type(folder.resolve(), _mounts())
    if filesystem in NETWORK_FILESYSTEMS:
        raise StoreError(
            f"the store {folder} is on a network filesystem ({filesystem}), "
            "where results cannot be stored safely",
            hint=f"{_WAY_OUT}, on a disk of this machine",
        )
    try:
        free = shutil.disk_usage(folder).free
        # Only a real write shows it: root may write anywhere except on a read-only filesystem.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise unusable(folder, error) from error
    if free < LEAST_FREE_BYTES:
        raise _no_space(folder, free)


def filesystem_type(path: Path, mounts: str) -> str | None:
    """The filesystem type that holds an absolute path, from the text of /proc/mounts."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        place = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1]))
        # Of two mounts on the same path, the later one hides the earlier.
        if path.is_relative_to(place) and (best is None or len(place.parts) >= best[0]):
            best = (len(place.parts), fields[2])
    return None if best is None else best[1]


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(errors="surrogateescape")
    except OSError:
        return ""


def _ignore_in_git(root: Path) -> None:
    """Keep runs out of the repository that contains the store."""
    try:
        with (root / ".gitignore").open("x") as file:
            file.write("*\n")
    except FileExistsError:
        return


def unusable(folder: Path, error: OSError) -> StoreError:
    """A message for people about an OS error in a store's folder."""
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StoreError(f"the store {folder} is not a folder", hint=_WAY_OUT)
    if error.errno == errno.ENOSPC:
        return _no_space(folder, 0)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreError(f"the store {folder} cannot be written: {error.strerror}", hint=_WAY_OUT)
    return StoreError(
        f"the store {folder} cannot be used: {os.strerror(error.errno or 0)}", hint=_WAY_OUT
    )


def unreadable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the store's folder {folder} cannot be read: {error.strerror}",
        hint=f"ask its owner for read permission, or {_WAY_OUT}",
    )


def _no_space(folder: Path, free: int) -> StoreError:
    return StoreError(
        f"no space for results in {folder}: {free / 1e6:.1f} MB free, "
        f"at least {LEAST_FREE_BYTES / 1e6:.0f} MB are needed",
        hint=f"make space, or {_WAY_OUT}",
    )


def is_run_id(name: object) -> bool:
    """Whether this is an id that a store generates, and so is safe to print in messages and
    commands."""
    return isinstance(name, str) and _RUN_ID.fullmatch(name) is not None


def artifacts_of(key: str, number: int) -> str:
    """An attempt's folder, relative to its run's folder."""
    return f"artifacts/{key[:2]}/{key}/{number}"
