"""Decides what starts when: a pure state machine, `handle(event) -> instructions`.

No clock, no I/O, no asyncio, and no randomness beyond its seed: the same events in the same order
give the same instructions. The driver performs them; so can a simulation.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from paraval.dataclass import dataclass
from paraval.records import (
    AccountUse,
    Budget,
    FoundLimit,
    Limits,
    Outcome,
    RetryPolicy,
    account_above,
)
from paraval.schedule.accounts import LONGEST_REFUSAL_S, Account, Grant, stopped_by
from paraval.schedule.budget import UNKNOWN_COST, BudgetState, Cost, is_free
from paraval.schedule.capacities import Lane, Lanes
from paraval.schedule.machines import Machine, Pool
from paraval.schedule.messages import (
    BUDGET,
    MACHINE,
    RETRY,
    Abandoned,
    Added,
    AttemptOver,
    Begin,
    BudgetChanged,
    CallOff,
    Canceled,
    Conclude,
    Event,
    Instruction,
    MachineMeasured,
    NeedStopped,
    NodeJoined,
    NodeLeft,
    Over,
    ParallelChanged,
    RetryLater,
    Skip,
    Standing,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
    Work,
)
from paraval.schedule.next_start import NextStart

SHORTEST_SLEEP_S = 0.001
LOST_AT_MOST = 5
"""How often a trial may lose its node without that counting against it."""
LOST_DELAY_S = 1.0
"""How long it waits then, at most: the node's neighbors may be about to be lost, too."""


@dataclass(slots=True)
class RunningAttempt:
    """What a running attempt holds."""

    since: float
    machine: Machine
    grants: tuple[Grant, ...]
    reserved_usd: float


class Scheduler:
    """The state of a run between two events."""

    def __init__(  # noqa: PLR0913 - what a run is given, each by its name
        self,
        works: Sequence[Work],
        *,
        limits: Limits,
        retry: RetryPolicy,
        seed: int,
        budget: Budget | None = None,
        spent_usd: float = 0.0,
        found: Mapping[str, FoundLimit] | None = None,
    ) -> None:
        """`found`: by account, what the last run found."""
        self._order = _longest_first(works)
        self._place = {work.index: place for place, work in enumerate(self._order)}
        self._retry = retry
        self._random = random.Random(seed)  # noqa: S311 - jitter, not secrets
        self._purse = BudgetState(budget, spent_usd) if budget is not None else None
        self._auto = limits.auto
        self._here = Pool(auto=limits.auto)
        self._here.join(None, max(1, limits.parallel))
        self._nodes = Pool(auto=limits.auto)
        self._measures_nodes = limits.auto
        self._lanes = Lanes(
            self._order,
            limits,
            self._random,
            found=found or {},
            pool_of=self._pool_of,
            apart=self._what_sets_apart(),
        )
        self._next = NextStart(self._order, self._lanes, (self._here, self._nodes), self._purse)
        self._is_affordable = False
        """Whether what waits has been compared with the budget since that changed."""
        self._running: dict[int, RunningAttempt] = {}
        self._resting: list[tuple[float, int]] = []
        """(ready at, place): trials that wait for another attempt and hold nothing."""
        self._tries: dict[int, int] = {}
        self._refusals: dict[int, int] = {}
        self._losses: dict[int, int] = {}
        self._stopped: dict[str, str] = {}
        """Needs that have been given up, and why."""
        self._opens_at = math.inf
        """When the next lane opens that waits only for the pace of its accounts."""
        self._asked_wake: float | None = None
        self._stopping = False
        self._called_off: str | None = None
        """Why trials that had not started by then need not run."""
        self._over = True
        """Nothing is over before it has begun, and it is said once."""

    def _pool_of(self, work: Work) -> Pool:
        return self._nodes if work.on_node else self._here

    def _what_sets_apart(self) -> Callable[[Work], Hashable] | None:
        """Separate lanes, so that free trials don't wait behind paid ones, nor trials that the
        machine has room for behind others."""
        if self._auto:
            return lambda work: (is_free(work), work.kind)
        return is_free if self._purse is not None else None

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def wants_readings(self) -> bool:
        """Whether it needs readings of the machines."""
        return self._auto

    def handle(self, event: Event) -> list[Instruction]:
        """Process an event, and return what to do now."""
        instructions: list[Instruction] = []
        match event:
            case Begin():
                self._over = False
                self._lanes.fill(event.at)
                self._called_off = event.called_off
            case Added():
                self._add(event)
            case AttemptOver():
                self._end(event, instructions)
            case Abandoned():
                self._abandon(event)
            case StopAsked():
                self._stop(event.at)
            case CallOff() if not self._stopping:
                self._called_off = event.reason
            case Canceled() | ParallelChanged() | BudgetChanged():
                self._change(event, instructions)
            case MachineMeasured() | NodeJoined() | NodeLeft():
                self._hear_of_machine(event)
            case Tick():
                self._wake(event.at)
        if self._called_off is not None and (self._lanes.waiting or self._resting):
            instructions += self._skip_waiting(self._called_off, event.at)
        self._wake_rested(event.at)
        self._start_all(event.at, instructions)
        if isinstance(event, MachineMeasured):
            pool = self._here if event.node is None else self._nodes
            instructions.extend(pool.news(event.node, event.at))
        self._sleep_or_finish(event.at, instructions)
        return instructions

    def _hear_of_machine(self, event: MachineMeasured | NodeJoined | NodeLeft) -> None:
        if isinstance(event, MachineMeasured):
            pool = self._here if event.node is None else self._nodes
            pool.measure(event.node, event.at, event.reading)
            self._lanes.release(self._next.too_large[pool], event.at, everyone=True)
            return
        if isinstance(event, NodeJoined):
            self._nodes.join(event.node, event.slots)
        else:
            self._nodes.leave(event.node)
        self._lanes.release(self._next.too_large[self._nodes], event.at, everyone=True)
        self._lanes.run_on(self._here.slots + self._nodes.slots, event.at)

    # ---- changes by users

    def _change(
        self, event: Canceled | ParallelChanged | BudgetChanged, instructions: list[Instruction]
    ) -> None:
        match event:
            case Canceled():
                self._cancel(event, instructions)
            case ParallelChanged():
                self._change_parallel(event)
            case BudgetChanged():
                self._change_budget(event)

    def _cancel(self, event: Canceled, instructions: list[Instruction]) -> None:
        """A trial that has ended, or was skipped, stays as it is."""
        place = self._place[event.index]
        if event.index in self._running:
            self._abandon(event)
        elif any(resting == place for _, resting in self._resting):
            self._resting = [one for one in self._resting if one[1] != place]
            heapq.heapify(self._resting)
        elif not self._lanes.drop(place, event.at):
            return
        instructions.append(Skip(index=event.index, reason=event.reason, final=True))

    def _change_parallel(self, event: ParallelChanged) -> None:
        running = [
            (one.machine, self._order[self._place[index]], one.since)
            for index, one in self._running.items()
        ]
        here = [one for one in running if not one[1].on_node]
        self._here.adapt(auto=event.auto, running=here)
        self._here.join(None, max(1, event.parallel))
        there = [one for one in running if one[1].on_node]
        self._nodes.adapt(auto=event.auto and self._measures_nodes, running=there)
        self._nodes.allow(max(1, event.parallel))
        self._auto = event.auto
        for blocker in self._next.too_large.values():
            self._lanes.release(blocker, event.at, everyone=True)
        self._lanes.run_on(self._here.slots + self._nodes.slots, event.at)

    def _change_budget(self, event: BudgetChanged) -> None:
        if self._purse is None:
            purse = BudgetState(Budget(usd=event.usd), event.spent_usd)
            self._purse = self._next.purse = purse
            # Without a budget, no costs were estimated.
            self._order[:] = [work._replace(cost_usd=None) for work in self._order]
            for index, one in self._running.items():
                one.reserved_usd = purse.reserve(self._order[self._place[index]])
        self._purse.usd = event.usd
        self._is_affordable = False
        self._lanes.release(self._next.too_dear, event.at, everyone=True)

    def upcoming(self) -> list[int]:
        """The trials that will probably start when running ones end, as many as are running."""
        running = (self._place[index] for index in self._running)
        return [self._order[place].index for place in self._lanes.upcoming(running)]

    def found_limits(self) -> dict[str, FoundLimit]:
        """By account, what the next run may start at."""
        return self._lanes.found_limits()

    def standing(self, now: float) -> Standing:
        """What may run now, and what the others wait for."""
        blockers = [(BUDGET, self._next.too_dear)]
        blockers += [(MACHINE, blocker) for blocker in self._next.too_large.values()]
        waiting = self._lanes.waiting_for(blockers)
        if self._resting:
            waiting[RETRY] += len(self._resting)
        # On a cluster, this machine often has nothing to do.
        used = [pool for pool in (self._here, self._nodes) if pool.is_used]
        return Standing(
            allowed=sum(pool.at_once for pool in used),
            waiting=waiting,
            limits=tuple(self._lanes.uses(now)),
            running=len(self._running),
            retry_at=self._resting[0][0] if self._resting else None,
        )

    def running_for_s(self, now: float) -> float:
        """Total time of the running attempts so far."""
        return sum(now - one.since for one in self._running.values())

    def remaining_s(self, now: float, scale: float = 1.0) -> float:
        """How long the rest is expected to take; `scale` corrects all estimates."""
        pools = (self._here, self._nodes)
        holdup_s = max(self._lanes.holdup_s() * scale, self._lanes.paced_s(now))
        alone_s = sum(self._lanes.exclusive_waiting(pool)[1] for pool in pools) * scale
        return max(holdup_s, *(self._shared_s(pool, now, scale) for pool in pools)) + alone_s

    def _shared_s(self, pool: Pool, now: float, scale: float) -> float:
        """How long these machines need for what may run side by side."""
        works = [(self._order[self._place[index]], one) for index, one in self._running.items()]
        started = [
            (work.expected_s * scale, now - one.since)
            for work, one in works
            if self._pool_of(work) is pool
        ]
        residual = [max(expected - elapsed, 0.1 * expected) for expected, elapsed in started]
        resting = [self._order[place] for _, place in self._resting]
        rested = [work.expected_s for work in resting if self._pool_of(work) is pool]
        alone, alone_s = self._lanes.exclusive_waiting(pool)
        work_s = (pool.waiting_s - alone_s + sum(rested)) * scale + sum(residual)
        trials = pool.waiting - alone + len(rested) + len(residual)
        slots = max(1, min(pool.at_once, trials))
        return max([work_s / slots, *residual])

    def _add(self, event: Added) -> None:
        """They come after all earlier ones, longest first."""
        # A caller that adds to a finished run expects to hear again when it is over.
        self._over = False
        if self._stopping:
            return
        first = len(self._order)
        self._order.extend(_longest_first(event.works))
        self._lanes.grow()
        self._is_affordable = False
        for place in range(first, len(self._order)):
            self._place[self._order[place].index] = place
            self._lanes.add(place, event.at)

    # ---- how attempts end

    def _end(self, event: AttemptOver, instructions: list[Instruction]) -> None:
        place = self._place[event.index]
        running = self._release(event)
        accounts = self._lanes.accounts_of(place)
        for account, grant in zip(accounts, running.grants, strict=True):
            self._settle(account, grant, event, instructions)
        self._lanes.give_back(place, event.at)
        stopped = stopped_by(event, accounts)
        if stopped is None or stopped.need in self._stopped:
            instructions.append(self._decide(event, place))
            return
        self._stopped[stopped.need] = stopped.reason
        instructions.append(stopped)
        instructions.append(self._decide(event, place))
        instructions.extend(self._skip_all(stopped, event.at))

    def _settle(
        self, account: Account, grant: Grant, event: AttemptOver, instructions: list[Instruction]
    ) -> None:
        use = _use_of(account, event)
        if use is None:
            account.give_up(grant)
            return
        held = account.settle(event.at, grant, use)
        if held is not None:
            instructions.append(held)

    def _decide(self, event: AttemptOver, place: int) -> Instruction:
        """Decide what happens to the trial whose attempt ended."""
        is_lost = event.is_lost and self._losses.get(event.index, 0) < LOST_AT_MOST
        would_try_again = is_lost or (event.outcome in self._retry.on and not event.lasting)
        if would_try_again or (event.stops is not None and not event.outcome.is_judged):
            reason = self._why_stopped(place, event.stops)
            if reason is not None:
                return self._skip(event.index, reason)
        if is_lost:
            return self._give_out_again(event, place)
        return self._try_again(event, place) if would_try_again else Conclude(index=event.index)

    def _why_stopped(self, place: int, stops: str | None) -> str | None:
        if not self._stopped:
            return None
        needs = self._order[place].needs
        named = (stops, *needs) if stops is not None else needs
        return next((self._stopped[need] for need in named if need in self._stopped), None)

    def _try_again(self, event: AttemptOver, place: int) -> Instruction:
        refused = event.outcome is Outcome.RATE_LIMITED
        counts = self._refusals if refused else self._tries
        tried = counts[event.index] = counts.get(event.index, 0) + 1
        asked = event.retry_after or 0.0
        most = self._retry.refusals if refused else self._retry.attempts
        if tried >= most or asked > LONGEST_REFUSAL_S:
            return Conclude(index=event.index)
        if self._called_off is not None:
            return self._skip(event.index, self._called_off)
        if refused and self._account_waits(event, place):
            return self._put_back(event, place)
        ceiling = min(self._retry.longest_delay_s, self._retry.first_delay_s * 2.0 ** (tried - 1))
        return self._rest(event, place, max(asked, self._random.uniform(0.0, ceiling)))

    def _give_out_again(self, event: AttemptOver, place: int) -> Instruction:
        """Its node was lost: neither a try nor a refusal."""
        self._losses[event.index] = self._losses.get(event.index, 0) + 1
        if self._called_off is not None:
            return self._skip(event.index, self._called_off)
        return self._rest(event, place, self._random.uniform(0.0, LOST_DELAY_S))

    def _rest(self, event: AttemptOver, place: int, delay_s: float) -> Instruction:
        if not self._stopping:
            # After a stop it is neither decided nor retried now: a resume will do that.
            heapq.heappush(self._resting, (event.at + delay_s, place))
        return RetryLater(index=event.index, delay_s=delay_s)

    def _account_waits(self, event: AttemptOver, place: int) -> bool:
        """Whether the account that refused waits, and not the trial."""
        accounts = self._lanes.accounts_of(place)
        return any(one.name == event.account and not one.meets_strays for one in accounts)

    def _put_back(self, event: AttemptOver, place: int) -> Instruction:
        """The account waits, not the trial, which keeps its place in its lane."""
        if not self._stopping:
            self._lanes.add(place, event.at)
        return RetryLater(index=event.index, delay_s=None)

    def _abandon(self, event: Abandoned | Canceled) -> None:
        running = self._release(event)
        place = self._place[event.index]
        for account, grant in zip(self._lanes.accounts_of(place), running.grants, strict=True):
            account.give_up(grant)
        self._lanes.give_back(place, event.at)

    def _release(self, event: AttemptOver | Abandoned | Canceled) -> RunningAttempt:
        """Its machine and its part of the budget."""
        running = self._running.pop(event.index)
        work = self._order[self._place[event.index]]
        end = event if isinstance(event, AttemptOver) else None
        pool = self._pool_of(work)
        pool.end(running.machine, event.index, None if end is None else end.memory_bytes)
        if self._auto:
            self._lanes.release(self._next.too_large[pool], event.at, everyone=True)
        if self._purse is not None:
            cost = UNKNOWN_COST if end is None else Cost(end.cost_usd, end.at_least_usd)
            before_usd = self._purse.spent_usd
            self._purse.settle(work, running.reserved_usd, cost)
            if not is_free(work) or self._purse.spent_usd != before_usd:
                self._is_affordable = False
                self._lanes.release(self._next.too_dear, event.at)
        return running

    # ---- skipping

    def _skip(self, index: int, reason: str) -> Skip:
        """Skip for now; or for good if the rest was called off, whatever the other reason."""
        if self._called_off is None:
            return Skip(index=index, reason=reason)
        return Skip(index=index, reason=self._called_off, final=True)

    def _skip_waiting(self, reason: str, now: float) -> list[Skip]:
        """Skip every trial that waits or rests, in plan order."""
        places = [place for _, place in self._resting]
        self._resting.clear()
        places += self._lanes.drop_all(now)
        return [self._skip(index, reason) for index in sorted(self._order[p].index for p in places)]

    def _skip_all(self, stopped: NeedStopped, now: float) -> Iterable[Skip]:
        """Skip every trial that waits or rests with this need, in plan order."""
        need, reason = stopped.need, stopped.reason
        places = self._lanes.drop_all(now, need)
        places += [place for _, place in self._resting if need in self._order[place].needs]
        self._resting = [one for one in self._resting if need not in self._order[one[1]].needs]
        heapq.heapify(self._resting)
        return [Skip(index=i, reason=reason) for i in sorted(self._order[p].index for p in places)]

    def _skip_unaffordable(self, purse: BudgetState, now: float) -> Iterable[Skip]:
        """Skip what doesn't fit: nothing is in flight that could turn out cheaper."""
        self._is_affordable = True
        for lane in self._lanes.filled():
            for place in self._lanes.drop_while(lane, lambda work: not purse.fits(work), now):
                yield Skip(index=self._order[place].index, reason=purse.refusal())

    def _stop(self, now: float) -> None:
        self._stopping = True
        self._lanes.drop_all(now)
        self._resting.clear()

    # ---- starting

    def _wake(self, now: float) -> None:
        # An early wake leaves later ones behind; they must not request more.
        if self._asked_wake is not None and now > self._asked_wake - SHORTEST_SLEEP_S:
            self._asked_wake = None

    def _wake_rested(self, now: float) -> None:
        while self._resting and self._resting[0][0] <= now:
            _, place = heapq.heappop(self._resting)
            self._lanes.add(place, now)
            self._is_affordable = False

    def _start_all(self, now: float, instructions: list[Instruction]) -> None:
        self._opens_at = math.inf
        self._lanes.open(now)
        if self._next.phases.is_alone and self._running:
            return
        pools = (self._here, self._nodes)
        while any(pool.waiting > 0 and pool.has_room for pool in pools):
            if self._purse is not None and self._purse.is_settled and not self._is_affordable:
                instructions.extend(self._skip_unaffordable(self._purse, now))
            found = self._next.find(now, is_busy=bool(self._running))
            if found is None:
                self._opens_at = self._lanes.next_opening
                return
            lane, machine = found
            instructions.append(self._start(lane, machine, now))
            if lane.exclusive:
                return

    def _start(self, lane: Lane, machine: Machine, now: float) -> StartAttempt:
        place, grants = self._lanes.take(lane, now)
        work = self._order[place]
        reserved = self._purse.reserve(work) if self._purse is not None else 0.0
        self._running[work.index] = RunningAttempt(now, machine, grants, reserved)
        self._next.phases.start(lane)
        lane.pool.start(machine, work, now)
        return StartAttempt(index=work.index, node=machine.name)

    def _sleep_or_finish(self, now: float, instructions: list[Instruction]) -> None:
        at = self._opens_at
        if self._resting and self._resting[0][0] < at:
            at = self._resting[0][0]
        if at < math.inf:
            at = max(at, now + SHORTEST_SLEEP_S)
            if self._asked_wake is None or at < self._asked_wake:
                self._asked_wake = at
                instructions.append(WakeAt(at=at))
        elif not self._running and not self._lanes.waiting and not self._over:
            self._over = True
            instructions.append(Over())


def _longest_first(works: Sequence[Work]) -> list[Work]:
    """Block by block; ties in plan order."""
    in_plan_order = sorted(works, key=attrgetter("index"))
    longest_first = sorted(in_plan_order, key=attrgetter("expected_s"), reverse=True)
    by_block = attrgetter("block")
    return sorted(longest_first, key=by_block) if any(map(by_block, works)) else longest_first


def _use_of(account: Account, event: AttemptOver) -> AccountUse | None:
    """The attempt's use of this account; None if it reported no use at all."""
    name = account.name
    if account.is_shared:
        return _use_of_all(name, event)
    for use in event.uses:
        if use.account == name:
            # Then its account waits.
            return replace(use, refused=False, overloaded=True) if use.whole_account else use
    if event.outcome is Outcome.RATE_LIMITED and event.account == name:
        return AccountUse(account=name, requests=1, refused=True, retry_after=event.retry_after)
    # For example, a judge that was never called, since there was nothing to judge.
    return AccountUse(account=name) if event.uses else None


def _use_of_all(name: str, event: AttemptOver) -> AccountUse | None:
    """The attempt's use of an account by way of its models. Of their refusals and limits, it has
    only those that name it."""
    parts = [one for one in event.uses if name in (one.account, account_above(one.account))]
    if not event.uses:
        return None
    return AccountUse(
        account=name,
        requests=sum(one.requests for one in parts),
        tokens=sum(one.tokens for one in parts),
        refused=any(one.whole_account for one in parts),
        retry_after=max((one.retry_after or 0.0 for one in parts), default=0.0) or None,
        reached=not parts or any(one.reached for one in parts),
    )
