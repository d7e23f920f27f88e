"""What a workspace is to an attempt, and what fills it: a lease with a place, what changed there,
why there is none.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paraval.errors import ParavalError
from paraval.git.run_git import DiskFullError, MissingObjectsError
from paraval.records import Change
from paraval.scratch import SCRATCH_VARIABLE, scratch_base
from paraval.workspaces.own_repository import FirstCommit
from paraval.workspaces.trusted_git import TrustedPaths

# What the slots of a pool are filled with: a tree of a repository, or a copy of a folder.

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
class SlotPlace:
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
class WorkspaceBase:
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
class LaidTree:
    """Another tree, in a slot in the place of what it began with."""

    tree: str
    layout: Layout
    touched: frozenset[bytes]
    """What was written or removed for it."""
    baseline: WorkspaceBase
    """What changes are told against from now on."""


class SlotSource(Protocol):
    """What a slot is filled with."""

    layout: Layout
    notes: tuple[str, ...]
    """What of it is not as its owner may expect it."""
    beginning: FirstCommit | None
    """Of the slot's own repository; None: it has none."""
    trusted: TrustedPaths
    """What of it lies where an attempt could write."""
    is_used_again: bool
    """False: every lease has a slot of its own."""

    def fill(self, place: SlotPlace) -> None:
        """Put all of it into an empty folder. Raises GitError or OSError."""
        ...

    def put_back(self, place: SlotPlace, paths: list[bytes]) -> None:
        """Put these files back, none of which is there. Raises GitError or OSError."""
        ...

    def baseline(self, place: SlotPlace) -> WorkspaceBase:
        """Raises GitError or OSError."""
        ...

    def lay(self, place: SlotPlace, tree: str) -> LaidTree:
        """Put another tree in the place of its own, in a slot that is as it was filled. Raises
        GitError, OSError or WorkspaceError."""
        ...

    def put_back_laid(self, place: SlotPlace, laid: LaidTree, paths: list[bytes]) -> None:
        """Put these files of the other tree back, none of which is there. Raises as `lay`."""
        ...

    def hold_laid(self, place: SlotPlace, laid: LaidTree) -> None:
        """See to it that what is told against it is what was written. Raises as `lay`."""
        ...

    def forget_laid(self, place: SlotPlace) -> None:
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


class WorkspaceError(ParavalError):
    """A workspace could not be had: no fault of the attempt."""

    lasting = False
    """True: nor can any other in this run."""


class LastingWorkspaceError(WorkspaceError):
    """What no later attempt can have either."""

    lasting = True


class TreeSetupError(WorkspaceError):
    """`setup` fails with the tree that was asked for: no fault of the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorkspace:
    """What is kept of a workspace after its attempt."""

    change: Change
    patch: str | None = None
    """Absolute path of the patch; None where nothing changed."""
    notes: tuple[str, ...] = ()


class Lease(Protocol):
    """A workspace while one attempt has it."""

    path: str
    """Absolute: where the attempt begins."""
    top: str
    """Absolute: all of it; `path` is in it."""
    notes: tuple[str, ...]
    """What was remarkable about making it."""

    async def keep(self, folder: str) -> KeptWorkspace:
        """What the attempt changed until now; the patch is written into this folder."""
        ...

    async def release(self) -> None:
        """The attempt is over, and nothing of it runs any more. Never raises."""
        ...


class Workspaces(Protocol):
    """Where the leases of a run come from; an async context manager."""

    notes: tuple[str, ...]
    """What of all of them is not as their owner may expect it."""

    async def lease(self) -> Lease:
        """A clean workspace, when there is one. Raises WorkspaceError where none can be had."""
        ...

    async def close(self) -> None:
        """Nothing is left of any of them."""
        ...


# Why there is no workspace, or no telling what changed in one: in words, and whether it lasts.

_FULL = (errno.ENOSPC, errno.EDQUOT)


def in_words(error: BaseException) -> str:
    """What went wrong, without a hint; a full disk is told with where it is."""
    is_full = isinstance(error, OSError) and error.errno in _FULL
    if is_full or isinstance(error, DiskFullError):
        return f"no space left in {scratch_base()} ({SCRATCH_VARIABLE} names another place)"
    return error.message if isinstance(error, ParavalError) else str(error)


def not_laid(tree: str, error: BaseException) -> WorkspaceError:
    """To who wanted a tree in a workspace; that says nothing of other trees."""
    hint = error.hint if isinstance(error, ParavalError) else None
    words = in_words(error)
    return WorkspaceError(f"the tree {tree[:12]} cannot be laid on a worktree: {words}", hint=hint)


def no_workspace(error: BaseException) -> WorkspaceError:
    """To who wanted one."""
    if isinstance(error, WorkspaceError):
        return error
    hint = error.hint if isinstance(error, ParavalError) else None
    lasts = isinstance(error, MissingObjectsError)
    kind = LastingWorkspaceError if lasts else WorkspaceError
    is_full = isinstance(error, DiskFullError)
    return kind(f"no workspace can be made: {in_words(error)}", hint=None if is_full else hint)
