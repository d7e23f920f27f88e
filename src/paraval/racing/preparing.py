"""A race before it runs: what it begins with, and whether it can begin or go on at all.

Everything here blocks, asks git and reads files; nothing is written. RequestError says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from paraval.errors import RequestError
from paraval.racing.commanded import check_commands
from paraval.racing.findings import Proposal
from paraval.racing.ground import base_of, workspace_of
from paraval.racing.not_committed import not_committed_note
from paraval.racing.proposals import given_proposals
from paraval.racing.remembering import Beginning, as_selection, is_race, recalled
from paraval.racing.request import RaceLimits, RaceRequest
from paraval.racing.staging import STAGED_AT_ONCE
from paraval.racing.steps import HOOKS, STEP, TESTS, StepKind
from paraval.records import Budget, Limits, Plan, RunInfo
from paraval.report.wording import listed
from paraval.resuming import Owner, run_of
from paraval.settings import AUTO_MOST, Options, default_store
from paraval.store.store import Store

CHANGED = (
    "What is asked of the race has changed since it began ({what}); it goes on as it began, with"
    " the limits of now. To race by what is asked now, start it anew."
)
HOOKS_AT_ONCE = 8
Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A race that is about to be run, or gone on with."""

    beginning: Beginning
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
    beginning = Beginning(
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
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: Beginning
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
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: Beginning
) -> bool:
    try:
        given = given_proposals(request) if proposals is None else proposals
    except RequestError:
        # They are gone; the race keeps its own.
        return True
    return [(one.name, one.content) for one in given] != [
        (one.name, one.content) for one in began.proposals
    ]


def _resumed(beginning: Beginning, store: Store, run: RunInfo, options: Options) -> Race:
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


def _plan(beginning: Beginning) -> Plan:
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
