"""Conducts a run: what every kind of run shares once its plan exists.

Opens a ledger, starts the driver, notifies observers, and leaves the run finished, held back or
interrupted. The trials and their performers come from outside: from the plan of a suite, or from an
`OpenEndedRun`, whose trials are named while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from dataclasses import field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from paraval.dataclass import dataclass
from paraval.errors import RunBrokenOffError, StoreError
from paraval.execute.driver import Driver, Performer
from paraval.execute.event_loop import Stopping
from paraval.execute.pace import Pace
from paraval.execute.trial_source import Growth, TrialSource
from paraval.garbage import no_collections
from paraval.machine.machine_reader import MachineReader
from paraval.models.prices import Prices
from paraval.processes.children import Warden
from paraval.processes.identity import end_leftovers, unreadable_environment
from paraval.records import (
    FoundLimit,
    Happening,
    MachineReading,
    Model,
    Notice,
    Plan,
    RunEnded,
    RunInfo,
    RunStarted,
    Trial,
    TrialResult,
    Variant,
)
from paraval.runner.attempt_dirs import AttemptDirs, HiddenPaths, check_sandbox, open_attempt_dirs
from paraval.runner.forecast import Forecaster, ModelKnowledge
from paraval.runner.live import Commands, LiveRun
from paraval.runner.resources import (
    ModelAccess,
    access_for,
    at_once_with_files,
    starts_processes,
)
from paraval.runner.resume import how_to_resume
from paraval.schedule.estimates import case_by_case, variant_key
from paraval.schedule.messages import Work
from paraval.schedule.scheduler import Scheduler
from paraval.store.ledger import Ledger
from paraval.store.store import Store
from paraval.text.words import counted

if TYPE_CHECKING:
    from paraval.models.client import Models
    from paraval.runner.cluster.nodes import Cluster

T = TypeVar("T")
HEARTBEAT_S = 0.25


class Observer(Protocol):
    """Receives the events of a run, in the engine's own loop. Must be quick and never raise."""

    def __call__(self, event: Happening) -> None: ...

    def tick(self, now: float) -> None:
        """Called several times a second, with the value of time.monotonic()."""
        ...


class NullObserver:
    """Ignores all events."""

    def __call__(self, event: Happening) -> None: ...

    def tick(self, now: float) -> None: ...

    def close(self) -> None: ...


class RunEnd(Enum):
    """How an engine left a run."""

    FINISHED = "every trial has its result"
    HELD_BACK = "some trials were deferred on purpose"
    INTERRUPTED = "it was stopped"


# ---- shared by all runs


def prepare(warden: Warden, plan: Plan) -> int:
    """How many attempts this machine can run in parallel; prepares the warden for them."""
    at_once = at_once_with_files(plan)
    if starts_processes(plan):
        warden.prepare(at_once)
    return at_once


async def close_after(ledger: Ledger, execution: Coroutine[Any, Any, RunEnd]) -> None:
    """Await the execution and close the run accordingly; as interrupted, if it did not finish."""
    ended = RunEnd.INTERRUPTED
    try:
        if ledger.run.resumed:
            await asyncio.to_thread(end_leftovers, ledger.run.id)
        ended = await execution
    finally:
        # If the first await was canceled, the coroutine never started.
        execution.close()
        ledger.close(interrupted=ended is RunEnd.INTERRUPTED, held_back=ended is RunEnd.HELD_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSession:
    """Drives the trials of a run, whatever they are."""

    ledger: Ledger
    warden: Warden
    expected: Forecaster
    at_once: int
    observer: Observer
    stopping: Stopping
    unreported_usd: float = 0.0
    """For an open-ended run: what attempts of earlier engines without a reported cost may have
    cost."""
    also_write: Callable[[], None] = lambda: None
    """Called in the ledger's thread after each batch it writes."""
    on_node: Callable[[Trial], bool] = lambda _trial: False
    """Whether a trial runs on a node of the cluster."""
    found: Mapping[str, FoundLimit] = field(default_factory=dict)
    """By account, the limits that earlier runs found ..."""
    remember: Callable[[Mapping[str, FoundLimit]], None] = lambda _found: None
    """... and what keeps those of this run."""
    live: LiveRun = field(default_factory=LiveRun)

    def tell(self, event: Happening) -> None:
        self.live(event)
        self.observer(event)

    def say(self, words: str) -> None:
        self.tell(Notice(message=words))

    def begin(self, *, to_run: int, done: int) -> None:
        """Notify observers that the run begins."""
        budget, spent = self.ledger.plan.budget, self.ledger.spent()
        self.tell(
            RunStarted(
                run=self.ledger.run,
                total=done + to_run,
                already_done=done,
                budget_usd=None if budget is None else budget.usd,
                spent_usd=spent.usd,
                spent_unknown=spent.is_partly_unknown,
            )
        )

    def driver(self, performer: Performer, trials: Mapping[int, Trial]) -> Driver:
        driver = Driver(
            trials,
            scheduler=self._scheduler(trials),
            performer=performer,
            ledger=self.ledger,
            tell=self.tell,
            pace=Pace(self.expected.seconds, from_history=self.expected.estimates.known),
        )
        if self.ledger.plan.budget is None:
            # After a kill, every recorded start may have cost something.
            driver.record_ahead()
        if self.ledger.plan.stop is not None:
            self._stop_early(driver)
        return driver

    def _stop_early(self, driver: Driver) -> None:
        """Let the results decide when to stop, starting with those of earlier engines."""
        from paraval.runner.early_stop import EarlyStop  # noqa: PLC0415 - few runs stop early

        ledger = self.ledger
        decider = EarlyStop(ledger.plan, ledger.run.seed)
        if not decider.is_possible:
            self.say(decider.why_impossible())
            return
        for index, outcome in ledger.done.items():
            decider.hear(ledger.plan.trials[index], outcome)
        driver.heed(decider)

    async def drive(
        self, driver: Driver, widen: Callable[[int], None] = lambda _parallel: None
    ) -> RunEnd:
        """Run the driver's trials to their end. `widen` makes room for more attempts at a time."""
        loop = asyncio.get_running_loop()
        self.ledger.open(
            deliver=partial(_in_loop, loop, _call_all),
            on_failure=partial(_in_loop, loop, driver.fail),
            also_write=self.also_write,
        )
        async with _heartbeat(self.observer.tick, self.live.tick):
            taking = Commands(self.ledger, driver, self.tell, widen, self.live.spending)
            with self.stopping(driver), self.live.of(taking):
                try:
                    await driver.run(self._measure())
                except RunBrokenOffError:
                    raise
                except StoreError as error:
                    raise _broken_off(error, self.ledger.run) from error
        self.remember(driver.found_limits())
        self.ledger.note_waits(driver.wait_notices())
        if driver.left:
            return RunEnd.INTERRUPTED
        return RunEnd.HELD_BACK if driver.skipped else RunEnd.FINISHED

    def _scheduler(self, trials: Mapping[int, Trial]) -> Scheduler:
        plan, expected = self.ledger.plan, self.expected
        with no_collections():
            works = [
                expected.work(trial, expected.calls(trial), on_node=self.on_node(trial))
                for trial in trials.values()
            ]
            if plan.stop is not None:
                works = case_by_case(works, plan.trials, self.ledger.run.seed)
        return Scheduler(
            works,
            limits=replace(plan.limits, parallel=self.at_once),
            retry=plan.retry,
            seed=self.ledger.run.seed,
            budget=plan.budget,
            spent_usd=0.0 if plan.budget is None else self._spent_usd(),
            found=self.found,
        )

    def _spent_usd(self) -> float:
        """What earlier engines spent; if unknown, what it may have been."""
        trials, known_usd = self.ledger.plan.trials, self.ledger.spent_usd()
        if not trials:
            return known_usd + self.unreported_usd
        unpriced = self.ledger.unpriced_attempts().items()
        return known_usd + sum(
            attempts * self.expected.possible_usd(trials[index]) for index, attempts in unpriced
        )

    def _measure(self) -> Callable[[], MachineReading]:
        """A function that measures the machine, for a scheduler that adapts to it."""
        reader = MachineReader()
        return lambda: reader.read(self.warden.loads())


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[T], None], what: T) -> None:
    # If the loop has ended, there is no one left to notify.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, what)


def _call_all(calls: list[Callable[[], None]]) -> None:
    """Make all the calls in order, even if one raises."""
    failures: list[Exception] = []
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised below, after the other calls
            failures.append(error)
    if failures:
        raise failures[0]


def _broken_off(error: StoreError, info: RunInfo) -> RunBrokenOffError:
    hint = f"fix that, then run: {how_to_resume(info)}"
    return RunBrokenOffError(f"run {info.id} was aborted: {error.message}", hint=hint)


@contextlib.asynccontextmanager
async def _heartbeat(*ticks: Callable[[float], None]) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for tick in ticks:
                tick(time.monotonic())

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


# ---- runs whose trials are named while they run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What an open-ended run can use while it lasts."""

    ledger: Ledger
    warden: Warden
    attempt_dirs: AttemptDirs
    models: Models | None = None
    """The client of the run's models; None: it has none."""
    cluster: Cluster | None = None
    """None: everything runs here."""


Opening = Callable[
    [RunContext], contextlib.AbstractAsyncContextManager[tuple[TrialSource, Performer]]
]
"""Opens what names the trials and what performs them, for the duration of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEndedRun:
    """A run that begins without trials."""

    plan: Plan
    """Without trials: its name, source, axes, limits, workspace, budget, retries and selection."""
    opening: Opening
    resumed: RunInfo | None = None
    """The run to resume; None: a new one."""
    retry_errors: bool = False
    """True: run trials again that ended in an error."""
    seed: int = 0
    beside: int = 0
    """How many more may run in parallel than the plan says: trials with named limits of their
    own."""
    slots: int | None = None
    """How many workspaces may exist at a time; None: one for each attempt that may run."""
    objects: str | None = None
    """A subfolder of the run: git trees that workspaces can be created from. None: none."""
    is_free: Callable[[Variant], bool] = lambda _variant: False
    """Whether trials of a variant are known to be free: no budget holds them back."""
    models: tuple[Model, ...] = ()
    """The models that its trials call."""
    cluster: Callable[[], contextlib.AbstractAsyncContextManager[Cluster | None]] = (
        contextlib.nullcontext
    )
    """Connects to the cluster of the run; None: it has none."""
    on_node: Callable[[Variant], bool] = lambda _variant: False
    """Whether trials of a variant run on nodes, if there is a cluster. The performer sends them."""


async def conduct(
    open_run: OpenEndedRun, store: Store, observer: Observer, stopping: Stopping
) -> RunInfo:
    """Run everything that the run's source names, and return how the run ended up.

    Raises RequestError before the run begins, RunBusyError if another engine has it,
    RunBrokenOffError if the store fails.
    """
    plan = open_run.plan
    if open_run.resumed is not None:
        store.require_free(open_run.resumed)
    check_sandbox(plan)
    prices = Prices()
    async with (
        Warden() as warden,
        _access(open_run, store, prices) as access,
        open_run.cluster() as cluster,
    ):
        at_once = prepare(warden, plan)
        # Before opening the run: expected durations and costs depend on its trials, which are named
        # anew then.
        history = store.history(plan.name).rows
        unreported_usd = await asyncio.to_thread(_unreported_usd, open_run, store)
        ledger = _open_ledger(open_run, store)
        engine = RunSession(
            ledger=ledger,
            warden=warden,
            expected=Forecaster(plan, history, ModelKnowledge(prices=prices)),
            at_once=at_once + open_run.beside,
            observer=observer,
            stopping=stopping,
            unreported_usd=unreported_usd,
            found=store.found_limits(plan.limits.accounts),
            remember=store.remember_limits,
            also_write=access.write_answers,
            on_node=lambda trial: cluster is not None and open_run.on_node(trial.variant),
        )
        await close_after(ledger, _go(open_run, engine, store, access, cluster))
        for complaint in access.complaints():
            observer(Notice(message=complaint))
    observer(RunEnded(run=ledger.run))
    return ledger.run


def _access(
    open_run: OpenEndedRun, store: Store, prices: Prices
) -> contextlib.AbstractAsyncContextManager[ModelAccess]:
    if not open_run.models:
        return contextlib.nullcontext(ModelAccess())
    return access_for(open_run.plan, store, prices, None, open_run.models)


def _unreported_usd(open_run: OpenEndedRun, store: Store) -> float:
    """Possible cost of attempts that were killed or reported none: each counts as the most
    expensive of its variant, or as the amount reserved for one."""
    budget = open_run.plan.budget
    if open_run.resumed is None or budget is None:
        return 0.0
    unreported: Counter[Hashable] = Counter()
    dearest: dict[Hashable, float] = {}
    with store.reader(open_run.resumed) as reader:
        for attempt in reader.attempts():
            kind = variant_key(attempt.variant)
            spend = None if attempt.result is None else attempt.result.spend
            if open_run.is_free(attempt.variant):
                continue
            if spend is None or spend.cost_usd is None:
                unreported[kind] += 1
            if spend is not None:
                dearest[kind] = max(dearest.get(kind, 0.0), spend.known_usd)
    reserved = budget.per_attempt_usd or 0.0
    return sum(count * dearest.get(kind, reserved) for kind, count in unreported.items())


def _open_ledger(open_run: OpenEndedRun, store: Store) -> Ledger:
    if open_run.resumed is None:
        return store.create_run(open_run.plan, seed=open_run.seed)
    ledger = store.resume_run(open_run.resumed.id, open_run.plan)
    if open_run.retry_errors:
        ledger.forget_unsuccessful()
    return ledger


async def _go(
    open_run: OpenEndedRun,
    engine: RunSession,
    store: Store,
    access: ModelAccess,
    cluster: Cluster | None,
) -> RunEnd:
    ledger, known = engine.ledger, engine.ledger.known_results()
    engine.begin(to_run=0, done=len(known))
    if ledger.run.resumed:
        engine.say(_resume_notice(ledger.run, known))
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(unreadable_environment())
        attempt_dirs = await stack.enter_async_context(
            open_attempt_dirs(
                open_run.plan,
                warden=engine.warden,
                at_most=open_run.slots or engine.at_once,
                hidden=HiddenPaths(store=store.root),
                say=engine.say,
                objects=None if open_run.objects is None else ledger.folder / open_run.objects,
            )
        )
        context = RunContext(
            ledger=ledger,
            warden=engine.warden,
            attempt_dirs=attempt_dirs,
            models=access.models,
            cluster=cluster,
        )
        source, performer = await stack.enter_async_context(open_run.opening(context))
        driver = engine.driver(performer, {})
        driver.follow(
            Growth(source=source, known=known, work_of=partial(_work_of, open_run, engine))
        )
        if cluster is not None:
            nodes = cluster.running(
                run=ledger.run, folder=str(ledger.folder), driver=driver, say=engine.say
            )
            await stack.enter_async_context(nodes)
        return await engine.drive(driver)


def _work_of(open_run: OpenEndedRun, engine: RunSession, trial: Trial) -> Work:
    expected = engine.expected
    work = expected.work(trial, expected.calls(trial), on_node=engine.on_node(trial))
    return work._replace(cost_usd=0.0) if open_run.is_free(trial.variant) else work


def _resume_notice(run: RunInfo, known: Mapping[str, TrialResult]) -> str:
    return f"Resuming run {run.id}: {counted(len(known), 'result')} so far."
