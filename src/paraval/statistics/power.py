"""How much cases that ran could have shown; of a plan, `report.plan_power` tells it before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from paraval.statistics.distributions import (
    check_confidence,
    incomplete_beta,
    normal_quantile,
    student_quantile,
)
from paraval.statistics.pairs import adjust_sums, check_differences, is_pass_fail

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
    check_differences(differences)
    if not 0 < step <= 1:
        raise ValueError(f"a step is more than 0 and at most 1, not {step}")
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
    if among < 1:
        raise ValueError(f"a comparison is one among at least 1, not {among}")
    shows = _Shows(
        seen=seen,
        inside=interval_quantile(seen.pairs, confidence, is_normal=seen.is_pass_fail),
        alpha=(1 - confidence) / among,
        power=_check_power(power),
    )
    few, enough = 0.0, 1.0
    while enough - few > _FINE:
        middle = (few + enough) / 2
        if shows.often(middle):
            enough = middle
        else:
            few = middle
    return enough


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shows:
    """Whether cases like some that were seen would show a true difference."""

    seen: SeenSpread
    inside: float
    """Standard errors from the middle of the interval to its ends."""
    alpha: float
    """What the test must stay below."""
    power: float

    def often(self, difference: float) -> bool:
        n, step = self.seen.pairs, self.seen.step
        square = max(self.seen.square, step * difference)
        if not self.seen.is_pass_fail:
            # Repeats that waver do so around the difference, too.
            square = max(self.seen.square + difference**2, square)
        differing = square / step**2
        chance = NormalDist().inv_cdf(self.power) * math.sqrt((square - difference**2) / n)
        least = difference - chance
        if least <= 0:
            return False
        # With fewer wins, fewer cases differ.
        square -= step**2 * chance * difference / square
        if least <= normal_quantile(1 - self.alpha) * math.sqrt(square / n):
            return False
        adjusted = adjust_sums(n, n * least, n * square, step=step)
        if adjusted.mean <= self.inside * adjusted.error:
            return False
        # Both are roundings by the normal distribution. Where few cases differ, whole ones count:
        # so many wins, of a step each, and no fewer.
        winning = min(1.0, (differing + difference / step) / 2)
        return _at_least(self._fewest_wins(), n, winning) >= self.power

    def _fewest_wins(self) -> int:
        """Without a loss."""
        pairs, step = self.seen.pairs, self.seen.step
        # By mid-p McNemar 2^-n, by flips of signs, which are for repeats, 2 * 2^-n.
        sides = 1 if self.seen.is_pass_fail else 2
        wins = math.floor(math.log2(sides / self.alpha)) + 1
        while wins <= pairs:
            total = wins * step
            adjusted = adjust_sums(pairs, total, total * step, step=step)
            if adjusted.mean > self.inside * adjusted.error:
                break
            wins += 1
        return wins


def _at_least(wins: int, pairs: int, chance: float) -> float:
    """How likely so many of so many pairs are won, or more."""
    return incomplete_beta(wins, pairs - wins + 1, chance) if wins <= pairs else 0.0


def interval_quantile(pairs: int, confidence: float, *, is_normal: bool) -> float:
    """How many standard errors an interval of so many differences goes to each side."""
    if is_normal:
        return normal_quantile(confidence)
    check_confidence(confidence)
    return student_quantile(0.5 + confidence / 2, max(1, pairs - 1))


def _check_power(power: float) -> float:
    if not 0 < power < 1:
        raise ValueError(f"a power lies between 0 and 1, not at {power}")
    return power
