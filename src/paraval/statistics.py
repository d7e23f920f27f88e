"""Intervals for what was measured: pure arithmetic on counts and on seconds.

Which trials are counted, which processes are measured, and over what, is decided by those who call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion.

    `successes` may be a fraction: a rate over repeats, scaled to the number of cases. Nothing
    measured (`n` = 0) leaves everything possible.
    """
    _check_confidence(confidence)
    if n == 0:
        return (0.0, 1.0)
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} are not possible")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At the ends the formula gives 0 and 1 but for rounding, which would show as a bound that
    # excludes what was measured.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return (low, high)


# ---- speed


def block_log_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """How much faster a candidate was in one block, as a logarithm; above 0: faster.

    Within an ABBA block the middle of both sides is the same moment, so a slow drift of the machine
    falls out.
    """
    return _mean_log(baseline) - _mean_log(candidate)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Student's interval for a mean: (mean, low, high). One value says nothing of its spread."""
    _check_confidence(confidence)
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"an interval needs finite values, at least one, not {list(values)}")
    mean = fmean(values)
    if len(values) == 1:
        return (mean, -math.inf, math.inf)
    df = len(values) - 1
    variance = math.fsum((value - mean) ** 2 for value in values) / df
    half = student_quantile(0.5 + confidence / 2, df) * math.sqrt(variance / len(values))
    return (mean, mean - half, mean + half)


def speedup_interval(
    log_ratios: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """How many times as fast, from the log ratios of blocks: (estimate, low, high).

    The estimate is the geometric mean. One block has no interval: everything is possible.
    """
    mean, low, high = mean_interval(log_ratios, confidence)
    return (_exp(mean), _exp(low), _exp(high))


@lru_cache(maxsize=4096)
def student_quantile(p: float, df: int) -> float:
    """The value that a variable of Student's t with `df` degrees of freedom stays below with
    probability `p`."""
    if not 0 < p < 1:
        raise ValueError(f"a probability of a quantile lies between 0 and 1, not at {p}")
    if df < 1:
        raise ValueError(f"Student's t has at least one degree of freedom, not {df}")
    if p == 0.5:
        return 0.0
    tail = min(p, 1 - p)
    low, high = 0.0, 1.0
    while _student_tail(high, df) > tail:
        low, high = high, high * 2
    # Halving until no float lies between: quick enough, as each is asked for once.
    while low < (middle := (low + high) / 2) < high:
        if _student_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return math.copysign(high, p - 0.5)


def _student_tail(t: float, df: int) -> float:
    """How likely it is to be above `t`, for t >= 0."""
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges fast on one side of the mean; the other side is its mirror.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1 / ((1 + part * d) or tiny)
            c = (1 + part / c) or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _mean_log(seconds: Sequence[float]) -> float:
    for value in seconds:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"a measurement is a number of seconds above 0, not {value}")
    if not seconds:
        raise ValueError("a side of a block has at least one measurement")
    return fmean(map(math.log, seconds))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
