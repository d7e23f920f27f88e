"""Small git repositories and programs that do nothing, for suites that ask for them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SIGNED = {
    f"GIT_{who}_{what}": "test@localhost"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def run_git(folder: Path, *arguments: str) -> str:
    env = {
        **os.environ,
        **_SIGNED,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(folder: Path) -> str:
    """A repository with one commit of what is in the folder; tells the commit."""
    run_git(folder, "init", "-q", "-b", "main")
    return commit_all(folder)


def commit_all(folder: Path) -> str:
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "--allow-empty", "-m", "as it is")
    return run_git(folder, "rev-parse", "HEAD")


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A PATH with programs of these names that do nothing, and git, make and pytest."""
    for name in (*names, "make", "pytest"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    git = shutil.which("git")
    assert git is not None
    if not (folder / "git").exists():
        (folder / "git").symlink_to(git)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
