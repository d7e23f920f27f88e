"""Slots that are worktrees: a tree of a repository, checked out and restored by git."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from paraval.git.alternates import write_repository
from paraval.git.objects import ABSENT, FILES, tree_changes
from paraval.git.repositories import GITLINK, TreeEntry, contents_named, tree_entries, tree_notes
from paraval.git.run_git import must_git
from paraval.workspaces.changed_files import GITIGNORE, write_rules
from paraval.workspaces.own_repository import FirstCommit
from paraval.workspaces.trusted_git import TrustedPaths
from paraval.workspaces.workspace import (
    AS_IT_IS,
    AS_TEXT,
    CHECKOUT_PATIENCE_S,
    LaidTree,
    Layout,
    SlotPlace,
    WorkspaceBase,
    layout_of,
)


class TreeSource:
    """A tree of a repository; git fills and restores the slots."""

    is_used_again = True

    def __init__(
        self,
        folder: Path,
        tree: str,
        beginning: FirstCommit,
        *,
        more_objects: tuple[str, ...] = (),
    ) -> None:
        """Trees in `more_objects` can be applied; no slot's own repository knows of them."""
        self.beginning: FirstCommit | None = beginning
        self._tree = tree
        self._more_objects = more_objects
        self._git_dir = str(folder / "trusted.git")
        self._git_dir_as_it_is = str(folder / "as-it-is.git")
        self.trusted = TrustedPaths()
        self._write_repository(beginning, self._git_dir, AS_TEXT)
        self._write_repository(beginning, self._git_dir_as_it_is, AS_IT_IS)
        entries = tree_entries(self._git_dir, tree)
        self.layout = _layout(entries)
        self._entries = {entry.path: entry for entry in entries}
        self._hashes = _hashes(entries)
        self._submodules = _submodules(entries)
        rules = contents_named(self._git_dir, entries, GITIGNORE)
        self._rules = folder / "rules"
        self.trusted.write(self._rules, lambda top: write_rules(top, rules))
        self.notes = tree_notes(self._git_dir, entries)

    def fill(self, place: SlotPlace) -> None:
        self.trusted.is_as_written(place.index)  # There is none yet, whatever an attempt put there.
        self._checkout(place, "read-tree", "--reset", "-u", self._tree)

    def put_back(self, place: SlotPlace, paths: list[bytes]) -> None:
        self._hold_index(place)
        self._put_back(place, paths)

    def baseline(self, place: SlotPlace) -> WorkspaceBase:
        self.trusted.hold()
        self._hold_index(place)
        return WorkspaceBase(
            git_dir=self._git_dir,
            git_dir_as_it_is=self._git_dir_as_it_is,
            tree=self._tree,
            index=place.index,
            rules=str(self._rules),
            hashes=self._hashes,
            submodules=self._submodules,
        )

    def lay(self, place: SlotPlace, tree: str) -> LaidTree:
        baseline = self.baseline(place)
        changes = tree_changes(self._git_dir, self._tree, tree)
        self.trusted.is_as_written(place.laid_index)  # No earlier one is in the way.
        # With its times: git compares them with the file's own.
        shutil.copy2(place.index, place.laid_index)
        self._checkout_laid(place, "read-tree", "--reset", "-u", tree)
        entries = dict(self._entries)
        for change in changes:
            entries.pop(change.path, None)
            if change.new_mode != ABSENT:
                entries[change.path] = TreeEntry(
                    mode=change.new_mode, hash=change.new_hash, path=change.path
                )
        return LaidTree(
            tree=tree,
            layout=_layout(entries.values()),
            touched=frozenset(change.path for change in changes),
            baseline=replace(
                # The ignore rules from the start count: no rule in the tree hides anything.
                baseline,
                tree=tree,
                index=place.laid_index,
                hashes=_hashes(entries.values()),
                submodules=_submodules(entries.values()),
            ),
        )

    def put_back_laid(self, place: SlotPlace, laid: LaidTree, paths: list[bytes]) -> None:
        self.hold_laid(place, laid)
        self._put_back(replace(place, index=place.laid_index), paths)

    def hold_laid(self, place: SlotPlace, laid: LaidTree) -> None:
        self.trusted.hold()
        if not self.trusted.is_as_written(place.laid_index):
            self._checkout_laid(place, "read-tree", laid.tree)

    def forget_laid(self, place: SlotPlace) -> None:
        with suppress(OSError):
            os.unlink(place.laid_index)  # noqa: PTH108 - text, and quick
        self.trusted.forget(place.laid_index)

    def _write_repository(self, beginning: FirstCommit, git_dir: str, attributes: str) -> None:
        def write(folder: Path) -> None:
            objects = (*self._more_objects, *beginning.lender.objects)
            lender = replace(beginning.lender, objects=objects)
            write_repository(folder, lender, head=beginning.commit, attributes=attributes)

        self.trusted.write(Path(git_dir), write)

    def _hold_index(self, place: SlotPlace) -> None:
        """An index tells git what to compare with, and what to skip."""
        if not self.trusted.is_as_written(place.index):
            self._checkout(place, "read-tree", self._tree)

    def _put_back(self, place: SlotPlace, paths: list[bytes]) -> None:
        arguments = ("checkout-index", "--force", "--index", "--quiet", "-z", "--stdin")
        self._checkout(place, *arguments, stdin=b"".join(path + b"\0" for path in paths))

    def _checkout_laid(self, place: SlotPlace, *arguments: str) -> None:
        self._checkout(replace(place, index=place.laid_index), *arguments)

    def _checkout(self, place: SlotPlace, *arguments: str, stdin: bytes = b"") -> None:
        self.trusted.hold()
        must_git(
            [f"--git-dir={self._git_dir}", f"--work-tree={place.top}", *arguments],
            doing="cannot check out a worktree",
            env={"GIT_INDEX_FILE": place.index},
            stdin=stdin,
            timeout=CHECKOUT_PATIENCE_S,
        )
        self.trusted.watch(place.index)


def _hashes(entries: Iterable[TreeEntry]) -> dict[bytes, str]:
    return {entry.path: entry.hash for entry in entries if entry.mode in FILES}


def _submodules(entries: Iterable[TreeEntry]) -> frozenset[bytes]:
    return frozenset(entry.path for entry in entries if entry.mode == GITLINK)


def _layout(entries: Collection[TreeEntry]) -> Layout:
    folders = [entry.path for entry in entries if entry.mode == GITLINK]
    return layout_of(folders, [entry.path for entry in entries if entry.mode != GITLINK])
