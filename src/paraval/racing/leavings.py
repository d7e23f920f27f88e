"""What a benchmark leaves behind where it ran, told by a walk that opens nothing.

A candidate that writes down its answers is fast from the second process on, and no faster. So what
it leaves in its worktree, its home and its temporary folder is compared with what the baseline
leaves. What git ignores counts as well: that is where such files lie. Places that all of a machine
shares are not watched; a sandbox keeps them from it. One that changes the code beside it, such as
the baseline's, is told by the same walk.
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

_HEARD = (".py", ".pth", ".ini", ".cfg", ".toml", ".so", ".sh")
"""A new file that ends like this can change what a benchmark does; benchmarks write many others."""

Footprint = dict[str, tuple[int, int]]
"""Path -> when it was changed, which no program can set back, and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where a benchmark may leave something."""

    top: str
    own: OwnHome | None = None

    def footprint(self) -> Footprint:
        """All files that are there; blocks as long as a walk takes."""
        code = self.code()
        found = {path: mark for path, mark in code.items() if not _is_compiled(path)}
        # Names of temporary files are random: only whether there are any can be compared.
        if self.own is not None and any(True for _ in _files_below(self.own.temp, "")):
            found["files in its temporary folder"] = (0, 0)
        return found

    def code(self) -> Footprint:
        """All that decides what a benchmark does: what Python compiled, too."""
        found = dict(_files_below(self.top, ""))
        if self.own is not None:
            found.update(_files_below(self.own.home, "~/"))
        return found


def left_since(before: Footprint, after: Footprint) -> frozenset[str]:
    """Paths that are new, or written since."""
    return frozenset(path for path, mark in after.items() if before.get(path) != mark)


def meddled_with(before: Footprint, after: Footprint, usual: frozenset[str]) -> list[str]:
    """What of a worktree's code is gone, is another or was added, but for what the benchmark that
    runs there changes by itself."""
    changed = {path for path, mark in before.items() if after.get(path) != mark}
    added = {path for path in after.keys() - before.keys() if path.endswith(_HEARD)}
    return only_with(frozenset(changed | added), usual)


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
            else:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield f"{shown_as}{path}", (found.st_ctime_ns, found.st_size)


def _is_compiled(path: str) -> bool:
    """Python writes them under another name first."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2] == "__pycache__" and _COMPILED in name
