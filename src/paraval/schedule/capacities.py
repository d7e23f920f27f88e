"""Named capacities, and who may start next under them.

Trials with the same needs form a lane. A lane is open while every one of its limits has room. Of
the open lanes the one goes first that would hold up the end of the run the longest: by its longest
trial, or by the work that still has to pass through its narrowest limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Limit:
    """A capacity, what is taken of it, and the expected work that still has to pass through it."""

    capacity: int
    taken: int = 0
    waiting_s: float = 0.0

    @property
    def has_room(self) -> bool:
        return self.taken < self.capacity


@dataclass(slots=True)
class Lane:
    """The trials that need the same limits, longest first."""

    limits: tuple[Limit, ...]
    places: list[int] = field(default_factory=list)
    """A heap of places in the run's order; the smallest is next."""
    waiting_s: float = 0.0

    @property
    def is_open(self) -> bool:
        return bool(self.places) and all(limit.has_room for limit in self.limits)

    def holdup_s(self, parallel: int) -> float:
        """How long this lane needs at least, if it were given all that it may use."""
        alone = self.waiting_s / parallel
        return max(
            (limit.waiting_s / min(limit.capacity, parallel) for limit in self.limits),
            default=alone,
        )


class Lanes:
    """Every waiting trial, by its needs."""

    def __init__(self, capacities: Mapping[str, int], parallel: int) -> None:
        self._capacities = capacities
        self._limits: dict[str, Limit] = {}
        self._lanes: dict[tuple[str, ...], Lane] = {}
        self._parallel = parallel
        self.waiting = 0
        self.waiting_s = 0.0

    def lane(self, needs: tuple[str, ...]) -> Lane:
        if needs not in self._lanes:
            self._lanes[needs] = Lane(limits=tuple(self._limit(name) for name in needs))
        return self._lanes[needs]

    def _limit(self, name: str) -> Limit:
        if name not in self._limits:
            self._limits[name] = Limit(capacity=max(1, self._capacities.get(name, self._parallel)))
        return self._limits[name]

    def fill(self, lanes: Sequence[Lane], expected_s: Sequence[float]) -> None:
        """Every trial at its place, in order: what `add` does one by one."""
        for place, (lane, seconds) in enumerate(zip(lanes, expected_s, strict=True)):
            # In rising order a list is a heap as it stands.
            lane.places.append(place)
            lane.waiting_s += seconds
            for limit in lane.limits:
                limit.waiting_s += seconds
        self.waiting += len(lanes)
        self.waiting_s += sum(expected_s)

    def add(self, lane: Lane, place: int, expected_s: float) -> None:
        heapq.heappush(lane.places, place)
        self._count(lane, 1, expected_s)

    def _count(self, lane: Lane, trials: int, expected_s: float) -> None:
        self.waiting += trials
        self.waiting_s += expected_s
        lane.waiting_s += expected_s
        for limit in lane.limits:
            limit.waiting_s += expected_s

    def take(self, lane: Lane, expected_s: float) -> int:
        """The lane's next place, with one of each of its limits."""
        for limit in lane.limits:
            limit.taken += 1
        self._count(lane, -1, -expected_s)
        return heapq.heappop(lane.places)

    def give_back(self, lane: Lane) -> None:
        for limit in lane.limits:
            limit.taken -= 1

    def holdup_s(self) -> float:
        """How long the lane that holds the run up the longest needs at least."""
        return max((lane.holdup_s(self._parallel) for lane in self._lanes.values()), default=0.0)

    def open_lanes(self) -> Iterable[Lane]:
        return (lane for lane in self._lanes.values() if lane.is_open)

    def clear(self) -> None:
        for lane in self._lanes.values():
            lane.places.clear()
            lane.waiting_s = 0.0
            for limit in lane.limits:
                limit.waiting_s = 0.0
        self.waiting = 0
        self.waiting_s = 0.0
