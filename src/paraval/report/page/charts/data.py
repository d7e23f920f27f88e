"""What the charts draw: numbers and raw labels, not yet escaped or worded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paraval.dataclass import dataclass

# The color of a variant: the same in every chart that gets all variants in their order.

COLORS = 8
"""More than this many colors are indistinguishable; then all variants have the same."""


def color_class(index: int, variants: int) -> str:
    """CSS class with a variant's color; empty if colors would not help."""
    return f"v{index + 1}" if 1 < variants <= COLORS else ""


Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """A pass rate, from 0 to 1."""

    label: str
    rate: float | None
    """None: nothing was judged."""
    interval: Interval | None = None
    worst: float | None = None
    """The rate if all errors had failed ..."""
    best: float | None = None
    """... and if all had passed."""
    judged: int
    errors: int = 0
    is_by_case: bool = False
    """Whether it is a mean of cases, and not the share of judged trials that passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """A difference of two rates or scores, from -1 to 1; above 0 is better."""

    label: str
    difference: float
    interval: Interval | None = None
    shown: bool = False
    """True: the comparison shows a difference."""


class HeatCell(NamedTuple):
    """How the repeats of a case and variant ended. All 0: none has a result."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A case, with a cell for each variant."""

    label: str
    anchor: str
    """The anchor of its section on the page: our own, never an untrusted name."""
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCost:
    """A variant's pass rate, the mean cost of a judged trial, and its median time."""

    label: str
    rate: float
    usd: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """A variant in one run of a suite's history."""

    run: str
    series: str
    rate: float | None
    interval: Interval | None = None
    usd: float | None = None
    """The mean cost of a trial."""
    seconds: float | None = None
    """The median time of a trial."""
    changed: tuple[str, ...] = ()
    """What changed since the previous run: suite, prompt, model."""
