"""Two sides on the same cases: how much they differ, and whether chance explains it.

A pair is a case; its difference is what the first side has more than the second. What is paired,
and in which words it is told, is decided by those who call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

from paraval.statistics.bootstrap import bootstrap_quantiles
from paraval.statistics.confidence import check_confidence, normal_quantile
from paraval.statistics.distributions import coin_chance, coin_tail, student_quantile
from paraval.statistics.flips import DUST, flip_p
from paraval.statistics.means import mean_interval
from paraval.statistics.repeats import MADE_UP

BOOTSTRAPPED_ALONE = 60
"""From so many pairs on the bootstrap needs no help."""
SUREST = 0.9999
"""Of two or three pairs, as many resamples as are drawn could tell no more."""


class Adjusted(NamedTuple):
    """Differences with two made-up pairs more, one for each side: their mean, and its standard
    error.

    The two pairs (Agresti and Min, Bonett and Price) keep an interval from having no width where
    all pairs agree, and make it hold the truth as often as it says with few pairs. They differ by
    one `step`: by 1, or less where repeats show that a case can differ by less (`repeats`).
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
    differences: Sequence[float], confidence: float = 0.95, *, step: float = 1.0
) -> tuple[float, float, float]:
    """The mean difference of pairs, and its interval: (mean, low, high); never without width.

    Differences lie within -1 and 1. Where each is -1, 0 or 1 it is the interval of Bonett and
    Price (2012). Else, as with rates over repeats, it is the same with Student's t (n - 1) in place
    of the normal distribution, since the spread is then guessed and not given by the counts. For
    repeats, `repeats_step` gives the step; simulated for 2 to 10 repeats of 5 to 100 cases, the
    interval then holds the truth 94 % of the time or more, and 91 % at worst: where most cases
    waver a little and a few, rarely seen, break for good.
    """
    quantile = half_width_quantile(differences, confidence, step=step)
    mean = fmean(differences)
    adjusted = adjust(differences, step=step)
    low = adjusted.mean - quantile * adjusted.error
    high = adjusted.mean + quantile * adjusted.error
    return (mean, max(-1.0, min(low, mean)), min(1.0, max(high, mean)))


def adjust(differences: Sequence[float], *, step: float = 1.0) -> Adjusted:
    squares = math.fsum(value * value for value in differences)
    return adjust_sums(len(differences), math.fsum(differences), squares, step=step)


def adjust_sums(pairs: float, total: float, squares: float, *, step: float = 1.0) -> Adjusted:
    """The same from the number of pairs, the sum of their differences and that of the squares."""
    if not 0 < step <= 1:
        raise ValueError(f"a step is more than 0 and at most 1, not {step}")
    n = pairs + MADE_UP
    mean = total / n
    square = (squares + MADE_UP * step * step) / n
    return Adjusted(mean, math.sqrt(max(0.0, square - mean * mean) / n))


def half_width_quantile(
    differences: Sequence[float], confidence: float, *, step: float = 1.0
) -> float:
    """How many standard errors an interval of these differences goes to each side."""
    check_confidence(confidence)
    check_differences(differences)
    if is_pass_fail(differences, step):
        return normal_quantile(confidence)
    return student_quantile(0.5 + confidence / 2, max(1, len(differences) - 1))


def is_pass_fail(differences: Sequence[float], step: float = 1.0) -> bool:
    """Whether the counts of wins and losses say all: not where repeats waver, though the rates of
    both sides may be the same."""
    return step == 1 and all(value in (-1, 0, 1) for value in differences)


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


def score_interval(
    differences: Sequence[float],
    confidence: float = 0.95,
    *,
    seed: int = 0,
    resamples: int = 9_999,
) -> tuple[float, float]:
    """The interval of a mean difference of scores, which lie between 0 and 1.

    The bootstrap (BCa) is too narrow for few pairs, and Student's t for skewed ones. So below 60
    pairs it is all that either of them holds, the bootstrap for the confidence that makes up for a
    spread guessed from so few (Hesterberg 2015). One pair alone leaves all open.
    """
    n = len(differences)
    if n >= BOOTSTRAPPED_ALONE:
        return bca_interval(differences, confidence, seed=seed, resamples=resamples)
    _, low, high = mean_interval(differences, confidence)
    surer = _surer(confidence, n) if n > 1 else confidence
    bounds = bca_interval(differences, surer, seed=seed, resamples=resamples)
    lowest, highest = min(-1.0, *differences), max(1.0, *differences)
    return (max(lowest, min(low, bounds[0])), min(highest, max(high, bounds[1])))


def _surer(confidence: float, n: int) -> float:
    """The confidence for which a normal interval is as wide as Student's, and the spread is not
    too small by the one degree of freedom that a bootstrap forgets."""
    t = student_quantile(0.5 + confidence / 2, n - 1)
    return min(SUREST, 2 * NormalDist().cdf(t * math.sqrt(n / (n - 1))) - 1)


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
