"""Loading a suite without letting its modules print among our data."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path

from paraval import Suite
from paraval.composition import load_suite
from paraval.errors import RequestError, SuiteError


def suite_from(path: Path) -> Suite:
    """The suite; what its modules print while they are imported goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return load_suite(path)
    except SuiteError:
        # Only here: suites need nothing of it.
        from paraval.racing.file_kinds import is_race_file  # noqa: PLC0415 - see above

        if is_race_file(path):
            raise RequestError(
                f"{path} is a race, not a suite",
                hint=f"race it with: paraval race {shlex.quote(str(path))}",
            ) from None
        raise
