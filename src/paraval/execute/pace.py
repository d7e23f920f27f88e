"""How a run compares with the forecast, and its estimated end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from paraval.records import AttemptResult
from paraval.schedule.scheduler import Scheduler

ENDS_BEFORE_AN_ETA = 3
ETA_EVERY_S = 0.2
"""An estimate takes time itself; it is not updated more often than this."""


T = TypeVar("T")


class Pace(Generic[T]):
    """Expected and actual durations of the attempts that have ended, each of a `T`."""

    def __init__(self, expected_s: Callable[[T], float], *, from_history: bool) -> None:
        self._expected_s = expected_s
        self._known = from_history
        self._ended = 0
        self._expected_sum = 0.0
        self._actual_sum = 0.0
        self._eta: tuple[float, float] | None = None

    def observe(self, trial: T, result: AttemptResult) -> None:
        spend = result.spend
        if spend is not None and spend.cached and not spend.calls:
            # A cached answer says nothing about the duration of the others.
            return
        self._ended += 1
        self._expected_sum += self._expected_s(trial)
        self._actual_sum += result.duration_s

    def eta_s(self, scheduler: Scheduler, now: float) -> float | None:
        """Seconds to the end; None if unknown so far."""
        if not self._known and self._ended < ENDS_BEFORE_AN_ETA:
            return None
        if self._eta is None or now - self._eta[0] >= ETA_EVERY_S:
            self._eta = (now, scheduler.remaining_s(now, self._scale(scheduler, now)))
        made_at, seconds = self._eta
        return round(max(0.0, seconds - (now - made_at)), 3)

    def _scale(self, scheduler: Scheduler, now: float) -> float:
        """Ratio of actual to expected durations."""
        if self._expected_sum <= 0.0:
            return 1.0
        if self._known:
            return self._actual_sum / self._expected_sum
        # Short attempts end first. Counting the time that others have been running avoids an
        # initial estimate that is too optimistic.
        return (self._actual_sum + scheduler.running_for_s(now)) / self._expected_sum
