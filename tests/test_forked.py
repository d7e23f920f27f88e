"""Commands of the tests are forks of a process that is loaded: nobody may be able to tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paraval.cli.main import COMMANDS
from tests.forked import Forks


def test_a_fork_ends_and_says_what_a_new_process_does(folder: Path, forks: Forks) -> None:
    arguments = ("run", "no-such-suite.yaml", "--repeats", "none")
    env = {**os.environ, "NO_COLOR": "1"}
    forked = forks.run(arguments, folder=folder, env=env, timeout=60)
    anew = subprocess.run(
        [sys.executable, "-m", "paraval", *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert forked is not None
    assert "Usage: python -m paraval run" in anew.stderr
    for name in ("returncode", "stdout", "stderr"):
        assert getattr(forked, name) == getattr(anew, name)


def test_what_counts_only_at_the_start_is_left_to_a_new_process(folder: Path, forks: Forks) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert forks.run(("runs",), folder=folder, env=env, timeout=60) is None


def test_one_that_takes_too_long_is_killed(folder: Path, forks: Forks) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run(("loopback",), folder=folder, env=dict(os.environ), timeout=0.1)
    ended = forks.run(("--version",), folder=folder, env=dict(os.environ), timeout=60)
    assert ended is not None
    assert ended.returncode == 0


# Packages that are not ours are loaded once for all: they are half of the time.
ALONE = """
import asyncio, os, sqlite3, ssl, sys
import click, pydantic, yaml
import pydantic.main, pydantic._internal._generate_schema
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        __import__(f"paraval.cli.commands.{name}")
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} cannot be loaded alone")
"""


def test_every_command_can_be_loaded_alone() -> None:
    """What one of them forgets to import must not be there because of another."""
    modules = sorted({module for module, _ in COMMANDS.values()})
    ended = subprocess.run([sys.executable, "-c", ALONE, *modules], check=False)
    assert ended.returncode == 0
