"""How much a number of cases can tell, before and after they ran (Miller 2024).

What the spread is, or is guessed to be, is decided by those who call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

from paraval.statistics.confidence import check_confidence, normal_quantile
from paraval.statistics.distributions import student_quantile
from paraval.statistics.pairs import (
    adjust,
    adjust_sums,
    check_differences,
    half_width_quantile,
    is_pass_fail,
)

MOST_PAIRS = 1_000_000
"""Who would need more pairs than that to tell cannot tell."""


def pairs_needed(
    difference: float,
    *,
    spread: float,
    within: tuple[float, float] = (0.0, 0.0),
    repeats: tuple[int, int] = (1, 1),
    confidence: float = 0.95,
    power: float = 0.8,
) -> float:
    """How many cases show a true difference with this power.

    `spread` is the variance of the true difference between cases, `within` that of the repeats of
    one case on either side.
    """
    if difference == 0 or not math.isfinite(difference):
        raise ValueError(f"a difference to be shown is not 0, and finite, not {difference}")
    variance = _pair_variance(spread, within, repeats)
    return _reach(confidence, power) ** 2 * variance / difference**2


def detectable_difference(
    pairs: int,
    *,
    spread: float,
    within: tuple[float, float] = (0.0, 0.0),
    repeats: tuple[int, int] = (1, 1),
    confidence: float = 0.95,
    power: float = 0.8,
) -> float:
    """The smallest true difference that so many cases show with this power."""
    if pairs < 1:
        raise ValueError(f"a difference is shown by at least one pair, not {pairs}")
    variance = _pair_variance(spread, within, repeats)
    return _reach(confidence, power) * math.sqrt(variance / pairs)


def detectable_from(
    differences: Sequence[float],
    confidence: float = 0.95,
    power: float = 0.8,
    *,
    step: float = 1.0,
) -> float:
    """The smallest true difference that as many cases, spread like these, show with this power.

    The spread is that of the interval (`paired_interval`, with its step), so it is never 0: cases
    that all agree cannot show everything.
    """
    check_differences(differences)
    return _reach(confidence, power) * adjust(differences, step=step).error


def pairs_to_tell(
    differences: Sequence[float], bound: float, confidence: float = 0.95, *, step: float = 1.0
) -> int | None:
    """How many more pairs like these would bring the whole interval to one side of a bound.

    0 where it is there already; None where the mean sits on the bound, or so near to it that a
    million pairs would not do.
    """
    n = len(differences)
    half_width_quantile(differences, confidence, step=step)
    if not math.isfinite(bound):
        raise ValueError(f"a bound is a finite number, not {bound}")
    mean = math.fsum(differences) / n
    square = math.fsum(value * value for value in differences) / n
    is_normal = is_pass_fail(differences, step)

    def tells(pairs: int) -> bool:
        adjusted = adjust_sums(pairs, pairs * mean, pairs * square, step=step)
        if is_normal:
            quantile = normal_quantile(confidence)
        else:
            quantile = student_quantile(0.5 + confidence / 2, max(1, pairs - 1))
        distance = adjusted.mean - bound if mean > bound else bound - adjusted.mean
        return distance > quantile * adjusted.error

    return _more_until(tells, n)


def _more_until(tells: Callable[[int], bool], n: int) -> int | None:
    if tells(n):
        return 0
    few, many = n, n + 1
    while not tells(many):
        if many - n >= MOST_PAIRS:
            return None
        few, many = many, n + min(MOST_PAIRS, 2 * (many - n))
    while many - few > 1:
        middle = (few + many) // 2
        if tells(middle):
            many = middle
        else:
            few = middle
    return many - n


def _pair_variance(spread: float, within: tuple[float, float], repeats: tuple[int, int]) -> float:
    for variance in (spread, *within):
        if not 0 <= variance < math.inf:
            raise ValueError(f"a variance is at least 0 and finite, not {variance}")
    for count in repeats:
        if count < 1:
            raise ValueError(f"a side has at least one repeat, not {count}")
    return spread + within[0] / repeats[0] + within[1] / repeats[1]


def _reach(confidence: float, power: float) -> float:
    """How many standard errors away a difference must be."""
    check_confidence(confidence)
    if not 0 < power < 1:
        raise ValueError(f"a power lies between 0 and 1, not at {power}")
    return normal_quantile(confidence) + NormalDist().inv_cdf(power)
