"""Money: reserved before an attempt starts, settled after it, so that what runs in parallel cannot
pass the budget by all that is in flight.

What attempts are thought to cost is corrected by what their like really cost.
"""

from __future__ import annotations

import math
from collections import deque

from paraval.amounts import dollars
from paraval.records import Budget

RATIOS = 50
FEWEST_RATIOS = 5
"""So many attempts must have told their cost before the thought ones are corrected."""
ROUNDING_USD = 1e-9


class Purse:
    """What is left of a budget."""

    def __init__(self, budget: Budget, spent_usd: float) -> None:
        self._usd = budget.usd
        self.spent_usd = spent_usd
        self.reserved_usd = 0.0
        self._in_flight = 0
        self._ratios: deque[float] = deque(maxlen=RATIOS)
        self._correction = 1.0

    @property
    def is_settled(self) -> bool:
        """True: nothing is in flight whose end could leave more than there seems to be."""
        return self._in_flight == 0

    def fits(self, cost_usd: float) -> bool:
        """Whether an attempt that is thought to cost this much may start."""
        if cost_usd <= 0.0:
            return True
        committed = self.spent_usd + self.reserved_usd
        return committed + cost_usd * self._correction <= self._usd + ROUNDING_USD

    def reserve(self, cost_usd: float) -> float:
        """What to settle later; free attempts reserve nothing."""
        if cost_usd <= 0.0:
            return 0.0
        reserved = cost_usd * self._correction
        self.reserved_usd += reserved
        self._in_flight += 1
        return reserved

    def settle(self, reserved: float, thought_usd: float, actual_usd: float | None) -> None:
        """What is not known is taken to be what was reserved."""
        if actual_usd is not None and not 0.0 <= actual_usd < math.inf:
            actual_usd = None
        self.spent_usd += reserved if actual_usd is None else actual_usd
        if thought_usd <= 0.0:
            return
        self._in_flight -= 1
        # Sums of floats leave dust, and dust must not keep the last trial from starting.
        self.reserved_usd = self.reserved_usd - reserved if self._in_flight else 0.0
        if actual_usd:
            # What was refused, or came from the cache, says nothing of what an answer costs.
            self._ratios.append(actual_usd / thought_usd)
            if len(self._ratios) >= FEWEST_RATIOS:
                self._correction = max(self._ratios)

    def refusal(self) -> str:
        """Why a trial is skipped."""
        return f"budget: {dollars(self._usd)} would be passed; {dollars(self.spent_usd)} spent"
