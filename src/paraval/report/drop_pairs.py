"""The cases of a run beside the same cases of its baseline: how they differ, and what is missing.

A case's difference is the mean over the variants that both have and that are judged on both sides.
What the differences mean is judged in `dropping`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from paraval.records import Variant
from paraval.report.comparing.cells import CaseBook, Cell
from paraval.report.comparing.comparison import Interval
from paraval.report.wording import variant_label
from paraval.statistics.repeats import apart, repeats_step


class Beside(NamedTuple):
    """A case with a variant, on both sides: now less before."""

    difference: float | None
    """None: one of them has no verdict."""
    bounds: Interval | None
    """What it could be, whatever missing verdicts hide; None: nothing was to be judged."""
    missing: int
    """Verdicts, of both."""
    apart: float = 0.0
    """How often one repeat of now ends differently than one of before."""


class Differences:
    """Of one variant, or of the whole run: case by case, a few numbers each."""

    def __init__(self) -> None:
        self.judged = array("d")
        """Of the cases with a verdict on both sides."""
        self._least = array("d")
        self._most = array("d")
        self._missing = 0
        self._apart = 0.0

    def add(self, case: Sequence[Beside]) -> bool:
        """A case, by its variants; whether it is judged."""
        judged = [one.difference for one in case if one.difference is not None]
        bounds = [one.bounds for one in case if one.bounds is not None]
        if judged:
            self.judged.append(fmean(judged))
            self._apart += fmean(one.apart for one in case if one.difference is not None)
        if bounds:
            self._least.append(fmean(least for least, _ in bounds))
            self._most.append(fmean(most for _, most in bounds))
        self._missing += sum(one.missing for one in case)
        return bool(judged)

    @property
    def step(self) -> float:
        """Of the interval of their mean, by how much repeats and variants waver."""
        return repeats_step(math.fsum(value * value for value in self.judged), self._apart)

    @property
    def if_errors(self) -> Interval | None:
        """The least and the most that the mean could be; None where no verdict is missing."""
        return (fmean(self._least), fmean(self._most)) if self._missing else None


@dataclass(slots=True, kw_only=True)
class DropPairs:
    """A run beside its baseline."""

    whole: Differences = field(default_factory=Differences)
    variants: dict[str, Differences] = field(default_factory=dict)
    """By their keys; none where they have only one in common."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the variants that they have in common, by their keys."""
    only_now: int = 0
    """Cases that the baseline does not have ..."""
    only_baseline: int = 0
    """... that it alone has ..."""
    unjudged: int = 0
    """... and that both have, but one of them without a verdict."""


def drop_pairs(now: CaseBook, baseline: CaseBook, *, skips_are_meant: bool = False) -> DropPairs:
    """`skips_are_meant`: what was skipped is not missing, since a comparison was decided."""
    shared = shared_variants(now.variants, baseline.variants)
    labels = {key: variant_label(now.variants[key]) for key in shared}
    pairs = DropPairs(labels=labels)
    for case, cells in now.rows():
        before = baseline.cells_of(case)
        beside = {
            key: _beside(cells[key], before[other], skips_are_meant=skips_are_meant)
            for key, other in shared.items()
            if key in cells and other in before
        }
        if not beside:
            pairs.only_now += 1
            continue
        pairs.unjudged += not pairs.whole.add(list(beside.values()))
        if len(shared) > 1:
            for key, one in beside.items():
                pairs.variants.setdefault(key, Differences()).add([one])
    pairs.only_baseline = len(baseline) - (len(now) - pairs.only_now)
    return pairs


def shared_variants(now: Mapping[str, Variant], before: Mapping[str, Variant]) -> Mapping[str, str]:
    """Those with the same axes and values, by the keys that each side has for them.

    Where both have just one, they are the same whatever they are called: a run without a matrix may
    be held against one with a single model.
    """
    if len(now) == len(before) == 1:
        return dict(zip(now, before, strict=True))
    known = {_in_any_order(variant): key for key, variant in before.items()}
    return {
        key: known[same]
        for key, variant in now.items()
        if (same := _in_any_order(variant)) in known
    }


def _in_any_order(variant: Variant) -> Iterable[object]:
    """Not the values themselves, of which 1, 1.0 and True are the same."""
    return frozenset((axis, repr(value)) for axis, value in variant.items())


def _beside(now: Cell, before: Cell, *, skips_are_meant: bool) -> Beside:
    missed = [cell.errors + (0 if skips_are_meant else cell.skipped) for cell in (now, before)]
    missing = sum(missed)
    if not (now.judged + missed[0] and before.judged + missed[1]):
        return Beside(None, None, missing)
    (worst, best), (lowest, highest) = map(_rates, (now, before), missed)
    bounds = worst - highest, best - lowest
    if now.rate is None or before.rate is None:
        return Beside(None, bounds, missing)
    return Beside(now.rate - before.rate, bounds, missing, apart(now.rate, before.rate))


def _rates(cell: Cell, missing: int) -> Interval:
    """The least and the most that a rate could be."""
    wanted = cell.judged + missing
    return cell.passed / wanted, (cell.passed + missing) / wanted
