"""A race's report as files: which endings there are, and writing each whole or not at all."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paraval.errors import RequestError

ENDINGS = (".json", ".patch", ".diff", ".md", ".txt")


def check_race_outputs(paths: Sequence[str | Path]) -> None:
    """RequestError for what could not be written later. No file is changed by asking."""
    for path in map(Path, paths):
        ending_of(path)
        try:
            _check_place(path)
        except (OSError, ValueError, RuntimeError) as error:  # the last for a loop of links
            raise RequestError(f"cannot write {path}: {_why(error)}") from error


def ending_of(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise RequestError(
            f"the ending of '{path}' names no form of a race's report; known: {known}",
            hint="race.json for programs, winner.patch for the winner, race.md for a pull request",
        )
    return ending


def write_whole(path: Path, data: bytes) -> None:
    """RequestError where it cannot be; what stood there before then still does."""
    try:
        _write_whole(path.resolve(), data)
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(f"cannot write {path}: {_why(error)}") from error


def _write_whole(place: Path, data: bytes) -> None:
    """`place` is where the file really is: a link is written through, not replaced."""
    beside = place.with_name(f".paraval-{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o777)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _check_place(path: Path) -> None:
    place = path.resolve()
    if place.is_dir():
        raise RequestError(f"cannot write {path}: it is a folder")
    if place.exists() and not place.is_file():
        raise RequestError(f"cannot write {path}: it is no ordinary file")
    if place.exists() and not os.access(place, os.W_OK):
        raise RequestError(f"cannot write {path}: the file is read-only")
    if not place.parent.is_dir():
        hint = f"make it first: mkdir -p {place.parent}"
        raise RequestError(f"cannot write {path}: there is no folder {place.parent}", hint=hint)
    # Permissions don't tell of read-only file systems; a nameless file that is gone at once does.
    with tempfile.TemporaryFile(dir=place.parent):
        pass


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
