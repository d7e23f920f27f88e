"""Protected files that are written while tests run, whatever is in them at the end.

What git finds changed afterwards is told by `protection`. A file that was another one meanwhile and
was put back is the same to git; when it was last written, no program can set back. A walk that
opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from paraval.racing.habits import PUT_BACK
from paraval.racing.protection import Protected
from paraval.racing.walking import files_below

_NOT_ENTERED = frozenset(
    {".git", "__pycache__", ".pytest_cache", ".hypothesis", ".benchmarks", ".venv", "node_modules"}
)
"""What tools keep for themselves, and write whenever they like."""

Mark = tuple[int, int]
"""Which file it is, and when something was last done to it, in nanoseconds."""


def marks_of(top: str, watched: Protected) -> dict[str, Mark]:
    """Of all protected files of a worktree, by path; blocks as long as a walk takes."""
    marks = {
        path: _mark(top, path)
        for path, _ in files_below(top, not_entered=_NOT_ENTERED)
        if path in watched
    }
    return {path: mark for path, mark in marks.items() if mark is not None}


def written_since(top: str, before: Mapping[str, Mark]) -> tuple[str, ...]:
    """Those that are still there, and had something done to them."""
    now = {path: _mark(top, path) for path in before}
    return tuple(path for path, mark in now.items() if mark not in (None, before[path]))


def flags_of_written(written: Collection[str], changed: Collection[str]) -> tuple[str, ...]:
    """In words; `changed`: the paths that are told to be others than before already."""
    return tuple(
        f"changed {path} while it ran{PUT_BACK}" for path in sorted(set(written) - set(changed))
    )


def _mark(top: str, path: str) -> Mark | None:
    try:
        found = os.lstat(f"{top}/{path}")
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
