"""Which claims are valid when early stopping decides the sample size.

Pairs come in the drawn order of their cases and count as a prefix without gaps: which trials have
ended at a given moment may depend on their outcome (failures are often quick), but the first cases
in a drawn order are a random sample whatever their outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from itertools import takewhile
from statistics import fmean

from paraval.dataclass import dataclass
from paraval.report.compare.case_pairs import (
    Cells,
    Matchup,
    Pairs,
    Setting,
    difference_of,
    judged_of,
    pairs_of,
    row_of,
)
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import (
    Comparison,
    Difference,
    EarlyStopState,
    Finding,
    Interval,
    Method,
    Ratio,
    Side,
)
from paraval.report.compare.compute import compare
from paraval.statistics.anytime import MeanTest, betting_interval, drawn_order


class Missing(Enum):
    """Why a case has no difference."""

    ENDED_WITHOUT = "all its trials ended, but it is not judged on both sides"
    NOT_YET = "it has not run, still runs, or was skipped"


def anytime_difference(
    pairs: Sequence[float | Missing | None],
    planned: int,
    confidence: float,
    comparisons: int = 1,
) -> tuple[Difference, EarlyStopState]:
    """Subject minus reference, from the differences of cases in drawn order, each in [-1, 1].

    A case that ended without a difference (or None) is skipped; counting stops at the first that
    has none yet. `planned` is the number of cases, `comparisons` the number of comparisons of the
    same question, for which the confidence is adjusted.
    """
    prefix = list(takewhile(lambda pair: pair is not Missing.NOT_YET, pairs))
    differences = [pair for pair in prefix if isinstance(pair, (int, float))]
    test, surest = MeanTest(), 0
    for number, one in enumerate(differences, start=1):
        before = test.best
        test.add(one)
        if test.best > before:
            surest = number
    alpha = (1 - confidence) / comparisons
    difference = Difference(
        mean=fmean(differences) if differences else 0.0,
        interval=_interval(differences, surest, 1 - alpha),
        p=test.p,
        adjusted_p=min(1.0, test.p * comparisons),
        method=Method.ANYTIME if differences else Method.NONE,
        wins=test.wins,
        losses=test.losses,
    )
    stopped = EarlyStopState(
        used=len(differences),
        planned=planned,
        decided=test.is_decided(alpha),
        futile=test.is_futile(max(0, planned - len(prefix)), alpha),
    )
    return difference, stopped


def _interval(differences: Sequence[float], surest: int, confidence: float) -> Interval:
    """The interval of the mean: after all differences, and after the first ones with which the test
    was most certain. What was ruled out once stays ruled out, whatever later pairs show."""
    low, high = betting_interval(differences, confidence)
    if 0 < surest < len(differences):
        first_low, first_high = betting_interval(differences[:surest], confidence)
        mean = fmean(differences)
        low, high = min(max(low, first_low), mean), max(min(high, first_high), mean)
    return low, high


# The difference of two sides when early stopping decides the sample size.

_UNKNOWN_WIDTH = (0.0, math.inf)

State = float | Missing
"""The difference of a case, or why it has none."""


def state_of(settings: Sequence[Setting]) -> State:
    """The difference of a case by its settings on both sides, or why it has none."""
    if any(side.skipped for setting in settings for side in setting):
        return Missing.NOT_YET
    judged = judged_of(settings)
    return difference_of(judged) if judged else Missing.ENDED_WITHOUT


def claiming(
    compared: Comparison, claim: tuple[Difference, EarlyStopState], *, among: int
) -> Comparison:
    """A comparison of the cases that count, with claims that are valid at any time."""
    difference, stopped = claim
    return replace(
        _of_no_fixed_number(compared),
        among=among,
        passing=difference if compared.cases else None,
        finding=_decided(difference) if stopped.decided else Finding.NOT_SHOWN,
        stopped=stopped,
    )


def claiming_nothing(compared: Comparison) -> Comparison:
    """For an unknown case order: the difference so far, without any claim."""
    passing = compared.passing
    if passing is not None:
        passing = replace(passing, p=1.0, adjusted_p=1.0, interval=(-1.0, 1.0), method=Method.NONE)
    return replace(_of_no_fixed_number(compared), passing=passing, finding=Finding.NOT_SHOWN)


def _of_no_fixed_number(compared: Comparison) -> Comparison:
    return replace(
        compared,
        score=None,
        detectable=None,
        seconds=_without_interval(compared.seconds),
        cost=_without_interval(compared.cost),
    )


def _without_interval(ratio: Ratio | None) -> Ratio | None:
    return None if ratio is None else replace(ratio, interval=_UNKNOWN_WIDTH)


def _decided(difference: Difference) -> Finding:
    """The finding by the mean if the interval excludes 0: pairs that were still running at the
    decision may have changed it."""
    low, high = difference.interval
    if low > 0:
        return Finding.BETTER
    return Finding.WORSE if high < 0 else Finding.NOT_SHOWN


# Two sides of which one may have stopped early: the sample size then depends on the results, so
# tests for a fixed sample size are not valid.


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoBooks:
    """The case results of both sides, and which variants are compared. For values of one run,
    both books are the same."""

    subject: CaseBook
    reference: CaseBook
    matchup: Matchup

    @property
    def is_one_run(self) -> bool:
        return self.subject is self.reference

    def states(self) -> dict[str, State]:
        """For each case that both plans have: its difference, or why it has none."""
        return {
            case: self._state(cells, self.reference.cells_of(case))
            for case, cells in self.subject.rows()
            if self.is_one_run
            or (case in self.reference and any(key in cells for key, _ in self.matchup.keys))
        }

    def _state(self, subject: Cells, reference: Cells) -> State:
        settings = self.matchup.settings(row_of(subject), row_of(reference))
        is_missing = self.is_one_run and len(settings) < len(self.matchup.keys)
        return Missing.NOT_YET if is_missing else state_of(settings)

    def pairs_of_some(self, cases: set[str]) -> Pairs:
        pairs = Pairs()
        for case, cells in self.subject.rows():
            if case in cases:
                theirs = row_of(self.reference.cells_of(case))
                self.matchup.add_row(pairs, case, row_of(cells), theirs)
        return pairs


def compared_at_any_time(
    books: TwoBooks,
    sides: tuple[Side, Side],
    order_seed: int | None,
    *,
    confidence: float,
    among: int,
) -> Comparison:
    """`order_seed` drew the order of cases; None if unknown, or if there were two."""
    if order_seed is None:
        return claiming_nothing(
            compare(_all_pairs(books), *sides, confidence=confidence, resamples=1)
        )
    states = books.states()
    order = drawn_order(list(states), order_seed)
    claim = anytime_difference([states[case] for case in order], len(order), confidence, among)
    some = books.pairs_of_some(
        set(takewhile(lambda case: states[case] is not Missing.NOT_YET, order))
    )
    compared = compare(some, *sides, confidence=confidence, resamples=1)
    if not books.is_one_run:
        compared = replace(compared, left_out=_all_pairs(books).left_out)
    return claiming(compared, claim, among=among)


def _all_pairs(books: TwoBooks) -> Pairs:
    return pairs_of(books.subject, books.reference, books.matchup)
