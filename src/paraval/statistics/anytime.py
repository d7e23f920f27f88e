"""A test and an interval for a mean that hold whenever one looks, by betting (Waudby-Smith and
Ramdas, 2024).

Against each mean that the truth might be, a bettor stakes a fixed share of its capital on every
value. Were that the mean, the capital would ever reach 20 with a chance of at most one in 20: so
the means against which it did are ruled out. All shares are staked at once, in equal parts, which
needs no foresight and makes the order of the values irrelevant: they may be counted.

The test is the bet against a mean of 0, so that what it decides and what the interval leaves out
are the same. For values of -1, 0 and 1 its capital has a closed form, which tests hold it against.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from operator import add

from paraval.statistics.distributions import check_confidence

# An order that has nothing to do with what is ordered: drawn by chance, the same for a seed.


def drawn_order(names: Sequence[str], seed: int) -> list[str]:
    """The names in random order.

    A name's place is a hash of itself and the seed alone: without some of them, or with more, the
    others keep their order.
    """
    key = blake2b(str(seed).encode()).digest()

    def lot(name: str) -> tuple[bytes, str]:
        # Half of a surrogate pair is no text, but may be a name all the same.
        text = name.encode(errors="surrogatepass")
        return blake2b(text, digest_size=16, key=key).digest(), name

    return sorted(names, key=lot)


_STEPS = 64
"""Where there are more different values than this, they are told by so many steps."""
_DIGITS = 12
"""What rounding leaves of thirds and tenths makes no value a different one."""
_SHARES = 32
_NEAR = 1e-7
"""No bound is found closer."""


class MeanTest:
    """Whether the mean of differences from [-1, 1] is another than 0, decided as they come.

    Not whether one side wins more often: few large losses may outweigh many small wins.
    """

    def __init__(self) -> None:
        self.wins = 0
        self.losses = 0
        self.best = 1.0
        """The largest e-value so far: what was decided once stays so."""
        weights = [math.log(weight / 2) for _, weight in _shares()]
        self._up = list(weights)
        """The logarithm of what each share came to that was staked on larger values ..."""
        self._down = list(weights)
        """... and on smaller ones."""

    def add(self, difference: float) -> None:
        """One pair more; above 0: the first side won it."""
        if difference == 0:
            return
        self.wins += difference > 0
        self.losses += difference < 0
        self._up = _sums(self._up, _gains(difference))
        self._down = _sums(self._down, _gains(-difference))
        self.best = max(self.best, self.e)

    @property
    def e(self) -> float:
        """What the bets made of 1. Were the mean 0, it would ever reach 20 with a chance of at most
        one in 20; infinite where that is beyond all numbers."""
        return _capital(self._up, self._down)

    @property
    def p(self) -> float:
        """The p-value that holds at any time."""
        return 1 / self.best

    def is_decided(self, alpha: float) -> bool:
        return self.best >= 1 / alpha

    def best_possible(self, remaining: int) -> float:
        """The e-value if one side won all that remains, by 1: none can come out higher.

        Of each difference the capital is a straight line, so it is largest at an end; and of the
        number of ends that are 1 it is convex, so it is largest where all are alike.
        """
        won = [remaining * gain for gain in _gains(1.0)]
        lost = [remaining * gain for gain in _gains(-1.0)]
        by_one = _capital(_sums(self._up, won), _sums(self._down, lost))
        by_other = _capital(_sums(self._up, lost), _sums(self._down, won))
        return max(by_one, by_other)

    def is_futile(self, remaining: int, alpha: float) -> bool:
        """Whether nothing that can still come would decide it."""
        return not self.is_decided(alpha) and self.best_possible(remaining) < 1 / alpha


def betting_interval(values: Iterable[float], confidence: float = 0.95) -> tuple[float, float]:
    """Where the mean of values from [-1, 1] may lie, at every number of them at once.

    Without any, everything is possible. Values must come in an order that has nothing to do with
    what they are.
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
    """Each value as a share of the step below it and of the step above, of the same mean.

    Logarithms of capital are concave, so this never rules out more, and hardly less.
    """
    told = [0.0] * (_STEPS + 1)
    for value, n in counts.items():
        place = (1 + value) / 2 * _STEPS
        below = min(math.floor(place), _STEPS - 1)
        told[below] += n * (below + 1 - place)
        told[below + 1] += n * (place - below)
    return {2 * step / _STEPS - 1: n for step, n in enumerate(told) if n}


def _ruled_out_up_to(counts: Mapping[float, float], needed: float) -> float:
    """The largest mean, of values from [0, 1], against which bets paid enough.

    Below the values' own mean, the capital falls as the mean grows that is bet against.
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
    """Of bets on larger and on smaller values, over all shares that may be staked.

    A bet on larger values may stake 1/mean of what a value is above the mean, one on smaller values
    1/(1 - mean): so they are weighed by the lengths of the two ranges.
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
    """The logarithm of what each share is worth after it, bet on larger values than 0."""
    return tuple(math.log1p(share * difference) for share, _ in _shares())


def _sums(logs: Sequence[float], gains: Sequence[float]) -> list[float]:
    return list(map(add, logs, gains))


def _capital(up: Sequence[float], down: Sequence[float]) -> float:
    try:
        # Each side by itself, so that mirrored pairs give the same to the last digit.
        return math.fsum(map(math.exp, up)) + math.fsum(map(math.exp, down))
    except OverflowError:
        return math.inf


@cache
def _shares() -> tuple[tuple[float, float], ...]:
    """Shares from 0 to 1 and their weights, which add up to 1: the nodes of Gauss and Legendre.

    Any would give bets that are fair; with these they earn what evenly spread ones would.
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
    """The polynomial of Legendre of the degree of our shares, and its slope."""
    before, now = 1.0, x
    for degree in range(2, _SHARES + 1):
        before, now = now, ((2 * degree - 1) * x * now - (degree - 1) * before) / degree
    return now, _SHARES * (x * now - before) / (x * x - 1)
