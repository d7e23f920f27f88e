"""The result of a comparison of two sides; `compute` works it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from paraval.dataclass import dataclass
from paraval.records import Variant

if TYPE_CHECKING:
    # Gates use these records, too, without the statistics behind them.
    from paraval.statistics.power import SeenSpread
else:
    SeenSpread = Any

Interval = tuple[float, float]


class Finding(StrEnum):
    """What is shown about the subject compared with the reference."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"


class Method(StrEnum):
    """The test behind a difference."""

    MCNEMAR = "mid-p McNemar"
    SIGN_FLIPS = "sign-flip permutation"
    ANYTIME = "anytime test by betting"
    NONE = "none"
    """No claim is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison."""

    label: str
    choice: Variant = field(default_factory=dict)
    """Axis -> value, if it is a part of a run."""
    run: str | None = None
    """The run id or file name, if two runs are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Subject minus reference, by case; in shares (0.12: twelve points)."""

    mean: float
    interval: Interval
    p: float
    adjusted_p: float
    """Adjusted by Holm's method for all comparisons of the same question."""
    method: Method
    wins: int
    """Cases where the subject is ahead ..."""
    losses: int
    """... and behind; the others are tied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Subject divided by reference: of times, the geometric mean over cases, which tells of a
    typical one; of costs, the ratio of the totals."""

    ratio: float
    interval: Interval
    cases: int
    of_totals: float | None = None
    """Of times: the ratio of the totals, where most of the time may be that of few cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtK:
    """How likely at least one of k repeats passes (pass@k), and all do (pass^k), on each side."""

    k: int
    cases: int
    """The same for every k: those with enough judged repeats on both sides for the largest k."""
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
    """On both sides, but not judged on both (errors or skipped) ..."""
    unjudged_subject: tuple[str, ...] = ()
    """... those of them without any verdict on the subject's side ..."""
    unjudged_reference: tuple[str, ...] = ()
    """... and on the reference's."""

    @property
    def cases(self) -> int:
        return len(self.only_subject) + len(self.only_reference) + len(self.unjudged)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChanges:
    """Which cases changed, in plan order; flaky ones are separate."""

    broke: tuple[str, ...] = ()
    """Regressed: every repeat passed with the reference, and failed with the subject."""
    mended: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    """Repeats on one side both passed and failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopState:
    """The state of a comparison that may stop early."""

    used: int
    """Pairs that count: in drawn order, up to the first that is missing ..."""
    planned: int
    """... out of how many cases."""
    decided: bool
    futile: bool
    """Whether not even winning all remaining cases would decide it."""


NOT_REPORTED = {"told": False}
"""Metadata of a field that is in no report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A subject compared with a reference on the same cases."""

    subject: Side
    reference: Side
    axis: str | None = None
    """The axis whose values are compared; the others are equal on both sides."""
    over: Mapping[str, int] = field(default_factory=dict)
    """The other axes with several values: axis -> how many."""
    among: int = 1
    """How many comparisons the same question has; `adjusted_p` accounts for them."""
    cases: int
    """Pairs that count."""
    confidence: float
    rate_subject: float | None
    """The mean of the cases' rates, over the pairs only."""
    rate_reference: float | None
    passing: Difference | None
    """None if no case is judged on both sides."""
    score: Difference | None
    """None if scores add nothing to pass and fail, or no case has scores by the same graders."""
    score_cases: int | None = None
    """Pairs with scores by the same graders; None if unknown."""
    are_scores_partial: bool = field(default=False, metadata=NOT_REPORTED)
    """Whether some answers of these pairs were scored by different graders, and are left out."""
    finding: Finding
    """Based on `passing`."""
    detectable: float | None
    """The smallest difference that these cases can show, with 80% power, as one of this many
    comparisons; 1 if they are too few to show any."""
    spread: SeenSpread | None = field(default=None, metadata=NOT_REPORTED)
    """What `detectable` is computed from, and again once the number of comparisons is known."""
    passed_subject: tuple[int, int] = field(default=(0, 0), metadata=NOT_REPORTED)
    """Trials that passed, and trials judged, of the pairs ..."""
    passed_reference: tuple[int, int] = field(default=(0, 0), metadata=NOT_REPORTED)
    """... on each side."""
    if_errors: Interval | None
    """The least and the most that the mean difference could be, whatever errors hide; None
    without errors."""
    seconds: Ratio | None
    """Time of judged trials; so is the cost."""
    cost: Ratio | None
    timeouts_subject: int = 0
    """Trials that timed out and are not in the time ..."""
    timeouts_reference: int = 0
    """... on each side, of the cases that both have."""
    pass_at: tuple[PassAtK, ...] = ()
    left_out: LeftOut = LeftOut()
    turned: CaseChanges = CaseChanges()
    stopped: EarlyStopState | None = None
    """For a run that may stop early: then claims are valid at any time."""
