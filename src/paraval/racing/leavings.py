"""What a benchmark leaves behind where it ran, told by a walk that opens nothing.

A candidate that writes down its answers is fast from the second process on, and no faster. So what
it leaves in its worktree, its home and its temporary folder is compared with what the baseline
leaves. What git ignores counts as well: that is where such files lie. Places that all of a machine
shares are not watched; a sandbox keeps them from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paraval.scratch import OwnHome

MOST_ENTRIES = 200_000
SHOWN = 5
_COMPILED = ".pyc"
_CACHES = frozenset({".pytest_cache", ".git"})
"""What tools write that hold no answers, and what git keeps for itself."""

_MADE_UP = re.compile(r"tmp\w{8}|[0-9a-f]{6,}|\d+")
"""Of names: what is another in each process, such as its pid."""

Footprint = dict[str, tuple[int, int]]
"""Path -> when it was written, and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where a benchmark may leave something."""

    top: str
    own: OwnHome | None = None

    def footprint(self) -> Footprint:
        """All files that are there; blocks as long as a walk takes."""
        found = dict(_files_below(self.top, ""))
        if self.own is not None:
            found.update(_files_below(self.own.home, "~/"))
            # Names of temporary files are random: only whether there are any can be compared.
            if any(True for _ in _files_below(self.own.temp, "")):
                found["files in its temporary folder"] = (0, 0)
        return found


def left_since(before: Footprint, after: Footprint) -> frozenset[str]:
    """Paths that are new, or written since."""
    return frozenset(path for path, mark in after.items() if before.get(path) != mark)


def only_with(candidate: frozenset[str], baseline: frozenset[str]) -> list[str]:
    """What the one leaves and the other doesn't; names that are made up anew don't count as new."""
    usual = {_MADE_UP.sub("#", path) for path in baseline}
    return sorted(path for path in candidate if _MADE_UP.sub("#", path) not in usual)


def in_words(left: Sequence[str]) -> tuple[str, ...]:
    """As flags of a block."""
    told = [f"its benchmark leaves {path}" for path in left[:SHOWN]]
    if len(left) > SHOWN:
        told.append(f"its benchmark leaves {len(left) - SHOWN} more files")
    return tuple(told)


def _files_below(top: str, shown_as: str) -> Iterator[tuple[str, tuple[int, int]]]:
    pending, seen = [""], 0
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(f"{top}/{folder}") as entries:
                listed = list(entries)
        except OSError:
            # It is gone, or closed to us: what it holds is nobody's to read then.
            continue
        for entry in listed:
            seen += 1
            if seen > MOST_ENTRIES:
                return
            path = f"{folder}{entry.name}"
            if entry.name in _CACHES:
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            elif not _is_compiled(path):
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield f"{shown_as}{path}", (found.st_mtime_ns, found.st_size)


def _is_compiled(path: str) -> bool:
    """Python writes them under another name first."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2] == "__pycache__" and _COMPILED in name
