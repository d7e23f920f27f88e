"""What candidates are called, and what they are named by: a path, a glob or a commit."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import Repository, names_of_refs, resolve
from paraval.racing.course.steps import BASELINE
from paraval.text.suggest import nearest

LONGEST_NAME = 100
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, those that turn or hide text, halves of characters, ends of lines."""

_DIGITS = re.compile(r"[0-9]{1,100}")
"""Python reads no numbers of some thousand digits."""


def why_no_name(name: str) -> str | None:
    """Why a candidate cannot be called so; None where it can."""
    if not name.strip():
        return "a name cannot be empty"
    if len(name) > LONGEST_NAME:
        return f"a name has at most {LONGEST_NAME} characters, not {len(name):,}"
    if any(unicodedata.category(character) in _UNSHOWN for character in name):
        return f"a name holds no control characters: {name!a}"
    if name.casefold() == BASELINE:
        return f"'{name}' is what the repository as it is is called; choose another name"
    return None


def natural_order(path: str) -> tuple[list[tuple[int, int, str]], str]:
    """A key to sort by: `a2` comes before `a10`, and `heap.patch` before `heap-again.patch`."""
    name, ending = os.path.splitext(path)  # noqa: PTH122 - of texts, empty ones too
    numbered = [
        (0, int(part), "") if _DIGITS.fullmatch(part) else (1, 0, part)
        for part in re.split(r"(\d+)", name)
    ]
    return numbered, ending


# What a candidate is named by: a path, a glob over paths, or a commit of the repository.


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
