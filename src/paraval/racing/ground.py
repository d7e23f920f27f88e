"""What a race begins with: the commit or the working tree that every candidate is a change to."""

from __future__ import annotations

from paraval.errors import ParavalError, RequestError
from paraval.git.repositories import find_repository, has_folder, resolve, tree_of
from paraval.git.snapshots import snapshot_tree
from paraval.isolation import Workspace, WorkspaceKind
from paraval.racing.request import RaceRequest
from paraval.racing.steps import Base


def workspace_of(request: RaceRequest, begun: Base | None = None) -> Workspace:
    """Where the steps of a race run; RequestError where there is no such thing.

    `begun`: what the race began with, where it goes on: wherever its ref points by now.
    """
    try:
        return _workspace(request, begun)
    except RequestError:
        raise
    except ParavalError as error:
        raise RequestError(f"repo: {error.message}", hint=error.hint) from error


def _workspace(request: RaceRequest, begun: Base | None) -> Workspace:
    repository = find_repository(request.repo)
    ref = request.ref if begun is None or begun.commit is None else begun.commit
    commit = resolve(repository, ref)
    tree = snapshot_tree(repository) if request.uncommitted else tree_of(repository, commit)
    if begun is not None and tree != begun.tree:
        raise RequestError(
            f"the working tree of {repository.top} has changed since the race began",
            hint="put it back as it was, or start a new race",
        )
    within = None if request.uncommitted else commit
    if not has_folder(repository, repository.prefix, commit=within):
        raise RequestError(
            f"the folder '{repository.prefix}' is not in commit {commit[:12]} of {repository.top},"
            " so that no command could run in it",
            hint="commit it, or race with `uncommitted: true`",
        )
    return Workspace(
        kind=WorkspaceKind.GIT,
        source=repository.top,
        start=repository.prefix,
        ref=request.ref,
        commit=commit,
        uncommitted=request.uncommitted,
        tree=tree,
        setup=request.setup,
        sandbox=request.sandbox,
    )


def base_of(workspace: Workspace) -> Base:
    assert workspace.tree is not None
    return Base(tree=workspace.tree, start=workspace.start, commit=workspace.commit)
