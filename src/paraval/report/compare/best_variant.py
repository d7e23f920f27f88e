"""The best of several variants: how far its rate flatters it, and its rate on held-out cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import NormalDist, fmean, pvariance

from paraval.dataclass import dataclass
from paraval.records import Variant
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.claims import Quote, points
from paraval.report.summary.summary import Clusters
from paraval.report.summary.tally import Summary
from paraval.statistics.anytime import drawn_order
from paraval.text.words import counted, percent, percent_range, variant_label

FEWEST_VARIANTS = 3
FEWEST_CASES = 10
"""Of fewer, each interval says that nothing is known."""
_DRAWS = 4_000
_LEAST_EXCESS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class BestVariant:
    """The variant with the highest pass rate, of three or more."""

    variant: Variant
    of: int
    """How many variants it is the best of."""
    pass_rate: float
    """Of the cases that it was chosen by."""
    chosen_by: int
    """How many these are."""
    expected_excess: float | None
    """By how much the rate of the best is too high on average, as it was chosen for that; null if
    cases were held out."""
    held_out: int = 0
    """Cases that it was not chosen by, if the suite has `holdout`; its rate on them is not
    flattered."""
    held_out_rate: float | None = None
    held_out_interval: tuple[float, float] | None = None
    """At 95%, with the case as the unit."""


def best_variant(
    summary: Summary, book: CaseBook, holdout: float | None, seed: int
) -> BestVariant | None:
    """None for fewer than three variants, or too few cases to tell anything."""
    if len(summary.variants) < FEWEST_VARIANTS:
        return None
    if holdout is not None:
        return _held_out(book, holdout, seed)
    rated = [
        (one.pass_rate, _error(one.pass_rate_interval), one)
        for one in summary.variants
        if one.pass_rate is not None
        and one.pass_rate_interval is not None
        and one.cases >= FEWEST_CASES
    ]
    if len(rated) < FEWEST_VARIANTS:
        return None
    rate, _, best = max(rated, key=lambda one: one[0])
    return BestVariant(
        variant=best.variant,
        of=len(rated),
        pass_rate=rate,
        chosen_by=best.cases,
        expected_excess=expected_excess(
            [rate for rate, _, _ in rated], [error for _, error, _ in rated]
        ),
    )


def best_variant_sentence(one: BestVariant, quote: Quote) -> str:
    """`sage is the best of 5 variants partly by chance: on new cases, expect about 3 points less`;
    with held-out cases, its rate on these instead. Empty if there is nothing to say."""
    name, of = quote(variant_label(one.variant)), counted(one.of, "variant")
    if one.held_out_rate is not None and one.held_out_interval is not None:
        return (
            f"Held out: {name}, the best of {of} on {counted(one.chosen_by, 'case')}, passes"
            f" {percent(one.held_out_rate)} ({percent_range(*one.held_out_interval)}) of"
            f" {counted(one.held_out, 'other case')}"
        )
    excess = one.expected_excess or 0.0
    if excess < _LEAST_EXCESS:
        return ""
    less = points(round(excess, 2))
    return f"{name} is the best of {of} partly by chance: on new cases, expect about {less} less"


def expected_excess(rates: Sequence[float], errors: Sequence[float]) -> float:
    """By how much the highest of several rates is too high on average, if each has a standard
    error: simulated, from true rates that vary as much as these do beyond their errors."""
    mean, noise = fmean(rates), fmean(error * error for error in errors)
    spread = pvariance(rates) * len(rates) / (len(rates) - 1)
    kept = max(0.0, 1 - noise / spread) if spread else 0.0
    likely = [mean + kept * (rate - mean) for rate in rates]
    dice, total = random.Random(0), 0.0  # noqa: S311 - a simulation
    draws = max(200, _DRAWS // len(rates))
    for _ in range(draws):
        seen = [dice.gauss(rate, error) for rate, error in zip(likely, errors, strict=True)]
        best = max(range(len(seen)), key=seen.__getitem__)
        total += seen[best] - likely[best]
    return max(0.0, total / draws)


def _error(interval: tuple[float, float]) -> float:
    low, high = interval
    return (high - low) / 2 / NormalDist().inv_cdf(0.975)


def _held_out(book: CaseBook, holdout: float, seed: int) -> BestVariant | None:
    """The variant that is best on the other cases, on these."""
    cases = drawn_order([case for case, _ in book.rows()], seed)
    kept = set(cases[: round(holdout * len(cases))])
    clusters = {key: (Clusters(), Clusters()) for key in book.variants}
    for case, cells in book.rows():
        for key, cell in cells.items():
            clusters[key][case in kept].add([cell])
    rated = {key: rate for key, (one, _) in clusters.items() if (rate := one.rate()) is not None}
    if not rated:
        return None
    best = max(rated, key=rated.__getitem__)
    chosen, left = clusters[best]
    return BestVariant(
        variant=book.variants[best],
        of=len(rated),
        pass_rate=rated[best],
        chosen_by=len(chosen),
        expected_excess=None,
        held_out=len(left),
        held_out_rate=left.rate(),
        held_out_interval=left.rate_interval(),
    )
