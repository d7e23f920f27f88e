"""A session with `--parallel`: the plugin that puts the parts together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from _pytest.main import Session

from paraval.pytest_plugin import neighbours
from paraval.pytest_plugin.apart import Apart, no_current_test
from paraval.pytest_plugin.asserted import asserts_apart
from paraval.pytest_plugin.asyncs import asyncs_apart
from paraval.pytest_plugin.captured import streams_apart
from paraval.pytest_plugin.capsys import set_up_capsys
from paraval.pytest_plugin.carrying import carrying
from paraval.pytest_plugin.children_output import children_apart
from paraval.pytest_plugin.emitting import Emitter
from paraval.pytest_plugin.floor import Floor
from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.logs import logs_apart
from paraval.pytest_plugin.nets import nets
from paraval.pytest_plugin.order import Order
from paraval.pytest_plugin.own_fixtures import OwnFixtures
from paraval.pytest_plugin.performing import Premises, Tests
from paraval.pytest_plugin.programme import programme_of
from paraval.pytest_plugin.progress import progress_for
from paraval.pytest_plugin.protocol import Middle
from paraval.pytest_plugin.running import ParallelRun
from paraval.pytest_plugin.shared_setup import SharedSetup
from paraval.pytest_plugin.solo import Solo
from paraval.pytest_plugin.stage import Stage
from paraval.pytest_plugin.timeouts import Watcher, seconds_of
from paraval.pytest_plugin.wanted import Wanted
from paraval.pytest_plugin.warned import warnings_apart

NAME = "paraval-parallel"


def register_parallel(config: pytest.Config, wanted: Wanted) -> None:
    """From here on the session's loop is ours."""
    order = Order(config)
    config.pluginmanager.register(order, Order.NAME)
    config.pluginmanager.register(ParallelSession(config, wanted, order), NAME)


class ParallelSession:
    """Hooks of a session whose tests run side by side."""

    def __init__(self, config: pytest.Config, wanted: Wanted, order: Order) -> None:
        self._config = config
        self._wanted = wanted
        self._order = order
        self._alone: dict[str, str] = {}

    def pytest_report_header(self) -> list[str]:
        at_once = "as many at once as the machine carries" if self._wanted.auto else f"{self._wanted.parallel} at once"
        return [f"parallel: {at_once}", *neighbours.notes(self._config)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> bool | None:
        if session.config.option.collectonly or not session.items:
            return None
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None
        self._run(session)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _run(self, session: Session) -> None:
        config, items = self._config, session.items
        history = History(config)
        programmed = programme_of(config, items, self._wanted, history)
        self._alone.update(programmed.alone)
        floor = Floor()
        setup = SharedSetup(items, floor)
        fixtures = OwnFixtures(session, floor)
        apart = Apart(self._walls(session, floor))
        solo = Solo(apart, fixtures)
        premises = Premises(
            stage=Stage(),
            apart=apart,
            floor=floor,
            setup=setup,
            fixtures=fixtures,
            watcher=Watcher(),
            solo=solo,
        )
        tests = Tests(config, items, premises, seconds_of=seconds_of, is_retried=is_retried)
        run = ParallelRun(
            session,
            programmed.programme,
            tests,
            premises=premises,
            emitter=Emitter(lambda _item: None),
            progress=progress_for(config, self._wanted.progress, len(items)),
        )
        manager = config.pluginmanager
        session._setupstate = setup
        with fixtures.installed():
            for plugin in (solo, middle := Middle()):
                manager.register(plugin, plugin.NAME)
            try:
                run.run()
            finally:
                for plugin in (solo, middle):
                    manager.unregister(plugin)
        self._alone.update(floor.reasons)
        history.remember_alone(floor.reasons)

    def _walls(
        self, session: Session, floor: Floor
    ) -> list[Callable[[], AbstractContextManager[Any]]]:
        config = self._config
        return [
            carrying,
            partial(warnings_apart, config, session.items),
            partial(streams_apart, config),
            partial(children_apart, config),
            partial(logs_apart, config),
            partial(asserts_apart, config),
            partial(asyncs_apart, config),
            no_current_test,
            partial(nets, floor, session),
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> object | None:
        return set_up_capsys(fixturedef, request)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Session) -> None:
        self._order.restore(session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any, config: pytest.Config) -> Any:
        """With -v: why a test ran alone."""
        status = yield
        why = self._alone.get(report.nodeid)
        if why is None or config.get_verbosity() < 1 or not status or not status[2]:
            return status
        category, letter, word = status
        if isinstance(word, tuple):
            return category, letter, (f"{word[0]} (alone: {why})", word[1])
        return category, letter, f"{word} (alone: {why})"


def is_retried(item: pytest.Item) -> bool:
    return item.get_closest_marker("retry_rate_limits") is not None
