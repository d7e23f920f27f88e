"""Files that a target wrote: what cannot be read of them is an invalid output."""

from __future__ import annotations

from paraval import plain_files
from paraval.plain_files import PlainFileError
from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.targets.answer import InvalidOutputError, too_long


def read_plain_file(path: str, limit: int = ANSWER_LIMIT_BYTES) -> bytes:
    """All of it; InvalidOutputError says why that cannot be had."""
    try:
        return plain_files.read_plain_file(path, limit)
    except PlainFileError as error:
        message = str(error) if error.size is None else too_long(error.size, "bytes")
        raise InvalidOutputError(message) from error


def open_plain_file(path: str) -> int:
    """A descriptor to read it by; InvalidOutputError where it is missing or not a regular file."""
    try:
        return plain_files.open_plain_file(path)
    except PlainFileError as error:
        raise InvalidOutputError(str(error)) from error
