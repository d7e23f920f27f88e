"""What an account may do: requests and tokens a minute, calls at once, a quota, storms.

Each bucket fills up evenly, as the providers' do. What is refused takes nothing from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paraval.loopback.exchange import Refusal, RefusalKind
from paraval.loopback.forms import Headers, Limits, RetryAfter, Storm

QUOTA_MESSAGE = (
    "You exceeded your current quota, please check your plan and billing details. "
    "(Simulated: the scenario's quota is used up.)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What holds for one account."""

    limits: Limits
    storm: Storm | None = None
    quota: int | None = None


class Bucket:
    """So many a minute, so many at once after a pause."""

    def __init__(self, per_minute: float, capacity: float, now: float) -> None:
        self.per_minute = per_minute
        self.capacity = capacity
        self._level = capacity
        self._at = now

    def level(self, now: float) -> float:
        gained = max(0.0, now - self._at) * self.per_minute / 60
        return min(self.capacity, self._level + gained)

    def take(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """How long until there is so much; more than there can ever be waits for a full bucket."""
        short = min(amount, self.capacity) - self.level(now)
        # What sums of small amounts lack by rounding is not lacking.
        return 0.0 if short <= 1e-9 * self.capacity else short * 60 / self.per_minute

    def full_in_s(self, now: float) -> float:
        return (self.capacity - self.level(now)) * 60 / self.per_minute


class Account:
    """One account's requests, over time."""

    def __init__(self, allowance: Allowance, now: float) -> None:
        limits = allowance.limits
        self.at_once = 0
        self._limits = limits
        self._allowance = allowance
        self._first_at = now
        self._admitted = 0
        self._buckets: dict[str, Bucket] = {}
        if limits.requests_per_minute is not None:
            burst = limits.burst or max(1.0, limits.requests_per_minute / 60)
            self._buckets["requests"] = Bucket(limits.requests_per_minute, burst, now)
        if limits.tokens_per_minute is not None:
            burst = limits.burst_tokens or limits.tokens_per_minute
            self._buckets["tokens"] = Bucket(limits.tokens_per_minute, burst, now)

    def admit(self, tokens: float, now: float) -> Refusal | None:
        """Lets a request in and counts it, or says why not. Who was let in must leave."""
        refusal = self._refusal(tokens, now)
        if refusal is None:
            self.at_once += 1
            self._admitted += 1
            for name, bucket in self._buckets.items():
                bucket.take(1 if name == "requests" else tokens, now)
        return refusal

    def leave(self) -> None:
        self.at_once -= 1

    def _refusal(self, tokens: float, now: float) -> Refusal | None:
        if self._allowance.quota is not None and self._admitted >= self._allowance.quota:
            return Refusal(kind=RefusalKind.QUOTA, status=429, message=QUOTA_MESSAGE)
        storm = self._allowance.storm
        if storm is not None:
            since = now - self._first_at - storm.from_s
            if 0 <= since < storm.for_s:
                told = retry_after_headers(storm.retry_after, storm.for_s - since)
                return _rate_refusal("The service is busy; please try again later.", told)
        concurrent = self._limits.concurrent
        if concurrent is not None and self.at_once >= concurrent:
            told = retry_after_headers(self._limits.retry_after, 1.0)
            return _rate_refusal(f"Too many requests at once: limit {concurrent}.", told)
        return self._empty_bucket(tokens, now)

    def _empty_bucket(self, tokens: float, now: float) -> Refusal | None:
        for name, bucket in self._buckets.items():
            wait_s = bucket.wait_s(1 if name == "requests" else tokens, now)
            if wait_s > 0:
                told = retry_after_headers(self._limits.retry_after, wait_s)
                return _rate_refusal(
                    f"Rate limit reached on {name} per min: limit {bucket.per_minute:g}. "
                    f"Please try again in {duration(wait_s)}.",
                    told,
                )
        return None

    def headers(self, own: Headers, now: float) -> dict[str, str]:
        """What is told of the limits; `own` is how the protocol tells them."""
        style = own if self._limits.headers is None else self._limits.headers
        if style is Headers.NONE:
            return {}
        told: dict[str, str] = {}
        for name, bucket in self._buckets.items():
            told.update(_TELLERS[style](name, bucket, now))
        return told


def _rate_refusal(message: str, headers: Mapping[str, str]) -> Refusal:
    return Refusal(kind=RefusalKind.RATE, status=429, message=message, headers=headers)


def retry_after_headers(told: RetryAfter | None, wait_s: float) -> dict[str, str]:
    """The header as the scenario wants it; where it says nothing, the truth, in whole seconds."""
    if told is False:
        return {}
    if told is None:
        return {"retry-after": str(max(1, math.ceil(wait_s)))}
    return {"retry-after": told if isinstance(told, str) else f"{told:g}"}


def _as_openai(name: str, bucket: Bucket, now: float) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{name}": f"{bucket.per_minute:.0f}",
        f"x-ratelimit-remaining-{name}": str(max(0, int(bucket.level(now)))),
        f"x-ratelimit-reset-{name}": duration(bucket.full_in_s(now)),
    }


def _as_anthropic(name: str, bucket: Bucket, now: float) -> dict[str, str]:
    # Whole seconds, as theirs; rounded up, so that nobody comes too early.
    full_at = datetime.now(UTC) + timedelta(seconds=bucket.full_in_s(now) + 0.999_999)
    return {
        f"anthropic-ratelimit-{name}-limit": f"{bucket.per_minute:.0f}",
        f"anthropic-ratelimit-{name}-remaining": str(max(0, int(bucket.level(now)))),
        f"anthropic-ratelimit-{name}-reset": full_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


_TELLERS = {Headers.OPENAI: _as_openai, Headers.ANTHROPIC: _as_anthropic}


def duration(seconds: float) -> str:
    """As OpenAI writes it: `6m0s`, `1.5s`, `20ms`; rounded up to milliseconds."""
    milliseconds = math.ceil(seconds * 1000 - 1e-6)
    if milliseconds < 1000:
        return f"{max(0, milliseconds)}ms" if milliseconds > 0 else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
