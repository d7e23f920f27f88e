"""Whether a candidate's benchmark did the work that is timed: what it prints and what it leaves.

A candidate's code runs in the process that times it, and can end that early: what the baseline
prints in every process, a candidate prints too. One that writes down its answers is fast from the
second process on, and no faster: what it leaves in its worktree, its home and its temporary folder
is compared with what the baseline leaves. What git ignores counts as well: that is where such files
lie. Places that all of a machine shares, and the worktrees of others, are not watched; a sandbox
keeps them from it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from paraval.scratch import OwnHome

# ---- what it prints

PRINTS_ELSE = "its benchmark prints something else than the baseline's"
_TIMES = re.compile(rb"\d+(?:[.,]\d+|(?=\s*(?:ns|us|\xc2\xb5s|ms|s|sec|secs|seconds?|min)\b))")
"""Numbers that may be times: rounded, they are the same in all processes of the baseline, and
others where a candidate is faster."""


def always_printed(printed: Sequence[bytes | None]) -> str | None:
    """The hash of what all of the baseline's print; None: nothing, or another in each. `printed`:
    by process, None where nobody knows."""
    first, *others = printed
    # To print where nothing else does wins nobody anything.
    if not first or any(other != first for other in others):
        return None
    return _without_times(first)


def flags_of_printed(
    expected: str | None, baseline: Sequence[bytes | None], candidate: Sequence[bytes | None]
) -> tuple[str, ...]:
    """`expected`: what the baseline always printed when it was calibrated."""
    if expected is None or always_printed(baseline) != expected:
        return ()
    same = all(said is not None and _without_times(said) == expected for said in candidate)
    return () if same else (PRINTS_ELSE,)


def _without_times(said: bytes) -> str:
    return hashlib.sha256(_TIMES.sub(b"#", said)).hexdigest()


# ---- what it leaves

MOST_FILES = 200_000
"""That are looked at; what is beyond is not watched."""
SHOWN = 5
_TEMPORARY = "$TMPDIR/"
_COMPILED = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<module>[^./]+)\.[^/]*\.pyc(\.\d+)?")
"""What Python writes of a module; under another name first."""
_MADE_UP = re.compile(r"tmp\w{8}|[0-9a-f]{6,}|\d+")
"""Of names: what is another in each process, such as its pid."""
_MADE_UP_TEMPORARY = re.compile(r"(?:tmp|pymp)[-._]?\w{6,}|(?=[A-Za-z_]*\d)\w{6,}|[0-9a-f]{6,}|\d+")
"""Of names in a temporary folder, of which tools make up nearly all."""

Footprint = dict[str, tuple[int, int]]
"""Path -> when it was changed, which no program can set back, and its size."""


def footprint(top: str, own: OwnHome | None) -> Footprint:
    """All files of a worktree and a home; blocks as long as a walk takes that opens nothing."""
    found = files_below(top)
    if own is not None:
        for folder, shown_as in ((own.home, "~/"), (own.temp, _TEMPORARY)):
            found |= {shown_as + path: mark for path, mark in files_below(folder).items()}
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


def only_with(candidate: frozenset[str], baseline: frozenset[str]) -> list[str]:
    """What the one leaves and the other doesn't; names that are made up anew don't count as new."""
    usual = {without_made_up(path) for path in baseline}
    return sorted(path for path in candidate if without_made_up(path) not in usual)


def without_made_up(path: str) -> str:
    """The same for paths that differ in what programs make up alone."""
    made_up = _MADE_UP_TEMPORARY if path.startswith(_TEMPORARY) else _MADE_UP
    return made_up.sub("#", path)


def flags_of_left(left: Sequence[str], was_there: Callable[[str], bool]) -> tuple[str, ...]:
    """In words, for a block."""
    told = [
        f"its benchmark {'changes' if was_there(path) else 'leaves'} {path}"
        for path in left[:SHOWN]
    ]
    if len(left) > SHOWN:
        told.append(f"its benchmark leaves or changes {len(left) - SHOWN} more files")
    return tuple(told)


def files_below(top: str, not_entered: Collection[str] = ()) -> Footprint:
    """Links among them; what is gone or closed to us is passed by, and so are folders of the names
    `not_entered`."""
    found: Footprint = {}
    pending = [""]
    while pending and len(found) < MOST_FILES:
        folder = pending.pop()
        with suppress(OSError), os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    with suppress(OSError):
                        state = entry.stat(follow_symlinks=False)
                        found[folder + entry.name] = (state.st_ctime_ns, state.st_size)
                elif entry.name not in not_entered:
                    pending.append(f"{folder}{entry.name}/")
    return found


def _is_compiled(path: str, before: Footprint) -> bool:
    """A file like this without its module could be anything."""
    found = _COMPILED.fullmatch(path)
    return found is not None and f"{found['folder']}{found['module']}.py" in before
