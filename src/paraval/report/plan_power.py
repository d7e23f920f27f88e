"""What so many cases and repeats can show, before anything is spent on them (Miller 2024).

What a run did show is for its own comparisons to tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import NormalDist, fmean, variance

from paraval.records import Plan
from paraval.report.compare.case_results import CaseBook, Cell, variant_key
from paraval.report.compare.variants import axes_of, contests_of, value_pairs
from paraval.statistics.distributions import normal_quantile
from paraval.statistics.pairs import adjust_sums
from paraval.statistics.rates import apart, repeats_step, wilson

CONFIDENCE = 0.95
POWER = 0.8
MOST_REPEATS = 100
"""Who would need more of each case has other troubles."""
WORTH_SHOWING = (0.10, 0.05, 0.02, 0.01)
FEWEST_MEASURED = 5
"""Fewer cases, or repeats of cases, tell less of how much they vary than a usual guess."""
FEWEST_DIFFERING = 20
"""Pairs that differ, of two variants, from which on these tell their spread by themselves."""
MOST_PAIRS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much cases and their repeats vary, as far as they pass or not.

    What is assumed where nothing is known: the chances of cases to pass lie evenly between 0 and 1.
    """

    between: float = 1 / 9
    """The variance of the true difference of two variants, from case to case."""
    within: float = 1 / 6
    """The variance of the repeats of one case, with one variant."""
    rate: float = 0.5
    cases: int = 0
    """What it was measured on; 0: it is assumed."""
    is_split: bool = False
    """Whether repeats told `between` and `within` apart; else only their sum is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSize:
    """How large a plan is."""

    cases: int
    """That can be compared: with two variants at least, where there are several."""
    repeats: int
    variants: int
    comparisons: int
    """Of values of one axis, the one with most of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredSize:
    """What it takes to show a smaller difference."""

    difference: float
    cases: int
    """With as many repeats as planned ..."""
    repeats: int | None
    """... or this often each of the planned cases; None: no number of repeats will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """What a plan can show."""

    size: PlanSize
    spread: Spread
    difference: float | None
    """The smallest between two variants that is shown with this POWER; None where there is but one
    variant, or where no difference can be shown."""
    half_width: float | None
    """Of one variant's rate: how far its interval will reach to either side, at the spread's rate;
    None where there are several."""
    wanted: RequiredSize | None
    """None where there is one variant, or nothing smaller is worth showing."""
    told_by: str | None = None
    """The run that the spread was measured in."""


def size_of(plan: Plan) -> PlanSize:
    trials = Counter((trial.case.id, variant_key(trial.variant)) for trial in plan.trials)
    variants = Counter(case for case, _ in trials)
    several = len(plan.variants) > 1
    by_axis = Counter(pair.axis for pair in value_pairs(axes_of(plan.variants)))
    return PlanSize(
        cases=sum(number > 1 for number in variants.values()) if several else len(variants),
        repeats=max(1, round(len(plan.trials) / len(trials))) if trials else 1,
        variants=len(plan.variants),
        comparisons=max(by_axis.values(), default=1),
    )


def detectable(size: PlanSize, spread: Spread, told_by: str | None = None) -> Detectable | None:
    """None where there is no case to show anything with."""
    if not size.cases:
        return None
    several = size.variants > 1
    return Detectable(
        size=size,
        spread=spread,
        difference=_difference(size, spread) if several else None,
        half_width=None if several else _half_width(size, spread),
        wanted=_wanted(size, spread) if several else None,
        told_by=told_by if spread.cases else None,
    )


def _confidence(size: PlanSize) -> float:
    """Of the first of several comparisons: the one that Holm asks most of."""
    return 1 - (1 - CONFIDENCE) / size.comparisons


def _difference(size: PlanSize, spread: Spread) -> float | None:
    found = _smallest(size, spread)
    return None if size.cases < fewest_cases(size) or found >= 1 else found


def _reach(size: PlanSize) -> float:
    """How many standard errors away a difference must be, squared."""
    return (normal_quantile(_confidence(size)) + NormalDist().inv_cdf(POWER)) ** 2


def _variance(size: PlanSize, spread: Spread) -> float:
    """Of the difference of two variants in one case."""
    return spread.between + 2 * spread.within / size.repeats


def _smallest(size: PlanSize, spread: Spread) -> float:
    """Where cases * d^2 = reach * variance, the larger of the two that `_cases_for` has."""
    reach = _reach(size)
    by_spread = math.sqrt(reach * _variance(size, spread) / size.cases)
    return max(by_spread, _floor(size, spread) * reach / (size.cases + reach))


def _floor(size: PlanSize, spread: Spread) -> float:
    """How much of its own spread a difference keeps with so many repeats: 1 where cases turn as a
    whole, down to 1 / repeats where nothing but repeats varies."""
    once = _variance(replace(size, repeats=1), spread)
    if not once or (spread.cases and not spread.is_split):
        # Nobody saw that repeats of these cases vary.
        return 1.0
    return _variance(size, spread) / once


def fewest_cases(size: PlanSize) -> int:
    """How many cases it takes that a test can show anything, were one side ahead in all."""
    alpha = 1 - _confidence(size)
    # By mid-p McNemar 2^-n, by flips of signs, which are for repeats, 2 * 2^-n.
    sides = 1 if size.repeats == 1 else 2
    return math.floor(math.log2(sides / alpha)) + 1


def _wanted(size: PlanSize, spread: Spread) -> RequiredSize | None:
    now = _difference(size, spread) or 1.0
    difference = next((one for one in WORTH_SHOWING if one < now), None)
    if difference is None:
        return None
    return RequiredSize(
        difference=difference,
        cases=_cases_for(difference, size, spread),
        repeats=_repeats_for(difference, size, spread),
    )


def _cases_for(difference: float, size: PlanSize, spread: Spread) -> int:
    # Where hardly anything varied, as between runs of the same, a difference d brings a variance of
    # its own: where a share d of the cases turns, and no other, d - d^2.
    own = _floor(size, spread) * difference - difference**2
    most = max(_variance(size, spread), own)
    return max(math.ceil(_reach(size) * most / difference**2), fewest_cases(size))


def _repeats_for(difference: float, size: PlanSize, spread: Spread) -> int | None:
    """None where no number of them will do."""
    for often in range(size.repeats + 1, MOST_REPEATS + 1):
        repeated = replace(size, repeats=often)
        if size.cases < fewest_cases(repeated):
            return None
        if _smallest(repeated, spread) <= difference:
            return often
    return None


def _half_width(size: PlanSize, spread: Spread) -> float:
    """Of Wilson's interval, for as many cases as would tell as much without repeats."""
    whole = spread.rate * (1 - spread.rate)
    share = min(1.0, spread.within / whole) if whole else 0.0
    effective = max(1, round(size.cases / (1 - share + share / size.repeats)))
    low, high = wilson(spread.rate * effective, effective)
    return (high - low) / 2


# ---- measured in an earlier run


def spread_in(book: CaseBook, plan: Plan) -> Spread | None:
    """How much a plan's cases and variants varied in an earlier run; None where too few of them
    were judged in it."""
    cases = {trial.case.id for trial in plan.trials}
    keys = {variant_key(variant) for variant in plan.variants}
    judged = (
        {key: cell for key, cell in cells.items() if key in keys and cell.judged}
        for case, cells in book.rows()
        if case in cases
    )
    rows = [row for row in judged if row]
    if len(rows) < FEWEST_MEASURED:
        return None
    cells = [cell for row in rows for cell in row.values()]
    rate, within = fmean(map(_rate, cells)), _within(cells)
    usual = Spread()
    if len(plan.variants) == 1:
        between, number = usual.between, len(rows)
        # Without repeats, as large a part of the whole as is assumed.
        assumed = rate * (1 - rate) * usual.within / (usual.rate * (1 - usual.rate))
    else:
        variants = {variant_key(variant): variant for variant in plan.variants}
        differing = (pair for contest in contests_of(variants) for pair in contest.matchup.keys)
        compared = (
            [(row[one], row[other]) for row in rows if one in row and other in row]
            for one, other in islice(differing, MOST_PAIRS)
        )
        known = [pairs for pairs in compared if len(pairs) >= FEWEST_MEASURED]
        if not known:
            return None
        seen, noise = fmean(map(_seen_variance, known)), fmean(map(_noise, known))
        assumed = seen * usual.within / (usual.between + usual.within * noise)
        between = max(0.0, seen - (assumed if within is None else within) * noise)
        number = max(map(len, known))
    return Spread(
        between=between,
        within=assumed if within is None else within,
        rate=rate,
        cases=number,
        is_split=within is not None,
    )


def _rate(cell: Cell) -> float:
    return cell.passed / cell.judged


def _within(cells: Sequence[Cell]) -> float | None:
    """The variance of repeats; None where too few cases were repeated."""
    again = sum(cell.judged - 1 for cell in cells)
    squares = sum(cell.passed * cell.failed / cell.judged for cell in cells)
    return squares / again if again >= FEWEST_MEASURED else None


Pairs = Sequence[tuple[Cell, Cell]]
"""The cells of two variants, case by case."""


def _seen_variance(pairs: Pairs) -> float:
    """Of their difference. Where few pairs differ, as the interval of the comparison has it: with
    two made-up pairs, so that it is never 0. Where many do, without: the usual guess has none
    either, and a first run would make a plan look worse by what nobody saw."""
    differences = [_rate(one) - _rate(other) for one, other in pairs]
    if sum(map(bool, differences)) >= FEWEST_DIFFERING:
        return variance(differences)
    squares = sum(difference * difference for difference in differences)
    step = repeats_step(squares, sum(apart(_rate(one), _rate(other)) for one, other in pairs))
    error = adjust_sums(len(pairs), sum(differences), squares, step=step).error
    return error * error * (len(pairs) + 2)


def _noise(pairs: Pairs) -> float:
    """How many times the variance of a repeat is in that."""
    return fmean(1 / one.judged + 1 / other.judged for one, other in pairs)
