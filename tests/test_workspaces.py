"""Workspaces: a place of its own for each attempt, clean at its start whatever was before."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import ParavalError
from paraval.git.folders import folder_tree
from paraval.git.repositories import find_repository
from paraval.git.snapshots import snapshot_tree
from paraval.records import Workspace, WorkspaceKind
from paraval.workspaces.workspace import Lease, WorkspaceError

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    DIRT,
    ELSEWHERE,
    attempts,
    contents,
    fingerprint,
    git,
    kept_in_fixture,
    link_for_folder,
    opened,
    repository_fixture,
    run,
    scratch_fixture,
    workspace_replaced,
    worktrees,
)

# ---- what an attempt sees


def test_a_worktree_is_what_was_committed_and_git_works_in_it(
    repository: Path, scratch: Path
) -> None:
    async def look(lease: Lease) -> None:
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
    async def look(lease: Lease) -> str:
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

    async def look(lease: Lease) -> None:
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

    async def work(lease: Lease) -> None:
        top = Path(lease.top)
        (top / "a.txt").write_text("edited\n")
        # The same content is among the user's objects already.
        shutil.copy(top / "src" / "b.py", top / "copy.py")
        await lease.keep(kept_in)

    run(attempts(worktrees(repository, uncommitted=True), scratch, work, work, work))
    run(attempts(worktrees(repository), scratch, work, work))
    assert fingerprint(repository) == before


# ---- clean before each lease


@pytest.mark.parametrize("dirt", DIRT, ids=lambda dirt: dirt.__name__)
def test_a_lease_is_clean_whatever_the_attempt_before_it_did(
    repository: Path, scratch: Path, kept_in: str, dirt: Callable[[Path], None]
) -> None:
    """And what it did can be asked for without an exception, before and after it is over."""

    async def soil(lease: Lease) -> None:
        dirt(Path(lease.top))
        kept = await lease.keep(kept_in)
        assert kept.change is not None

    async def look(lease: Lease) -> None:
        top = Path(lease.top)
        assert contents(top) == contents(repository)
        assert [path.name for path in top.parent.iterdir()] == [top.name]
        assert git(top, "status", "--porcelain", "--ignored") == ""
        assert (git(top, "log", "--format=%s"), git(top, "tag")) == ("first", "")
        kept = await lease.keep(kept_in)
        assert (kept.change.files_in_all, kept.change.tampering, kept.notes) == (0, (), ())

    run(attempts(worktrees(repository), scratch, soil, look, soil, look))


def owners(top: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (top, *top.rglob("*"))}


def mount(source: Path, place: Path, options: str) -> None:
    argv = ["mount", "-o", options, str(source), str(place)]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do that to a workspace")


@AS_ROOT
def test_a_folder_that_belongs_to_another_is_given_back(repository: Path, scratch: Path) -> None:
    async def soil(lease: Lease) -> None:
        for path in (Path(lease.top), Path(lease.top) / "src", Path(lease.top) / "a.txt"):
            os.chown(path, 65534, 65534)

    async def look(lease: Lease) -> None:
        assert owners(Path(lease.top)) == {(os.geteuid(), os.getegid())}
        assert contents(Path(lease.top)) == contents(repository)

    run(attempts(worktrees(repository), scratch, soil, look))


@AS_ROOT
@pytest.mark.parametrize("is_kept", [True, False])
def test_what_is_mounted_in_a_workspace_is_gone_before_anybody_looks(
    repository: Path, scratch: Path, kept_in: str, tmp_path: Path, *, is_kept: bool
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("mine\n")

    async def soil(lease: Lease) -> Any:
        top = Path(lease.top)
        (top / "a.txt").write_text("edited\n")
        mount(tmp_path / "mine", top / "src", "bind")
        mount(top, top, "bind")
        mount(top, top, "remount,ro,bind")
        return await lease.keep(kept_in) if is_kept else None

    async def look(lease: Lease) -> None:
        assert contents(Path(lease.top)) == contents(repository)

    kept, _ = run(attempts(worktrees(repository), scratch, soil, look))
    assert (tmp_path / "mine" / "precious").read_text() == "mine\n"
    if is_kept:
        assert [file.path for file in kept.change.files] == ["a.txt"]
        assert "was mounted in the workspace" in "".join(kept.notes)
    assert str(scratch) not in Path("/proc/self/mountinfo").read_text()


def test_a_submodules_folder_is_empty_and_empty_again(repository: Path, scratch: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},module")
    git(repository, "commit", "-qm", "a submodule")

    async def soil(lease: Lease) -> None:
        (Path(lease.top) / "module" / "x").write_text("x")

    async def look(lease: Lease) -> None:
        assert list((Path(lease.top) / "module").iterdir()) == []

    run(attempts(worktrees(repository), scratch, soil, look))


def test_what_is_not_as_expected_in_all_workspaces_is_told_once_and_by_the_pool(
    repository: Path, scratch: Path
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},module")
    (repository / ".gitattributes").write_text("*.bin filter=lfs\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "a submodule")

    async def main() -> tuple[str, ...]:
        async with opened(worktrees(repository), scratch, 2) as pool:
            for lease in await asyncio.gather(pool.lease(), pool.lease()):
                assert lease.notes == ()
                await lease.release()
            return pool.notes

    submodules, filters = run(main())
    assert submodules == "submodules are empty folders in workspaces: module"
    assert filters.startswith("git's filters are not run")


def test_the_tags_of_what_was_before_are_there_and_later_ones_are_not(
    repository: Path, scratch: Path
) -> None:
    git(repository, "tag", "-am", "signed", "v1.0")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    git(repository, "tag", "plain")
    git(repository, "commit", "-q", "--allow-empty", "-m", "the answer")
    git(repository, "tag", "solution")

    async def look(lease: Lease) -> tuple[str, str, str]:
        top = Path(lease.top)
        git(top, "fsck")
        git(top, "tag", "mine")
        assert (await lease.keep(str(scratch / "kept"))).change.tampering == ()
        shutil.rmtree(scratch / "kept", ignore_errors=True)
        git(top, "tag", "-d", "plain", "mine")
        return git(top, "tag"), git(top, "describe", "--tags"), git(top, "status", "--porcelain")

    looks = run(attempts(worktrees(repository, ref="HEAD~1"), scratch, look, look))
    assert looks[0][0] == looks[1][0] == "v1.0"
    assert looks[0][1].startswith("v1.0-1-g")


@pytest.mark.parametrize("dirt", [link_for_folder, workspace_replaced])
def test_what_an_attempt_left_a_link_to_is_not_touched(
    repository: Path, scratch: Path, dirt: Callable[[Path], None]
) -> None:
    """The worktree is put in order: not what a link in it leads to."""
    ELSEWHERE.chmod(0o711)
    (ELSEWHERE / "file").write_text("mine\n")
    (ELSEWHERE / "file").chmod(0o604)
    before = ELSEWHERE.stat(), (ELSEWHERE / "file").stat()

    async def soil(lease: Lease) -> None:
        dirt(Path(lease.top))

    async def look(lease: Lease) -> bool:
        return contents(Path(lease.top)) == contents(repository)

    assert run(attempts(worktrees(repository), scratch, soil, look)) == [None, True]
    after = ELSEWHERE.stat(), (ELSEWHERE / "file").stat()
    assert [(one.st_mode, one.st_mtime_ns, one.st_ctime_ns) for one in after] == [
        (one.st_mode, one.st_mtime_ns, one.st_ctime_ns) for one in before
    ]
    assert [path.name for path in ELSEWHERE.iterdir()] == ["file"]


def test_random_attempts_leave_nothing_to_the_next_one(repository: Path, scratch: Path) -> None:
    dice = random.Random(4)

    async def soil(lease: Lease) -> None:
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
    async def soil(lease: Lease) -> str:
        top = Path(lease.top)
        assert (top / "build" / "out").read_text() == "made\n"
        (top / "build" / "new").write_text("mine\n")
        (top / "a.txt").write_text("edited\n")
        # What was ignored is not, now; it is not the attempt's change all the same.
        (top / ".gitignore").unlink()
        kept = await lease.keep(kept_in)
        assert [file.path for file in kept.change.files] == [".gitignore", "a.txt"]
        return (top / "count.log").read_text()

    async def look(lease: Lease) -> str:
        assert not (Path(lease.top) / "build" / "new").exists()
        return (Path(lease.top) / "count.log").read_text()

    workspace = worktrees(repository, setup=SETUP)
    assert run(attempts(workspace, scratch, soil, look, look)) == ["x\n", "x\n", "x\n"]


@pytest.mark.parametrize("what", ["changed", "deleted", "folder", "mode"])
def test_what_setup_left_is_made_anew_if_an_attempt_changed_it(
    repository: Path, scratch: Path, what: str
) -> None:
    async def soil(lease: Lease) -> None:
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

    async def look(lease: Lease) -> None:
        build = Path(lease.top) / "build"
        assert [path.name for path in build.iterdir()] == ["out"]
        assert (build / "out").read_text() == "made\n"
        assert (Path(lease.top) / "count.log").read_text() == "x\n"

    run(attempts(worktrees(repository, setup=SETUP), scratch, soil, look, soil, look))


def test_what_setup_does_to_files_of_the_repository_is_undone_and_told_once(
    repository: Path, scratch: Path
) -> None:
    setup = ("sh", "-c", "echo x >> a.txt; echo x > stray.txt; echo x > y.log")

    async def look(lease: Lease) -> tuple[str, ...]:
        assert (Path(lease.top) / "a.txt").read_text() == "one\ntwo\n"
        assert not (Path(lease.top) / "stray.txt").exists()
        assert (Path(lease.top) / "y.log").exists()
        return lease.notes

    first, second = run(attempts(worktrees(repository, setup=setup), scratch, look, look))
    assert second == ()
    assert any("undone: a.txt" in note for note in first)
    assert any("removed: stray.txt" in note for note in first)


def test_nothing_that_setup_leaves_keeps_git_waiting(repository: Path, scratch: Path) -> None:
    setup = (
        *("sh", "-c"),
        """mkdir -p sub/.git/refs sub/.git/objects venv/lib pipes/refs pipes/objects linked
        mkfifo sub/.git/HEAD pipes/HEAD sub/.gitignore pipe src/.gitignore
        rm .gitignore; mkfifo .gitignore
        echo 'gitdir: ../pipes' > linked/.git; echo x > linked/x; echo x > sub/x; git init -q src
        echo '*' > venv/.gitignore; echo x > venv/lib/x""",
    )

    async def look(lease: Lease) -> tuple[str, ...]:
        top = Path(lease.top)
        assert (top / "venv" / "lib" / "x").read_text() == "x\n"
        assert not [name for name in ("sub", "linked", "pipe") if (top / name).exists()]
        assert (top / "src" / "b.py").is_file()
        assert (top / ".gitignore").is_file()
        return lease.notes

    (notes,) = run(attempts(worktrees(repository, setup=setup), scratch, look))
    assert "removed: linked" in "".join(notes)


def test_a_setup_that_fails_is_run_once_and_told_to_all_with_its_last_words(
    repository: Path, scratch: Path, tmp_path: Path
) -> None:
    setup = ("sh", "-c", f"echo run >> {tmp_path}/runs; echo no compiler here >&2; exit 3")

    async def main() -> list[Any]:
        async with opened(worktrees(repository, setup=setup), scratch, 8) as pool:
            return await asyncio.gather(*(pool.lease() for _ in range(30)), return_exceptions=True)

    for error in run(main()):
        assert isinstance(error, WorkspaceError)
        assert error.lasting
        assert error.message.startswith("workspace.setup failed with exit code 3: no compiler here")
    assert (tmp_path / "runs").read_text() == "run\n"


def test_the_last_words_of_a_long_setup_come_first_and_its_command_is_short(
    repository: Path, scratch: Path
) -> None:
    words = "error: " + "x" * 400
    script = f"echo one >&2; echo two >&2; echo '{words}' >&2; exit 1 # " + "y" * 500

    async def look(lease: Lease) -> None:
        pytest.fail("there is no workspace to be had")

    with pytest.raises(WorkspaceError) as caught:
        run(attempts(worktrees(repository, setup=("sh", "-c", script)), scratch, look))
    first, *before = caught.value.message.splitlines()
    assert first == f"workspace.setup failed with exit code 1: {words[:300]}; before that:"
    assert before == ["  one", "  two"]
    assert len(caught.value.hint or "") < 200


def test_setup_has_the_users_home_and_a_temporary_folder_of_its_own_and_yields(
    repository: Path, scratch: Path
) -> None:
    # It is made to yield just after it has begun.
    yields = "for _ in 1 2 3 4 5 6 7 8 9; do nice > nice.log; sleep 0.1; done"
    setup = ("sh", "-c", f'echo "$HOME" > home.log; touch "$TMPDIR/x"; {yields}')

    async def look(lease: Lease) -> None:
        top = Path(lease.top)
        assert (top / "home.log").read_text() == f"{os.environ.get('HOME', '')}\n"
        assert int((top / "nice.log").read_text()) > os.nice(0)

    run(attempts(worktrees(repository, setup=setup), scratch, look))


def test_a_setup_that_hangs_is_ended_with_all_it_started(
    repository: Path, scratch: Path, tmp_path: Path
) -> None:
    setup = ("sh", "-c", f"sleep 77.25 & echo $! > {tmp_path}/pid; wait")
    workspace = worktrees(repository, setup=setup, setup_timeout=0.5)

    async def look(lease: Lease) -> None:
        pytest.fail("there is no workspace to be had")

    with pytest.raises(WorkspaceError, match=r"not finish in 0\.5 s"):
        run(attempts(workspace, scratch, look))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


# ---- folders


def test_an_empty_folder_is_fresh_for_each_attempt(scratch: Path, kept_in: str) -> None:
    async def work(lease: Lease) -> tuple[str, Any]:
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

    async def work(lease: Lease) -> Any:
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


def test_a_template_that_changed_since_the_plan_is_refused(repository: Path, scratch: Path) -> None:
    workspace = Workspace(
        kind=WorkspaceKind.FOLDER, source=str(repository), tree=folder_tree(repository)
    )

    async def work(lease: Lease) -> str:
        return (Path(lease.top) / "a.txt").read_text()

    assert run(attempts(workspace, scratch, work)) == ["one\ntwo\n"]
    (repository / "a.txt").write_text("changed after planning\n")
    with pytest.raises(WorkspaceError, match="has changed since the run was planned"):
        run(attempts(workspace, scratch, work))


def test_a_template_that_cannot_be_copied_is_refused_at_once(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "template").mkdir()
    os.mkfifo(tmp_path / "template" / "pipe")

    async def work(lease: Lease) -> None:
        pytest.fail("there is no workspace to be had")

    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(tmp_path / "template"))
    with pytest.raises(ParavalError, match=r"pipe is not a regular file"):
        run(attempts(workspace, scratch, work))
