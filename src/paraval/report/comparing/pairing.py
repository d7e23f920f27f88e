"""What stands against what: the cells of two values of an axis, or of two books, case by case.

What then comes of the pairs is worked out in `compared`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paraval.records import Scalar, Variant, value_text
from paraval.report.comparing.cells import CaseBook, Cell
from paraval.report.comparing.pairs import Figures, Pairs, Setting, figures_of
from paraval.report.wording import listed

Cells = Mapping[str, Cell]
Row = Mapping[str, Figures]
"""Both of a case, by the keys of variants."""


class UnpairableError(ValueError):
    """Two sides that have nothing in common to pair by, or a part that isn't there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matchup:
    """Which variants stand against which: (the subject's key, the reference's), same setting."""

    keys: tuple[tuple[str, str], ...]

    def add_row(self, pairs: Pairs, case: str, subject: Cells, reference: Cells) -> None:
        """Enters a case with its cells on both sides, if it has any."""
        self.add_figures(pairs, case, row_of(subject), row_of(reference))

    def add_figures(self, pairs: Pairs, case: str, subject: Row, reference: Row) -> None:
        """The same, where what the cells come to is known already."""
        settings = self.matched(subject, reference)
        if settings:
            pairs.add(case, settings)
        elif any(key in subject for key, _ in self.keys):
            pairs.add_only(case, on_subject=True)
        elif any(key in reference for _, key in self.keys):
            pairs.add_only(case, on_subject=False)

    def settings(self, subject: Cells, reference: Cells) -> list[Setting]:
        return self.matched(row_of(subject), row_of(reference))

    def matched(self, subject: Row, reference: Row) -> list[Setting]:
        return [
            Setting(subject[one], reference[other])
            for one, other in self.keys
            if one in subject and other in reference
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBooks:
    """Two books, and how their variants stand against one another."""

    pairs: Pairs
    """Over all shared variants, the case as the unit."""
    shared: tuple[Variant, ...]
    """Those that both have, by the subject's words; where each side has one variant alone, that
    of the subject, whatever the other's is called."""
    only_subject: tuple[Variant, ...]
    only_reference: tuple[Variant, ...]
    matchups: tuple[Matchup, ...]
    """One for each shared variant."""


def pair_books(subject: CaseBook, reference: CaseBook) -> PairedBooks:
    """By case and variant where some variants are shared, else by case where each has but one.

    UnpairableError where that leaves nothing: then one variant of each must be chosen.
    """
    keys = shared_variants(subject.variants, reference.variants)
    if not keys:
        raise UnpairableError("no variant in common: choose one of each")
    taken = set(keys.values())
    return PairedBooks(
        pairs=pairs_of(subject, reference, Matchup(keys=tuple(keys.items()))),
        shared=tuple(subject.variants[key] for key in keys),
        only_subject=tuple(v for key, v in subject.variants.items() if key not in keys),
        only_reference=tuple(v for key, v in reference.variants.items() if key not in taken),
        matchups=tuple(Matchup(keys=(pair,)) for pair in keys.items()),
    )


def shared_variants(
    subject: Mapping[str, Variant], reference: Mapping[str, Variant]
) -> dict[str, str]:
    """Those with the same axes and values, by the keys that each side has for them.

    Where each has just one, they are the same whatever they are called: a run without a matrix may
    be held against one with a single model.
    """
    if len(subject) == len(reference) == 1:
        return dict(zip(subject, reference, strict=True))
    theirs = {_identity(variant): key for key, variant in reference.items()}
    return {
        key: theirs[same]
        for key, variant in subject.items()
        if (same := _identity(variant)) in theirs
    }


def pairs_of(subject: CaseBook, reference: CaseBook, matchup: Matchup) -> Pairs:
    """The pairs of two books; cases in the subject's order, then what only the reference has."""
    (pairs,) = pairs_of_each(subject, reference, [matchup])
    return pairs


def pairs_of_each(
    subject: CaseBook, reference: CaseBook, matchups: Sequence[Matchup]
) -> list[Pairs]:
    """The same for several, in one pass: what the cells of a case come to is worked out once."""
    gathered = [Pairs() for _ in matchups]
    for case, cells in subject.rows():
        _enter(gathered, matchups, case, row_of(cells), row_of(reference.cells_of(case)))
    for case, cells in reference.rows():
        if case not in subject:
            _enter(gathered, matchups, case, {}, row_of(cells))
    return gathered


def _enter(
    gathered: Sequence[Pairs],
    matchups: Sequence[Matchup],
    case: str,
    subject: Row,
    reference: Row,
) -> None:
    for matchup, pairs in zip(matchups, gathered, strict=True):
        matchup.add_figures(pairs, case, subject, reference)


def row_of(cells: Cells) -> Row:
    return {key: figures_of(cell) for key, cell in cells.items()}


def part_of(book: CaseBook, choice: Mapping[str, str]) -> CaseBook:
    """The variants with these values, without the axes that were chosen by: what is left of two
    such parts can stand against each other. Values are as suites write them.

    UnpairableError names the axis or the value that isn't there.
    """
    variants = dict(book.variants)
    for axis, text in choice.items():
        value = _value_of(variants, axis, text)
        variants = {
            key: variant
            for key, variant in variants.items()
            if axis in variant and repr(variant[axis]) == repr(value)
        }
    return book.part(
        {
            key: {axis: value for axis, value in variant.items() if axis not in choice}
            for key, variant in variants.items()
        }
    )


def _value_of(variants: Mapping[str, Variant], axis: str, text: str) -> Scalar:
    values = {repr(one[axis]): one[axis] for one in variants.values() if axis in one}
    if not values:
        axes = listed(dict.fromkeys(name for one in variants.values() for name in one))
        raise UnpairableError(f"there is no axis {axis!r}; known: {axes or 'none'}")
    for value in values.values():
        if value_text(value) == text:
            return value
    known = listed(map(value_text, values.values()))
    raise UnpairableError(f"axis {axis!r} has no value {text!r}; known: {known}")


def _identity(variant: Variant) -> tuple[tuple[str, str], ...]:
    """What tells variants of different runs apart: the order of axes doesn't. Values are told apart
    as texts, since 1, 1.0 and True are the same."""
    return tuple(sorted((axis, repr(value)) for axis, value in variant.items()))
