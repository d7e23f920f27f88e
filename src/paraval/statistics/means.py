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
