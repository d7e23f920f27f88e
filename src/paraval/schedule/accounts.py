"""A provider's account: what may be sent to it now, and what its answers teach.

Known rates (configured, or told by headers) are paced; an unknown one is found by finding.py, an
unknown number at once by window.py. A refusal holds the whole account back, and no other. Which
trial goes first is not decided here.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from random import Random

from paraval.records import AccountLimits, AccountUse, RateTold
from paraval.schedule.finding import Mark, RateFinder
from paraval.schedule.messages import Draw, Held
from paraval.schedule.pacing import Bucket
from paraval.schedule.window import Window

TOLD_SHARE = 0.98
"""Of a rate that headers tell this much is used: their clock is not ours."""
LONGEST_BACKOFF_S = 60.0
UNREACHED_ENDS = 5
"""An account that nobody ever reached is given up after so many ends in a row."""
REFUSALS_THAT_KEEP_COMING = 3
"""So many refusals in KEEP_COMING_S in spite of a known rate: something else is limited, too."""
KEEP_COMING_S = 30.0
RATIOS = 50
FEWEST_RATIOS = 5


@dataclass(slots=True, eq=False)
class Grant:
    """What one attempt took of an account."""

    started_at: float
    requests: float
    tokens: float
    """As reserved."""
    thought: float
    """The tokens before what was learned of them."""
    sent_before: float
    tokens_before: float
    beside: int
    """How many others were in flight."""


@dataclass(slots=True)
class Ratios:
    """How much of what was thought to be needed really was: nearly the most of late."""

    correction: float = 1.0
    _seen: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS))
    _unread: int = 0

    def observe(self, thought: float, actual: float) -> None:
        self._seen.append(actual / thought)
        self._unread += 1
        if len(self._seen) >= FEWEST_RATIOS and (self._unread >= 10 or len(self._seen) < 20):
            self._unread = 0
            ordered = sorted(self._seen)
            self.correction = max(0.01, ordered[math.ceil(0.9 * len(ordered)) - 1])


class Account:
    """The state of one account between two events."""

    def __init__(self, name: str, known: AccountLimits, *, parallel: int, random: Random) -> None:
        self.name = name
        self.in_flight = 0
        self.held_until = -math.inf
        self.refusals = 0
        """In a row, without an answer to anything that was sent between them."""
        self.waiting_s = 0.0
        self.waiting_requests = 0.0
        self.waiting_tokens = 0.0
        self.unreached = 0
        self._ever_reached = False
        self._random = random
        self._concurrent = known.concurrent
        self._window = Window(most=parallel)
        self._window_binds = False
        self._finder = RateFinder()
        self._refused_at = -math.inf
        self._unexpected: deque[float] = deque(maxlen=REFUSALS_THAT_KEEP_COMING)
        """Refusals in spite of what is known."""
        self._probe: Grant | None = None
        self._tokens_sent = 0.0
        self._ratios = Ratios()
        self._requests = _configured_requests(known.requests_per_minute)
        self._tokens = _configured_tokens(known.tokens_per_minute)
        self._told_requests: Bucket | None = None
        self._told_tokens: Bucket | None = None

    # ---- what may start

    @property
    def never_reached(self) -> bool:
        return not self._ever_reached and self.unreached >= UNREACHED_ENDS

    @property
    def limit(self) -> float:
        """How many may be in flight; infinite where only a rate limits."""
        if self._concurrent is not None:
            return self._concurrent
        if self._rate_is_known and not self._window_binds:
            return math.inf
        return self._window.limit

    @property
    def _rate_is_known(self) -> bool:
        return (
            self._requests is not None
            or self._told_requests is not None
            or self._finder.rate is not None
        )

    def opens_at(self, now: float, draw: Draw) -> float:
        """When such a draw may start; infinite while only the end of another one can tell."""
        if self.in_flight >= self.limit or (self.refusals > 1 and self._probe is not None):
            return math.inf
        opens_at = max(now, self.held_until)
        wait_s = self._finder.wait_s(now, draw.requests)
        for bucket in (self._requests, self._told_requests):
            if bucket is not None:
                wait_s = max(wait_s, bucket.wait_s(now, draw.requests))
        if draw.tokens:
            tokens = draw.tokens * self._ratios.correction
            for bucket in (self._tokens, self._told_tokens):
                if bucket is not None:
                    wait_s = max(wait_s, bucket.wait_s(now, tokens))
        return max(opens_at, now + wait_s) if wait_s > 0.0 else opens_at

    def take(self, now: float, draw: Draw) -> Grant:
        tokens = draw.tokens * self._ratios.correction
        grant = Grant(
            started_at=now,
            requests=draw.requests,
            tokens=tokens,
            thought=draw.tokens,
            sent_before=self._finder.sent,
            tokens_before=self._tokens_sent,
            beside=self.in_flight,
        )
        self.in_flight += 1
        self._window.enter()
        self._finder.send(now, draw.requests)
        self._tokens_sent += tokens
        for bucket in (self._requests, self._told_requests):
            if bucket is not None:
                bucket.take(now, draw.requests)
        for bucket in (self._tokens, self._told_tokens):
            if bucket is not None:
                bucket.take(now, tokens)
        if self.refusals > 1:
            self._probe = grant
        return grant

    # ---- what answers teach

    def give_up(self, grant: Grant) -> None:
        """The attempt ended, and nobody knows what became of its requests."""
        self.in_flight -= 1
        self._window.leave()
        if self._probe is grant:
            self._probe = None

    def settle(self, now: float, grant: Grant, use: AccountUse) -> Held | None:
        """The attempt ended, and this is what it did."""
        self.give_up(grant)
        self._correct(now, grant, use)
        if use.told is not None:
            self._hear(now, grant, use.told)
        if not use.reached:
            self.unreached += 1
            return None
        if use.requests == 0:
            return None  # from the cache, or another one's answer: it teaches nothing
        self._ever_reached = True
        self.unreached = 0
        if use.refused:
            return self._refuse(now, grant, use.retry_after)
        if use.overloaded:
            self._window.pause()
        else:
            self._succeed(now, grant)
        return None

    def _succeed(self, now: float, grant: Grant) -> None:
        self._window.succeed(now)
        if grant.started_at >= self._refused_at:
            self.refusals = 0

    def _correct(self, now: float, grant: Grant, use: AccountUse) -> None:
        """Sets what was reserved right by what was used."""
        more = use.requests - grant.requests
        if more:
            self._finder.correct(more)
            for bucket in (self._requests, self._told_requests):
                if bucket is not None:
                    bucket.fill(now)
                    bucket.give_back(-more)
        more = use.tokens - grant.tokens
        if more:
            self._tokens_sent += more
            for bucket in (self._tokens, self._told_tokens):
                if bucket is not None:
                    bucket.fill(now)
                    bucket.give_back(-more)
        if grant.thought > 0.0 and use.tokens > 0.0 and not use.refused:
            self._ratios.observe(grant.thought, use.tokens)

    def _hear(self, now: float, grant: Grant, told: RateTold) -> None:
        since = self._finder.sent - grant.sent_before - grant.requests
        self._told_requests = _heard(
            self._told_requests,
            _Told(told.requests_per_minute, told.requests_left, told.requests_full_in_s),
            now=now,
            since=(grant.started_at, since),
        )
        since = self._tokens_sent - grant.tokens_before - grant.tokens
        self._told_tokens = _heard(
            self._told_tokens,
            _Told(told.tokens_per_minute, told.tokens_left, told.tokens_full_in_s),
            now=now,
            since=(grant.started_at, since),
        )

    # ---- refusals

    def _refuse(self, now: float, grant: Grant, retry_after: float | None) -> Held | None:
        if grant.started_at < self._refused_at:
            # It was under way when the last refusal came, and tells of the same moment.
            self._finder.refuse_too()
            self.held_until = max(self.held_until, now + (retry_after or 0.0))
            return None
        self.refusals += 1
        self.held_until = now + self._hold_s(retry_after)
        refused = Mark(grant.started_at, grant.sent_before)
        if self.refusals > 1:
            self._finder.refuse_again(now, refused, self.held_until)
        else:
            self._learn_from_refusal(now, grant, refused)
        self._refused_at = now
        return Held(account=self.name, until=self.held_until, refusals=self.refusals)

    def _hold_s(self, retry_after: float | None) -> float:
        if self.refusals > 1:
            backoff_s = min(LONGEST_BACKOFF_S, 2.0 ** (self.refusals - 1))
            return max(retry_after or 0.0, backoff_s)
        return retry_after or self._random.uniform(0.1, 1.0)

    def _learn_from_refusal(self, now: float, grant: Grant, refused: Mark) -> None:
        """Rate or number at once: what is known of the one is held to before the other is cut."""
        keep_coming = self._keep_coming(now)
        self._window.refuse(now, grant.beside)
        if keep_coming and self._rate_is_known and grant.beside and not self._window_binds:
            self._window_binds = True
            self._window.limit = grant.beside
        if self._rate_is_known or keep_coming or not self._window.is_found:
            self._finder.refuse(now, refused, self.held_until)

    def _keep_coming(self, now: float) -> bool:
        if self._rate_is_known or self._window.is_found:
            self._unexpected.append(now)
        full = len(self._unexpected) == REFUSALS_THAT_KEEP_COMING
        return full and now - self._unexpected[0] < KEEP_COMING_S

    # ---- how long the rest takes

    def holdup_s(self, parallel: int) -> float:
        """How long the waiting attempts take, if it were given all that it may use."""
        return self.waiting_s / max(1.0, min(self.limit, parallel))

    def paced_s(self, now: float) -> float:
        """How long it takes until the last of the waiting attempts may start."""
        requests = [self._requests, self._told_requests, self._finder.pace]
        tokens = [self._tokens, self._told_tokens]
        paced_s = max(
            [_until_sent(bucket, self.waiting_requests, now) for bucket in requests]
            + [
                _until_sent(bucket, self.waiting_tokens * self._ratios.correction, now)
                for bucket in tokens
            ]
        )
        return max(0.0, self.held_until - now) + paced_s


def _until_sent(bucket: Bucket | None, amount: float, now: float) -> float:
    if bucket is None or amount <= 0.0:
        return 0.0
    return max(0.0, amount - max(0.0, bucket.fill(now))) / bucket.rate


def _configured_requests(per_minute: float | None) -> Bucket | None:
    """Evenly, by a second's worth at most: many providers watch shorter times than a minute."""
    if not per_minute:
        return None
    return Bucket.full(per_minute / 60.0, max(1.0, per_minute / 60.0), -math.inf)


def _configured_tokens(per_minute: float | None) -> Bucket | None:
    """By a minute's worth at most: a single request may well take a good part of it."""
    if not per_minute:
        return None
    return Bucket.full(per_minute / 60.0, per_minute, -math.inf)


@dataclass(frozen=True, slots=True)
class _Told:
    per_minute: float | None
    left: float | None
    full_in_s: float | None


def _heard(
    bucket: Bucket | None, told: _Told, *, now: float, since: tuple[float, float]
) -> Bucket | None:
    """A bucket that knows what headers tell; `since`: when they were asked for, and what was sent
    after that."""
    if not told.per_minute or told.per_minute <= 0.0:
        return bucket
    rate = TOLD_SHARE * told.per_minute / 60.0
    if told.left is None:
        if bucket is None:
            return Bucket(rate, max(1.0, rate), 1.0, now)
        bucket.change(now, rate=rate, capacity=bucket.capacity)
        return bucket
    asked_at, sent = since
    level = told.left - sent + rate * (now - asked_at)
    if told.full_in_s is not None:
        capacity = told.left + told.full_in_s * told.per_minute / 60.0
    else:
        capacity = max(told.left + 1.0, bucket.capacity if bucket is not None else 1.0)
    capacity = max(1.0, min(capacity, told.per_minute))
    if bucket is None:
        return Bucket(rate, capacity, min(level, capacity), now)
    bucket.change(now, rate=rate, capacity=capacity)
    bucket.cap(now, level)
    return bucket
