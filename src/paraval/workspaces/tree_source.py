"""Slots that are worktrees: a tree of a repository, checked out and mended by git."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paraval.git.borrowing import Lender, write_repository
from paraval.git.repositories import (
    GITLINK,
    TreeEntry,
    contents_named,
    tree_entries,
    tree_notes,
)
from paraval.git.running import must_git
from paraval.workspaces.own_repository import Beginning
from paraval.workspaces.rules import GITIGNORE, write_rules
from paraval.workspaces.sources import (
    AS_IT_IS,
    AS_TEXT,
    CHECKOUT_PATIENCE_S,
    Baseline,
    Layout,
    Place,
    layout_of,
)

_FILES = (0o100644, 0o100755)


class TreeSource:
    """A tree of a repository; git fills and mends the slots."""

    is_used_again = True

    def __init__(self, folder: Path, tree: str, beginning: Beginning) -> None:
        self.beginning: Beginning | None = beginning
        self._tree = tree
        self._git_dir = str(folder / "trusted.git")
        self._git_dir_as_it_is = str(folder / "as-it-is.git")
        _write_trusted(beginning.lender, beginning.commit, self._git_dir, self._git_dir_as_it_is)
        entries = tree_entries(self._git_dir, tree)
        self.layout = _layout(entries)
        self._hashes = {entry.path: entry.hash for entry in entries if entry.mode in _FILES}
        self._submodules = frozenset(entry.path for entry in entries if entry.mode == GITLINK)
        self._rules = write_rules(folder, contents_named(self._git_dir, entries, GITIGNORE))
        self.notes = tree_notes(self._git_dir, entries)

    def fill(self, place: Place) -> None:
        self._checkout(place, "read-tree", "--reset", "-u", self._tree)

    def put_back(self, place: Place, paths: list[bytes]) -> None:
        arguments = ("checkout-index", "--force", "--index", "--quiet", "-z", "--stdin")
        self._checkout(place, *arguments, stdin=b"".join(path + b"\0" for path in paths))

    def baseline(self, place: Place) -> Baseline:
        return Baseline(
            git_dir=self._git_dir,
            git_dir_as_it_is=self._git_dir_as_it_is,
            tree=self._tree,
            index=place.index,
            rules=self._rules,
            hashes=self._hashes,
            submodules=self._submodules,
        )

    def _checkout(self, place: Place, *arguments: str, stdin: bytes = b"") -> None:
        must_git(
            [f"--git-dir={self._git_dir}", f"--work-tree={place.top}", *arguments],
            doing="cannot check out a worktree",
            env={"GIT_INDEX_FILE": place.index},
            stdin=stdin,
            timeout=CHECKOUT_PATIENCE_S,
        )


def _write_trusted(lender: Lender, commit: str, git_dir: str, git_dir_as_it_is: str) -> None:
    write_repository(git_dir, lender, head=commit, attributes=AS_TEXT)
    write_repository(git_dir_as_it_is, lender, head=commit, attributes=AS_IT_IS)


def _layout(entries: Iterable[TreeEntry]) -> Layout:
    folders = [entry.path for entry in entries if entry.mode == GITLINK]
    return layout_of(folders, [entry.path for entry in entries if entry.mode != GITLINK])
