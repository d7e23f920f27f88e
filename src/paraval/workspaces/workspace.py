"""Interfaces of workspaces: the lease that an attempt gets, the source that fills it, and
errors."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.git.run_git import DiskFullError, MissingObjectsError
from paraval.records import Change, HiddenFiles, Trial
from paraval.scratch import SCRATCH_VARIABLE, scratch_base
from paraval.workspaces.own_repository import FirstCommit
from paraval.workspaces.trusted_git import TrustedPaths

# What the slots of a pool are filled with: a tree of a repository, or a copy of a folder.

CHECKOUT_PATIENCE_S = 600.0
LARGEST_HASHED_BYTES = 10_000_000
"""Larger files are listed among the changes, and not read."""
AS_TEXT = "* !diff -filter\n"
"""Attributes that make a file binary only if it has a NUL byte, and never run a filter."""
AS_IT_IS = f"* -text -ident -working-tree-encoding\n{AS_TEXT}"
"""Attributes that make git take every file byte for byte."""

Layout = dict[bytes, frozenset[bytes]]
"""By folder, the names of its files; contains every folder, the top as b''."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlace:
    """Where a slot is."""

    number: int
    top: str
    index: str
    """A file outside the slot: git's index of it, which no attempt can reach."""
    laid_index: str
    """The same while another tree is applied to it."""
    trash: str
    """A folder outside the slot, for what is to be removed from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceBase:
    """What changes are compared with: a tree, and an index that contains it."""

    git_dir: str
    git_dir_as_it_is: str
    """The same without any conversion of contents."""
    tree: str
    index: str
    rules: str
    """A folder with only the `.gitignore` files that attempts start from."""
    hashes: Mapping[bytes, str] = field(default_factory=dict)
    """Contents of the tree's files, where git may have to read them to classify a change."""
    not_hashed: Mapping[bytes, bool] = field(default_factory=dict)
    """Files that the tree lacks because they are too large; True: binary ones."""
    submodules: frozenset[bytes] = frozenset()
    """Folders that represent a commit of another repository in the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidTree:
    """Another tree that replaces what a slot started from."""

    tree: str
    layout: Layout
    touched: frozenset[bytes]
    """What was written or removed for it."""
    baseline: WorkspaceBase
    """What changes are compared with from now on."""


class SlotSource(Protocol):
    """What a slot is filled with."""

    layout: Layout
    notes: tuple[str, ...]
    """What differs from what its owner may expect."""
    beginning: FirstCommit | None
    """For the slot's own repository; None: it has none."""
    trusted: TrustedPaths
    """Those of its files that an attempt could write to."""
    is_used_again: bool
    """False: every lease gets a slot of its own."""

    def fill(self, place: SlotPlace) -> None:
        """Put its contents into an empty folder. Raises GitError or OSError."""
        ...

    def put_back(self, place: SlotPlace, paths: list[bytes]) -> None:
        """Restore these files, none of which exists. Raises GitError or OSError."""
        ...

    def baseline(self, place: SlotPlace) -> WorkspaceBase:
        """Raises GitError or OSError."""
        ...

    def lay(self, place: SlotPlace, tree: str) -> LaidTree:
        """Replace its own tree by another, in a slot that is as it was filled. Raises GitError,
        OSError or WorkspaceError."""
        ...

    def put_back_laid(self, place: SlotPlace, laid: LaidTree, paths: list[bytes]) -> None:
        """Restore these files of the other tree, none of which exists. Raises like `lay`."""
        ...

    def hold_laid(self, place: SlotPlace, laid: LaidTree) -> None:
        """Make sure that the comparison uses what was written. Raises like `lay`."""
        ...

    def forget_laid(self, place: SlotPlace) -> None:
        """The slot is as it was filled, or will be."""
        ...


def layout_of(folders: Iterable[bytes], files: Iterable[bytes]) -> Layout:
    """Add folders that are only implied by their contents."""
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
    """There is no workspace; not the attempt's fault."""

    lasting = False
    """True: no other attempt of this run can have one either."""


class LastingWorkspaceError(WorkspaceError):
    """Nor can any later attempt have one."""

    lasting = True


class TreeSetupError(WorkspaceError):
    """`setup` fails with the requested tree; the workspace itself is fine."""


KEY_IN_PATCH = "a key was removed from the patch, so it may not apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorkspace:
    """What is kept of a workspace after its attempt."""

    change: Change
    patch: str | None = None
    """Absolute path of the patch; None if nothing changed."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFiles:
    """Hidden files in a workspace, and what an attempt did there that its patch does not show."""

    paths: tuple[str, ...] = ()
    """Relative to the workspace's top."""
    flags: tuple[str, ...] = ()


class Lease(Protocol):
    """A workspace while one attempt has it."""

    path: str
    """Absolute: where the attempt starts."""
    top: str
    """Absolute: its top, which contains `path`."""
    notes: tuple[str, ...]
    """Notes about its creation."""

    async def keep(self, folder: str) -> KeptWorkspace:
        """What the attempt has changed so far; the patch is written into this folder."""
        ...

    async def apply(self, patch: str) -> None:
        """Repeat another attempt's changes from its patch. Raises GitError."""
        ...

    async def put_hidden(self, hidden: Sequence[HiddenFiles]) -> PlacedFiles:
        """Put hidden files into it, after `keep` and before graders run. Raises WorkspaceError."""
        ...

    async def release(self) -> None:
        """The attempt has ended, and nothing of it is running. Never raises."""
        ...


class Workspaces(Protocol):
    """The source of a run's leases; an async context manager."""

    notes: tuple[str, ...]
    """What in all of them differs from what their owner may expect."""

    async def lease_for(self, trial: Trial) -> Lease:
        """A clean workspace, once there is one. Raises WorkspaceError if there can be none."""
        ...

    def widen(self, at_most: int) -> None:
        """So many leases may be in use at a time; never fewer than before."""
        ...

    async def close(self) -> None:
        """Remove all of them."""
        ...


# Why there is no workspace, or why changes are unknown: in words, and whether it is permanent.

_FULL = (errno.ENOSPC, errno.EDQUOT)


def in_words(error: BaseException) -> str:
    """The error in words, without a hint; a full disk with its path."""
    is_full = isinstance(error, OSError) and error.errno in _FULL
    if is_full or isinstance(error, DiskFullError):
        return f"no space left in {scratch_base()} ({SCRATCH_VARIABLE} names another place)"
    return error.message if isinstance(error, ParavalError) else str(error)


def not_laid(tree: str, error: BaseException) -> WorkspaceError:
    """For a requested tree, without implications for other trees."""
    hint = error.hint if isinstance(error, ParavalError) else None
    words = in_words(error)
    return WorkspaceError(
        f"the tree {tree[:12]} cannot be applied to a worktree: {words}", hint=hint
    )


def no_workspace(error: BaseException) -> WorkspaceError:
    """For a requested workspace."""
    if isinstance(error, WorkspaceError):
        return error
    hint = error.hint if isinstance(error, ParavalError) else None
    lasts = isinstance(error, MissingObjectsError)
    kind = LastingWorkspaceError if lasts else WorkspaceError
    is_full = isinstance(error, DiskFullError)
    return kind(f"cannot create a workspace: {in_words(error)}", hint=None if is_full else hint)
