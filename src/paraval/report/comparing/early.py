"""The comparisons of a run that may stop early: from the cases that count by then, with claims that
hold however often one looked.

What counts and what may be claimed of it is `anytime`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paraval.records import StopRule
from paraval.report.comparing.anytime import Missing, anytime_difference
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.claims import State, claiming, counting, state_of
from paraval.report.comparing.compared import compare
from paraval.report.comparing.comparison import Comparison
from paraval.report.comparing.contests import Contest
from paraval.report.comparing.pairing import Matchup, Row, row_of
from paraval.report.comparing.pairs import Pairs
from paraval.report.comparing.value_pairs import axes_of, value_pairs
from paraval.statistics.drawing import drawn_order


def compared_any_time(
    book: CaseBook, contests: Sequence[Contest], rule: StopRule, seed: int
) -> tuple[Comparison, ...]:
    """`seed` drew the order of cases."""
    # As many as the run itself reckons with when it decides whether to stop.
    among = len(value_pairs(axes_of(book.variants.values())))
    states: list[dict[str, State]] = [{} for _ in contests]
    for case, cells in book.rows():
        row = row_of(cells)
        for contest, told in zip(contests, states, strict=True):
            told[case] = _state(contest.matchup, row)
    order = drawn_order([case for case, _ in book.rows()], seed)
    gathered = _gathered(book, contests, [counting(order, told) for told in states])
    return tuple(
        _compared(contest, pairs, [told[case] for case in order], rule.confidence, among)
        for contest, told, pairs in zip(contests, states, gathered, strict=True)
    )


def _compared(
    contest: Contest, pairs: Pairs, states: list[State], confidence: float, among: int
) -> Comparison:
    """`pairs` of the cases that count; the states of all, in drawn order."""
    subject, reference = contest.sides
    if not contest.is_upright and (pairs.mean or 0.0) < 0:
        states = [0.0 - one if isinstance(one, float) else one for one in states]
        pairs, subject, reference = pairs.mirrored(), reference, subject
    claim = anytime_difference(states, len(states), confidence, among)
    made = compare(pairs, subject, reference, confidence=confidence, resamples=1)
    made = replace(made, axis=contest.values.axis, over=contest.over)
    return claiming(made, claim, among=among)


def _gathered(
    book: CaseBook, contests: Sequence[Contest], counted: Sequence[set[str]]
) -> list[Pairs]:
    gathered = [Pairs() for _ in contests]
    some = set().union(*counted)
    for case, cells in book.rows():
        if case in some:
            row = row_of(cells)
            for contest, cases, pairs in zip(contests, counted, gathered, strict=True):
                if case in cases:
                    contest.matchup.add_figures(pairs, case, row, row)
    return gathered


def _state(matchup: Matchup, row: Row) -> State:
    settings = matchup.matched(row, row)
    return Missing.NOT_YET if len(settings) < len(matchup.keys) else state_of(settings)
