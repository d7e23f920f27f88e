"""Two sides on the same cases: how much they differ, and whether chance explains it.

A pair is a case; its difference is what the first side has more than the second. What is paired,
and in which words it is told, is decided by those who call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from paraval.statistics.bootstrap import bootstrap_quantiles
from paraval.statistics.confidence import check_confidence, normal_quantile
from paraval.statistics.distributions import coin_chance, coin_tail, student_quantile
from paraval.statistics.flips import DUST, flip_p


class Adjusted(NamedTuple):
    """Differences with one pair of +1 and one of -1 more: their mean, and its standard error.

    The two pairs (Agresti and Min, Bonett and Price) keep an interval from having no width where
    all pairs agree, and make it hold the truth as often as it says with few pairs.
    """

    mean: float
    error: float


def mcnemar_exact(wins: int, losses: int) -> float:
    """How likely so uneven a split, or one more uneven, is by chance: the two-sided exact p."""
    _check_split(wins, losses)
    if wins == losses:
        return 1.0
    return min(1.0, 2 * coin_tail(min(wins, losses), wins + losses))


def mcnemar_mid_p(wins: int, losses: int) -> float:
    """The exact p, less half of how likely this very split is.

    The exact test is too careful: splits are whole numbers, so it calls far fewer than 5 % of
    equal sides different. The mid-p comes close to 5 %, since how many pairs differ is itself a
    matter of chance. Were that number fixed, as where every pair differs, it could be 7.7 %.
    """
    _check_split(wins, losses)
    if wins == losses:
        return 1.0
    fewer, n = min(wins, losses), wins + losses
    return max(0.0, 2 * coin_tail(fewer, n) - coin_chance(fewer, n))


def paired_interval(
    differences: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """The mean difference of pairs, and its interval: (mean, low, high); never without width.

    Differences lie within -1 and 1. Where each is -1, 0 or 1 it is the interval of Bonett and
    Price (2012). Else, as with rates over repeats or scores, it is the same with Student's t in
    place of the normal distribution, since the spread is then guessed and not given by the counts.
    """
    quantile = half_width_quantile(differences, confidence)
    mean = fmean(differences)
    adjusted = adjust(differences)
    low = adjusted.mean - quantile * adjusted.error
    high = adjusted.mean + quantile * adjusted.error
    return (mean, max(-1.0, min(low, mean)), min(1.0, max(high, mean)))


def adjust(differences: Sequence[float]) -> Adjusted:
    squares = math.fsum(value * value for value in differences)
    return adjust_sums(len(differences), math.fsum(differences), squares)


def adjust_sums(pairs: float, total: float, squares: float) -> Adjusted:
    """The same from the number of pairs, the sum of their differences and that of the squares."""
    n = pairs + 2
    mean = total / n
    return Adjusted(mean, math.sqrt(max(0.0, (squares + 2) / n - mean * mean) / n))


def half_width_quantile(differences: Sequence[float], confidence: float) -> float:
    """How many standard errors an interval of these differences goes to each side."""
    check_confidence(confidence)
    check_differences(differences)
    if is_pass_fail(differences):
        return normal_quantile(confidence)
    return student_quantile(0.5 + confidence / 2, max(1, len(differences) - 1))


def is_pass_fail(differences: Sequence[float]) -> bool:
    return all(value in (-1, 0, 1) for value in differences)


def check_differences(differences: Sequence[float]) -> None:
    if not differences:
        raise ValueError("a difference needs at least one pair")
    for value in differences:
        if not -1 <= value <= 1:
            raise ValueError(f"a difference of rates lies within -1 and 1, not at {value}")


def sign_flip_p(differences: Sequence[float], *, seed: int = 0, resamples: int = 9_999) -> float:
    """How likely a mean difference this far from 0 is, were each as likely to go the other way.

    Exact where that can be counted: for up to 16 differences that are not 0, and for any number
    of them that are multiples of one fraction, as rates over repeats are. Else from as many
    random flips as `resamples` says, and the one that was seen.
    """
    if not differences or not all(math.isfinite(value) for value in differences):
        raise ValueError("flips of signs need finite differences, at least one")
    if resamples < 1:
        raise ValueError(f"a p-value needs at least one resample, not {resamples}")
    return flip_p(differences, seed=seed, resamples=resamples)


def bca_interval(
    differences: Sequence[float],
    confidence: float = 0.95,
    *,
    seed: int = 0,
    resamples: int = 9_999,
) -> tuple[float, float]:
    """The interval of the mean by the bootstrap over pairs, corrected for bias and skew (BCa).

    Differences that are all the same have an interval without width: such a sample says nothing
    of its spread.
    """
    check_confidence(confidence)
    if not differences or not all(math.isfinite(value) for value in differences):
        raise ValueError("a bootstrap needs finite differences, at least one")
    if resamples < 1:
        raise ValueError(f"a bootstrap needs at least one resample, not {resamples}")
    lowest, highest = min(differences), max(differences)
    if highest - lowest <= DUST:
        return (lowest, highest)
    return bootstrap_quantiles(differences, confidence, seed=seed, resamples=resamples)


def holm(ps: Sequence[float]) -> list[float]:
    """p-values of several comparisons, made larger (Holm 1979) so that the chance of any false
    claim among them stays what it is for one; in the order given."""
    for p in ps:
        if not 0 <= p <= 1:
            raise ValueError(f"a p-value lies between 0 and 1, not at {p}")
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = largest
    return adjusted


def _check_split(wins: int, losses: int) -> None:
    if wins < 0 or losses < 0:
        raise ValueError(f"{wins} wins and {losses} losses are not possible")
