"""How many times as fast: ratios of seconds, by their logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from paraval.statistics.means import mean_interval


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
