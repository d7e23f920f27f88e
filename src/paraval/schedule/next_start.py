"""Which waiting trial starts next, and on which machine: the most urgent one that nothing holds up.

A lane whose next trial is held up waits with whatever holds it up, until that changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from paraval.schedule.budget import BudgetState
from paraval.schedule.capacities import OVERTAKEN_AT_MOST_S, Blocker, Lane, Lanes, Phases, Side
from paraval.schedule.machines import Machine, Pool
from paraval.schedule.messages import Work


class NextStart:
    """Chooses among the lanes."""

    def __init__(
        self, order: Sequence[Work], lanes: Lanes, pools: Sequence[Pool], purse: BudgetState | None
    ) -> None:
        """`order`: all trials, by place; it may grow."""
        self._order = order
        self._lanes = lanes
        self.purse = purse
        self.phases = Phases()
        self.too_dear = Blocker()
        """Holds lanes whose next trial does not fit in what is left of the budget."""
        self.too_large = {pool: Blocker() for pool in pools}
        """Hold lanes whose next trial no machine has room for, though it may have for others."""
        self._overtaken: list[Lane] = []
        """Those of them that others have overtaken."""

    def find(self, now: float, *, is_busy: bool) -> tuple[Lane, Machine] | None:
        """The lane that starts its next trial now, and the machine it runs on.

        A lane whose trial no machine can carry may be overtaken, but not forever. `is_busy`:
        whether anything is running.
        """
        closed: set[Pool] = set()
        while (lane := self._next_lane(now, closed, is_busy=is_busy)) is not None:
            machine = lane.pool.choose(self._next_of(lane))
            if machine is not None:
                if lane.pool.auto:
                    self._overtake(lane, now)
                return lane, machine
            if self._is_overdue(lane, now):
                closed.add(lane.pool)
            elif lane.pool.has_room:
                self._lanes.hold(lane, self.too_large[lane.pool], now)
        return None

    def _overtake(self, first: Lane, now: float) -> None:
        """Note which lanes could not have started instead of the first, nor after it."""
        too_large = self.too_large[first.pool]
        for lane in first.side.ready.foremost():
            is_another = lane is not first and self._is_open(lane, now)
            if is_another and lane.pool.choose(self._next_of(lane)) is None:
                self._lanes.hold(lane, too_large, now)
        for queue in too_large.queues.values():
            for lane in queue.lanes(now):
                if lane.overtaken_since is None:
                    lane.overtaken_since = now
                    self._overtaken.append(lane)

    def _is_overdue(self, lane: Lane, now: float) -> bool:
        since = lane.overtaken_since
        return since is not None and now - since >= OVERTAKEN_AT_MOST_S and bool(lane.places)

    def _next_lane(self, now: float, closed: Collection[Pool], *, is_busy: bool) -> Lane | None:
        """The most urgent open lane of those whose turn it is; not one of the closed pools."""
        is_alone = self.phases.is_alone
        has_other = bool(self._lanes.sides[not is_alone])
        other = self._first_of(not is_alone, now, closed) if has_other else None
        if other is None:
            self.phases.nobody_waits()
            return self._first_of(is_alone, now, closed)
        before = self.phases.latecomers(now, len(self._order))
        own = self._first_of(is_alone, now, closed, before)
        if own is not None:
            return own
        return other if is_alone or not is_busy else None

    def _first_of(
        self, exclusive: bool, now: float, closed: Collection[Pool], before: int | None = None
    ) -> Lane | None:
        """The most urgent open lane of the exclusive ones, or of the others; with `before`, of
        those whose next trial comes before this place."""
        found: list[Lane] = []
        for side in self._lanes.sides[exclusive]:
            if len(side.ready) and side.pool not in closed and side.pool.has_room:
                lane = self._first_overdue(side, now) or self._first_open(side, now, before)
                if lane is not None:
                    found.append(lane)
        if len(found) > 1:
            return min(found, key=lambda lane: self._lanes.rank(lane, now))
        return found[0] if found else None

    def _first_overdue(self, side: Side, now: float) -> Lane | None:
        if not self._overtaken:
            return None
        self._overtaken = [one for one in self._overtaken if one.overtaken_since is not None]
        overdue = [one for one in self._overtaken if one.side is side]
        overdue = [one for one in overdue if self._is_overdue(one, now) and self._is_open(one, now)]
        return min(overdue, key=lambda lane: self._lanes.rank(lane, now), default=None)

    def _first_open(self, side: Side, now: float, before: int | None) -> Lane | None:
        if before is not None:
            early = (lane for lane in side.ready.lanes(now) if lane.places[0] < before)
            return next((lane for lane in early if self._is_open(lane, now)), None)
        while (lane := side.ready.first(now)) is not None:
            if self._is_open(lane, now):
                return lane
        return None

    def _is_open(self, lane: Lane, now: float) -> bool:
        """Whether its limits, the budget and its accounts let its next trial start; if not, it
        waits for what holds it up."""
        blocker, until = self._lanes.full_limit(lane), math.inf
        if blocker is None and self.purse is not None:
            blocker = None if self.purse.fits(self._next_of(lane)) else self.too_dear
        if blocker is None and lane.accounts:
            blocker, until = self._lanes.closed_account(lane, now) or (None, until)
        if blocker is None:
            return True
        self._lanes.hold(lane, blocker, now, until)
        return False

    def _next_of(self, lane: Lane) -> Work:
        return self._order[lane.places[0]]
