"""Another tree laid on a leased worktree: it is all there, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paraval.isolation import Workspace, WorkspaceKind
from paraval.processes.children import Warden
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.pool import Pool, SlotLease
from paraval.workspaces.workspace import WorkspaceError

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
    *works: Callable[[SlotLease], Coroutine[Any, Any, T]],
) -> list[T]:
    """What each brings, one after the other in the same slot."""
    brought = []
    async with opened(workspace, scratch, objects) as pool:
        for work in works:
            lease = await pool.lease()
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
    for folder in (clone / ".git" / "objects").glob("??"):
        shutil.copytree(folder, objects / folder.name, dirs_exist_ok=True)
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
def test_a_tree_that_is_laid_is_all_there_and_the_next_lease_has_nothing_of_it(
    repository: Path, scratch: Path, objects: Path, kept_in: str, change: Change
) -> None:
    tree, clone = tree_with(repository, objects, change)
    before = fingerprint(repository)

    async def laid(lease: SlotLease) -> Any:
        await lease.lay(tree)
        kept = await lease.keep(kept_in)
        return contents(Path(lease.top)), kept, git(Path(lease.top), "status", "--porcelain")

    async def next_one(lease: SlotLease) -> Any:
        return contents(Path(lease.top)), git(Path(lease.top), "status", "--porcelain")

    first, second = run(leases(worktrees(repository), scratch, objects, laid, next_one))
    assert first[0] == contents(clone)
    assert first[1].change.files_in_all == 0
    assert first[1].change.unknown is None
    assert bool(first[2]) is (change is not nothing)
    assert second == (contents(repository), "")
    assert fingerprint(repository) == before


def test_what_changed_is_told_against_the_tree_that_was_laid(
    repository: Path, scratch: Path, objects: Path, kept_in: str, tmp_path: Path
) -> None:
    tree, clone = tree_with(repository, objects, all_kinds)

    async def work(lease: SlotLease) -> Any:
        await lease.lay(tree)
        top = Path(lease.top)
        (top / "a.txt").write_text("one\nTWO\nthree\n")
        (top / "new" / "program").unlink()
        (top / "src" / "b.py").write_text("back again\n")
        return await lease.keep(kept_in), contents(top)

    ((kept, after),) = run(leases(worktrees(repository), scratch, objects, work))
    told = [(file.path, file.status, file.lines_added) for file in kept.change.files]
    assert told == [
        ("a.txt", "changed", 1),
        ("new/program", "deleted", 0),
        ("src/b.py", "added", 1),
    ]
    git(clone, "apply", kept.patch)
    assert contents(clone) == after


@pytest.mark.parametrize("dirt", DIRT)
def test_whatever_is_done_after_it_was_laid_the_next_lease_is_clean(
    repository: Path, scratch: Path, objects: Path, kept_in: str, dirt: Change
) -> None:
    def three(top: Path) -> None:
        (top / "a.txt").write_text("one\nlaid\n")
        (top / "src" / "added.py").write_text("x\n")

    tree, clone = tree_with(repository, objects, three)

    async def dirty(lease: SlotLease) -> Any:
        await lease.lay(tree)
        dirt(Path(lease.top))
        return await lease.keep(kept_in)

    async def again(lease: SlotLease) -> Any:
        fresh = contents(Path(lease.top))
        await lease.lay(tree)
        return fresh, contents(Path(lease.top)), (await lease.keep(kept_in)).change.files_in_all

    _, (fresh, laid, changed) = run(leases(worktrees(repository), scratch, objects, dirty, again))
    assert fresh == contents(repository)
    assert laid == contents(clone)
    assert changed == 0


def test_rules_of_a_tree_that_is_laid_run_nothing_and_hide_nothing(
    repository: Path, scratch: Path, objects: Path, kept_in: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.smudge", f"touch {ran}")
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (repository / ".git" / "hooks" / "post-checkout").chmod(0o755)
    tree, _ = tree_with(repository, objects, other_rules)

    async def work(lease: SlotLease) -> Any:
        await lease.lay(tree)
        (Path(lease.top) / "hidden").write_text("x\n")
        return await lease.keep(kept_in)

    (kept,) = run(leases(worktrees(repository), scratch, objects, work))
    assert [file.path for file in kept.change.files] == ["hidden"]
    assert not ran.exists()


def test_what_setup_left_stays_and_is_made_anew_where_a_tree_took_its_place(
    repository: Path, scratch: Path, objects: Path
) -> None:
    ran = scratch.parent / "setups"
    script = f"mkdir -p build && echo made > build/x && echo made > src/x.log && echo >> {ran}"
    workspace = worktrees(repository, setup=("sh", "-c", script))

    def in_its_place(top: Path) -> None:
        (top / ".gitignore").write_text("")
        (top / "build").write_text("a file\n")

    plain, _ = tree_with(repository, objects, folder_gone)
    other, _ = tree_with(repository, objects, in_its_place)

    async def laid(lease: SlotLease, tree: str) -> Any:
        await lease.lay(tree)
        top = Path(lease.top)
        kept = await lease.keep(str(scratch.parent / "kept"))
        return (top / "build").is_dir(), (top / "src" / "x.log").exists(), kept.change.files_in_all

    async def work() -> Any:
        async with opened(workspace, scratch, objects) as pool:
            told = []
            for tree in (plain, other, plain):
                lease = await pool.lease()
                assert (Path(lease.top) / "build" / "x").read_text() == "made\n"
                told.append(await laid(lease, tree))
                await lease.release()
            return told

    assert run(work()) == [(True, True, 0), (False, True, 0), (True, True, 0)]
    assert len(ran.read_text()) == 2
    ran.unlink()


def test_a_second_tree_takes_the_place_of_the_first(
    repository: Path, scratch: Path, objects: Path, kept_in: str
) -> None:
    one, _ = tree_with(repository, objects, all_kinds)
    two, clone = tree_with(repository, objects, folder_gone)

    async def work(lease: SlotLease) -> Any:
        await lease.lay(one)
        (Path(lease.top) / "left behind").write_text("x")
        await lease.lay(two)
        return contents(Path(lease.top)), (await lease.keep(kept_in)).change.files_in_all

    (told,) = run(leases(worktrees(repository), scratch, objects, work))
    assert told == (contents(clone), 0)


def test_a_tree_that_cannot_be_laid_is_told_and_the_slot_is_well_again(
    repository: Path, scratch: Path, objects: Path
) -> None:
    tree, _ = tree_with(repository, objects, all_kinds)
    whole = {path: path.read_bytes() for path in objects.rglob("*") if path.is_file()}

    async def broken(lease: SlotLease) -> Any:
        (objects / tree[:2] / tree[2:]).unlink()
        with pytest.raises(WorkspaceError, match=f"the tree {tree[:12]} cannot be laid"):
            await lease.lay(tree)
        with pytest.raises(WorkspaceError):
            await lease.lay("--help")
        return None

    async def half(lease: SlotLease) -> Any:
        for path, content in whole.items():
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        blob = git(objects.parent / "clone-0", "rev-parse", ":a.txt")
        (objects / blob[:2] / blob[2:]).unlink()
        with pytest.raises(WorkspaceError):
            await lease.lay(tree)
        return None

    async def after(lease: SlotLease) -> Any:
        return contents(Path(lease.top))

    told = run(leases(worktrees(repository), scratch, objects, broken, half, after))
    assert told[-1] == contents(repository)


def test_a_worktree_that_is_given_back_takes_no_tree(
    repository: Path, scratch: Path, objects: Path
) -> None:
    tree, _ = tree_with(repository, objects, all_kinds)

    async def work() -> None:
        async with opened(worktrees(repository), scratch, objects) as pool:
            lease = await pool.lease()
            await lease.release()
            with pytest.raises(WorkspaceError, match="given back"):
                await lease.lay(tree)
            late = await pool.lease()
        with pytest.raises(WorkspaceError):
            await late.lay(tree)

    run(work())


def test_a_copy_of_a_folder_takes_no_tree(repository: Path, scratch: Path, tmp_path: Path) -> None:
    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(repository / "src"))

    async def work() -> None:
        async with opened(workspace, scratch, None) as pool:
            lease = await pool.lease()
            with pytest.raises(WorkspaceError, match="no worktree"):
                await lease.lay("1" * 40)
            await lease.release()

    run(work())


def test_many_trees_on_few_slots_never_mix_and_a_cancel_leaks_none(
    repository: Path, scratch: Path, objects: Path
) -> None:
    def adds(number: int) -> Change:
        return lambda top: (top / f"only-{number}").write_text(f"{number}\n")

    trees = [tree_with(repository, objects, adds(number))[0] for number in range(4)]

    async def one(pool: Pool, number: int) -> None:
        lease = await pool.lease()
        try:
            await lease.lay(trees[number])
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


def test_no_attempt_is_told_of_the_objects_of_others(
    repository: Path, scratch: Path, objects: Path
) -> None:
    """Its own repository has what the user's has: not what other candidates are."""
    tree, _ = tree_with(repository, objects, all_kinds)

    async def work(lease: SlotLease) -> str:
        await lease.lay(tree)
        return (Path(lease.top) / ".git/objects/info/alternates").read_text()

    (told,) = run(leases(worktrees(repository), scratch, objects, work))
    assert str(objects) not in told


def test_an_index_that_an_attempt_writes_to_is_not_believed(
    repository: Path, scratch: Path, objects: Path, kept_in: str
) -> None:
    tree, _ = tree_with(repository, objects, all_kinds)

    async def work(lease: SlotLease) -> Any:
        await lease.lay(tree)
        (index,) = Path(lease.top).parents[2].glob("trusted/*.laid.index")
        index.write_bytes(b"garbage")
        (Path(lease.top) / "a.txt").write_text("changed\n")
        return await lease.keep(kept_in)

    (kept,) = run(leases(worktrees(repository), scratch, objects, work))
    assert [file.path for file in kept.change.files] == ["a.txt"]
    assert any("were changed while it ran" in told for told in kept.change.tampering)
