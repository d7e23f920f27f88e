"""The timeouts of tests, and what enforces them.

A test's timeout comes from `@pytest.mark.timeout_s` or from pytest-timeout's settings. Setup and
call share it, and the teardown has it again. `watchdog` ends tests. In the main thread,
pytest-timeout enforces its own settings.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import pytest

from paraval.pytest_plugin.running.current_test import Phase, current_test
from paraval.pytest_plugin.timeouts.stacks import TestTimedOut
from paraval.pytest_plugin.timeouts.watchdog import TimeoutWatcher, alarm

MARK = "timeout_s"
PYTEST_TIMEOUT = ("timeout", "pytest_timeout")
"""The names that pytest-timeout may be registered by; the second with `-p`."""


def seconds_of(item: pytest.Item) -> float | None:
    """The timeout of a parallel test; None: none. Its own mark has priority."""
    own = own_seconds_of(item)
    if own is not None:
        return own
    settings = _settings_of_pytest_timeout(item)
    if settings is None or settings.timeout is None or settings.timeout <= 0:
        return None
    return float(settings.timeout)


def own_seconds_of(item: pytest.Item) -> float | None:
    """The value of the mark `timeout_s`."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    given = (*mark.args, *mark.kwargs.values())
    seconds = given[0] if len(given) == 1 and set(mark.kwargs) <= {"seconds"} else None
    if isinstance(seconds, int | float) and seconds is not True and 0 < seconds < math.inf:
        return float(seconds)
    shown = ", ".join((*map(repr, mark.args), *(f"{k}={v!r}" for k, v in mark.kwargs.items())))
    raise pytest.UsageError(
        f"{item.nodeid}: @pytest.mark.{MARK}({shown}) takes a number of seconds above 0, "
        f"as in @pytest.mark.{MARK}(30)"
    )


def counts_only_the_call(item: pytest.Item) -> bool:
    """Whether pytest-timeout's `func_only` is set; ignored with the mark `timeout_s`."""
    if item.get_closest_marker(MARK) is not None:
        return False
    settings = _settings_of_pytest_timeout(item)
    return settings is not None and bool(settings.func_only)


def _settings_of_pytest_timeout(item: pytest.Item) -> Any:
    """pytest-timeout's Settings for a test, by its own rules; None: not installed."""
    found = map(item.config.pluginmanager.get_plugin, PYTEST_TIMEOUT)
    plugin = next((one for one in found if one is not None), None)
    # Its rules (mark, flag, variable, ini file) are private, but only it has them.
    read = getattr(plugin, "_get_item_settings", None)
    if read is None:
        return None
    try:
        return read(item)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.timeout: {error}") from error


# ---- around each phase


class TimeoutPlugin:
    """A plugin that enforces timeouts, for parallel tests and in the main thread."""

    NAME = "paraval-time-limits"

    def __init__(self, watcher: TimeoutWatcher | None = None) -> None:
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
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, TestTimedOut):
            call.excinfo.value.hung.set_place(report)
        return report

    def _limited(self, item: pytest.Item, phase: Phase) -> Generator[None, Any, Any]:
        test = current_test()
        if test is not None:
            watch = None if self._watcher is None else self._watcher.watch_of(test)
            return (yield) if watch is None else (yield from watch.around_phase(phase))
        seconds = own_seconds_of(item)
        if seconds is None:
            return (yield)
        with alarm(item, seconds, phase):
            return (yield)
