"""Running a race: puts its parts together on the engine, and nothing else.

Begun anew or gone on with, it is the same: the course starts at its beginning, and what has a
result in the store is not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from paraval.conducting import Nobody, Onlooker, Premises, Venture, conduct
from paraval.execute.driver import Performer
from paraval.execute.loop import run_in_a_loop
from paraval.execute.source import Source
from paraval.execute.stopping import Stopping, stopping_on_signals
from paraval.racing.asker import Asker
from paraval.racing.canary import CanaryTester
from paraval.racing.course import Course
from paraval.racing.course_recorded import recorded_in
from paraval.racing.findings import Proposal
from paraval.racing.measurer import Measurer
from paraval.racing.outside import OutsideWatch
from paraval.racing.performing import Ends, RacePerformer, RaceRoom, StepPerformer
from paraval.racing.preparing import (
    Functions,
    Race,
    places_beside,
    race_as_asked,
    race_as_recorded,
)
from paraval.racing.profiler import Profiler
from paraval.racing.recalling import recalled_by
from paraval.racing.replay import standings_of
from paraval.racing.report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.signing import Signing, with_their_steps
from paraval.racing.source import RaceSource
from paraval.racing.staging import Stager
from paraval.racing.stands import MOST_STANDS
from paraval.racing.steps import STEP, Step, StepKind
from paraval.racing.tester import Tester
from paraval.records import Notice, RunInfo, Variant
from paraval.settings import Options
from paraval.targets.surroundings import ProcessRoom
from paraval.workspaces.pool import Pool

NICE = 5
"""How much tests yield to what else runs on the machine, this engine included."""
OBJECTS = "objects"
"""In a run's folder: the trees of its candidates."""

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
    race = partial(race_as_asked, request, proposals, options or Options(), functions or {})
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
    race = partial(race_as_asked, request, proposals, options or Options(), functions or {})
    return await _run(race, onlooker or Nobody(), contextlib.nullcontext)


def resume_race(
    run: RunInfo,
    *,
    parallel: int | None = None,
    options: Options | None = None,
    onlooker: Onlooker | None = None,
) -> RaceReport:
    """Goes on with a recorded race, as it was asked for."""
    race = partial(race_as_recorded, run, parallel, options or Options())
    return run_in_a_loop(_run(race, onlooker or Nobody(), stopping_on_signals))


async def _run(prepared: Callable[[], Race], onlooker: Onlooker, stopping: Stopping) -> RaceReport:
    """What asks git and reads files is done in threads: the loop may be its user's, and a Ctrl-C
    must be heard."""
    race = await asyncio.to_thread(prepared)
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
            beside=places_beside(race.plan),
            objects=OBJECTS,
            is_free=_is_free,
        ),
        race.store,
        onlooker,
        stopping,
    )
    beginning, standings = await asyncio.to_thread(standings_of, race.store, run)
    return RaceReport(standings=standings, run=run, request=beginning.request)


def _is_free(variant: Variant) -> bool:
    """Tests and benchmarks cost no money; programs and functions that propose candidates may."""
    return not StepKind(str(variant[STEP])).is_hook


# ---- what it works with


class _Opening:
    """Puts a race's source and its performers into the premises of a run."""

    def __init__(self, race: Race, onlooker: Onlooker) -> None:
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
            await room.outside.close()
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
                imports=lodging.imports,
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
        StepKind.CANARY: CanaryTester(room, tester),
        StepKind.CALIBRATE: measurer,
        StepKind.SCREEN: measurer,
        StepKind.FINAL: measurer,
        StepKind.GENERATE: asker,
        StepKind.REPAIR: asker,
        StepKind.REFINE: asker,
        StepKind.PROFILE: profiler,
    }
