"""Runs the scheduler in virtual time: what a plan would do, without doing it, and which limit
determines its end.

`paraval plan` uses it to forecast a run, `paraval simulate` to find out what very large ones would
do; the tests put thousands of random plans through it. The clock jumps from event to event.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from paraval.dataclass import dataclass
from paraval.garbage import no_collections
from paraval.records import AccountLimits, AccountUse, Limits, Outcome, RetryPolicy
from paraval.schedule.messages import (
    AccountHeld,
    Added,
    AttemptOver,
    Begin,
    CallOff,
    Conclude,
    Event,
    Instruction,
    NeedStopped,
    NodeJoined,
    Over,
    RetryLater,
    Skip,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
    Work,
    draws_of,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.throttle import TokenBucket

# What determines the end of a run: for each limit, the minimum time for the whole plan.

PARALLEL = "parallel"
ALONE = "exclusive trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A run cannot end sooner than this, for the given reason."""

    name: str
    """`parallel`, `exclusive trials`, a limit's or an account's name as among the needs, or
    `longest trial`."""
    seconds: float
    text: str
    """What limits: `300 requests per minute`."""
    is_rate: bool = False
    """True: it holds however long trials take."""


@dataclass(slots=True)
class _LimitLoad:
    """Everything that has to pass through a limit."""

    seconds: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0


def bounds(works: Sequence[Work], limits: Limits) -> tuple[Bound, ...]:
    """Every bound of a plan, the tightest first."""
    if not works:
        return ()
    found = [
        _bound_of_slots(works, limits),
        Bound(
            name="longest trial",
            seconds=max(work.expected_s for work in works),
            text="the longest trial",
        ),
    ]
    for name, load in sorted(_loads(works).items()):
        found.extend(_bounds_of(name, load, limits))
    return tuple(sorted(found, key=lambda bound: -bound.seconds))


def _bound_of_slots(works: Sequence[Work], limits: Limits) -> Bound:
    """Exclusive trials come on top of shared ones; named after whichever takes longer."""
    alone_s = sum(work.expected_s for work in works if work.exclusive)
    shared_s = (sum(work.expected_s for work in works) - alone_s) / max(1, limits.parallel)
    if alone_s > shared_s:
        return Bound(name=ALONE, seconds=shared_s + alone_s, text="one at a time")
    return Bound(name=PARALLEL, seconds=shared_s + alone_s, text=f"{limits.parallel} in parallel")


def _loads(works: Sequence[Work]) -> dict[str, _LimitLoad]:
    loads: dict[str, _LimitLoad] = defaultdict(_LimitLoad)
    for work in works:
        for need in work.needs:
            loads[need].seconds += work.expected_s
        for draw in draws_of(work):
            loads[draw.account].requests += draw.requests
            loads[draw.account].tokens += draw.tokens
    return loads


def _bounds_of(name: str, load: _LimitLoad, limits: Limits) -> Iterator[Bound]:
    if name in limits.named:
        capacity = max(1, min(limits.named[name], limits.parallel))
        yield Bound(
            name=name, seconds=load.seconds / capacity, text=f"{limits.named[name]} in parallel"
        )
    known = limits.accounts.get(name, AccountLimits())
    if known.concurrent:
        capacity = max(1, min(known.concurrent, limits.parallel))
        yield Bound(
            name=name, seconds=load.seconds / capacity, text=f"{known.concurrent} in parallel"
        )
    if known.requests_per_minute:
        yield Bound(
            name=name,
            # The first request is sent immediately.
            seconds=60.0 * max(0.0, load.requests - 1.0) / known.requests_per_minute,
            text=f"{known.requests_per_minute:,g} requests per minute",
            is_rate=True,
        )
    if known.tokens_per_minute:
        yield Bound(
            name=name,
            # The first minute's worth may be used immediately.
            seconds=max(0.0, 60.0 * load.tokens / known.tokens_per_minute - 60.0),
            text=f"{known.tokens_per_minute:,.0f} tokens per minute",
            is_rate=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEnd:
    """How a simulated attempt ends."""

    duration_s: float
    outcome: Outcome = Outcome.PASSED
    retry_after: float | None = None
    account: str | None = None
    lasting: bool = False
    stops: str | None = None
    reason: str = ""
    uses: tuple[AccountUse, ...] = ()
    cost_usd: float | None = None
    at_least_usd: float = 0.0
    memory_bytes: int | None = None


Imagine = Callable[[int, int], SimulatedEnd]
"""(trial index, attempt number from 1) -> its end."""

ImagineAt = Callable[[float, int, int], SimulatedEnd]
"""(when it starts, trial index, attempt number from 1) -> its end."""

More = Callable[[int], Sequence[Work]]
"""A trial's index -> what is added after it ended or was skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """When an attempt ran."""

    index: int
    number: int
    start: float
    end: float


@dataclass(slots=True, kw_only=True)
class Trace:
    """Everything that happened in a simulated run."""

    spans: list[AttemptSpan] = field(default_factory=list)
    concluded: list[int] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    held: list[AccountHeld] = field(default_factory=list)
    stopped: list[NeedStopped] = field(default_factory=list)
    over_at: float | None = None
    """The last time the run was over."""

    @property
    def makespan_s(self) -> float:
        return max((span.end for span in self.spans), default=0.0)


def simulate(
    scheduler: Scheduler,
    imagine: Imagine,
    *,
    stop_at: float | None = None,
    call_off_at: float | None = None,
    more: More | None = None,
) -> Trace:
    """Simulate a run to its end."""
    return simulate_at(
        scheduler,
        lambda _, index, number: imagine(index, number),
        stop_at=stop_at,
        call_off_at=call_off_at,
        more=more,
    )


def simulate_at(
    scheduler: Scheduler,
    imagine: ImagineAt,
    *,
    stop_at: float | None = None,
    call_off_at: float | None = None,
    more: More | None = None,
) -> Trace:
    """Simulate a run whose attempts depend on when they start, as they do with a provider."""
    simulation = _Simulation(imagine, more)
    simulation.expect(Begin(at=0.0))
    if stop_at is not None:
        simulation.expect(StopAsked(at=stop_at))
    if call_off_at is not None:
        simulation.expect(CallOff(at=call_off_at, reason="called off"))
    while simulation.agenda:
        now, _, event = heapq.heappop(simulation.agenda)
        for instruction in scheduler.handle(event):
            simulation.perform(instruction, now)
    return simulation.trace


class _Simulation:
    """Scheduled events, and what has happened."""

    def __init__(self, imagine: ImagineAt, more: More | None) -> None:
        self.trace = Trace()
        self.agenda: list[tuple[float, int, Event]] = []
        self._imagine = imagine
        self._more = more
        self._numbers: dict[int, int] = {}
        self._sequence = 0

    def expect(self, event: Event) -> None:
        """Simultaneous events come in the order they were scheduled."""
        heapq.heappush(self.agenda, (event.at, self._sequence, event))
        self._sequence += 1

    def perform(self, instruction: Instruction, now: float) -> None:
        match instruction:
            case StartAttempt(index=index):
                self._start(index, now)
            case WakeAt(at=at):
                self.expect(Tick(at=at))
            case Conclude(index=index):
                self.trace.concluded.append(index)
                self._add_more(index, now)
            case Skip(index=index):
                self.trace.skipped.append(instruction)
                self._add_more(index, now)
            case AccountHeld():
                self.trace.held.append(instruction)
            case NeedStopped():
                self.trace.stopped.append(instruction)
            case Over():
                self.trace.over_at = now
            case _:
                pass

    def _add_more(self, index: int, now: float) -> None:
        works = () if self._more is None else tuple(self._more(index))
        if works:
            self.expect(Added(at=now, works=works))

    def _start(self, index: int, now: float) -> None:
        number = self._numbers[index] = self._numbers.get(index, 0) + 1
        end = self._imagine(now, index, number)
        span = AttemptSpan(index=index, number=number, start=now, end=now + end.duration_s)
        self.trace.spans.append(span)
        self.expect(
            AttemptOver(
                at=span.end,
                index=index,
                outcome=end.outcome,
                retry_after=end.retry_after,
                account=end.account,
                lasting=end.lasting,
                stops=end.stops,
                reason=end.reason,
                uses=end.uses,
                cost_usd=end.cost_usd,
                at_least_usd=end.at_least_usd,
                memory_bytes=end.memory_bytes,
            )
        )


# Very many trials that are alike, without a trace of each.

CASES_SPREAD = 0.5
ATTEMPTS_SPREAD = 0.2
"""Standard deviations of logarithms: of expected durations, and of attempts around these."""
STRAGGLES = 10.0
"""How many times as long a straggler takes."""
REFUSED_IN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """Trials, and what they run on."""

    trials: int
    slots: int
    nodes: int = 0
    """The slots are spread over so many nodes of a cluster; 0: all are this machine's."""
    seconds: float = 30.0
    """Mean duration of an attempt."""
    accounts: int = 0
    """The trials are spread over so many accounts of a provider; 0: they need none."""
    requests_per_minute: float | None = None
    """What the provider accepts, over all accounts; None: any number."""
    knows_limits: bool = True
    """False: the scheduler is not told this number, and has to find it."""
    failures: float = 0.0
    """Share of attempts that end with an error of the infrastructure."""
    stragglers: float = 0.0
    """Share of attempts that take ten times as long."""
    seed: int = 0

    @property
    def per_account(self) -> float | None:
        return self.requests_per_minute and self.requests_per_minute / max(1, self.accounts)

    def works(self) -> list[Work]:
        draw = random.Random(self.seed)  # noqa: S311 - a simulation
        accounts = range(self.accounts)
        needs: list[tuple[str, ...]] = [(f"account:{number}",) for number in accounts] or [()]
        mean = -(CASES_SPREAD**2) / 2
        return [
            Work(
                index=index,
                needs=needs[index % len(needs)],
                expected_s=self.seconds * draw.lognormvariate(mean, CASES_SPREAD),
                on_node=self.nodes > 0,
            )
            for index in range(self.trials)
        ]

    def limits(self) -> Limits:
        known = AccountLimits(requests_per_minute=self.per_account if self.knows_limits else None)
        return Limits(
            parallel=self.slots,
            accounts={f"account:{number}": known for number in range(self.accounts)},
        )


@dataclass(slots=True, kw_only=True)
class LoadFigures:
    """What a simulated load took."""

    load: SimulatedLoad
    attempts: int = 0
    retries: int = 0
    """After errors."""
    refusals: int = 0
    passed: int = 0
    failed: int = 0
    """Trials without a verdict: too many errors, or skipped."""
    busy_s: float = 0.0
    longest_s: float = 0.0
    makespan_s: float = 0.0
    cpu_s: float = 0.0
    """Of the scheduler, in reality."""

    @property
    def utilization(self) -> float:
        return self.busy_s / (self.load.slots * self.makespan_s) if self.makespan_s else 0.0

    @property
    def bound(self) -> Bound:
        """No order of these attempts could have ended sooner."""
        slots = f"{self.load.slots:,} slots"
        found = [
            Bound(name=PARALLEL, seconds=self.busy_s / self.load.slots, text=slots),
            Bound(name="longest", seconds=self.longest_s, text="the longest attempt"),
        ]
        if per_minute := self.load.requests_per_minute:
            # Each account's first request, and a second's worth of them, are sent immediately.
            paced = self.attempts - self.refusals - max(self.load.accounts, per_minute / 60.0)
            seconds = 60.0 * max(0.0, paced) / per_minute
            text = f"{per_minute:,g} requests per minute"
            found.append(Bound(name="requests", seconds=seconds, text=text, is_rate=True))
        return max(found, key=lambda bound: bound.seconds)


def simulate_load(
    load: SimulatedLoad,
    cpu_clock: Callable[[], float],
    on_done: Callable[[int], object] = lambda _: None,
) -> LoadFigures:
    """Simulate it to its end; `cpu_clock` has the CPU time used so far, and `on_done` hears from
    time to time how many more trials are done."""
    with no_collections():
        return _LoadSimulation(load, cpu_clock).run(on_done)


class _LoadSimulation:
    """The attempts of a load, and a provider that refuses what is too much."""

    def __init__(self, load: SimulatedLoad, cpu_clock: Callable[[], float]) -> None:
        self._load = load
        self._cpu_clock = cpu_clock
        self._figures = LoadFigures(load=load)
        self._works = load.works()
        began = self._cpu_clock()
        self._scheduler = Scheduler(
            self._works, limits=load.limits(), retry=RetryPolicy(), seed=load.seed
        )
        self._figures.cpu_s = self._cpu_clock() - began
        self._random = random.Random(load.seed + 1)  # noqa: S311 - a simulation
        self._agenda: list[tuple[float, int, Event]] = []
        self._sequence = 0
        self._buckets: dict[str, TokenBucket] = {}

    def run(self, on_done: Callable[[int], object]) -> LoadFigures:
        figures, load = self._figures, self._load
        for node in range(load.nodes):
            slots = load.slots // load.nodes + (node < load.slots % load.nodes)
            self._expect(NodeJoined(at=0.0, node=f"node-{node + 1}", slots=slots))
        self._expect(Begin(at=0.0))
        step = max(1, load.trials // 200)
        told = 0
        while self._agenda:
            now, _, event = heapq.heappop(self._agenda)
            began = self._cpu_clock()
            instructions = self._scheduler.handle(event)
            figures.cpu_s += self._cpu_clock() - began
            for instruction in instructions:
                self._perform(instruction, event, now)
            done = figures.passed + figures.failed
            if done >= told + step:
                on_done(done - told)
                told = done
        on_done(figures.passed + figures.failed - told)
        return figures

    def _expect(self, event: Event) -> None:
        heapq.heappush(self._agenda, (event.at, self._sequence, event))
        self._sequence += 1

    def _perform(self, instruction: Instruction, event: Event, now: float) -> None:
        match instruction:
            case StartAttempt(index=index):
                self._start(index, now)
            case WakeAt(at=at):
                self._expect(Tick(at=at))
            case Conclude():
                is_passed = isinstance(event, AttemptOver) and event.outcome is Outcome.PASSED
                self._figures.passed += is_passed
                self._figures.failed += not is_passed
            case Skip():
                self._figures.failed += 1
            case RetryLater():
                is_refused = (
                    isinstance(event, AttemptOver) and event.outcome is Outcome.RATE_LIMITED
                )
                self._figures.retries += not is_refused
            case _:
                pass

    def _start(self, index: int, now: float) -> None:
        figures, draw, load = self._figures, self._random, self._load
        work = self._works[index]
        figures.attempts += 1
        outcome, account = Outcome.PASSED, next(iter(work.needs), None)
        if account is not None and self._is_refused(account, now):
            figures.refusals += 1
            outcome, seconds = Outcome.RATE_LIMITED, REFUSED_IN_S
        else:
            spread = draw.lognormvariate(-(ATTEMPTS_SPREAD**2) / 2, ATTEMPTS_SPREAD)
            seconds = work.expected_s * spread
            if load.stragglers and draw.random() < load.stragglers:
                seconds *= STRAGGLES
            if load.failures and draw.random() < load.failures:
                outcome = Outcome.INFRA_ERROR
        figures.busy_s += seconds
        figures.longest_s = max(figures.longest_s, seconds)
        figures.makespan_s = max(figures.makespan_s, now + seconds)
        uses: tuple[AccountUse, ...] = ()
        if account is not None:
            is_refused = outcome is Outcome.RATE_LIMITED
            uses = (AccountUse(account=account, requests=1, refused=is_refused),)
        end = AttemptOver(
            at=now + seconds, index=index, outcome=outcome, account=account, uses=uses
        )
        self._expect(end)

    def _is_refused(self, account: str, now: float) -> bool:
        """A scheduler that knows the limit keeps to it."""
        rate = self._load.per_account
        if rate is None or self._load.knows_limits:
            return False
        bucket = self._buckets.get(account)
        if bucket is None:
            rate /= 60.0
            bucket = self._buckets[account] = TokenBucket.full(rate, max(1.0, rate), now)
        if bucket.wait_s(now, 1.0) > 0.0:
            return True
        bucket.take(now, 1.0)
        return False
