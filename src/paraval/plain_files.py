"""Safe opening of untrusted files: no links, no pipes, no devices.

A target can replace its log with a link, and a run's folder may come from a stranger. Below a
folder, no link is followed at any step of the path, and no path leads out of it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import PurePosixPath

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PlainFileError(ValueError):
    """A file that cannot be read safely."""

    def __init__(self, path: str, why: str, *, size: int | None = None) -> None:
        super().__init__(f"'{path}' {why}")
        self.size = size
        """Its size in bytes, if it is too large."""


def open_plain_file(path: str, *, within: str | None = None) -> int:
    """Open a file and return its descriptor; PlainFileError if it is missing or not regular.

    `within`: the folder that the path is relative to and must stay in, whoever wrote the path.
    """
    try:
        # A link, a pipe or a device in its place must neither lead out nor block.
        descriptor = os.open(path, _FILE) if within is None else _opened_below(within, path)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PlainFileError(path, "is not a regular file")
    return descriptor


def read_plain_file(path: str, limit: int, *, within: str | None = None) -> bytes:
    """Return a file's content; PlainFileError also if it has more bytes than `limit`."""
    descriptor = open_plain_file(path, within=within)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise PlainFileError(path, f"has {size:,} bytes, more than {limit:,}", size=size)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def is_plain_file(path: str, *, within: str | None = None) -> bool:
    """Whether `open_plain_file` would succeed."""
    try:
        os.close(open_plain_file(path, within=within))
    except PlainFileError:
        return False
    return True


def leads_out(path: str) -> bool:
    """Whether a path that should be relative to a folder points outside of it."""
    parts = PurePosixPath(path).parts
    return not parts or parts[0].startswith("/") or ".." in parts


def _opened_below(within: str, path: str) -> int:
    """Open a path folder by folder, since any of them could be replaced by a link."""
    if leads_out(path):
        raise ValueError("leads out of its folder")
    *folders, name = PurePosixPath(path).parts
    # The folder itself may be reached through a link: the user chose it.
    here = os.open(within, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)


def _refused(path: str, error: OSError | ValueError) -> PlainFileError:
    if not isinstance(error, OSError):
        return PlainFileError(path, f"cannot be read: {error}")
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
        return PlainFileError(path, "is not a regular file")
    return PlainFileError(path, f"cannot be read: {error.strerror}")
