"""How much a number of cases can tell, before and after they ran (Miller 2024).

What the spread is, or is guessed to be, is decided by those who call.
"""

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
    one case on either side. Where that may be small, `pairs_needed_at_least` says more.
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
    """The smallest true difference that so many cases show with this power.

    Where the spread may be small, `detectable_at_least` says more.
    """
    if pairs < 1:
        raise ValueError(f"a difference is shown by at least one pair, not {pairs}")
    variance = _pair_variance(spread, within, repeats)
    return _reach(confidence, power) * math.sqrt(variance / pairs)


def detectable_at_least(
    pairs: int, *, confidence: float = 0.95, power: float = 0.8, floor: float = 1.0
) -> float:
    """What so many cases can show at the very best: take it where `detectable_difference` says
    less.

    A true difference d brings a variance of its own, however small the spread was without it: where
    a share d of the cases turns, and no other, d - d^2. `floor` is how much of that there is, as
    floor * d - d^2: 1 for cases that turn as a whole, 1 / K where one of K repeats does.
    """
    if pairs < 1:
        raise ValueError(f"a difference is shown by at least one pair, not {pairs}")
    # pairs * d^2 = square * (floor * d - d^2), solved for d.
    square = _reach(confidence, power) ** 2
    return _check_floor(floor) * square / (pairs + square)


def pairs_needed_at_least(
    difference: float, *, confidence: float = 0.95, power: float = 0.8, floor: float = 1.0
) -> float:
    """The other way round: take it where `pairs_needed` says less."""
    if not 0 < abs(difference) <= 1:
        raise ValueError(f"a difference of rates is not 0, and within -1 and 1, not {difference}")
    size = abs(difference)
    own = max(0.0, _check_floor(floor) * size - size * size)
    return _reach(confidence, power) ** 2 * own / size**2


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
    return normal_quantile(confidence) + NormalDist().inv_cdf(_check_power(power))


def _check_power(power: float) -> float:
    if not 0 < power < 1:
        raise ValueError(f"a power lies between 0 and 1, not at {power}")
    return power


def _check_floor(floor: float) -> float:
    if not 0 <= floor <= 1:
        raise ValueError(f"a floor lies within 0 and 1, not at {floor}")
    return floor
