"""What onlookers keep count of while a run goes on: what runs, what holds back more, what is
skipped, what is spent.
"""

from __future__ import annotations

import math

from paraval.records import (
    AttemptEnded,
    AttemptResult,
    Capacity,
    Happening,
    RunStarted,
    Trial,
    TrialEnded,
    TrialSkipped,
)
from paraval.text.words import money

HELD_S = 5.0
"""What holds a run back is worth a line in a log once it has lasted for so long."""
SKIPS_TOGETHER_S = 1.0
"""Trials that are skipped within so long of one another are told in one line."""


class RunningTrials:
    """The trials that run now, the longest first."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[Trial, float]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, trial: Trial, now: float) -> None:
        self._since[trial.index] = (trial, now)

    def end(self, trial: Trial) -> None:
        self._since.pop(trial.index, None)

    def clear(self) -> None:
        self._since.clear()

    def longest(self, now: float) -> tuple[Trial, float] | None:
        for trial, since in self._since.values():
            return trial, max(0.0, now - since)
        return None

    def first(self, count: int) -> list[Trial]:
        found: list[Trial] = []
        for trial, _ in self._since.values():
            if len(found) == count:
                break
            found.append(trial)
        return found


class MachineRoom:
    """How many the machine lets run at once, and what holds back more."""

    def __init__(self) -> None:
        self._capacity: Capacity | None = None
        self._since = 0.0
        self._told: str | None = None

    def watch(self, capacity: Capacity, now: float) -> None:
        before, self._capacity = self._held_by, capacity
        if self._held_by != before:
            self._since = now

    def take(self, now: float) -> Capacity | None:
        """What to tell in a log: another hold than the one told last, and not just a moment's."""
        if self._held_by == self._told or now - self._since < HELD_S:
            return None
        self._told = self._held_by
        return self._capacity

    @property
    def _held_by(self) -> str | None:
        return (self._capacity and self._capacity.held_by) or None

    def __str__(self) -> str:
        """` (6 of 20, memory)`, to stand behind what runs; empty where nothing holds it back."""
        told = self._capacity
        if told is None or not told.held_by:
            return ""
        return f" ({told.at_once:,} of {told.wanted:,}, {told.held_by})"


class Skips:
    """Trials that were left for later: the first for a reason is told at once, others together."""

    def __init__(self) -> None:
        self._untold: dict[str, int] = {}
        self._last_at = 0.0

    def is_first(self, reason: str, now: float) -> bool:
        """Counts one more; True where none was skipped for this reason before."""
        is_first = reason not in self._untold
        self._untold[reason] = 0 if is_first else self._untold[reason] + 1
        self._last_at = now
        return is_first

    def take(self, now: float) -> list[tuple[int, str]]:
        """Those not told yet and why, once no more come for a while."""
        if now - self._last_at < SKIPS_TOGETHER_S:
            return []
        taken = [(number, reason) for reason, number in self._untold.items() if number]
        self._untold.update(dict.fromkeys(self._untold, 0))
        return taken


class MoneySpent:
    """Dollars so far, of this engine and of those before it."""

    def __init__(self) -> None:
        self._usd = 0.0
        self._budget_usd: float | None = None
        self._is_told = False
        self._is_partly_unknown = False

    def watch(self, event: Happening) -> None:
        match event:
            case TrialEnded():
                # Only of the attempt that decided: those before it were told as they ended.
                self._add(event.result.result)
            case AttemptEnded():
                self._add(event.result)
            case TrialSkipped(last=AttemptResult() as last):
                self._add(last)
            case RunStarted():
                self._budget_usd = event.budget_usd
                self._usd = event.spent_usd
                self._is_partly_unknown = event.spent_unknown
                self._is_told = (
                    event.spent_usd > 0 or event.spent_unknown or event.budget_usd is not None
                )

    def _add(self, result: AttemptResult) -> None:
        for spend in (result.spend, result.judging):
            if spend is None:
                continue
            self._is_told = True
            if spend.cost_usd is None or not math.isfinite(spend.cost_usd):
                self._is_partly_unknown = True
            if math.isfinite(spend.known_usd):
                self._usd += spend.known_usd

    def __str__(self) -> str:
        """`$0.12`, `$0.12 of $5.00`, `at least $0.12`; empty where nothing costs anything."""
        if not self._is_told:
            return ""
        if self._is_partly_unknown and not self._usd:
            return "cost unknown"
        said = f"at least {money(self._usd)}" if self._is_partly_unknown else money(self._usd)
        return said if self._budget_usd is None else f"{said} of {money(self._budget_usd)}"


def whole_cost(result: AttemptResult) -> float | None:
    """What an attempt cost, judges included; None where it told none, or not all is known."""
    costs = [spend.cost_usd for spend in (result.spend, result.judging) if spend is not None]
    return math.fsum(cost for cost in costs if cost is not None) if _all_known(costs) else None


def _all_known(costs: list[float | None]) -> bool:
    return bool(costs) and all(cost is not None and math.isfinite(cost) for cost in costs)
