"""Rates, means and ratios with their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from paraval.statistics.distributions import (
    beta_quantile,
    check_confidence,
    normal_quantile,
    student_quantile,
)

# Means and their intervals.

# What repeats of a case add: how far one pseudo-pair may be from 0.

MADE_UP = 2
"""Pseudo-pairs that an interval adds: one for each side."""


def apart(rate: float, other: float) -> float:
    """How often one repeat of a case passes on one side and fails on the other, from their
    rates."""
    return rate + other - 2 * rate * other


def repeats_step(squares: float, apart: float) -> float:
    """The size of the two pseudo-differences of an interval (`paired_interval`), from the sum of
    the squared differences and the sum of `apart`, over the same cases.

    Repeats shrink a case's difference as far as they vary: with K independent repeats the expected
    square of the difference is 1/K of that for one. That share of squares is the step. The
    pseudo-pairs count in it, as pairs whose repeats all agree: few cases, or cases that never vary,
    say nothing about others that may regress for good. So it is 1 for one repeat per case, 1 if all
    repeats agree, and approaches 1/K for many cases that vary and don't differ.

    A plain 1/K has far too little coverage (44% instead of 95% for 5 cases of 10 repeats): it takes
    cases that never vary for well known.
    """
    return min(1.0, (squares + MADE_UP) / (apart + MADE_UP))


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Student's interval for a mean: (mean, low, high). A single value says nothing about its
    variance."""
    check_confidence(confidence)
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"an interval needs finite values, at least one, not {list(values)}")
    mean = fmean(values)
    if len(values) == 1:
        return (mean, -math.inf, math.inf)
    df = len(values) - 1
    variance = math.fsum((value - mean) ** 2 for value in values) / df
    half = student_quantile(0.5 + confidence / 2, df) * math.sqrt(variance / len(values))
    return (mean, mean - half, mean + half)


def score_interval(
    values: Sequence[float], confidence: float = 0.95, *, least: float = 0.0
) -> tuple[float, float, float]:
    """The interval of a mean of values from `least` (0 for scores, -1 for their differences) to 1:
    (mean, low, high). It always has a width.

    Student's interval, widened on the side of a long tail (the first Cornish-Fisher term), and on
    both sides by what a sample of this size may have missed: a value that one in `1 / unseen` cases
    has is absent from n cases with probability 0.1.
    """
    mean, low, high = mean_interval(values, confidence)
    n, lowest, highest = len(values), min(least, *values), max(1.0, *values)
    if n == 1:
        return (mean, lowest, highest)
    squares = math.fsum((value - mean) ** 2 for value in values)
    cubes = math.fsum((value - mean) ** 3 for value in values)
    z = normal_quantile(confidence)
    skew = (2 * z * z + 1) / 6 * cubes / (squares * n) if squares > 1e-18 else 0.0
    unseen = 1 - min(0.5, 2 * (1 - confidence)) ** (1 / n)
    below = max(mean - low - min(0.0, skew), unseen * (mean - lowest))
    above = max(high - mean + max(0.0, skew), unseen * (highest - mean))
    return (mean, max(lowest, mean - below), min(highest, mean + above))


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile: 0.95 for p95, 0.5 for the median.

    Linear interpolation, the default of numpy, R and spreadsheets, so it is never above the largest
    or below the smallest value.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = ordered[math.floor(place)]
    above = ordered[math.ceil(place)]
    return below if below == above else below + (above - below) * (place % 1)


# Speedups: ratios of seconds, by their logarithms.


def block_log_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """How much faster a candidate was in one block, as a logarithm; above 0: faster.

    In an ABBA block the midpoints of both sides coincide, so a slow drift of the machine cancels
    out.
    """
    return _mean_log(baseline) - _mean_log(candidate)


def speedup_interval(
    log_ratios: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """The speedup from the log ratios of blocks: (estimate, low, high).

    The estimate is the geometric mean. With one block there is no interval: everything is possible.
    """
    mean, low, high = mean_interval(log_ratios, confidence)
    return (_exp(mean), _exp(low), _exp(high))


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


_DUST = 1e-20
"""For a variance."""


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion.

    `successes` may be a fraction: a rate over repeats, scaled to the number of cases. Without
    measurements (`n` = 0) everything is possible.
    """
    check_confidence(confidence)
    if n == 0:
        return (0.0, 1.0)
    return _score_interval(successes / n, n, confidence)


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval, whose coverage is at least nominal whatever the truth.

    It is wider than Wilson's: use it where a guarantee is needed.
    """
    check_confidence(confidence)
    if n == 0:
        return (0.0, 1.0)
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else beta_quantile(tail, successes, n - successes + 1)
    high = 1.0 if successes == n else beta_quantile(1 - tail, successes + 1, n - successes)
    return (low, high)


def clustered_rate_interval(
    clusters: Sequence[tuple[float, float]], confidence: float = 0.95
) -> tuple[float, float]:
    """The confidence interval of a rate over repeats of cases, from (passed, judged) of each case.

    The rate is that of all judged trials; for other weights of cases, counts may be fractions.
    Repeats of a case are correlated, so they contain less information than as many cases: this is
    Wilson's interval for the effective number of independent trials. With one repeat per case it is
    Wilson's own.

    That number is N / D of N judged. D, the design effect, is the ratio of the clustered variance
    (Miller 2024, times C / (C - 1) for C cases) to that of independent trials. Few cases, and even
    more so cases that nearly all pass, say little about it, so one more case counts whose repeats
    all agree: D is the mean of the observed D, with weight 4 p (1 - p) (C - 1), and the largest
    possible one, with weight 1. The result is multiplied by (z / t)², as for any variance estimated
    from C cases. It stays between the number of cases (fewer if some have many more repeats than
    others: Kish's effective number), also used if the cases don't differ at all, and N.
    """
    check_confidence(confidence)
    judged = [(passed, n) for passed, n in clusters if n != 0]
    if not judged:
        return (0.0, 1.0)
    total = sum(n for _, n in judged)
    rate = sum(passed for passed, _ in judged) / total
    return _score_interval(rate, _effective_trials(judged, rate, confidence), confidence)


def pass_at_k(n: int, c: int, k: int) -> float:
    """pass@k: the probability that at least one of `k` repeats passes, when `c` of `n` did;
    unbiased."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """pass^k: the probability that all of `k` repeats pass, when `c` of `n` did; unbiased."""
    return math.comb(c, k) / math.comb(n, k)


def _score_interval(rate: float, n: float, confidence: float) -> tuple[float, float]:
    z = normal_quantile(confidence)
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At the ends the formula gives 0 and 1 except for rounding, which would show as a bound that
    # excludes the measured value.
    low = 0.0 if rate == 0 else max(0.0, center - half)
    high = 1.0 if rate == 1 else min(1.0, center + half)
    return (low, high)


def _effective_trials(
    clusters: Sequence[tuple[float, float]], rate: float, confidence: float
) -> float:
    cases = len(clusters)
    total = sum(n for _, n in clusters)
    squares = sum(n * n for _, n in clusters)
    fewest = total * total / squares
    between = math.fsum((passed - rate * n) ** 2 for passed, n in clusters)
    # Equal rates may differ by rounding.
    if cases == 1 or between <= _DUST * squares:
        return fewest
    variance = between / (total * total) * cases / (cases - 1)
    largest = total / fewest
    seen = min(max(1.0, variance * total / (rate * (1 - rate))), largest)
    weight = 4 * rate * (1 - rate) * (cases - 1)
    design_effect = (weight * seen + largest) / (weight + 1)
    t = student_quantile(0.5 + confidence / 2, cases - 1)
    effective = total / design_effect * (normal_quantile(confidence) / t) ** 2
    return max(fewest, min(effective, total))
