"""What may be claimed of a comparison that may stop at any time.

Pairs come in the drawn order of their cases and count as a prefix without holes: which trials
happen to have ended by a moment may depend on how they end (wrong answers are often quick), but
the cases that come first in a drawn order are a random sample whatever their outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from statistics import fmean

from paraval.report.comparing.comparison import Difference, Interval, Method, Stopped
from paraval.statistics.betting import MeanTest, betting_interval


class Missing(Enum):
    """Why a case has no difference."""

    ENDED_WITHOUT = "all its trials ended, but it is not judged on both sides"
    NOT_YET = "it has not run, still runs, or was skipped"


def anytime_difference(
    pairs: Sequence[float | Missing | None],
    planned: int,
    confidence: float,
    comparisons: int = 1,
) -> tuple[Difference, Stopped]:
    """Subject less reference, from the differences of cases in drawn order, each in [-1, 1].

    A case that ended without a difference (None, too) is passed over; the first that has none yet
    ends what counts. `planned` is how many cases there are, `comparisons` how many are made of the
    same question: each of them must be so much surer.
    """
    prefix = list(_prefix(pairs))
    differences = [pair for pair in prefix if isinstance(pair, (int, float))]
    test, surest = MeanTest(), 0
    for number, one in enumerate(differences, start=1):
        before = test.best
        test.add(one)
        if test.best > before:
            surest = number
    alpha = (1 - confidence) / comparisons
    difference = Difference(
        mean=fmean(differences) if differences else 0.0,
        interval=_interval(differences, surest, 1 - alpha),
        p=test.p,
        adjusted_p=min(1.0, test.p * comparisons),
        method=Method.ANYTIME if differences else Method.NONE,
        wins=test.wins,
        losses=test.losses,
    )
    stopped = Stopped(
        used=len(differences),
        planned=planned,
        decided=test.is_decided(alpha),
        futile=test.is_futile(max(0, planned - len(prefix)), alpha),
    )
    return difference, stopped


def _prefix(pairs: Sequence[float | Missing | None]) -> Iterable[float | Missing | None]:
    for pair in pairs:
        if pair is Missing.NOT_YET:
            return
        yield pair


def _interval(differences: Sequence[float], surest: int, confidence: float) -> Interval:
    """Where the mean may lie: after all of these, and after the first ones, with which the test was
    surest. What was ruled out once stays so, also where pairs that came later speak against it."""
    low, high = betting_interval(differences, confidence)
    if 0 < surest < len(differences):
        first_low, first_high = betting_interval(differences[:surest], confidence)
        mean = fmean(differences)
        low, high = min(max(low, first_low), mean), max(min(high, first_high), mean)
    return low, high
