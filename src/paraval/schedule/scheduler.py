"""Decides what starts when: a pure state machine, `handle(event) -> instructions`.

No clock, no I/O, no asyncio, and no randomness but that of its seed: the same events in the same
order give the same instructions. The driver performs them; a simulation can, too.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from operator import attrgetter

from paraval.records import Limits, Outcome, RetryPolicy
from paraval.schedule.capacities import Lane, Lanes
from paraval.schedule.messages import (
    Abandoned,
    Begin,
    Conclude,
    Ended,
    Event,
    Instruction,
    Over,
    RetryLater,
    Start,
    StopAsked,
    Tick,
    WakeAt,
    Work,
)

LONGEST_REFUSAL_S = 900.0
"""A service that says to come back later than this has run out of quota: not worth waiting for."""


class Scheduler:
    """The state of a run between two events."""

    def __init__(
        self, works: Sequence[Work], *, limits: Limits, retry: RetryPolicy, seed: int
    ) -> None:
        in_plan_order = sorted(works, key=attrgetter("index"))
        self._order = sorted(in_plan_order, key=attrgetter("expected_s"), reverse=True)
        self._place = {work.index: place for place, work in enumerate(self._order)}
        self._parallel = max(1, limits.parallel)
        self._retry = retry
        self._random = random.Random(seed)  # noqa: S311 - jitter, not secrets
        self._lanes = Lanes(limits.named, self._parallel)
        self._lane_of: list[Lane] = [self._lanes.lane(work.needs) for work in self._order]
        self._running: dict[int, float] = {}
        self._resting: list[tuple[float, int]] = []
        """(ready at, place): trials that wait for another attempt and hold nothing."""
        self._tries: dict[int, int] = {}
        self._refusals: dict[int, int] = {}
        self._asked_wake: float | None = None
        self._stopping = False
        self._over = False

    @property
    def running(self) -> int:
        return len(self._running)

    def handle(self, event: Event) -> list[Instruction]:
        """Takes in what happened, and says what to do now."""
        instructions: list[Instruction] = []
        match event:
            case Begin():
                self._lanes.fill(self._lane_of, [work.expected_s for work in self._order])
            case Ended():
                instructions.append(self._end(event))
            case Abandoned():
                self._release(event.index)
            case StopAsked():
                self._stop()
            case Tick():
                self._asked_wake = None
        self._wake_rested(event.at)
        instructions.extend(self._start_all(event.at))
        instructions.extend(self._sleep_or_finish())
        return instructions

    def running_for_s(self, now: float) -> float:
        """The time that the running attempts have taken so far, together."""
        return sum(now - since for since in self._running.values())

    def remaining_s(self, now: float, scale: float = 1.0) -> float:
        """How long the rest will take, as expected of it; `scale` corrects all estimates."""
        started = [
            (self._order[self._place[index]].expected_s * scale, now - since)
            for index, since in self._running.items()
        ]
        residual = [max(expected - elapsed, 0.1 * expected) for expected, elapsed in started]
        rested = sum(self._order[place].expected_s for _, place in self._resting)
        work = (self._lanes.waiting_s + rested) * scale + sum(residual)
        trials = self._lanes.waiting + len(self._resting) + len(residual)
        slots = max(1, min(self._parallel, trials))
        return max([work / slots, self._lanes.holdup_s() * scale, *residual])

    def _end(self, event: Ended) -> Instruction:
        self._release(event.index)
        delay_s = self._delay_before_retry(event)
        if delay_s is None:
            return Conclude(index=event.index)
        if self._stopping:
            # Not decided, and not tried again now: a resume will.
            return RetryLater(index=event.index, delay_s=delay_s)
        heapq.heappush(self._resting, (event.at + delay_s, self._place[event.index]))
        return RetryLater(index=event.index, delay_s=delay_s)

    def _delay_before_retry(self, event: Ended) -> float | None:
        if event.outcome not in self._retry.on:
            return None
        if event.outcome is Outcome.RATE_LIMITED:
            tried, most = self._count(self._refusals, event.index), self._retry.refusals
        else:
            tried, most = self._count(self._tries, event.index), self._retry.attempts
        asked = event.retry_after or 0.0
        if tried >= most or asked > LONGEST_REFUSAL_S:
            return None
        ceiling = min(self._retry.longest_delay_s, self._retry.first_delay_s * 2.0 ** (tried - 1))
        return max(asked, self._random.uniform(0.0, ceiling))

    @staticmethod
    def _count(counts: dict[int, int], index: int) -> int:
        counts[index] = counts.get(index, 0) + 1
        return counts[index]

    def _release(self, index: int) -> None:
        del self._running[index]
        self._lanes.give_back(self._lane_of[self._place[index]])

    def _stop(self) -> None:
        self._stopping = True
        self._lanes.clear()
        self._resting.clear()

    def _wake_rested(self, now: float) -> None:
        while self._resting and self._resting[0][0] <= now:
            _, place = heapq.heappop(self._resting)
            self._lanes.add(self._lane_of[place], place, self._order[place].expected_s)

    def _start_all(self, now: float) -> list[Start]:
        starts = []
        while len(self._running) < self._parallel and (lane := self._next_lane()) is not None:
            work = self._order[lane.places[0]]
            self._lanes.take(lane, work.expected_s)
            self._running[work.index] = now
            starts.append(Start(index=work.index))
        return starts

    def _next_lane(self) -> Lane | None:
        if self._lanes.waiting == 0:
            return None
        return max(self._lanes.open_lanes(), key=self._urgency, default=None)

    def _urgency(self, lane: Lane) -> tuple[float, int]:
        longest_s = self._order[lane.places[0]].expected_s
        return max(longest_s, lane.holdup_s(self._parallel)), -lane.places[0]

    def _sleep_or_finish(self) -> list[Instruction]:
        if self._resting:
            at = self._resting[0][0]
            if self._asked_wake is None or at < self._asked_wake:
                self._asked_wake = at
                return [WakeAt(at=at)]
        elif not self._running and self._lanes.waiting == 0 and not self._over:
            self._over = True
            return [Over()]
        return []
