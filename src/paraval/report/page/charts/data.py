"""What the charts draw: numbers and raw labels. Nothing here is escaped or worded yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paraval.records import Outcome

# Which color a variant has: the same in every chart that is given all variants in their order.

COLORS = 8
"""More than so many cannot be told apart; then all have the same."""


def color_class(index: int, variants: int) -> str:
    """The class that colors what is drawn of a variant; empty where colors would tell nothing."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """A difference of two rates or scores, from -1 to 1; above 0 is better."""

    label: str
    difference: float
    interval: Interval | None = None
    shown: bool = False
    """True: the comparison counts it as a difference."""


class HeatCell(NamedTuple):
    """A case with a variant: how its repeats ended. All 0: none has a result."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A case, with a cell for each variant."""

    label: str
    anchor: str
    """The id of its section on the page: ours, never a foreign name."""
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCost:
    """What a variant takes: the median of a judged trial, and its mean cost."""

    label: str
    seconds: float
    usd: float
    rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An attempt, from its start to its end on any clock of seconds."""

    start_s: float
    end_s: float
    outcome: Outcome | None
    """None: it never ended, or still runs."""
    label: str
    anchor: str | None = None
    """The id of its case's section on the page; None: it links nowhere."""
    final: bool = True
    """False: it decided nothing, and was tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long each judged trial of a variant took, in any order."""

    label: str
    seconds: Sequence[float]
    timeouts: int = 0
    """Trials that are not among them, and would have taken longer than they may."""


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
    """The median of a trial."""
    changed: tuple[str, ...] = ()
    """What is another than in the run before: suite, prompt, model."""
