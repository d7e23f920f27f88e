"""The winner laid on the user's working tree, where that was asked for: all of it, or nothing.

Only onto a tree that still is what the race began with, and only onto the tree: the index, the
branches and all that git keeps are not written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paraval.errors import RequestError
from paraval.git.borrowing import alternates_variable, lender_of, write_repository
from paraval.git.repositories import Repository, find_repository, resolve, tree_of
from paraval.git.running import GitError, last_line, run_git
from paraval.git.snapshots import snapshot
from paraval.git.trees import tree_changes
from paraval.racing.request import RaceRequest
from paraval.racing.steps import Base
from paraval.scratch import scratch_folder
from paraval.workspaces.selection import shown
from paraval.workspaces.sources import AS_TEXT

_SHOWN = 5


def check_can_apply(request: RaceRequest) -> None:
    """Before anything runs: that the working tree is what the race is to begin with. Raises
    RequestError."""
    repository = _with_a_working_tree(request.repo)
    if request.uncommitted:
        return
    tree = tree_of(repository, resolve(repository, request.ref))
    with _desk(repository) as desk:
        if desk.tree != tree:
            raise RequestError(
                f"--apply: the working tree of {repository.top} is not what"
                f" '{request.ref}' is{desk.what_differs_from(tree)}",
                hint="commit that or put it aside; or race with --uncommitted, as it is",
            )


def apply_winner(
    patch: Path, repo: str, base: Base, *, uncommitted: bool = False
) -> tuple[str, ...]:
    """Lay a patch on a working tree that is the baseline; the files that were written.

    Raises RequestError, with nothing written, where it is another one or something is in the way.
    """
    repository = _with_a_working_tree(repo)
    began = "its working tree" if uncommitted else "the commit"
    where = f"the winner's patch is {patch}"
    with _desk(repository) as desk:
        if desk.tree != base.tree:
            raise RequestError(
                f"the winner was not applied: {repository.top} is not {began} that the race began"
                f" with{desk.what_differs_from(base.tree)}",
                hint=f"{where}; `git apply` may still take it",
            )
        try:
            return desk.apply(patch)
        except (GitError, OSError) as error:
            words = error.message if isinstance(error, GitError) else str(error)
            raise RequestError(f"the winner was not applied: {words}", hint=where) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """A repository of our own around the user's working tree."""

    repository: Repository
    git_dir: str
    objects: str
    tree: str
    """What the working tree is now."""

    def what_differs_from(self, tree: str) -> str:
        """In words; nothing where it cannot be told."""
        env = alternates_variable(self.objects, self.repository.objects)
        try:
            changes = tree_changes(self.git_dir, tree, self.tree, env)
        except GitError:
            return ""
        paths = [shown(change.path) for change in changes]
        others = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        return f" ({', '.join(paths[:_SHOWN])}{others})"

    def apply(self, patch: Path) -> tuple[str, ...]:
        """Raises GitError or OSError, with nothing written."""
        content = patch.read_bytes()
        counts = self._git("--numstat", "-z", stdin=content)
        paths = [record.split(b"\t", 2)[2] for record in counts.split(b"\0")[:-1]]
        self._git("--check", stdin=content)
        before = _Before(os.fsencode(self.repository.top), paths)
        try:
            self._git(stdin=content)
        except BaseException:
            before.restore()
            raise
        return tuple(shown(path) for path in paths)

    def _git(self, *arguments: str, stdin: bytes) -> bytes:
        ended = run_git(
            [
                *(f"--git-dir={self.git_dir}", f"--work-tree={self.repository.top}"),
                *("apply", "--whitespace=nowarn", *arguments),
            ],
            cwd=self.repository.top,
            stdin=stdin,
        )
        if not ended.is_well:
            raise GitError(last_line(ended))
        return ended.stdout


class _Before:
    """What was at some paths, to be put there again."""

    def __init__(self, top: bytes, paths: Sequence[bytes]) -> None:
        """Raises OSError."""
        self._top = top
        self._folders = {
            whole
            for path in paths
            for whole in _above(top, path)
            if os.path.isdir(whole)  # noqa: PTH112 - bytes
        }
        self._found = {path: _read(self._under(path)) for path in paths}

    def restore(self) -> None:
        """Takes away nothing but what a patch can have put there. Raises OSError."""
        for path in self._found:
            with suppress(OSError):
                os.unlink(self._under(path))  # noqa: PTH108 - bytes
        made = {whole for path in self._found for whole in _above(self._top, path)} - self._folders
        for folder in sorted(made, reverse=True):
            with suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - bytes
        for folder in sorted(self._folders):
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - bytes
        for path, found in self._found.items():
            if found is not None:
                _write(self._under(path), *found)

    def _under(self, path: bytes) -> bytes:
        return os.path.join(self._top, path)  # noqa: PTH118 - bytes


def _above(top: bytes, path: bytes) -> Iterator[bytes]:
    """The folders between, the uppermost first."""
    parts = path.split(b"/")[:-1]
    for count in range(1, len(parts) + 1):
        yield b"/".join((top, *parts[:count]))


def _read(whole: bytes) -> tuple[int, bytes] | None:
    try:
        mode = os.lstat(whole).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(mode):
        # Its files are among those that are read: it goes with the last of them.
        return None
    if stat.S_ISLNK(mode):
        return mode, os.readlink(whole)  # noqa: PTH115 - bytes
    with open(whole, "rb") as file:  # noqa: PTH123 - bytes
        return mode, file.read()


def _write(whole: bytes, mode: int, content: bytes) -> None:
    if stat.S_ISLNK(mode):
        os.symlink(content, whole)  # noqa: PTH211 - bytes
        return
    with open(whole, "wb") as file:  # noqa: PTH123 - bytes
        file.write(content)
    os.chmod(whole, stat.S_IMODE(mode))  # noqa: PTH101 - bytes


def _with_a_working_tree(repo: str) -> Repository:
    repository = find_repository(repo)
    if repository.bare:
        raise RequestError(
            f"--apply: {repository.top} is bare: it has no working tree to lay the winner on",
            hint="leave out --apply: the winner's patch is kept in any case",
        )
    return repository


@contextmanager
def _desk(repository: Repository) -> Iterator[_Desk]:
    """Raises GitError, StoreError or OSError."""
    with scratch_folder() as scratch:
        folder = scratch.folder
        objects, git_dir = f"{folder}/objects", f"{folder}/apply.git"
        taken = snapshot(repository, objects)
        # The user's line ends count, and no filter runs.
        write_repository(git_dir, lender_of(repository), head=taken.commit, attributes=AS_TEXT)
        yield _Desk(repository=repository, git_dir=git_dir, objects=objects, tree=taken.tree)
