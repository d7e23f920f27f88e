"""How much a page may hold, and what is left out when not all of it fits.

What did not pass comes first: a passed trial is told in full only as far as all that did not pass
would still fit behind it. What other parts of the page link to is always there, at least in short.
"""

from __future__ import annotations

from paraval.isolation import PATCH
from paraval.records import Outcome, TrialResult
from paraval.report.page.artifacts import LONGEST_LOG, is_log
from paraval.report.page.excerpts import LONGEST_TEXT

LARGEST_PAGE = 25_000_000
"""Characters: what browsers still open."""
_SHARE_FOR_SHORT_FORMS = 0.2
"""Kept of it for trials that are told in one line."""
WEIGHT_OF_A_TRIAL = 1_000
"""Characters that its elements are counted as, however short its text: they take a browser's time
as well."""
_AROUND_A_TRIAL = 2_500
_HEADING_OF_A_CASE = 1_500
"""What stands before its trials, where nothing long was asked."""


def expected_size(result: TrialResult) -> int:
    """About what a trial takes on the page, without reading what it left."""
    end = result.result
    answer = 0 if end.output is None else min(len(end.output.text), LONGEST_TEXT)
    logs = sum(LONGEST_LOG for name in end.artifacts if is_log(name))
    patch = LONGEST_TEXT if PATCH in end.artifacts else 0
    return _AROUND_A_TRIAL + answer + patch + logs * max(result.attempts, 1)


def kept_for(result: TrialResult) -> int:
    """What a trial that did not pass is kept: for itself, and for its case if it is the first."""
    return _HEADING_OF_A_CASE + expected_size(result)


class Room:
    """What is left of a page, while trials are written to it."""

    def __init__(self, *, largest: int = LARGEST_PAGE, unpassed: int) -> None:
        """`unpassed`: what is kept for all trials that did not pass."""
        self._left = largest
        self._for_short_forms = int(largest * _SHARE_FOR_SHORT_FORMS)
        self._unpassed = unpassed

    def take(self, size: int) -> None:
        self._left -= size

    def was_told_in_short(self, size: int) -> None:
        """So much less is to be kept for what comes."""
        self._for_short_forms = max(0, self._for_short_forms - size)

    def came_by(self, result: TrialResult) -> None:
        """An unpassed trial is no longer to come."""
        if result.outcome is not Outcome.PASSED:
            self._unpassed = max(0, self._unpassed - kept_for(result))

    def may_hold_trial(self, result: TrialResult, size: int) -> bool:
        """Whether this trial may be told in full, in so many characters."""
        return self.may_hold(size, passed=result.outcome is Outcome.PASSED)

    def may_hold(self, size: int, *, passed: bool) -> bool:
        return size <= self._left - self._for_short_forms - self._kept(passed=passed)

    def may_hold_in_short(self, result: TrialResult, size: int) -> bool:
        return size <= self._left - self._kept(passed=result.outcome is Outcome.PASSED)

    def _kept(self, *, passed: bool) -> int:
        """What passed trials leave to those that did not pass."""
        return self._unpassed if passed else 0
