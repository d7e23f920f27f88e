"""Tests that wait out rate limits: each attempt starts like the first.

In a plain session, the plugin here runs the attempts; with --parallel, the parent decides whether
there is another one, and when.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from copy import copy
from typing import Any

import pytest

from paraval.pytest_plugin.models.item_outcomes import PASSED, PhaseEnd, outcome_of
from paraval.pytest_plugin.models.model_accounts import RetryMark, retry_mark_of
from paraval.pytest_plugin.models.spending import begin_again as spend_again, with_earlier
from paraval.pytest_plugin.models.spent import PROPERTY
from paraval.pytest_plugin.pytest_internals import call_and_report
from paraval.pytest_plugin.recording.report_data import (
    ReportData,
    attach_report_data,
    report_data_of,
)
from paraval.records import AttemptResult, Failure, Outcome

__tracebackhide__ = True  # Tracebacks of tests don't show this module.
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0
_PROPERTIES = pytest.StashKey[list[tuple[str, object]]]()
"""The test's report properties before its first attempt."""


def begin(item: pytest.Item) -> None:
    """Prepare the first attempt."""
    item.stash[_PROPERTIES] = list(item.user_properties)


def begin_again(item: pytest.Item, *, keeps_spending: bool) -> None:
    """Prepare another attempt: drop what the previous one printed, reported and left behind.

    `keeps_spending`: it is reported for all attempts together.
    """
    item._report_sections.clear()
    spent = [one for one in item.user_properties if keeps_spending and one[0] == PROPERTY]
    item.user_properties[:] = [*item.stash.get(_PROPERTIES, ()), *spent]
    if keeps_spending:
        spend_again(item)
    # pytest creates the instance of a test's class on first access, and keeps it. A function that
    # is not in the class stays as it is.
    name = getattr(item, "originalname", None)
    if isinstance(item.parent, pytest.Class) and name and hasattr(item.parent.obj, name):
        own: Any = item
        own._obj = None
        vars(own).pop("_instance", None)


def refusal_in(phases: Sequence[PhaseEnd], item: pytest.Item) -> Failure | None:
    """The refusal by a rate limit in the phases so far; None for a lasting one, such as a used-up
    quota, which is not worth waiting for."""
    outcome, failure = outcome_of(phases, item)
    if outcome is not Outcome.RATE_LIMITED or failure is None or failure.lasting:
        return None
    return failure


class RateLimitRetryPlugin:
    """Reruns marked tests that a rate limit refused, in a plain session."""

    NAME = "paraval-trying-again"

    def __init__(self) -> None:
        self._phases: list[PhaseEnd] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        retry_mark = retry_mark_of(item)
        if retry_mark is None or item.config.getoption("setupshow", False):
            return None
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem, retry_mark):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(
        self, item: pytest.Item, nextitem: pytest.Item | None, retry_mark: RetryMark
    ) -> list[pytest.TestReport]:
        begin(item)
        for number in range(1, retry_mark.tries + 1):
            last = number == retry_mark.tries
            reports = self._attempt(item, nextitem, is_last=last)
            refusal = refusal_in(self._phases, item)
            if last or refusal is None:
                return reports
            begin_again(item, keeps_spending=True)
            after_s = refusal.retry_after
            longest_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (number - 1))
            time.sleep(after_s if after_s is not None else random.uniform(0, longest_s))  # noqa: S311 - jitter
        raise AssertionError("tries is 1 or more")

    def _attempt(
        self, item: pytest.Item, nextitem: pytest.Item | None, *, is_last: bool
    ) -> list[pytest.TestReport]:
        """Like pytest's own `runtestprotocol`, which must know the next test before it starts."""
        self._phases = []
        own: Any = item
        if not getattr(own, "_request", True):
            own._initrequest()
        reports = [call_and_report(item, "setup", log=False)]
        if reports[0].passed:
            reports.append(call_and_report(item, "call", log=False))
        session = item.session
        if session.shouldfail or session.shouldstop:
            nextitem = None
        elif not is_last and refusal_in(self._phases, item) is not None:
            # A copy follows: what the two share stays up, and the test's own fixtures are torn
            # down.
            nextitem = copy(item)
        reports.append(call_and_report(item, "teardown", log=False, nextitem=nextitem))
        if hasattr(own, "_request"):
            own._request, own.funcargs = False, None
        return reports

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        self._phases.append(PhaseEnd(report=report, error=error))
        return report


# ---- in the parent of workers


def result_in(reports: Sequence[pytest.TestReport]) -> AttemptResult:
    """How a test ended, from its worker; tests that pass say nothing of it."""
    data = report_data_of(reports[-1])
    if data is not None:
        return data.result
    took = sum(report.duration for report in reports)
    return AttemptResult(outcome=Outcome.PASSED, grades=(PASSED,), score=1.0, duration_s=took)


class RefusedAttempts:
    """Attempts that a rate limit refused, by test."""

    def __init__(self) -> None:
        self._tries: dict[int, list[AttemptResult]] = {}
        self._properties: dict[int, list[tuple[str, object]]] = {}

    def may_come_again(self, test: int, item: pytest.Item, result: AttemptResult) -> bool:
        mark = retry_mark_of(item) if result.outcome is Outcome.RATE_LIMITED else None
        return mark is not None and len(self._tries.get(test, ())) + 1 < mark.tries

    def add(self, test: int, reports: Sequence[pytest.TestReport], result: AttemptResult) -> None:
        self._tries.setdefault(test, []).append(result)
        self._properties[test] = with_earlier(
            reports[-1].user_properties, self._properties.get(test, ())
        )

    def joined(
        self, test: int, reports: Sequence[pytest.TestReport]
    ) -> Sequence[pytest.TestReport]:
        """Add to a test's reports what refused attempts spent, and how they ended."""
        tries = self._tries.pop(test, None)
        if tries:
            for report in reports:
                report.user_properties = with_earlier(
                    report.user_properties, self._properties[test]
                )
            data = ReportData(result=result_in(reports), earlier=tuple(tries))
            attach_report_data(reports[-1], data)
        return reports
