"""A plugin of pytest for tests of logs and warnings: every test in its own thread, all at once.

It is what the parallel loop does, without the engine and without asking who must run alone; only
fixtures of functions are set up as they should be.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from contextlib import ExitStack
from typing import Any, cast

import pytest
from _pytest.runner import SetupState

from paraval.pytest_plugin.isolation.exceptions import isolate_asserts
from paraval.pytest_plugin.isolation.item_environment import environment_by_test
from paraval.pytest_plugin.isolation.item_logs import LogRecorder, isolate_logs
from paraval.pytest_plugin.isolation.item_warnings import emit, isolate_warnings, record_warnings
from paraval.pytest_plugin.running.current_test import (
    Phase,
    RunningTest,
    current_test,
    propagate_to_threads,
)


class SetupByTurn:
    """In the place of the session's one stack: one for each turn."""

    def __init__(self) -> None:
        self._stacks: dict[RunningTest, SetupState] = {}

    def __getattr__(self, name: str) -> Any:
        test = current_test()
        assert test is not None
        return getattr(self._stacks.setdefault(test, SetupState()), name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: Any) -> bool:
    config = session.config
    plain_setup, session._setupstate = session._setupstate, SetupByTurn()
    ends: dict[pytest.Item, list[pytest.TestReport]] = {item: [] for item in session.items}
    tests = []
    with ExitStack() as parts:
        parts.enter_context(environment_by_test([]))
        for part in (
            propagate_to_threads(),
            isolate_asserts(config),
            isolate_warnings(config),
            isolate_logs(config),
        ):
            parts.enter_context(part)
        start = threading.Barrier(len(ends))
        threads = []
        for item, reports in ends.items():
            own_fixtures(item)
            test = RunningTest(
                item=item, captured=cast("Any", None), logs=LogRecorder(item, config)
            )
            tests.append(test)
            threads.append(threading.Thread(target=run, args=(test, reports, start), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    session._setupstate = plain_setup
    for test in tests:
        item = test.item
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in ends[item]:
            item.ihook.pytest_runtest_logreport(report=report)
        emit(item, test.warned)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def own_fixtures(item: Any) -> None:
    named = {}
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():
        named[name] = [copy.copy(one) for one in definitions]
        for one in named[name]:
            one._finalizers = []
    item._fixtureinfo = dataclasses.replace(item._fixtureinfo, name2fixturedefs=named)
    item._initrequest()


def run(test: RunningTest, reports: list[pytest.TestReport], start: threading.Barrier) -> None:
    start.wait(20)
    with test.running_here(), record_warnings(test):
        reports.append(phase(test, "setup"))
        if reports[0].passed:
            reports.append(phase(test, "call"))
        reports.append(phase(test, "teardown"))


def phase(test: RunningTest, name: Phase) -> pytest.TestReport:
    item, manager = test.item, test.item.config.pluginmanager
    without = [manager.get_plugin("capturemanager"), manager.get_plugin("logging-plugin")]
    hook = manager.subset_hook_caller(f"pytest_runtest_{name}", without)
    named = {"nextitem": None} if name == "teardown" else {}

    def act() -> None:
        test.phase = name
        test.logs.begin(name)
        try:
            hook(item=item, **named)
        finally:
            test.logs.end(name)

    call = pytest.CallInfo.from_call(act, when=name)
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report
