"""What the tests of workspaces share: a repository, a scratch folder, and attempts in them."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paraval.processes.children import Warden
from paraval.records import Workspace, WorkspaceKind
from paraval.scratch import SCRATCH_VARIABLE, scratch_folder
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.pool import Pool
from paraval.workspaces.workspace import Lease

T = TypeVar("T")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@localhost")
    argv = ["git", "-C", str(folder), *identity, "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def fingerprint(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file's contents, permissions and time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


@pytest.fixture(name="repository")
def repository_fixture(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.log\nbuild/\n__pycache__/\n")
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("print('b')\n")
    (folder / "src" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "src" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    (folder / "image.bin").write_bytes(bytes(range(256)))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture(name="scratch")
def scratch_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    with scratch_folder() as opened:
        yield opened.folder
        assert [path.name for path in opened.folder.iterdir()] == ["owner.lock"]
    assert not list((tmp_path / "scratch").iterdir())


@pytest.fixture(name="kept_in")
def kept_in_fixture(tmp_path: Path) -> str:
    return str(tmp_path / "kept")


def worktrees(repository: Path, **asked: Any) -> Workspace:
    return Workspace(kind=WorkspaceKind.GIT, source=str(repository), **asked)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


@asynccontextmanager
async def opened(workspace: Workspace, scratch: Path, at_most: int = 1) -> AsyncIterator[Pool]:
    async with (
        Warden() as warden,
        open_workspaces(workspace, scratch=scratch, warden=warden, at_most=at_most) as pool,
    ):
        yield pool


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All but `.git`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not (name == ".git" or name.startswith(".git/")):
            status = path.lstat()
            is_file = stat.S_ISREG(status.st_mode)
            found[name] = (status.st_mode, path.read_bytes() if is_file else b"")
    return found


async def attempts(
    workspace: Workspace, scratch: Path, *works: Callable[[Lease], Coroutine[Any, Any, T]]
) -> list[T]:
    """What each brings, one after the other in the same slot."""
    brought = []
    async with opened(workspace, scratch) as pool:
        for work in works:
            lease = await pool.lease()
            brought.append(await work(lease))
            await lease.release()
    return brought


# ---- what attempts do to their workspace


def edits(top: Path) -> None:
    (top / "a.txt").write_text("one\nTWO\n")


def same_size_and_time(top: Path) -> None:
    found = (top / "a.txt").stat()
    (top / "a.txt").write_text("eno\nowt\n")
    os.utime(top / "a.txt", ns=(found.st_atime_ns, found.st_mtime_ns))


def file_for_folder(top: Path) -> None:
    shutil.rmtree(top / "src")
    (top / "src").write_text("a file\n")


def folder_for_file(top: Path) -> None:
    (top / "a.txt").unlink()
    (top / "a.txt" / "deep").mkdir(parents=True)
    (top / "a.txt" / "deep" / "x").write_text("x")


ELSEWHERE = Path(tempfile.mkdtemp(prefix="elsewhere-"))
"""Where the links lead that attempts leave. Nothing of the machine's own: what is done to a link
next is done to that, and whoever runs the tests may be root."""
atexit.register(shutil.rmtree, ELSEWHERE, ignore_errors=True)


def link_for_folder(top: Path) -> None:
    (top / "src").rename(top / "moved")
    (top / "src").symlink_to(ELSEWHERE)


def other_modes(top: Path) -> None:
    (top / "src").chmod(0o700)
    (top / "src" / "run.sh").chmod(0o644)
    (top / "a.txt").chmod(0o600)
    top.chmod(0o777)


def shut_folders(top: Path) -> None:
    (top / "new" / "inner").mkdir(parents=True)
    (top / "new" / "inner" / "x").write_text("x")
    (top / "new" / "inner").chmod(0)
    (top / "src").chmod(0)


def special_files(top: Path) -> None:
    os.mkfifo(top / "src" / "pipe")
    (top / "empty" / "empty").mkdir(parents=True)
    (top / "loop").symlink_to("loop")


def repository_within(top: Path) -> None:
    (top / "within").mkdir()
    git(top / "within", "init", "-q")
    (top / "within" / "x").write_text("x")


def ignored_files(top: Path) -> None:
    (top / "build").mkdir()
    (top / "build" / "x").write_text("x")
    (top / "x.log").write_text("x")
    (top / ".gitignore").write_text("*\n")


def commits(top: Path) -> None:
    (top / "a.txt").write_text("committed\n")
    git(top, "commit", "-qam", "committed")
    git(top, "tag", "mine")
    git(top, "config", "core.hooksPath", "/tmp")


def git_is_gone(top: Path) -> None:
    shutil.rmtree(top / ".git")


def beside(top: Path) -> None:
    (top.parent / "notes").mkdir()
    (top.parent / "notes" / "x").write_text("for the next one")


def odd_names(top: Path) -> None:
    for name in (b"line\nend", b'"quoted"', b"\xff\xfe", b"-rf", b" "):
        (top / os.fsdecode(name)).write_text("x")


def workspace_gone(top: Path) -> None:
    shutil.rmtree(top)


def workspace_replaced(top: Path) -> None:
    top.rename(top.parent / "old")
    top.symlink_to(ELSEWHERE)


DIRT = [
    *(edits, same_size_and_time, file_for_folder, folder_for_file, link_for_folder, other_modes),
    *(
        shut_folders,
        special_files,
        repository_within,
        ignored_files,
        commits,
        git_is_gone,
        beside,
        odd_names,
    ),
    *(workspace_gone, workspace_replaced),
]
