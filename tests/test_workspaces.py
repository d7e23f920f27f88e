"""Workspaces: a place of its own for each attempt, clean at its start, and told of at its end."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paraval.errors import ParavalError
from paraval.git.repositories import find_repository
from paraval.git.snapshots import snapshot_tree
from paraval.isolation import Workspace, WorkspaceKind
from paraval.processes.children import Warden
from paraval.scratch import SCRATCH_VARIABLE, open_scratch, scratch_folder
from paraval.workspaces import patches
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.pool import Pool, SlotLease
from paraval.workspaces.slots import Slot
from paraval.workspaces.workspace import WorkspaceError

from .test_git import fingerprint, git

T = TypeVar("T")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
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


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    with scratch_folder() as opened:
        yield opened.folder
        assert [path.name for path in opened.folder.iterdir()] == ["owner.lock"]
    assert not list((tmp_path / "scratch").iterdir())


@pytest.fixture
def kept_in(tmp_path: Path) -> str:
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
    workspace: Workspace, scratch: Path, *works: Callable[[SlotLease], Coroutine[Any, Any, T]]
) -> list[T]:
    """What each brings, one after the other in the same slot."""
    brought = []
    async with opened(workspace, scratch) as pool:
        for work in works:
            lease = await pool.lease()
            brought.append(await work(lease))
            await lease.release()
    return brought


# ---- what an attempt sees


def test_a_worktree_is_what_was_committed_and_git_works_in_it(
    repository: Path, scratch: Path
) -> None:
    async def look(lease: SlotLease) -> None:
        top = Path(lease.top)
        assert contents(top) == contents(repository)
        assert git(top, "status", "--porcelain", "--ignored") == ""
        assert git(top, "log", "--format=%s") == "first"
        assert git(top, "rev-parse", "--abbrev-ref", "HEAD") == "main"
        git(top, "checkout", "-qb", "mine")
        (top / "a.txt").write_text("other\n")
        git(top, "commit", "-qam", "mine")
        git(top, "fsck")

    run(attempts(worktrees(repository), scratch, look))


def test_attempts_begin_where_the_suite_says(repository: Path, scratch: Path) -> None:
    async def look(lease: SlotLease) -> str:
        return lease.path.removeprefix(lease.top)

    assert run(attempts(worktrees(repository, start="src"), scratch, look)) == ["/src"]
    with pytest.raises(WorkspaceError, match="no folder 'nowhere'"):
        run(attempts(worktrees(repository, start="nowhere"), scratch, look))


def test_the_working_tree_as_it_is_if_the_suite_asks_for_it(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    (repository / "a.txt").write_text("not committed\n")
    (repository / "new.txt").write_text("new\n")
    (repository / "x.log").write_text("ignored\n")
    tree = snapshot_tree(find_repository(repository))
    workspace = worktrees(repository, uncommitted=True, tree=tree)

    async def look(lease: SlotLease) -> None:
        top = Path(lease.top)
        assert (top / "a.txt").read_text() == "not committed\n"
        assert (top / "new.txt").exists()
        assert not (top / "x.log").exists()
        assert git(top, "status", "--porcelain") == ""
        (top / "new.txt").write_text("newer\n")
        kept = await lease.keep(kept_in)
        assert [file.path for file in kept.change.files] == ["new.txt"]

    run(attempts(workspace, scratch, look))
    (repository / "a.txt").write_text("changed after planning\n")
    with pytest.raises(WorkspaceError, match="has changed since the run was planned"):
        run(attempts(workspace, scratch, look))


def test_nothing_of_the_users_repository_is_touched_by_a_run(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    (repository / "untracked.txt").write_text("mine\n")
    before = fingerprint(repository)

    async def work(lease: SlotLease) -> None:
        top = Path(lease.top)
        (top / "a.txt").write_text("edited\n")
        # The same content is among the user's objects already.
        shutil.copy(top / "src" / "b.py", top / "copy.py")
        await lease.keep(kept_in)

    run(attempts(worktrees(repository, uncommitted=True), scratch, work, work, work))
    run(attempts(worktrees(repository), scratch, work, work))
    assert fingerprint(repository) == before


# ---- clean before each lease


def _edits(top: Path) -> None:
    (top / "a.txt").write_text("one\nTWO\n")


def _same_size_and_time(top: Path) -> None:
    found = (top / "a.txt").stat()
    (top / "a.txt").write_text("eno\nowt\n")
    os.utime(top / "a.txt", ns=(found.st_atime_ns, found.st_mtime_ns))


def _file_for_folder(top: Path) -> None:
    shutil.rmtree(top / "src")
    (top / "src").write_text("a file\n")


def _folder_for_file(top: Path) -> None:
    (top / "a.txt").unlink()
    (top / "a.txt" / "deep").mkdir(parents=True)
    (top / "a.txt" / "deep" / "x").write_text("x")


def _link_for_folder(top: Path) -> None:
    (top / "src").rename(top / "moved")
    (top / "src").symlink_to("/etc")


def _modes(top: Path) -> None:
    (top / "src").chmod(0o700)
    (top / "src" / "run.sh").chmod(0o644)
    (top / "a.txt").chmod(0o600)
    top.chmod(0o777)


def _shut(top: Path) -> None:
    (top / "new" / "inner").mkdir(parents=True)
    (top / "new" / "inner" / "x").write_text("x")
    (top / "new" / "inner").chmod(0)
    (top / "src").chmod(0)


def _special(top: Path) -> None:
    os.mkfifo(top / "src" / "pipe")
    (top / "empty" / "empty").mkdir(parents=True)
    (top / "loop").symlink_to("loop")


def _repository_within(top: Path) -> None:
    (top / "within").mkdir()
    git(top / "within", "init", "-q")
    (top / "within" / "x").write_text("x")


def _ignored(top: Path) -> None:
    (top / "build").mkdir()
    (top / "build" / "x").write_text("x")
    (top / "x.log").write_text("x")
    (top / ".gitignore").write_text("*\n")


def _commits(top: Path) -> None:
    (top / "a.txt").write_text("committed\n")
    git(top, "commit", "-qam", "committed")
    git(top, "tag", "mine")
    git(top, "config", "core.hooksPath", "/tmp")


def _git_is_gone(top: Path) -> None:
    shutil.rmtree(top / ".git")


def _beside(top: Path) -> None:
    (top.parent / "notes").mkdir()
    (top.parent / "notes" / "x").write_text("for the next one")


def _names(top: Path) -> None:
    for name in (b"line\nend", b'"quoted"', b"\xff\xfe", b"-rf", b" "):
        (top / os.fsdecode(name)).write_text("x")


def _all_gone(top: Path) -> None:
    shutil.rmtree(top)


def _replaced(top: Path) -> None:
    top.rename(top.parent / "old")
    top.symlink_to("/etc")


DIRT = [
    *(_edits, _same_size_and_time, _file_for_folder, _folder_for_file, _link_for_folder, _modes),
    *(_shut, _special, _repository_within, _ignored, _commits, _git_is_gone, _beside, _names),
    *(_all_gone, _replaced),
]


@pytest.mark.parametrize("dirt", DIRT, ids=lambda dirt: dirt.__name__.strip("_"))
def test_a_lease_is_clean_whatever_the_attempt_before_it_did(
    repository: Path, scratch: Path, kept_in: str, dirt: Callable[[Path], None]
) -> None:
    """And what it did can be asked for without an exception, before and after it is over."""

    async def soil(lease: SlotLease) -> None:
        dirt(Path(lease.top))
        kept = await lease.keep(kept_in)
        assert kept.change is not None

    async def look(lease: SlotLease) -> None:
        top = Path(lease.top)
        assert contents(top) == contents(repository)
        assert [path.name for path in top.parent.iterdir()] == [top.name]
        assert git(top, "status", "--porcelain", "--ignored") == ""
        assert (git(top, "log", "--format=%s"), git(top, "tag")) == ("first", "")
        kept = await lease.keep(kept_in)
        assert (kept.change.files_in_all, kept.change.tampering, kept.notes) == (0, (), ())

    run(attempts(worktrees(repository), scratch, soil, look, soil, look))


def test_a_submodules_folder_is_empty_and_empty_again(repository: Path, scratch: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},module")
    git(repository, "commit", "-qm", "a submodule")

    async def soil(lease: SlotLease) -> tuple[str, ...]:
        (Path(lease.top) / "module" / "x").write_text("x")
        return lease.notes

    async def look(lease: SlotLease) -> tuple[str, ...]:
        assert list((Path(lease.top) / "module").iterdir()) == []
        return lease.notes

    first, second = run(attempts(worktrees(repository), scratch, soil, look))
    assert (first, second) == (("submodules are empty folders in workspaces: module",), ())


def test_random_attempts_leave_nothing_to_the_next_one(repository: Path, scratch: Path) -> None:
    dice = random.Random(4)

    async def soil(lease: SlotLease) -> None:
        assert contents(Path(lease.top)) == contents(repository)
        for dirt in dice.sample(DIRT[:-2], 4):
            try:
                dirt(Path(lease.top))
            except (OSError, subprocess.CalledProcessError):
                continue  # One does not go with another.

    run(attempts(worktrees(repository), scratch, *[soil] * 12))


# ---- setup

SETUP = (
    *("sh", "-c"),
    "mkdir -p build && echo made > build/out && echo x >> count.log && pwd > where.log",
)


def test_what_setup_leaves_ignored_is_kept_and_it_runs_once(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    async def soil(lease: SlotLease) -> str:
        top = Path(lease.top)
        assert (top / "build" / "out").read_text() == "made\n"
        (top / "build" / "new").write_text("mine\n")
        (top / "a.txt").write_text("edited\n")
        # What was ignored is not, now; it is not the attempt's change all the same.
        (top / ".gitignore").unlink()
        kept = await lease.keep(kept_in)
        names = [file.path for file in kept.change.files]
        assert names == [".gitignore", "a.txt", "build/new"]
        return (top / "count.log").read_text()

    async def look(lease: SlotLease) -> str:
        assert not (Path(lease.top) / "build" / "new").exists()
        return (Path(lease.top) / "count.log").read_text()

    workspace = worktrees(repository, setup=SETUP)
    assert run(attempts(workspace, scratch, soil, look, look)) == ["x\n", "x\n", "x\n"]


@pytest.mark.parametrize("what", ["changed", "deleted", "folder", "mode"])
def test_what_setup_left_is_made_anew_if_an_attempt_changed_it(
    repository: Path, scratch: Path, what: str
) -> None:
    async def soil(lease: SlotLease) -> None:
        build = Path(lease.top) / "build"
        (build / "other").write_text("x")
        if what == "changed":
            (build / "out").write_text("fake\n")
        elif what == "deleted":
            (build / "out").unlink()
        elif what == "mode":
            build.chmod(0o700)
        else:
            shutil.rmtree(build)

    async def look(lease: SlotLease) -> None:
        build = Path(lease.top) / "build"
        assert [path.name for path in build.iterdir()] == ["out"]
        assert (build / "out").read_text() == "made\n"
        assert (Path(lease.top) / "count.log").read_text() == "x\n"

    run(attempts(worktrees(repository, setup=SETUP), scratch, soil, look, soil, look))


def test_what_setup_does_to_files_of_the_repository_is_undone_and_told_once(
    repository: Path, scratch: Path
) -> None:
    setup = ("sh", "-c", "echo x >> a.txt; echo x > stray.txt; echo x > y.log")

    async def look(lease: SlotLease) -> tuple[str, ...]:
        assert (Path(lease.top) / "a.txt").read_text() == "one\ntwo\n"
        assert not (Path(lease.top) / "stray.txt").exists()
        assert (Path(lease.top) / "y.log").exists()
        return lease.notes

    first, second = run(attempts(worktrees(repository, setup=setup), scratch, look, look))
    assert second == ()
    assert any("undone: a.txt" in note for note in first)
    assert any("removed: stray.txt" in note for note in first)


def test_a_setup_that_fails_is_run_once_and_told_to_all_with_its_last_words(
    repository: Path, scratch: Path, tmp_path: Path
) -> None:
    setup = ("sh", "-c", f"echo run >> {tmp_path}/runs; echo no compiler here >&2; exit 3")

    async def main() -> list[Any]:
        async with opened(worktrees(repository, setup=setup), scratch, 8) as pool:
            return await asyncio.gather(*(pool.lease() for _ in range(30)), return_exceptions=True)

    for error in run(main()):
        assert isinstance(error, WorkspaceError)
        assert "exit code 3" in str(error)
        assert "no compiler here" in str(error)
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_setup_that_hangs_is_ended_with_all_it_started(
    repository: Path, scratch: Path, tmp_path: Path
) -> None:
    setup = ("sh", "-c", f"sleep 77.25 & echo $! > {tmp_path}/pid; wait")
    workspace = worktrees(repository, setup=setup, setup_timeout=0.5)

    async def look(lease: SlotLease) -> None:
        pytest.fail("there is no workspace to be had")

    with pytest.raises(WorkspaceError, match=r"not done in 0\.5 s"):
        run(attempts(workspace, scratch, look))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


# ---- what is kept


def test_a_patch_has_all_that_was_changed_committed_or_not_and_can_be_applied(
    repository: Path, scratch: Path, kept_in: str, tmp_path: Path
) -> None:
    async def work(lease: SlotLease) -> tuple[Any, dict[str, tuple[int, bytes]]]:
        top = Path(lease.top)
        (top / "a.txt").write_text("one\nthree\nfour\n")
        git(top, "commit", "-qam", "committed")
        (top / "src" / "b.py").unlink()
        (top / "image.bin").write_bytes(bytes(300))
        (top / "new").mkdir()
        (top / "new" / os.fsdecode(b'odd\n"name"')).write_text("x\n")
        (top / "new" / "run").write_text("x")
        (top / "new" / "run").chmod(0o755)
        (top / "link").unlink()
        (top / "link").symlink_to("src")
        (top / "x.log").write_text("ignored\n")
        kept = await lease.keep(kept_in)
        (top / "x.log").unlink()
        return kept, contents(top)

    ((kept, after),) = run(attempts(worktrees(repository), scratch, work))
    change = kept.change
    assert (change.files_added, change.files_changed, change.files_deleted) == (2, 3, 1)
    assert (change.binary_files, change.lines_added, change.lines_deleted) == (1, 5, 3)
    assert [file.status for file in change.files if file.path == "src/b.py"] == ["deleted"]
    assert change.tampering == ()
    git(repository, "clone", "-q", ".", str(tmp_path / "clone"))
    assert kept.patch is not None
    git(tmp_path / "clone", "apply", kept.patch)
    assert contents(tmp_path / "clone") == after


def test_what_cannot_be_in_a_patch_is_told(repository: Path, scratch: Path, kept_in: str) -> None:
    async def work(lease: SlotLease) -> Any:
        top = Path(lease.top)
        os.mkfifo(top / "pipe")
        os.mkfifo(top / ".gitattributes")
        (top / "src" / ".gitignore").mkdir()
        (top / "a.txt").unlink()
        os.mkfifo(top / "a.txt")
        with (top / "large").open("wb") as large:
            large.truncate(11_000_000)
        _repository_within(top)
        _names(top)
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    told = "\n".join(kept.notes)
    for words in ("pipes, sockets", "wait for that pipe", "larger than 10 MB", "within/"):
        assert words in told
    by_path = {file.path: file for file in kept.change.files}
    assert by_path["a.txt"].status == "deleted"
    assert by_path["large"].is_binary
    assert "\\xff\\xfe" in by_path
    assert kept.patch is not None


def test_a_change_without_bounds_is_cut_and_counted(
    repository: Path, scratch: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "MOST_FILES", 20)
    monkeypatch.setattr(patches, "MOST_LISTED", 10)
    monkeypatch.setattr(patches, "LARGEST_PATCH_BYTES", 5_000)

    async def many(lease: SlotLease) -> Any:
        for i in range(50):
            (Path(lease.top) / f"n{i}").write_text("x\n")
        return await lease.keep(kept_in)

    async def much(lease: SlotLease) -> Any:
        for i in range(5):
            (Path(lease.top) / f"n{i}").write_text("x\n" * 1_000)
        return await lease.keep(kept_in)

    first, second = run(attempts(worktrees(repository), scratch, many, much))
    assert (first.change.files_added, len(first.change.files)) == (50, 10)
    assert first.change.lines_added == 20
    assert "30 (beyond the first 20 files)" in "".join(first.notes)
    assert second.change.files_added == 5
    assert "more than" in "".join(second.notes)
    assert Path(second.patch).stat().st_size <= 5_000


def test_an_encoding_that_git_cannot_convert_does_not_lose_the_patch(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    async def work(lease: SlotLease) -> Any:
        (Path(lease.top) / ".gitattributes").write_text("*.u working-tree-encoding=UTF-16\n")
        (Path(lease.top) / "x.u").write_bytes(b"\x00odd")
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert kept.change.files_added == 2
    assert "byte for byte" in "".join(kept.notes)


def test_line_ends_that_git_converts_are_no_change(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    (repository / "dos.txt").write_bytes(b"a\r\nb\r\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "as it is")
    (repository / ".gitattributes").write_text("* text=auto\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "from now on")

    async def work(lease: SlotLease) -> Any:
        (Path(lease.top) / "dos.txt").write_bytes(b"a\r\nb\r\nc\r\n")
        (Path(lease.top) / "a.txt").write_bytes(b"one\r\ntwo\r\n")
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert [(file.path, file.lines_added) for file in kept.change.files] == [("dos.txt", 1)]


# ---- tampering


def _set(name: str) -> Callable[[Path], Any]:
    return lambda top: git(top, "config", name, "/tmp/x")


def _put_in_hook(top: Path) -> None:
    (top / ".git" / "hooks").mkdir()
    (top / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")


def _change_alternates(top: Path) -> None:
    (top / ".git" / "objects" / "info" / "alternates").write_text("/tmp\n")


def _git_file(top: Path) -> None:
    shutil.rmtree(top / ".git")
    (top / ".git").write_text("gitdir: /tmp/x\n")


def _git_link(top: Path) -> None:
    (top / ".git").rename(top / "moved")
    (top / ".git").symlink_to("moved")


def _config_pipe(top: Path) -> None:
    (top / ".git" / "config").unlink()
    os.mkfifo(top / ".git" / "config")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (_set("core.fsmonitor"), "set core.fsmonitor in .git/config"),
        (_set("core.hooksPath"), "set core.hookspath in .git/config"),
        (_set("filter.x.clean"), "set filter.x.clean in .git/config"),
        (_set("alias.st"), "set alias.st in .git/config"),
        (_set("remote.origin.url"), "set remote.origin.url in .git/config"),
        (_set("include.path"), "set include.path in .git/config"),
        (_put_in_hook, "put in a hook: pre-commit"),
        (_change_alternates, "changed where .git takes its objects from"),
        (_git_is_gone, "deleted .git"),
        (_git_file, "replaced .git by a file"),
        (_git_link, "replaced .git by a link"),
        (_config_pipe, "deleted .git/config, or made it unreadable"),
    ],
)
def test_what_no_plain_use_of_git_does_is_tampering(
    repository: Path, scratch: Path, kept_in: str, act: Callable[[Path], Any], words: str
) -> None:
    async def work(lease: SlotLease) -> Any:
        act(Path(lease.top))
        return await lease.keep(kept_in)

    async def look(lease: SlotLease) -> Any:
        return await lease.keep(kept_in)

    first, second = run(attempts(worktrees(repository), scratch, work, look))
    assert len(first.change.tampering) == 1
    assert words in first.change.tampering[0]
    assert second.change.tampering == ()


def test_plain_use_of_git_is_no_tampering(repository: Path, scratch: Path, kept_in: str) -> None:
    async def work(lease: SlotLease) -> Any:
        top = Path(lease.top)
        git(top, "config", "user.name", "An Agent")
        (top / "a.txt").write_text("edited\n")
        git(top, "stash")
        git(top, "stash", "pop")
        git(top, "checkout", "-qb", "feature")
        git(top, "commit", "-qam", "work")
        git(top, "branch", "-m", "renamed")
        git(top, "tag", "v1")
        git(top, "gc", "-q")
        git(top, "worktree", "add", "-q", "../beside")
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert kept.change.tampering == ()
    assert kept.change.files_changed == 1


def test_nothing_that_an_attempt_configures_is_executed_by_the_engine(
    repository: Path, scratch: Path, kept_in: str, tmp_path: Path
) -> None:
    told = tmp_path / "executed"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $0 >> {told}\ncat\n")
    script.chmod(0o755)

    async def work(lease: SlotLease) -> None:
        top = Path(lease.top)
        with (top / ".git" / "config").open("a") as config:
            config.write(
                f"[core]\nfsmonitor = {script}\nhooksPath = {tmp_path}\npager = {script}\n"
            )
            config.write(f'[filter "f"]\nclean = {script}\nsmudge = {script}\n')
            config.write(f'[diff "d"]\ntextconv = {script}\ncommand = {script}\n')
        (top / ".gitattributes").write_text("* filter=f diff=d\n")
        (top / "a.txt").write_text("edited\n")
        await lease.keep(kept_in)

    run(attempts(worktrees(repository), scratch, work, work, work))
    assert not told.exists()


# ---- folders


def test_an_empty_folder_is_fresh_for_each_attempt(scratch: Path, kept_in: str) -> None:
    async def work(lease: SlotLease) -> tuple[str, Any]:
        assert contents(Path(lease.path)) == {}
        (Path(lease.path) / "answer.txt").write_text("42\n")
        return lease.path, await lease.keep(kept_in)

    workspace = Workspace(kind=WorkspaceKind.FOLDER)
    (first, kept), (second, _) = run(attempts(workspace, scratch, work, work))
    assert first != second
    assert (kept.change.files_added, kept.change.lines_added) == (1, 1)
    assert Path(kept.patch).read_text().startswith("diff --git a/answer.txt b/answer.txt\nnew file")


def test_a_folder_is_a_copy_of_its_template_down_to_permissions_and_links(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    (repository / "x.log").write_text("ignored by git, and in the template all the same\n")
    (repository / "empty").mkdir()
    (repository / "private").mkdir(mode=0o700)
    (repository / "dos.txt").write_bytes(b"a\r\n")
    (repository / ".gitattributes").write_text("* text=auto\n")
    (repository / "within").mkdir()
    git(repository / "within", "init", "-q")
    (repository / "within" / "x").write_text("x\n")
    expected = contents(repository)
    for path in list(expected):
        if path.startswith("within/.git"):
            del expected[path]

    async def work(lease: SlotLease) -> Any:
        top = Path(lease.top)
        assert contents(top) == expected
        assert not (top / ".git").exists()
        (top / "dos.txt").write_bytes(b"a\r\nb\r\n")
        (top / "x.log").unlink()
        (top / "within" / "x").write_text("y\n")
        return await lease.keep(kept_in)

    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(repository))
    kept, _ = run(attempts(workspace, scratch, work, work))
    assert [(file.path, file.status) for file in kept.change.files] == [
        ("dos.txt", "changed"),
        ("within/x", "changed"),
        ("x.log", "deleted"),
    ]
    assert (kept.change.lines_added, kept.notes) == (2, ())
    assert contents(repository).items() >= expected.items()


def test_a_template_that_cannot_be_copied_is_refused_at_once(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "template").mkdir()
    os.mkfifo(tmp_path / "template" / "pipe")

    async def work(lease: SlotLease) -> None:
        pytest.fail("there is no workspace to be had")

    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(tmp_path / "template"))
    with pytest.raises(ParavalError, match=r"pipe is no plain file"):
        run(attempts(workspace, scratch, work))


# ---- the pool


@pytest.mark.parametrize("at_most", [1, 2])
def test_there_are_never_more_than_asked_for_and_who_comes_first_is_served_first(
    repository: Path, scratch: Path, at_most: int
) -> None:
    async def main() -> tuple[list[int], set[str], int]:
        order: list[int] = []
        tops: set[str] = set()
        now = most = 0

        async def attempt(number: int) -> None:
            nonlocal now, most
            lease = await pool.lease()
            order.append(number)
            now += 1
            most = max(most, now)
            tops.add(lease.top)
            (Path(lease.top) / "a.txt").write_text(f"{number}\n")
            await asyncio.sleep(0.01)
            assert (Path(lease.top) / "a.txt").read_text() == f"{number}\n"
            now -= 1
            await lease.release()
            await lease.release()  # Once is enough, twice does no harm.

        async with opened(worktrees(repository), scratch, at_most) as pool:
            await asyncio.gather(*(attempt(number) for number in range(50)))
        return order, tops, most

    order, tops, most = run(main())
    assert (most, len(tops)) == (at_most, at_most)
    assert sorted(order) == list(range(50))
    # Two are made ready at once, and the second may be ready first.
    assert at_most > 1 or order == sorted(order)


def test_a_cancelled_lease_loses_no_slot_wherever_it_is_cancelled(
    repository: Path, scratch: Path
) -> None:
    async def main() -> None:
        async def attempt() -> None:
            lease = await pool.lease()
            try:
                (Path(lease.top) / "y.log").unlink()
                await asyncio.sleep(0.005)
            finally:
                await lease.release()

        setup = ("sh", "-c", "sleep 0.02; echo x > y.log")
        async with opened(worktrees(repository, setup=setup), scratch, 2) as pool:
            for step in range(25):
                tasks = [asyncio.create_task(attempt()) for _ in range(4)]
                await asyncio.sleep(step * 0.004)
                for task in tasks[: 1 + step % 4]:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
            # Both are still there to be had.
            first, second = await asyncio.gather(pool.lease(), pool.lease())
            assert first.top != second.top
            await first.release()
            await second.release()

    run(main())


def test_a_slot_that_cannot_be_made_lowers_the_pool_and_does_not_end_the_run(
    repository: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Slot.make

    def make_some(slot: Slot) -> None:
        if slot.place.number % 2 == 0:
            raise OSError(28, "No space left on device")
        make(slot)

    monkeypatch.setattr(Slot, "make", make_some)

    async def main() -> set[str]:
        tops: set[str] = set()

        async def attempt() -> None:
            lease = await pool.lease()
            tops.add(lease.top)
            await asyncio.sleep(0.001)
            await lease.release()

        async with opened(worktrees(repository), scratch, 6) as pool:
            await asyncio.gather(*(attempt() for _ in range(30)))
        return tops

    assert 1 <= len(run(main())) <= 3


def test_only_when_no_slot_can_be_made_at_all_is_it_an_error(
    repository: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Slot.make
    is_full = True

    def make_none(slot: Slot) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        make(slot)

    monkeypatch.setattr(Slot, "make", make_none)

    async def main() -> None:
        nonlocal is_full
        async with opened(worktrees(repository), scratch, 4) as pool:
            ends = await asyncio.gather(*(pool.lease() for _ in range(9)), return_exceptions=True)
            for error in ends:
                assert isinstance(error, WorkspaceError)
                assert "No space left" in str(error)
            is_full = False
            lease = await pool.lease()
            await lease.release()

    run(main())


def test_a_commit_whose_objects_are_missing_is_told_as_that(
    repository: Path, scratch: Path
) -> None:
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    async def work(lease: SlotLease) -> None:
        pytest.fail("there is no workspace to be had")

    with pytest.raises(WorkspaceError, match="objects are missing"):
        run(attempts(worktrees(repository), scratch, work))


def test_closing_ends_what_waits_and_what_is_being_made(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    async def main() -> None:
        setup = ("sleep", "60")
        async with opened(worktrees(repository, setup=setup), scratch, 1) as pool:
            waiting = [asyncio.create_task(pool.lease()) for _ in range(3)]
            await asyncio.sleep(0.3)
            started = time.monotonic()
            await pool.close()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert time.monotonic() - started < 20
            assert all(isinstance(end, WorkspaceError) for end in ends)
            with pytest.raises(WorkspaceError, match="the run is over"):
                await pool.lease()

    run(main())

    async def late() -> None:
        async with opened(worktrees(repository), scratch, 1) as pool:
            lease = await pool.lease()
        assert "nothing is kept" in (await lease.keep(kept_in)).notes[0]
        await lease.release()

    run(late())


def left_after_clearing(base: Path) -> list[Path]:
    """A git that the dead engine had started may go on for a moment, and then all is cleared."""
    deadline = time.monotonic() + 20
    while True:
        scratch = open_scratch()
        left = [path for path in base.iterdir() if path != scratch.folder]
        scratch.close()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def test_an_engine_that_is_killed_leaves_nothing_that_the_next_one_does_not_clear(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from paraval.isolation import Workspace, WorkspaceKind
        from paraval.processes.children import Warden
        from paraval.scratch import open_scratch
        from paraval.workspaces.opening import open_workspaces

        async def main():
            scratch = open_scratch()
            workspace = Workspace(kind=WorkspaceKind.GIT, source=sys.argv[1])
            async with Warden() as warden, open_workspaces(
                workspace, scratch=scratch.folder, warden=warden, at_most=3
            ) as pool:
                async def attempts():
                    while True:
                        lease = await pool.lease()
                        Path(lease.top, "new.txt").write_text("new")
                        await lease.keep(str(scratch.folder))
                        await lease.release()
                        print("leased", flush=True)
                await asyncio.gather(*(attempts() for _ in range(4)))

        asyncio.run(main())
    """)
    before = fingerprint(repository)
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(base))
    for count in (1, 3, 7):
        engine = subprocess.Popen(
            [sys.executable, "-c", script, str(repository)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with engine:
            assert engine.stdout is not None
            for _ in range(count):
                assert engine.stdout.readline() == b"leased\n"
            os.kill(engine.pid, signal.SIGKILL)
        assert len(list(base.iterdir())) == 1
        assert left_after_clearing(base) == []
    assert fingerprint(repository) == before
