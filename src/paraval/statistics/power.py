"""How much cases that ran could have shown; of a plan, `report.plan_power` tells it before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from paraval.statistics.distributions import incomplete_beta, normal_quantile
from paraval.statistics.pairs import adjust_sums, interval_quantile, is_pass_fail

_FINE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSpread:
    """What differences that were seen tell of how much others would vary."""

    pairs: int
    square: float
    """The mean of their squares."""
    step: float
    """Of their interval (`paired_interval`)."""
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
    """The smallest true difference that as many cases, spread like these, show with this power: by
    the test, as strict as the first of so many comparisons (`among`) is held to, and by the
    interval. 1 where they are too few to show any.

    They are spread as these were, or more, since a true difference has a spread of its own: the
    square of a case's difference is on average at least as large as step times the difference, as
    where only wins are added. So cases that all agree cannot show everything. With repeats that
    waver, it is a difference that lies evenly on the cases; one that comes from a few that turn for
    good is shown less often.
    """
    inside = interval_quantile(seen.pairs, confidence, is_normal=seen.is_pass_fail)
    alpha = (1 - confidence) / among
    fewest_wins = _fewest_wins(seen, inside, alpha)
    few, enough = 0.0, 1.0
    while enough - few > _FINE:
        middle = (few + enough) / 2
        # Both are roundings by the normal distribution. Where few cases differ, whole ones count:
        # so many wins, of a step each, and no fewer.
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
    # Repeats that waver do so around the difference, too.
    return square if seen.is_pass_fail else max(seen.square + difference**2, square)


def _winning(difference: float, seen: SeenSpread) -> float:
    """How likely a case is won."""
    return min(1.0, (_square(difference, seen) / seen.step**2 + difference / seen.step) / 2)


def _is_shown(
    difference: float, seen: SeenSpread, inside: float, alpha: float, power: float
) -> bool:
    """Whether cases like some that were seen would show a true difference, by the test, which must
    stay below `alpha`, and by the interval: `inside` standard errors lie on each side."""
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
    # By mid-p McNemar 2^-n, by flips of signs, which are for repeats, 2 * 2^-n.
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
    """How likely so many of so many pairs are won, or more."""
    return incomplete_beta(wins, pairs - wins + 1, chance) if wins <= pairs else 0.0
