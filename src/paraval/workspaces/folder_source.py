"""Slots that are copies of a folder, or empty: each lease gets a fresh one."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from paraval.git.alternates import Lender, write_repository
from paraval.git.folders import folder_contents, folder_tree
from paraval.git.run_git import GitError, must_git
from paraval.workspaces.changed_files import GITIGNORE, is_binary, write_rules
from paraval.workspaces.inventory import within
from paraval.workspaces.own_repository import FirstCommit
from paraval.workspaces.trusted_git import TrustedPaths
from paraval.workspaces.workspace import (
    AS_IT_IS,
    CHECKOUT_PATIENCE_S,
    LARGEST_HASHED_BYTES,
    LaidTree,
    LastingWorkspaceError,
    SlotPlace,
    WorkspaceBase,
    layout_of,
)


class FolderSource:
    """A copy of a folder, or an empty folder; each lease gets a fresh one.

    The template is copied once at the start, so that a user's later edits affect no attempt rather
    than some.
    """

    is_used_again = False
    beginning: FirstCommit | None = None

    def __init__(self, folder: Path, template: str | None) -> None:
        self.notes: tuple[str, ...] = ()
        self._folder = folder
        self.pristine = folder / "template"
        """The copy from which all others are made."""
        self._template = template
        self.tree: str | None = None
        """A hash of its contents."""
        self.trusted = TrustedPaths()
        self.trusted.write(self.pristine, self._copy_template)
        contents = folder_contents(self.pristine)
        self.layout = layout_of(contents.folders, contents.files)
        self._lock = threading.Lock()
        """Guards the baseline, which is made once, when the first change is to be reported."""
        self._baseline: WorkspaceBase | None = None

    def fill(self, place: SlotPlace) -> None:
        self.trusted.hold()
        _copy_folder(str(self.pristine), Path(place.top))

    def put_back(self, place: SlotPlace, paths: list[bytes]) -> None:
        self.trusted.hold()
        for path in paths:
            shutil.copy2(
                os.path.join(os.fsencode(self.pristine), path),  # noqa: PTH118 - bytes
                os.path.join(os.fsencode(place.top), path),  # noqa: PTH118
                follow_symlinks=False,
            )

    def baseline(self, place: SlotPlace) -> WorkspaceBase:  # noqa: ARG002 - one serves all the slots
        with self._lock:
            self.trusted.hold()
            if self._baseline is None:
                self._baseline = self._make_baseline()
            return self._baseline

    def lay(self, place: SlotPlace, tree: str) -> LaidTree:
        raise LastingWorkspaceError(
            f"the tree {tree} cannot be applied to {place.top}: a folder copy is not a worktree",
            hint="name a repository with `git:`",
        )

    def put_back_laid(self, place: SlotPlace, laid: LaidTree, paths: list[bytes]) -> None:
        """Never applied."""

    def hold_laid(self, place: SlotPlace, laid: LaidTree) -> None:
        """Never applied."""

    def forget_laid(self, place: SlotPlace) -> None:
        """Never applied."""

    def _copy_template(self, folder: Path) -> None:
        folder.mkdir()
        if self._template is not None:
            _copy_folder(self._template, folder)
        tree = folder_tree(folder)
        if self.tree not in (None, tree):
            raise LastingWorkspaceError(
                "an attempt has changed the copy of the template that workspaces are made of, and"
                f" {self._template} itself is not as it was when the run began",
                hint="`sandbox: true` keeps attempts from writing outside their workspace",
            )
        self.tree = tree

    def _make_baseline(self) -> WorkspaceBase:
        git_dir, rules = self._folder / "trusted.git", self._folder / "rules"
        top = os.fsencode(self.pristine)
        files = [within(folder, name) for folder, names in self.layout.items() for name in names]
        large = {
            path: is_binary(os.path.join(top, path)) is True  # noqa: PTH118 - bytes
            for path in files
            if os.lstat(os.path.join(top, path)).st_size > LARGEST_HASHED_BYTES  # noqa: PTH118
        }
        trees: list[str] = []
        hashed = [path for path in files if path not in large]
        ignoring = _ignore_files(self.pristine, files)
        self.trusted.write(git_dir, lambda place: trees.append(self._write_tree(place, hashed)))
        self.trusted.write(rules, lambda place: write_rules(place, ignoring))
        return WorkspaceBase(
            git_dir=str(git_dir),
            git_dir_as_it_is=str(git_dir),
            tree=trees[0],
            index=str(git_dir / "index"),
            rules=str(rules),
            not_hashed=large,
        )

    def _write_tree(self, git_dir: Path, files: list[bytes]) -> str:
        write_repository(git_dir, Lender(objects=()), head="0" * 40, attributes=AS_IT_IS)
        arguments = [f"--git-dir={git_dir}", f"--work-tree={self.pristine}"]
        doing = "cannot list the template's files"
        must_git(
            [*arguments, "update-index", "--add", "-z", "--stdin"],
            doing=doing,
            stdin=b"".join(path + b"\0" for path in files),
            timeout=CHECKOUT_PATIENCE_S,
        )
        return must_git([*arguments, "write-tree"], doing=doing).decode().strip()


def _ignore_files(folder: Path, files: list[bytes]) -> dict[bytes, bytes]:
    paths = [path for path in files if path.rpartition(b"/")[2] == GITIGNORE]
    whole = {path: folder / os.fsdecode(path) for path in paths}
    return {path: place.read_bytes() for path, place in whole.items() if not place.is_symlink()}


def _copy_folder(source: str, target: Path) -> None:
    """Everything but `.git`, with permissions and times; never hard links, which would be
    shared."""
    contents = folder_contents(source)
    top, copy = os.fsencode(source), os.fsencode(target)
    for path in contents.folders:
        os.mkdir(os.path.join(copy, path))  # noqa: PTH102, PTH118 - bytes
    for path in contents.files:
        try:
            shutil.copy2(
                os.path.join(top, path),  # noqa: PTH118 - bytes
                os.path.join(copy, path),  # noqa: PTH118
                follow_symlinks=False,
            )
        except PermissionError as error:
            shown = os.path.join(top, path).decode(errors="backslashreplace")  # noqa: PTH118
            raise GitError(
                f"{shown} cannot be copied: {error.strerror}",
                hint="attempts start with a copy of the template, so all of it must be readable",
            ) from error
    # Last, and from the inside out: a folder's permissions may forbid writing to it.
    for path in reversed(contents.folders):
        shutil.copymode(os.path.join(top, path), os.path.join(copy, path))  # noqa: PTH118
