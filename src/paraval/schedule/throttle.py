"""How much may be sent to an account now: a token bucket, a meter of what was sent, and a window
for concurrent calls.

Two rates may be known at the same time, and both are kept: the configured one, and the one from
headers.
"""

from __future__ import annotations

import math

from paraval.dataclass import dataclass
from paraval.records import FoundLimit

# A token bucket: how much may be taken now, and when there will be enough.

INSTANT_S = 1e-9
"""Shorter waits are rounding errors, and waiting for them would never end."""


@dataclass(slots=True)
class TokenBucket:
    """`rate` flows in per second, and at most `capacity` accumulates."""

    rate: float
    capacity: float
    level: float
    at: float
    """When `level` was computed."""

    @classmethod
    def full(cls, rate: float, capacity: float, now: float) -> TokenBucket:
        return cls(rate, capacity, capacity, now)

    def fill(self, now: float) -> float:
        """The level at this time."""
        if now > self.at:
            level = self.level + (now - self.at) * self.rate
            self.level = min(self.capacity, level)
            self.at = now
        return self.level

    def wait_s(self, now: float, amount: float) -> float:
        """How long until this much can be taken; more than the capacity is taken from a full
        bucket."""
        wanted = min(self.capacity, amount)
        level = self.fill(now)
        if level >= wanted:
            return 0.0
        wait_s = (wanted - level) / self.rate
        return wait_s if wait_s > INSTANT_S else 0.0

    def take(self, now: float, amount: float) -> None:
        """Take it even if it is not there: the difference is a debt."""
        self.level = self.fill(now) - amount

    def give_back(self, amount: float) -> None:
        self.level = min(self.capacity, self.level + amount)

    def change(self, now: float, *, rate: float, capacity: float) -> None:
        """Change the rate; the inflow so far is counted at the old one."""
        self.fill(now)
        self.rate = rate
        self.capacity = capacity
        self.level = min(self.level, capacity)


# How many concurrent requests an account accepts, if unknown: found by trying.

FIRST = 20
DOUBLES_EVERY_S = 0.25
"""Long enough for a refusal to come back from anywhere on earth."""
SPREAD_S = 0.08
"""Until the first answer, a window is filled in this time, not all at once: if the provider allows
no burst, few are refused before that is known."""
GROWTH = 0.05
ENOUGH_ALIKE = 2
"""Refusals in a row that indicate the same limit as the one before: concurrency is limited."""
STRIKES = 3
"""So many refusals below a limit that was found, or one far below it, show that it is none."""
FAR_BELOW = 0.75
CUT_EVERY_S = 5.0
SETTLES_IN = 50
"""Answers before a limit that was found grows again."""
LARGEST_STEP = 10
IN_USE = 0.8
"""A limit that was not nearly reached is untested and does not grow."""
ALIKE = 0.1
"""Two refusals with numbers in flight this close to each other indicate the same limit."""


@dataclass(slots=True)
class Window:
    """A limit on what is in flight, between 1 and `most`."""

    most: int
    limit: int = 0
    in_flight: int = 0
    is_found: bool = False
    """True: concurrency is limited, to about `limit`."""
    _peak: int = 0
    _successes: int = 0
    _refused_with: int = 0
    _alike: int = 0
    """How many refusals in a row indicated the same limit as the one before."""
    _found: int = 0
    """A number in flight with which a request was refused, or as many were accepted since."""
    _strikes: int = 0
    """How often that was lower than before."""
    _misled: int = 0
    """How often a limit was found where there is none; so much more it takes to find one."""
    _clean: int = 0
    """How many rounds in a row were clean: the more, the faster it grows."""
    _cut_at: float = -math.inf
    _starting: bool = True
    """Nothing was refused yet."""
    _full_since: float | None = None
    """Since when the window has been full."""
    _is_answered: bool = False
    _entered_at: float = -math.inf

    def __post_init__(self) -> None:
        self.limit = min(FIRST, self.most)

    def widen(self, most: int) -> None:
        self.most = most
        if self._starting:
            self.limit = max(self.limit, min(FIRST, most))

    def room_at(self, now: float) -> float:
        """When one more may be in flight; infinite if that depends on an answer."""
        if self.in_flight < self.limit:
            if self._is_answered:
                return now
            at = self._entered_at + SPREAD_S / self.limit
            return at if at > now + INSTANT_S else now
        if not self._starting or self._full_since is None or self.limit >= self.most:
            return math.inf
        grows_at = self._full_since + DOUBLES_EVERY_S
        if grows_at > now + INSTANT_S:
            return grows_at
        self._grow(self.limit)
        return now

    def enter(self, now: float) -> None:
        self.in_flight += 1
        self._entered_at = now
        if self.in_flight >= self.limit and self._full_since is None:
            self._full_since = now
        self._peak = max(self._peak, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1

    def succeed(self, now: float) -> None:
        """A round is clean when as many requests as the limit succeeded in a row."""
        self._is_answered = True
        self._successes += 1
        if self.is_found and now - self._cut_at < CUT_EVERY_S:
            return
        is_settling = self.is_found and not self._clean
        if self._successes < (max(SETTLES_IN, self.limit) if is_settling else self.limit):
            return
        if self._peak >= IN_USE * self.limit:
            self._found = self.limit
            step = max(1, int(GROWTH * self.limit)) << min(self._clean, LARGEST_STEP)
            self._clean += 1
            self._grow(min(step, self.limit) if self.is_found else self.limit)
        self._begin_round()

    def pause(self, now: float) -> None:
        """The provider has problems of its own: don't shrink, but don't grow either."""
        self._begin_round()
        if self._full_since is not None:
            self._full_since = now

    def refuse(self, now: float, beside: int, *, is_crowded: bool = True) -> None:
        """A request was refused that had `beside` others in flight when it was sent; `is_crowded`:
        hardly any was accepted with as many."""
        self._starting = False
        self._is_answered = True
        before, self._refused_with = self._refused_with, beside
        self._clean = 0
        self._begin_round()
        if self.is_found:
            self._check(now, beside, is_crowded=is_crowded)
            return
        apart = abs(beside - before)
        # None in flight means nothing; of few, one more or less does.
        alike = min(before, beside) > 0 and apart <= max(ALIKE * before, min(1, beside - 2), 0)
        self._alike = self._alike + 1 if alike and is_crowded else 0
        if self._alike >= ENOUGH_ALIKE + self._misled:
            self.is_found = True
            self._strikes = 0
            least = 1
        elif now - self._cut_at >= CUT_EVERY_S:
            # While doubling, half the limit is the last level known to be good.
            least = self.limit // 2
        else:
            return
        self._cut_at = now
        self.limit = self._found = max(1, least, min(self.limit, beside))

    def _check(self, now: float, beside: int, *, is_crowded: bool) -> None:
        """Refused although a limit was found: it has grown too far, or was a little too high; or
        concurrency is not the reason."""
        self._cut_at = now
        if beside < self._found or not is_crowded:
            self._strikes += 1
        if self._strikes >= STRIKES or beside < FAR_BELOW * self._found:
            self._misled += 1
            self.start_again()
            return
        self.limit = self._found = max(1, min(self._found, beside))

    def start_again(self) -> None:
        """Earlier findings are in doubt: slow start again."""
        self.limit = min(FIRST, self.most)
        self.is_found = False
        self._refused_with = self._alike = 0
        self._full_since = None
        self._begin_round()

    def _grow(self, step: int) -> None:
        self.limit = min(self.most, self.limit + step)
        self._full_since = None

    def _begin_round(self) -> None:
        self._successes = 0
        self._peak = self.in_flight


HEADER_SHARE = 0.99
"""Share used of a rate from headers: their clock is not ours."""


class Meter:
    """Counts what was sent, and when more may be sent."""

    def __init__(self, configured: TokenBucket | None) -> None:
        self.sent = 0.0
        self._configured = configured
        self._by_headers: TokenBucket | None = None
        self._buckets = (configured,) if configured is not None else ()
        self.knows_a_rate = configured is not None

    @property
    def per_minute(self) -> float | None:
        """The lowest known rate."""
        return min((60.0 * bucket.rate for bucket in self._buckets), default=None)

    def announced(self) -> FoundLimit | None:
        """The rate and burst from headers."""
        bucket = self._by_headers
        if bucket is None or bucket.capacity == math.inf:
            return None
        return FoundLimit(requests_per_minute=60.0 * bucket.rate)

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
        """Add what was used beyond what was taken; less if negative."""
        self.sent += more
        for bucket in self._buckets:
            bucket.fill(now)
            bucket.give_back(-more)

    def until_sent_s(self, now: float, amount: float) -> float:
        """How long until the last of this amount may be sent."""
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
        """Apply a limit from headers; `since`: when their request was sent, and how much was sent
        after it.

        They are out of date by what was sent and what flowed in meanwhile.
        """
        if per_minute is None or not 0.0 < per_minute < math.inf:
            return
        rate = HEADER_SHARE * per_minute / 60.0
        if self._by_headers is None:
            self._by_headers = TokenBucket.full(
                rate, math.inf if left is not None else max(1.0, rate), now
            )
            self._buckets = (*self._buckets, self._by_headers)
            self.knows_a_rate = True
        bucket = self._by_headers
        bucket.fill(now)
        bucket.rate = rate
        if left is None:
            return
        # The provider's own burst: what will be available once it is full.
        capacity = left + 1.0 if full_in_s is None else left + full_in_s * per_minute / 60.0
        if full_in_s is None and bucket.capacity < math.inf:
            capacity = max(capacity, bucket.capacity)
        bucket.capacity = max(1.0, min(capacity, per_minute))
        asked_at, sent = since
        level = left - sent + rate * (now - asked_at)
        bucket.level = min(bucket.level, level, bucket.capacity)


def evenly(per_minute: float | None) -> TokenBucket | None:
    """A configured request rate: at most a fifth of a second's worth at a time, since many
    providers check periods as short as a second."""
    if per_minute is None or per_minute <= 0.0:
        return None
    return TokenBucket.full(per_minute / 60.0, max(1.0, per_minute / 300.0), -math.inf)


def by_the_minute(per_minute: float | None) -> TokenBucket | None:
    """A configured token rate: up to a minute's worth at a time, since a single request may take a
    large part of it."""
    if per_minute is None or per_minute <= 0.0:
        return None
    return TokenBucket.full(per_minute / 60.0, per_minute, -math.inf)
