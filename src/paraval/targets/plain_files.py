"""Files that a target wrote, read without being led astray: no links, no pipes, no devices."""

from __future__ import annotations

import os
import stat

from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.targets.answer import InvalidOutputError, too_long


def read_plain_file(path: str, limit: int = ANSWER_LIMIT_BYTES) -> bytes:
    """All of it; InvalidOutputError says why that cannot be had."""
    try:
        # A link, a pipe or a device in its place must neither lead out nor block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidOutputError(f"'{path}' cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidOutputError(f"'{path}' is not a regular file")
        if found.st_size > limit:
            raise InvalidOutputError(too_long(found.st_size, "bytes"))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)
