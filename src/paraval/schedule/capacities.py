"""Named capacities, which trial may start next under them, and exclusive trials.

Trials with the same needs form a lane. A lane is open while each of its limits has room and each of
its accounts accepts requests. Among open lanes, the one goes first that would delay the end of the
run the most: by its longest trial, or by the work left for its narrowest limit. Exclusive trials
have lanes of their own.

A start costs the same however many lanes there are: a lane that may not start waits in the queue of
what holds it up, and is looked at again when that has changed. The others are in the ready queue
of their machines.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from random import Random
from types import MappingProxyType

from paraval.dataclass import dataclass
from paraval.records import AccountLimits, FoundLimit, Limits, account_above
from paraval.schedule.accounts import Account, Grant
from paraval.schedule.machines import Pool
from paraval.schedule.messages import SLOT, Draw, LimitUse, Work, draws_of, is_account
from paraval.schedule.throttle import INSTANT_S

UNKNOWN = AccountLimits()
NONE_FOUND: Mapping[str, FoundLimit] = MappingProxyType({})
EXACT_UP_TO = 8
"""Among this many lanes of a queue, the order is exact at every start. Among more, it is the order
of a while ago: their urgency is computed again after so many starts for each of them."""
STARTS_PER_LANE = 4

Rank = tuple[int, float, int]
"""Sorts the lane first that goes first."""
Entry = tuple[int, float, int, int, "Lane"]
"""Rank, ticket and lane, flat, since that is compared faster. It counts only while the lane has
that ticket."""


class LaneQueue:
    """Lanes that wait for the same, the most urgent first."""

    def __init__(self, rank: Callable[[Lane, float], Rank]) -> None:
        self._rank = rank
        self._heap: list[Entry] = []
        self._is_ranked = True
        """False: lanes came while there were few, and were not compared yet."""
        self._ranked = 0
        """How many there were when their urgency was last computed, when that was ..."""
        self._ranked_at = -math.inf
        self._changes = 0
        """... and how many came since."""

    def __len__(self) -> int:
        """At least the number of its lanes."""
        return len(self._heap)

    def add(self, lane: Lane, now: float) -> None:
        """Move the lane here, wherever it was."""
        if lane.queue is self and len(self._heap) <= EXACT_UP_TO:
            self._is_ranked = False
            return
        lane.queue = self
        lane.ticket += 1
        if len(self._heap) < EXACT_UP_TO:
            self._is_ranked = False
            self._heap.append((0, 0.0, lane.places[0], lane.ticket, lane))
        else:
            self._changes += 1
            heapq.heappush(self._heap, (*self._rank(lane, now), lane.ticket, lane))

    def first(self, now: float) -> Lane | None:
        heap = self._heap
        if len(heap) > 1:
            self._keep_ranked(now)
            heap = self._heap
        while heap:
            _, _, _, ticket, lane = heap[0]
            if lane.queue is self and lane.ticket == ticket:
                return lane
            heapq.heappop(heap)
        return None

    def lanes(self, now: float) -> list[Lane]:
        """All of them, the first one first."""
        self._keep_ranked(now)
        return self._valid(sorted(self._heap))

    def foremost(self) -> list[Lane]:
        """Some of the most urgent ones; all, if there are few."""
        lanes = self._valid(self._heap[:EXACT_UP_TO])
        if not lanes and len(self._heap) <= EXACT_UP_TO:
            self._heap.clear()
        return lanes

    def _valid(self, entries: Iterable[Entry]) -> list[Lane]:
        return [one[4] for one in entries if one[4].queue is self and one[4].ticket == one[3]]

    def _keep_ranked(self, now: float) -> None:
        if len(self._heap) > EXACT_UP_TO:
            is_outdated = self._changes >= STARTS_PER_LANE * self._ranked
        else:
            is_outdated = now > self._ranked_at
        if is_outdated or not self._is_ranked:
            lanes = self._valid(self._heap)
            self._heap = [(*self._rank(lane, now), lane.ticket, lane) for lane in lanes]
            heapq.heapify(self._heap)
            self._is_ranked = True
            self._ranked, self._ranked_at, self._changes = len(lanes), now, 0


@dataclass(slots=True, eq=False)
class Side:
    """The trials of some machines that run side by side; or those that run alone."""

    pool: Pool
    exclusive: bool
    ready: LaneQueue
    """Lanes that nothing held up when they were last looked at."""


@dataclass(slots=True, eq=False)
class Blocker:
    """What may hold lanes up: a full limit, an account, the budget, the memory of machines."""

    queues: dict[Side, LaneQueue] = field(default_factory=dict)
    opens_at: float = math.inf
    """When its lanes have to be looked at again; infinite: when it has changed."""
    account: Account | None = None


@dataclass(slots=True)
class CapacityLimit:
    """A capacity, how much of it is taken, and the expected work still waiting for it."""

    capacity: int
    taken: int = 0
    waiting_s: float = 0.0
    blocker: Blocker = field(default_factory=Blocker)


@dataclass(slots=True, eq=False)
class Lane:
    """The trials that need the same limits, longest first."""

    needs: tuple[str, ...]
    limits: tuple[CapacityLimit, ...]
    accounts: tuple[Account, ...]
    closed_accounts: tuple[Blocker, ...]
    """What it waits for while one of its accounts accepts nothing; in their order."""
    draws: tuple[Draw, ...]
    """Of trials that say nothing else."""
    side: Side
    places: list[int] = field(default_factory=list)
    """A heap of places in the run's order; the smallest is next."""
    waiting_s: float = 0.0
    overtaken_since: float | None = None
    """Since when the machines have had no room for its next trial, but for another lane's."""
    queue: LaneQueue | None = None
    """Where it is; None: nothing waits in it."""
    ticket: int = 0
    released_by: Blocker | None = None
    """What held it up before. Others may still wait there for it to be looked at."""

    @property
    def exclusive(self) -> bool:
        return self.side.exclusive

    @property
    def pool(self) -> Pool:
        """The machines that its trials may run on."""
        return self.side.pool

    def holdup_s(self) -> float:
        """Minimum time this lane needs, with all the capacity it may use."""
        if self.side.exclusive:
            return self.waiting_s
        parallel = max(1, self.side.pool.slots)
        holdup_s = self.waiting_s / parallel
        for limit in self.limits:
            holdup_s = max(holdup_s, limit.waiting_s / min(limit.capacity, parallel))
        for account in self.accounts:
            its_s = account.holdup_s(parallel)
            holdup_s = max(holdup_s, its_s)
        return holdup_s


class Lanes:
    """Every waiting trial, by its needs."""

    def __init__(
        self,
        works: Sequence[Work],
        limits: Limits,
        random: Random,
        *,
        found: Mapping[str, FoundLimit] = NONE_FOUND,
        pool_of: Callable[[Work], Pool],
        apart: Callable[[Work], Hashable] | None = None,
    ) -> None:
        """`works` are in the order of the run and may grow; none of them waits yet. Works with
        different values of `apart` get separate lanes, so that they need not wait behind one
        another."""
        self._works = works
        self._limits = limits
        self._found = found
        self._random = random
        self._pool_of = pool_of
        self._parallel = max(1, limits.parallel)
        self._shared = {account_above(name) for name in limits.accounts}
        """Accounts whose models have limits of their own."""
        self._named: dict[str, CapacityLimit] = {}
        self._accounts: dict[str, Account] = {}
        self._closed: dict[str, Blocker] = {}
        self.sides: dict[bool, list[Side]] = {False: [], True: []}
        """Those with lanes: of exclusive trials, and of others."""
        self._openings: list[tuple[float, int, Blocker]] = []
        """When to look at lanes again. An entry counts only while its blocker says the same."""
        self._opening = 0
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
        for work in self._works[len(self._lane_of) :]:
            lane = self._lane(work, None if apart is None else apart(work))
            self._lane_of.append(lane)
            self._draws_of.append(draws_of(work) if work.draws else lane.draws)

    def _lane(self, work: Work, apart: Hashable) -> Lane:
        needs, exclusive = work.needs, work.exclusive
        key = (needs, exclusive, work.on_node, apart)
        if key not in self._lanes:
            accounts = [need for need in needs if is_account(need)]
            self._lanes[key] = Lane(
                needs=needs,
                limits=tuple(self._limit(need) for need in needs if self._is_limit(need)),
                accounts=tuple(self._account(need) for need in accounts),
                closed_accounts=tuple(self._closed[need] for need in accounts),
                draws=tuple(map(Draw, accounts)),
                side=self._side(self._pool_of(work), exclusive=exclusive),
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
            above = self._limits.accounts.get(account_above(name) or "", UNKNOWN)
            is_paced = above.requests_per_minute is not None
            account = Account(
                name,
                known,
                parallel=self._parallel,
                random=self._random,
                is_shared=name in self._shared,
                first=above.concurrent or (self._parallel if is_paced else None),
                found=self._found.get(name),
            )
            self._accounts[name] = account
            self._closed[name] = Blocker(account=account)
        return self._accounts[name]

    def _side(self, pool: Pool, *, exclusive: bool) -> Side:
        for side in self.sides[exclusive]:
            if side.pool is pool:
                return side
        side = Side(pool, exclusive, LaneQueue(self.rank))
        self.sides[exclusive].append(side)
        return side

    def run_on(self, slots: int, now: float) -> None:
        """All machines together have this many slots now."""
        self._parallel = max(1, slots)
        for name, account in self._accounts.items():
            account.widen(self._parallel)
            self.release(self._closed[name], now)

    # ---- waiting

    def fill(self, now: float) -> None:
        """Make every trial wait, in order."""
        for place in range(len(self._works)):
            # A sorted list is a valid heap.
            self._lane_of[place].places.append(place)
            self._count(place, 1)
        for lane in self.filled():
            lane.side.ready.add(lane, now)

    def add(self, place: int, now: float) -> None:
        lane = self._lane_of[place]
        heapq.heappush(lane.places, place)
        self._count(place, 1)
        if lane.places[0] == place:
            self._look_again(lane, now)

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
            for account, (_, requests, tokens) in zip(
                lane.accounts, self._draws_of[place], strict=True
            ):
                account.waiting_s += seconds
                account.waiting_requests += requests * sign
                account.waiting_tokens += tokens * sign

    def _drop(self, lane: Lane) -> int:
        """Remove the lane's next place, and do nothing else."""
        place = heapq.heappop(lane.places)
        self._count(place, -1)
        return place

    def drop_all(self, now: float, need: str | None = None) -> list[int]:
        """Remove every place, or every one with this need."""
        dropped: list[int] = []
        for lane in self.filled():
            if need is None or need in lane.needs:
                dropped += self.drop_while(lane, lambda _: True, now)
        return dropped

    def drop_while(self, lane: Lane, unwanted: Callable[[Work], bool], now: float) -> list[int]:
        """Remove the lane's next places until one is wanted."""
        dropped: list[int] = []
        while lane.places and unwanted(self._works[lane.places[0]]):
            dropped.append(self._drop(lane))
        if dropped:
            self._look_again(lane, now)
        return dropped

    def drop(self, place: int, now: float) -> bool:
        """Remove this place; False: it does not wait."""
        lane = self._lane_of[place]
        try:
            index = at = lane.places.index(place)
        except ValueError:
            return False
        while at:  # Up to the root of the heap, from where it is removed.
            above = (at - 1) // 2
            lane.places[at] = lane.places[above]
            at = above
        lane.places[0] = place
        self._drop(lane)
        if index == 0:
            self._look_again(lane, now)
        return True

    # ---- ready or held up

    def _look_again(self, lane: Lane, now: float) -> None:
        """Its next trial has changed: what held up the last one may not hold up this one."""
        released_by, lane.released_by = lane.released_by, None
        if lane.places:
            lane.side.ready.add(lane, now)
        else:
            lane.queue = None
        if released_by is not None:
            self._go_on(released_by, lane.side, now)

    def hold(self, lane: Lane, blocker: Blocker, now: float, until: float = math.inf) -> None:
        """The lane may not start until this has changed, or until then."""
        if lane.side not in blocker.queues:
            blocker.queues[lane.side] = LaneQueue(self.rank)
        blocker.queues[lane.side].add(lane, now)
        self._open_at(blocker, min(until, blocker.opens_at))
        released_by, lane.released_by = lane.released_by, None
        if released_by is not None and released_by is not blocker:
            self._go_on(released_by, lane.side, now)

    def _go_on(self, blocker: Blocker, side: Side, now: float) -> None:
        """A lane that it held up has been looked at: so may be the next."""
        self._open_at(blocker, min(blocker.opens_at, self._release_next(blocker, side, now)))

    def release(
        self, blocker: Blocker, now: float, *, everyone: bool = False, is_due: bool = False
    ) -> None:
        """It has changed. Where many lanes wait, the most urgent one tells whether the next has to
        be looked at, too."""
        opens_at = math.inf
        for side, queue in blocker.queues.items():
            if not len(queue):
                continue
            if len(queue) <= EXACT_UP_TO:
                lanes = queue.foremost()
            elif everyone:
                lanes = queue.lanes(now)
            else:
                opens_at = min(opens_at, self._release_next(blocker, side, now))
                continue
            for lane in lanes:
                if is_due:
                    self._make_ready(lane, blocker, now)
                else:
                    opens_at = min(opens_at, self._release(blocker, lane, now))
        self._open_at(blocker, opens_at)

    def _release_next(self, blocker: Blocker, side: Side, now: float) -> float:
        lane = blocker.queues[side].first(now)
        return math.inf if lane is None else self._release(blocker, lane, now)

    def _release(self, blocker: Blocker, lane: Lane, now: float) -> float:
        """Make the lane ready, unless it is known until when it is held up: returns that."""
        if blocker.account is not None:
            draws = zip(lane.accounts, self._draws_of[lane.places[0]], strict=True)
            draw = next(draw for account, draw in draws if account is blocker.account)
            opens_at = blocker.account.opens_at(now, draw)
            if opens_at > now:
                return opens_at
        self._make_ready(lane, blocker, now)
        return math.inf

    def _make_ready(self, lane: Lane, blocker: Blocker, now: float) -> None:
        lane.released_by = blocker
        lane.side.ready.add(lane, now)

    def _open_at(self, blocker: Blocker, at: float) -> None:
        if abs(at - blocker.opens_at) > INSTANT_S:
            blocker.opens_at = at
            if at < math.inf:
                self._opening += 1
                heapq.heappush(self._openings, (at, self._opening, blocker))

    def open(self, now: float) -> None:
        """Release the lanes whose time has come."""
        while self.next_opening <= now:
            blocker = self._openings[0][2]
            blocker.opens_at = math.inf
            self.release(blocker, now, is_due=True)

    @property
    def next_opening(self) -> float:
        """When lanes have to be looked at again although nothing has happened."""
        while self._openings:
            at, _, blocker = self._openings[0]
            if blocker.opens_at == at:
                return at
            heapq.heappop(self._openings)
        return math.inf

    def full_limit(self, lane: Lane) -> Blocker | None:
        for limit in lane.limits:
            if limit.taken >= limit.capacity:
                return limit.blocker
        return None

    def closed_account(self, lane: Lane, now: float) -> tuple[Blocker, float] | None:
        """The account that lets its next trial start last, if not now; and when. Infinite: that
        depends on the end of another."""
        last: tuple[Blocker, float] | None = None
        at = now
        draws = self._draws_of[lane.places[0]]
        for account, blocker, draw in zip(lane.accounts, lane.closed_accounts, draws, strict=True):
            opens_at = account.opens_at(now, draw)
            if opens_at > at:
                last, at = (blocker, opens_at), opens_at
        return last

    # ---- running

    def take(self, lane: Lane, now: float) -> tuple[int, tuple[Grant, ...]]:
        """Take the lane's next place, one unit of each of its limits, and its share of its
        accounts."""
        place = self._drop(lane)
        lane.overtaken_since = None
        for limit in lane.limits:
            limit.taken += 1
        grants: tuple[Grant, ...] = ()
        if lane.accounts:
            drawn = zip(lane.accounts, self._draws_of[place], strict=True)
            grants = tuple(account.take(now, draw) for account, draw in drawn)
        closed: tuple[Blocker, float] | None = None
        if lane.accounts and lane.places and len(lane.side.ready) > EXACT_UP_TO:
            # Finding its place among so many lanes would cost more than looking now.
            closed = self.closed_account(lane, now)
        if closed is not None:
            self.hold(lane, closed[0], now, closed[1])
        else:
            self._look_again(lane, now)
        return place, grants

    def give_back(self, place: int, now: float) -> None:
        """Release the limits. The accounts were settled before, by what was done with them."""
        lane = self._lane_of[place]
        for limit in lane.limits:
            limit.taken -= 1
            if limit.blocker.queues:
                self.release(limit.blocker, now)
        for blocker in lane.closed_accounts:
            if blocker.queues:
                self.release(blocker, now)

    def accounts_of(self, place: int) -> tuple[Account, ...]:
        return self._lane_of[place].accounts

    def upcoming(self, running: Iterable[int]) -> Iterator[int]:
        """The places that will probably start next: in each lane as many as are running."""
        for lane, count in Counter(self._lane_of[place] for place in running).items():
            yield from _smallest(lane.places, count)

    def filled(self) -> Iterable[Lane]:
        return (lane for lane in self._lanes.values() if lane.places)

    # ---- how it stands

    def uses(self, now: float) -> Iterator[LimitUse]:
        for name, limit in self._named.items():
            yield LimitUse(name=name, in_flight=limit.taken, limit=limit.capacity)
        for name, account in self._accounts.items():
            use = account.use(now)
            if account.is_shared and use.is_idle:
                continue  # Its models have the limits.
            opens_at = self._closed[name].opens_at
            yield replace(use, next_at=opens_at) if opens_at < math.inf else use

    def found_limits(self) -> dict[str, FoundLimit]:
        """By account, what the next run may start at."""
        found = ((name, account.found_limit()) for name, account in self._accounts.items())
        return {name: limit for name, limit in found if limit is not None}

    def waiting_for(self, others: Iterable[tuple[str, Blocker]]) -> Counter[str]:
        """How many trials wait for each need; `others`: what else may hold lanes up."""
        needs = [(name, limit.blocker) for name, limit in self._named.items()]
        blockers = [*needs, *self._closed.items(), *others]
        names = {queue: name for name, one in blockers for queue in one.queues.values()}
        waiting = Counter[str]()
        for lane in self.filled():
            name = SLOT if lane.queue is None else names.get(lane.queue, SLOT)
            waiting[name] += len(lane.places)
        return waiting

    # ---- remaining time

    def rank(self, lane: Lane, now: float) -> Rank:
        """Block by block, the most urgent first."""
        place = lane.places[0]
        work = self._works[place]
        urgency_s = max(work.expected_s, lane.holdup_s())
        for account in lane.accounts:
            paced_s = account.paced_s(now)
            urgency_s = max(urgency_s, paced_s)
        return work.block, -urgency_s, place

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


def _smallest(heap: Sequence[int], count: int) -> Iterator[int]:
    """The smallest items of a heap, without looking at all of them."""
    nodes = [(heap[0], 0)] if heap else []
    for _ in range(min(count, len(heap))):
        item, at = heapq.heappop(nodes)
        yield item
        for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
            heapq.heappush(nodes, (heap[child], child))


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

    def nobody_waits(self) -> None:
        """On the other side."""
        self._other_waits = None

    def latecomers(self, now: float, come: int) -> int | None:
        """The other side could start, too. The place from which on trials may not overtake it any
        more; None: all may. `come`: how many trials there are."""
        since, mark = self._other_waits = self._other_waits or (now, come)
        return mark if now - since >= OVERTAKEN_AT_MOST_S else None
