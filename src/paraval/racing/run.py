"""Runs a race: connects its parts to the engine.

New and resumed races work the same: the course starts at its beginning, and steps with a stored
result are not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paraval.execute.driver import Performer
from paraval.execute.event_loop import Stopping, run_in_a_loop, stopping_on_signals
from paraval.execute.trial_source import TrialSource
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.racing.candidates.staging import Stager
from paraval.racing.correctness.canary import CanaryTester
from paraval.racing.correctness.node_tests import OBJECTS, race_job
from paraval.racing.correctness.tester import Tester
from paraval.racing.course.course import Course
from paraval.racing.course.recorded import recorded_in, with_their_steps
from paraval.racing.course.replay import RaceSource, standings_of
from paraval.racing.course.steps import STEP, Step, StepKind
from paraval.racing.findings import Proposal
from paraval.racing.hooks.hook_runner import HookRunner
from paraval.racing.integrity.user_repo import RepoWatch
from paraval.racing.prepare import Functions, Race, places_beside, race_as_asked, race_as_recorded
from paraval.racing.profile.profiler import Profiler
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.speed.measurement_worktrees import MOST_STANDS
from paraval.racing.speed.measurer import Measurer
from paraval.racing.step_performer import Ends, RaceContext, RacePerformer, StepPerformer
from paraval.records import Attempt, Notice, RunInfo, Variant
from paraval.runner.resources import NICE
from paraval.runner.session import NullObserver, Observer, OpenEndedRun, RunContext, conduct
from paraval.scratch import OwnHome
from paraval.settings import Options
from paraval.targets.command import ProcessRoom
from paraval.workspaces.pool import Pool

if TYPE_CHECKING:
    from paraval.runner.cluster.nodes import Cluster

# ---- running


def run_race_stoppably(
    request: RaceRequest,
    *,
    proposals: Sequence[Proposal] | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
    functions: Functions | None = None,
) -> RaceReport:
    """Run a race in its own event loop; SIGINT, SIGTERM and SIGHUP stop it cleanly.

    `proposals`: None for those that the request names. `functions`: Python hooks by name.
    """
    race = partial(race_as_asked, request, proposals, options or Options(), functions or {})
    return run_in_a_loop(_run(race, observer or NullObserver(), stopping_on_signals))


async def run_race_async(
    request: RaceRequest,
    *,
    proposals: Sequence[Proposal] | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
    functions: Functions | None = None,
) -> RaceReport:
    """Run a race inside a running event loop. It handles no signals: cancel it to stop."""
    race = partial(race_as_asked, request, proposals, options or Options(), functions or {})
    return await _run(race, observer or NullObserver(), contextlib.nullcontext)


def resume_race(
    run: RunInfo,
    *,
    parallel: int | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
) -> RaceReport:
    """Resume a recorded race with its original settings."""
    race = partial(race_as_recorded, run, parallel, options or Options())
    return run_in_a_loop(_run(race, observer or NullObserver(), stopping_on_signals))


async def _run(prepared: Callable[[], Race], observer: Observer, stopping: Stopping) -> RaceReport:
    """Run git and read files in threads: the event loop may be the user's, and Ctrl-C must work."""
    preparing = asyncio.ensure_future(asyncio.to_thread(prepared))
    try:
        race = await asyncio.shield(preparing)
    except asyncio.CancelledError:
        # The thread continues; its temporary folder is removed when it ends.
        await asyncio.gather(preparing, return_exceptions=True)
        raise
    for note in race.notes:
        observer(Notice(message=note))
    opening = _RaceOpening(race, observer)
    run = await conduct(
        OpenEndedRun(
            plan=race.plan,
            opening=opening.open,
            resumed=race.resumed,
            retry_errors=race.options.rerun is not None,
            seed=race.options.seed or 0,
            slots=race.plan.limits.parallel + MOST_STANDS + 1,
            beside=places_beside(race.plan),
            objects=OBJECTS,
            is_free=_is_free,
            models=race.beginning.models,
            cluster=partial(_cluster, race, observer),
            on_node=_is_test,
        ),
        race.store,
        observer,
        stopping,
    )
    beginning, standings = await asyncio.to_thread(standings_of, race.store, run)
    return RaceReport(standings=standings, run=run, request=beginning.request)


def _is_free(variant: Variant) -> bool:
    """Tests and benchmarks cost no money; hooks may."""
    return not StepKind(str(variant[STEP])).is_hook


def _is_test(variant: Variant) -> bool:
    """Tests run on nodes, if there is a cluster; measurements need this machine to be quiet."""
    return StepKind(str(variant[STEP])).is_test


@contextlib.asynccontextmanager
async def _cluster(race: Race, observer: Observer) -> AsyncIterator[Cluster | None]:
    """The cluster that the options name, with its nodes checked; None: there is none."""
    if race.options.cluster is None:
        yield None
        return
    from paraval.runner.cluster.nodes import open_cluster  # noqa: PLC0415 - few races

    job = await asyncio.to_thread(race_job, race.plan, race.beginning)
    async with open_cluster(
        race.options, job, lambda words: observer(Notice(message=words))
    ) as cluster:
        yield cluster


# ---- parts


class _RaceOpening:
    """Connects a race's source and performers to a run."""

    def __init__(self, race: Race, observer: Observer) -> None:
        self._race = race
        self._observer = observer

    @contextlib.asynccontextmanager
    async def open(self, context: RunContext) -> AsyncIterator[tuple[TrialSource, Performer]]:
        beginning, ends = self._race.beginning, Ends()
        known = context.ledger.known_results()
        request, base = beginning.request, beginning.base
        course = Course(
            request,
            base,
            beginning.proposals,
            hooks=beginning.hooks,
            recorded=recorded_in(with_their_steps(known)),
        )
        source = RaceSource(course, request, base, ends, known=known, observer=self._observer)

        def propose(step: Step, proposals: tuple[Proposal, ...]) -> None:
            context.add(source.proposed(step, proposals))

        room = self._room(context, ends, propose)
        assert room.outside is not None
        await room.outside.begin()
        began, before_s = time.monotonic(), context.ledger.run.wall_s
        performer = RacePerformer(
            room,
            _performers(room, course),
            source.steps,
            elapsed_s=lambda: before_s + time.monotonic() - began,
        )
        try:
            yield source, performer
        finally:
            await performer.close()

    def _room(
        self,
        context: RunContext,
        ends: Ends,
        propose: Callable[[Step, tuple[Proposal, ...]], None],
    ) -> RaceContext:
        ledger, attempt_dirs, beginning = context.ledger, context.attempt_dirs, self._race.beginning
        assert isinstance(attempt_dirs.workspaces, Pool), "the plan of a race has workspaces"
        # It may have begun on another machine.
        is_fenced = beginning.request.is_fenced and why_no_sandbox() is None
        return RaceContext(
            request=beginning.request,
            base=beginning.base,
            processes=ProcessRoom(
                warden=context.warden,
                run_id=ledger.run.id,
                homes=attempt_dirs.homes,
                nice=NICE,
                sandbox_for=_fence if is_fenced else attempt_dirs.sandbox_for,
                imports=attempt_dirs.imports,
            ),
            workspaces=attempt_dirs.workspaces,
            objects=ledger.folder / OBJECTS,
            run_folder=ledger.folder,
            ends=ends,
            functions=self._race.functions,
            propose=propose,
            say=lambda words: self._observer(Notice(message=words)),
            outside=RepoWatch(beginning.request.repo, [self._race.store.root]),
            models=context.models,
            nodes=context.cluster,
        )


def _fence(attempt: Attempt, own: OwnHome | None) -> Sandbox:
    Path(attempt.own_folder).mkdir(parents=True, exist_ok=True)
    writable = [attempt.own_folder, *(() if own is None else (own.home, own.temp))]
    if attempt.workspace is not None:
        here = Path(attempt.workspace)
        tops = (folder for folder in (here, *here.parents) if (folder / ".git").exists())
        writable.append(str(next(tops, here)))
    return Sandbox(writable=tuple(writable), network=True, hides=False)


def _performers(room: RaceContext, course: Course) -> dict[StepKind, StepPerformer]:
    stager, tester, measurer = Stager(room), Tester(room), Measurer(room)
    asker, profiler = HookRunner(room, course.standings), Profiler(room)
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
