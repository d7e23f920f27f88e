"""The files that a report can be written to, each whole or not at all.

What writes a format is loaded when a file is written: a run checks its paths before it begins.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from paraval.errors import NotWrittenError, RequestError, why

if TYPE_CHECKING:
    from paraval.report.contents import Contents, Format

FORMATS: Mapping[str, str] = {
    ".json": "formats.json:AsJson",
    ".jsonl": "formats.json:AsJsonLines",
    ".csv": "formats.csv:AsCsv",
    ".md": "formats.run_text:AsMarkdown",
    ".junit.xml": "formats.junit:AsJUnit",
    ".html": "page.page:AsHtml",
}
"""Ending -> what writes it."""
_NO_FAULT_OF_THE_PATH = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def check_output_paths(paths: Sequence[str | Path]) -> None:
    """Raise RequestError for a path that could not be written later; changes no file."""
    for path in map(Path, paths):
        _ending_of(path)
        check_place(path)


def check_endings(paths: Sequence[Path], what: str, endings: Collection[str], hint: str) -> None:
    """Raise RequestError for a path that could not be written later; changes no file."""
    known = ", ".join(endings)
    for path in paths:
        if path.suffix.lower() not in endings:
            ending = path.suffix or path.name
            message = f"unknown format '{ending}' for {what}; use one of {known}"
            raise RequestError(message, hint=hint)
        check_place(path)


def check_place(path: Path) -> None:
    """Raise RequestError if no file could be written there; changes no file."""
    try:
        _look_at_place(path)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        if isinstance(error, OSError) and error.errno in _NO_FAULT_OF_THE_PATH:
            raise not_written(path, error) from error
        raise RequestError(f"cannot write {path}: {why(error)}") from error


def not_written(path: Path, error: Exception) -> NotWrittenError:
    """The error for a path that failed although its check had passed."""
    return NotWrittenError(f"cannot write {path}: {why(error)}")


def write_files(contents: Contents, paths: Sequence[str | Path]) -> None:
    """Write each file whole. If one fails, the others are still written."""
    todo = [(path, format_for(path)) for path in map(Path, paths)]
    failures = []
    for path, form in todo:
        try:
            with opened_whole(path, "x") as file:
                form.write(contents, file)
        except OSError as error:
            failures.append(not_written(path, error).message)
    if failures:
        hint = f"the results are kept; write them with: paraval report {contents.run.id} -o FILE"
        raise NotWrittenError("\n".join(failures), hint=hint)


def format_for(path: Path) -> Format:
    module, _, name = FORMATS[_ending_of(path)].partition(":")
    form: Format = getattr(importlib.import_module(f"paraval.report.{module}"), name)()
    return form


def _ending_of(path: Path) -> str:
    name = path.name.lower()
    for ending in FORMATS:
        # Many call their only JUnit file `junit.xml`.
        if name.endswith(ending) or name == ending.removeprefix("."):
            return ending
    known = ", ".join(FORMATS)
    if name.endswith(".xml"):
        hint = f"for JUnit XML, name it {path.stem}.junit.xml"
    else:
        hint = "the file extension selects the format"
    ending = path.suffix or path.name
    raise RequestError(f"unknown report format '{ending}'; use one of {known}", hint=hint)


def _look_at_place(path: Path) -> None:
    # Only this finds paths that are too long, have a NUL, or are a loop of links.
    with contextlib.suppress(FileNotFoundError):
        path.stat()
    if path.is_dir():
        raise RequestError(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        raise RequestError(f"cannot write {path}: it is not a regular file")
    if path.exists() and not os.access(path, os.W_OK):
        raise RequestError(f"cannot write {path}: the file is read-only")
    folder = _place(path).parent
    if not folder.is_dir():
        hint = f"create it first: mkdir -p {folder}"
        raise RequestError(f"cannot write {path}: there is no folder {folder}", hint=hint)
    # Permissions don't show a read-only file system; a temporary file does.
    with tempfile.TemporaryFile(dir=folder):
        pass


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file; on failure raise NotWrittenError and keep the old file."""
    try:
        with opened_whole(path, "x" if isinstance(data, str) else "xb") as file:
            file.write(data)
    except (OSError, ValueError, RuntimeError) as error:
        raise not_written(path, error) from error


@contextlib.contextmanager
def opened_whole(path: Path, mode: Literal["x", "xb"]) -> Iterator[Any]:
    """A file to write to; it replaces the old one when all is written, or leaves it as it was.

    A TextIO with `x`, a BinaryIO with `xb`.
    """
    place = _place(path)
    beside = place.with_name(f".paraval-{secrets.token_hex(8)}.tmp")
    try:
        with _opened(beside, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o777)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _opened(path: Path, mode: Literal["x", "xb"]) -> IO[Any]:
    return path.open("xb") if mode == "xb" else path.open("x", encoding="utf-8", newline="\n")


def _place(path: Path) -> Path:
    """The file itself: links are followed, not replaced."""
    return path.resolve()
