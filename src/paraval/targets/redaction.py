"""Secrets, taken out of files that are kept: logs, patches."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from paraval.models.secrets import Redactor
from paraval.targets.answer import InvalidOutputError
from paraval.targets.plain_files import open_plain_file

PIECE_BYTES = 16 << 20
"""How much of a file is looked at together: a log is one piece, a huge patch several."""
IN_A_THREAD_FROM = 1 << 20
"""Bytes: to look through more than this would hold up the other attempts."""


async def redact_files(paths: tuple[str, ...], redactor: Redactor) -> tuple[str, ...]:
    """Those that held a secret, which is out of them now. A cancel does not stop it midway."""
    if sum(map(_size, paths)) < IN_A_THREAD_FROM:
        return _redact_all(paths, redactor)
    work = asyncio.to_thread(_redact_all, paths, redactor)
    return await asyncio.shield(asyncio.ensure_future(work))


def redact_file(path: str, redactor: Redactor) -> bool:
    """Whether it held a secret, which is out of it now. What is no plain file is left alone.

    Another file takes its place: nothing is written to it, which may be a link to elsewhere. Where
    there is no room for that one, none is left: better no log than one that holds a key.
    """
    try:
        source = open_plain_file(path)
    except InvalidOutputError:
        return False
    with os.fdopen(source, "rb") as file:
        if not any(redactor.is_in([piece]) for piece in _pieces(file)):
            return False
        file.seek(0)
        try:
            _replace(path, file, redactor)
        except OSError:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - text, and quick
    return True


def _redact_all(paths: tuple[str, ...], redactor: Redactor) -> tuple[str, ...]:
    return tuple(path for path in paths if redact_file(path, redactor))


def _replace(path: str, file: BinaryIO, redactor: Redactor) -> None:
    clean = f"{path}.clean"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        os.unlink(clean)  # noqa: PTH108 - text, and quick
    descriptor = os.open(clean, flags, os.fstat(file.fileno()).st_mode & 0o777)
    try:
        with os.fdopen(descriptor, "wb") as target:
            for piece in _pieces(file):
                target.write(redactor.text(piece).encode(errors="surrogateescape"))
        os.replace(clean, path)  # noqa: PTH105 - text, and quick
    except OSError:
        os.unlink(clean)  # noqa: PTH108
        raise


def _pieces(file: BinaryIO) -> Iterator[str]:
    """All of it, byte for byte, cut between lines."""
    while data := file.read(PIECE_BYTES):
        yield (data + file.readline(PIECE_BYTES)).decode(errors="surrogateescape")


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
