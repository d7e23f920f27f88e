"""What may be said of two sides where how many cases there are depends on how they ended.

`anytime` works out the difference and how the contest stands; here is which cases that is asked of,
and what else of a comparison must go: all that is meant for one look at a number of cases that was
fixed before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from paraval.report.comparing.anytime import Missing
from paraval.report.comparing.comparison import (
    Comparison,
    Difference,
    Finding,
    Method,
    Ratio,
    Stopped,
)
from paraval.report.comparing.pairs import Setting, difference_of, judged_of

_UNKNOWN_WIDTH = (0.0, math.inf)

State = float | Missing
"""Of a case: its difference, or why it has none."""


def state_of(settings: Sequence[Setting]) -> State:
    """Of a case, by what both sides have of it."""
    if any(side.skipped for setting in settings for side in setting):
        return Missing.NOT_YET
    judged = judged_of(settings)
    return difference_of(judged) if judged else Missing.ENDED_WITHOUT


def counting(order: Sequence[str], states: Mapping[str, State]) -> set[str]:
    """The cases in drawn order, up to the first that has no state yet."""
    return set(takewhile(lambda case: states[case] is not Missing.NOT_YET, order))


def claiming(compared: Comparison, claim: tuple[Difference, Stopped], *, among: int) -> Comparison:
    """A comparison of the cases that count, with what holds of them at any time."""
    difference, stopped = claim
    return replace(
        _of_no_fixed_number(compared),
        among=among,
        passing=difference if compared.cases else None,
        finding=_decided(difference) if stopped.decided else Finding.NOT_SHOWN,
        stopped=stopped,
    )


def claiming_nothing(compared: Comparison) -> Comparison:
    """Where nobody knows in which order the cases were drawn: how the sides stand, and no more."""
    passing = compared.passing
    if passing is not None:
        passing = replace(passing, p=1.0, adjusted_p=1.0, interval=(-1.0, 1.0), method=Method.NONE)
    return replace(_of_no_fixed_number(compared), passing=passing, finding=Finding.NOT_SHOWN)


def _of_no_fixed_number(compared: Comparison) -> Comparison:
    return replace(
        compared,
        score=None,
        detectable=None,
        seconds=_without_interval(compared.seconds),
        cost=_without_interval(compared.cost),
    )


def _without_interval(ratio: Ratio | None) -> Ratio | None:
    return None if ratio is None else replace(ratio, interval=_UNKNOWN_WIDTH)


def _decided(difference: Difference) -> Finding:
    """By the mean, where the interval leaves out 0: pairs that were still running when it was
    decided may have turned it."""
    low, high = difference.interval
    if low > 0:
        return Finding.BETTER
    return Finding.WORSE if high < 0 else Finding.NOT_SHOWN
