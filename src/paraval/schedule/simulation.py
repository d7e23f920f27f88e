"""Runs the scheduler in virtual time: what a plan would do, without doing it.

`paraval plan` tells by this how long a run will take; the tests put thousands of random plans
through it. The clock jumps from event to event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from paraval.records import Outcome
from paraval.schedule.messages import (
    Begin,
    Conclude,
    Ended,
    Event,
    Over,
    Start,
    StopAsked,
    Tick,
    WakeAt,
)
from paraval.schedule.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Imagined:
    """How an attempt is made to end."""

    duration_s: float
    outcome: Outcome = Outcome.PASSED
    retry_after: float | None = None


Imagine = Callable[[int, int], Imagined]
"""(trial index, attempt number from 1) -> its end."""


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
    over_at: float | None = None

    @property
    def makespan_s(self) -> float:
        return max((span.end for span in self.spans), default=0.0)


def simulate(scheduler: Scheduler, imagine: Imagine, *, stop_at: float | None = None) -> Trace:
    """Plays a run to its end."""
    trace = Trace()
    agenda: list[tuple[float, int, Event]] = [(0.0, 0, Begin(at=0.0))]
    if stop_at is not None:
        agenda.append((stop_at, 1, StopAsked(at=stop_at)))
    numbers: dict[int, int] = {}
    sequence = len(agenda)
    while agenda:
        now, _, event = heapq.heappop(agenda)
        for instruction in scheduler.handle(event):
            upcoming: Event | None = None
            match instruction:
                case Start(index=index):
                    number = numbers[index] = numbers.get(index, 0) + 1
                    end = imagine(index, number)
                    span = Span(index=index, number=number, start=now, end=now + end.duration_s)
                    trace.spans.append(span)
                    upcoming = Ended(
                        at=span.end,
                        index=index,
                        outcome=end.outcome,
                        retry_after=end.retry_after,
                    )
                case WakeAt(at=at):
                    upcoming = Tick(at=at)
                case Conclude(index=index):
                    trace.concluded.append(index)
                case Over():
                    trace.over_at = now
                case _:
                    pass
            if upcoming is not None:
                sequence += 1
                heapq.heappush(agenda, (upcoming.at, sequence, upcoming))
    return trace
