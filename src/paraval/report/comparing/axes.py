"""The comparisons that a run's own variants make: value against value, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile

from paraval.records import RunInfo, Scalar, StopRule, Variant, value_text
from paraval.report.comparing.anytime import Missing, anytime_difference
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.compared import adjusted, compare, resamples_for
from paraval.report.comparing.comparison import (
    Comparison,
    Difference,
    Finding,
    Ratio,
    Side,
)
from paraval.report.comparing.pairing import Matchup, Row, row_of
from paraval.report.comparing.pairs import Pairs, difference_of, judged_of
from paraval.report.comparing.value_pairs import (
    MOST_VALUES_IN_ALL_PAIRS,
    ValuePair,
    axes_of,
    value_pairs,
)
from paraval.statistics.drawing import drawn_order

MOST_COMPARISONS = 40
"""More than a reader can take in; those of axes with few values come first."""
_UNKNOWN_WIDTH = (0.0, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """Two values of an axis, and the variants that stand for them."""

    values: ValuePair
    matchup: Matchup
    over: Mapping[str, int]
    is_upright: bool
    """True: each value is held against the first, be it better or worse."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return (
            _side(self.values.axis, self.values.subject),
            _side(self.values.axis, self.values.reference),
        )


def comparisons_of(book: CaseBook, run: RunInfo) -> tuple[Comparison, ...]:
    """For every axis with two or more values; none where there is nothing to compare.

    Of two values the one that passes more is the subject, of equal ones the later: so it reads as
    a result. Where an axis has more than a few, each is held against the first.
    """
    contests = _made(_contests(book))
    if run.stop is not None:
        number = len(value_pairs(axes_of(book.variants.values())))
        return tuple(_settled_any_time(book, one, run, number) for one in contests)
    gathered = [Pairs() for _ in contests]
    for case, cells in book.rows():
        row = row_of(cells)
        for contest, pairs in zip(contests, gathered, strict=True):
            contest.matchup.add_figures(pairs, case, row, row)
    resamples = resamples_for(len(book), len(contests))
    compared = [
        _settled(contest, pairs, resamples)
        for contest, pairs in zip(contests, gathered, strict=True)
    ]
    by_axis = groupby(compared, key=lambda comparison: comparison.axis)
    return tuple(one for _, family in by_axis for one in adjusted(list(family)))


def number_left_out(book: CaseBook) -> int:
    """Pairs of values that were not compared, since there are too many."""
    contests = _contests(book)
    return len(contests) - len(_made(contests))


def _contests(book: CaseBook) -> list[_Contest]:
    """All that the variants allow: some may have no setting in common."""
    axes = axes_of(book.variants.values())
    by_value: dict[tuple[str, str], dict[str, str]] = {}
    for key, variant in book.variants.items():
        for axis, value in variant.items():
            others = by_value.setdefault((axis, repr(value)), {})
            others[_setting(variant, axis)] = key
    contests = []
    for values in value_pairs(axes):
        subject = by_value[values.axis, repr(values.subject)]
        reference = by_value[values.axis, repr(values.reference)]
        keys = tuple((key, reference[one]) for one, key in subject.items() if one in reference)
        if keys:
            contest = _Contest(
                values=values,
                matchup=Matchup(keys=keys),
                over=_several([book.variants[key] for key, _ in keys], values.axis),
                is_upright=len(axes[values.axis]) > MOST_VALUES_IN_ALL_PAIRS,
            )
            contests.append(contest)
    return contests


def _made(contests: Sequence[_Contest]) -> list[_Contest]:
    """Those that are made of them, in their order: an axis of a hundred values must not crowd out
    one of two."""
    by_axis: dict[str, list[int]] = {}
    for place, contest in enumerate(contests):
        by_axis.setdefault(contest.values.axis, []).append(place)
    few_first = [place for places in sorted(by_axis.values(), key=len) for place in places]
    return [contests[place] for place in sorted(few_first[:MOST_COMPARISONS])]


def _settled(contest: _Contest, pairs: Pairs, resamples: int) -> Comparison:
    subject, reference = contest.sides
    if not contest.is_upright and (pairs.mean or 0.0) < 0:
        pairs, subject, reference = pairs.mirrored(), reference, subject
    comparison = compare(pairs, subject, reference, resamples=resamples)
    return replace(comparison, axis=contest.values.axis, over=contest.over)


def _settled_any_time(
    book: CaseBook, contest: _Contest, run: RunInfo, comparisons: int
) -> Comparison:
    """Of a run that may stop early: from the cases that count, with claims that hold then."""
    rule = run.stop or StopRule()
    states = {case: _state(contest.matchup, row_of(cells)) for case, cells in book.rows()}
    order = drawn_order(list(states), run.seed)
    counting = set(takewhile(lambda case: states[case] is not Missing.NOT_YET, order))
    subject, reference = contest.sides
    matchup = contest.matchup
    known = [d for case in counting if isinstance(d := states[case], float)]
    if not contest.is_upright and math.fsum(known) < 0:
        matchup, subject, reference = matchup.mirrored(), reference, subject
        states = {c: 0.0 - d if isinstance(d, float) else d for c, d in states.items()}
    pairs = Pairs()
    for case, cells in book.rows():
        if case in counting:
            row = row_of(cells)
            matchup.add_figures(pairs, case, row, row)
    difference, stopped = anytime_difference(
        [states[case] for case in order], len(order), rule.confidence, comparisons
    )
    compared = compare(pairs, subject, reference, confidence=rule.confidence, resamples=1)
    return replace(
        compared,
        axis=contest.values.axis,
        over=contest.over,
        among=comparisons,
        passing=difference if pairs else None,
        finding=_decided(difference) if stopped.decided else Finding.NOT_SHOWN,
        stopped=stopped,
        # What follows is meant for one look at a number of cases that was fixed before.
        score=None,
        detectable=None,
        seconds=_without_interval(compared.seconds),
        cost=_without_interval(compared.cost),
    )


def _state(matchup: Matchup, row: Row) -> float | Missing:
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


def _setting(variant: Variant, axis: str) -> str:
    return repr(sorted((name, repr(value)) for name, value in variant.items() if name != axis))


def _several(variants: Sequence[Variant], axis: str) -> dict[str, int]:
    """Other axes that have several values here: how many."""
    values: dict[str, set[str]] = {}
    for variant in variants:
        for name, value in variant.items():
            values.setdefault(name, set()).add(repr(value))
    return {name: len(seen) for name, seen in values.items() if name != axis and len(seen) > 1}


def _side(axis: str, value: Scalar) -> Side:
    return Side(label=value_text(value), choice={axis: value})
