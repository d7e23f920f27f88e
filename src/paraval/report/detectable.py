"""What so many cases and repeats can show, before anything is spent on them (Miller 2024).

What a run did show is for its own comparisons to tell.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from paraval.records import Plan
from paraval.report.comparing.value_pairs import axes_of, value_pairs
from paraval.report.spread import Spread
from paraval.report.summary import variant_key
from paraval.statistics.power import (
    detectable_at_least,
    detectable_difference,
    pairs_needed,
    pairs_needed_at_least,
)
from paraval.statistics.rates import wilson

CONFIDENCE = 0.95
POWER = 0.8
MOST_REPEATS = 100
"""Who would need more of each case has other troubles."""
WORTH_SHOWING = (0.10, 0.05, 0.02, 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a plan is."""

    cases: int
    """That can be compared: with two variants at least, where there are several."""
    repeats: int
    variants: int
    comparisons: int
    """Of values of one axis, the one with most of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What it takes to show a smaller difference."""

    difference: float
    cases: int
    """With as many repeats as planned ..."""
    repeats: int | None
    """... or this often each of the planned cases; None: no number of repeats will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """What a plan can show."""

    size: Size
    spread: Spread
    difference: float | None
    """The smallest between two variants that is shown with this POWER; None where there is but one
    variant, or where no difference can be shown."""
    half_width: float | None
    """Of one variant's rate: how far its interval will reach to either side, at the spread's rate;
    None where there are several."""
    wanted: Wanted | None
    """None where there is one variant, or nothing smaller is worth showing."""
    told_by: str | None = None
    """The run that the spread was measured in."""


def size_of(plan: Plan) -> Size:
    trials = Counter((trial.case.id, variant_key(trial.variant)) for trial in plan.trials)
    variants = Counter(case for case, _ in trials)
    several = len(plan.variants) > 1
    by_axis = Counter(pair.axis for pair in value_pairs(axes_of(plan.variants)))
    return Size(
        cases=sum(number > 1 for number in variants.values()) if several else len(variants),
        repeats=max(1, round(len(plan.trials) / len(trials))) if trials else 1,
        variants=len(plan.variants),
        comparisons=max(by_axis.values(), default=1),
    )


def detectable(size: Size, spread: Spread, told_by: str | None = None) -> Detectable | None:
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


def _confidence(size: Size) -> float:
    """Of the first of several comparisons: the one that Holm asks most of."""
    return 1 - (1 - CONFIDENCE) / size.comparisons


def _difference(size: Size, spread: Spread) -> float | None:
    found = _smallest(size, spread)
    return None if size.cases < fewest_cases(size) or found >= 1 else found


def _smallest(size: Size, spread: Spread) -> float:
    by_spread = detectable_difference(
        size.cases,
        spread=spread.between,
        within=(spread.within, spread.within),
        repeats=(size.repeats, size.repeats),
        confidence=_confidence(size),
        power=POWER,
    )
    # Where hardly anything varied, as between runs of the same, a difference brings its own spread.
    at_least = detectable_at_least(
        size.cases, confidence=_confidence(size), power=POWER, floor=_floor(size, spread)
    )
    return max(by_spread, at_least)


def _floor(size: Size, spread: Spread) -> float:
    """How much of its own spread a difference keeps with so many repeats: 1 where cases turn as a
    whole, down to 1 / repeats where nothing but repeats varies."""
    once = spread.between + 2 * spread.within
    if not once or (spread.cases and not spread.is_split):
        # Nobody saw that repeats of these cases vary.
        return 1.0
    return (spread.between + 2 * spread.within / size.repeats) / once


def fewest_cases(size: Size) -> int:
    """How many cases it takes that a test can show anything, were one side ahead in all."""
    alpha = 1 - _confidence(size)
    # By mid-p McNemar 2^-n, by flips of signs, which are for repeats, 2 * 2^-n.
    sides = 1 if size.repeats == 1 else 2
    return math.floor(math.log2(sides / alpha)) + 1


def _wanted(size: Size, spread: Spread) -> Wanted | None:
    now = _difference(size, spread) or 1.0
    difference = next((one for one in WORTH_SHOWING if one < now), None)
    if difference is None:
        return None
    return Wanted(
        difference=difference,
        cases=_cases_for(difference, size, spread),
        repeats=_repeats_for(difference, size, spread),
    )


def _cases_for(difference: float, size: Size, spread: Spread) -> int:
    confidence = _confidence(size)
    by_spread = pairs_needed(
        difference,
        spread=spread.between,
        within=(spread.within, spread.within),
        repeats=(size.repeats, size.repeats),
        confidence=confidence,
        power=POWER,
    )
    at_least = pairs_needed_at_least(
        difference, confidence=confidence, power=POWER, floor=_floor(size, spread)
    )
    return max(math.ceil(by_spread), math.ceil(at_least), fewest_cases(size))


def _repeats_for(difference: float, size: Size, spread: Spread) -> int | None:
    """None where no number of them will do."""
    for often in range(size.repeats + 1, MOST_REPEATS + 1):
        repeated = replace(size, repeats=often)
        if size.cases < fewest_cases(repeated):
            return None
        if _smallest(repeated, spread) <= difference:
            return often
    return None


def _half_width(size: Size, spread: Spread) -> float:
    """Of Wilson's interval, for as many cases as would tell as much without repeats."""
    variance = spread.rate * (1 - spread.rate)
    share = min(1.0, spread.within / variance) if variance else 0.0
    effective = max(1, round(size.cases / (1 - share + share / size.repeats)))
    low, high = wilson(spread.rate * effective, effective)
    return (high - low) / 2
