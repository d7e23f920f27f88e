"""What a workspace stands for: the commit and the tree that attempts begin with, and what is there.

A branch moves on and a folder changes, so that a plan holds what it found. A run that goes on goes
on from the commit that it noted, wherever its ref points by then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paraval.errors import ParavalError, Problem, RequestError, SuiteError
from paraval.isolation import Workspace, WorkspaceKind
from paraval.plan.places import Spot

if TYPE_CHECKING:
    from paraval.git.repositories import Repository

SHOWN_OF_A_COMMIT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What a run noted of where it began."""

    ref: str
    commit: str


def stands_for(asked: Workspace, spot: Spot, noted: Noted | None = None) -> Workspace:
    """The workspace with its commit and its tree as they are now; SuiteError where there is none.

    `noted` counts where the suite still names the same ref.
    """
    match asked.kind:
        case WorkspaceKind.GIT:
            return _git(asked, spot, noted)
        case WorkspaceKind.FOLDER if asked.source is not None:
            # Only here, as below: most suites have no workspace.
            from paraval.git.folders import folder_tree  # noqa: PLC0415 - see above

            with _telling(spot.at("folder")):
                return replace(asked, tree=folder_tree(asked.source))
    return asked


def tell_what_is_wrong(asked: Workspace, spot: Spot) -> None:
    """Reports why a repository cannot be used, beside whatever else is wrong in a suite."""
    if asked.kind is WorkspaceKind.GIT:
        try:
            _found(asked, spot, None)
        except SuiteError as error:
            spot.problems.update(dict.fromkeys(error.problems))


def _git(asked: Workspace, spot: Spot, noted: Noted | None) -> Workspace:
    from paraval.git.repositories import has_folder, tree_of  # noqa: PLC0415 - see stands_for
    from paraval.git.snapshots import snapshot_tree  # noqa: PLC0415 - see stands_for

    repository, commit = _found(asked, spot, noted)
    with _telling(spot.at("git")):
        tree = snapshot_tree(repository) if asked.uncommitted else tree_of(repository, commit)
    found = replace(asked, source=repository.top, start=repository.prefix, commit=commit, tree=tree)
    if not has_folder(repository, repository.prefix, commit=None if asked.uncommitted else commit):
        told = replace(spot.at("git"), problems={})
        told.report(
            f"the folder '{repository.prefix}' is not in {_what(found)}, so that no attempt could"
            " begin in it"
        )
        raise SuiteError(list(told.problems))
    return found


def _found(asked: Workspace, spot: Spot, noted: Noted | None) -> tuple[Repository, str]:
    from paraval.git.repositories import find_repository, resolve  # noqa: PLC0415 - see stands_for

    assert asked.source is not None
    with _telling(spot.at("git")):
        repository = find_repository(asked.source)
    if noted is not None and noted.ref == asked.ref and not asked.uncommitted:
        return repository, _noted_commit(repository, noted.commit)
    with _telling(spot.at("git" if asked.ref == "HEAD" else "ref")):
        try:
            return repository, resolve(repository, asked.ref)
        except ParavalError as error:
            raise _without_gits_words(error, repository, asked.ref) from error


def _without_gits_words(error: ParavalError, repository: Repository, ref: str) -> ParavalError:
    """`Needed a single revision` says nothing to whoever wrote the suite."""
    if f"'{ref}' is no branch" not in error.message:
        return error
    message = f"'{ref}' is no branch, tag or commit of {repository.top}"
    return ParavalError(message, hint=error.hint)


def _noted_commit(repository: Repository, commit: str) -> str:
    from paraval.git.repositories import resolve  # noqa: PLC0415 - see stands_for

    try:
        return resolve(repository, commit)
    except ParavalError as error:
        raise RequestError(
            f"the commit {commit[:SHOWN_OF_A_COMMIT]} that the run began with is no longer in"
            f" {repository.top}",
            hint="fetch it again if a remote still has it, or start a new run",
        ) from error


@contextmanager
def _telling(spot: Spot) -> Iterator[None]:
    """What cannot be had is a problem of the suite, at this key."""
    try:
        yield
    except ParavalError as error:
        hint = f"; {error.hint}" if error.hint else ""
        told = replace(spot, problems={})
        told.report(f"{error.message}{hint}")
        raise SuiteError(list(told.problems)) from error


# ---- what is there


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramWithin:
    """A program that is looked for in the workspace, and where the suite names it."""

    written: str
    path: str
    """Relative to where attempts begin."""
    spot: Spot
    after_setup: bool = True
    """True: a setup may make it."""


def check_programs_within(programs: Iterable[ProgramWithin], workspace: Workspace) -> None:
    """SuiteError with every program that no workspace would have."""
    problems: dict[Problem, None] = {}
    seen: dict[str, bool] = {}
    for program in programs:
        path = os.path.normpath(os.path.join(workspace.start, program.path))  # noqa: PTH118 - text
        if path not in seen:
            seen[path] = _is_there(workspace, path)
        may_be_made = program.after_setup and workspace.setup and not path.startswith("..")
        if seen[path] or may_be_made:
            continue
        replace(program.spot, problems=problems).report(
            f"'{program.written}' is not in {_what(workspace)}: relative programs are looked for in"
            f" the workspace; write {{suite}}/{program.written.removeprefix('./')} for one beside"
            " the suite"
        )
    if problems:
        raise SuiteError(list(problems))


def _is_there(workspace: Workspace, path: str) -> bool:
    if path.startswith("..") or workspace.source is None:
        return False
    if workspace.kind is WorkspaceKind.FOLDER:
        return os.path.lexists(Path(workspace.source, path))
    from paraval.git.repositories import find_repository  # noqa: PLC0415 - see stands_for

    return _has(workspace, find_repository(workspace.source), path)


def _has(workspace: Workspace, repository: Repository, path: str) -> bool:
    """Whether a file or a folder is in the tree that attempts begin with."""
    from paraval.git.running import run_git  # noqa: PLC0415 - see stands_for

    git_dir = f"--git-dir={repository.git_dir}"
    if not workspace.uncommitted:
        return run_git([git_dir, "cat-file", "-e", f"{workspace.tree}:{path}"]).is_well
    # The objects of a working tree as it is were not kept.
    listed = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", path]
    there = run_git([git_dir, f"--work-tree={repository.top}", *listed], cwd=repository.top)
    return bool(there.stdout) and os.path.lexists(Path(repository.top, path))


def _what(workspace: Workspace) -> str:
    if workspace.kind is WorkspaceKind.FOLDER:
        return f"the template {workspace.source}" if workspace.source else "an empty folder"
    if workspace.uncommitted:
        return f"the working tree of {workspace.source}, as git sees it"
    return f"commit {(workspace.commit or '')[:SHOWN_OF_A_COMMIT]} of {workspace.source}"
