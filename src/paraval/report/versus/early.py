"""Two runs of which one may have stopped early: then how many cases there are depends on how they
ended, and what is meant for a number of cases that was fixed before may not be claimed.

What holds at any time may: from the cases in drawn order, up to the first that one side lacks. Two
runs that drew different orders have no such cases in common, and then nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paraval.report.comparing.anytime import anytime_difference
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.claims import State, claiming, claiming_nothing, counting, state_of
from paraval.report.comparing.compared import compare
from paraval.report.comparing.comparison import Comparison, Side
from paraval.report.comparing.pairing import Matchup, pairs_of
from paraval.report.comparing.pairs import Pairs
from paraval.statistics.drawing import drawn_order


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoBooks:
    """What each case came to on both sides, and which variants stand against which."""

    subject: CaseBook
    reference: CaseBook
    matchup: Matchup

    def pairs(self) -> Pairs:
        return pairs_of(self.subject, self.reference, self.matchup)

    def states(self) -> dict[str, State]:
        """Of each case that both plans have: its difference, or why it has none."""
        return {
            case: state_of(self.matchup.settings(cells, self.reference.cells_of(case)))
            for case, cells in self.subject.rows()
            if case in self.reference and any(key in cells for key, _ in self.matchup.keys)
        }

    def pairs_of_some(self, cases: set[str]) -> Pairs:
        pairs = Pairs()
        for case, cells in self.subject.rows():
            if case in cases:
                self.matchup.add_row(pairs, case, cells, self.reference.cells_of(case))
        return pairs


def compared_at_any_time(
    books: TwoBooks,
    sides: tuple[Side, Side],
    order_seed: int | None,
    *,
    confidence: float,
    among: int,
) -> Comparison:
    """`order_seed` drew the order of cases; None where nobody knows it, or there were two."""
    pairs = books.pairs()
    if order_seed is None:
        return claiming_nothing(compare(pairs, *sides, confidence=confidence, resamples=1))
    states = books.states()
    order = drawn_order(list(states), order_seed)
    claim = anytime_difference([states[case] for case in order], len(order), confidence, among)
    some = books.pairs_of_some(counting(order, states))
    compared = compare(some, *sides, confidence=confidence, resamples=1)
    return claiming(replace(compared, left_out=pairs.left_out), claim, among=among)
