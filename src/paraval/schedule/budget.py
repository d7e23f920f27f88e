"""The budget: reserved before an attempt starts and settled after it, so that parallel attempts
cannot exceed it by everything in flight.

Estimated costs are corrected by the actual costs of similar attempts: those with the same needs,
since one model's short answers say nothing about another's.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import field
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import Budget
from paraval.schedule.messages import Work
from paraval.text.words import dollars

OF_LATE = 50
FEWEST = 5
"""This many attempts must have reported a cost before estimates are corrected."""
ROUNDING_USD = 1e-9


class Cost(NamedTuple):
    """What an attempt cost."""

    usd: float | None
    """None: unknown; see `at_least_usd`."""
    at_least_usd: float = 0.0
    """The part that is known."""


UNKNOWN_COST = Cost(None)


@dataclass(slots=True)
class _CostKind:
    """Recent actual costs of attempts of one kind."""

    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=OF_LATE))
    """Actual cost / estimate."""
    costs: deque[float] = field(default_factory=lambda: deque(maxlen=OF_LATE))
    correction: float = 1.0

    def observe(self, estimated_usd: float | None, actual_usd: float) -> None:
        self.costs.append(actual_usd)
        if estimated_usd:
            self.ratios.append(actual_usd / estimated_usd)
            if len(self.ratios) >= FEWEST:
                self.correction = max(self.ratios)

    def expected_usd(self, estimated_usd: float | None) -> float:
        if estimated_usd is not None:
            return estimated_usd * self.correction
        return max(self.costs, default=0.0)


class BudgetState:
    """What is left of a budget."""

    def __init__(self, budget: Budget, spent_usd: float) -> None:
        self.usd = budget.usd
        self.spent_usd = spent_usd
        self.reserved_usd = 0.0
        self._in_flight = 0
        self._kinds: dict[tuple[str, ...], _CostKind] = {}

    @property
    def is_settled(self) -> bool:
        """True: nothing is in flight whose end could free part of the budget."""
        return self._in_flight == 0

    def fits(self, work: Work) -> bool:
        """Whether an attempt may start. If its cost is unknown, it may as long as anything is
        left."""
        if is_free(work):
            return True
        committed = self.spent_usd + self.reserved_usd
        if work.cost_usd is None and committed >= self.usd:
            return False
        return committed + self._expected_usd(work) <= self.usd + ROUNDING_USD

    def reserve(self, work: Work) -> float:
        """Reserve the expected cost and return it, to be settled later; 0 for free attempts."""
        if is_free(work):
            return 0.0
        reserved = self._expected_usd(work)
        self.reserved_usd += reserved
        self._in_flight += 1
        return reserved

    def settle(self, work: Work, reserved: float, cost: Cost) -> None:
        """Count the actual cost. If unknown, the reservation counts, but no less than the known
        part."""
        known_usd = _amount(cost.at_least_usd) or 0.0
        actual_usd = _amount(cost.usd)
        self.spent_usd += max(reserved, known_usd) if actual_usd is None else actual_usd
        if is_free(work):
            return
        self._in_flight -= 1
        # Rounding errors must not keep the last trial from starting.
        self.reserved_usd = self.reserved_usd - reserved if self._in_flight else 0.0
        if seen_usd := (known_usd if actual_usd is None else actual_usd):
            # Refused or cached requests reveal nothing about the cost of an answer.
            self._kinds.setdefault(work.needs, _CostKind()).observe(work.cost_usd, seen_usd)

    def refusal(self) -> str:
        """Why a trial is skipped."""
        return f"budget of {dollars(self.usd)} reached"

    def _expected_usd(self, work: Work) -> float:
        kind = self._kinds.get(work.needs)
        return (work.cost_usd or 0.0) if kind is None else kind.expected_usd(work.cost_usd)


def _amount(usd: float | None) -> float | None:
    """None for an invalid amount, which programs may report."""
    return usd if usd is not None and 0.0 <= usd < math.inf else None


def is_free(work: Work) -> bool:
    """Whether it is known to cost nothing; False if the cost is unknown."""
    return work.cost_usd is not None and work.cost_usd <= 0.0
