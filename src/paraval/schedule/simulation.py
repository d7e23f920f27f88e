"""Runs the scheduler in virtual time: what a plan would do, without doing it, and which limit
determines its end.

`paraval plan` uses it to forecast a run; the tests put thousands of random plans through it. The
clock jumps from event to event.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from paraval.records import AccountLimits, AccountUse, Limits, Outcome
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
    Over,
    Skip,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
    Work,
    draws_of,
)
from paraval.schedule.scheduler import Scheduler

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
            seconds=60.0 * load.requests / known.requests_per_minute,
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
