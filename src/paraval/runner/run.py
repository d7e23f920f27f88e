"""`paraval.run` and what the commands need: connects the stages, and nothing else.

suite -> plan -> schedule -> execute -> grade -> store -> report. Each stage gets what it needs from
here, and none of them knows the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraval.errors import RequestError
from paraval.execute.event_loop import Stopping, run_in_a_loop, stopping_on_signals
from paraval.garbage import no_collections
from paraval.grade.panel import Panel
from paraval.models.cache import Cache
from paraval.models.prices import Prices
from paraval.plan.build import absent_programs, check_installed, draft_plan
from paraval.plan.schema.suite_form import json_schema
from paraval.plan.suite import Suite
from paraval.processes.children import Warden
from paraval.records import Notice, Plan, RunEnded, RunInfo, Trial
from paraval.runner import notices as news
from paraval.runner.attempt_dirs import check_sandbox
from paraval.runner.cluster.survey import ClusterForecast, survey
from paraval.runner.forecast import Forecast, Forecaster, forecast_plan
from paraval.runner.resources import (
    CACHE_FILE,
    ModelAccess,
    RunResources,
    access_for,
    asking_for,
    attempts_with,
)
from paraval.runner.resume import chosen_now, resumed_plan, run_to_resume
from paraval.runner.session import NullObserver, Observer, RunEnd, RunSession, close_after, prepare
from paraval.settings import (
    Options,
    Selection,
    default_store,
    models_from_environment,
)
from paraval.store.ledger import Ledger
from paraval.store.store import Store
from paraval.threads import Threads

if TYPE_CHECKING:
    from paraval.report.report import Report
    from paraval.runner.cluster.nodes import Cluster
    from paraval.runner.recheck import RunAgain
    from paraval.runner.regrade import StoredAnswers

# ---- a whole run


def run(
    suite: Suite | str | Path,
    *,
    parallel: int | None = None,
    selection: Selection | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
) -> Report:
    """Run a suite to its end and return its report.

    Ctrl-C stops cleanly: finished results stay recorded, and KeyboardInterrupt is raised.
    """
    asked = Selection(parallel=parallel).over(selection or Selection())
    report = run_stoppably(suite, selection=asked, options=options, observer=observer)
    if report.run.interrupted:
        raise KeyboardInterrupt(f"run {report.run.id} was interrupted; it can be resumed")
    return report


def run_stoppably(
    suite: Suite | str | Path,
    *,
    selection: Selection,
    options: Options | None = None,
    observer: Observer | None = None,
) -> Report:
    """Run a suite in a loop of its own; SIGINT, SIGTERM and SIGHUP stop it cleanly."""
    _refuse_a_running_loop()
    return run_in_a_loop(
        _run(
            suite, selection, options or Options(), observer or NullObserver(), stopping_on_signals
        )
    )


def _refuse_a_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RequestError(
        "paraval.run cannot be used inside a running event loop (a notebook, an async function)",
        hint="write: report = await paraval.run_async(...)",
    )


async def run_async(
    suite: Suite | str | Path,
    *,
    parallel: int | None = None,
    selection: Selection | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
) -> Report:
    """Run a suite inside a running event loop, which owns the signals; to stop, cancel it."""
    asked = Selection(parallel=parallel).over(selection or Selection())
    observer = observer or NullObserver()
    return await _run(suite, asked, options or Options(), observer, contextlib.nullcontext)


async def _run(
    suite: Suite | str | Path,
    asked: Selection,
    options: Options,
    observer: Observer,
    stopping: Stopping,
    only: Callable[[Trial], bool] | None = None,
) -> Report:
    """`only`: which trials of the plan run."""
    if not isinstance(suite, Suite):
        suite = load_suite(Path(suite))
    if options.seed is None:
        options = replace(options, seed=suite.seed)
    store = open_store(options)
    resumed = run_to_resume(store, suite, options) if options.resumes else None
    if resumed is not None:
        # Before making the plan, which may take long: refuse a run that is in use right away.
        store.require_free(resumed)
    async with contextlib.AsyncExitStack() as stack:
        try:
            stored = _stored_answers(store, asked, resumed, options)
        except RequestError:
            if resumed is None or resumed.state != "done" or options.rerun:
                raise
            # Its source is gone, but nothing is left to grade.
            return _ended(store, resumed, observer)
        if stored is None:
            asked = _with_models_of_environment(asked, suite)
        else:
            stack.push_async_callback(stored.close)
            asked = asked if resumed else stored.selection(suite, asked)
        # Before the client and its imports, since the fork server is best started from a small
        # process.
        warden = await stack.enter_async_context(Warden())
        with no_collections():
            plan = _plan(suite, asked, store, resumed, options, stored)
            plan = plan if only is None else _part_of(plan, only)
        plan, notices = _with_baseline(plan, asked, store, resumed)
        chosen = None if resumed is None else chosen_now(suite, asked, plan)
        prices = Prices()
        check_sandbox(plan)
        # It starts while the rest is prepared.
        at_once = prepare(warden, plan)
        access = await stack.enter_async_context(access_for(plan, store, prices, chosen))
        asking = asking_for(plan, access.cache, prices)
        if stored is not None:
            asking = replace(asking, stored_text=stored.text)
        _require_graders(plan, suite, warden, access)
        cluster = await stack.enter_async_context(_cluster(suite, plan, options, store, observer))
        with no_collections():
            ledger = _open_ledger(store, plan, resumed, options, chosen)
        resources = RunResources(
            suite=suite,
            ledger=ledger,
            warden=warden,
            access=access,
            prices=prices,
            store_root=store.root,
            asking=asking,
            chosen=chosen,
            at_once=at_once,
            on_node=lambda trial: cluster is not None and cluster.takes(trial.target),
            stored=stored,
            notes=(*_notices_of(stored, suite, asked, plan), *notices, *access.complaints()),
        )
        await close_after(ledger, _execute(resources, cluster, store, observer, stopping))
        for complaint in access.complaints():
            observer(Notice(message=complaint))
    report = _ended(store, ledger.run, observer)

    def again(
        part: Suite, chosen: Selection, place: Path, only: Callable[[Trial], bool]
    ) -> Awaitable[Report]:
        there = replace(options, store=place, resume=None, rerun=None)
        return _run(part, chosen, there, observer, stopping, only)

    return await _rechecked(suite, plan, report, store, observer, again)


def _notices_of(
    stored: StoredAnswers | None, suite: Suite, asked: Selection, plan: Plan
) -> Iterator[str]:
    yield from () if stored is None else stored.notices
    yield from (f"{notice}." for notice in suite.notices)
    yield from news.of_the_request(suite, asked)
    yield from news.of_the_plan(plan)


def _part_of(plan: Plan, only: Callable[[Trial], bool]) -> Plan:
    kept = filter(only, plan.trials)
    trials = (replace(trial, index=index) for index, trial in enumerate(kept))
    return replace(plan, trials=tuple(trials))


async def _rechecked(
    suite: Suite, plan: Plan, report: Report, store: Store, observer: Observer, again: RunAgain
) -> Report:
    """The report after what got worse than the baseline ran again."""
    if plan.max_regressed is None or plan.baseline is None:
        return report
    # Few runs have such a gate.
    from paraval.runner.recheck import recheck  # noqa: PLC0415 - see above

    return await recheck(suite, plan, report, store, observer, again)


def _ended(store: Store, run: RunInfo, observer: Observer) -> Report:
    observer(RunEnded(run=run))
    # Only now: until here, no run needs what makes a report.
    from paraval.runner.stored_runs import report_of  # noqa: PLC0415 - see above

    return report_of(store, run)


def _with_baseline(
    plan: Plan, asked: Selection, store: Store, resumed: RunInfo | None
) -> tuple[Plan, tuple[str, ...]]:
    """The plan with the run's baseline, and notices about it."""
    own = (plan.max_drop, plan.max_regressed, asked.baseline, asked.max_drop, asked.max_regressed)
    if all(one is None for one in (*own, resumed and resumed.baseline)):
        return replace(plan, baseline=None), ()
    # Compares reports, which few runs do before they begin.
    from paraval.runner.baseline import check_baseline, resolve_baseline  # noqa: PLC0415 - above
    from paraval.runner.stored_runs import baseline_in  # noqa: PLC0415 - above

    settled = resolve_baseline(plan, asked, store, resumed)
    plan, notices = replace(plan, baseline=settled.baseline), settled.notices
    if plan.baseline is not None:
        found = check_baseline(plan, plan.baseline, lambda name: baseline_in(store, name))
        notices = (*notices, *found)
    return plan, notices


def _require_graders(plan: Plan, suite: Suite, warden: Warden, access: ModelAccess) -> None:
    """Make the graders once, to see that it can be done before the run begins."""
    Panel(
        plan.grading,
        functions=suite.functions,
        threads=Threads(),
        warden=warden,
        models=access.models,
    )


def _with_models_of_environment(asked: Selection, suite: Suite) -> Selection:
    """TEST_MODELS chooses if nothing else does, and if the suite has models to choose from."""
    if asked.models or not (suite.has_models and suite.chooses_models):
        return asked
    return replace(asked, models=models_from_environment())


def open_store(options: Options) -> Store:
    return Store(options.store or default_store())


def _stored_answers(
    store: Store, asked: Selection, resumed: RunInfo | None, options: Options
) -> StoredAnswers | None:
    """The answers that the run grades again; None: its targets answer."""
    name = asked.regrade if resumed is None else store.selection(resumed).get("regrade")
    if name is None:
        return None
    if options.cluster is not None:
        raise RequestError("a regrade runs on this machine; leave out --cluster")
    from paraval.runner.regrade import StoredAnswers  # noqa: PLC0415 - few runs

    try:
        return StoredAnswers(store, name)
    except RequestError as error:
        if resumed is None:
            raise
        raise RequestError(
            f"run {resumed.id} grades the answers of run {resumed.regraded_from}: {error.message}",
            hint=f"see what it has graded: paraval report {resumed.id}",
        ) from error


def _plan(
    suite: Suite,
    asked: Selection,
    store: Store,
    resumed: RunInfo | None,
    options: Options,
    stored: StoredAnswers | None,
) -> Plan:
    """What the run is about."""
    if resumed is None:
        plan = draft_plan(suite, asked)
    else:
        earlier = Selection.from_mapping(store.selection(resumed))
        plan = resumed_plan(suite, asked, earlier, resumed)
    if stored is not None:
        return stored.plan(suite, plan)
    if options.cluster is None:
        # On a cluster, agents have to be installed on its nodes.
        check_installed(suite, plan)
    return plan


def _open_ledger(
    store: Store,
    plan: Plan,
    resumed: RunInfo | None,
    options: Options,
    chosen: frozenset[int] | None,
) -> Ledger:
    """The ledger of a new run, or of the run to resume."""
    if resumed is None:
        return store.create_run(plan, seed=options.seed or 0)
    ledger = store.resume_run(resumed.id, plan)
    if options.rerun is not None:
        ledger.forget_unsuccessful(chosen, failed_too=options.rerun == "failed")
    return ledger


# ---- plans


def load_suite(path: Path) -> Suite:
    return Suite.load(path)


def forecast_of(
    suite: Suite,
    selection: Selection,
    options: Options,
    say: Callable[[str], object] = lambda _words: None,
) -> Forecast:
    """Forecast a run without running any of it; on a cluster, its nodes are asked."""
    store = open_store(options)
    plan = draft_plan(suite, _with_models_of_environment(selection, suite))
    cluster = None if options.cluster is None else survey_cluster(plan, options, say)
    with contextlib.closing(Cache(store.root / CACHE_FILE)) as cache:
        asking = asking_for(plan, cache, Prices())
        forecast = forecast_plan(plan, store, asking, seed=suite.seed or 0, cluster=cluster)
    # On a cluster, agents have to be installed on its nodes, which report what they lack.
    absent = absent_programs(suite, plan) if cluster is None else ()
    return replace(forecast, absent=tuple(map(str, absent)))


def survey_cluster(
    plan: Plan | None, options: Options, say: Callable[[str], object]
) -> ClusterForecast:
    """What the nodes of a cluster have, and what of a plan they lack."""
    return run_in_a_loop(survey(plan, options, say))


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of suite files."""
    return json_schema()


@contextlib.asynccontextmanager
async def _cluster(
    suite: Suite, plan: Plan, options: Options, store: Store, observer: Observer
) -> AsyncIterator[Cluster | None]:
    """The cluster that the options name, with its nodes checked; None: there is none."""
    if options.cluster is None:
        yield None
        return
    from paraval.runner.cluster.job import node_job  # noqa: PLC0415 - few runs
    from paraval.runner.cluster.nodes import open_cluster  # noqa: PLC0415 - few runs

    job = await asyncio.to_thread(node_job, suite, plan, store.root)
    if not job.targets:
        here = "chat models and functions passed as objects run on this machine"
        observer(Notice(message=f"The cluster is not used: {here}."))
        yield None
        return
    async with open_cluster(options, job, lambda words: observer(Notice(message=words))) as cluster:
        yield cluster


# ---- execution


async def _execute(
    resources: RunResources,
    cluster: Cluster | None,
    store: Store,
    observer: Observer,
    stopping: Stopping,
) -> RunEnd:
    """Run the trials without a result."""
    ledger, plan = resources.ledger, resources.ledger.plan
    trials = resources.trials()
    found = store.found_limits(plan.limits.accounts)
    engine = RunSession(
        ledger=ledger,
        warden=resources.warden,
        # How targets did before says nothing about graders.
        expected=Forecaster(
            plan,
            store.history(plan.name).rows if resources.stored is None else (),
            resources.asking,
        ),
        at_once=resources.at_once,
        observer=observer,
        stopping=stopping,
        found=found,
        remember=store.remember_limits,
        also_write=resources.access.write_answers,
        on_node=resources.on_node,
    )
    engine.begin(to_run=len(trials), done=len(ledger.done))
    for message in (
        *news.of_a_resume(ledger, len(trials)),
        *news.of_the_machine(plan, resources.at_once),
        *(news.of_found_limits(plan, found) if trials else ()),
        *resources.notes,
    ):
        engine.say(message)
    async with attempts_with(resources.for_attempts(), engine.say) as attempts:
        if cluster is None:
            return await engine.drive(engine.driver(attempts, trials), attempts.widen)
        driver = engine.driver(cluster, trials)
        nodes = cluster.running(
            run=ledger.run,
            folder=str(ledger.folder),
            local=attempts,
            driver=driver,
            say=engine.say,
        )
        async with nodes:
            return await engine.drive(driver, attempts.widen)
