"""Applies the winner to the user's working tree (`--apply`): completely or not at all.

Only if what the patch changes is as the race began with: other files may have changed, and
untracked ones may exist. Only the working tree is written, not the index, branches or other git
data.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.git.alternates import alternates_variable, lender_of, write_repository
from paraval.git.objects import tree_changes
from paraval.git.repositories import Repository, find_repository, resolve, tree_entries, tree_of
from paraval.git.run_git import GitError, last_line, must_git, run_git
from paraval.git.snapshots import snapshot
from paraval.plain_files import PlainFileError, read_plain_file
from paraval.racing.report.race_report import MOST_PATCH_BYTES
from paraval.racing.request import RaceRequest
from paraval.racing.steps import Base
from paraval.scratch import scratch_folder
from paraval.text.words import some
from paraval.workspaces.changed_files import shown
from paraval.workspaces.workspace import AS_TEXT

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChange:
    """Changes made to the working tree, by path."""

    edited: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = (("edited", self.edited), ("added", self.added), ("deleted", self.deleted))
        return "; ".join(f"{verb} {', '.join(paths)}" for verb, paths in parts if paths)


def check_can_apply(request: RaceRequest) -> None:
    """Check before the race that there is a working tree. Raises RequestError."""
    _with_a_working_tree(request.repo)


def apply_winner(
    patch: Path,
    repo: str,
    base: Base,
    *,
    uncommitted: bool = False,
    objects: Path | None = None,
) -> AppliedChange:
    """Apply a patch to a working tree that matches the baseline where the patch changes it.

    Raises RequestError, with nothing written, if it does not, or files are in the way. `objects`:
    the race's own.
    """
    repository = _with_a_working_tree(repo)
    began = "the working tree" if uncommitted else "the commit"
    where = f"the winner's patch is {patch}"
    with _desk(repository, objects) as desk:
        if uncommitted:
            differing = desk.differing_from_a_working_tree(base.tree)
        else:
            differing = desk.differing_from_a_commit(base.tree)
        try:
            changed = desk.touched_by(patch, differing.tracked)
            if changed or (differing.is_another and not differing.tracked):
                raise RequestError(
                    f"the winner was not applied: what it changes in {repository.top} no longer"
                    f" matches {began} that the race began with{_in_brackets(changed)}",
                    hint=f"{where}; `git apply` may still work",
                )
            return desk.apply(patch, differing.untracked)
        except (GitError, OSError, PlainFileError) as error:
            words = error.message if isinstance(error, GitError) else str(error)
            raise RequestError(f"the winner was not applied: {words}", hint=where) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _PathDifferences:
    """Paths that differ from a tree."""

    is_another: bool
    """Whether tracked files differ; without paths if they are unknown."""
    tracked: list[bytes] = field(default_factory=list)
    untracked: list[bytes] = field(default_factory=list)
    """Matter only if a patch would write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApplyRepo:
    """A temporary repository around the user's working tree."""

    repository: Repository
    git_dir: str
    env: dict[str, str]
    tree: str
    """The current working tree."""

    def differing_from(self, tree: str) -> list[bytes]:
        """Raises GitError."""
        if self.tree == tree:
            return []
        changes = tree_changes(self.git_dir, tree, self.tree, self.env)
        return [change.path for change in changes]

    def differing_from_a_working_tree(self, tree: str) -> _PathDifferences:
        try:
            differing = self.differing_from(tree)
            return _PathDifferences(is_another=bool(differing), tracked=differing)
        except GitError:
            # The objects of the earlier tree are gone.
            return _PathDifferences(is_another=True)

    def differing_from_a_commit(self, tree: str) -> _PathDifferences:
        """If HEAD has moved, include all files that the commits changed. Raises GitError."""
        head = tree_of(self.repository, resolve(self.repository, "HEAD"))
        moved = [change.path for change in tree_changes(self.git_dir, tree, head, self.env)]
        differing = self.differing_from(tree)
        known = self._tracked() if differing else set()
        known |= {entry.path for entry in tree_entries(self.git_dir, tree, self.env)}
        tracked = sorted({*moved, *(path for path in differing if path in known)})
        return _PathDifferences(
            is_another=bool(tracked),
            tracked=tracked,
            untracked=[path for path in differing if path not in known],
        )

    def _tracked(self) -> set[bytes]:
        stdout = must_git(
            [f"--git-dir={self.repository.git_dir}", "ls-files", "-z"],
            doing=f"cannot read the index of {self.repository.top}",
        )
        return set(stdout.split(b"\0")[:-1])

    def touched_by(self, patch: Path, paths: Sequence[bytes]) -> list[bytes]:
        """Those of the paths that a patch writes, or writes below or above."""
        theirs = self._paths_of(read_plain_file(str(patch), MOST_PATCH_BYTES)) if paths else []
        return [path for path in paths if any(_meet(path, other) for other in theirs)]

    def _paths_of(self, content: bytes) -> list[bytes]:
        counts = self._git("--numstat", "-z", stdin=content)
        return [record.split(b"\t", 2)[2] for record in counts.split(b"\0")[:-1]]

    def apply(self, patch: Path, untracked: Sequence[bytes]) -> AppliedChange:
        """Apply a patch. Raises GitError, OSError or PlainFileError, with nothing written."""
        content = read_plain_file(str(patch), MOST_PATCH_BYTES)
        paths = self._paths_of(content)
        in_the_way = self.touched_by(patch, untracked)
        if in_the_way:
            raise GitError(f"untracked files are in the way{_in_brackets(in_the_way)}")
        self._git("--check", stdin=content)
        before = _PathBackup(os.fsencode(self.repository.top), paths)
        try:
            self._git(stdin=content)
        except BaseException:
            before.restore()
            raise
        return before.compared_with_now()

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


def _meet(one: bytes, other: bytes) -> bool:
    """Whether the paths are equal, or one contains the other."""
    return (one + b"/").startswith(other + b"/") or (other + b"/").startswith(one + b"/")


def _in_brackets(paths: Sequence[bytes]) -> str:
    return f" ({some([*map(shown, paths)], _SHOWN)})" if paths else ""


class _PathBackup:
    """The contents of paths, to restore them."""

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
        """Restore all; only removes what a patch may have created. Raises OSError."""
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

    def compared_with_now(self) -> AppliedChange:
        now = {path: os.path.lexists(self._under(path)) for path in self._found}
        was = {path: found is not None for path, found in self._found.items()}
        return AppliedChange(
            edited=tuple(shown(path) for path in now if was[path] and now[path]),
            added=tuple(shown(path) for path in now if not was[path]),
            deleted=tuple(shown(path) for path in now if was[path] and not now[path]),
        )

    def _under(self, path: bytes) -> bytes:
        return os.path.join(self._top, path)  # noqa: PTH118 - bytes


def _above(top: bytes, path: bytes) -> Iterator[bytes]:
    """The folders on the way to a path, the topmost first."""
    parts = path.split(b"/")[:-1]
    for count in range(1, len(parts) + 1):
        yield b"/".join((top, *parts[:count]))


def _read(whole: bytes) -> tuple[int, bytes] | None:
    try:
        mode = os.lstat(whole).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(mode):
        # Its files are backed up too: the folder goes with the last of them.
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
            f"--apply: {repository.top} is bare: it has no working tree to apply the winner to",
            hint="omit --apply: the winner's patch is saved anyway",
        )
    return repository


@contextmanager
def _desk(repository: Repository, own_objects: Path | None = None) -> Iterator[_ApplyRepo]:
    """Raises GitError, StoreError or OSError."""
    with scratch_folder() as scratch:
        folder = scratch.folder
        objects, git_dir = f"{folder}/objects", f"{folder}/apply.git"
        taken = snapshot(repository, objects)
        # Respect the user's line endings; run no filters.
        write_repository(git_dir, lender_of(repository), head=taken.commit, attributes=AS_TEXT)
        more = () if own_objects is None else (str(own_objects),)
        yield _ApplyRepo(
            repository=repository,
            git_dir=git_dir,
            env=alternates_variable(objects, repository.objects, *more),
            tree=taken.tree,
        )
