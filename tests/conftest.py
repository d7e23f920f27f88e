"""What the tests share: a folder of their own, and small suites in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.forked import Forks

pytest.register_assert_rewrite("tests.golden_kit")
# An example that takes long tells of a busy machine, and of nothing else.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")
# Hundreds of tests start the program: to compile it each time anew would take minutes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# How wide a report is set must not hang on who runs the tests: pytest's workers set it, too.
os.environ.pop("COLUMNS", None)
# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Nor may they write to the page of a job of GitHub's that runs them; tests of that set these.
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
    os.environ.pop(name, None)

HANGS_AFTER_S = 250
"""A command that takes longer hangs: no busy machine takes so long."""

WriteSuite = Callable[..., Path]
Paraval = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARAVAL_STORE", raising=False)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> WriteSuite:
    """Writes a file into the folder, without the indentation that it has in the test."""

    def write_file(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def paraval(folder: Path, forks: Forks) -> Paraval:
    """Runs the command in the folder, as a user would."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        options.setdefault("timeout", HANGS_AFTER_S)
        cwd = options.pop("cwd", folder)
        env = {**os.environ, "NO_COLOR": "1", **options.pop("env", {})}
        if set(options) == {"timeout"}:
            forked = forks.run(arguments, folder=cwd, env=env, timeout=options["timeout"])
            if forked is not None:
                return forked
        return subprocess.run(
            [sys.executable, "-m", "paraval", *arguments],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    return run
