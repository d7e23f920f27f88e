"""Turns what a suite asks for into a pool of workspaces.

    async with open_workspaces(workspace, scratch=..., warden=..., at_most=8) as workspaces:
        lease = await workspaces.lease()

Whatever would fail for all attempts fails here, before the first of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.environment import child_environment
from paraval.errors import ParavalError, TransientError
from paraval.git.alternates import copied_history, lender_of, tags_before
from paraval.git.repositories import Repository, branch_of, find_repository, resolve, tree_of
from paraval.git.snapshots import Snapshot, snapshot
from paraval.processes.children import Warden
from paraval.processes.quick import KillSwitch
from paraval.processes.sandbox import SYSTEM_FOLDERS, Sandbox
from paraval.records import HiddenFiles, Trial, Workspace, WorkspaceKind
from paraval.scratch import remove_tree
from paraval.templates.template import NO_FIELDS, named_paths
from paraval.threads import Threads
from paraval.workspaces.folder_source import FolderSource
from paraval.workspaces.own_repository import FirstCommit
from paraval.workspaces.pool import Pool, Site, SlotLease
from paraval.workspaces.setup import SetupCommand, WorkspaceSetup
from paraval.workspaces.tree_source import TreeSource
from paraval.workspaces.workspace import (
    KeptWorkspace,
    Lease,
    PlacedFiles,
    SlotSource,
    WorkspaceError,
    no_workspace,
)

_NOT_IN_A_NAME = re.compile(r"[^\w.+-]", re.ASCII)


@asynccontextmanager
async def open_workspaces(
    workspace: Workspace,
    *,
    scratch: Path,
    warden: Warden,
    at_most: int,
    env: Mapping[str, str] | None = None,
    objects: Path | None = None,
) -> AsyncIterator[Pool]:
    """Workspaces for the duration of the block; then they are removed.

    `env` is the whole environment of `setup`, except for its TMPDIR. `objects` is a folder of git
    objects besides the repository's: its trees can be applied to worktrees, and attempts do not see
    it. Raises ParavalError if there can be no workspaces.
    """
    folder = scratch / "workspaces"
    (folder / "trusted").mkdir(parents=True)
    try:
        source = await _opened_source(workspace, folder / "trusted", objects)
        _check_start(workspace, source)
    except OSError as error:
        remove_tree(folder)
        raise no_workspace(error) from error
    except BaseException:
        remove_tree(folder)
        raise
    setup = WorkspaceSetup(_setup_of(workspace, folder, env), warden)
    site = Site(folder=folder, name=_name_of(workspace), start=workspace.start)
    async with Pool(source, site, setup, at_most=at_most) as pool:
        yield pool


@asynccontextmanager
async def open_workspaces_by_case(
    *, scratch: Path, warden: Warden, at_most: int
) -> AsyncIterator[CasePools]:
    """For trials that each have a workspace of their own."""
    pools = CasePools(scratch=scratch, warden=warden, at_most=at_most)
    try:
        yield pools
    finally:
        await pools.close()


@dataclass(slots=True, kw_only=True, eq=False)
class _CasePool:
    """A pool of workspaces that start alike."""

    opening: asyncio.Future[Pool]
    exit: AsyncExitStack
    leases: int = 0
    notes: tuple[str, ...] = ()
    """For the first lease."""

    @property
    def pool(self) -> Pool | None:
        """None: it is not open yet, or cannot be opened."""
        done = self.opening.done() and not self.opening.cancelled()
        return self.opening.result() if done and self.opening.exception() is None else None

    async def close(self) -> None:
        self.opening.cancel()
        await asyncio.wait([self.opening])
        await self.exit.aclose()


_SOME = HiddenFiles(source="", to="")
"""Which files are hidden matters only after the attempt."""


class CasePools:
    """Workspaces that start from different places: a pool for each, opened when it is needed.

    All of them together have at most as many slots as there may be leases, and pools without slots
    are closed, so they take no more disk space than those of a run with one workspace.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, *, scratch: Path, warden: Warden, at_most: int) -> None:
        self._scratch = scratch
        self._warden = warden
        self._at_most = max(1, at_most)
        self._pools: dict[Workspace, _CasePool] = {}
        """By what they start from; the one used last at the end."""
        self._opened = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._leased: dict[str, Workspace] = {}

    def leased_at(self, path: str) -> Workspace | None:
        """The workspace of the lease that starts there."""
        return self._leased.get(path)

    async def lease_for(self, trial: Trial) -> Lease:
        """Raises WorkspaceError if this trial can have none; others still may."""
        assert trial.workspace is not None, "every trial has its own"
        hidden = (_SOME,) if trial.workspace.hidden else ()
        start = replace(trial.workspace, hidden=hidden)
        if not start.setup:
            # Where attempts run makes no difference to what they start from.
            start = replace(start, container=None)
        one = self._pools.pop(start, None) or self._open(start)
        self._pools[start] = one
        one.leases += 1
        try:
            pool = await asyncio.shield(one.opening)
            if not pool.has_free_slot:
                self._make_room()
            lease = await pool.lease()
        except BaseException as error:
            one.leases -= 1
            if one.pool is None and self._pools.get(start) is one and one.opening.done():
                del self._pools[start]  # The next attempt tries again.
            if isinstance(error, ParavalError):
                # Not `lasting`, which would end the whole run.
                raise WorkspaceError(no_workspace(error).message, hint=error.hint) from error
            raise
        lease.notes, one.notes = (*one.notes, *lease.notes), ()
        self._leased[lease.path] = trial.workspace
        return _CaseLease(lease, lambda: self._released(one, lease.path))

    def widen(self, at_most: int) -> None:
        """So many leases may be in use at a time; never fewer than before."""
        self._at_most = max(self._at_most, at_most)
        for one in self._pools.values():
            if one.pool is not None:
                one.pool.widen(at_most)

    async def close(self) -> None:
        """Remove all of them."""
        for one in self._pools.values():
            self._close(one)
        self._pools = {}
        if self._closing:
            await asyncio.wait(self._closing)

    def _open(self, start: Workspace) -> _CasePool:
        self._opened += 1
        leaving = AsyncExitStack()
        folder = self._scratch / f"case-{self._opened}"
        pool = open_workspaces(start, scratch=folder, warden=self._warden, at_most=self._at_most)

        async def opened() -> Pool:
            pool_ = await leaving.enter_async_context(pool)
            one.notes = pool_.notes
            return pool_

        one = _CasePool(opening=asyncio.ensure_future(opened()), exit=leaving)
        return one

    def _close(self, one: _CasePool) -> None:
        closing = asyncio.get_running_loop().create_task(one.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _make_room(self) -> None:
        """Remove slots of the pools that were not used for the longest time."""
        sizes = [one.pool.size for one in self._pools.values() if one.pool is not None]
        surplus = sum(sizes) + 1 - self._at_most
        for start, one in list(self._pools.items()):
            pool = one.pool
            while surplus > 0 and pool is not None and pool.has_free_slot:
                pool.drop_free_slot()
                surplus -= 1
            if pool is not None and not one.leases and not pool.size:
                del self._pools[start]
                self._close(one)

    def _released(self, one: _CasePool, path: str) -> None:
        one.leases -= 1
        self._leased.pop(path, None)


class _CaseLease:
    """A lease that its pool is kept open for."""

    def __init__(self, lease: SlotLease, released: Callable[[], None]) -> None:
        self._lease = lease
        self._released = released
        self.path, self.top, self.notes = lease.path, lease.top, lease.notes

    async def keep(self, folder: str) -> KeptWorkspace:
        return await self._lease.keep(folder)

    async def apply(self, patch: str) -> None:
        await self._lease.apply(patch)

    async def put_hidden(self, hidden: Sequence[HiddenFiles]) -> PlacedFiles:
        return await self._lease.put_hidden(hidden)

    async def release(self) -> None:
        self._released()
        await self._lease.release()


async def _opened_source(workspace: Workspace, folder: Path, more: Path | None) -> SlotSource:
    """In a thread; a cancel ends a git process that it waits for."""
    threads, leash = Threads(limit=1), KillSwitch()

    def on_the_leash() -> SlotSource:
        with leash.held():
            return _source_of(workspace, folder, more)

    try:
        return await threads.call(on_the_leash)
    except TransientError as error:
        raise no_workspace(error) from error
    finally:
        leash.pull()
        threads.close()


def _source_of(workspace: Workspace, folder: Path, more: Path | None) -> SlotSource:
    if workspace.kind in (WorkspaceKind.FOLDER, WorkspaceKind.IMAGE):
        return _folder_source(workspace, folder)
    if workspace.kind is not WorkspaceKind.GIT or workspace.source is None:
        raise ValueError(f"there is no workspace of kind '{workspace.kind}' to be leased")
    repository = find_repository(workspace.source)
    objects = folder / "objects"
    beginning = _begin_with(repository, workspace, objects)
    lender = replace(
        lender_of(repository, *([str(objects)] if objects.exists() else [])),
        tags=tags_before(repository, workspace.commit or resolve(repository, workspace.ref)),
    )
    if workspace.hidden and not workspace.uncommitted:
        shallow = copied_history(repository, beginning.commit, str(objects))
        lender = replace(lender, objects=(str(objects),), tags=b"", shallow=shallow or None)
    return TreeSource(
        folder,
        beginning.tree,
        FirstCommit(
            lender=lender, commit=beginning.commit, branch=branch_of(repository, workspace.ref)
        ),
        more_objects=_made(more),
    )


def _made(objects: Path | None) -> tuple[str, ...]:
    """git fails in a folder that does not exist, even if it is not used."""
    if objects is None:
        return ()
    objects.mkdir(parents=True, exist_ok=True)
    return (str(objects.absolute()),)


def _folder_source(workspace: Workspace, folder: Path) -> FolderSource:
    source = FolderSource(folder, workspace.source)
    if workspace.tree not in (None, source.tree):
        raise WorkspaceError(
            f"the template {workspace.source} has changed since the run was planned",
            hint="run it again, and don't edit the template until the run has started",
        )
    return source


def _begin_with(repository: Repository, workspace: Workspace, objects: Path) -> Snapshot:
    if not workspace.uncommitted:
        commit = workspace.commit or resolve(repository, workspace.ref)
        return Snapshot(commit=commit, tree=tree_of(repository, commit))
    taken = snapshot(repository, objects)
    if workspace.tree not in (None, taken.tree):
        raise WorkspaceError(
            f"the working tree of {repository.top} has changed since the run was planned",
            hint="run it again, and don't edit the working tree until the run has started",
        )
    return taken


def _check_start(workspace: Workspace, source: SlotSource) -> None:
    start = os.path.normpath(workspace.start)
    if start != "." and os.fsencode(start) not in source.layout:
        raise WorkspaceError(
            f"there is no folder '{workspace.start}' in the workspaces' starting tree",
            hint="commit it at the ref, or use `uncommitted: true`",
        )


def _setup_of(
    workspace: Workspace, folder: Path, env: Mapping[str, str] | None
) -> SetupCommand | None:
    if not workspace.setup:
        return None
    bounds = _bounds(workspace, folder) if workspace.sandbox else None
    if workspace.container is not None:
        bounds = _given(workspace, folder)
    return SetupCommand(
        argv=workspace.setup,
        timeout=workspace.setup_timeout,
        env=child_environment({}) if env is None else env,
        folder=folder / "setup",
        bounds=bounds,
        container=workspace.container,
    )


def _given(workspace: Workspace, folder: Path) -> Sandbox:
    """What a `setup` in a container gets of this machine: the git objects that its worktree
    borrows, and files that it names. Those of the system are the image's own."""
    seen = [str(folder / "trusted"), *workspace.readable]
    if workspace.kind is WorkspaceKind.GIT and workspace.source is not None:
        seen += find_repository(workspace.source).all_objects
    named = named_paths(workspace.setup, NO_FIELDS)
    seen += (path for path in named if Path(path).parts[1] not in SYSTEM_FOLDERS)
    return Sandbox(readable=tuple(dict.fromkeys(seen)))


def _bounds(workspace: Workspace, folder: Path) -> Sandbox:
    """Limits for a `setup` that runs another tree's code. It may use the network, like targets; the
    objects that its worktree borrows may be in a temporary folder, which a sandbox hides."""
    seen = [str(folder / "trusted"), sys.prefix, sys.base_prefix]
    if workspace.source is not None:
        seen.append(workspace.source)
    seen += named_paths(workspace.setup, NO_FIELDS)
    return Sandbox(readable=tuple(seen), network=True)


def _name_of(workspace: Workspace) -> str:
    """The name of the user's own folder: programs show it, and some need it."""
    name = _NOT_IN_A_NAME.sub("-", Path(workspace.source).name) if workspace.source else ""
    return name.removesuffix(".git").lstrip(".-")[:64] or "workspace"
