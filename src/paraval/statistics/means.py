"""Means, and how far from them the truth may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from paraval.statistics.distributions import check_confidence, student_quantile

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

    A plain 1 / K holds the truth far too seldom (44 % instead of 95 % for 5 cases of 10 repeats):
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
