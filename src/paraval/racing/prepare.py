"""Prepares a race: its starting point, and whether it can start or resume.

Everything here blocks, runs git and reads files, but writes nothing. Problems raise RequestError.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.git.repositories import Repository, find_repository, has_folder, resolve, tree_of
from paraval.git.run_git import run_git
from paraval.git.snapshots import differing_paths, snapshot_tree
from paraval.racing.candidates.names import fitting, path_of
from paraval.racing.candidates.proposals import given_proposals
from paraval.racing.candidates.staging import STAGED_AT_ONCE
from paraval.racing.course.steps import HOOKS, STEP, TESTS, Base, StepKind
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceRequest
from paraval.racing.stored_race import RaceStart, as_selection, recalled
from paraval.records import Budget, Limits, Plan, RunInfo, Workspace, WorkspaceKind
from paraval.runner.resume import Owner, run_of
from paraval.settings import AUTO_MOST, Options, default_store, is_race
from paraval.store.store import Store
from paraval.text.suggest import nearest
from paraval.text.words import counted, listed
from paraval.workspaces.changed_files import shown

# Checks that worktrees will have the files that the test and bench commands start.

_INTERPRETER = re.compile(r"(python|pypy)[\d.]*t?|(ba|da|z|k)?sh")
_TAKES_A_VALUE = ("-X", "-W", "-o", "+o")
_NO_SCRIPT = re.compile(r"-[A-Za-z]*[cm]|--command|-s|-")
"""Options that no script file follows: code, a module, stdin."""
_SOURCES = (".py", ".sh")


def check_commands(request: RaceRequest, workspace: Workspace) -> None:
    """Raise RequestError if a command names a file that worktrees will not have."""
    if request.setup:
        # `setup` may create missing files.
        return
    repository = find_repository(request.repo)
    for what, command in (("test", request.test.command), ("bench", request.bench.command)):
        script = script_of(command)
        for word in dict.fromkeys((*([] if script is None else [script]), *_sources_in(command))):
            path = posixpath.normpath(posixpath.join(workspace.start, word))
            if posixpath.isabs(word) or path.startswith("../") or _has(repository, workspace, path):
                continue
            if os.path.lexists(Path(repository.top, path)):
                raise _left_out(what, path, repository, workspace)
            if word == script and shutil.which(word) is None:
                raise _nowhere(what, path, repository, workspace)


def script_of(command: tuple[str, ...]) -> str | None:
    """The file of `python FILE`, `sh FILE` and `./FILE`; None for other commands."""
    if not command:
        return None
    if _INTERPRETER.fullmatch(PurePosixPath(command[0]).name) is None:
        return command[0] if "/" in command[0] else None
    words = iter(command[1:])
    for word in words:
        if _NO_SCRIPT.fullmatch(word):
            return None
        if word in _TAKES_A_VALUE:
            next(words, None)
        elif not word.startswith(("-", "+")):
            return word
    return None


def _sources_in(command: tuple[str, ...]) -> Iterator[str]:
    """Source files that its arguments name, also in shell code and options: `--script=a.py`,
    `a.py::test_b`."""
    for part in " ".join(command).split():
        path = part.rpartition("=")[2].partition("::")[0]
        if path.endswith(_SOURCES):
            yield path


def _has(repository: Repository, workspace: Workspace, path: str) -> bool:
    """Whether a worktree will have this path, or what it links to."""
    real = os.path.relpath(os.path.realpath(Path(repository.top, path)), repository.top)
    return any(_is_in(repository, workspace, one) for one in dict.fromkeys((path, real)))


def _is_in(repository: Repository, workspace: Workspace, path: str) -> bool:
    if not workspace.uncommitted:
        at = f"{workspace.commit}:{path}"
        return run_git([f"--git-dir={repository.git_dir}", "cat-file", "-e", at]).is_well
    listed = run_git(
        [
            *(f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}", "ls-files", "-z"),
            *("--cached", "--others", "--exclude-standard", "--", path),
        ]
    )
    return bool(listed.stdout) and os.path.lexists(Path(repository.top, path))


def _left_out(what: str, path: str, repository: Repository, workspace: Workspace) -> RequestError:
    if workspace.uncommitted or _is_ignored(repository, path):
        return RequestError(
            f"{what}: git ignores {path}, so worktrees of the race will not have it",
            hint="commit it with `git add --force`, or create it in `setup`",
        )
    return RequestError(
        f"{what}: {path} is not in commit {_short(workspace)}, where the race starts",
        hint="commit it, or race with --uncommitted (`uncommitted: true`)",
    )


def _is_ignored(repository: Repository, path: str) -> bool:
    within = [f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}"]
    asked = run_git([*within, "check-ignore", "-q", "--", path], env={"GIT_LITERAL_PATHSPECS": "0"})
    return asked.exit_code == 0


def _nowhere(what: str, path: str, repository: Repository, workspace: Workspace) -> RequestError:
    folder, name = posixpath.split(path)
    try:
        names = sorted(os.listdir(Path(repository.top, folder)))  # noqa: PTH208 - names alone
    except OSError:
        names = []
    near = nearest(name, names)
    where = "the working tree" if workspace.uncommitted else f"commit {_short(workspace)}"
    meant = f", did you mean {posixpath.join(folder, near[0])}?" if near else ""
    return RequestError(f"{what}: there is no {path} in {where} of {repository.top}{meant}")


def _short(workspace: Workspace) -> str:
    return (workspace.commit or "")[:12]


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
    ref = request.ref if begun is None or begun.commit is None else begun.commit
    commit = resolve(repository, ref)
    tree = snapshot_tree(repository) if request.uncommitted else tree_of(repository, commit)
    if begun is not None and tree != begun.tree:
        raise RequestError(
            f"the working tree of {repository.top} has changed since the race began",
            hint="restore it, or start a new race",
        )
    within = None if request.uncommitted else commit
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
        if request.uncommitted or repository.bare or not is_of_head:
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
    for text in request.candidates:
        found = path_of(text, folder)
        if found is not None:
            yield from [found] if os.path.lexists(found) else fitting(found)
    for hook in (request.generate, request.repair, request.refine):
        for word in () if hook is None else hook.command:
            if "\0" not in word and (folder / word).is_file():
                yield str(folder / word)


CHANGED = (
    "The race's settings have changed since it began ({what}). It continues with the original"
    " settings and the new limits. To use the new settings, start a new race."
)
HOOKS_AT_ONCE = 8
Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A race that is about to start or resume."""

    beginning: RaceStart
    plan: Plan
    store: Store
    options: Options
    resumed: RunInfo | None = None
    functions: Functions = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def race_as_asked(
    request: RaceRequest,
    proposals: Sequence[Proposal] | None,
    options: Options,
    functions: Functions,
) -> Race:
    """A new race, or the one that the options resume. `proposals`: None for those that the request
    names."""
    store = _store(options)
    if options.resumes:
        race = _gone_on_with(request, proposals, store, options)
        return _with_functions(race, functions)
    workspace = workspace_of(request)
    check_commands(request, workspace)
    beginning = RaceStart(
        request=request,
        proposals=tuple(given_proposals(request) if proposals is None else proposals),
        base=base_of(workspace),
    )
    note = not_committed_note(request, workspace, [store.root])
    return Race(
        beginning=beginning,
        plan=replace(_plan(beginning, options), workspace=workspace),
        store=store,
        options=options,
        functions=functions,
        notes=() if note is None else (note,),
    )


def race_as_recorded(run: RunInfo, parallel: int | None, options: Options) -> Race:
    """A recorded race, to resume with its original settings."""
    store = _store(options)
    beginning = recalled(store.selection(run))
    if parallel is not None:
        limits = replace(beginning.request.limits, parallel=parallel)
        beginning = replace(beginning, request=replace(beginning.request, limits=limits))
    return _with_functions(_resumed(beginning, store, run, options), {})


def _store(options: Options) -> Store:
    return Store(options.store or default_store())


def _gone_on_with(
    request: RaceRequest, proposals: Sequence[Proposal] | None, store: Store, options: Options
) -> Race:
    """The race as it began, with the new limits."""
    owner = Owner(kind="race", name=request.name, source=request.source, grows=True)
    run = run_of(store, owner, options)
    if not is_race(store.selection(run)):
        raise RequestError(f"run {run.id} is not a race", hint=f"use: paraval resume {run.id}")
    began = recalled(store.selection(run))
    beginning = replace(began, request=replace(began.request, limits=request.limits))
    race = _resumed(beginning, store, run, options)
    changed = _changed(request, proposals, began)
    return replace(race, notes=(CHANGED.format(what=listed(changed)),) if changed else ())


def _changed(
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: RaceStart
) -> list[str]:
    """The keys that differ from the race as it began, except limits, and what the machine has.
    Different candidates in the
    same folder count too."""
    keys = [
        key
        for one in fields(RaceRequest)
        if one.name not in ("limits", "is_fenced")
        for key in _changed_keys(
            one.name, getattr(request, one.name), getattr(began.request, one.name)
        )
    ]
    if "candidates" not in keys and _has_other_candidates(request, proposals, began):
        keys.append("candidates")
    return keys


def _changed_keys(key: str, now: Any, then: Any) -> list[str]:
    """The differing keys: `bench.timeout` if both have the part; `repair` if one lacks it."""
    if now == then:
        return []
    if not is_dataclass(now) or not is_dataclass(then):
        return [key]
    return [
        f"{key}.{one.name}"
        for one in fields(now)
        if getattr(now, one.name) != getattr(then, one.name)
    ]


def _has_other_candidates(
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: RaceStart
) -> bool:
    try:
        given = given_proposals(request) if proposals is None else proposals
    except RequestError:
        # They are gone; the race has its own copies.
        return True
    return [(one.name, one.content) for one in given] != [
        (one.name, one.content) for one in began.proposals
    ]


def _resumed(beginning: RaceStart, store: Store, run: RunInfo, options: Options) -> Race:
    workspace = workspace_of(beginning.request, beginning.base)
    plan = replace(_plan(beginning, options), workspace=workspace)
    return Race(beginning=beginning, plan=plan, store=store, options=options, resumed=run)


def _with_functions(race: Race, functions: Functions) -> Race:
    """Refuse if one is missing: its hook would end in a permanent error."""
    for kind in sorted(race.beginning.hooks):
        hook = race.beginning.request.hook(kind.value)
        if hook is not None and hook.is_function and kind.value not in functions:
            assert race.resumed is not None
            raise RequestError(
                f"the `{kind.value}` hook of race {race.resumed.id} is a Python function, which is"
                " not available here",
                hint="resume it from the Python program that started it: paraval.race(...,"
                f' options=paraval.Options(resume="{race.resumed.id}"))',
            )
    return replace(race, functions=functions)


def _plan(beginning: RaceStart, options: Options) -> Plan:
    """The plan of a race. It has no trials: they are issued during the race."""
    request, usd = beginning.request, beginning.request.limits.usd
    return Plan(
        name=request.name,
        source=request.source,
        axes={STEP: tuple(kind.value for kind in StepKind)},
        variants=(),
        trials=(),
        limits=_limits(request, options),
        budget=None if usd is None else Budget(usd=usd),
        selection=as_selection(beginning),
    )


def _limits(request: RaceRequest, options: Options) -> Limits:
    """The limits on parallel tests and hooks. Hooks wait for models, so they are separate. On a
    cluster, each node is a limit of its own for tests."""
    asked = request.limits
    at_once = asked.parallel or AUTO_MOST
    asks = None if request.generate is None else request.generate.asks
    named = {HOOKS: HOOKS_AT_ONCE}
    if options.cluster is None:
        named[TESTS] = at_once
    return Limits(
        parallel=at_once,
        auto=asked.parallel is None,
        named=named,
        accounts={} if asks is None else asks.limits,
    )


def places_beside(plan: Plan) -> int:
    """How many slots hooks get besides the tests. With `auto` there are enough for all: hooks that
    wait keep no core busy."""
    return 0 if plan.limits.auto else HOOKS_AT_ONCE + STAGED_AT_ONCE
