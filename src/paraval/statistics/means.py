"""Means, and how far from them the truth may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from paraval.statistics.confidence import check_confidence
from paraval.statistics.distributions import student_quantile


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
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    if not values or any(map(math.isnan, values)):
        raise ValueError("a quantile needs numbers, at least one")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = ordered[math.floor(place)]
    above = ordered[math.ceil(place)]
    return below if below == above else below + (above - below) * (place % 1)
