"""Our marks in plain pytest runs: timeouts and rate limits, one test after another."""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from copy import copy
from typing import Any

import pytest

from paraval.pytest_plugin.models.model_accounts import RetryMark, retry_mark_of
from paraval.pytest_plugin.pytest_internals import call_and_report
from paraval.pytest_plugin.running.attempts import begin, begin_again, refusal_in
from paraval.pytest_plugin.running.current_test import PhaseEnd
from paraval.pytest_plugin.running.patches import hide_own_frames
from paraval.pytest_plugin.timeouts.time_limits import TimeoutPlugin

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0


def register_plain(config: pytest.Config) -> None:
    hide_own_frames()
    config.pluginmanager.register(TimeoutPlugin(), TimeoutPlugin.NAME)
    config.pluginmanager.register(RateLimitRetryPlugin(), RateLimitRetryPlugin.NAME)


class RateLimitRetryPlugin:
    """A plugin that reruns marked tests that a rate limit refused."""

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
            begin_again(item)
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
