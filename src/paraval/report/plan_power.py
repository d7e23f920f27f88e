"""The power of a plan: what its cases and repeats can show, before money is spent (Miller 2024).

What a run did show is in its own comparisons.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import NormalDist, fmean, variance

from paraval.dataclass import dataclass
from paraval.records import Plan
from paraval.report.compare.case_results import CaseBook, Cell, variant_key
from paraval.report.compare.variants import axes_of, contests_of, value_pairs
from paraval.statistics.distributions import normal_quantile
from paraval.statistics.pairs import adjust_sums
from paraval.statistics.rates import apart, repeats_step, wilson

CONFIDENCE = 0.95
POWER = 0.8
MORE_CASES = (2, 4)
MORE_REPEATS = 3
"""How many times as many cases, or repeats, are shown beside the plan's own."""
FEWEST_MEASURED = 5
"""Fewer cases or repeats estimate the spread worse than the default assumption."""
FEWEST_DIFFERING = 20
"""Differing pairs of two variants that suffice to estimate their spread."""
MOST_PAIRS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much the pass or fail of cases and their repeats varies.

    Default assumption: the pass probabilities of cases are uniform between 0 and 1.
    """

    between: float = 1 / 9
    """Variance of the true difference of two variants, from case to case."""
    within: float = 1 / 6
    """Variance of the repeats of one case with one variant."""
    rate: float = 0.5
    cases: int = 0
    """Cases it was measured on; 0 if assumed."""
    is_split: bool = False
    """Whether repeats separated `between` and `within`; else only their sum is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSize:
    """How large a plan is."""

    cases: int
    """Cases that can be compared: with at least two variants, if there are several."""
    repeats: int
    variants: int
    comparisons: int
    """Comparisons of values of one axis, the one with the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProspectRow:
    """What a plan of this size can show."""

    cases: int
    repeats: int
    share: float | None
    """Of two variants: the smallest difference that is shown with POWER; None: no difference is.
    Of one variant: half the width of its rate's interval, at the spread's rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a plan can show, and what larger ones could."""

    size: PlanSize
    spread: Spread
    rows: tuple[ProspectRow, ...]
    """The plan's own comes first."""
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


def prospect_in(size: PlanSize, spread: Spread, told_by: str | None = None) -> Prospect | None:
    """What a plan of this size can show; None without cases."""
    if not size.cases:
        return None
    sizes = (
        size,
        *(replace(size, cases=size.cases * more) for more in MORE_CASES),
        replace(size, repeats=size.repeats * MORE_REPEATS),
    )
    rows = tuple(
        ProspectRow(
            cases=one.cases,
            repeats=one.repeats,
            share=_difference(one, spread) if one.variants > 1 else _half_width(one, spread),
        )
        for one in sizes
    )
    return Prospect(size=size, spread=spread, rows=rows, told_by=told_by if spread.cases else None)


def _confidence(size: PlanSize) -> float:
    """Confidence of the first of several comparisons, the strictest by Holm's method."""
    return 1 - (1 - CONFIDENCE) / size.comparisons


def _difference(size: PlanSize, spread: Spread) -> float | None:
    found = _smallest(size, spread)
    return None if size.cases < fewest_cases(size) or found >= 1 else found


def _reach(size: PlanSize) -> float:
    """Squared number of standard errors that a difference must reach."""
    return (normal_quantile(_confidence(size)) + NormalDist().inv_cdf(POWER)) ** 2


def _variance(size: PlanSize, spread: Spread) -> float:
    """Variance of the difference of two variants in one case."""
    return spread.between + 2 * spread.within / size.repeats


def _smallest(size: PlanSize, spread: Spread) -> float:
    """The d with cases * d^2 = reach * variance, for the larger variance of `_cases_for`."""
    reach = _reach(size)
    by_spread = math.sqrt(reach * _variance(size, spread) / size.cases)
    return max(by_spread, _floor(size, spread) * reach / (size.cases + reach))


def _floor(size: PlanSize, spread: Spread) -> float:
    """The share of its own spread that a difference keeps with repeats: 1 if whole cases change,
    down to 1 / repeats if only repeats vary."""
    once = _variance(replace(size, repeats=1), spread)
    if not once or (spread.cases and not spread.is_split):
        # No repeats of these cases were seen to vary.
        return 1.0
    return _variance(size, spread) / once


def fewest_cases(size: PlanSize) -> int:
    """The fewest cases with which a test can show anything, if one side wins all of them."""
    alpha = 1 - _confidence(size)
    # Smallest p: 2^-n by mid-p McNemar; 2 * 2^-n by sign flips, which are used with repeats.
    sides = 1 if size.repeats == 1 else 2
    return math.floor(math.log2(sides / alpha)) + 1


def _half_width(size: PlanSize, spread: Spread) -> float:
    """Half the width of Wilson's interval for the equivalent number of cases without repeats."""
    whole = spread.rate * (1 - spread.rate)
    share = min(1.0, spread.within / whole) if whole else 0.0
    effective = max(1, round(size.cases / (1 - share + share / size.repeats)))
    low, high = wilson(spread.rate * effective, effective)
    return (high - low) / 2


# ---- measured in an earlier run


def spread_in(book: CaseBook, plan: Plan) -> Spread | None:
    """How much a plan's cases and variants varied in an earlier run; None if too few of them were
    judged in it."""
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
        # Without repeats: the same share of the whole as assumed.
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
    """The variance of repeats; None if too few cases were repeated."""
    again = sum(cell.judged - 1 for cell in cells)
    squares = sum(cell.passed * cell.failed / cell.judged for cell in cells)
    return squares / again if again >= FEWEST_MEASURED else None


Pairs = Sequence[tuple[Cell, Cell]]
"""The cells of two variants, case by case."""


def _seen_variance(pairs: Pairs) -> float:
    """Variance of their difference. If few pairs differ, as in the interval of a comparison: with
    two added pairs, so that it is never 0. If many do, without them: the default assumption has
    none either, and a first run would make a plan look worse for no reason."""
    differences = [_rate(one) - _rate(other) for one, other in pairs]
    if sum(map(bool, differences)) >= FEWEST_DIFFERING:
        return variance(differences)
    squares = sum(difference * difference for difference in differences)
    step = repeats_step(squares, sum(apart(_rate(one), _rate(other)) for one, other in pairs))
    error = adjust_sums(len(pairs), sum(differences), squares, step=step).error
    return error * error * (len(pairs) + 2)


def _noise(pairs: Pairs) -> float:
    """How many times that contains the variance of a repeat."""
    return fmean(1 / one.judged + 1 / other.judged for one, other in pairs)
