"""Which code a run of tests was about: the commit, and the working tree as it was.

Two runs of the same tree are runs of the same code, whatever was committed between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import find_repository, resolve, tree_of
from paraval.git.snapshots import snapshot_tree
from paraval.settings import TESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeState:
    """The state of a repository."""

    commit: str
    tree: str
    """A hash of the working tree: what is committed, what is changed, and new files that git does
    not ignore."""
    is_dirty: bool
    """True: the tree is not the commit's."""

    def as_mapping(self) -> dict[str, object]:
        return {"commit": self.commit, "tree": self.tree, "dirty": self.is_dirty}


def code_state(rootdir: Path) -> CodeState | None:
    """None: the rootdir is in no repository with a commit, or git cannot tell."""
    try:
        repository = find_repository(rootdir)
        commit = resolve(repository, "HEAD")
        tree = snapshot_tree(repository)
        is_dirty = tree != tree_of(repository, commit)
    except (ParavalError, OSError):
        return None
    return CodeState(commit=commit, tree=tree, is_dirty=is_dirty)


def tree_in(selection: Mapping[str, object]) -> str | None:
    """Of a run in the store; None where it is not known."""
    about = selection.get(TESTS)
    tree = about.get("tree") if isinstance(about, Mapping) else None
    return tree if isinstance(tree, str) else None
