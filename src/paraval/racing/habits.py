"""What the tests do to protected files with the baseline too: held against no candidate.

Tests that write beside themselves do so under names that are others in every run. What the
baseline's two runs do between them is a habit of the tests; where the two differ, so may a third.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from paraval.racing.leavings import without_made_up
from paraval.racing.request import SETTINGS_FILES, STARTUP_MODULES

_DONE = re.compile(r"(?P<did>added|changed|deleted) (?P<path>.+) while it ran", re.DOTALL)
_ADDED = "added"
PUT_BACK = ", and put it back"
"""How a flag ends that tells of a file that is again what it was."""
_PYTHON = ".py"
_HEARD_BY_NAME = frozenset((*SETTINGS_FILES, *(f"{name}.py" for name in STARTUP_MODULES)))
"""No name that somebody makes up: what is called like this changes what tests do."""


def unusual(flags: Sequence[str], habits: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Of a candidate's flags, those that none of the baseline's runs explains; `habits`: the flags
    of each of these."""
    known = [{_normal(flag) for flag in run} for run in habits]
    usual = set[str]().union(*known)
    always = set.intersection(*known) if known else set()
    varying = {_kind(flag) for run in habits for flag in run if _normal(flag) not in always}
    return tuple(flag for flag in flags if not _is_explained(flag, usual, varying))


def _is_explained(flag: str, usual: set[str], varying: set[str]) -> bool:
    """To change a file is to do more than to put it back as well."""
    forms = (flag, flag.removesuffix(PUT_BACK))
    return any(_normal(form) in usual or _kind(form) in varying for form in forms)


def _normal(flag: str) -> str:
    """Without what is made up in the name of a new file; those that were there have their own."""
    found = _DONE.fullmatch(flag)
    if found is None or found["did"] != _ADDED:
        return flag
    return f"{_ADDED} {without_made_up(found['path'])}"


def _kind(flag: str) -> str:
    """The same for files of one folder and one ending, to which the same was done."""
    found = _DONE.fullmatch(flag)
    if found is None:
        return flag
    folder, name = posixpath.split(found["path"])
    ending = posixpath.splitext(name)[1]
    if name in _HEARD_BY_NAME or (ending == _PYTHON and found["did"] != _ADDED):
        return flag
    return f"{found['did']} {without_made_up(folder)}/*{ending}"
