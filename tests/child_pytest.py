"""pytest in a process of its own, as a user starts it, whatever is set or installed here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLUGIN = "paraval.pytest_plugin.plugin"
_OURS = ("PARALLEL_WORKERS", "TEST_MODELS", "PARAVAL_STORE", "CI")


def run_pytest(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """With our plugin alone, and no cache: the others that are installed cost half of the time."""
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    return run_python(
        folder, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", *arguments, **alone
    )


def run_pytest_with_all(
    folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """With every plugin that is installed, but for the one that shuffles."""
    flags = ("-p", "no:randomly", "-p", "no:cacheprovider")
    return run_python(folder, "-m", "pytest", *flags, *arguments, **variables)


def run_python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The folder's own modules can be imported. Lines are wide, unless COLUMNS says how wide."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST") and name not in _OURS
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, "COLUMNS": "160", "PYTHONPATH": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
