"""Checks names of candidates, and resolves paths, globs and commits."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import Repository, names_of_refs, resolve
from paraval.racing.steps import BASELINE
from paraval.text.suggest import nearest

LONGEST_NAME = 100
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control and format characters, surrogates, line separators."""

_DIGITS = re.compile(r"[0-9]{1,100}")
"""Bounded, because Python refuses to parse thousands of digits."""


def why_no_name(name: str) -> str | None:
    """Why this is not a valid candidate name; None if it is."""
    if not name.strip():
        return "a name cannot be empty"
    if len(name) > LONGEST_NAME:
        return f"a name has at most {LONGEST_NAME} characters, not {len(name):,}"
    if any(unicodedata.category(character) in _UNSHOWN for character in name):
        return f"a name cannot contain control characters: {name!a}"
    if name.casefold() == BASELINE:
        return f"'{name}' is reserved for the unmodified repository; choose another name"
    return None


def natural_order(path: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key: `a2` comes before `a10`, and `heap.patch` before `heap-again.patch`."""
    name, ending = os.path.splitext(path)  # noqa: PTH122 - of texts, empty ones too
    numbered = [
        (0, int(part), "") if _DIGITS.fullmatch(part) else (1, 0, part)
        for part in re.split(r"(\d+)", name)
    ]
    return numbered, ending


# A candidate may be given as a path, a glob, or a commit of the repository.


def path_of(text: str, folder: Path) -> str | None:
    """The absolute path or glob for a text; None if it matches nothing."""
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
    """The paths that match a glob, in natural order."""
    # Path.glob takes no absolute pattern, and matches hidden files.
    return sorted(glob.glob(pattern, recursive=True), key=natural_order)  # noqa: PTH207 - see above


def is_commit(repository: Repository, text: str) -> bool:
    try:
        resolve(repository, text)
    except (ParavalError, ValueError):  # the latter for a NUL
        return False
    return True


def near_misses(text: str, folder: Path, repository: Repository) -> str:
    """`, did you mean 'candidates/heap.patch'?`; empty if nothing is similar."""
    if "\0" in text or glob.has_magic(text):
        return ""
    beside = Path(text).parent
    try:
        known = [str(beside / one.name) for one in (folder / beside).iterdir()]
    except OSError:
        known = []
    near = nearest(text, [*known, *names_of_refs(repository)])
    return f", did you mean '{near[0]}'?" if near else ""
