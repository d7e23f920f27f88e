"""An interval for a mean that holds whenever one looks, by betting (Waudby-Smith and Ramdas, 2024).

Against each mean that the truth might be, a bettor stakes a fixed share of its capital on every
value. Were that the mean, the capital would ever reach 20 with a chance of at most one in 20: so
the means against which it did are ruled out. All shares are staked at once, in equal parts, which
needs no foresight and makes the order of the values irrelevant: they may be counted.

For values of -1, 0 and 1 the capital against 0 is that of the sign test in `sequential`, so that
what it decides and what the interval leaves out are the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from paraval.statistics.confidence import check_confidence

_STEPS = 64
"""Values are rounded to so many steps of a half where there are many different ones: each towards
what rules out less."""
_FEW = 8
_SHARES = 32
_NEAR = 1e-7
"""No bound is found closer."""


def betting_interval(values: Iterable[float], confidence: float = 0.95) -> tuple[float, float]:
    """Where the mean of values from [-1, 1] may lie, at every number of them at once.

    Without any, everything is possible. Values must come in an order that has nothing to do with
    what they are.
    """
    check_confidence(confidence)
    counts = Counter(values)
    if not all(-1 <= value <= 1 for value in counts):
        raise ValueError("a difference lies between -1 and 1")
    needed = -math.log(1 - confidence)
    low = _ruled_out_up_to(_in_steps(counts, sign=1), needed)
    high = 1 - _ruled_out_up_to(_in_steps(counts, sign=-1), needed)
    return 2 * low - 1, 2 * high - 1


def _in_steps(counts: Mapping[float, int], sign: int) -> Mapping[float, int]:
    """The values as shares of [0, 1], seen from one end; rounded down where they are many."""
    if len(counts) <= _FEW:
        return {(1 + sign * value) / 2: n for value, n in counts.items()}
    rounded: Counter[float] = Counter()
    for value, n in counts.items():
        rounded[math.floor((1 + sign * value) / 2 * _STEPS + 1e-9) / _STEPS] += n
    return rounded


def _ruled_out_up_to(counts: Mapping[float, int], needed: float) -> float:
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


def _log_capital(counts: Sequence[tuple[float, int]], mean: float) -> float:
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
