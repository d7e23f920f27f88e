"""What a comparison of two sides says; how it is worked out is in `compute`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from paraval.records import Variant

if TYPE_CHECKING:
    # Gates know these records, too, and need not load how they are worked out.
    from paraval.statistics.power import SeenSpread
else:
    SeenSpread = Any

Interval = tuple[float, float]


class Finding(StrEnum):
    """What is shown of the subject against the reference."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"


class Method(StrEnum):
    """How a difference was judged."""

    MCNEMAR = "mid-p McNemar"
    SIGN_FLIPS = "sign-flip permutation"
    ANYTIME = "anytime test by betting"
    NONE = "none"
    """Too few pairs to say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two."""

    label: str
    choice: Variant = field(default_factory=dict)
    """Axis -> value, where it is a part of a run's variants."""
    run: str | None = None
    """The id of a run or the name of a file, where two of them are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Subject less reference, by case; in shares (0.12: twelve points)."""

    mean: float
    interval: Interval
    p: float
    adjusted_p: float
    """After Holm, over all comparisons of the same question."""
    method: Method
    wins: int
    """Cases where the subject is ahead ..."""
    losses: int
    """... and behind; the others are level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Subject over reference, a geometric mean over cases."""

    ratio: float
    interval: Interval
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtK:
    """How likely some of k repeats pass (pass@k), and that all do (pass^k), on each side."""

    k: int
    cases: int
    """The same for every k that is told: they have as many judged repeats on both sides as the
    largest."""
    any_subject: float
    any_reference: float
    all_subject: float
    all_reference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Cases that could not be paired."""

    only_subject: tuple[str, ...] = ()
    only_reference: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    """On both sides, but not judged on both: errors, or skipped ..."""
    unjudged_subject: tuple[str, ...] = ()
    """... those of them without any verdict on the subject's side ..."""
    unjudged_reference: tuple[str, ...] = ()
    """... and on the reference's."""

    @property
    def cases(self) -> int:
        return len(self.only_subject) + len(self.only_reference) + len(self.unjudged)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChanges:
    """Which cases changed, in plan order; flaky ones apart."""

    broke: tuple[str, ...] = ()
    """Every repeat passed with the reference, and failed with the subject."""
    mended: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    """Repeats of the same side passed and failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopState:
    """How a comparison stands that may end before its plan."""

    used: int
    """Pairs that count: in the drawn order, up to the first that is missing ..."""
    planned: int
    """... of so many cases."""
    decided: bool
    futile: bool
    """True: not even winning all that is left would decide it."""


NOT_REPORTED = {"told": False}
"""Metadata of a field that is in no report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A subject against a reference on the same cases."""

    subject: Side
    reference: Side
    axis: str | None = None
    """Where values of one axis are compared, the others held equal."""
    over: Mapping[str, int] = field(default_factory=dict)
    """Those others, where they have several values: axis -> how many."""
    among: int = 1
    """How many comparisons were made of the same question; `adjusted_p` makes up for them."""
    cases: int
    """Pairs that count."""
    confidence: float
    rate_subject: float | None
    """The mean of the cases' rates, over the pairs alone."""
    rate_reference: float | None
    passing: Difference | None
    """None where no case is judged on both sides."""
    score: Difference | None
    """Where scores are more than pass and fail."""
    finding: Finding
    """By `passing`."""
    detectable: float | None
    """The smallest difference that so many cases with such a spread can show, mostly (80%), as one
    of so many comparisons; 1 where they are too few to show any."""
    spread: SeenSpread | None = field(default=None, metadata=NOT_REPORTED)
    """What `detectable` is computed from, and again once the number of comparisons is known."""
    passed_subject: tuple[int, int] = field(default=(0, 0), metadata=NOT_REPORTED)
    """Trials that passed, and trials judged, of the pairs ..."""
    passed_reference: tuple[int, int] = field(default=(0, 0), metadata=NOT_REPORTED)
    """... on each side."""
    if_errors: Interval | None
    """The least and the most that the mean difference could be, whatever errors hide; None where
    there are none."""
    seconds: Ratio | None
    """Of judged trials, as the costs."""
    cost: Ratio | None
    timeouts_subject: int = 0
    """Trials that are in no time, since they would have taken longer ..."""
    timeouts_reference: int = 0
    """... on each side, of the cases that both have."""
    pass_at: tuple[PassAtK, ...] = ()
    left_out: LeftOut = LeftOut()
    turned: CaseChanges = CaseChanges()
    stopped: EarlyStopState | None = None
    """Of a run that stops early: then what is claimed holds however often it was looked at."""
