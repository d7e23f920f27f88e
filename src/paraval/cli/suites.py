"""Loading a suite without letting its modules print among our data, and which suite of the store is
meant.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from paraval import Suite
from paraval.errors import RequestError, SuiteError
from paraval.records import RunInfo
from paraval.runner.run import load_suite
from paraval.store.store import Store
from paraval.text.suggest import nearest
from paraval.text.terminal import one_line
from paraval.text.words import some


def suite_from(path: Path) -> Suite:
    """The suite; what its modules print while they are imported goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return load_suite(path)
    except SuiteError:
        # Only here: suites need nothing of it.
        from paraval.racing.file.short_forms import is_race_file  # noqa: PLC0415 - see above

        if is_race_file(path):
            raise RequestError(
                f"{path} is a race, not a suite",
                hint=f"race it with: paraval race {shlex.quote(str(path))}",
            ) from None
        raise


# Which suite of the store is meant: by its file or by its name.

_MOST_NAMED = 5
_LONGEST_NAME = 60


def suite_named(text: str, runs: Sequence[RunInfo], store: Store) -> str:
    """The name that its runs have; RequestError where there are none.

    A file that runs were made from is not loaded: it may import anything, and may be broken by now.
    """
    names = [run.suite for run in runs]
    if _is_file(text):
        source = os.path.normpath(Path.cwd() / text)
        made = [run.suite for run in runs if run.source == source]
        name = made[0] if made else suite_from(Path(text)).name
    else:
        name = text
    if name in names:
        return name
    raise RequestError(
        f"there is no run of a suite '{one_line(name, _LONGEST_NAME)}' in {store.root}",
        hint=_what_there_is(name, names),
    )


def named_suites(names: Iterable[str]) -> str:
    """`'a', 'b' and 3 more`."""
    distinct = dict.fromkeys(names)
    return some([f"'{one_line(name, _LONGEST_NAME)}'" for name in distinct], _MOST_NAMED)


def _what_there_is(name: str, names: Sequence[str]) -> str:
    if not names:
        return "it has no runs yet; start one: paraval run SUITE"
    near = nearest(name, names)
    if near:
        return f"did you mean '{one_line(near[0], _LONGEST_NAME)}'?"
    return f"it has runs of {named_suites(names)}"


def _is_file(text: str) -> bool:
    # A name that no file system takes is none of a file.
    with contextlib.suppress(OSError, ValueError):
        return Path(text).is_file()
    return False
