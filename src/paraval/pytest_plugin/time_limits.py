"""Stands around each phase of each test that has a time to end by.

Inside of what makes a report of the phase, so that a test whose time is up fails like any other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from paraval.pytest_plugin.hung import TestTimedOut
from paraval.pytest_plugin.timeouts import Watcher, own_seconds_of
from paraval.pytest_plugin.turns import Phase, current


class TimeLimits:
    """A plugin, for turns and for the main thread."""

    NAME = "paraval-time-limits"

    def __init__(self, watcher: Watcher | None = None) -> None:
        """Without a watcher, tests run in the main thread only."""
        self._watcher = watcher

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._limited(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._limited(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._limited(item, "teardown"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, TestTimedOut):
            call.excinfo.value.hung.place(report, item.config.rootpath)
        return report

    def _limited(self, item: pytest.Item, phase: Phase) -> Generator[None, Any, Any]:
        turn = current()
        if turn is not None:
            watch = None if self._watcher is None else self._watcher.watch_of(turn)
            return (yield) if watch is None else (yield from watch.during(phase))
        seconds = own_seconds_of(item)
        if seconds is None:
            return (yield)
        from paraval.pytest_plugin.alarm import alarm

        with alarm(item, seconds, phase):
            return (yield)
