"""Runs the scheduler in virtual time: what a plan would do, without doing it.

`paraval plan` tells by this how long a run will take; the tests put thousands of random plans
through it. The clock jumps from event to event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from paraval.records import AccountUse, Outcome
from paraval.schedule.messages import (
    Added,
    Begin,
    CallOff,
    Conclude,
    Ended,
    Event,
    Held,
    Instruction,
    Over,
    Skip,
    Start,
    StopAsked,
    Stopped,
    Tick,
    WakeAt,
    Work,
    draws_of,
)
from paraval.schedule.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Imagined:
    """How an attempt is made to end."""

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


Imagine = Callable[[int, int], Imagined]
"""(trial index, attempt number from 1) -> its end."""

ImagineAt = Callable[[float, int, int], Imagined]
"""(when it starts, trial index, attempt number from 1) -> its end."""

More = Callable[[int], Sequence[Work]]
"""A trial's index -> what is added when it has ended or was skipped."""


def as_expected(works: Iterable[Work]) -> Imagine:
    """Every attempt goes as it is thought to, and takes of its accounts what it draws."""
    ends = {
        work.index: Imagined(
            duration_s=work.expected_s,
            uses=tuple(
                AccountUse(account=draw.account, requests=draw.requests, tokens=draw.tokens)
                for draw in draws_of(work)
            ),
            cost_usd=work.cost_usd,
        )
        for work in works
    }
    return lambda index, _: ends[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When an attempt ran."""

    index: int
    number: int
    start: float
    end: float


@dataclass(slots=True, kw_only=True)
class Trace:
    """All that happened in a simulated run."""

    spans: list[Span] = field(default_factory=list)
    concluded: list[int] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    stopped: list[Stopped] = field(default_factory=list)
    over_at: float | None = None
    """The last time that it was."""

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
    """Plays a run to its end."""
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
    """Plays a run to its end where it matters when an attempt starts, as it does to a provider."""
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
    """What is to happen when, and what has happened."""

    def __init__(self, imagine: ImagineAt, more: More | None) -> None:
        self.trace = Trace()
        self.agenda: list[tuple[float, int, Event]] = []
        self._imagine = imagine
        self._more = more
        self._numbers: dict[int, int] = {}
        self._sequence = 0

    def expect(self, event: Event) -> None:
        """Of events at the same time the one goes first that was expected first."""
        heapq.heappush(self.agenda, (event.at, self._sequence, event))
        self._sequence += 1

    def perform(self, instruction: Instruction, now: float) -> None:
        match instruction:
            case Start(index=index):
                self._start(index, now)
            case WakeAt(at=at):
                self.expect(Tick(at=at))
            case Conclude(index=index):
                self.trace.concluded.append(index)
                self._add_more(index, now)
            case Skip(index=index):
                self.trace.skipped.append(instruction)
                self._add_more(index, now)
            case Held():
                self.trace.held.append(instruction)
            case Stopped():
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
        span = Span(index=index, number=number, start=now, end=now + end.duration_s)
        self.trace.spans.append(span)
        self.expect(
            Ended(
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
