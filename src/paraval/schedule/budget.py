"""Money: reserved before an attempt starts, settled after it, so that what runs in parallel cannot
pass the budget by all that is in flight.

What attempts are thought to cost is corrected by what their like really cost: those with the same
needs, since one model's short answers say nothing of another's.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from paraval.records import Budget
from paraval.schedule.messages import Work
from paraval.text.words import dollars

OF_LATE = 50
FEWEST = 5
"""So many attempts must have told their cost before the thought ones are corrected."""
ROUNDING_USD = 1e-9


class Cost(NamedTuple):
    """What an attempt cost."""

    usd: float | None
    """None: unknown, but for ..."""
    at_least_usd: float = 0.0
    """... what is known of it."""


UNKNOWN_COST = Cost(None)


@dataclass(slots=True)
class _CostKind:
    """What attempts of one kind really cost, of late."""

    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=OF_LATE))
    """To what was thought."""
    costs: deque[float] = field(default_factory=lambda: deque(maxlen=OF_LATE))
    correction: float = 1.0

    def observe(self, thought_usd: float | None, actual_usd: float) -> None:
        self.costs.append(actual_usd)
        if thought_usd:
            self.ratios.append(actual_usd / thought_usd)
            if len(self.ratios) >= FEWEST:
                self.correction = max(self.ratios)

    def expected_usd(self, thought_usd: float | None) -> float:
        if thought_usd is not None:
            return thought_usd * self.correction
        return max(self.costs, default=0.0)


class BudgetState:
    """What is left of a budget."""

    def __init__(self, budget: Budget, spent_usd: float) -> None:
        self._usd = budget.usd
        self.spent_usd = spent_usd
        self.reserved_usd = 0.0
        self._in_flight = 0
        self._kinds: dict[tuple[str, ...], _CostKind] = {}

    @property
    def is_settled(self) -> bool:
        """True: nothing is in flight whose end could leave more than there seems to be."""
        return self._in_flight == 0

    def fits(self, work: Work) -> bool:
        """Whether an attempt may start; one of unknown cost, as long as anything is left."""
        if is_free(work):
            return True
        committed = self.spent_usd + self.reserved_usd
        if work.cost_usd is None and committed >= self._usd:
            return False
        return committed + self._expected_usd(work) <= self._usd + ROUNDING_USD

    def reserve(self, work: Work) -> float:
        """What to settle later; free attempts reserve nothing."""
        if is_free(work):
            return 0.0
        reserved = self._expected_usd(work)
        self.reserved_usd += reserved
        self._in_flight += 1
        return reserved

    def settle(self, work: Work, reserved: float, cost: Cost) -> None:
        """What is not known is taken to be what was reserved, and no less than what is known."""
        known_usd = _amount(cost.at_least_usd) or 0.0
        actual_usd = _amount(cost.usd)
        self.spent_usd += max(reserved, known_usd) if actual_usd is None else actual_usd
        if is_free(work):
            return
        self._in_flight -= 1
        # Sums of floats leave dust, and dust must not keep the last trial from starting.
        self.reserved_usd = self.reserved_usd - reserved if self._in_flight else 0.0
        if seen_usd := (known_usd if actual_usd is None else actual_usd):
            # What was refused, or came from the cache, says nothing of what an answer costs.
            self._kinds.setdefault(work.needs, _CostKind()).observe(work.cost_usd, seen_usd)

    def refusal(self) -> str:
        """Why a trial is skipped."""
        return f"budget of {dollars(self._usd)} reached"

    def _expected_usd(self, work: Work) -> float:
        kind = self._kinds.get(work.needs)
        return (work.cost_usd or 0.0) if kind is None else kind.expected_usd(work.cost_usd)


def _amount(usd: float | None) -> float | None:
    """None for what is none, as programs may tell it."""
    return usd if usd is not None and 0.0 <= usd < math.inf else None


def is_free(work: Work) -> bool:
    """It is known to cost nothing; not so where nobody knows what it costs."""
    return work.cost_usd is not None and work.cost_usd <= 0.0
