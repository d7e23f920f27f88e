"""Power: the smallest difference that completed cases could have detected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from paraval.dataclass import dataclass
from paraval.statistics.distributions import incomplete_beta, normal_quantile
from paraval.statistics.pairs import adjust_sums, interval_quantile, is_pass_fail

_FINE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSpread:
    """What observed differences say about the variance of others."""

    pairs: int
    square: float
    """The mean of their squares."""
    step: float
    """The step of their interval (`paired_interval`)."""
    is_pass_fail: bool


def seen_spread(differences: Sequence[float], *, step: float = 1.0) -> SeenSpread:
    return SeenSpread(
        pairs=len(differences),
        square=math.fsum(value * value for value in differences) / len(differences),
        step=step,
        is_pass_fail=is_pass_fail(differences, step),
    )


def detectable_from(
    seen: SeenSpread, confidence: float = 0.95, power: float = 0.8, *, among: int = 1
) -> float:
    """The minimum detectable difference: the smallest true difference that as many cases with this
    variance show with this power, both by the test, at the strictest level among `among`
    comparisons, and by the interval. 1 if there are too few cases to show any.

    The variance is at least the observed one, since a true difference adds its own: the mean square
    of a difference is at least step times the difference, as if only wins were added. So cases that
    all agree cannot detect everything. With mixed repeats this assumes that the difference is
    spread evenly over cases; one concentrated in a few cases is detected less often.
    """
    inside = interval_quantile(seen.pairs, confidence, is_normal=seen.is_pass_fail)
    alpha = (1 - confidence) / among
    fewest_wins = _fewest_wins(seen, inside, alpha)
    few, enough = 0.0, 1.0
    while enough - few > _FINE:
        middle = (few + enough) / 2
        # Both are normal approximations. If few cases differ, whole cases count: this many wins of
        # one step each, and no fewer.
        if (
            _is_shown(middle, seen, inside, alpha, power)
            and _at_least(fewest_wins, seen.pairs, _winning(middle, seen)) >= power
        ):
            enough = middle
        else:
            few = middle
    return enough


def _square(difference: float, seen: SeenSpread) -> float:
    square = max(seen.square, seen.step * difference)
    # Mixed repeats also vary around the difference.
    return square if seen.is_pass_fail else max(seen.square + difference**2, square)


def _winning(difference: float, seen: SeenSpread) -> float:
    """The probability that a case is won."""
    return min(1.0, (_square(difference, seen) / seen.step**2 + difference / seen.step) / 2)


def _is_shown(
    difference: float, seen: SeenSpread, inside: float, alpha: float, power: float
) -> bool:
    """Whether cases like the observed ones would show a true difference, by the test, which must
    stay below `alpha`, and by the interval of `inside` standard errors on each side."""
    n, step, square = seen.pairs, seen.step, _square(difference, seen)
    chance = NormalDist().inv_cdf(power) * math.sqrt((square - difference**2) / n)
    least = difference - chance
    if least <= 0:
        return False
    # With fewer wins, fewer cases differ.
    square -= step**2 * chance * difference / square
    if least <= normal_quantile(1 - alpha) * math.sqrt(square / n):
        return False
    adjusted = adjust_sums(n, n * least, n * square, step=step)
    return adjusted.mean > inside * adjusted.error


def _fewest_wins(seen: SeenSpread, inside: float, alpha: float) -> int:
    """Without a loss."""
    # 2^-n by mid-p McNemar; 2 * 2^-n by sign flips, which are for repeats.
    sides = 1 if seen.is_pass_fail else 2
    wins = math.floor(math.log2(sides / alpha)) + 1
    while wins <= seen.pairs:
        total = wins * seen.step
        adjusted = adjust_sums(seen.pairs, total, total * seen.step, step=seen.step)
        if adjusted.mean > inside * adjusted.error:
            break
        wins += 1
    return wins


def _at_least(wins: int, pairs: int, chance: float) -> float:
    """The probability that at least this many of the pairs are won."""
    return incomplete_beta(wins, pairs - wins + 1, chance) if wins <= pairs else 0.0
