"""What is taken of one thing that an account has a rate of: requests, or tokens.

Two rates may be known at once, and both are kept: the configured one, and what headers tell.
"""

from __future__ import annotations

import math

from paraval.schedule.pacing import Bucket

TOLD_SHARE = 0.98
"""Of a rate that headers tell this much is used: their clock is not ours."""


class Meter:
    """Counts what was sent, and says when more may be."""

    def __init__(self, configured: Bucket | None) -> None:
        self.sent = 0.0
        self._configured = configured
        self._told: Bucket | None = None
        self._buckets = (configured,) if configured is not None else ()

    @property
    def knows_a_rate(self) -> bool:
        return bool(self._buckets)

    def wait_s(self, now: float, amount: float) -> float:
        wait_s = 0.0
        for bucket in self._buckets:
            wait_s = max(wait_s, bucket.wait_s(now, amount))
        return wait_s

    def take(self, now: float, amount: float) -> None:
        self.sent += amount
        for bucket in self._buckets:
            bucket.take(now, amount)

    def correct(self, now: float, more: float) -> None:
        """So much more was used than had been taken; less, where it is negative."""
        self.sent += more
        for bucket in self._buckets:
            bucket.fill(now)
            bucket.give_back(-more)

    def until_sent_s(self, now: float, amount: float) -> float:
        """How long until the last of so much may be sent."""
        until_s = 0.0
        for bucket in self._buckets:
            until_s = max(until_s, (amount - max(0.0, bucket.fill(now))) / bucket.rate)
        return until_s

    def hear(
        self,
        now: float,
        per_minute: float | None,
        left: float | None,
        full_in_s: float | None,
        since: tuple[float, float],
    ) -> None:
        """What headers tell, and `since`: when they were asked for, and what was sent after that.

        They are out of date by what was sent meanwhile, and by what flowed in.
        """
        if per_minute is None or not 0.0 < per_minute < math.inf:
            return
        rate = TOLD_SHARE * per_minute / 60.0
        if self._told is None:
            self._told = Bucket.full(rate, math.inf if left is not None else max(1.0, rate), now)
            self._buckets = (*self._buckets, self._told)
        told = self._told
        told.fill(now)
        told.rate = rate
        if left is None:
            return
        # The provider's own burst: what will be there once it is full.
        capacity = left + 1.0 if full_in_s is None else left + full_in_s * per_minute / 60.0
        if full_in_s is None and told.capacity < math.inf:
            capacity = max(capacity, told.capacity)
        told.capacity = max(1.0, min(capacity, per_minute))
        asked_at, sent = since
        level = left - sent + rate * (now - asked_at)
        told.level = min(told.level, level, told.capacity)


def evenly(per_minute: float | None) -> Bucket | None:
    """A configured rate of requests: by a second's worth at most, since many providers watch
    shorter times than a minute."""
    if per_minute is None or per_minute <= 0.0:
        return None
    return Bucket.full(per_minute / 60.0, max(1.0, per_minute / 60.0), -math.inf)


def by_the_minute(per_minute: float | None) -> Bucket | None:
    """A configured rate of tokens: by a minute's worth at most, since a single request may well
    take a good part of it."""
    if per_minute is None or per_minute <= 0.0:
        return None
    return Bucket.full(per_minute / 60.0, per_minute, -math.inf)
