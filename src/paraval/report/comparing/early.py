"""The comparisons of a run that may stop early: from the cases that count by then, with claims that
hold however often one looked.

What counts and what may be claimed of it is `anytime`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from paraval.records import StopRule
from paraval.report.comparing.anytime import Missing, anytime_difference
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.compared import compare
from paraval.report.comparing.comparison import (
    Comparison,
    Difference,
    Finding,
    Ratio,
    Stopped,
)
from paraval.report.comparing.contests import Contest
from paraval.report.comparing.pairing import Matchup, Row, row_of
from paraval.report.comparing.pairs import Pairs, difference_of, judged_of
from paraval.report.comparing.value_pairs import axes_of, value_pairs
from paraval.statistics.drawing import drawn_order

_UNKNOWN_WIDTH = (0.0, math.inf)
State = float | Missing
"""Of a case: its difference, or why it has none."""


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
    counting = [_prefix(order, told) for told in states]
    gathered = _gathered(book, contests, counting)
    compared = []
    for contest, told, pairs in zip(contests, states, gathered, strict=True):
        differences = [told[case] for case in order]
        is_turned = not contest.is_upright and (pairs.mean or 0.0) < 0
        if is_turned:
            differences = [0.0 - d if isinstance(d, float) else d for d in differences]
        claim = anytime_difference(differences, len(order), rule.confidence, among)
        made = _settled(contest, pairs, claim, rule.confidence, is_turned=is_turned)
        compared.append(replace(made, among=among))
    return tuple(compared)


def _prefix(order: Sequence[str], states: dict[str, State]) -> set[str]:
    return set(takewhile(lambda case: states[case] is not Missing.NOT_YET, order))


def _gathered(
    book: CaseBook, contests: Sequence[Contest], counting: Sequence[set[str]]
) -> list[Pairs]:
    gathered = [Pairs() for _ in contests]
    some = set().union(*counting)
    for case, cells in book.rows():
        if case in some:
            row = row_of(cells)
            for contest, cases, pairs in zip(contests, counting, gathered, strict=True):
                if case in cases:
                    contest.matchup.add_figures(pairs, case, row, row)
    return gathered


def _settled(
    contest: Contest,
    pairs: Pairs,
    claim: tuple[Difference, Stopped],
    confidence: float,
    *,
    is_turned: bool,
) -> Comparison:
    subject, reference = contest.sides
    if is_turned:
        pairs, subject, reference = pairs.mirrored(), reference, subject
    difference, stopped = claim
    compared = compare(pairs, subject, reference, confidence=confidence, resamples=1)
    return replace(
        compared,
        axis=contest.values.axis,
        over=contest.over,
        passing=difference if pairs else None,
        finding=_decided(difference) if stopped.decided else Finding.NOT_SHOWN,
        stopped=stopped,
        # What follows is meant for one look at a number of cases that was fixed before.
        score=None,
        detectable=None,
        seconds=_without_interval(compared.seconds),
        cost=_without_interval(compared.cost),
    )


def _state(matchup: Matchup, row: Row) -> State:
    settings = matchup.matched(row, row)
    if len(settings) < len(matchup.keys):
        return Missing.NOT_YET
    if any(side.skipped for setting in settings for side in setting):
        return Missing.NOT_YET
    judged = judged_of(settings)
    return difference_of(judged) if judged else Missing.ENDED_WITHOUT


def _decided(difference: Difference) -> Finding:
    """By who wins more cases; where few large losses outweigh many small wins, by nobody."""
    if difference.wins > difference.losses and difference.mean > 0:
        return Finding.BETTER
    if difference.wins < difference.losses and difference.mean < 0:
        return Finding.WORSE
    return Finding.NOT_SHOWN


def _without_interval(ratio: Ratio | None) -> Ratio | None:
    return None if ratio is None else replace(ratio, interval=_UNKNOWN_WIDTH)
