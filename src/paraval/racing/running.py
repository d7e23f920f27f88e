"""Running a race: puts its parts together on the engine, and nothing else.

Begun anew or gone on with, it is the same: the course starts at its beginning, and what has a
result in the store is not run again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paraval.conducting import Nobody, Onlooker, Premises, Venture, conduct
from paraval.errors import RequestError
from paraval.execute.driver import Performer
from paraval.execute.loop import run_in_a_loop
from paraval.execute.source import Source
from paraval.execute.stopping import Stopping, stopping_on_signals
from paraval.racing.asker import Asker
from paraval.racing.course import Course
from paraval.racing.course_recorded import recorded_in
from paraval.racing.findings import Proposal
from paraval.racing.ground import base_of, workspace_of
from paraval.racing.measurer import Measurer
from paraval.racing.outside import OutsideWatch
from paraval.racing.performing import Ends, RacePerformer, RaceRoom, StepPerformer
from paraval.racing.profiler import Profiler
from paraval.racing.proposals import given_proposals
from paraval.racing.recalling import recalled_by
from paraval.racing.remembering import Beginning, as_selection, is_race, recalled
from paraval.racing.replay import standings_of
from paraval.racing.report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.signing import Signing, with_their_steps
from paraval.racing.source import RaceSource
from paraval.racing.staging import Stager
from paraval.racing.stands import MOST_STANDS
from paraval.racing.steps import STEP, Step, StepKind
from paraval.racing.tester import Tester
from paraval.records import Budget, Limits, Notice, Plan, RunInfo, Variant
from paraval.resuming import Owner, run_of
from paraval.settings import AUTO_MOST, Options, default_store
from paraval.store.store import Store
from paraval.targets.surroundings import ProcessRoom
from paraval.workspaces.pool import Pool

NICE = 5
"""How much tests yield to what else runs on the machine, this engine included."""
OBJECTS = "objects"
"""In a run's folder: the trees of its candidates."""

CHANGED = (
    "What is asked of the race has changed since it began; it goes on as it began, with the limits"
    " of now. To race by what is asked now, start it anew."
)
Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Race:
    """A race that is about to be run, or gone on with."""

    beginning: Beginning
    plan: Plan
    store: Store
    options: Options
    resumed: RunInfo | None = None
    functions: Functions = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# ---- the whole of it


def run_race_stoppably(
    request: RaceRequest,
    *,
    proposals: Sequence[Proposal] | None = None,
    options: Options | None = None,
    onlooker: Onlooker | None = None,
    functions: Functions | None = None,
) -> RaceReport:
    """Runs a race in a loop of its own; SIGINT, SIGTERM and SIGHUP stop it cleanly.

    `proposals`: None: those that the request names. `functions`: of Python, by the hook's name.
    """
    race = _race(request, proposals, options or Options(), functions or {})
    return run_in_a_loop(_run(race, onlooker or Nobody(), stopping_on_signals))


async def run_race_async(
    request: RaceRequest,
    *,
    proposals: Sequence[Proposal] | None = None,
    options: Options | None = None,
    onlooker: Onlooker | None = None,
    functions: Functions | None = None,
) -> RaceReport:
    """The same inside a running event loop, whose signals are its owner's: to stop, cancel it."""
    race = _race(request, proposals, options or Options(), functions or {})
    return await _run(race, onlooker or Nobody(), contextlib.nullcontext)


def resume_race(
    run: RunInfo,
    *,
    parallel: int | None = None,
    options: Options | None = None,
    onlooker: Onlooker | None = None,
) -> RaceReport:
    """Goes on with a recorded race, as it was asked for."""
    options = options or Options()
    store = _store(options)
    beginning = recalled(store.selection(run))
    if parallel is not None:
        limits = replace(beginning.request.limits, parallel=parallel)
        beginning = replace(beginning, request=replace(beginning.request, limits=limits))
    race = _resumed(beginning, store, run, options)
    return run_in_a_loop(_run(race, onlooker or Nobody(), stopping_on_signals))


async def _run(race: _Race, onlooker: Onlooker, stopping: Stopping) -> RaceReport:
    for note in race.notes:
        onlooker(Notice(message=note))
    opening = _Opening(race, onlooker)
    run = await conduct(
        Venture(
            plan=race.plan,
            opening=opening.open,
            resumed=race.resumed,
            retry_errors=race.options.retry_errors,
            seed=race.options.seed or 0,
            slots=race.plan.limits.parallel + MOST_STANDS + 1,
            objects=OBJECTS,
            is_free=_is_free,
        ),
        race.store,
        onlooker,
        stopping,
    )
    beginning, standings = standings_of(race.store, run)
    return RaceReport(standings=standings, run=run, request=beginning.request)


def _is_free(variant: Variant) -> bool:
    """Tests and benchmarks cost no money; programs and functions that propose candidates may."""
    return not StepKind(str(variant[STEP])).is_hook


# ---- what is asked


def _store(options: Options) -> Store:
    return Store(options.store or default_store())


def _race(
    request: RaceRequest,
    proposals: Sequence[Proposal] | None,
    options: Options,
    functions: Functions,
) -> _Race:
    store = _store(options)
    if options.resumes:
        race = _gone_on_with(request, proposals, store, options)
        return replace(race, functions=functions)
    workspace = workspace_of(request)
    beginning = Beginning(
        request=request,
        proposals=tuple(given_proposals(request) if proposals is None else proposals),
        base=base_of(workspace),
    )
    plan = replace(_plan(beginning), workspace=workspace)
    return _Race(beginning=beginning, plan=plan, store=store, options=options, functions=functions)


def _gone_on_with(
    request: RaceRequest, proposals: Sequence[Proposal] | None, store: Store, options: Options
) -> _Race:
    """The race as it began, with the limits that are asked for now."""
    owner = Owner(kind="race", name=request.name, source=request.source, grows=True)
    run = run_of(store, owner, options)
    if not is_race(store.selection(run)):
        raise RequestError(f"run {run.id} is no race", hint=f"write: paraval resume {run.id}")
    began = recalled(store.selection(run))
    beginning = replace(began, request=replace(began.request, limits=request.limits))
    race = _resumed(beginning, store, run, options)
    return replace(race, notes=(CHANGED,) if _has_changed(request, proposals, began) else ())


def _has_changed(
    request: RaceRequest, proposals: Sequence[Proposal] | None, began: Beginning
) -> bool:
    """Whether another race is asked for than the one that began, limits aside: by other words, or
    with other candidates in the same folder."""
    if replace(request, limits=began.request.limits) != began.request:
        return True
    try:
        given = given_proposals(request) if proposals is None else proposals
    except RequestError:
        # They are gone; the race keeps its own.
        return True
    return [(one.name, one.content) for one in given] != [
        (one.name, one.content) for one in began.proposals
    ]


def _resumed(beginning: Beginning, store: Store, run: RunInfo, options: Options) -> _Race:
    workspace = workspace_of(beginning.request, beginning.base)
    plan = replace(_plan(beginning), workspace=workspace)
    return _Race(beginning=beginning, plan=plan, store=store, options=options, resumed=run)


def _plan(beginning: Beginning) -> Plan:
    """The plan of a race has no trials: they are named while it goes on."""
    request = beginning.request
    limits = request.limits
    return Plan(
        name=request.name,
        source=request.source,
        axes={STEP: tuple(kind.value for kind in StepKind)},
        variants=(),
        trials=(),
        limits=Limits(parallel=limits.parallel or AUTO_MOST, auto=limits.parallel is None),
        budget=None if limits.usd is None else Budget(usd=limits.usd),
        selection=as_selection(beginning),
    )


# ---- what it works with


class _Opening:
    """Puts a race's source and its performers into the premises of a run."""

    def __init__(self, race: _Race, onlooker: Onlooker) -> None:
        self._race = race
        self._onlooker = onlooker

    @contextlib.asynccontextmanager
    async def open(self, premises: Premises) -> AsyncIterator[tuple[Source, Performer]]:
        beginning, ends = self._race.beginning, Ends()
        known = premises.ledger.known_results()
        request, base = beginning.request, beginning.base
        course = Course(
            request,
            base,
            beginning.proposals,
            hooks=beginning.hooks,
            recorded=recorded_in(with_their_steps(known)),
        )
        source = RaceSource(course, request, base, ends)

        def propose(step: Step, proposals: tuple[Proposal, ...]) -> None:
            premises.add(source.proposed(step, proposals))

        room = self._room(premises, ends, propose)
        assert room.outside is not None
        await room.outside.begin()
        began, before_s = time.monotonic(), premises.ledger.run.wall_s
        performer = RacePerformer(
            room,
            _performers(room, course),
            source.steps,
            elapsed_s=lambda: before_s + time.monotonic() - began,
        )
        try:
            yield recalled_by(self._onlooker, source, known), Signing(performer)
        finally:
            await performer.close()

    def _room(
        self,
        premises: Premises,
        ends: Ends,
        propose: Callable[[Step, tuple[Proposal, ...]], None],
    ) -> RaceRoom:
        ledger, lodging, beginning = premises.ledger, premises.lodging, self._race.beginning
        assert isinstance(lodging.workspaces, Pool), "the plan of a race has workspaces"
        return RaceRoom(
            request=beginning.request,
            base=beginning.base,
            processes=ProcessRoom(
                warden=premises.warden,
                run_id=ledger.run.id,
                homes=lodging.homes,
                nice=NICE,
                sandbox_for=lodging.sandbox_for,
            ),
            workspaces=lodging.workspaces,
            objects=ledger.folder / OBJECTS,
            run_folder=ledger.folder,
            ends=ends,
            functions=self._race.functions,
            propose=propose,
            say=lambda words: self._onlooker(Notice(message=words)),
            outside=OutsideWatch(beginning.request.repo, [self._race.store.root]),
        )


def _performers(room: RaceRoom, course: Course) -> dict[StepKind, StepPerformer]:
    stager, tester, measurer = Stager(room), Tester(room), Measurer(room)
    asker, profiler = Asker(room, course.standings), Profiler(room)
    return {
        StepKind.STAGE: stager,
        StepKind.TEST: tester,
        StepKind.CALIBRATE: measurer,
        StepKind.SCREEN: measurer,
        StepKind.FINAL: measurer,
        StepKind.GENERATE: asker,
        StepKind.REPAIR: asker,
        StepKind.REFINE: asker,
        StepKind.PROFILE: profiler,
    }
