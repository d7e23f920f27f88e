"""What the slots of a pool are filled with: a tree of a repository, or a copy of a folder.

A source knows what belongs into a slot, puts it there, and puts back what is missing. When, and
what else is in a slot, is for `slots`; what an attempt changed is told by `patches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paraval.workspaces.own_repository import Beginning
from paraval.workspaces.trusted import Trusted

CHECKOUT_PATIENCE_S = 600.0
LARGEST_HASHED_BYTES = 10_000_000
"""Larger files are listed among what changed, and not looked into."""
AS_TEXT = "* !diff -filter\n"
"""Attributes by which a file is binary if it has a NUL byte, and not because it is said to be; and
by which no filter is ever run."""
AS_IT_IS = f"* -text -ident -working-tree-encoding\n{AS_TEXT}"
"""Attributes by which git takes every file byte for byte."""

Layout = dict[bytes, frozenset[bytes]]
"""By folder, the names of its files; every folder is there, the topmost is b''."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a slot is."""

    number: int
    top: str
    index: str
    """A file outside of the slot: what git knows of it, and no attempt can reach through it."""
    laid_index: str
    """The same while another tree is laid on it."""
    trash: str
    """A folder outside of the slot, for what is to be removed from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What changes are told against: a tree, and an index that holds it."""

    git_dir: str
    git_dir_as_it_is: str
    """The same without any conversion of contents."""
    tree: str
    index: str
    rules: str
    """A folder with nothing but the `.gitignore` files that attempts begin with."""
    hashes: Mapping[bytes, str] = field(default_factory=dict)
    """Of the tree's files, where git may have to read them to tell what a changed one is."""
    not_hashed: Mapping[bytes, bool] = field(default_factory=dict)
    """Files that the tree lacks because they are too large; True: binary ones."""
    submodules: frozenset[bytes] = frozenset()
    """Folders that stand for a commit of another repository in the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """Another tree, in a slot in the place of what it began with."""

    tree: str
    layout: Layout
    touched: frozenset[bytes]
    """What was written or removed for it."""
    baseline: Baseline
    """What changes are told against from now on."""


class Source(Protocol):
    """What a slot is filled with."""

    layout: Layout
    notes: tuple[str, ...]
    """What of it is not as its owner may expect it."""
    beginning: Beginning | None
    """Of the slot's own repository; None: it has none."""
    trusted: Trusted
    """What of it lies where an attempt could write."""
    is_used_again: bool
    """False: every lease has a slot of its own."""

    def fill(self, place: Place) -> None:
        """Put all of it into an empty folder. Raises GitError or OSError."""
        ...

    def put_back(self, place: Place, paths: list[bytes]) -> None:
        """Put these files back, none of which is there. Raises GitError or OSError."""
        ...

    def baseline(self, place: Place) -> Baseline:
        """Raises GitError or OSError."""
        ...

    def lay(self, place: Place, tree: str) -> Laid:
        """Put another tree in the place of its own, in a slot that is as it was filled. Raises
        GitError, OSError or WorkspaceError."""
        ...

    def put_back_laid(self, place: Place, laid: Laid, paths: list[bytes]) -> None:
        """Put these files of the other tree back, none of which is there. Raises as `lay`."""
        ...

    def hold_laid(self, place: Place, laid: Laid) -> None:
        """See to it that what is told against it is what was written. Raises as `lay`."""
        ...

    def forget_laid(self, place: Place) -> None:
        """The slot is as it was filled, or is to be."""
        ...


def layout_of(folders: Iterable[bytes], files: Iterable[bytes]) -> Layout:
    """Folders that are only told by what is in them are added."""
    names: dict[bytes, set[bytes]] = {b"": set()}
    for folder in folders:
        _add_folder(names, folder)
    for path in files:
        folder, _, name = path.rpartition(b"/")
        _add_folder(names, folder)
        names[folder].add(name)
    return {folder: frozenset(inner) for folder, inner in names.items()}


def _add_folder(names: dict[bytes, set[bytes]], folder: bytes) -> None:
    while folder not in names:
        names[folder] = set()
        folder = folder.rpartition(b"/")[0]
