"""Which values of a run's axes stand against which, and which variants stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paraval.records import Scalar, Variant, value_text
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.comparison import Side
from paraval.report.comparing.pairing import Matchup
from paraval.report.comparing.value_pairs import (
    MOST_VALUES_IN_ALL_PAIRS,
    ValuePair,
    axes_of,
    value_pairs,
)

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
