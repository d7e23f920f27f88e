"""Loading a suite without letting its modules print among our data."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from paraval import Suite
from paraval.composition import load_suite


def suite_from(path: Path) -> Suite:
    """The suite; what its modules print while they are imported goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        return load_suite(path)
