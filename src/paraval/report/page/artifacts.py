"""What attempts left in the run's folder: a bounded piece of each file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from paraval.isolation import PATCH
from paraval.plain_files import PlainFileError, open_plain_file
from paraval.report.page.excerpts import LONGEST_TEXT, Excerpt
from paraval.report.wording import size

LONGEST_LOG = 4_000
"""Bytes, of the end: what went wrong is told there."""
_MOST_LOGS = 12
_STREAMS = ("stdout", "stderr")
_BESIDE = ("log", "traceback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The end of what was written to one stream."""

    name: str
    excerpt: Excerpt


def logs_in(run_folder: str, artifacts: Mapping[str, str]) -> tuple[Log, ...]:
    """Those that hold something; the target's first, then the graders'."""
    names = [name for name in artifacts if is_log(name)]
    found = []
    for name in names[:_MOST_LOGS]:
        excerpt = _end_of(run_folder, artifacts[name])
        if excerpt is not None and excerpt.text:
            found.append(Log(name=name, excerpt=excerpt))
    return tuple(found)


def is_log(name: str) -> bool:
    """Streams of targets and graders (`tests.stdout`), and what tests left beside theirs."""
    return name in _BESIDE or name.rpartition(".")[2] in _STREAMS


def patch_in(run_folder: str, artifacts: Mapping[str, str]) -> Excerpt | None:
    if PATCH not in artifacts:
        return None
    piece = _read(run_folder, artifacts[PATCH], LONGEST_TEXT, from_end=False)
    if piece is None:
        return None
    left = piece.of - len(piece.content)
    text = piece.content.decode(errors="replace")
    return Excerpt(text=text, left_out=f"{size(left)} more" if left else "")


def _end_of(run_folder: str, path: str) -> Excerpt | None:
    piece = _read(run_folder, path, LONGEST_LOG, from_end=True)
    if piece is None:
        return None
    left = piece.of - len(piece.content)
    text = piece.content.decode(errors="replace")
    return Excerpt(text=text, left_out=f"the last {size(LONGEST_LOG)}" if left else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    content: bytes
    of: int
    """The size of the whole file."""


def _read(run_folder: str, path: str, most: int, *, from_end: bool) -> _Piece | None:
    """None where there is no such file that may be read."""
    try:
        descriptor = open_plain_file(path, within=run_folder)
    except PlainFileError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        start = max(0, size - most) if from_end else 0
        return _Piece(content=os.pread(descriptor, most, start), of=size)
    except OSError:
        return None
    finally:
        os.close(descriptor)
