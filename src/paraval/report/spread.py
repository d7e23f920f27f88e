"""How much cases and their repeats vary, as far as they pass or not: assumed, or measured in a
run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean

from paraval.records import Plan, Variant
from paraval.report.comparing.cells import CaseBook, Cell
from paraval.report.comparing.value_pairs import axes_of, value_pairs
from paraval.report.summary import variant_key
from paraval.statistics.pairs import adjust_sums
from paraval.statistics.repeats import apart, repeats_step

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


def spread_in(book: CaseBook, plan: Plan) -> Spread | None:
    """How much a plan's cases and variants varied in an earlier run; None where too few of them
    were judged in it."""
    cases = {trial.case.id for trial in plan.trials}
    seen = _Seen(list(islice(_compared(plan.variants), MOST_PAIRS)))
    keys = {variant_key(variant) for variant in plan.variants}
    for case, cells in book.rows():
        if case in cases:
            seen.add({key: cell for key, cell in cells.items() if key in keys and cell.judged})
    return seen.spread() if len(plan.variants) > 1 else seen.spread_of_one()


def _compared(variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    """Keys of variants that differ in one axis alone, by values that are compared."""
    keys = {variant_key(variant) for variant in variants}
    for axis, subject, reference in value_pairs(axes_of(variants)):
        for variant in variants:
            # As texts: 1, 1.0 and True are values of their own.
            if axis in variant and repr(variant[axis]) == repr(subject):
                one, other = variant_key(variant), variant_key({**variant, axis: reference})
                if other in keys:
                    yield one, other


class _Differences:
    """Of two variants, added up over cases."""

    def __init__(self) -> None:
        self.cases = 0
        self._differing = 0
        self._total = self._squares = self._noise = self._apart = 0.0

    def add(self, one: Cell, other: Cell) -> None:
        rate, other_rate = one.passed / one.judged, other.passed / other.judged
        difference = rate - other_rate
        self._apart += apart(rate, other_rate)
        self.cases += 1
        self._differing += difference != 0
        self._total += difference
        self._squares += difference * difference
        self._noise += 1 / one.judged + 1 / other.judged

    @property
    def variance(self) -> float:
        """Where few pairs differ, as the interval of the comparison has it: with two made-up pairs,
        so that it is never 0. Where many do, without: the usual guess has none either, and a first
        run would make a plan look worse by what nobody saw."""
        if self._differing >= FEWEST_DIFFERING:
            return (self._squares - self._total * self._total / self.cases) / (self.cases - 1)
        step = repeats_step(self._squares, self._apart)
        error = adjust_sums(self.cases, self._total, self._squares, step=step).error
        return error * error * (self.cases + 2)

    @property
    def noise(self) -> float:
        """How many times the variance of a repeat is in it."""
        return self._noise / self.cases


class _Seen:
    """What an earlier run tells, while its cases pass by."""

    def __init__(self, compared: Sequence[tuple[str, str]]) -> None:
        self._pairs = {pair: _Differences() for pair in compared}
        self._cases = self._cells = 0
        self._rates = self._squares = 0.0
        self._again = 0

    def add(self, cells: Mapping[str, Cell]) -> None:
        self._cases += bool(cells)
        for cell in cells.values():
            self._cells += 1
            self._rates += cell.passed / cell.judged
            self._squares += cell.passed * cell.failed / cell.judged
            self._again += cell.judged - 1
        for (one, other), differences in self._pairs.items():
            if one in cells and other in cells:
                differences.add(cells[one], cells[other])

    def _within(self) -> float | None:
        """None where too few cases were repeated."""
        return self._squares / self._again if self._again >= FEWEST_MEASURED else None

    def spread_of_one(self) -> Spread | None:
        if self._cases < FEWEST_MEASURED:
            return None
        rate, within = self._rates / self._cells, self._within()
        usual = Spread()
        # Without repeats, as large a part of the whole as is assumed.
        part = usual.within / (usual.rate * (1 - usual.rate))
        return Spread(
            within=part * rate * (1 - rate) if within is None else within,
            rate=rate,
            cases=self._cases,
            is_split=within is not None,
        )

    def spread(self) -> Spread | None:
        known = [pair for pair in self._pairs.values() if pair.cases >= FEWEST_MEASURED]
        if not known:
            return None
        variance = fmean(pair.variance for pair in known)
        noise = fmean(pair.noise for pair in known)
        within = self._within()
        if within is None:
            usual = Spread()
            within = variance * usual.within / (usual.between + usual.within * noise)
            is_split = False
        else:
            is_split = True
        return Spread(
            between=max(0.0, variance - within * noise),
            within=within,
            rate=self._rates / self._cells,
            cases=max(pair.cases for pair in known),
            is_split=is_split,
        )
