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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from paraval.scratch import OwnHome

# All files below a folder, by a walk that opens nothing and ends, whatever it finds.

MOST_ENTRIES = 200_000


def files_below(
    top: str, *, not_entered: Collection[str] = ()
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Paths relative to it; links are files. Folders of the names `not_entered` are passed by."""
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
            if not entry.is_dir(follow_symlinks=False):
                yield f"{folder}{entry.name}", entry
            elif entry.name not in not_entered:
                pending.append(f"{folder}{entry.name}/")


SHOWN = 5
_GIT, _TEMPORARY = ".git/", "$TMPDIR/"
_COMPILED = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<module>[^./]+)\.[^/]*\.pyc(\.\d+)?")
"""What Python writes of a module; under another name first."""

_MADE_UP = re.compile(r"tmp\w{8}|[0-9a-f]{6,}|\d+")
"""Of names: what is another in each process, such as its pid."""
_MADE_UP_TEMPORARY = re.compile(r"(?:tmp|pymp)[-._]?\w{6,}|(?=[A-Za-z_]*\d)\w{6,}|[0-9a-f]{6,}|\d+")
"""Of names in a temporary folder, of which tools make up nearly all."""

_HEARD = (".py", ".pth", ".ini", ".cfg", ".toml", ".so", ".sh")
"""A new file that ends like this can change what a benchmark does; benchmarks write many others."""

Footprint = dict[str, tuple[int, int]]
"""Path -> when it was changed, which no program can set back, and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkDirs:
    """Where a benchmark may leave something."""

    top: str
    own: OwnHome | None = None

    def footprint(self) -> Footprint:
        """All files that are there; blocks as long as a walk takes."""
        found = dict(_states_below(self.top, ""))
        if self.own is not None:
            found.update(_states_below(self.own.home, "~/"))
            found.update(_states_below(self.own.temp, _TEMPORARY))
        return found


def left_since(before: Footprint, after: Footprint, settled: Footprint) -> frozenset[str]:
    """Paths that are new, or written since. What Python compiled of modules that were there before
    is theirs, as long as it stays what it was when all had `settled`."""
    return frozenset(
        path
        for path, mark in after.items()
        if before.get(path) != mark
        and not (_is_compiled(path, before) and settled.get(path, mark) == mark)
    )


def meddled_with(before: Footprint, after: Footprint, usual: frozenset[str]) -> list[str]:
    """What of a worktree's code is gone, is another or was added, but for what the benchmark that
    runs there changes by itself. What git notes for itself is no code."""
    changed = {path for path, mark in before.items() if after.get(path) != mark}
    added = {path for path in after.keys() - before.keys() if path.endswith(_HEARD)}
    code = {path for path in changed | added if not path.startswith((_GIT, _TEMPORARY))}
    return only_with(frozenset(code), usual)


def only_with(candidate: frozenset[str], baseline: frozenset[str]) -> list[str]:
    """What the one leaves and the other doesn't; names that are made up anew don't count as new."""
    usual = {without_made_up(path) for path in baseline}
    return sorted(path for path in candidate if without_made_up(path) not in usual)


def without_made_up(path: str) -> str:
    """The same for paths that differ in what programs make up alone."""
    made_up = _MADE_UP_TEMPORARY if path.startswith(_TEMPORARY) else _MADE_UP
    return made_up.sub("#", path)


def in_words(left: Sequence[str], was_there: Callable[[str], bool]) -> tuple[str, ...]:
    """As flags of a block."""
    told = [
        f"its benchmark {'changes' if was_there(path) else 'leaves'} {path}"
        for path in left[:SHOWN]
    ]
    if len(left) > SHOWN:
        told.append(f"its benchmark leaves or changes {len(left) - SHOWN} more files")
    return tuple(told)


def _states_below(top: str, shown_as: str) -> Iterator[tuple[str, tuple[int, int]]]:
    for path, entry in files_below(top):
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        yield f"{shown_as}{path}", (found.st_ctime_ns, found.st_size)


def _is_compiled(path: str, before: Footprint) -> bool:
    """A file like this without its module could be anything."""
    found = _COMPILED.fullmatch(path)
    return found is not None and f"{found['folder']}{found['module']}.py" in before
