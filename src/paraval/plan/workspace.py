"""The key `workspace`, and what it resolves to when a plan is made."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import check, keys_of
from paraval.documents.problems import Location, shown
from paraval.documents.scalars import scalar_text
from paraval.errors import ParavalError, Problem, RequestError, SuiteError
from paraval.git.repositories import (
    Repository,
    find_repository,
    has_folder,
    resolve,
    resolve_many,
    tree_of,
)
from paraval.git.run_git import GitError, run_git
from paraval.plan.cases.case_list import CaseList
from paraval.plan.matrix import Axis
from paraval.plan.schema.target_forms import (
    ContainerForm,
    FolderWorkspaceForm,
    GitWorkspaceForm,
    ImageWorkspaceForm,
    WorkspaceForm,
)
from paraval.plan.suite_folder import check_executable, placed, search_path
from paraval.plan.targets import VariantTarget
from paraval.records import (
    AgentTarget,
    Case,
    CommandTarget,
    Container,
    Variant,
    Workspace,
    WorkspaceKind,
)
from paraval.templates.template import (
    NO_FIELDS,
    TemplateError,
    TemplateFields,
    field_names,
    fields_of_case,
    fill,
)
from paraval.text.suggest import nearest, suggestion

# Resolving a workspace: the commit and tree that attempts start from, and the files in it.

SHOWN_OF_A_COMMIT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStart:
    """Where a run started, as recorded."""

    ref: str
    commit: str


class KnownCommits:
    """What git said about repositories and their commits: a plan may have thousands."""

    def __init__(self) -> None:
        self._repositories: dict[str, Repository] = {}
        self._commits: dict[tuple[str, str], tuple[str, str]] = {}
        """(folder, ref) -> its commit and tree."""

    def prepare(self, folder: str, refs: Iterable[str]) -> None:
        """Look up many refs at once; what is not found is looked up, and reported, later."""
        with suppress(GitError):
            found = resolve_many(self.repository(folder), refs)
            self._commits |= {(folder, ref): pair for ref, pair in found.items()}
            self._commits |= {(folder, pair[0]): pair for pair in found.values()}

    def repository(self, folder: str) -> Repository:
        """Raises GitError."""
        if folder not in self._repositories:
            self._repositories[folder] = find_repository(folder)
        return self._repositories[folder]

    def commit(self, folder: str, ref: str) -> str:
        """Raises GitError."""
        known = self._commits.get((folder, ref))
        return resolve(self.repository(folder), ref) if known is None else known[0]

    def tree(self, folder: str, commit: str) -> str:
        """Raises GitError."""
        known = self._commits.get((folder, commit))
        return tree_of(self.repository(folder), commit) if known is None else known[1]


def stands_for(
    asked: Workspace,
    spot: Location,
    noted: RecordedStart | None = None,
    known: KnownCommits | None = None,
) -> Workspace:
    """Return the workspace with its current commit and tree; SuiteError if there are none.

    `noted` is used if the suite still names the same ref.
    """
    asked = _with_build(asked, spot)
    match asked.kind:
        case WorkspaceKind.GIT:
            return _git(asked, spot, noted, known or KnownCommits())
        case WorkspaceKind.FOLDER if asked.source is not None:
            # Imported late: few suites copy a folder.
            from paraval.git.folders import folder_tree  # noqa: PLC0415 - see above

            with _telling(spot.at("folder")):
                return replace(asked, tree=folder_tree(asked.source))
    return asked


def _with_build(asked: Workspace, spot: Location) -> Workspace:
    """With the contents of the folder that its image is built from."""
    if asked.container is None or asked.container.build is None:
        return asked
    from paraval.git.folders import folder_tree  # noqa: PLC0415 - see stands_for

    with _telling(spot.at("container", "build")):
        tree = folder_tree(asked.container.build)
    return replace(asked, container=replace(asked.container, tree=tree))


def tell_what_is_wrong(asked: Workspace, spot: Location) -> None:
    """Report why a repository cannot be used, together with the suite's other problems."""
    if asked.kind is WorkspaceKind.GIT:
        try:
            _found(asked, spot, None, KnownCommits())
        except SuiteError as error:
            spot.problems.update(dict.fromkeys(error.problems))


def _git(
    asked: Workspace,
    spot: Location,
    noted: RecordedStart | None,
    known: KnownCommits,
) -> Workspace:
    from paraval.git.snapshots import snapshot_tree  # noqa: PLC0415 - see stands_for

    repository, commit = _found(asked, spot, noted, known)
    with _telling(spot.at("git")):
        tree = (
            snapshot_tree(repository)
            if asked.uncommitted
            else known.tree(asked.source or "", commit)
        )
    found = replace(asked, source=repository.top, start=repository.prefix, commit=commit, tree=tree)
    if not has_folder(repository, repository.prefix, commit=None if asked.uncommitted else commit):
        location = replace(spot.at("git"), problems={})
        location.report(
            f"the folder '{repository.prefix}' is not in {described(found)}, so no attempt can"
            " start there"
        )
        raise SuiteError(list(location.problems))
    return found


def _found(
    asked: Workspace,
    spot: Location,
    noted: RecordedStart | None,
    known: KnownCommits,
) -> tuple[Repository, str]:
    assert asked.source is not None
    with _telling(spot.at("git")):
        repository = known.repository(asked.source)
    if noted is not None and noted.ref == asked.ref and not asked.uncommitted:
        return repository, _noted_commit(repository, noted.commit)
    with _telling(spot.at("git" if asked.ref == "HEAD" else "ref")):
        try:
            return repository, known.commit(asked.source, asked.ref)
        except ParavalError as error:
            raise _without_gits_words(error, repository, asked.ref) from error


def _without_gits_words(error: ParavalError, repository: Repository, ref: str) -> ParavalError:
    """Replace git's `Needed a single revision`, which means nothing to the suite's author."""
    if "branch, tag or commit" not in error.message:
        return error
    message = f"'{ref}' is not a branch, tag or commit of {repository.top}"
    return ParavalError(message, hint=error.hint)


def _noted_commit(repository: Repository, commit: str) -> str:
    try:
        return resolve(repository, commit)
    except ParavalError as error:
        raise RequestError(
            f"commit {commit[:SHOWN_OF_A_COMMIT]}, which the run started from, is no longer in"
            f" {repository.top}",
            hint="fetch it again if a remote still has it, or start a new run",
        ) from error


@contextmanager
def _telling(spot: Location) -> Iterator[None]:
    """Turn an error into a problem of the suite at this key."""
    try:
        yield
    except ParavalError as error:
        hint = f"; {error.hint}" if error.hint else ""
        location = replace(spot, problems={})
        location.report(f"{error.message}{hint}")
        raise SuiteError(list(location.problems)) from error


# ---- files in the workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceProgram:
    """A program in the workspace, and the location where the suite names it."""

    written: str
    path: str
    """Relative to where attempts start."""
    spot: Location
    after_setup: bool = True
    """True: the setup may create it."""


def check_programs_within(programs: Iterable[WorkspaceProgram], workspace: Workspace) -> None:
    """Raise SuiteError with every program that no workspace would have."""
    problems: dict[Problem, None] = {}
    seen: dict[str, bool] = {}
    for program in programs:
        path = os.path.normpath(os.path.join(workspace.start, program.path))  # noqa: PTH118 - text
        if path not in seen:
            seen[path] = is_in_workspace(workspace, path)
        may_be_made = program.after_setup and workspace.setup and not path.startswith("..")
        if seen[path] or may_be_made:
            continue
        replace(program.spot, problems=problems).report(
            f"'{program.written}' is not in {described(workspace)}: relative programs are looked"
            " up in the workspace; write"
            f" {{suite}}/{program.written.removeprefix('./')} for one beside the suite"
        )
    if problems:
        raise SuiteError(list(problems))


def is_in_workspace(workspace: Workspace, path: str) -> bool:
    """Whether attempts start with a file or folder, relative to the top."""
    if path.startswith("..") or workspace.source is None:
        return False
    if workspace.kind is WorkspaceKind.FOLDER:
        return os.path.lexists(Path(workspace.source, path))
    return _has(workspace, find_repository(workspace.source), path)


def _has(workspace: Workspace, repository: Repository, path: str) -> bool:
    """Whether the tree that attempts start from has a file or folder."""
    git_dir = f"--git-dir={repository.git_dir}"
    if not workspace.uncommitted:
        return run_git([git_dir, "cat-file", "-e", f"{workspace.tree}:{path}"]).is_well
    # The objects of an uncommitted working tree were not kept.
    listed = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", path]
    there = run_git([git_dir, f"--work-tree={repository.top}", *listed], cwd=repository.top)
    return bool(there.stdout) and os.path.lexists(Path(repository.top, path))


def described(workspace: Workspace) -> str:
    if workspace.kind is WorkspaceKind.FOLDER:
        return f"the template {workspace.source}" if workspace.source else "an empty folder"
    if workspace.uncommitted:
        return f"the working tree of {workspace.source}, as git sees it"
    return f"commit {(workspace.commit or '')[:SHOWN_OF_A_COMMIT]} of {workspace.source}"


_ADDRESS = re.compile(r"[a-z][a-z+]*://|[\w.-]+@[\w.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRequest:
    """A workspace as written in the suite, and its location."""

    spot: Location
    record: Workspace
    """Without commit and tree; its source is an absolute path."""
    fields: TemplateFields = NO_FIELDS
    """For the templates of its setup."""


# Workspaces that differ by case or by variant: templates, and keys of cases and axis values.

_TEMPLATES = ("git", "ref", "folder")
_CONTAINER_TEMPLATES = ("image", "build")
_SAME_FOR_ALL = ("sandbox", "readable")
MOST_LISTED = 5
"""Problems of cases that are reported."""


class CaseWorkspaces:
    """The workspace of each trial: the suite's keys, then those of its axis values and its case,
    with the templates filled in."""

    def __init__(
        self, written: Any, spot: Location, folder: Path, axes: Sequence[Axis], cases: CaseList
    ) -> None:
        self._written: Mapping[str, Any] = written if isinstance(written, Mapping) else {}
        self._spot = spot
        self._folder = folder
        self._axes = axes
        self._spots = {
            case.id: cases.spot(index).at("workspace")
            for index, case in enumerate(cases.cases)
            if case.workspace is not None
        }
        self._read: dict[str, tuple[Workspace, dict[Problem, None]]] = {}

    def of(self, case: Case, variant: Variant) -> WorkspaceRequest:
        """Raises SuiteError if it is invalid."""
        written, spot = self._merged(case, variant)
        fields = fields_of_case(case, variant)
        try:
            filled = _filled_in(written, fields)
            for argument in _setup(written):
                fill(placed(argument, str(self._folder)), fields)
        except TemplateError as error:
            location = replace(spot, problems={})
            location.report(f"case '{case.id}': {error.message}; a workspace may use {_FIELDS}")
            raise SuiteError(list(location.problems)) from error
        key = json.dumps([filled, spot.path], sort_keys=True, default=str)
        if key not in self._read:
            location = replace(spot, problems={})
            record = read_workspace(filled, location, self._folder).record
            self._read[key] = record, location.problems
        record, problems = self._read[key]
        if problems:
            raise SuiteError([of_case(case, problem) for problem in problems])
        return WorkspaceRequest(spot=spot, record=record, fields=fields)

    def _merged(self, case: Case, variant: Variant) -> tuple[Mapping[str, Any], Location]:
        written, spot = self._written, self._spot
        for axis in self._axes:
            value = axis.find(scalar_text(variant[axis.name]))
            if value is not None and value.workspace is not None:
                written, spot = overlaid(written, value.workspace), value.spot.at("workspace")
        if case.workspace is not None:
            written, spot = overlaid(written, case.workspace), self._spots[case.id]
        for key in _SAME_FOR_ALL:
            if written.get(key) != self._written.get(key):
                location = replace(spot.at(key), problems={})
                location.report("must be the same for all trials; give it in the suite's workspace")
                raise SuiteError(list(location.problems))
        return written, spot

    def check(self, cases: Iterable[Case], variants: Iterable[Variant]) -> WorkspaceRequest | None:
        """Report the problems of all trials' workspaces; return the first valid one."""
        first, found, variants = None, 0, list(variants)
        for case in cases:
            for variant in variants:
                try:
                    request = self.of(case, variant)
                except SuiteError as error:
                    new = [one for one in error.problems if one not in self._spot.problems]
                    self._spot.problems.update(dict.fromkeys(new[: max(0, MOST_LISTED - found)]))
                    found += len(new)
                else:
                    first = first or request
        if found > MOST_LISTED:
            self._spot.report(f"{found - MOST_LISTED} more problems of this kind in other cases")
        return first


_FIELDS = "{input...}, {metadata...}, {case.id} and axes"


def of_case(case: Case, problem: Problem) -> Problem:
    """The problem, with the name of the case that has it."""
    return replace(problem, message=f"case '{case.id}': {problem.message}")


def _filled(written: Mapping[str, Any], names: Sequence[str] = _TEMPLATES) -> list[str]:
    return [key for key in names if isinstance(written.get(key), str)]


def _filled_in(written: Mapping[str, Any], fields: TemplateFields) -> dict[str, Any]:
    filled = {**written, **{key: fill(written[key], fields) for key in _filled(written)}}
    if isinstance(box := written.get("container"), Mapping):
        keys = _filled(box, _CONTAINER_TEMPLATES)
        filled["container"] = {**box, **{key: fill(box[key], fields) for key in keys}}
    return filled


def _setup(written: Mapping[str, Any]) -> list[str]:
    setup = written.get("setup")
    return [text for text in setup if isinstance(text, str)] if isinstance(setup, list) else []


def overlaid(written: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a workspace with others over them: git replaces folder, and null removes. Those
    of a container the same: image replaces build."""
    other = {"git": "folder", "folder": "git", "image": "build", "build": "image"}
    replaced = {other[key] for key in keys if key in other} - set(keys)
    merged = {key: value for key, value in written.items() if key not in replaced}
    merged |= keys
    boxes = written.get("container"), keys.get("container")
    if isinstance(boxes[0], Mapping) and isinstance(boxes[1], Mapping):
        merged["container"] = overlaid(boxes[0], boxes[1])
    return {key: value for key, value in merged.items() if value is not None or key == "folder"}


def read_workspaces(
    written: Any, spot: Location, folder: Path, axes: Sequence[Axis], cases: CaseList
) -> CaseWorkspaces | None:
    """None: all trials have the same workspace."""
    if isinstance(written, Mapping | None) and (
        any(value.workspace is not None for axis in axes for value in axis.values)
        or any(case.workspace is not None for case in cases.cases)
        or (written is not None and _has_fields(written))
    ):
        return CaseWorkspaces(written, spot, folder, axes, cases)
    return None


def _has_fields(written: Mapping[str, Any]) -> bool:
    texts = [*(written[key] for key in _filled(written)), *_setup(written)]
    if isinstance(box := written.get("container"), Mapping):
        texts += [box[key] for key in _filled(box, _CONTAINER_TEMPLATES)]
    try:
        names = {name for text in texts for name in field_names(text)}
    except TemplateError:
        return True
    return not names <= {"python", "suite"}


def read_workspace(written: Any, spot: Location, folder: Path) -> WorkspaceRequest:
    """Read the key `workspace`; report its problems."""
    if written is None or written == "none":
        return WorkspaceRequest(spot=spot, record=Workspace())
    # An invalid workspace still counts, for other keys that need one.
    some = WorkspaceRequest(spot=spot, record=Workspace(kind=WorkspaceKind.FOLDER))
    if not isinstance(written, Mapping):
        wanted = "'none', or a mapping with folder, git or container"
        spot.report(f"must be {wanted}, not {shown(written)}")
        return some
    kinds = [kind for kind in ("folder", "git") if kind in written]
    if not kinds and "container" in written:
        record = _read_image(written, spot, folder)
        return some if record is None else replace(some, record=record)
    if len(kinds) != 1:
        if kinds or not _report_slips(written, spot):
            has = "both folder and git" if kinds else "none of folder, git and container"
            spot.report(f"has {has}; give exactly one, or write workspace: none")
        return some
    read = _read_git if kinds == ["git"] else _read_folder
    record = read(written, spot, folder)
    return some if record is None else replace(some, record=record)


def _report_slips(written: Mapping[str, Any], spot: Location) -> bool:
    """Report unknown keys; whether one of them was meant to be folder or git."""
    known = list(dict.fromkeys((*keys_of(GitWorkspaceForm), *keys_of(FolderWorkspaceForm))))
    unknown = [str(key) for key in written if key not in known]
    for key in unknown:
        spot.at(key).report(f"unknown key '{key}'{suggestion(key, known)}")
    return any(nearest(key, known)[:1] in (["folder"], ["git"]) for key in unknown)


def _read_folder(written: Mapping[str, Any], spot: Location, folder: Path) -> Workspace | None:
    form = check(FolderWorkspaceForm, written, spot)
    if form is None:
        return None
    source: str | None = None
    if isinstance(form.folder, str):
        source = _path(form.folder, spot.at("folder"), folder)
    common = _common(form, spot, folder)
    return replace(common, kind=WorkspaceKind.FOLDER, source=source)


def _read_git(written: Mapping[str, Any], spot: Location, folder: Path) -> Workspace | None:
    form = check(GitWorkspaceForm, written, spot)
    if form is None:
        return None
    if form.ref is not None and form.uncommitted:
        spot.at("ref").report("cannot be combined with uncommitted: true; use one or the other")
    return replace(
        _common(form, spot, folder),
        kind=WorkspaceKind.GIT,
        source=_repository(form.git, spot.at("git"), folder),
        ref=form.ref or "HEAD",
        uncommitted=form.uncommitted,
    )


def _read_image(written: Mapping[str, Any], spot: Location, folder: Path) -> Workspace | None:
    form = check(ImageWorkspaceForm, written, spot)
    if form is None:
        return None
    if form.setup:
        spot.at("setup").report("needs git or folder; with an image alone, put it into the image")
    return replace(_common(form, spot, folder), kind=WorkspaceKind.IMAGE)


_IMAGE_NAME = re.compile(r"[\w./][\w./:@+-]*", re.ASCII)


def _container(form: WorkspaceForm, spot: Location, folder: Path) -> Container | None:
    """Read the key `container`; report its problems."""
    if form.container is None:
        return None
    at = spot.at("container")
    found = check(ContainerForm, form.container, at)
    if found is None:
        return None
    if (found.image is None) == (found.build is None):
        has = "neither image nor build" if found.image is None else "both image and build"
        at.report(f"has {has}; give exactly one")
    elif found.image is not None and not _IMAGE_NAME.fullmatch(found.image):
        at.at("image").report(f"{shown(found.image)} is not the name of an image")
    if found.path is not None and not re.fullmatch(r"/[^,:]*[^,:/]", found.path):
        at.at("path").report(f"must be an absolute path such as /testbed, not {shown(found.path)}")
    if form.sandbox:
        at.report("cannot be combined with sandbox: true; a container is a sandbox already")
    return Container(
        image=found.image or "",
        build=None if found.build is None else _path(found.build, at.at("build"), folder),
        engine=found.engine,
        network=found.network,
        cpus=found.cpus,
        memory=found.memory,
        path=found.path,
    )


def _repository(written: str, spot: Location, folder: Path) -> str:
    if _ADDRESS.match(written) and not os.path.exists(folder / written):  # noqa: PTH110 - as below
        spot.report(f"{shown(written)} is a URL; clone it first and give the folder")
        return ""
    return _path(written, spot, folder)


def _path(written: str, spot: Location, folder: Path) -> str:
    path = os.path.normpath(folder / written) if "\0" not in written else ""
    if not os.path.isdir(path):  # noqa: PTH112 - False for a name that is too long
        spot.report(f"no such folder: '{path or shown(written)}'")
    return path


def _common(form: WorkspaceForm, spot: Location, folder: Path) -> Workspace:
    setup = tuple(form.setup or ())
    program = placed(setup[0], str(folder)) if setup else ""
    container = _container(form, spot, folder)
    # Files in the workspace are checked when there is one; a container has programs of its own.
    if setup and container is None and ("/" not in program or Path(program).is_absolute()):
        check_executable(program, str(folder), search_path({}), spot.at("setup"))
    return Workspace(
        setup=setup,
        setup_timeout=float(form.setup_timeout),
        sandbox=bool(form.sandbox),
        readable=_readable(form, spot.at("readable"), folder),
        container=container,
    )


def _readable(form: WorkspaceForm, spot: Location, folder: Path) -> tuple[str, ...]:
    if form.readable and not (form.sandbox or form.container):
        spot.report("needs sandbox: true or container; without them, everything is readable")
        return ()
    written = map(os.path.expanduser, form.readable or ())
    paths = [os.path.normpath(folder / path) for path in written]
    for path in paths:
        if "\0" in path or not Path(path).exists():
            spot.report(f"no such file or folder: {shown(path)}")
        elif Path(folder).is_relative_to(path):
            spot.report(
                f"{shown(path)} contains the suite's whole folder, which is hidden from attempts;"
                " name only what they need"
            )
    return tuple(paths)


# Programs that are looked up in the workspace: those with a relative path.


def programs_within(
    workspace: WorkspaceRequest, targets: Iterable[tuple[Variant, VariantTarget]]
) -> Iterator[WorkspaceProgram]:
    """Yield the programs of the setup, of commands, and of custom agents and their tool servers.
    Not of graders: those may be what an attempt was asked to create."""
    if workspace.record.setup:
        at = workspace.spot.at("setup")
        yield from _within(workspace.record.setup[0], at, after_setup=False)
    seen: set[int] = set()
    for _, target in targets:
        if id(target.record) not in seen:
            seen.add(id(target.record))
            yield from _of_target(target)


def _of_target(target: VariantTarget) -> Iterator[WorkspaceProgram]:
    match target.record:
        case CommandTarget(shell=False) as record:
            yield from _within(record.command[0], target.locate(("command",)), cwd=record.cwd)
        case AgentTarget() as record:
            if record.custom is not None:
                yield from _within(record.custom.command[0], target.locate(("command",)))
            for server in record.mcp:
                if server.command:
                    at = target.locate(("mcp", server.name, "command"))
                    yield from _within(server.command[0], at)


def _within(
    program: str, spot: Location, *, cwd: str = ".", after_setup: bool = True
) -> Iterator[WorkspaceProgram]:
    if "/" in program and not program.startswith("/") and "{" not in program:
        path = os.path.join(cwd, program)  # noqa: PTH118 - text
        yield WorkspaceProgram(written=program, path=path, spot=spot, after_setup=after_setup)
