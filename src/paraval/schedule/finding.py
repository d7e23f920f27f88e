"""Finds the rate of an account that tells nothing but refusals.

A provider's bucket is empty whenever it refuses. So between two refusals just as much flowed into
it as was accepted, unless it ran over meanwhile, and it runs over when more piles up than its
burst. Hence for every stretch of time: accepted <= burst + rate x time. What is known of the burst
comes from the first requests, before anything was refused.

Requests are counted when they are sent, since answers may take long; a refusal is dated back to
when its request was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from paraval.schedule.pacing import Bucket

UNDER = 0.97
"""Paced at this share of the estimate."""
PROBE_EVERY_S = 5.0
PROBES = (1.02, 1.02, 1.04, 1.08, 1.15)
"""How much faster, after each such time without a refusal."""
RAMP_EVERY_S = 1.0
RAMP = 2.0
"""Between the first refusal and the second the rate is anybody's guess: look for it quickly."""
CATCH_UP = 2.0
"""What piled up during a hold is sent at this many times the rate, not at once: should the provider
allow no burst, few are refused before that is known."""
MARKS = 512


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, and how many requests were sent before it."""

    at: float
    sent: float


@dataclass(slots=True)
class RateFinder:
    """What is known of an account's rate, and the pace that follows from it."""

    sent: float = 0.0
    """Requests so far."""
    rate: float | None = None
    """The estimate; None before the second refusal."""
    burst: float = 1.0
    pace: Bucket | None = None
    """None: nothing was refused yet, so nothing holds back."""
    _spread: Bucket | None = None
    _marks: deque[Mark] = field(default_factory=lambda: deque(maxlen=MARKS))
    _first_at: float | None = None
    _before: tuple[float, float] = (0.0, 0.0)
    """What was accepted before the first refusal, and in how long."""
    _empty: Mark | None = None
    """When the bucket was last known to be empty."""
    _refused: float = 0.0
    """Since then."""
    _resumed: Mark = Mark(0.0, 0.0)
    """The end of the hold."""
    _probed_at: float = 0.0
    _probes: int = 0

    def send(self, now: float, requests: float) -> None:
        if self._first_at is None:
            self._first_at = now
        self._marks.append(Mark(now, self.sent))
        self.sent += requests
        if self.pace is not None and self._spread is not None:
            self.pace.take(now, requests)
            self._spread.take(now, requests)

    def correct(self, requests: float) -> None:
        """So many more were made than had been counted; fewer, where it is negative."""
        self.sent += requests
        if self.pace is not None:
            self.pace.give_back(-requests)

    def count_refusal(self) -> None:
        self._refused += 1

    def wait_s(self, now: float, requests: float) -> float:
        if self.pace is None or self._spread is None:
            return 0.0
        self._probe(now)
        return max(self.pace.wait_s(now, requests), self._spread.wait_s(now, requests))

    # ---- refusals

    def refuse(self, now: float, refused: Mark, held_until: float) -> None:
        """Another refusal than the last one: of a request that was sent after that was known."""
        if self._first_at is None or self._empty is None:
            rate = self._guess(now, refused)
        else:
            rate = UNDER * self._estimate(refused, self._empty)
        self._note(refused, held_until)
        self._set_pace(now, held_until, rate)

    def refuse_again(self, now: float, refused: Mark, held_until: float) -> None:
        """No answer came since the last refusal: that tells nothing of a rate."""
        if self.pace is None:
            self.refuse(now, refused, held_until)
            return
        self._note(refused, held_until)
        self._set_pace(now, held_until, self.pace.rate)

    def _note(self, refused: Mark, held_until: float) -> None:
        self._empty = refused
        self._refused = 1.0
        self._resumed = Mark(held_until, self.sent)
        self._marks.clear()
        self._probes = 0
        self._probed_at = held_until

    def _guess(self, now: float, refused: Mark) -> float:
        """After the first refusal: no more than half of what was seen so far."""
        since = self._first_at if self._first_at is not None else now
        self._before = (refused.sent, refused.at - since)
        return 0.5 * max(refused.sent, 1.0) / max(now - since, 0.01)

    def _estimate(self, refused: Mark, empty: Mark) -> float:
        accepted = max(refused.sent - empty.sent - self._refused, 0.0)
        lasted = max(refused.at - empty.at, 1e-3)
        since_hold = refused.sent - self._resumed.sent
        held = max(self._resumed.at - empty.at, 0.0)
        if self.rate is None:
            self.rate = self._first_estimate(refused, accepted / lasted, held)
            return self.rate
        piled_up = min(self.burst, self.rate * held)
        active = max(refused.at - self._resumed.at, 0.0)
        if active < held and since_hold < self.rate * active + 0.5 * piled_up:
            # Refused while it caught up: the burst is smaller than thought, the rate still good.
            self.burst = max(1.0, since_hold - self.rate * active)
            return self.rate
        seen = max(accepted / lasted, self._fastest(refused))
        if self._probes == 0:
            seen = min(seen, 0.9 * self.rate)
        self.rate = 0.5 * (self.rate + seen)
        return self.rate

    def _first_estimate(self, refused: Mark, slowest: float, held: float) -> float:
        """Rate and burst together, from before the first refusal and from since then."""
        accepted, lasted = self._before
        self.burst = max(1.0, accepted - slowest * lasted)
        if self.burst >= slowest * held:
            return max(slowest, 1e-3)
        rate = slowest
        for _ in range(4):
            self.burst = max(1.0, accepted - rate * lasted)
            rate = max(slowest, self._fastest(refused))
        return max(rate, 1e-3)

    def _fastest(self, refused: Mark) -> float:
        """The highest rate that a stretch of time up to a refusal asks for, whatever its length."""
        rates = (
            (refused.sent - mark.sent - self.burst) / (refused.at - mark.at)
            for mark in self._stretches()
            if refused.at - mark.at > 1e-3
        )
        return max(rates, default=0.0)

    def _stretches(self) -> Iterator[Mark]:
        """Where stretches begin: 1, 2, 4, 8 ... requests ago."""
        back = 1
        while back <= len(self._marks):
            yield self._marks[-back]
            back *= 2
        if self._marks:
            yield self._marks[0]

    # ---- the pace

    def _set_pace(self, now: float, held_until: float, rate: float) -> None:
        held_s = max(0.0, held_until - now)
        known = self.rate is not None
        burst = max(1.0, min(self.burst, rate * held_s)) if known else 1.0
        at_hold_end = burst if known else 1.0
        self.pace = Bucket(rate, burst, at_hold_end, held_until)
        fast = CATCH_UP * rate if known else rate
        self._spread = Bucket.full(fast, max(1.0, fast * 0.02), held_until)

    def _probe(self, now: float) -> None:
        assert self.pace is not None
        assert self._spread is not None
        every_s = PROBE_EVERY_S if self.rate is not None else RAMP_EVERY_S
        if now - self._probed_at < every_s:
            return
        self._probed_at = now
        if self.pace.fill(now) >= self.pace.capacity:
            return  # not held back by it, so nothing would be learned
        step = RAMP if self.rate is None else PROBES[min(self._probes, len(PROBES) - 1)]
        self._probes += 1
        self.pace.change(now, rate=self.pace.rate * step, capacity=self.pace.capacity)
        self._spread.change(now, rate=self._spread.rate * step, capacity=self._spread.capacity)
