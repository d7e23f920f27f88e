"""Rates, means and ratios: how often, how much, and how far from it the truth may be.

What is counted, and over what, is decided by those who call.
"""

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

# Means, and how far from them the truth may be.

# What repeats of a case add to what is known of it: how far one made-up pair may be from 0.

MADE_UP = 2
"""Pairs that an interval adds: one for each side."""


def apart(rate: float, other: float) -> float:
    """How often one repeat of a case passes on one side and fails on the other, by their rates."""
    return rate + other - 2 * rate * other


def repeats_step(squares: float, apart: float) -> float:
    """How large the two differences are that an interval makes up (`paired_interval`), from the
    sum of the squares of what was seen and the sum of `apart`, over the same cases.

    Repeats of a case make its difference smaller than that of one repeat alone, by as much as they
    waver: of K that go their own ways the square of a difference is a K-th of what it would be for
    one. That share of squares is the step. The made-up pairs count in it, as pairs whose repeats
    all agree: few cases, or cases that never waver, say nothing of others that may break for good.
    So it is 1 for one repeat of each case, 1 where all repeats agree, and comes near 1 / K for
    many cases that waver and don't differ.

    A plain 1 / K holds the truth far too seldom (44% instead of 95% for 5 cases of 10 repeats):
    it takes cases that never waver for well known.
    """
    return min(1.0, (squares + MADE_UP) / (apart + MADE_UP))


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Student's interval for a mean: (mean, low, high). One value says nothing of its spread."""
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


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of them stay below: 0.95 for p95, 0.5 for the median.

    Between two values it goes on a straight line (the definition that numpy, R and spreadsheets
    take when not told otherwise), so it is never above the largest or below the smallest.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = ordered[math.floor(place)]
    above = ordered[math.ceil(place)]
    return below if below == above else below + (above - below) * (place % 1)


# How many times as fast: ratios of seconds, by their logarithms.


def block_log_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """How much faster a candidate was in one block, as a logarithm; above 0: faster.

    Within an ABBA block the middle of both sides is the same moment, so a slow drift of the machine
    falls out.
    """
    return _mean_log(baseline) - _mean_log(candidate)


def speedup_interval(
    log_ratios: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """How many times as fast, from the log ratios of blocks: (estimate, low, high).

    The estimate is the geometric mean. One block has no interval: everything is possible.
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
"""Of a variance."""


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion.

    `successes` may be a fraction: a rate over repeats, scaled to the number of cases. Nothing
    measured (`n` = 0) leaves everything possible.
    """
    check_confidence(confidence)
    if n == 0:
        return (0.0, 1.0)
    return _score_interval(successes / n, n, confidence)


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval that holds the truth at least as often as it says, whatever the truth is.

    It is wider than Wilson's for it: the one to use where a guarantee is asked for.
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
    """The interval of a rate over repeats of cases, from (passed, judged) of each case.

    The rate is that of all that was judged; where cases are to weigh otherwise, counts may be
    fractions. Repeats of a case resemble one another, so they tell less than as many cases would:
    this is Wilson's interval for the number of independent trials that would have told as much.
    With one repeat of each case it is Wilson's own.

    That number is N / D of N judged. D, the design effect, is how many times the clustered variance
    (Miller 2024, times C / (C - 1) for C cases) is that of independent trials. Few cases, and fewer
    still where nearly all pass, say little of it, so one more case counts in whose repeats all
    agree: D is the mean of the D seen, with weight 4 p (1 - p) (C - 1), and the largest that can
    be, with weight 1. What is left is times (z / t)², as in any guess of a spread from C cases.
    It stays between the number of cases (fewer where some have many more repeats than others:
    Kish's effective number), taken also where the cases don't differ at all, and N.
    """
    check_confidence(confidence)
    judged = [(passed, n) for passed, n in clusters if n != 0]
    if not judged:
        return (0.0, 1.0)
    total = sum(n for _, n in judged)
    rate = sum(passed for passed, _ in judged) / total
    return _score_interval(rate, _effective_trials(judged, rate, confidence), confidence)


def pass_at_k(n: int, c: int, k: int) -> float:
    """How likely at least one of `k` repeats of a case passes, when `c` of `n` did; unbiased."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """How likely all of `k` repeats of a case pass, when `c` of `n` did; unbiased."""
    return math.comb(c, k) / math.comb(n, k)


def _score_interval(rate: float, n: float, confidence: float) -> tuple[float, float]:
    z = normal_quantile(confidence)
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At the ends the formula gives 0 and 1 but for rounding, which would show as a bound that
    # excludes what was measured.
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
    # Fractions that are the same rate differ by their rounding.
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
