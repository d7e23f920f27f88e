"""Turns what a suite asks for into a pool of workspaces.

    async with open_workspaces(workspace, scratch=..., warden=..., at_most=8) as workspaces:
        lease = await workspaces.lease()

Whatever would fail for all attempts fails here, before the first of them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from paraval.environment import child_environment
from paraval.errors import TransientError
from paraval.git.alternates import lender_of, tags_before
from paraval.git.repositories import Repository, branch_of, find_repository, resolve, tree_of
from paraval.git.snapshots import Snapshot, snapshot
from paraval.processes.children import Warden
from paraval.processes.quick import KillSwitch
from paraval.processes.sandbox import Sandbox
from paraval.records import Workspace, WorkspaceKind
from paraval.scratch import remove_tree
from paraval.templates.template import TemplateFields, named_paths
from paraval.threads import Threads
from paraval.workspaces.folder_source import FolderSource
from paraval.workspaces.own_repository import FirstCommit
from paraval.workspaces.pool import Pool, Site
from paraval.workspaces.setup import SetupCommand, WorkspaceSetup
from paraval.workspaces.tree_source import TreeSource
from paraval.workspaces.workspace import SlotSource, WorkspaceError, no_workspace

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
    return SetupCommand(
        argv=workspace.setup,
        timeout=workspace.setup_timeout,
        env=child_environment({}) if env is None else env,
        folder=folder / "setup",
        bounds=_bounds(workspace, folder) if workspace.sandbox else None,
    )


def _bounds(workspace: Workspace, folder: Path) -> Sandbox:
    """Limits for a `setup` that runs another tree's code. It may use the network, like targets; the
    objects that its worktree borrows may be in a temporary folder, which a sandbox hides."""
    seen = [str(folder / "trusted"), sys.prefix, sys.base_prefix]
    if workspace.source is not None:
        seen.append(workspace.source)
    nothing = TemplateFields(input=None, case_id="", repeat=0, folder="")
    seen += named_paths(workspace.setup, nothing)
    return Sandbox(readable=tuple(seen), network=True)


def _name_of(workspace: Workspace) -> str:
    """The name of the user's own folder: programs show it, and some need it."""
    name = _NOT_IN_A_NAME.sub("-", Path(workspace.source).name) if workspace.source else ""
    return name.removesuffix(".git").lstrip(".-")[:64] or "workspace"
