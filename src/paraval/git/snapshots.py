"""Takes a snapshot of a user's working tree as a tree and a commit, without writing to it.

A repository of our own borrows the user's objects and has a copy of the index: new content becomes
objects there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.alternates import alternates_variable, lend_copies, lender_of, write_repository
from paraval.git.repositories import Repository, resolve, tree_of
from paraval.git.run_git import GitError, failure, must_git, run_git
from paraval.processes.quick import QuickResult
from paraval.scratch import scratch_folder

_PATIENCE_S = 600.0
_SIGNED = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "paraval"), ("EMAIL", "paraval@localhost"))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A working tree at one moment."""

    commit: str
    """The repository's own HEAD if nothing differs; else a commit with HEAD as its parent."""
    tree: str


def snapshot(repository: Repository, objects_folder: str | Path) -> Snapshot:
    """Tracked changes and untracked, unignored files, as objects in this folder."""
    head = resolve(repository, "HEAD")
    objects = os.fspath(objects_folder)
    with _borrowing(repository, head) as arguments:
        tree = _write_tree(repository, arguments, objects)
        if tree == tree_of(repository, head):
            return Snapshot(commit=head, tree=tree)
        commit = must_git(
            [*arguments, "commit-tree", tree, "-p", head, "-m", "The working tree as it was"],
            doing=f"cannot take a snapshot of the working tree of {repository.top} as it is",
            env={
                **_with_alternates(repository, objects),
                **_SIGNED,
                **_date_of(arguments, head),
            },
        )
        return Snapshot(commit=commit.decode().strip(), tree=tree)


def snapshot_tree(repository: Repository) -> str:
    """The hash of the tree that a snapshot would have now; nothing is kept."""
    with scratch_folder() as scratch:
        return snapshot(repository, scratch.folder / "objects").tree


def differing_paths(repository: Repository, commit: str) -> list[bytes]:
    """What differs between the working tree and this commit: changed tracked files, and untracked
    files that are not ignored. Raises GitError."""
    with _borrowing(repository, commit) as arguments:
        stdout = must_git(
            [
                *arguments,
                *("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"),
                # Submodules are not inspected: that would run git with their settings.
                "--ignore-submodules=all",
            ],
            doing=f"cannot compare the working tree of {repository.top} with {commit}",
            timeout=_PATIENCE_S,
        )
    return sorted(record[3:] for record in stdout.split(b"\0")[:-1])


@contextmanager
def _borrowing(repository: Repository, head: str) -> Iterator[list[str]]:
    """A repository for one snapshot, with the user's index; returns the environment for git."""
    if repository.bare:
        raise GitError(
            f"{repository.top} is bare: it has no working tree to snapshot",
            hint="leave out `uncommitted`, or name a clone with a working tree",
        )
    # If the engine is killed, this is cleared with the rest of its scratch folder.
    with scratch_folder() as scratch:
        git_dir = scratch.folder / "snapshot.git"
        write_repository(git_dir, lender_of(repository), head=head)
        # A split index needs its other half beside it. Both may be being replaced right now.
        for index in Path(repository.git_dir).glob("sharedindex.*"):
            with suppress(FileNotFoundError):
                shutil.copy2(index, git_dir)
        with suppress(FileNotFoundError):
            shutil.copy2(Path(repository.git_dir, "index"), git_dir / "index")
        yield [f"--git-dir={git_dir}", f"--work-tree={repository.top}"]


def _write_tree(repository: Repository, arguments: list[str], objects: str) -> str:
    doing = f"cannot take a snapshot of the working tree of {repository.top} as it is"
    alone = {"GIT_OBJECT_DIRECTORY": objects}
    _copy_what_may_be_read(arguments, objects)
    added = _add(arguments, alone)
    if not added.is_well:
        # A sparse index needs to read trees to expand folders.
        added = _add(arguments, _with_alternates(repository, objects))
    if not added.is_well:
        raise failure(doing, added)
    written = must_git([*arguments, "write-tree", "--missing-ok"], doing=doing, env=alone)
    return written.decode().strip()


def _copy_what_may_be_read(arguments: list[str], objects: str) -> None:
    """Previous versions of changed files: whether git converts line endings depends on them."""
    stdout = run_git([*arguments, "diff-files", "-z", "--raw", "--abbrev=64"]).stdout
    records = [part.split(b" ") for part in stdout.split(b"\0") if part.startswith(b":")]
    files = [record[2].decode() for record in records if record[0] in (b":100644", b":100755")]
    lend_copies(arguments, files, objects)


def _add(arguments: list[str], env: dict[str, str]) -> QuickResult:
    added = run_git([*arguments, "add", "-A"], env=env, timeout=_PATIENCE_S)
    if "does not have a commit checked out" not in added.stderr:
        return added
    # A nested repository without a commit cannot be part of a tree; everything else can.
    run_git([*arguments, "add", "-A", "--ignore-errors"], env=env, timeout=_PATIENCE_S)
    return QuickResult(exit_code=0)


def _with_alternates(repository: Repository, objects: str) -> dict[str, str]:
    return {"GIT_OBJECT_DIRECTORY": objects, **alternates_variable(repository.objects)}


def _date_of(arguments: list[str], commit: str) -> dict[str, str]:
    """A commit that depends only on the working tree, so that it can be reproduced."""
    stdout = must_git(
        [*arguments, "show", "-s", "--format=%ct", commit], doing=f"cannot read commit {commit}"
    )
    date = f"{stdout.decode().strip()} +0000"
    return {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
