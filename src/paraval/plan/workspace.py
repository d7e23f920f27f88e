"""Where attempts run: the key `workspace` as written. What it stands for when a plan is made is
found out in `standing`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paraval.isolation import Workspace, WorkspaceKind
from paraval.plan.forms import check, keys_of
from paraval.plan.places import Spot, nearest, shown, suggestion
from paraval.plan.placing import placed
from paraval.plan.programs import check_executable, search_path
from paraval.plan.workspace_forms import FolderWorkspaceForm, GitWorkspaceForm, WorkspaceForm

_ADDRESS = re.compile(r"[a-z][a-z+]*://|[\w.-]+@[\w.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWorkspace:
    """A workspace as the suite asks for it, and where it does."""

    spot: Spot
    record: Workspace
    """Without commit and tree; its source is the path as the suite means it, absolute."""


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
        if kinds or not _report_slips(written, spot):
            has = "both folder and git" if kinds else "neither folder nor git"
            spot.report(f"has {has}; give exactly one, or write workspace: none")
        return some
    read = _read_git if kinds == ["git"] else _read_folder
    record = read(written, spot, folder)
    return some if record is None else replace(some, record=record)


def _report_slips(written: Mapping[str, Any], spot: Spot) -> bool:
    """Tells of unknown keys; whether one of them was meant to be folder or git."""
    known = list(dict.fromkeys((*keys_of(GitWorkspaceForm), *keys_of(FolderWorkspaceForm))))
    unknown = [str(key) for key in written if key not in known]
    for key in unknown:
        spot.at(key).report(f"unknown key '{key}'{suggestion(key, known)}")
    return any(nearest(key, known)[:1] in (["folder"], ["git"]) for key in unknown)


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
        source=_repository(form.git, spot.at("git"), folder),
        ref=form.ref or "HEAD",
        uncommitted=form.uncommitted,
    )


def _repository(written: str, spot: Spot, folder: Path) -> str:
    if _ADDRESS.match(written) and not os.path.exists(folder / written):  # noqa: PTH110 - as below
        spot.report(f"{shown(written)} is an address; clone it first and give the folder")
        return ""
    return _path(written, spot, folder)


def _path(written: str, spot: Spot, folder: Path) -> str:
    path = os.path.normpath(folder / written) if "\0" not in written else ""
    if not os.path.isdir(path):  # noqa: PTH112 - False for a name that is too long
        spot.report(f"there is no folder '{path or shown(written)}'")
    return path


def _common(form: WorkspaceForm, spot: Spot, folder: Path) -> Workspace:
    setup = tuple(form.setup or ())
    program = placed(setup[0], str(folder)) if setup else ""
    # What is in the workspace is looked for when there is one.
    if setup and ("/" not in program or Path(program).is_absolute()):
        check_executable(program, str(folder), search_path({}), spot.at("setup"))
    return Workspace(
        setup=setup,
        setup_timeout=float(form.setup_timeout),
        sandbox=bool(form.sandbox),
        readable=_readable(form, spot.at("readable"), folder),
    )


def _readable(form: WorkspaceForm, spot: Spot, folder: Path) -> tuple[str, ...]:
    if form.readable and not form.sandbox:
        spot.report("has no meaning without sandbox: true, where everything can be read")
        return ()
    written = map(os.path.expanduser, form.readable or ())
    paths = [os.path.normpath(folder / path) for path in written]
    for path in paths:
        if "\0" in path or not Path(path).exists():
            spot.report(f"there is no file or folder {shown(path)}")
        elif Path(folder).is_relative_to(path):
            spot.report(
                f"{shown(path)} holds the suite's whole folder, which is hidden from attempts;"
                " name what they need of it"
            )
    return tuple(paths)
