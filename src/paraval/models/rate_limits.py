"""Reads rate limits and retry times from a provider's headers.

The headers are not trusted: garbage is ignored, and every wait is bounded. The caller passes the
time; only dates need it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType

from paraval.dataclass import dataclass
from paraval.records import RateTold

LONGEST_WAIT_S = 86_400.0
"""Longer waits are cut to this. From 15 minutes on, a wait means that a quota is used up."""
LARGEST_LIMIT = 1e12
SMALLEST_PER_MINUTE = 1.0
"""Lower rates are not used for pacing: small daily allowances are left to refusals."""
MINUTE_S = 60.0
LONGEST_PERIOD_S = 90_000.0
"""A day, and a little for rounding: no provider uses longer periods."""

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_UNITS = {
    "d": 86_400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
}
_PIECE = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ms|us|µs|ns|d|h|m|s)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PIECE.pattern})+", re.ASCII)
LONGEST_HEADER = 64
_NONE: Mapping[str, str] = MappingProxyType({})


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait before the next request; None if the headers give no valid value."""
    milliseconds = _number(headers.get("retry-after-ms", "").strip())
    if milliseconds is not None:
        seconds: float | None = milliseconds / 1000
    else:
        seconds = duration(headers.get("retry-after", ""), now, headers)
    if seconds is None or seconds <= 0:
        return None
    return min(seconds, LONGEST_WAIT_S)


def duration(text: str, now: float, headers: Mapping[str, str] = _NONE) -> float | None:
    """Seconds from `7`, `1.5`, `6m0s`, `500ms`, an HTTP date or an RFC 3339 time; never below 0.

    Times are relative to the server's `Date` header if there is one: our clock may be wrong.
    """
    text = text.strip()[:LONGEST_HEADER]
    if (number := _number(text)) is not None:
        return number
    if _DURATION.fullmatch(text):
        return sum(float(amount) * _UNITS[unit] for amount, unit in _PIECE.findall(text))
    moment = _moment(text)
    if moment is None:
        return None
    there = _moment(headers.get("date", "").strip()[:LONGEST_HEADER])
    return max(0.0, moment - (now if there is None else there))


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


@lru_cache(maxsize=64)
def _moment(text: str) -> float | None:
    """Seconds since the epoch; a time without a zone is UTC."""
    if len(text) < len("2026-01-01"):
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, IndexError, TypeError):
            continue
    return None


# ---- limits


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeaderLimit:
    """One limit: how many per period, how many are left, and the seconds until it is full again."""

    limit: float | None
    left: float | None
    full_in_s: float | None

    @property
    def per_minute(self) -> float | None:
        if self.limit is None or self.full_in_s is None or self.full_in_s <= MINUTE_S:
            rate = self.limit
        else:
            rate = self._slower_rate()
        return None if rate is None or rate < SMALLEST_PER_MINUTE else rate

    def _slower_rate(self) -> float | None:
        """The rate of a limit by the hour or the day, from how fast it refills. (A per-minute limit
        is never more than a minute from full.) A window that ends at midnight does not refill, and
        has no rate."""
        if self.limit is None or self.left is None or self.full_in_s is None:
            return None
        used = self.limit - self.left
        if used <= 0 or self.limit * self.full_in_s / used > LONGEST_PERIOD_S:
            return None
        return used / self.full_in_s * MINUTE_S

    @property
    def share_left(self) -> float:
        if self.limit is None or self.left is None:
            return 1.0
        return self.left / self.limit


def limits_in(headers: Mapping[str, str], now: float) -> RateTold | None:
    """The account's limits according to the headers; None if they have none."""
    if _LIMITS.isdisjoint(map(str.lower, headers)):
        return None
    requests = _limit(headers, _OPENAI_REQUESTS, now)
    tokens = _limit(headers, _OPENAI_TOKENS, now)
    if requests is None and tokens is None:
        requests = _limit(headers, _ANTHROPIC_REQUESTS, now)
        # Input and output have separate limits: the one closer to exhaustion counts.
        tokens = _tighter(_limit(headers, names, now) for names in _ANTHROPIC_TOKENS)
    if requests is None and tokens is None:
        return None
    requests, tokens = requests or _UNKNOWN, tokens or _UNKNOWN
    return RateTold(
        requests_per_minute=requests.per_minute,
        requests_left=requests.left,
        requests_full_in_s=requests.full_in_s,
        tokens_per_minute=tokens.per_minute,
        tokens_left=tokens.left,
        tokens_full_in_s=tokens.full_in_s,
    )


def fitting(limits: RateTold | None, tokens: float) -> RateTold | None:
    """Drop a token limit that is too small for this single request: with it, nothing would ever be
    sent."""
    if limits is None or limits.tokens_per_minute is None or limits.tokens_per_minute >= tokens:
        return limits
    return replace(limits, tokens_per_minute=None, tokens_left=None, tokens_full_in_s=None)


_UNKNOWN = _HeaderLimit(limit=None, left=None, full_in_s=None)
_Names = tuple[str, str, str]
"""The headers of a limit, of the amount left, and of the time until it is full again."""


def _openai(what: str) -> _Names:
    start = "x-ratelimit"
    return f"{start}-limit-{what}", f"{start}-remaining-{what}", f"{start}-reset-{what}"


def _anthropic(what: str) -> _Names:
    start = f"anthropic-ratelimit-{what}"
    return f"{start}-limit", f"{start}-remaining", f"{start}-reset"


_OPENAI_REQUESTS = _openai("requests")
_OPENAI_TOKENS = _openai("tokens")
_ANTHROPIC_REQUESTS = _anthropic("requests")
_ANTHROPIC_TOKENS = tuple(map(_anthropic, ("tokens", "input-tokens", "output-tokens")))
_LIMITS = frozenset(
    names[0]
    for names in (_OPENAI_REQUESTS, _OPENAI_TOKENS, _ANTHROPIC_REQUESTS, *_ANTHROPIC_TOKENS)
)
"""Most responses have none of these, so this check is quick."""


def _limit(headers: Mapping[str, str], names: _Names, now: float) -> _HeaderLimit | None:
    limit_text = headers.get(names[0])
    if limit_text is None:
        return None
    limit = _number(limit_text)
    if limit is None or not 1 <= limit <= LARGEST_LIMIT:
        return None
    left = _number(headers.get(names[1], ""))
    if left is not None:
        left = min(left, limit)
    full_in_s = duration(headers.get(names[2], ""), now, headers)
    if full_in_s is not None:
        full_in_s = min(full_in_s, LONGEST_WAIT_S)
    return _HeaderLimit(limit=limit, left=left, full_in_s=full_in_s)


def _tighter(limits: Iterable[_HeaderLimit | None]) -> _HeaderLimit | None:
    known = [limit for limit in limits if limit is not None]
    return min(known, key=lambda one: (one.share_left, one.limit or 0.0), default=None)
