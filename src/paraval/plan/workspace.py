"""Where attempts run: the key `workspace` as written, and what it stands for when a plan is made.

A branch moves on and a folder changes, so that a plan holds the commit and the tree that it found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paraval.errors import ParavalError, SuiteError
from paraval.isolation import Workspace, WorkspaceKind
from paraval.plan.forms import check
from paraval.plan.places import Spot, shown
from paraval.plan.placing import placed
from paraval.plan.programs import check_executable, search_path
from paraval.plan.workspace_forms import FolderWorkspaceForm, GitWorkspaceForm, WorkspaceForm


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWorkspace:
    """A workspace as the suite asks for it, and where it does."""

    spot: Spot
    record: Workspace
    """Without commit and tree; its source is the path as the suite means it, absolute."""

    def resolve(self) -> Workspace:
        """What it stands for now; SuiteError where that cannot be had."""
        spot = replace(self.spot, problems={})
        try:
            match self.record.kind:
                case WorkspaceKind.GIT:
                    return _resolve_git(self.record)
                case WorkspaceKind.FOLDER:
                    return _resolve_folder(self.record)
        except ParavalError as error:
            hint = f"; {error.hint}" if error.hint else ""
            spot.at(self.record.kind.value).report(f"{error.message}{hint}")
            raise SuiteError(list(spot.problems)) from error
        return self.record


def read_workspace(written: Any, spot: Spot, folder: Path) -> AskedWorkspace:
    """The workspace that the key names; what is wrong with it is told."""
    if written is None or written == "none":
        return AskedWorkspace(spot=spot, record=Workspace())
    # One that is wrong is there all the same, for what else is said of it.
    some = AskedWorkspace(spot=spot, record=Workspace(kind=WorkspaceKind.FOLDER))
    if not isinstance(written, Mapping):
        spot.report(f"must be 'none', or a mapping with folder or git, not {shown(written)}")
        return some
    kinds = [kind for kind in ("folder", "git") if kind in written]
    if len(kinds) != 1:
        has = "both folder and git" if kinds else "neither folder nor git"
        spot.report(f"has {has}; give exactly one, or write workspace: none")
        return some
    read = _read_git if kinds == ["git"] else _read_folder
    record = read(written, spot, folder)
    return some if record is None else replace(some, record=record)


def _read_folder(written: Mapping[str, Any], spot: Spot, folder: Path) -> Workspace | None:
    form = check(FolderWorkspaceForm, written, spot)
    if form is None:
        return None
    source: str | None = None
    if isinstance(form.folder, str):
        source = _path(form.folder, spot.at("folder"), folder)
    common = _common(form, spot, folder)
    return replace(common, kind=WorkspaceKind.FOLDER, source=source)


def _read_git(written: Mapping[str, Any], spot: Spot, folder: Path) -> Workspace | None:
    form = check(GitWorkspaceForm, written, spot)
    if form is None:
        return None
    if form.ref is not None and form.uncommitted:
        spot.at("ref").report("has no meaning with uncommitted: true; give one or the other")
    return replace(
        _common(form, spot, folder),
        kind=WorkspaceKind.GIT,
        source=_path(form.git, spot.at("git"), folder),
        ref=form.ref or "HEAD",
        uncommitted=form.uncommitted,
    )


def _path(written: str, spot: Spot, folder: Path) -> str:
    path = os.path.normpath(folder / written) if "\0" not in written else ""
    if not path or not Path(path).is_dir():
        spot.report(f"there is no folder '{path or shown(written)}'")
    return path


def _common(form: WorkspaceForm, spot: Spot, folder: Path) -> Workspace:
    setup = tuple(form.setup or ())
    program = placed(setup[0], str(folder)) if setup else ""
    # What is in the workspace is looked for when there is one.
    if setup and ("/" not in program or Path(program).is_absolute()):
        check_executable(program, str(folder), search_path({}), spot.at("setup"))
    return Workspace(
        setup=setup, setup_timeout=float(form.setup_timeout), sandbox=bool(form.sandbox)
    )


# ---- what it stands for


def _resolve_git(asked: Workspace) -> Workspace:
    # Only here, as below: most suites have no workspace.
    from paraval.git.repositories import find_repository, resolve, tree_of  # noqa: PLC0415 - see above
    from paraval.git.snapshots import snapshot_tree  # noqa: PLC0415 - see above

    assert asked.source is not None
    repository = find_repository(asked.source)
    commit = resolve(repository, asked.ref)
    tree = snapshot_tree(repository) if asked.uncommitted else tree_of(repository, commit)
    return replace(asked, source=repository.top, start=repository.prefix, commit=commit, tree=tree)


def _resolve_folder(asked: Workspace) -> Workspace:
    from paraval.git.folders import folder_tree  # noqa: PLC0415 - see above

    return asked if asked.source is None else replace(asked, tree=folder_tree(asked.source))
