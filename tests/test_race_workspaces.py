"""A candidate's tree applied to a leased worktree: it is complete, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paraval.processes.children import Warden
from paraval.processes.sandbox import why_no_sandbox
from paraval.records import Workspace, WorkspaceKind
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.pool import Pool, SlotLease
from paraval.workspaces.workspace import TreeSetupError, WorkspaceError

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    DIRT,
    contents,
    fingerprint,
    git,
    kept_in_fixture,
    repository_fixture,
    run,
    scratch_fixture,
    worktrees,
)

T = TypeVar("T")
Change = Callable[[Path], object]


@asynccontextmanager
async def opened(
    workspace: Workspace, scratch: Path, objects: Path | None, at_most: int = 1
) -> AsyncIterator[Pool]:
    async with (
        Warden() as warden,
        open_workspaces(
            workspace, scratch=scratch, warden=warden, at_most=at_most, objects=objects
        ) as pool,
    ):
        yield pool


async def leases(
    workspace: Workspace,
    scratch: Path,
    objects: Path,
    *works: tuple[str | None, Callable[[SlotLease], Coroutine[Any, Any, T]]],
) -> list[T]:
    """What each brings with its tree, one after the other in the same slot."""
    brought = []
    async with opened(workspace, scratch, objects) as pool:
        for tree, work in works:
            lease = await pool.lease(tree)
            brought.append(await work(lease))
            await lease.release()
    return brought


@pytest.fixture(name="objects")
def objects_fixture(tmp_path: Path) -> Path:
    return tmp_path / "race" / "objects"


def tree_with(repository: Path, objects: Path, change: Change) -> tuple[str, Path]:
    """A tree in a folder of objects that the repository knows nothing of, and its checkout."""
    clone = objects.parent / f"clone-{len(list(objects.parent.glob('clone-*')))}"
    objects.mkdir(parents=True, exist_ok=True)
    git(repository, "clone", "-q", ".", str(clone))
    change(clone)
    git(clone, "add", "-A")
    tree = git(clone, "write-tree")
    for file in (clone / ".git" / "objects").glob("??/*"):
        # git makes them read-only: only root could write one again that is there already.
        if not (copy := objects / file.parent.name / file.name).exists():
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(file, copy)
    return tree, clone


def all_kinds(top: Path) -> None:
    (top / "a.txt").write_text("one\nTWO\n")
    (top / "src" / "b.py").unlink()
    (top / "src" / "run.sh").chmod(0o644)
    (top / "link").unlink()
    (top / "link").symlink_to("src")
    (top / "image.bin").write_bytes(b"\0other")
    (top / "new" / "deep").mkdir(parents=True)
    (top / "new" / "deep" / os.fsdecode(b"odd\n\xff")).write_text("x")
    (top / "new" / "program").write_text("#!/bin/sh\n")
    (top / "new" / "program").chmod(0o755)


def folder_gone(top: Path) -> None:
    shutil.rmtree(top / "src")


def file_for_folder(top: Path) -> None:
    shutil.rmtree(top / "src")
    (top / "src").write_text("a file\n")


def folder_for_link(top: Path) -> None:
    (top / "link").unlink()
    (top / "link").mkdir()
    (top / "link" / "x").write_text("x\n")


def other_rules(top: Path) -> None:
    (top / ".gitattributes").write_text("* text eol=crlf filter=evil\n")
    (top / ".gitignore").write_text("*\n")
    (top / "a.txt").write_text("one\nother\n")


def nothing(_top: Path) -> None:
    pass


@pytest.mark.parametrize(
    "change", [all_kinds, folder_gone, file_for_folder, folder_for_link, nothing]
)
def test_an_applied_tree_is_complete_and_the_next_lease_has_nothing_of_it(
    repository: Path, scratch: Path, objects: Path, kept_in: str, change: Change
) -> None:
    tree, clone = tree_with(repository, objects, change)
    before = fingerprint(repository)

    async def laid(lease: SlotLease) -> Any:
        kept = await lease.keep(kept_in)
        return contents(Path(lease.top)), kept, git(Path(lease.top), "status", "--porcelain")

    async def next_one(lease: SlotLease) -> Any:
        return contents(Path(lease.top)), git(Path(lease.top), "status", "--porcelain")

    first, second = run(
        leases(worktrees(repository), scratch, objects, (tree, laid), (None, next_one))
    )
    assert first[0] == contents(clone)
    assert first[1].change.files_in_all == 0
    assert first[1].change.unknown is None
    assert bool(first[2]) is (change is not nothing)
    assert second == (contents(repository), "")
    assert fingerprint(repository) == before


def test_changes_are_reported_relative_to_the_applied_tree(
    repository: Path, scratch: Path, objects: Path, kept_in: str, tmp_path: Path
) -> None:
    tree, clone = tree_with(repository, objects, all_kinds)

    async def work(lease: SlotLease) -> Any:
        top = Path(lease.top)
        (top / "a.txt").write_text("one\nTWO\nthree\n")
        (top / "new" / "program").unlink()
        (top / "src" / "b.py").write_text("back again\n")
        return await lease.keep(kept_in), contents(top)

    ((kept, after),) = run(leases(worktrees(repository), scratch, objects, (tree, work)))
    found = [(file.path, file.status, file.lines_added) for file in kept.change.files]
    assert found == [
        ("a.txt", "changed", 1),
        ("new/program", "deleted", 0),
        ("src/b.py", "added", 1),
    ]
    git(clone, "apply", kept.patch)
    assert contents(clone) == after


@pytest.mark.parametrize("dirt", DIRT)
def test_the_next_lease_is_clean_whatever_an_attempt_does(
    repository: Path, scratch: Path, objects: Path, kept_in: str, dirt: Change
) -> None:
    def three(top: Path) -> None:
        (top / "a.txt").write_text("one\nlaid\n")
        (top / "src" / "added.py").write_text("x\n")

    tree, clone = tree_with(repository, objects, three)

    async def dirty(lease: SlotLease) -> Any:
        dirt(Path(lease.top))
        return await lease.keep(kept_in)

    async def again(lease: SlotLease) -> Any:
        return contents(Path(lease.top)), (await lease.keep(kept_in)).change.files_in_all

    works = [(tree, dirty), (None, again), (tree, dirty), (tree, again)]
    found = run(leases(worktrees(repository), scratch, objects, *works))
    (fresh, _), (laid, changed) = found[1], found[3]
    assert fresh == contents(repository)
    assert laid == contents(clone)
    assert changed == 0


def test_git_attributes_and_ignores_of_a_tree_run_nothing_and_hide_nothing(
    repository: Path, scratch: Path, objects: Path, kept_in: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.smudge", f"touch {ran}")
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (repository / ".git" / "hooks" / "post-checkout").chmod(0o755)
    tree, _ = tree_with(repository, objects, other_rules)

    async def work(lease: SlotLease) -> Any:
        (Path(lease.top) / "hidden").write_text("x\n")
        return await lease.keep(kept_in)

    (kept,) = run(leases(worktrees(repository), scratch, objects, (tree, work)))
    assert [file.path for file in kept.change.files] == ["hidden"]
    assert not ran.exists()


# ---- setup

BUILDS = "mkdir -p build && cp a.txt build/x && cp a.txt src/x.log && echo >> $RAN"
"""What it makes of the code, all of it ignored by git."""


def edited(text: str) -> Change:
    return lambda top: (top / "a.txt").write_text(text)


def with_setup(repository: Path, script: str, **more: Any) -> tuple[Workspace, Path]:
    """And the file that counts how often it ran."""
    ran = repository.parent / "setups"
    script = script.replace("$RAN", str(ran))
    return worktrees(repository, setup=("sh", "-c", script), **more), ran


def test_setup_runs_with_the_applied_tree_and_nothing_of_it_stays(
    repository: Path, scratch: Path, objects: Path, kept_in: str
) -> None:
    """Once for each lease, and never for a tree that makes way at once."""
    workspace, ran = with_setup(repository, BUILDS)
    one, _ = tree_with(repository, objects, edited("one"))
    two, _ = tree_with(repository, objects, edited("two"))

    async def built(lease: SlotLease) -> Any:
        top = Path(lease.top)
        kept = await lease.keep(kept_in)
        found = {(top / name).read_text() for name in ("a.txt", "build/x", "src/x.log")}
        (top / "build" / "y").write_text("more\n")
        return found, sorted(n for n in contents(top) if "/x" in n), kept.change.files_in_all

    trees = (one, two, None, one, None)
    found = run(leases(workspace, scratch, objects, *((tree, built) for tree in trees)))
    base = (repository / "a.txt").read_text()
    names = ["build/x", "src/x.log"]
    assert found == [
        ({"one"}, names, 0),
        ({"two"}, names, 0),
        ({base}, names, 0),
        ({"one"}, names, 0),
        ({base}, names, 0),
    ]
    assert len(ran.read_text()) == len(trees)


def test_a_worktree_that_is_set_up_already_is_reused_for_the_same_tree(
    repository: Path, scratch: Path, objects: Path
) -> None:
    workspace, ran = with_setup(repository, BUILDS)
    tree, _ = tree_with(repository, objects, edited("one"))

    async def work() -> None:
        async with opened(workspace, scratch, objects, at_most=2) as pool:
            for lease in [await pool.lease(), await pool.lease(tree)]:
                await lease.release()
            for asked in (tree, None, tree, None):
                await (await pool.lease(asked)).release()

    run(work())
    assert len(ran.read_text()) == 4


def test_changes_of_setup_to_the_trees_files_are_undone(
    repository: Path, scratch: Path, objects: Path, kept_in: str
) -> None:
    script = (
        "echo x >> a.txt; rm -r new; echo x > odd; chmod 700 src; rm -rf .git/hooks; echo > y.log"
    )
    workspace, _ = with_setup(repository, script)
    tree, clone = tree_with(repository, objects, all_kinds)

    async def looked(lease: SlotLease) -> Any:
        kept = await lease.keep(kept_in)
        found = contents(Path(lease.top))
        return found.pop("y.log", None) is not None, found, kept.change, lease.notes

    (laid,) = run(leases(workspace, scratch, objects, (tree, looked)))
    had_log, found, change, notes = laid
    assert had_log
    assert found == contents(clone)
    assert (change.files_in_all, change.tampering) == (0, ())
    assert any("undone: a.txt" in note for note in notes)
    assert any("removed: odd" in note for note in notes)


def test_a_setup_that_fails_with_one_tree_affects_no_other(
    repository: Path, scratch: Path, objects: Path
) -> None:
    """Even where no other has worked before it; the slot is well again."""
    workspace, _ = with_setup(
        repository, "echo left > a.log; grep -q one a.txt || { echo no one >&2; exit 3; }"
    )
    bad, _ = tree_with(repository, objects, edited("two"))
    good, _ = tree_with(repository, objects, edited("one"))

    async def work() -> None:
        async with opened(workspace, scratch, objects) as pool:
            with pytest.raises(TreeSetupError, match="failed with exit code 3: no one") as found:
                await pool.lease(bad)
            assert not found.value.lasting
            for tree in (good, None):
                lease = await pool.lease(tree)
                assert (Path(lease.top) / "a.log").read_text() == "left\n"
                await lease.release()

    run(work())


def test_a_tree_without_the_folder_that_setup_runs_in_is_not_set_up(
    repository: Path, scratch: Path, objects: Path
) -> None:
    workspace, ran = with_setup(repository, "echo >> $RAN", start="src")
    tree, _ = tree_with(repository, objects, folder_gone)

    async def work(lease: SlotLease) -> bool:
        return "src" in contents(Path(lease.top))

    assert run(leases(workspace, scratch, objects, (tree, work))) == [False]
    assert not ran.exists()


def test_a_cancel_ends_a_setup_and_leaks_no_slot(
    repository: Path, scratch: Path, objects: Path
) -> None:
    workspace, ran = with_setup(repository, "grep -q one a.txt || { echo >> $RAN; sleep 600; }")
    tree, _ = tree_with(repository, objects, edited("slow"))

    async def work() -> None:
        async with opened(workspace, scratch, objects) as pool:
            asked = asyncio.create_task(pool.lease(tree))
            while not ran.exists():  # noqa: ASYNC110 - a file tells of no event
                await asyncio.sleep(0.01)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            lease = await asyncio.wait_for(pool.lease(), 10)
            assert contents(Path(lease.top)) == contents(repository)
            await lease.release()

    run(work())


@pytest.mark.skipif(why_no_sandbox() is not None, reason="no sandbox here")
def test_in_a_sandbox_setup_cannot_write_elsewhere(
    repository: Path, scratch: Path, objects: Path
) -> None:
    script = "git status >/dev/null; echo $TMPDIR > t.log; touch $TMPDIR/x; sh a.txt; exit 0"
    workspace, ran = with_setup(repository, script, sandbox=True)
    tree, _ = tree_with(repository, objects, edited(f"echo >> {ran}\necho in >> a.log\n"))

    async def work(lease: SlotLease) -> str:
        return (Path(lease.top) / "a.log").read_text()

    assert run(leases(workspace, scratch, objects, (tree, work))) == ["in\n"]
    assert not ran.exists()


def test_a_pool_at_rest_has_finished_all_removals(
    repository: Path, scratch: Path, objects: Path
) -> None:
    tree, _ = tree_with(repository, objects, edited("one"))

    async def work() -> None:
        async with opened(worktrees(repository), scratch, objects) as pool:
            lease = await pool.lease(tree)
            for number in range(200):
                (Path(lease.top) / f"{number}" / "deep").mkdir(parents=True)
            await lease.release()
            again = await pool.lease()
            await pool.at_rest()
            assert not list((scratch / "workspaces" / "trash").glob("*/*"))
            await again.release()

    run(work())


# ---- trees that cannot be had


def test_a_tree_that_cannot_be_applied_is_an_error_and_the_slot_recovers(
    repository: Path, scratch: Path, objects: Path
) -> None:
    tree, _ = tree_with(repository, objects, all_kinds)
    whole = {path: path.read_bytes() for path in objects.rglob("*") if path.is_file()}

    async def work() -> Any:
        async with opened(worktrees(repository), scratch, objects) as pool:
            (objects / tree[:2] / tree[2:]).unlink()
            with pytest.raises(WorkspaceError, match=f"the tree {tree[:12]} cannot be applied"):
                await pool.lease(tree)
            with pytest.raises(WorkspaceError):
                await pool.lease("--help")
            for path, content in whole.items():
                path.unlink(missing_ok=True)
                path.write_bytes(content)
            blob = git(objects.parent / "clone-0", "rev-parse", ":a.txt")
            (objects / blob[:2] / blob[2:]).unlink()
            with pytest.raises(WorkspaceError):
                await pool.lease(tree)
            return contents(Path((await pool.lease()).top))

    assert run(work()) == contents(repository)


def test_a_closed_pool_leases_no_tree(repository: Path, scratch: Path, objects: Path) -> None:
    tree, _ = tree_with(repository, objects, all_kinds)

    async def work() -> None:
        async with opened(worktrees(repository), scratch, objects) as pool:
            await pool.lease(tree)
        with pytest.raises(WorkspaceError, match="the run has ended"):
            await pool.lease(tree)

    run(work())


def test_a_copy_of_a_folder_takes_no_tree(repository: Path, scratch: Path, tmp_path: Path) -> None:
    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(repository / "src"))

    async def work() -> None:
        async with opened(workspace, scratch, None) as pool:
            with pytest.raises(WorkspaceError, match="is not a worktree"):
                await pool.lease("1" * 40)

    run(work())


def test_many_trees_on_few_slots_never_mix_and_a_cancel_leaks_none(
    repository: Path, scratch: Path, objects: Path
) -> None:
    def adds(number: int) -> Change:
        return lambda top: (top / f"only-{number}").write_text(f"{number}\n")

    trees = [tree_with(repository, objects, adds(number))[0] for number in range(4)]

    async def one(pool: Pool, number: int) -> None:
        lease = await pool.lease(trees[number])
        try:
            names = {name for name in contents(Path(lease.top)) if name.startswith("only-")}
            assert names == {f"only-{number}"}
        finally:
            await lease.release()

    async def work() -> None:
        async with opened(worktrees(repository), scratch, objects, at_most=2) as pool:
            tasks = [asyncio.create_task(one(pool, number % 4)) for number in range(24)]
            for task in tasks[::5]:
                await asyncio.sleep(0.01)
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [error for error in ended if isinstance(error, Exception)]
            for lease in [await pool.lease(), await pool.lease()]:
                assert contents(Path(lease.top)) == contents(repository)
                await lease.release()

    run(work())


def test_no_attempt_sees_the_objects_of_others(
    repository: Path, scratch: Path, objects: Path
) -> None:
    """Its own repository has what the user's has: not what other candidates are."""
    tree, _ = tree_with(repository, objects, all_kinds)

    async def work(lease: SlotLease) -> str:
        return (Path(lease.top) / ".git/objects/info/alternates").read_text()

    (found,) = run(leases(worktrees(repository), scratch, objects, (tree, work)))
    assert str(objects) not in found


def test_an_index_that_an_attempt_writes_to_is_not_trusted(
    repository: Path, scratch: Path, objects: Path, kept_in: str
) -> None:
    tree, _ = tree_with(repository, objects, all_kinds)

    async def work(lease: SlotLease) -> Any:
        (index,) = Path(lease.top).parents[2].glob("trusted/*.laid.index")
        index.write_bytes(b"garbage")
        (Path(lease.top) / "a.txt").write_text("changed\n")
        return await lease.keep(kept_in)

    (kept,) = run(leases(worktrees(repository), scratch, objects, (tree, work)))
    assert [file.path for file in kept.change.files] == ["a.txt"]
    assert any("were changed while it ran" in found for found in kept.change.tampering)
