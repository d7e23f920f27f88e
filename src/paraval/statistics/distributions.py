"""Distributions that the standard library lacks: Student's t, beta and binomial; and the valid
confidence levels."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

# Confidence levels, and their normal quantiles.


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")


@lru_cache(maxsize=64)
def normal_quantile(confidence: float) -> float:
    """The z-value: standard deviations on each side of the mean that contain a normal variable with
    this confidence."""
    check_confidence(confidence)
    return NormalDist().inv_cdf(0.5 + confidence / 2)


MOST_COUNTED = 500
"""Up to this many coins are counted in exact integers."""


@lru_cache(maxsize=4096)
def student_quantile(p: float, df: int) -> float:
    """The quantile of Student's t with `df` degrees of freedom at probability `p`."""
    if p == 0.5:
        return 0.0
    tail = min(p, 1 - p)
    low, high = 0.0, 1.0
    while student_tail(high, df) > tail:
        low, high = high, high * 2
    # Bisection down to adjacent floats: quick enough, since each is computed once.
    while low < (middle := (low + high) / 2) < high:
        if student_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return math.copysign(high, p - 0.5)


def student_tail(t: float, df: int) -> float:
    """The upper tail probability at `t`, for t >= 0."""
    if t < 1:
        # Near 0 the other form would lose precision to rounding.
        return 0.5 - incomplete_beta(0.5, df / 2, t * t / (df + t * t)) / 2
    return incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    # The continued fraction converges fast on one side of the mean; the other side is its mirror.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def beta_quantile(p: float, a: float, b: float) -> float:
    """The quantile of Beta(a, b) at probability `p`."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if incomplete_beta(a, b, middle) < p:
            low = middle
        else:
            high = middle
    return high


def coin_chance(heads: int, coins: int) -> float:
    """The probability of exactly this many heads among fair coins."""
    if coins <= MOST_COUNTED:
        return math.comb(coins, heads) / (1 << coins)
    ways = math.lgamma(coins + 1) - math.lgamma(heads + 1) - math.lgamma(coins - heads + 1)
    return math.exp(ways - coins * math.log(2))


def coin_tail(heads: int, coins: int) -> float:
    """The probability of at most this many heads among fair coins."""
    if coins <= MOST_COUNTED:
        return sum(math.comb(coins, k) for k in range(heads + 1)) / (1 << coins)
    return incomplete_beta(coins - heads, heads + 1, 0.5) if heads < coins else 1.0


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    value = d
    # It takes about the square root of the larger parameter in steps.
    for m in range(1, 500 + 10 * math.isqrt(int(max(a, b)))):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1 / ((1 + part * d) or tiny)
            c = (1 + part / c) or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value
