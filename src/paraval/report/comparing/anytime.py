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
from paraval.statistics.sequential import SignTest, mixture_radius

_WIDEST: Interval = (-1.0, 1.0)


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
    test = SignTest()
    for one in differences:
        test.add(one)
    alpha = (1 - confidence) / comparisons
    difference = Difference(
        mean=fmean(differences) if differences else 0.0,
        interval=_interval(differences, confidence),
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


def _interval(differences: Sequence[float], confidence: float) -> Interval:
    """The confidence sequence of the mean, as it stands after these; all, where there are none."""
    if not differences:
        return _WIDEST
    mean = fmean(differences)
    radius = mixture_radius(len(differences), confidence, range_=2.0)
    return max(_WIDEST[0], mean - radius), min(_WIDEST[1], mean + radius)
