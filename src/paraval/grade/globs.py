"""Whether a path fits a glob, as git's ignore files have them.

A glob without a slash fits any part of the path; one with a slash begins at the top. `**` stands
for any number of folders, and a folder stands for all that is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase


def fits_any(path: str, globs: Iterable[str]) -> bool:
    return any(fits(path, glob) for glob in globs)


def fits(path: str, glob: str) -> bool:
    """Whether the path, or a folder that it is in, is what the glob says."""
    parts = path.split("/")
    written = glob.removeprefix("./")
    # What ends in a slash is a folder, and so never the last part of a file's path.
    below = parts[:-1] if written.endswith("/") else parts
    steps = [step for step in written.split("/") if step]
    if steps and "/" not in written.rstrip("/"):
        steps = ["**", *steps]
    return bool(steps) and _leads_into(below, steps)


def _leads_into(parts: Sequence[str], steps: Sequence[str]) -> bool:
    """Whether the steps use themselves up on a beginning of the parts.

    Reached positions are a set that moves on: many `**` on a long path cost no more than a table.
    """
    reached = {0}
    for number, step in enumerate(steps):
        if step == "**":
            # At the end, it is all that is in the folder, and not the folder itself.
            least = min(reached) + (number == len(steps) - 1)
            reached = set(range(least, len(parts) + 1))
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(parts) and fnmatchcase(parts[place], step)
            }
        if not reached:
            return False
    return True
