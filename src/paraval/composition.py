"""Composition: puts the stages together, and nothing else.

suite -> plan -> schedule -> execute -> grade -> store -> report. Each stage is told what it needs
here, and none of them knows the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from paraval.errors import RequestError, RunBrokenOffError, StoreError
from paraval.execute.attempts import Attempts
from paraval.execute.driver import Driver, Pace
from paraval.execute.loop import run_in_a_loop
from paraval.garbage import no_collections
from paraval.grade.panel import Panel
from paraval.plan.build import build_plan
from paraval.plan.model import json_schema
from paraval.plan.suite import Suite
from paraval.processes.children import Warden
from paraval.processes.identity import RUN_VARIABLE, end_leftovers
from paraval.records import (
    CommandTarget,
    Happening,
    Notice,
    Plan,
    RunEnded,
    RunInfo,
    RunStarted,
    Trial,
    TrialResult,
)
from paraval.report.document import Report
from paraval.report.wording import counted
from paraval.resuming import chosen_now, how_to_resume, resumed_plan, run_to_resume
from paraval.schedule.estimates import Estimates, Observation
from paraval.schedule.messages import Work
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import Imagined, simulate
from paraval.settings import Options, Selection, default_store
from paraval.store.ledger import Ledger
from paraval.store.store import Store
from paraval.targets.capture import routed_streams
from paraval.targets.command import CommandAnswerer
from paraval.targets.function import FunctionAnswerer
from paraval.targets.isolated import IsolatedAnswerer
from paraval.threads import Threads

T = TypeVar("T")
HEARTBEAT_S = 0.25
FILES_PER_PROCESS = 4
FILES_FOR_THE_REST = 200
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Onlooker(Protocol):
    """Is told what happens, in the engine's own loop: quick, and never raising."""

    def __call__(self, event: Happening) -> None: ...

    def tick(self, now: float) -> None:
        """Called several times a second, with the time of time.monotonic()."""
        ...


class Nobody:
    """Looks on, and says nothing."""

    def __call__(self, event: Happening) -> None: ...

    def tick(self, now: float) -> None: ...


# ---- the whole of it


def run(
    suite: Suite | str | Path,
    *,
    parallel: int | None = None,
    selection: Selection | None = None,
    options: Options | None = None,
    onlooker: Onlooker | None = None,
) -> Report:
    """Runs a suite to its end and gives its report.

    Ctrl-C stops cleanly: what is done stays recorded, and KeyboardInterrupt is raised.
    """
    asked = Selection(parallel=parallel).over(selection or Selection())
    report = run_stoppably(suite, selection=asked, options=options, onlooker=onlooker)
    if report.run.interrupted:
        raise KeyboardInterrupt(f"run {report.run.id} was interrupted; it can be resumed")
    return report


def run_stoppably(
    suite: Suite | str | Path,
    *,
    selection: Selection,
    options: Options | None = None,
    onlooker: Onlooker | None = None,
) -> Report:
    """Runs a suite in a loop of its own; SIGINT, SIGTERM and SIGHUP stop it cleanly."""
    _refuse_a_running_loop()
    return run_in_a_loop(
        _run(suite, selection, options or Options(), onlooker or Nobody(), _stopping_on_signals)
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
    onlooker: Onlooker | None = None,
) -> Report:
    """The same inside a running event loop, whose signals are its owner's: to stop, cancel it."""
    asked = Selection(parallel=parallel).over(selection or Selection())
    return await _run(
        suite, asked, options or Options(), onlooker or Nobody(), contextlib.nullcontext
    )


Stopping = Callable[[Driver], contextlib.AbstractContextManager[object]]
"""What can stop a driver from outside while this lasts."""


async def _run(
    suite: Suite | str | Path,
    asked: Selection,
    options: Options,
    onlooker: Onlooker,
    stopping: Stopping,
) -> Report:
    if not isinstance(suite, Suite):
        suite = load_suite(Path(suite))
    if options.seed is None:
        options = replace(options, seed=suite.seed)
    store = open_store(options)
    resumed = run_to_resume(store, suite, options) if options.resumes else None
    if resumed is not None:
        # Before the plan is made, which may take long: a run that is worked on is refused at once.
        store.require_free(resumed)
    async with Warden() as warden:
        with no_collections():
            plan = _plan(suite, asked, store, resumed)
            chosen = None if resumed is None else chosen_now(suite, asked, plan)
            # Made once to see that it can be, before there is a run.
            Panel(plan.grading, functions=suite.functions, threads=Threads(), warden=warden)
            if _starts_processes(plan):
                at_once = min(plan.limits.parallel, len(plan.trials))
                _allow_files_for(at_once)
                warden.prepare(at_once)
            ledger = _open_ledger(store, plan, resumed, options, chosen)
        interrupted = True
        try:
            if resumed is not None:
                await asyncio.to_thread(end_leftovers, resumed.id)
            gear = _Gear(suite=suite, ledger=ledger, warden=warden, chosen=chosen)
            interrupted = not await _execute(gear, store, onlooker, stopping)
        finally:
            ledger.close(interrupted=interrupted)
    onlooker(RunEnded(run=ledger.run))
    return Report(StoredRun(store, ledger.run))


def open_store(options: Options) -> Store:
    return Store(options.store or default_store())


def _plan(suite: Suite, asked: Selection, store: Store, resumed: RunInfo | None) -> Plan:
    """What the run is about."""
    if resumed is None:
        return build_plan(suite, asked)
    return resumed_plan(suite, asked, Selection.from_mapping(store.selection(resumed)))


def _allow_files_for(processes: int) -> None:
    """Raises this process's own limit of open files as far as it may be and needs to be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = processes * FILES_PER_PROCESS + FILES_FOR_THE_REST
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _starts_processes(plan: Plan) -> bool:
    return any(
        isinstance(target, CommandTarget) or target.isolate
        for target in {id(trial.target): trial.target for trial in plan.trials}.values()
    )


def _open_ledger(
    store: Store,
    plan: Plan,
    resumed: RunInfo | None,
    options: Options,
    chosen: frozenset[int] | None,
) -> Ledger:
    """A new run's ledger, or that of the run to go on with."""
    if resumed is None:
        return store.create_run(plan, seed=options.seed or 0)
    ledger = store.resume_run(resumed.id, plan)
    if options.retry_errors:
        ledger.forget_errors(chosen)
    return ledger


class StoredRun:
    """A run as a report reads it: opened each time, so that nothing is held between."""

    def __init__(self, store: Store, run: RunInfo) -> None:
        self._store = store
        self._run = run

    def info(self) -> RunInfo:
        return self._run

    def results(self) -> Iterator[TrialResult]:
        with self._store.reader(self._run) as reader:
            yield from reader.results()


# ---- what faces ask of the plan


def load_suite(path: Path) -> Suite:
    return Suite.load(path)


def plan_suite(suite: Suite, selection: Selection) -> Plan:
    return build_plan(suite, selection)


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of suite files."""
    return json_schema()


# ---- execution


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gear:
    """What a run works with."""

    suite: Suite
    ledger: Ledger
    warden: Warden
    chosen: frozenset[int] | None
    """The trials that may run now; None: all that have no result."""

    def trials(self) -> dict[int, Trial]:
        """Those to run now."""
        done, chosen = self.ledger.done, self.chosen
        return {
            trial.index: trial
            for trial in self.ledger.plan.trials
            if trial.index not in done and (chosen is None or trial.index in chosen)
        }


async def _execute(gear: _Gear, store: Store, onlooker: Onlooker, stopping: Stopping) -> bool:
    """Whether every trial that was to run has its result at the end."""
    ledger, plan = gear.ledger, gear.ledger.plan
    trials = gear.trials()
    estimates = estimates_for(plan, store)
    loop = asyncio.get_running_loop()
    done = len(ledger.done)
    onlooker(RunStarted(run=ledger.run, total=done + len(trials), already_done=done))
    for message in _news_of_a_resume(ledger, len(trials)):
        onlooker(Notice(message=message))
    async with _attempts(gear, onlooker) as attempts:
        driver = Driver(
            trials,
            scheduler=scheduler_for(plan, list(trials.values()), estimates, ledger.run.seed),
            performer=attempts,
            ledger=ledger,
            tell=onlooker,
            pace=Pace(
                lambda trial: estimates.expected_s(trial.case.id, trial.variant),
                from_history=estimates.known,
            ),
        )
        ledger.open(
            deliver=partial(_in_loop, loop, _call_all),
            on_failure=partial(_in_loop, loop, driver.fail),
        )
        async with _heartbeat(onlooker):
            with stopping(driver):
                try:
                    await driver.run()
                except StoreError as error:
                    raise _broken_off(error, ledger.run) from error
    return driver.done == len(trials)


def _news_of_a_resume(ledger: Ledger, to_run: int) -> Iterator[str]:
    """What a person should know before it goes on."""
    if not ledger.run.resumed:
        return
    done, total = len(ledger.done), len(ledger.plan.trials)
    yield (
        f"Going on with run {ledger.run.id}: {done:,} of {counted(total, 'trial')} done,"
        f" {to_run:,} to run now."
    )
    if ledger.changed:
        yield f"Changed since this run began, so run again: {counted(ledger.changed, 'trial')}."
    if ledger.dropped:
        yield (
            f"No longer in the suite, so no longer in the report: "
            f"{counted(ledger.dropped, 'trial')} with a result."
        )


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[T], None], what: T) -> None:
    # A loop that has ended has nobody left to be told.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, what)


def _call_all(calls: list[Callable[[], None]]) -> None:
    with contextlib.ExitStack() as stack:
        # Each of them, whatever another raises; in their order.
        for call in reversed(calls):
            stack.callback(call)


def _broken_off(error: StoreError, info: RunInfo) -> RunBrokenOffError:
    hint = f"mend that, then go on with: {how_to_resume(info)}"
    return RunBrokenOffError(f"run {info.id} was broken off: {error.message}", hint=hint)


@contextlib.asynccontextmanager
async def _attempts(gear: _Gear, onlooker: Onlooker) -> AsyncIterator[Attempts]:
    threads = Threads()
    ledger, functions, warden = gear.ledger, gear.suite.functions, gear.warden
    run_id = ledger.run.id
    attempts = Attempts(
        commands=CommandAnswerer(warden, run_id),
        functions=FunctionAnswerer(functions, threads),
        isolated=IsolatedAnswerer(
            warden,
            run_id,
            folder=str(ledger.folder / "workers"),
            most=ledger.plan.limits.parallel,
        ),
        panel=Panel(
            ledger.plan.grading,
            functions=functions,
            threads=threads,
            warden=warden,
            marks={RUN_VARIABLE: run_id},
        ),
        warden=warden,
        run_folder=ledger.folder,
    )
    try:
        with routed_streams():
            yield attempts
    finally:
        await attempts.close()
        threads.close()
        if threads.left_behind:
            left = counted(threads.left_behind, "function")
            onlooker(Notice(message=f"Still running in threads of this process: {left}."))


@contextlib.asynccontextmanager
async def _heartbeat(onlooker: Onlooker) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            onlooker.tick(time.monotonic())

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


@contextlib.contextmanager
def _stopping_on_signals(driver: Driver) -> Iterator[None]:
    """A signal asks the driver to stop; only the main thread can be told of one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # One that is ignored stays so: that is what nohup is for.
    before = {
        number: handler
        for number in STOPPING_SIGNALS
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    for number in before:
        reason = "Interrupted" if number is signal.SIGINT else f"Got {number.name}"
        loop.add_signal_handler(number, driver.stop, reason)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


# ---- what is expected


def estimates_for(plan: Plan, store: Store) -> Estimates:
    rows = store.history(plan.name).rows
    return Estimates(
        Observation(case_id=case_id, variant=variant, count=count, mean_log_s=mean_log_s)
        for case_id, variant, count, mean_log_s, *_ in rows
    )


def scheduler_for(plan: Plan, trials: list[Trial], estimates: Estimates, seed: int) -> Scheduler:
    works = [
        Work(
            index=trial.index,
            needs=trial.needs,
            expected_s=estimates.expected_s(trial.case.id, trial.variant),
        )
        for trial in trials
    ]
    return Scheduler(works, limits=plan.limits, retry=plan.retry, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run of a plan would do, by the scheduler itself in virtual time."""

    plan: Plan
    starts: tuple[tuple[Trial, float, float], ...]
    """In order of start: the trial, when it would start, how long it is expected to take."""
    from_history: bool
    wall_s: float | None
    """None where nothing is known of the suite."""
    serial_s: float | None


def foresee(plan: Plan, store: Store, seed: int = 0) -> Forecast:
    """What would run, in which order, and how long it would take."""
    estimates = estimates_for(plan, store)
    scheduler = scheduler_for(plan, list(plan.trials), estimates, seed)
    expected = [estimates.expected_s(trial.case.id, trial.variant) for trial in plan.trials]
    trace = simulate(scheduler, lambda index, _: Imagined(duration_s=expected[index]))
    known = estimates.known
    return Forecast(
        plan=plan,
        starts=tuple(
            (plan.trials[span.index], span.start, expected[span.index]) for span in trace.spans
        ),
        from_history=known,
        wall_s=trace.makespan_s if known else None,
        serial_s=sum(expected) if known else None,
    )
