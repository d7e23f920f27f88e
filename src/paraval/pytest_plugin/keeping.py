"""A refused test that will be tried again keeps what it shares with others, as if it had not ended.

Else a server that only this test needs would be started and ended for each attempt.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pytest

from paraval.pytest_plugin.attempts import refusal_in
from paraval.pytest_plugin.needs import MARK
from paraval.pytest_plugin.protocol import PhaseEnd
from paraval.pytest_plugin.shared_setup import SharedSetup

MAY_COME_AGAIN = pytest.StashKey[bool]()
"""In a test that is marked for it: whether it has attempts left after this one."""


def keeping_for(items: Iterable[pytest.Item], setup: SharedSetup) -> list[Keeping]:
    """None where no test is marked for it: every report of every test would pay for it."""
    is_needed = any(item.get_closest_marker(MARK) is not None for item in items)
    return [Keeping(setup)] if is_needed else []


class Keeping:
    """A plugin: sees refusals before the teardown of their tests, wherever these run."""

    NAME = "paraval-keeping"

    def __init__(self, setup: SharedSetup) -> None:
        self._setup = setup

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and report.when != "teardown" and item.stash.get(MAY_COME_AGAIN, False):
            error = None if call.excinfo is None else call.excinfo.value
            phase = PhaseEnd(report=report, error=error, interacts=None)
            if refusal_in([phase], item) is not None:
                self._setup.keep(item)
        return report
