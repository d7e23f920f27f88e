"""Checks by its output and files that a candidate's benchmark really did the timed work.

A candidate's code runs in the timed process and can end it early: so it must print what the
baseline prints in every process. A candidate that saves its answers is fast from the second process
on without being faster: so the files that it leaves in its worktree, home and temporary folder are
compared with the baseline's. Ignored files count too, because such files are usually ignored.
Shared places of the machine and other worktrees are not watched; a sandbox protects them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import zip_longest

from paraval.scratch import OwnHome
from paraval.text.terminal import one_line

# ---- output

_LONGEST_LINE = 80
PRINTS_ELSE = "its benchmark prints something different from the baseline's"
_TIMES = re.compile(rb"\d+(?:[.,]\d+|(?=\s*(?:ns|us|\xc2\xb5s|ms|s|sec|secs|seconds?|min)\b))")
"""Numbers that may be times: rounded, they may be equal in all baseline processes, but differ for a
faster candidate."""


def always_printed(printed: Sequence[bytes | None]) -> str | None:
    """The hash of what all baseline processes print; None if nothing, or if it differs. `printed`:
    output by process, None if unknown."""
    first, *others = printed
    # Printing where the baseline prints nothing gives no advantage.
    if not first or any(other != first for other in others):
        return None
    return _without_times(first)


def flags_of_printed(
    expected: str | None, baseline: Sequence[bytes | None], candidate: Sequence[bytes | None]
) -> tuple[str, ...]:
    """Flags for different output; `expected`: the baseline's output during calibration."""
    if expected is None or always_printed(baseline) != expected:
        return ()
    other = [text for text in candidate if text is None or _without_times(text) != expected]
    if not other:
        return ()
    if other[0] is None:
        return (f"{PRINTS_ELSE}: more than is kept",)
    return (f"{PRINTS_ELSE}: {_first_difference(baseline[0] or b'', other[0])}",)


def _first_difference(before: bytes, now: bytes) -> str:
    """`"551" instead of "550"`: the first lines that differ."""
    lines = zip_longest(*(text.decode(errors="replace").splitlines() for text in (before, now)))
    for expected, found in lines:
        if expected != found:
            got, wanted = (f'"{one_line(line or "", _LONGEST_LINE)}"' for line in (found, expected))
            return f"{got} instead of {wanted}"
    return "other line ends"


def _without_times(printed: bytes) -> str:
    return hashlib.sha256(_TIMES.sub(b"#", printed)).hexdigest()


# ---- files

MOST_FILES = 200_000
"""Files checked; more are ignored."""
SHOWN = 5
_TEMPORARY = "$TMPDIR/"
PRIVATE = "private"
"""In a temporary folder: what a sandboxed process wrote to those of the machine, by its number."""
_MADE_UP = re.compile(r"tmp\w{8}|[0-9a-f]{6,}|\d+")
"""Parts of names that differ in each process, such as its pid."""
_MADE_UP_TEMPORARY = re.compile(r"(?:tmp|pymp)[-._]?\w{6,}|(?=[A-Za-z_]*\d)\w{6,}|[0-9a-f]{6,}|\d+")
"""The same for temporary folders, where most names are generated."""

Footprint = dict[str, tuple[int, int]]
"""Path -> its change time, which programs cannot reset, and its size."""


def footprint(top: str, own: OwnHome | None) -> Footprint:
    """All files of a worktree and a home. Blocks for a directory walk, without opening files."""
    found = files_below(top)
    if own is not None:
        found |= {f"~/{path}": mark for path, mark in files_below(own.home).items()}
        found |= {
            _TEMPORARY + path: mark
            for path, mark in files_below(own.temp).items()
            if not _is_of_the_machine(path)
        }
    return found


def _is_of_the_machine(path: str) -> bool:
    """Whether it only stands for a file in a temporary folder of the machine."""
    private, _, rest = path.partition("/")
    return private == PRIVATE and os.path.lexists(f"/{rest.partition('/')[2]}")


def left_since(before: Footprint, after: Footprint) -> frozenset[str]:
    """Paths that are new or written since."""
    return frozenset(path for path, mark in after.items() if before.get(path) != mark)


def only_with(candidate: frozenset[str], baseline: frozenset[str]) -> list[str]:
    """Paths that only the candidate leaves, ignoring generated parts of names."""
    usual = {without_made_up(path) for path in baseline}
    return sorted(path for path in candidate if without_made_up(path) not in usual)


def without_made_up(path: str) -> str:
    """The path with generated parts of names replaced."""
    made_up = _MADE_UP_TEMPORARY if path.startswith(_TEMPORARY) else _MADE_UP
    return made_up.sub("#", path)


def flags_of_left(left: Sequence[str], was_there: Callable[[str], bool]) -> tuple[str, ...]:
    """Flags for files that the benchmark leaves or changes."""
    flags = [
        f"its benchmark {'changes' if was_there(path) else 'leaves'} {path}"
        for path in left[:SHOWN]
    ]
    if len(left) > SHOWN:
        flags.append(f"its benchmark leaves or changes {len(left) - SHOWN} more files")
    return tuple(flags)


def files_below(top: str, not_entered: Collection[str] = ()) -> Footprint:
    """All files, including links. Skips what is gone or unreadable, and folders named in
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
