"""Named capacities, which trial may start next under them, and exclusive trials.

Trials with the same needs form a lane. A lane is open while each of its limits has room and each of
its accounts accepts requests. Among open lanes, the one goes first that would delay the end of the
run the most: by its longest trial, or by the work left for its narrowest limit. Exclusive trials
have lanes of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from paraval.records import AccountLimits, Limits
from paraval.schedule.accounts import Account, Grant
from paraval.schedule.machines import Pool
from paraval.schedule.messages import Draw, Work, draws_of, is_account

UNKNOWN = AccountLimits()


@dataclass(slots=True)
class CapacityLimit:
    """A capacity, how much of it is taken, and the expected work still waiting for it."""

    capacity: int
    taken: int = 0
    waiting_s: float = 0.0


@dataclass(slots=True)
class Lane:
    """The trials that need the same limits, longest first."""

    needs: tuple[str, ...]
    limits: tuple[CapacityLimit, ...]
    accounts: tuple[Account, ...]
    pool: Pool
    """The machines that its trials may run on."""
    exclusive: bool = False
    places: list[int] = field(default_factory=list)
    """A heap of places in the run's order; the smallest is next."""
    waiting_s: float = 0.0
    overtaken_since: float | None = None
    """Since when the machine has had no room for its next trial, but for another lane's."""

    @property
    def has_room(self) -> bool:
        return all(limit.taken < limit.capacity for limit in self.limits)

    def opens_at(self, now: float, draws: Sequence[Draw]) -> float:
        """When its accounts let its next trial start; infinite if unknown."""
        if len(self.accounts) == 1:
            return self.accounts[0].opens_at(now, draws[0])
        together = zip(self.accounts, draws, strict=True)
        return max((account.opens_at(now, draw) for account, draw in together), default=now)

    def holdup_s(self) -> float:
        """Minimum time this lane needs, with all the capacity it may use."""
        if self.exclusive:
            return self.waiting_s
        parallel = max(1, self.pool.slots)
        holdup_s = self.waiting_s / parallel
        for limit in self.limits:
            holdup_s = max(holdup_s, limit.waiting_s / min(limit.capacity, parallel))
        for account in self.accounts:
            holdup_s = max(holdup_s, account.holdup_s(parallel))
        return holdup_s


class Lanes:
    """Every waiting trial, by its needs."""

    def __init__(
        self,
        works: Sequence[Work],
        limits: Limits,
        random: Random,
        *,
        pool_of: Callable[[Work], Pool],
        apart: Callable[[Work], Hashable] | None = None,
    ) -> None:
        """`works` are in the order of the run and may grow; none of them waits yet. Works with
        different values of `apart` get separate lanes, so that they need not wait behind one
        another."""
        self._works = works
        self._limits = limits
        self._random = random
        self._pool_of = pool_of
        self._parallel = max(1, limits.parallel)
        self._named: dict[str, CapacityLimit] = {}
        self._accounts: dict[str, Account] = {}
        self._lanes: dict[Hashable, Lane] = {}
        self._apart = apart
        self._lane_of: list[Lane] = []
        self._draws_of: list[tuple[Draw, ...]] = []
        self.grow()
        self.waiting = 0
        self.waiting_s = 0.0

    def grow(self) -> None:
        """Assign lanes to works appended since the last call; none of them waits yet."""
        apart = self._apart
        new = self._works[len(self._lane_of) :]
        self._lane_of += [self._lane(work, None if apart is None else apart(work)) for work in new]
        self._draws_of += [draws_of(work) for work in new]

    def _lane(self, work: Work, apart: Hashable) -> Lane:
        needs, exclusive = work.needs, work.exclusive
        key = (needs, exclusive, work.on_node, apart)
        if key not in self._lanes:
            accounts = [need for need in needs if is_account(need)]
            self._lanes[key] = Lane(
                needs=needs,
                exclusive=exclusive,
                limits=tuple(self._limit(need) for need in needs if self._is_limit(need)),
                accounts=tuple(self._account(need) for need in accounts),
                pool=self._pool_of(work),
            )
        return self._lanes[key]

    def _is_limit(self, need: str) -> bool:
        """A need without a capacity is just a name, by which trials can be stopped."""
        return need in self._limits.named

    def _limit(self, name: str) -> CapacityLimit:
        if name not in self._named:
            self._named[name] = CapacityLimit(capacity=max(1, self._limits.named[name]))
        return self._named[name]

    def _account(self, name: str) -> Account:
        if name not in self._accounts:
            known = self._limits.accounts.get(name, UNKNOWN)
            self._accounts[name] = Account(
                name, known, parallel=self._parallel, random=self._random
            )
        return self._accounts[name]

    def run_on(self, slots: int) -> None:
        """All machines together have this many slots now."""
        self._parallel = max(1, slots)
        for account in self._accounts.values():
            account.widen(self._parallel)

    # ---- waiting

    def fill(self) -> None:
        """Make every trial wait, in order."""
        for place in range(len(self._works)):
            # A sorted list is a valid heap.
            self._lane_of[place].places.append(place)
            self._count(place, 1)

    def add(self, place: int) -> None:
        heapq.heappush(self._lane_of[place].places, place)
        self._count(place, 1)

    def _count(self, place: int, sign: int) -> None:
        lane = self._lane_of[place]
        seconds = self._works[place].expected_s * sign
        self.waiting += sign
        self.waiting_s += seconds
        lane.waiting_s += seconds
        lane.pool.waiting += sign
        lane.pool.waiting_s += seconds
        for limit in lane.limits:
            limit.waiting_s += seconds
        if lane.accounts:
            for account, draw in zip(lane.accounts, self._draws_of[place], strict=True):
                account.waiting_s += seconds
                account.waiting_requests += draw.requests * sign
                account.waiting_tokens += draw.tokens * sign

    def drop(self, lane: Lane) -> int:
        """Remove the lane's next place, and do nothing else."""
        place = heapq.heappop(lane.places)
        self._count(place, -1)
        return place

    def drop_all(self, need: str) -> list[int]:
        """Remove every place with this need."""
        dropped: list[int] = []
        for lane in self._lanes.values():
            while need in lane.needs and lane.places:
                dropped.append(self.drop(lane))
        return dropped

    def clear(self) -> None:
        for lane in self._lanes.values():
            while lane.places:
                self.drop(lane)

    # ---- running

    def take(self, lane: Lane, now: float) -> tuple[int, tuple[Grant, ...]]:
        """Take the lane's next place, one unit of each of its limits, and its share of its
        accounts."""
        place = self.drop(lane)
        lane.overtaken_since = None
        for limit in lane.limits:
            limit.taken += 1
        if not lane.accounts:
            return place, ()
        drawn = zip(lane.accounts, self._draws_of[place], strict=True)
        return place, tuple(account.take(now, draw) for account, draw in drawn)

    def give_back(self, place: int) -> None:
        """Release the limits; accounts are settled by what was done with them."""
        for limit in self._lane_of[place].limits:
            limit.taken -= 1

    def accounts_of(self, place: int) -> tuple[Account, ...]:
        return self._lane_of[place].accounts

    def with_room(self) -> Iterator[Lane]:
        """The lanes whose limits and machines have room."""
        for lane in self._lanes.values():
            if lane.places and (not lane.limits or lane.has_room) and lane.pool.has_room:
                yield lane

    def filled(self) -> Iterable[Lane]:
        return (lane for lane in self._lanes.values() if lane.places)

    def opens_at(self, lane: Lane, now: float) -> float:
        if not lane.accounts:
            return now
        return lane.opens_at(now, self._draws_of[lane.places[0]])

    # ---- remaining time

    def urgency(self, lane: Lane, now: float) -> tuple[float, int]:
        """Higher values go first."""
        place = lane.places[0]
        urgency_s = max(self._works[place].expected_s, lane.holdup_s())
        for account in lane.accounts:
            urgency_s = max(urgency_s, account.paced_s(now))
        return urgency_s, -place

    def holdup_s(self) -> float:
        """Minimum time of the lane that delays the run the most; exclusive lanes come on top."""
        shared = (lane for lane in self._lanes.values() if not lane.exclusive)
        return max((lane.holdup_s() for lane in shared), default=0.0)

    def exclusive_waiting(self, pool: Pool) -> tuple[int, float]:
        """How many exclusive trials wait for these machines, and how long they are expected to
        take."""
        alone = [lane for lane in self._lanes.values() if lane.exclusive and lane.pool is pool]
        return sum(len(lane.places) for lane in alone), sum(lane.waiting_s for lane in alone)

    def paced_s(self, now: float) -> float:
        """How long until the last request may be sent, for the account with the longest pacing."""
        waiting = (one for one in self._accounts.values() if one.waiting_requests > 0)
        return max((account.paced_s(now) for account in waiting), default=0.0)


# Turns between exclusive and shared trials.

OVERTAKEN_AT_MOST_S = 10.0
"""How long latecomers may overtake the other side."""


class Phases:
    """Whether exclusive or shared trials are running: whichever started last."""

    def __init__(self) -> None:
        self.is_alone = False
        """True: the last trial started is exclusive. While it runs, nothing else may."""
        self._other_waits: tuple[float, int] | None = None
        """Since when the other side has waited only for its turn, and how many trials there were
        then."""

    def start(self, lane: Lane) -> None:
        if lane.exclusive is not self.is_alone:
            self.is_alone = lane.exclusive
            self._other_waits = None

    def admitted(
        self, ready: Sequence[Lane], now: float, *, come: int, is_busy: bool
    ) -> list[Lane]:
        """The lanes whose turn it is, out of those that could start; `come`: how many trials there
        are, `is_busy`: whether anything is running."""
        others = [lane for lane in ready if lane.exclusive is not self.is_alone]
        if not others:
            self._other_waits = None
            return list(ready)
        since, mark = self._other_waits = self._other_waits or (now, come)
        own = [lane for lane in ready if lane.exclusive is self.is_alone]
        if now - since >= OVERTAKEN_AT_MOST_S:
            own = [lane for lane in own if lane.places[0] < mark]
        if own:
            return own
        return others if self.is_alone or not is_busy else []
