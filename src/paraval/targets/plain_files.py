"""Files that a target wrote, read without being led astray: no links, no pipes, no devices."""

from __future__ import annotations

import os
import stat

from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.targets.answer import InvalidOutputError, too_long


def read_plain_file(path: str, limit: int = ANSWER_LIMIT_BYTES) -> bytes:
    """All of it; InvalidOutputError says why that cannot be had."""
    descriptor = open_plain_file(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise InvalidOutputError(too_long(size, "bytes"))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def open_plain_file(path: str) -> int:
    """A descriptor to read it by; InvalidOutputError where it is not there, or no plain file."""
    try:
        # A link, a pipe or a device in its place must neither lead out nor block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidOutputError(f"'{path}' cannot be read: {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidOutputError(f"'{path}' is not a regular file")
    return descriptor


def is_plain_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
