"""A session with `--parallel`: the plugin that puts the parts together."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from _pytest.main import Session

from paraval.pytest_plugin import neighbours
from paraval.pytest_plugin.apart import Apart, Walls, no_current_test
from paraval.pytest_plugin.asserted import asserts_apart
from paraval.pytest_plugin.assignment import Assignment
from paraval.pytest_plugin.asyncs import asyncs_apart
from paraval.pytest_plugin.capsys import set_up_capsys
from paraval.pytest_plugin.captured import streams_apart
from paraval.pytest_plugin.carrying import carrying
from paraval.pytest_plugin.children_output import children_apart
from paraval.pytest_plugin.collecting import collecting_for_sure
from paraval.pytest_plugin.floor import Floor
from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.keeping import keeping_for
from paraval.pytest_plugin.last_teardown import tear_down_rest
from paraval.pytest_plugin.logs import logs_apart
from paraval.pytest_plugin.nets import nets
from paraval.pytest_plugin.order import Order
from paraval.pytest_plugin.own_fixtures import OwnFixtures
from paraval.pytest_plugin.own_frames import hide_own_frames
from paraval.pytest_plugin.parsing import parsing_one_by_one
from paraval.pytest_plugin.performing import Premises, Tests
from paraval.pytest_plugin.programme import programme_of
from paraval.pytest_plugin.progress import progress_for
from paraval.pytest_plugin.protocol import Middle
from paraval.pytest_plugin.running import ParallelRun
from paraval.pytest_plugin.shared_setup import SharedSetup
from paraval.pytest_plugin.solo import Solo
from paraval.pytest_plugin.stage import Stage
from paraval.pytest_plugin.telling import Telling, register_telling
from paraval.pytest_plugin.temporary import folders_one_by_one
from paraval.pytest_plugin.time_limits import TimeLimits
from paraval.pytest_plugin.timeouts import Watcher
from paraval.pytest_plugin.unhandled import unhandled_apart
from paraval.pytest_plugin.wanted import Wanted
from paraval.pytest_plugin.warned import warnings_apart
from paraval.pytest_plugin.xdist_worker import TakenItems, is_controller, take_over

NAME = "paraval-parallel"
LINE_TO_END = -2
"""pytest's own mark for a line that is to be ended before whatever comes next."""
OLDEST_PYTEST = (8, 4)
"""Older ones exchange the process's hooks for errors in threads around each phase of each test."""


def register_parallel(config: pytest.Config, wanted: Wanted) -> None:
    """From here on the session's loop is ours; under xdist, that of each worker."""
    if pytest.version_tuple[:2] < OLDEST_PYTEST:
        oldest = ".".join(map(str, OLDEST_PYTEST))
        raise pytest.UsageError(
            f"--parallel needs pytest {oldest} or newer; this is {pytest.__version__}. Without "
            "it (--parallel 0), tests run one after another"
        )
    manager = config.pluginmanager
    history = History(config)
    manager.register(history, History.NAME)
    if is_controller(config):
        from paraval.pytest_plugin.xdist_controller import SharedOut

        manager.register(SharedOut(wanted.parallel), SharedOut.NAME)
        return
    order = Order(config)
    manager.register(order, Order.NAME)
    manager.register(ParallelSession(config, wanted, history=history, order=order), NAME)


class ParallelSession:
    """Hooks of a session whose tests run side by side."""

    def __init__(
        self, config: pytest.Config, wanted: Wanted, *, history: History, order: Order
    ) -> None:
        self._config = config
        self._wanted = wanted
        self._history = history
        self._order = order
        self._reasons: ChainMap[str, str] = ChainMap()
        """By node id: why a test runs alone, or had to; told as it ends."""
        self._shared_changes: dict[str, str] = {}
        """By fixture or test: what it changed for others, too."""
        self._still_running: Sequence[str] = ()
        """What Ctrl-C came upon, a line each."""

    def pytest_report_header(self) -> list[str]:
        wanted = self._wanted
        at_once = "as many as the machine carries" if wanted.auto else str(wanted.parallel)
        return [f"parallel: {at_once} at once", *neighbours.notes(self._config)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> bool | None:
        option = session.config.option
        if option.collectonly or neighbours.owner_of_loop(self._config) is not None:
            return None
        if session.testsfailed and not option.continue_on_collection_errors:
            return None
        taken = take_over(self._config)
        if not session.items and taken is None:
            return None
        self._run(session, taken)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _run(self, session: Session, taken: TakenItems | None) -> None:
        config, items = self._config, session.items
        hide_own_frames()
        programmed = programme_of(config, items, self._wanted, self._history)
        stage = Stage()
        floor = Floor(tell=lambda words: stage.post(partial(_write, config, words)))
        premises = self._premises(session, floor, stage, is_handed_out=taken is not None)
        assignment = Assignment(items, programmed.programme, taken)
        run = ParallelRun(
            session,
            programmed.programme,
            Tests(config, assignment, premises, programmed.seconds),
            assignment=assignment,
            progress=progress_for(config, self._wanted.progress, [item.nodeid for item in items]),
        )
        if taken is not None or config.pluginmanager.has_plugin(Telling.NAME):
            # The controller of xdist, or a store, has to hear what only this process knows.
            register_telling(config).alone = floor.reasons
        limits = [TimeLimits(premises.watcher)] if programmed.seconds else []
        # Around tests that run alone, too: they share fixtures, and loops, with the others.
        with (
            asyncs_apart(session),
            premises.fixtures.installed(),
            self._registered(Middle(), *limits, *keeping_for(items, premises.setup)),
            self._telling_why_alone(floor.reasons, programmed.alone),
            _dots_of_many_files(config, items),
        ):
            try:
                run.run()
            finally:
                premises.watcher.close()
                self._still_running = run.still_running
            tear_down_rest(config, premises.setup)
        self._shared_changes = {
            **{f"the fixture {name}": why for name, why in floor.by_shared_fixtures.items()},
            **floor.shared,
        }
        self._history.remember_alone(floor.reasons)

    def _premises(
        self, session: Session, floor: Floor, stage: Stage, *, is_handed_out: bool
    ) -> Premises:
        setup = SharedSetup(None if is_handed_out else session.items, floor)
        session._setupstate = setup
        fixtures = OwnFixtures(session, floor)
        apart = Apart(self._walls(session, floor, stage))
        return Premises(
            stage=stage,
            apart=apart,
            floor=floor,
            setup=setup,
            fixtures=fixtures,
            watcher=Watcher(),
            solo=Solo(apart, fixtures),
        )

    @contextmanager
    def _telling_why_alone(self, *reasons: dict[str, str]) -> Iterator[None]:
        """While tests end; a summary is as without this plugin."""
        self._reasons = ChainMap(*reasons)
        try:
            yield
        finally:
            self._reasons = ChainMap()

    @contextmanager
    def _registered(self, *plugins: Any) -> Iterator[None]:
        manager = self._config.pluginmanager
        for plugin in plugins:
            manager.register(plugin, plugin.NAME)
        try:
            yield
        finally:
            for plugin in plugins:
                manager.unregister(plugin)

    def _walls(self, session: Session, floor: Floor, stage: Stage) -> Walls:
        config = self._config
        return [
            carrying,
            partial(warnings_apart, config),
            partial(streams_apart, config),
            partial(children_apart, config),
            partial(logs_apart, config, stage.post),
            partial(asserts_apart, config),
            partial(unhandled_apart, config),
            no_current_test,
            parsing_one_by_one,
            collecting_for_sure,
            folders_one_by_one,
            partial(nets, floor, session),
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> object | None:
        return set_up_capsys(fixturedef, request)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Session) -> None:
        self._order.restore(session.items)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was broken off, and what was found out too late to keep it from others."""
        for line in self._still_running:
            terminalreporter.write_line(line, yellow=True)
        for who, why in self._shared_changes.items():
            terminalreporter.write_line(
                f"parallel: {who} changed the process beside other tests ({why}); from the next "
                "run on, what uses it runs alone",
                yellow=True,
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any, config: pytest.Config) -> Any:
        """With -v: why a test ran alone."""
        status = yield
        why = self._reasons.get(report.nodeid)
        if why is None or config.get_verbosity() < 1 or not status or not status[2]:
            return status
        category, letter, word = status
        if isinstance(word, tuple):
            return category, letter, (f"{word[0]} (alone: {why})", word[1])
        return category, letter, f"{word} (alone: {why})"


def _write(config: pytest.Config, words: str) -> None:
    """While tests run, on a line of its own."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        if reporter._tw.width_of_current_line:
            reporter.currentfspath = LINE_TO_END
        reporter.write_line(words, yellow=True)


@contextmanager
def _dots_of_many_files(config: pytest.Config, items: Sequence[pytest.Item]) -> Iterator[None]:
    """Without their names: tests of several files end in turns, and each turn would be a line."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or reporter.verbosity != 0 or len({item.path for item in items}) < 2:
        yield
        return
    reporter.showfspath = False
    reporter.write_line("")
    try:
        yield
    finally:
        reporter.showfspath = None
        reporter.currentfspath = LINE_TO_END
