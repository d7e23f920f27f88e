"""Comparisons of a run's own variants: value by value, axis by axis, including early stops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import RunInfo, Scalar, StopRule, Variant, choice_label
from paraval.report.compare.case_pairs import DUST, Matchup, pairs_of_each
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Comparison, Side
from paraval.report.compare.compute import adjusted, compare, resamples_for
from paraval.report.compare.early_claims import TwoBooks, compared_at_any_time

# Which values of a run's axes are compared: early stopping and reports must use the same
# comparisons.

MOST_VALUES_IN_ALL_PAIRS = 4
"""If an axis has more, each value is compared only with the first."""


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
            # Not by the values themselves: 1, 1.0 and True are equal.
            found.setdefault(axis, {}).setdefault(repr(value), value)
    return {axis: list(values.values()) for axis, values in found.items()}


def value_pairs(axes: Mapping[str, Sequence[Scalar]]) -> list[ValuePair]:
    """The pairs of every axis with two or more values; axes and values in plan order."""
    return [
        ValuePair(axis, subject, reference)
        for axis, values in axes.items()
        for reference, subject in _held_against(values)
    ]


def _held_against(values: Sequence[Scalar]) -> list[tuple[Scalar, Scalar]]:
    if len(values) <= MOST_VALUES_IN_ALL_PAIRS:
        return list(combinations(values, 2))
    return [(values[0], value) for value in values[1:]]


# The comparisons, with the variants that have each value.

MOST_COMPARISONS = 40
"""More than a reader can take in; axes with few values have priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Two values of an axis, and the variants that have them."""

    values: ValuePair
    matchup: Matchup
    over: Mapping[str, int]
    is_upright: bool
    """True if each value is compared with the first, better or worse."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return (
            _side(self.values.axis, self.values.subject),
            _side(self.values.axis, self.values.reference),
        )

    @property
    def turned(self) -> Contest:
        axis, subject, reference = self.values
        return replace(
            self, values=ValuePair(axis, reference, subject), matchup=self.matchup.turned
        )


def contests_of(variants: Mapping[str, Variant]) -> list[Contest]:
    """All contests of the variants; pairs without a common setting are left out."""
    axes = axes_of(variants.values())
    by_value: dict[tuple[str, str], dict[str, str]] = {}
    for key, variant in variants.items():
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
                over=_several([variants[key] for key, _ in keys], values.axis),
                is_upright=len(axes[values.axis]) > MOST_VALUES_IN_ALL_PAIRS,
            )
            contests.append(contest)
    return contests


def made_of(contests: Sequence[Contest]) -> list[Contest]:
    """The contests to compare, in their order: an axis with a hundred values must not crowd out one
    with two."""
    by_axis: dict[str, list[int]] = {}
    for place, contest in enumerate(contests):
        by_axis.setdefault(contest.values.axis, []).append(place)
    few_first = [place for places in sorted(by_axis.values(), key=len) for place in places]
    return [contests[place] for place in sorted(few_first[:MOST_COMPARISONS])]


def _setting(variant: Variant, axis: str) -> str:
    return repr(sorted((name, repr(value)) for name, value in variant.items() if name != axis))


def _several(variants: Sequence[Variant], axis: str) -> dict[str, int]:
    """Other axes with several values here: axis -> how many."""
    values: dict[str, set[str]] = {}
    for variant in variants:
        for name, value in variant.items():
            values.setdefault(name, set()).add(repr(value))
    return {name: len(seen) for name, seen in values.items() if name != axis and len(seen) > 1}


def _side(axis: str, value: Scalar) -> Side:
    return Side(label=choice_label(axis, value), choice={axis: value})


USUAL_CONFIDENCE = 0.95


def comparisons_of(
    book: CaseBook, run: RunInfo, *, confidence: float | None = None, seed: int = 0
) -> tuple[Comparison, ...]:
    """The comparisons of every axis with two or more values; empty if there is nothing to compare.

    The subject is the value that passes more, or of equal ones the later. If an axis has more than
    a few values, each is compared with the first. `confidence` defaults to the stop rule's for a
    run that may stop early, and to 95% for others.
    """
    contests = made_of(contests_of(book.variants))
    if run.stop is not None:
        rule = run.stop if confidence is None else replace(run.stop, confidence=confidence)
        # The same number that the run uses when it decides whether to stop.
        among = len(value_pairs(axes_of(book.variants.values())))
        return tuple(_at_any_time(book, one, run.seed, rule, among) for one in contests)
    contests = [
        contest.turned if not contest.is_upright and ahead < -DUST else contest
        for contest, ahead in zip(contests, _leads(book, contests), strict=True)
    ]
    gathered = pairs_of_each(book, book, [contest.matchup for contest in contests])
    compared = [
        replace(
            compare(
                pairs,
                *contest.sides,
                confidence=USUAL_CONFIDENCE if confidence is None else confidence,
                seed=seed,
                resamples=resamples_for(len(book), len(contests)),
            ),
            axis=contest.values.axis,
            over=contest.over,
        )
        for contest, pairs in zip(contests, gathered, strict=True)
    ]
    by_axis = groupby(compared, key=lambda comparison: comparison.axis)
    return tuple(one for _, family in by_axis for one in adjusted(list(family)))


def _leads(book: CaseBook, contests: Sequence[Contest]) -> list[float]:
    """By how much each subject leads its reference, summed over the cases."""
    leads = [0.0] * len(contests)
    for _, cells in book.rows():
        rates = {key: cell.rate for key, cell in cells.items()}
        for place, contest in enumerate(contests):
            sides = ((rates.get(one), rates.get(other)) for one, other in contest.matchup.keys)
            gaps = [one - other for one, other in sides if one is not None and other is not None]
            leads[place] += sum(gaps) / len(gaps) if gaps else 0.0
    return leads


def _at_any_time(
    book: CaseBook, contest: Contest, seed: int, rule: StopRule, among: int
) -> Comparison:
    """The comparison of the cases that count so far, with claims that are valid at any time."""
    books = TwoBooks(subject=book, reference=book, matchup=contest.matchup)
    compared = compared_at_any_time(
        books, contest.sides, seed, confidence=rule.confidence, among=among
    )
    passing = compared.passing
    if not contest.is_upright and passing is not None and passing.mean < 0:
        return _at_any_time(book, contest.turned, seed, rule, among)
    return replace(compared, axis=contest.values.axis, over=contest.over)


def number_left_out(book: CaseBook) -> int:
    """The number of pairs of values that were not compared because there are too many."""
    contests = contests_of(book.variants)
    return len(contests) - len(made_of(contests))
