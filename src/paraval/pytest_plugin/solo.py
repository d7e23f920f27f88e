"""Tests that run alone: in the main thread, by pytest's own protocol, when nothing else runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from paraval.pytest_plugin.apart import Apart
from paraval.pytest_plugin.attempts import will_come_again
from paraval.pytest_plugin.item_ends import ItemEnd
from paraval.pytest_plugin.nets import Net
from paraval.pytest_plugin.outcomes import result_of
from paraval.pytest_plugin.own_fixtures import OwnFixtures
from paraval.pytest_plugin.protocol import PhaseEnd


class Solo:
    """A plugin, too: it takes down how the phases of the one test that runs here end."""

    NAME = "paraval-solo"

    def __init__(
        self,
        apart: Apart,
        fixtures: OwnFixtures,
        net: Net,
        *,
        keep: Callable[[pytest.Item], None],
        on_end: Callable[[str, bool], None],
    ) -> None:
        """`keep` is told of a test that will be tried again, before its teardown; `on_end` of each
        whether it changed the process, as far as nets tell."""
        self._keep = keep
        self._apart = apart
        self._fixtures = fixtures
        self._net = net
        self._on_end = on_end
        self._phases: list[PhaseEnd] = []
        self._is_told_later = False

    def run(self, item: pytest.Item, *, before: Callable[[], None], is_told_later: bool) -> ItemEnd:
        """In the main thread; `before` anything of it is told. `is_told_later`: reporters hear
        nothing of it yet."""
        self._apart.take_down()
        before()
        self._fixtures.give(item)
        self._phases = []
        began, changes = time.perf_counter(), self._net.changes_alone
        with self._listening(item.config.pluginmanager, is_told_later=is_told_later):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        self._on_end(item.nodeid, self._net.changes_alone > changes)
        return ItemEnd(
            item=item,
            phases=tuple(self._phases),
            result=result_of(item, self._phases, time.perf_counter() - began),
            is_told=not is_told_later,
        )

    @contextmanager
    def _listening(
        self, manager: pytest.PytestPluginManager, *, is_told_later: bool
    ) -> Iterator[None]:
        """Only while such a test runs: every hook of every other test would pay for it."""
        self._is_told_later = is_told_later
        manager.register(self, self.NAME)
        try:
            yield
        finally:
            manager.unregister(self)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        if not self._is_told_later:
            return None
        runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        self._phases.append(PhaseEnd(report=report, error=error, interacts=None))
        if report.when != "teardown" and will_come_again(self._phases, item):
            self._keep(item)
        return report
