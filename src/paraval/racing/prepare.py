"""A race before it runs: what it begins with, and whether it can begin or go on.

Everything here blocks, asks git and reads files; nothing is written. RequestError says what is
wrong.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from paraval.errors import ParavalError, RequestError
from paraval.git.repositories import Repository, find_repository, has_folder, resolve, tree_of
from paraval.git.run_git import run_git
from paraval.git.snapshots import differing_paths, snapshot_tree
from paraval.racing.candidates.names import fitting, path_of
from paraval.racing.candidates.proposals import given_proposals
from paraval.racing.candidates.staging import STAGED_AT_ONCE
from paraval.racing.course.steps import HOOKS, STEP, TESTS, Base, StepKind
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceLimits, RaceRequest
from paraval.racing.stored_race import RaceStart, as_selection, recalled
from paraval.records import Budget, Limits, Plan, RunInfo, Workspace, WorkspaceKind
from paraval.runner.resume import Owner, run_of
from paraval.settings import AUTO_MOST, Options, default_store, is_race
from paraval.store.store import Store
from paraval.text.suggest import nearest
from paraval.text.words import counted, listed
from paraval.workspaces.changed_files import shown

# The files that a test or a benchmark is started by: whether a race has them.

_INTERPRETER = re.compile(r"(python|pypy)[\d.]*t?|(ba|da|z|k)?sh")
_TAKES_A_VALUE = ("-X", "-W", "-o", "+o")
_NO_SCRIPT = re.compile(r"-[A-Za-z]*[cm]|--command|-s|-")
"""After these no file follows: code, a module, stdin."""
_SOURCES = (".py", ".sh")


def check_commands(request: RaceRequest, workspace: Workspace) -> None:
    """Raises RequestError where a command names a file that no worktree of the race will have."""
    if request.setup:
        # It may make what is missing.
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
    """The file of `python FILE`, `sh FILE` and `./FILE`; None: it is no such command."""
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
    """Sources that its words name, of a shell's and of options too: `--script=a.py`,
    `a.py::test_b`."""
    for part in " ".join(command).split():
        path = part.rpartition("=")[2].partition("::")[0]
        if path.endswith(_SOURCES):
            yield path


def _has(repository: Repository, workspace: Workspace, path: str) -> bool:
    """Whether a worktree of the race has something at this path; or where a link leads to."""
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
            f"{what}: git ignores {path}, so that no worktree of the race would have it",
            hint="commit it with `git add --force`, or let `setup` make it",
        )
    return RequestError(
        f"{what}: {path} is not in commit {_short(workspace)}, which the race begins with",
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


# What a race begins with: the commit or the working tree that every candidate is a change to.


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


# What is in the working tree and not in the commit that a race begins with: told, once.

_SHOWN = 3


def not_committed_note(
    request: RaceRequest, workspace: Workspace, own: Sequence[Path] = ()
) -> str | None:
    """In words; None where all is committed, or the race is of another commit than HEAD.

    What the race itself is asked with is left out: its file, its candidates, its hooks; and `own`,
    what the engine writes to.
    """
    try:
        repository = find_repository(request.repo)
        is_of_head = resolve(repository, "HEAD") == workspace.commit
        if request.uncommitted or repository.bare or not is_of_head:
            return None
        differing = differing_paths(repository, workspace.commit or "")
    except (ParavalError, OSError):
        # Nothing hangs on it: what is wrong with the repository is told where it matters.
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
        f"At commit {(workspace.commit or '')[:12]}: what is not committed in your working tree is"
        f" not in the race ({counted(len(left_out), 'file')}: {first}{more});"
        " --uncommitted takes it as it is."
    )


def _is_at(path: bytes, place: bytes) -> bool:
    return path == place or path.startswith(place + b"/")


def _asked_with(request: RaceRequest) -> Iterator[str]:
    """Paths, absolute; not all of them are there."""
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
    "What is asked of the race has changed since it began ({what}); it goes on as it began, with"
    " the limits of now. To race by what is asked now, start it anew."
)
HOOKS_AT_ONCE = 8
Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A race that is about to be run, or gone on with."""

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
    """A new race, or the one to go on with that the options name. `proposals`: None: those that the
    request names."""
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
        plan=replace(_plan(beginning), workspace=workspace),
        store=store,
        options=options,
        functions=functions,
        notes=() if note is None else (note,),
    )


def race_as_recorded(run: RunInfo, parallel: int | None, options: Options) -> Race:
    """A recorded race, to go on with as it was asked for."""
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
    """The race as it began, with the limits that are asked for now."""
    owner = Owner(kind="race", name=request.name, source=request.source, grows=True)
    run = run_of(store, owner, options)
    if not is_race(store.selection(run)):
        raise RequestError(f"run {run.id} is no race", hint=f"write: paraval resume {run.id}")
    began = recalled(store.selection(run))
    beginning = replace(began, request=replace(began.request, limits=request.limits))
    race = _resumed(beginning, store, run, options)
    changed = _changed(request, proposals, began)
    return replace(race, notes=(CHANGED.format(what=listed(changed)),) if changed else ())


def _changed(
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: RaceStart
) -> list[str]:
    """By which keys another race is asked for than the one that began, limits aside; other
    candidates in the same folder count too."""
    keys = [
        key
        for one in fields(RaceRequest)
        if one.name != "limits"
        for key in _changed_keys(
            one.name, getattr(request, one.name), getattr(began.request, one.name)
        )
    ]
    if "candidates" not in keys and _has_other_candidates(request, proposals, began):
        keys.append("candidates")
    return keys


def _changed_keys(key: str, now: Any, then: Any) -> list[str]:
    """`bench.timeout` where both have parts; `repair` where one of them is not there."""
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
        # They are gone; the race keeps its own.
        return True
    return [(one.name, one.content) for one in given] != [
        (one.name, one.content) for one in began.proposals
    ]


def _resumed(beginning: RaceStart, store: Store, run: RunInfo, options: Options) -> Race:
    workspace = workspace_of(beginning.request, beginning.base)
    plan = replace(_plan(beginning), workspace=workspace)
    return Race(beginning=beginning, plan=plan, store=store, options=options, resumed=run)


def _with_functions(race: Race, functions: Functions) -> Race:
    """Refused where one is missing: a hook that cannot be asked would end in an error, for good."""
    for kind in sorted(race.beginning.hooks):
        hook = race.beginning.request.hook(kind.value)
        if hook is not None and not hook.command and kind.value not in functions:
            assert race.resumed is not None
            raise RequestError(
                f"the `{kind.value}` of race {race.resumed.id} is a function of Python, which is"
                " not here",
                hint="go on from the Python program that began it: paraval.race(...,"
                f' options=paraval.Options(resume="{race.resumed.id}"))',
            )
    return replace(race, functions=functions)


def _plan(beginning: RaceStart) -> Plan:
    """The plan of a race has no trials: they are named while it goes on."""
    request, usd = beginning.request, beginning.request.limits.usd
    return Plan(
        name=request.name,
        source=request.source,
        axes={STEP: tuple(kind.value for kind in StepKind)},
        variants=(),
        trials=(),
        limits=_limits(request.limits),
        budget=None if usd is None else Budget(usd=usd),
        selection=as_selection(beginning),
    )


def _limits(asked: RaceLimits) -> Limits:
    """So many tests at once; hooks, which wait for models, take no place of theirs."""
    at_once = asked.parallel or AUTO_MOST
    return Limits(
        parallel=at_once,
        auto=asked.parallel is None,
        named={TESTS: at_once, HOOKS: HOOKS_AT_ONCE},
    )


def places_beside(plan: Plan) -> int:
    """How many may run beside the tests. Where the machine decides, there are places for all: what
    waits keeps no core busy."""
    return 0 if plan.limits.auto else HOOKS_AT_ONCE + STAGED_AT_ONCE
