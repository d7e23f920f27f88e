"""The comparisons that a run's own variants make: value against value, axis by axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import NamedTuple, TypedDict

from paraval.records import RunInfo, Scalar, StopRule, Variant, value_text
from paraval.report.compare.case_pairs import Matchup, Pairs, Row, row_of
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Comparison, Side
from paraval.report.compare.compute import adjusted, compare, resamples_for
from paraval.report.compare.early_claims import (
    Missing,
    State,
    anytime_difference,
    claiming,
    counting,
    state_of,
)
from paraval.statistics.anytime import drawn_order

# Which values of a run's axes are held against which: those who stop a run early and those who
# report on it must mean the same comparisons.

MOST_VALUES_IN_ALL_PAIRS = 4
"""Of an axis with more, each is held against the first alone."""


class ValuePair(NamedTuple):
    """Two values of one axis; the subject is the later one in plan order."""

    axis: str
    subject: Scalar
    reference: Scalar


def axes_of(variants: Iterable[Variant]) -> dict[str, list[Scalar]]:
    """The values of each axis, in the order in which the variants first have them."""
    found: dict[str, dict[str, Scalar]] = {}
    for variant in variants:
        for axis, value in variant.items():
            # Not by the values themselves, of which 1, 1.0 and True are the same.
            found.setdefault(axis, {}).setdefault(repr(value), value)
    return {axis: list(values.values()) for axis, values in found.items()}


def value_pairs(axes: Mapping[str, Sequence[Scalar]]) -> list[ValuePair]:
    """Of every axis with two values or more; axes and values in plan order."""
    return [
        ValuePair(axis, subject, reference)
        for axis, values in axes.items()
        for reference, subject in _held_against(values)
    ]


def _held_against(values: Sequence[Scalar]) -> list[tuple[Scalar, Scalar]]:
    if len(values) <= MOST_VALUES_IN_ALL_PAIRS:
        return list(combinations(values, 2))
    return [(values[0], value) for value in values[1:]]


# Which values of a run's axes stand against which, and which variants stand for them.

MOST_COMPARISONS = 40
"""More than a reader can take in; those of axes with few values come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
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


def contests_of(book: CaseBook) -> list[Contest]:
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
            contest = Contest(
                values=values,
                matchup=Matchup(keys=keys),
                over=_several([book.variants[key] for key, _ in keys], values.axis),
                is_upright=len(axes[values.axis]) > MOST_VALUES_IN_ALL_PAIRS,
            )
            contests.append(contest)
    return contests


def made_of(contests: Sequence[Contest]) -> list[Contest]:
    """Those that are made of them, in their order: an axis of a hundred values must not crowd out
    one of two."""
    by_axis: dict[str, list[int]] = {}
    for place, contest in enumerate(contests):
        by_axis.setdefault(contest.values.axis, []).append(place)
    few_first = [place for places in sorted(by_axis.values(), key=len) for place in places]
    return [contests[place] for place in sorted(few_first[:MOST_COMPARISONS])]


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


# The comparisons of a run that may stop early: from the cases that count by then, with claims
# that hold however often one looked.


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


USUAL_CONFIDENCE = 0.95


def comparisons_of(
    book: CaseBook, run: RunInfo, *, confidence: float | None = None, seed: int = 0
) -> tuple[Comparison, ...]:
    """For every axis with two or more values; none where there is nothing to compare.

    Of two values the one that passes more is the subject, of equal ones the later: so it reads as
    a result. Where an axis has more than a few, each is held against the first. Without a
    `confidence`, a run that may stop early is told as surely as it was decided, others at 95 %.
    """
    contests = made_of(contests_of(book))
    if run.stop is not None:
        rule = run.stop if confidence is None else replace(run.stop, confidence=confidence)
        return compared_any_time(book, contests, rule, run.seed)
    gathered = [Pairs() for _ in contests]
    for case, cells in book.rows():
        row = row_of(cells)
        for contest, pairs in zip(contests, gathered, strict=True):
            contest.matchup.add_figures(pairs, case, row, row)
    drawing = _Drawing(
        confidence=USUAL_CONFIDENCE if confidence is None else confidence,
        seed=seed,
        resamples=resamples_for(len(book), len(contests)),
    )
    compared = [
        _settled(contest, pairs, drawing) for contest, pairs in zip(contests, gathered, strict=True)
    ]
    by_axis = groupby(compared, key=lambda comparison: comparison.axis)
    return tuple(one for _, family in by_axis for one in adjusted(list(family)))


def number_left_out(book: CaseBook) -> int:
    """Pairs of values that were not compared, since there are too many."""
    contests = contests_of(book)
    return len(contests) - len(made_of(contests))


class _Drawing(TypedDict):
    """As `compare` takes it."""

    confidence: float
    seed: int
    resamples: int


def _settled(contest: Contest, pairs: Pairs, drawing: _Drawing) -> Comparison:
    subject, reference = contest.sides
    if not contest.is_upright and (pairs.mean or 0.0) < 0:
        pairs, subject, reference = pairs.mirrored(), reference, subject
    comparison = compare(pairs, subject, reference, **drawing)
    return replace(comparison, axis=contest.values.axis, over=contest.over)
