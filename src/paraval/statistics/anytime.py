"""An anytime-valid test and confidence sequence for a mean, by betting (Waudby-Smith and Ramdas,
2024).

Against each candidate mean, a bettor stakes a fixed share of its capital on every value. If that
were the true mean, the capital would ever reach 20 with a probability of at most 1 in 20, so means
against which it did are ruled out. All shares are staked in parallel, in equal parts, which needs
no foresight and makes the order of the values irrelevant: they may be counted.

The test is the bet against a mean of 0, so the test and the interval always agree. For values of
-1, 0 and 1 the capital has a closed form, which the tests compare it with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from operator import add

from paraval.statistics.distributions import check_confidence

# A random order that is independent of the values and reproducible by seed.


def drawn_order(names: Sequence[str], seed: int) -> list[str]:
    """The names in random order.

    A name's position depends only on a hash of itself and the seed: adding or removing names keeps
    the order of the others.
    """
    key = blake2b(str(seed).encode()).digest()

    def lot(name: str) -> tuple[bytes, str]:
        # A lone surrogate cannot be encoded, but may be part of a name.
        text = name.encode(errors="surrogatepass")
        return blake2b(text, digest_size=16, key=key).digest(), name

    return sorted(names, key=lot)


_STEPS = 64
"""If there are more distinct values than this, they are rounded to this many steps."""
_DIGITS = 12
"""Values that differ only by rounding errors are the same."""
_SHARES = 32
_NEAR = 1e-7
"""Precision of the bounds."""


class MeanTest:
    """A sequential test of whether the mean of differences in [-1, 1] differs from 0.

    Not of whether one side wins more often: few large losses may outweigh many small wins.
    """

    def __init__(self) -> None:
        self.wins = 0
        self.losses = 0
        self.best = 1.0
        """The largest e-value so far: a decision is never revoked."""
        weights = [math.log(weight / 2) for _, weight in _shares()]
        self._up = list(weights)
        """Log capital of each share staked on larger values ..."""
        self._down = list(weights)
        """... and on smaller ones."""

    def add(self, difference: float) -> None:
        """Add one pair; above 0: the first side won it."""
        if difference == 0:
            return
        self.wins += difference > 0
        self.losses += difference < 0
        self._up = _sums(self._up, _gains(difference))
        self._down = _sums(self._down, _gains(-difference))
        self.best = max(self.best, self.e)

    @property
    def e(self) -> float:
        """The e-value: the capital that the bets made of 1. If the mean were 0, it would ever reach
        20 with a probability of at most 1 in 20; infinite if too large for a float."""
        return _capital(self._up, self._down)

    @property
    def p(self) -> float:
        """The anytime-valid p-value."""
        return 1 / self.best

    def is_decided(self, alpha: float) -> bool:
        return self.best >= 1 / alpha

    def best_possible(self, remaining: int) -> float:
        """The e-value if one side won all remaining pairs by 1: an upper bound.

        The capital is linear in each difference, so it is largest at an end; and convex in the
        number of ends that are 1, so it is largest where all are equal.
        """
        won = [remaining * gain for gain in _gains(1.0)]
        lost = [remaining * gain for gain in _gains(-1.0)]
        by_one = _capital(_sums(self._up, won), _sums(self._down, lost))
        by_other = _capital(_sums(self._up, lost), _sums(self._down, won))
        return max(by_one, by_other)

    def is_futile(self, remaining: int, alpha: float) -> bool:
        """Whether no possible remaining pairs would decide it."""
        return not self.is_decided(alpha) and self.best_possible(remaining) < 1 / alpha


def betting_interval(values: Iterable[float], confidence: float = 0.95) -> tuple[float, float]:
    """The confidence sequence of the mean of values in [-1, 1], valid at every sample size.

    Without values, everything is possible. The order of the values must be independent of them.
    """
    check_confidence(confidence)
    counts: Counter[float] = Counter()
    for value, n in Counter(values).items():
        counts[round(value, _DIGITS)] += n
    told = _in_steps(counts) if len(counts) > _STEPS else counts
    needed = -math.log(1 - confidence)
    low = _ruled_out_up_to({(1 + value) / 2: n for value, n in told.items()}, needed)
    high = 1 - _ruled_out_up_to({(1 - value) / 2: n for value, n in told.items()}, needed)
    return 2 * low - 1, 2 * high - 1


def _in_steps(counts: Mapping[float, int]) -> Mapping[float, float]:
    """Each value as a mix of the steps below and above it, with the same mean.

    The log of capital is concave, so this never rules out more, and hardly less.
    """
    told = [0.0] * (_STEPS + 1)
    for value, n in counts.items():
        place = (1 + value) / 2 * _STEPS
        below = min(math.floor(place), _STEPS - 1)
        told[below] += n * (below + 1 - place)
        told[below + 1] += n * (place - below)
    return {2 * step / _STEPS - 1: n for step, n in enumerate(told) if n}


def _ruled_out_up_to(counts: Mapping[float, float], needed: float) -> float:
    """The largest mean of values in [0, 1] against which the bets paid enough.

    Below the sample mean, the capital falls as the mean that is bet against grows.
    """
    total = sum(counts.values())
    if not total:
        return 0.0
    low, high = 0.0, math.fsum(value * n for value, n in counts.items()) / total
    pairs = list(counts.items())
    while high - low > _NEAR:
        middle = (low + high) / 2
        if middle >= 1 or _log_capital(pairs, middle) < needed:
            high = middle
        else:
            low = middle
    return low


def _log_capital(counts: Sequence[tuple[float, float]], mean: float) -> float:
    """The capital of bets on larger and on smaller values, over all possible shares.

    A bet on larger values may stake 1/mean of a value's excess over the mean, one on smaller values
    1/(1 - mean): they are weighted by the lengths of the two ranges.
    """
    rest = 1 - mean
    gains = [(value / mean - 1, (1 - value) / rest - 1, n) for value, n in counts]
    logs = []
    for share, weight in _shares():
        up = down = 0.0
        for above, below, n in gains:
            up += n * math.log1p(share * above)
            down += n * math.log1p(share * below)
        logs.append(math.log(weight * rest) + up)
        logs.append(math.log(weight * mean) + down)
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs))


@lru_cache(maxsize=1_000)
def _gains(difference: float) -> tuple[float, ...]:
    """The log capital of each share after a bet that values exceed 0."""
    return tuple(math.log1p(share * difference) for share, _ in _shares())


def _sums(logs: Sequence[float], gains: Sequence[float]) -> list[float]:
    return list(map(add, logs, gains))


def _capital(up: Sequence[float], down: Sequence[float]) -> float:
    try:
        # Each side separately, so that mirrored pairs give bitwise equal results.
        return math.fsum(map(math.exp, up)) + math.fsum(map(math.exp, down))
    except OverflowError:
        return math.inf


@cache
def _shares() -> tuple[tuple[float, float], ...]:
    """Shares from 0 to 1 and their weights, which sum to 1: Gauss-Legendre nodes.

    Any shares would be valid; these earn as much as evenly spread ones.
    """
    found = []
    for number in range(1, _SHARES + 1):
        x = math.cos(math.pi * (number - 0.25) / (_SHARES + 0.5))
        for _ in range(20):
            value, slope = _legendre(x)
            x -= value / slope
        _, slope = _legendre(x)
        found.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return tuple(found)


def _legendre(x: float) -> tuple[float, float]:
    """The Legendre polynomial of the degree of our shares, and its derivative."""
    before, now = 1.0, x
    for degree in range(2, _SHARES + 1):
        before, now = now, ((2 * degree - 1) * x * now - (degree - 1) * before) / degree
    return now, _SHARES * (x * now - before) / (x * x - 1)
