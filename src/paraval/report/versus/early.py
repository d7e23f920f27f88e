"""Two runs of which one may have stopped early: then how many cases there are depends on how they
ended, and what is meant for a number of cases that was fixed before may not be claimed.

What holds at any time may: from the cases in drawn order, up to the first that one side lacks. Two
runs that drew different orders have no such cases in common, and then nothing is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import takewhile

from paraval.report.comparing.anytime import Missing, anytime_difference
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.compared import compare
from paraval.report.comparing.comparison import (
    Comparison,
    Difference,
    Finding,
    Method,
    Ratio,
    Side,
)
from paraval.report.comparing.pairing import Matchup, pairs_of
from paraval.report.comparing.pairs import Pairs, difference_of, judged_of
from paraval.statistics.drawing import drawn_order


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoBooks:
    """What each case came to on both sides, and which variants stand against which."""

    subject: CaseBook
    reference: CaseBook
    matchup: Matchup

    def pairs(self) -> Pairs:
        return pairs_of(self.subject, self.reference, self.matchup)

    def states(self) -> dict[str, float | Missing]:
        """Of each case that both plans have: its difference, or why it has none."""
        return {
            case: self._state(case)
            for case, cells in self.subject.rows()
            if case in self.reference and any(key in cells for key, _ in self.matchup.keys)
        }

    def counting(self, cases: set[str]) -> Pairs:
        pairs = Pairs()
        for case, cells in self.subject.rows():
            if case in cases:
                self.matchup.add_row(pairs, case, cells, self.reference.cells_of(case))
        return pairs

    def _state(self, case: str) -> float | Missing:
        cells = self.subject.cells_of(case), self.reference.cells_of(case)
        settings = self.matchup.settings(*cells)
        if any(figures.skipped for setting in settings for figures in setting):
            return Missing.NOT_YET
        judged = judged_of(settings)
        return difference_of(judged) if judged else Missing.ENDED_WITHOUT


def compared_at_any_time(
    books: TwoBooks,
    sides: tuple[Side, Side],
    order_seed: int | None,
    *,
    confidence: float,
    among: int,
) -> Comparison:
    """`order_seed` drew the order of cases; None where nobody knows it, or there were two."""
    if order_seed is None:
        return _claiming_nothing(compare(books.pairs(), *sides, confidence=confidence, resamples=1))
    states = books.states()
    order = drawn_order(list(states), order_seed)
    counting = set(takewhile(lambda case: states[case] is not Missing.NOT_YET, order))
    difference, stopped = anytime_difference(
        [states[case] for case in order], len(order), confidence, among
    )
    pairs = books.counting(counting)
    compared = compare(pairs, *sides, confidence=confidence, resamples=1)
    return replace(
        _of_no_fixed_number(compared),
        among=among,
        passing=difference if pairs else None,
        finding=_decided(difference) if stopped.decided else Finding.NOT_SHOWN,
        stopped=stopped,
        left_out=books.pairs().left_out,
    )


def _claiming_nothing(compared: Comparison) -> Comparison:
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
    return None if ratio is None else replace(ratio, interval=(0.0, math.inf))


def _decided(difference: Difference) -> Finding:
    """By who wins more cases; where few large losses outweigh many small wins, by nobody."""
    if difference.wins > difference.losses and difference.mean > 0:
        return Finding.BETTER
    if difference.wins < difference.losses and difference.mean < 0:
        return Finding.WORSE
    return Finding.NOT_SHOWN
