"""Runs a race: connects its parts to the engine.

New and resumed races work the same: the course starts at its beginning, and steps with a stored
result are not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from paraval.environment import WorktreeImports
from paraval.execute.driver import Performer
from paraval.execute.event_loop import Stopping, run_in_a_loop, stopping_on_signals
from paraval.execute.trial_source import TrialSource
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.racing.candidates.propose import Proposer
from paraval.racing.candidates.staging import Stager
from paraval.racing.context import Ends, RaceContext, RacePerformer, StepPerformer
from paraval.racing.correctness.canary import CanaryTester
from paraval.racing.correctness.node_tests import OBJECTS, race_job
from paraval.racing.correctness.tester import Tester
from paraval.racing.findings import Proposal
from paraval.racing.prepare import (
    Function,
    Race,
    RaceStart,
    places_beside,
    race_as_asked,
    race_as_recorded,
    recalled,
)
from paraval.racing.profile.profiler import Profiler
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.rounds import RaceRounds
from paraval.racing.speed.measurement_worktrees import MOST_WORKTREES
from paraval.racing.speed.measurer import Measurer
from paraval.racing.standings import Standings
from paraval.racing.steps import MEASURED_ON, STEP, Step, StepKind, end_of, trial_of
from paraval.records import Attempt, Notice, RunInfo, Trial, TrialResult, Variant
from paraval.runner.resources import NICE
from paraval.runner.session import NullObserver, Observer, OpenEndedRun, RunContext, conduct
from paraval.scratch import OwnHome
from paraval.settings import Options
from paraval.store.connection import RUN_FILE, explaining
from paraval.store.store import Store
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
    function: Function = None,
) -> RaceReport:
    """Run a race in its own event loop; SIGINT, SIGTERM and SIGHUP stop it cleanly.

    `proposals`: None for those that the request names. `function`: proposes candidates.
    """
    race = partial(race_as_asked, request, proposals, options or Options(), function)
    return run_in_a_loop(_run(race, observer or NullObserver(), stopping_on_signals))


async def run_race_async(
    request: RaceRequest,
    *,
    proposals: Sequence[Proposal] | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
    function: Function = None,
) -> RaceReport:
    """Run a race inside a running event loop. It handles no signals: cancel it to stop."""
    race = partial(race_as_asked, request, proposals, options or Options(), function)
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


def report_of(store: Store, run: RunInfo) -> RaceReport:
    """The report of a recorded race, from the store alone."""
    start, standings = standings_of(store, run)
    return RaceReport(standings, run, start.request)


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
            slots=race.plan.limits.parallel + MOST_WORKTREES + 1,
            beside=places_beside(race.plan),
            objects=OBJECTS,
            is_free=_is_free,
            models=race.start.models,
            cluster=partial(_cluster, race, observer),
            on_node=_is_test,
        ),
        race.store,
        observer,
        stopping,
    )
    return await asyncio.to_thread(report_of, race.store, run)


def _is_free(variant: Variant) -> bool:
    """Tests and benchmarks cost no money; proposals may."""
    return variant[STEP] != StepKind.PROPOSE


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

    job = await asyncio.to_thread(race_job, race.plan, race.start)
    async with open_cluster(
        race.options, job, lambda words: observer(Notice(message=words))
    ) as cluster:
        yield cluster


# ---- the course and the store


@runtime_checkable
class Recalls(Protocol):
    """An observer that also wants the steps of earlier engines."""

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Take a step of an earlier engine. Must be quick and never raise."""
        ...


class RaceSource:
    """Issues the trials of a race as its course decides; a TrialSource."""

    def __init__(
        self,
        start: RaceStart,
        ends: Ends,
        *,
        known: Mapping[str, TrialResult],
        observer: object = None,
    ) -> None:
        """`known`: results of earlier engines by key; an observer with `recall` gets them."""
        self.course = RaceRounds(start.request, start.base, start.proposals)
        self._start = start
        self._ends = ends
        self._known = known
        self._recalls = observer if isinstance(observer, Recalls) else None
        self.steps: dict[int, Step] = {}
        """Steps by trial index."""

    def begin(self) -> Sequence[Trial]:
        return self._trials(self.course.begin())

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        if self._recalls is not None and trial.key in self._known:
            self._recalls.recall(trial, result)
        step = self.steps[trial.index]
        end = end_of(step, result)
        self._ends[step.kind, step.candidate, step.number] = end
        return self._trials(self.course.handle(end))

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        return self._trials(self.course.skipped(self.steps[trial.index], reason))

    def _trials(self, steps: Sequence[Step]) -> list[Trial]:
        trials = []
        for step in steps:
            index = len(self.steps)
            self.steps[index] = step
            trials.append(trial_of(step, index, self._start.request, self._start.base))
        return trials


def standings_of(store: Store, run: RunInfo) -> tuple[RaceStart, Standings]:
    """The standings of a recorded race."""
    start = recalled(store.selection(run))
    with explaining(Path(run.folder, RUN_FILE), "the race"):
        # An engine that has just resumed it has issued nothing yet: show the standings before that.
        ends = store.last_ends(run) or store.known_results(run)
        source = RaceSource(start, {}, known={})
        waiting = deque(source.begin())
        while waiting:
            trial = waiting.popleft()
            if (result := ends.get(trial.key)) is not None:
                waiting.extend(source.ended(trial, result))
    results = [end.result for end in ends.values()]
    hosts = {one.output.metadata.get(MEASURED_ON) for one in results if one.output is not None}
    return start, replace(
        source.course.standings(),
        nodes=tuple(sorted({one.node for one in results if one.node is not None})),
        measured_on=tuple(sorted(host for host in hosts if isinstance(host, str))),
    )


# ---- parts


class _RaceOpening:
    """Connects a race's source and performers to a run."""

    def __init__(self, race: Race, observer: Observer) -> None:
        self._race = race
        self._observer = observer

    @contextlib.asynccontextmanager
    async def open(self, context: RunContext) -> AsyncIterator[tuple[TrialSource, Performer]]:
        race_context = self._context(context)
        known = context.ledger.known_results()
        source = RaceSource(
            self._race.start, race_context.ends, known=known, observer=self._observer
        )
        began, before_s = time.monotonic(), context.ledger.run.wall_s
        performer = RacePerformer(
            race_context,
            _performers(race_context),
            source.steps,
            elapsed_s=lambda: before_s + time.monotonic() - began,
        )
        try:
            yield source, performer
        finally:
            await performer.close()

    def _context(self, context: RunContext) -> RaceContext:
        ledger, attempt_dirs, start = context.ledger, context.attempt_dirs, self._race.start
        assert isinstance(attempt_dirs.workspaces, Pool), "the plan of a race has workspaces"
        workspace = self._race.plan.workspace
        # It may have begun on another machine.
        is_fenced = start.request.is_fenced and why_no_sandbox() is None
        return RaceContext(
            request=start.request,
            base=start.base,
            processes=ProcessRoom(
                warden=context.warden,
                run_id=ledger.run.id,
                homes=attempt_dirs.homes,
                nice=NICE,
                sandbox_for=_fence if is_fenced else attempt_dirs.sandbox_for,
                imports=WorktreeImports(str(workspace.source), workspace.start, finds_src=True),
            ),
            workspaces=attempt_dirs.workspaces,
            objects=ledger.folder / OBJECTS,
            run_folder=ledger.folder,
            function=self._race.function,
            say=lambda words: self._observer(Notice(message=words)),
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


def _performers(context: RaceContext) -> dict[StepKind, StepPerformer]:
    tester, measurer = Tester(context), Measurer(context)
    return {
        StepKind.PROPOSE: Proposer(context),
        StepKind.STAGE: Stager(context),
        StepKind.TEST: tester,
        StepKind.CANARY: CanaryTester(context, tester),
        StepKind.CALIBRATE: measurer,
        StepKind.SCREEN: measurer,
        StepKind.FINAL: measurer,
        StepKind.PROFILE: Profiler(context),
    }
