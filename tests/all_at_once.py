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

from paraval.pytest_plugin.isolation.exceptions import asserts_apart
from paraval.pytest_plugin.isolation.test_environment import environment_by_test
from paraval.pytest_plugin.isolation.test_logs import TurnLogs, logs_apart
from paraval.pytest_plugin.isolation.test_warnings import catching, emit, warnings_apart
from paraval.pytest_plugin.running.current_test import Phase, Turn, carrying, current


class SetupByTurn:
    """In the place of the session's one stack: one for each turn."""

    def __init__(self) -> None:
        self._stacks: dict[Turn, SetupState] = {}

    def __getattr__(self, name: str) -> Any:
        turn = current()
        assert turn is not None
        return getattr(self._stacks.setdefault(turn, SetupState()), name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: Any) -> bool:
    config = session.config
    plain_setup, session._setupstate = session._setupstate, SetupByTurn()
    ends: dict[pytest.Item, list[pytest.TestReport]] = {item: [] for item in session.items}
    turns = []
    with ExitStack() as walls:
        walls.enter_context(environment_by_test([]))
        for wall in (carrying(), asserts_apart(config), warnings_apart(config), logs_apart(config)):
            walls.enter_context(wall)
        start = threading.Barrier(len(ends))
        threads = []
        for item, reports in ends.items():
            own_fixtures(item)
            turn = Turn(item=item, captured=cast("Any", None), logs=TurnLogs(item, config))
            turns.append(turn)
            threads.append(threading.Thread(target=run, args=(turn, reports, start), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    session._setupstate = plain_setup
    for turn in turns:
        item = turn.item
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in ends[item]:
            item.ihook.pytest_runtest_logreport(report=report)
        emit(item, turn.warned)
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


def run(turn: Turn, reports: list[pytest.TestReport], start: threading.Barrier) -> None:
    start.wait(20)
    with turn.taken(), catching(turn):
        reports.append(phase(turn, "setup"))
        if reports[0].passed:
            reports.append(phase(turn, "call"))
        reports.append(phase(turn, "teardown"))


def phase(turn: Turn, name: Phase) -> pytest.TestReport:
    item, manager = turn.item, turn.item.config.pluginmanager
    without = [manager.get_plugin("capturemanager"), manager.get_plugin("logging-plugin")]
    hook = manager.subset_hook_caller(f"pytest_runtest_{name}", without)
    named = {"nextitem": None} if name == "teardown" else {}

    def act() -> None:
        turn.phase = name
        turn.logs.begin(name)
        try:
            hook(item=item, **named)
        finally:
            turn.logs.end(name)

    call = pytest.CallInfo.from_call(act, when=name)
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report
