"""The confidence interval of a drop in pass rate, by which a gate decides.

It is the interval of a comparison (`pairs`), but reaches lower where that one is too optimistic. A
gate that says "ruled out" must be wrong in at most 2.5 of 100 runs (at 95%), also if the few cases
that could have regressed happened not to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from paraval.statistics.distributions import check_confidence, incomplete_beta
from paraval.statistics.pairs import adjust_sums, interval_quantile, is_pass_fail, paired_interval
from paraval.statistics.rates import clopper_pearson

MOST_PAIRS = 1_000_000
"""The largest number of extra pairs worth suggesting."""


def drop_interval(
    differences: Sequence[float], confidence: float = 0.95, *, step: float = 1.0
) -> tuple[float, float, float]:
    """The mean difference (now minus before), and its interval: (mean, low, high).

    Pass and fail: the lower end is at most the Clopper-Pearson bound of the losses minus the wins.
    The Bonett-Price interval by itself rules out a drop of 5 points after 54 cases without a loss,
    although such a drop leaves 54 cases without one 6 times in 100.

    Repeats: the lower end treats a case with mixed repeats as one that may regress for good (a step
    of 1).
    """
    mean, low, high = paired_interval(differences, confidence, step=step)
    if not is_pass_fail(differences, step):
        _, low, _ = paired_interval(differences, confidence)
        return (mean, low, high)
    n = len(differences)
    wins, losses = differences.count(1), differences.count(-1)
    _, most = clopper_pearson(losses, n, confidence)
    return (mean, min(low, wins / n - most), high)


def pairs_to_tell(
    differences: Sequence[float], bound: float, confidence: float = 0.95, *, step: float = 1.0
) -> int | None:
    """How many more pairs like these would move the whole interval to one side of a bound.

    0 if it is there already; None if the mean is on the bound, or so close that a million pairs
    would not suffice.
    """
    check_confidence(confidence)
    n = len(differences)
    mean = math.fsum(differences) / n
    square = math.fsum(value * value for value in differences) / n
    is_normal = is_pass_fail(differences, step)
    # The upper end is that of a comparison.
    own_step = 1.0 if mean > bound else step

    def tells(pairs: int) -> bool:
        """The same differences scaled to this number, in the same proportions."""
        adjusted = adjust_sums(pairs, pairs * mean, pairs * square, step=own_step)
        half = interval_quantile(pairs, confidence, is_normal=is_normal) * adjusted.error
        if mean <= bound:
            return bound - adjusted.mean > half
        if adjusted.mean - bound <= half:
            return False
        if not is_normal:
            return True
        # For a mean at the bound, with as many wins: Clopper-Pearson inverted.
        wins, lost = (square + mean) / 2, pairs * (square - mean) / 2
        likely = incomplete_beta(lost + 1, pairs - lost, wins - bound) if lost < pairs else 0.0
        return likely > (1 + confidence) / 2

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
