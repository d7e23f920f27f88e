"""A plugin of pytest for tests of fixtures: tests in sixteen threads, without the engine.

Marks tell what becomes of a test: `forgotten` never runs, `hangs` is given up after a moment,
`twice` runs once more.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from _pytest import runner

from paraval.pytest_plugin.exclusive.lock import ExclusiveLock
from paraval.pytest_plugin.fixtures.instances import FixtureInstances
from paraval.pytest_plugin.fixtures.setup_tree import SharedSetup
from paraval.pytest_plugin.session.loop import tear_down_rest

AT_ONCE = 16
MOMENT_S = 0.3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts-unknown", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("forgotten", "hangs", "twice"):
        config.addinivalue_line("markers", mark)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: Any) -> bool:
    # One variable of the process names the one test that runs.
    runner._update_current_test_var = lambda *_arguments: None
    items = None if session.config.option.counts_unknown else session.items
    exclusive_lock = ExclusiveLock()
    session._setupstate = setup = SharedSetup(items, exclusive_lock)
    fixtures = FixtureInstances(session, exclusive_lock)
    with fixtures.installed():
        reports = Threads(session, setup, fixtures).run()
    for item in session.items:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports.get(item, ()):
            item.ihook.pytest_runtest_logreport(report=report)
    tear_down_rest(session.config, setup)
    return True


class Threads:
    def __init__(self, session: Any, setup: SharedSetup, fixtures: FixtureInstances) -> None:
        self._setup = setup
        self._fixtures = fixtures
        self._todo: SimpleQueue[pytest.Item] = SimpleQueue()
        self._hanging: list[pytest.Item] = []
        self._reports: dict[pytest.Item, list[pytest.TestReport]] = {}
        for item in session.items:
            if item.get_closest_marker("forgotten"):
                setup.forget(item)
            elif item.get_closest_marker("hangs"):
                self._hanging.append(item)
            else:
                self._todo.put(item)

    def run(self) -> dict[pytest.Item, list[pytest.TestReport]]:
        for item in self._hanging:
            threading.Thread(target=self._perform, args=(item,), daemon=True).start()
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        if self._hanging:
            threads[0].join(MOMENT_S)
            for item in self._hanging:
                self._setup.abandon(item)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "a thread waits for ever"
        return self._reports

    def _work(self) -> None:
        while True:
            try:
                item = self._todo.get_nowait()
            except Empty:
                return
            self._perform(item)
            if item.get_closest_marker("twice"):
                self._setup.runs_again(item)
                self._perform(item)

    def _perform(self, item: pytest.Item) -> None:
        self._fixtures.give(item)
        reports = runner.runtestprotocol(item, log=False, nextitem=None)
        self._reports[item] = reports
