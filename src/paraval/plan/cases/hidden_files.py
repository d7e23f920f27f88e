"""The key `hidden` of a suite and of its cases, and the files that it names for each trial.

They are found and hashed when a plan is made; `workspaces` puts them into place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import check
from paraval.documents.problems import Location, shown
from paraval.errors import ParavalError, Problem, SuiteError
from paraval.git.folders import contents_digest, folder_contents
from paraval.git.patch_paths import check_patch_quickly
from paraval.plan.cases.case_list import CaseList
from paraval.plan.prompts.texts import Prompt
from paraval.plan.schema.target_forms import HiddenFilesForm
from paraval.plan.template_checks import Template, check_template
from paraval.plan.workspace import described, is_in_workspace
from paraval.records import Case, HiddenFiles, Variant, Workspace
from paraval.templates.template import (
    NO_FIELDS,
    TemplateError,
    TemplateFields,
    field_names,
    fields_of_case,
    fill,
)

_FIELDS = ("input", "case.id", "case")


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRequest:
    """Hidden files as written: both paths are templates."""

    source: str
    to: str
    spot: Location

    @property
    def has_fields(self) -> bool:
        return bool(field_names(self.source) or field_names(self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRequests:
    """The hidden files of a suite."""

    suite: tuple[HiddenRequest, ...] = ()
    by_case: Mapping[str, tuple[HiddenRequest, ...]] = field(default_factory=dict)
    """Case id -> those of a case with files of its own."""

    def __bool__(self) -> bool:
        return bool(self.suite or self.by_case)


def read_hidden(
    written: Any, spot: Location, cases: CaseList, axes: Sequence[str]
) -> HiddenRequests:
    """Read the keys `hidden` of a suite and its cases; report their problems."""
    by_case = {
        case.id: tuple(_read(case.hidden, cases.spot(index).at("hidden")))
        for index, case in enumerate(cases.cases)
        if case.hidden
    }
    requests = HiddenRequests(suite=tuple(_read(written or (), spot)), by_case=by_case)
    _check_templates(requests.suite, cases, axes)
    for index, case in enumerate(cases.cases):
        if case.id in by_case:
            alone = replace(cases, cases=[case], addresses=[cases.addresses[index]])
            _check_templates(by_case[case.id], alone, axes)
    return requests


def _read(written: Any, spot: Location) -> Iterator[HiddenRequest]:
    if not isinstance(written, list | tuple):
        spot.report(
            f"must be a list of paths, or of mappings with from and to, not {shown(written)}"
        )
        return
    for number, item in enumerate(written):
        here = spot.at(number)
        form = check(HiddenFilesForm, {"from": item} if isinstance(item, str) else item, here)
        if form is None:
            continue
        request = HiddenRequest(source=form.from_, to=form.to or form.from_, spot=here)
        if form.to is not None and _is_patch(form.from_):
            here.at("to").report("a patch names its own paths, from the top; remove 'to'")
        yield request


def _is_patch(source: str) -> bool:
    return HiddenFiles(source=source, to="").is_patch


def _check_templates(
    requests: Sequence[HiddenRequest], cases: CaseList, axes: Sequence[str]
) -> None:
    for request in requests:
        for text in dict.fromkeys((request.source, request.to)):
            prompt = Prompt(text=text, spot=request.spot)
            check_template(Template(prompt=prompt, fields=_FIELDS), axes, cases)


class HiddenFinder:
    """Finds the hidden files of a plan's trials; each is read once."""

    def __init__(self, requests: HiddenRequests, folder: str) -> None:
        self._requests = requests
        self._folder = folder
        self._found: dict[tuple[str, str, str | None, str | None], HiddenFiles] = {}
        self._problems: dict[Problem, None] = {}

    def same_for_all(self, workspace: Workspace) -> tuple[HiddenFiles, ...]:
        """Those of every trial of a suite without templates."""
        if any(request.has_fields for request in self._requests.suite):
            return ()
        nothing = NO_FIELDS
        return tuple(self._find(one, nothing, workspace) for one in self._requests.suite)

    def of(self, case: Case, variant: Variant, workspace: Workspace) -> tuple[HiddenFiles, ...]:
        """`workspace`: where the trial's attempts start."""
        requests = (*self._requests.suite, *self._requests.by_case.get(case.id, ()))
        if not requests:
            return ()
        fields = replace(fields_of_case(case, variant), extra={"case": case.id})
        return tuple(self._find(request, fields, workspace) for request in requests)

    def raise_problems(self) -> None:
        if self._problems:
            raise SuiteError(list(self._problems))

    def _find(
        self, request: HiddenRequest, fields: TemplateFields, workspace: Workspace
    ) -> HiddenFiles:
        spot = replace(request.spot, problems=self._problems)
        try:
            source, to = fill(request.source, fields), fill(request.to, fields)
        except TemplateError as error:
            spot.report(f"case '{fields.case_id}': {error.message}")
            return HiddenFiles(source=request.source, to=request.to)
        key = (source, to, workspace.source, workspace.tree)
        if key not in self._found:
            self._found[key] = self._read(source, to, workspace, spot)
        return self._found[key]

    def _read(self, source: str, to: str, workspace: Workspace, spot: Location) -> HiddenFiles:
        path = os.path.normpath(Path(self._folder, source))
        is_folder = os.path.isdir(path)  # noqa: PTH112 - False for a name that is too long
        if not is_folder and (to == "." or to.endswith(("/", "/."))):
            to = f"{to}/{Path(path).name}"
        files = HiddenFiles(source=path, to="." if _is_patch(path) else os.path.normpath(to))
        problem = _problem(files, is_folder, workspace)
        if problem is None:
            try:
                if files.is_patch:
                    check_patch_quickly(path)
                return replace(files, digest=contents_digest(path))
            except ParavalError as error:
                problem = error.message
        spot.report(problem)
        return files


def _problem(files: HiddenFiles, is_folder: bool, workspace: Workspace) -> str | None:
    path, parts = files.source, Path(files.to).parts
    if not is_folder and not os.path.isfile(path):  # noqa: PTH113 - as above
        return f"no such file or folder: '{path}'"
    if is_folder and _is_patch(path):
        return f"'{path}' is a folder with the name of a patch; rename it"
    if is_folder and not folder_contents(path).files:
        return f"the folder '{path}' is empty"
    if workspace.source is None and files.is_patch:
        return "a patch needs a workspace with files, by git or folder; copy files instead"
    if Path(files.to).is_absolute() or ".." in parts or ".git" in parts:
        where = shown(files.to)
        return f"cannot be put at {where}, which is not in the workspace; give a path as 'to'"
    top = workspace.source
    if top is not None and Path(path).is_relative_to(top):
        inner = os.path.relpath(path, top)
        if is_in_workspace(workspace, inner):
            return (
                f"'{inner}' is in {described(workspace)}, so attempts start with it; move it out,"
                " and give its new place"
            )
    return None
