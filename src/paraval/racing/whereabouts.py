"""What a candidate is named by: a path, a glob over paths, or a commit of the repository.

A path goes before a ref of the same name.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import Repository, names_of_refs, resolve
from paraval.plan.places import nearest
from paraval.racing.names import natural_order


def path_of(text: str, folder: Path) -> str | None:
    """What a text names as a path or a glob, absolute; None where nothing is there."""
    if "\0" in text:
        return None
    path = os.path.normpath(folder / text)
    if os.path.lexists(path):
        return path
    if not glob.has_magic(text):
        return None
    pattern = text if Path(text).is_absolute() else f"{glob.escape(str(folder))}/{text}"
    return pattern if fitting(pattern) else None


def fitting(pattern: str) -> list[str]:
    """The paths that a glob fits, in the order that people count in."""
    # Path.glob takes no absolute pattern, and finds hidden files too.
    return sorted(glob.glob(pattern, recursive=True), key=natural_order)  # noqa: PTH207 - see above


def is_commit(repository: Repository, text: str) -> bool:
    try:
        resolve(repository, text)
    except (ParavalError, ValueError):  # the latter for a NUL
        return False
    return True


def near_misses(text: str, folder: Path, repository: Repository) -> str:
    """`, did you mean 'candidates/heap.patch'?`; empty where nothing is like it."""
    if "\0" in text or glob.has_magic(text):
        return ""
    beside = Path(text).parent
    try:
        known = [str(beside / one.name) for one in (folder / beside).iterdir()]
    except OSError:
        known = []
    near = nearest(text, [*known, *names_of_refs(repository)])
    return f", did you mean '{near[0]}'?" if near else ""
