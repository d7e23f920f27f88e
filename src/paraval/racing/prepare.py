"""Prepares a race: its starting point, and whether it can start or resume.

Everything here blocks, runs git and reads files, but writes nothing. Problems raise RequestError.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError, StoreError
from paraval.git.repositories import find_repository, has_folder, resolve, tree_of
from paraval.git.run_git import run_git
from paraval.git.snapshots import differing_paths, snapshot_tree
from paraval.racing.candidates.given import given_proposals
from paraval.racing.candidates.names import fitting, path_of
from paraval.racing.candidates.staging import STAGED_AT_ONCE
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.steps import PROPOSALS, STEP, TESTS, Base, StepKind
from paraval.records import (
    AccountLimits,
    Budget,
    Limits,
    Model,
    Plan,
    RunInfo,
    Workspace,
    WorkspaceKind,
)
from paraval.runner.resume import Owner, run_of
from paraval.settings import AUTO_MOST, RACE, Options, default_store, is_race
from paraval.store.store import Store
from paraval.text.words import counted, listed
from paraval.workspaces.changed_files import shown

_SOURCES = (".py", ".sh")
PROPOSALS_AT_ONCE = 8
_SHOWN = 3

# ---- the stored start of a race, so that a resume or report needs no other files


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceStart:
    """Everything that a course starts from."""

    request: RaceRequest
    proposals: tuple[Proposal, ...]
    base: Base

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that write candidates, or those that a function may call."""
        propose = self.request.propose
        if propose is None:
            return ()
        every = tuple(self.request.models.values())
        return every if propose.is_function else self.request.proposing_models()

    def as_data(self) -> dict[str, Any]:
        request = self.request
        plain = {name: getattr(request, name) for name in _PLAIN}
        return {
            **plain,
            "keys": request.keys.model_dump(mode="json"),
            "models": {name: to_data(one) for name, one in request.models.items()},
            "account_limits": {need: to_data(one) for need, one in request.account_limits.items()},
            "proposals": [to_data(one) for one in self.proposals],
            "base": to_data(self.base),
        }


_PLAIN = ("name", "source", "folder", "repo", "is_fenced", "files", "prompt")


def start_from_data(data: Mapping[str, Any]) -> RaceStart:
    limits = data["account_limits"].items()
    request = RaceRequest(
        **{name: data[name] for name in _PLAIN},
        keys=RaceKeys.model_validate_json(json.dumps(data["keys"])),
        models={name: from_data(Model, one) for name, one in data["models"].items()},
        account_limits={need: from_data(AccountLimits, one) for need, one in limits},
    )
    return RaceStart(
        request=request,
        proposals=tuple(from_data(Proposal, one) for one in data["proposals"]),
        base=from_data(Base, data["base"]),
    )


def recalled(selection: Mapping[str, Any]) -> RaceStart:
    """The start of a stored race. Raises StoreError."""
    try:
        return start_from_data(json.loads(selection[RACE]))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(
            f"the stored start of the race cannot be read: {error}",
            hint="it was stored by another version of paraval; start a new race",
        ) from error


# ---- whether worktrees will have the files that the test and bench commands start


def check_commands(request: RaceRequest, workspace: Workspace) -> None:
    """Raise RequestError if a command names a source file that is here, but not in worktrees."""
    if request.keys.setup:
        # `setup` may create missing files.
        return
    repository = find_repository(request.repo)
    within = [f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}"]
    for what, command in (("test", request.test.command), ("bench", request.bench.command)):
        for word in dict.fromkeys(_sources_in(command)):
            path = posixpath.normpath(posixpath.join(workspace.start, word))
            if posixpath.isabs(word) or path.startswith("../"):
                continue
            path = os.path.relpath(os.path.realpath(Path(repository.top, path)), repository.top)
            if not os.path.lexists(Path(repository.top, path)):
                continue
            is_ignored = _is_ignored([*within, "check-ignore", "-q", "--", path])
            at = f"{workspace.commit}:{path}"
            if workspace.uncommitted or run_git([*within, "cat-file", "-e", at]).is_well:
                is_there = not (workspace.uncommitted and is_ignored)
                if is_there:
                    continue
            if is_ignored:
                raise RequestError(
                    f"{what}: git ignores {path}, so worktrees of the race will not have it",
                    hint="commit it with `git add --force`, or create it in `setup`",
                )
            raise RequestError(
                f"{what}: {path} is not in commit {(workspace.commit or '')[:12]}, where the race"
                " starts",
                hint="commit it, or race with --uncommitted (`uncommitted: true`)",
            )


def _is_ignored(asked: list[str]) -> bool:
    return run_git(asked, env={"GIT_LITERAL_PATHSPECS": "0"}).exit_code == 0


def _sources_in(command: tuple[str, ...]) -> Iterator[str]:
    """Source files that its arguments name, also in shell code and options: `--script=a.py`,
    `a.py::test_b`."""
    for part in " ".join(command).split():
        path = part.rpartition("=")[2].partition("::")[0].strip("\"'")
        if path.endswith(_SOURCES):
            yield path


# The start of a race: the commit or working tree that every candidate changes.


def workspace_of(request: RaceRequest, begun: Base | None = None) -> Workspace:
    """The workspace of a race's steps. Raises RequestError if there is none.

    `begun`: for a resumed race, its original start, wherever its ref points now.
    """
    try:
        return _workspace(request, begun)
    except RequestError:
        raise
    except ParavalError as error:
        raise RequestError(f"repo: {error.message}", hint=error.hint) from error


def _workspace(request: RaceRequest, begun: Base | None) -> Workspace:
    repository = find_repository(request.repo)
    ref = request.keys.repo.ref if begun is None or begun.commit is None else begun.commit
    commit = resolve(repository, ref)
    tree = (
        snapshot_tree(repository) if request.keys.repo.uncommitted else tree_of(repository, commit)
    )
    if begun is not None and tree != begun.tree:
        raise RequestError(
            f"the working tree of {repository.top} has changed since the race began",
            hint="restore it, or start a new race",
        )
    within = None if request.keys.repo.uncommitted else commit
    if not has_folder(repository, repository.prefix, commit=within):
        raise RequestError(
            f"the folder '{repository.prefix}' is not in commit {commit[:12]} of {repository.top},"
            " so no command can run in it",
            hint="commit it, or race with `uncommitted: true`",
        )
    return Workspace(
        kind=WorkspaceKind.GIT,
        source=repository.top,
        start=repository.prefix,
        ref=request.keys.repo.ref,
        commit=commit,
        uncommitted=request.keys.repo.uncommitted,
        tree=tree,
        setup=request.keys.setup or (),
        sandbox=request.is_sandboxed,
    )


def base_of(workspace: Workspace) -> Base:
    assert workspace.tree is not None
    return Base(tree=workspace.tree, start=workspace.start, commit=workspace.commit)


# Notes uncommitted changes that are not in the race, once.

_SHOWN = 3


def not_committed_note(
    request: RaceRequest, workspace: Workspace, own: Sequence[Path] = ()
) -> str | None:
    """The note; None if everything is committed, or the race does not start from HEAD.

    Ignores the race's own files: the race file, candidates and hooks; and `own`, what the engine
    writes.
    """
    try:
        repository = find_repository(request.repo)
        is_of_head = resolve(repository, "HEAD") == workspace.commit
        if request.keys.repo.uncommitted or repository.bare or not is_of_head:
            return None
        differing = differing_paths(repository, workspace.commit or "")
    except (ParavalError, OSError):
        # Not essential: problems with the repository are reported elsewhere.
        return None
    top = os.fsencode(repository.top)
    places = [*map(os.fspath, own), *_asked_with(request)]
    asked_with = [os.fsencode(os.path.realpath(place)) for place in places]
    left_out = [
        path for path in differing if not any(_is_at(top + b"/" + path, one) for one in asked_with)
    ]
    if not left_out:
        return None
    first = ", ".join(shown(path) for path in left_out[:_SHOWN])
    more = ", …" if len(left_out) > _SHOWN else ""
    return (
        f"The race starts from commit {(workspace.commit or '')[:12]}, without your uncommitted"
        f" changes ({counted(len(left_out), 'file')}: {first}{more}). --uncommitted includes them."
    )


def _is_at(path: bytes, place: bytes) -> bool:
    return path == place or path.startswith(place + b"/")


def _asked_with(request: RaceRequest) -> Iterator[str]:
    """Absolute paths of the race's own files; some may not exist."""
    folder = Path(request.folder)
    if request.source is not None:
        yield request.source
    for text in request.keys.candidates:
        found = path_of(text, folder)
        if found is not None:
            yield from [found] if os.path.lexists(found) else fitting(found)
    command = () if request.propose is None else request.propose.command or ()
    for word in command:
        if "\0" not in word and (folder / word).is_file():
            yield str(folder / word)


CHANGED = (
    "The race's settings have changed since it began ({what}). It continues with the original"
    " settings and the new limits. To use the new settings, start a new race."
)
Function = Callable[..., Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A race that is about to start or resume."""

    start: RaceStart
    plan: Plan
    store: Store
    options: Options
    resumed: RunInfo | None = None
    function: Function = None
    """Proposes candidates."""
    notes: tuple[str, ...] = ()


def race_as_asked(
    request: RaceRequest,
    proposals: Sequence[Proposal] | None,
    options: Options,
    function: Function,
) -> Race:
    """A new race, or the one that the options resume. `proposals`: None for those that the request
    names."""
    store = Store(options.store or default_store())
    if options.resumes:
        race = _resumed_with(request, proposals, store, options)
        return _with_function(race, function)
    workspace = workspace_of(request)
    check_commands(request, workspace)
    start = RaceStart(
        request=request,
        proposals=tuple(given_proposals(request) if proposals is None else proposals),
        base=base_of(workspace),
    )
    note = not_committed_note(request, workspace, [store.root])
    return Race(
        start=start,
        plan=replace(_plan(start, options), workspace=workspace),
        store=store,
        options=options,
        function=function,
        notes=() if note is None else (note,),
    )


def race_as_recorded(run: RunInfo, parallel: int | None, options: Options) -> Race:
    """A recorded race, to resume with its original settings."""
    store = Store(options.store or default_store())
    start = recalled(store.selection(run))
    if parallel is not None:
        limits = start.request.limits.model_copy(update={"parallel": parallel})
        start = _with_limits(start, limits)
    return _with_function(_resumed(start, store, run, options), None)


def _with_limits(start: RaceStart, limits: Any) -> RaceStart:
    keys = start.request.keys.model_copy(update={"limits": limits})
    return replace(start, request=replace(start.request, keys=keys))


def _resumed_with(
    request: RaceRequest, proposals: Sequence[Proposal] | None, store: Store, options: Options
) -> Race:
    """The race as it began, with the new limits."""
    owner = Owner(kind="race", name=request.name, source=request.source, grows=True)
    run = run_of(store, owner, options)
    if not is_race(store.selection(run)):
        raise RequestError(f"run {run.id} is not a race", hint=f"use: paraval resume {run.id}")
    began = recalled(store.selection(run))
    race = _resumed(_with_limits(began, request.limits), store, run, options)
    changed = _changed(request, proposals, began)
    return replace(race, notes=(CHANGED.format(what=listed(changed)),) if changed else ())


def _changed(
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: RaceStart
) -> list[str]:
    """The keys that differ from the race as it began, except limits. Different candidates in the
    same folder count too."""
    now, then = (one.keys.model_dump() for one in (request, began.request))
    changed = [key for key in now if key != "limits" and now[key] != then[key]]
    try:
        given = given_proposals(request) if proposals is None else proposals
    except RequestError:
        given = ()  # They are gone; the race has its own copies.
    contents = [[(one.name, one.content) for one in each] for each in (given, began.proposals)]
    if "candidates" not in changed and contents[0] != contents[1]:
        changed.append("candidates")
    return changed


def _resumed(start: RaceStart, store: Store, run: RunInfo, options: Options) -> Race:
    workspace = workspace_of(start.request, start.base)
    plan = replace(_plan(start, options), workspace=workspace)
    return Race(start=start, plan=plan, store=store, options=options, resumed=run)


def _with_function(race: Race, function: Function) -> Race:
    """Refuse if it is missing: its step would end in a permanent error."""
    propose = race.start.request.propose
    if propose is not None and propose.is_function and function is None:
        assert race.resumed is not None
        raise RequestError(
            f"`propose` of race {race.resumed.id} is a Python function, which is not available"
            " here",
            hint="resume it from the Python program that started it: paraval.race(...,"
            f' options=paraval.Options(resume="{race.resumed.id}"))',
        )
    return replace(race, function=function)


def _plan(start: RaceStart, options: Options) -> Plan:
    """The plan of a race. It has no trials: they are issued during the race."""
    request, usd = start.request, start.request.limits.usd
    at_once = request.limits.at_once or AUTO_MOST
    # Calls wait for models, so they take no test's place. On a cluster, each node is a limit.
    named = {PROPOSALS: PROPOSALS_AT_ONCE}
    if options.cluster is None:
        named[TESTS] = at_once
    return Plan(
        name=request.name,
        source=request.source,
        axes={STEP: tuple(kind.value for kind in StepKind)},
        variants=(),
        trials=(),
        limits=Limits(
            parallel=at_once,
            auto=request.limits.at_once is None,
            named=named,
            accounts=request.account_limits,
        ),
        budget=None if usd is None else Budget(usd=usd),
        # As ASCII text, because patches may contain undecodable bytes.
        selection={RACE: json.dumps(start.as_data())},
    )


def places_beside(plan: Plan) -> int:
    """How many slots proposals get besides the tests. With `auto` there are enough for all: what
    waits keeps no core busy."""
    return 0 if plan.limits.auto else PROPOSALS_AT_ONCE + STAGED_AT_ONCE
