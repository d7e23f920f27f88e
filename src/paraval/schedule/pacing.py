"""A bucket that fills at a rate: what may be taken now, and when there will be enough.

For requests this is GCRA, for tokens a level with reservations: both are the same sum.
"""

from __future__ import annotations

from dataclasses import dataclass

INSTANT_S = 1e-9
"""Shorter waits than this are rounding, and waiting for them would never end."""


@dataclass(slots=True)
class Bucket:
    """So much a second flows in, and no more than `capacity` piles up."""

    rate: float
    capacity: float
    level: float
    at: float
    """When `level` was right."""

    @classmethod
    def full(cls, rate: float, capacity: float, now: float) -> Bucket:
        return cls(rate, capacity, capacity, now)

    def fill(self, now: float) -> float:
        """The level at this moment."""
        if now > self.at:
            level = self.level + (now - self.at) * self.rate
            self.level = min(self.capacity, level)
            self.at = now
        return self.level

    def wait_s(self, now: float, amount: float) -> float:
        """How long until so much can be taken; more than fits is taken from a full bucket."""
        wanted = min(self.capacity, amount)
        wait_s = (wanted - self.fill(now)) / self.rate
        return wait_s if wait_s > INSTANT_S else 0.0

    def take(self, now: float, amount: float) -> None:
        """Takes it, whether or not it is there: what is missing is a debt."""
        self.level = self.fill(now) - amount

    def give_back(self, amount: float) -> None:
        self.level = min(self.capacity, self.level + amount)

    def change(self, now: float, *, rate: float, capacity: float) -> None:
        """What flowed in so far did so at the old rate."""
        self.fill(now)
        self.rate = rate
        self.capacity = capacity
        self.level = min(self.level, capacity)
