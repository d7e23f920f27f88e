"""What attempts left in the run's folder, read without being led astray.

A target can lay links, pipes and devices where its logs were, and a run's folder may come from
somebody else: no link is followed at any step of the way, nothing outside is opened, and only a
bounded piece of a regular file is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from paraval.isolation import PATCH
from paraval.report.page.excerpts import LONGEST_TEXT, Excerpt
from paraval.report.wording import size

LONGEST_LOG = 4_000
"""Bytes, of the end: what went wrong is told there."""
_MOST_LOGS = 12
_STREAMS = ("stdout", "stderr")
_BESIDE = ("log", "traceback")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        descriptor = _opened(run_folder, PurePosixPath(path).parts)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        start = max(0, status.st_size - most) if from_end else 0
        return _Piece(content=os.pread(descriptor, most, start), of=status.st_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _opened(run_folder: str, parts: tuple[str, ...]) -> int:
    """Folder by folder, since a link could stand in the place of any of them."""
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError("a path that leads out of the run's folder")
    *folders, name = parts
    # The run's own folder may well be reached by a link: that is the user's.
    here = os.open(run_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)
