"""Which values of a run's axes are held against which: those who stop a run early and those who
report on it must mean the same comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from paraval.records import Scalar, Variant

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
