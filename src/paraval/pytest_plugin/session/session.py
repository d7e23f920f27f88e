"""A session with `--parallel`: the plugin that puts the parts together."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from _pytest.main import Session

from paraval.pytest_plugin.async_tests.plugins import asyncs_apart
from paraval.pytest_plugin.exclusive import other_plugins
from paraval.pytest_plugin.exclusive.guards import Net, nets
from paraval.pytest_plugin.exclusive.lock import Floor
from paraval.pytest_plugin.fixtures.instances import OwnFixtures
from paraval.pytest_plugin.fixtures.setup_tree import SharedSetup
from paraval.pytest_plugin.isolation.capture import children_apart, set_up_capsys, streams_apart
from paraval.pytest_plugin.isolation.exceptions import asserts_apart, unhandled_apart
from paraval.pytest_plugin.isolation.test_environment import environment_by_test
from paraval.pytest_plugin.isolation.test_logs import logs_apart
from paraval.pytest_plugin.isolation.test_warnings import warnings_apart
from paraval.pytest_plugin.options import Wanted
from paraval.pytest_plugin.progress.progress import progress_for
from paraval.pytest_plugin.recording.told import Telling, register_telling
from paraval.pytest_plugin.running.current_test import Check, carrying
from paraval.pytest_plugin.running.patches import (
    Apart,
    Walls,
    folders_one_by_one,
    hide_own_frames,
    parsing_one_by_one,
)
from paraval.pytest_plugin.running.performer import Premises, Tests
from paraval.pytest_plugin.running.protocol import Middle, Solo
from paraval.pytest_plugin.session.loop import Order, ParallelRun, tear_down_rest
from paraval.pytest_plugin.session.main_thread import Stage
from paraval.pytest_plugin.session.planning import Assignment, Programmed, programme_of
from paraval.pytest_plugin.session.test_history import FAILED_BESIDE, History
from paraval.pytest_plugin.session.xdist_worker import TakenItems, is_controller, take_over
from paraval.pytest_plugin.timeouts.time_limits import TimeLimits, Watcher
from paraval.text.words import counted

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
        from paraval.pytest_plugin.session.xdist_controller import SharedOut

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
        self._programmed: Programmed | None = None
        self._failure: Exception | None = None
        """Of ours: tests run one after another then."""
        self._reasons: ChainMap[str, str] = ChainMap()
        """By node id: why a test runs alone, or had to; told as it ends."""
        self._checked: Collection[str] = ()
        """Node ids of tests that failed beside others, and are run again, alone."""
        self._notes: list[str] = []
        """What there is to say at the end, a line each."""

    def pytest_report_header(self) -> list[str]:
        return other_plugins.notes(self._config)

    @pytest.hookimpl(trylast=True)
    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> str:
        """How many tests run side by side, and why the others do not."""
        try:
            planned = self._plan(items)
        except pytest.UsageError:  # It is told when tests are to run.
            return ""
        if planned is None:
            return _fallback_words(self._failure, len(items))
        at_once = "auto" if self._wanted.auto else str(self._wanted.parallel)
        return f"parallel {at_once}: {summary_of(planned.alone, len(items))}"

    def _plan(self, items: Sequence[pytest.Item]) -> Programmed | None:
        """Once; None: an error of ours keeps it from being made."""
        if self._programmed is None and self._failure is None:
            try:
                self._programmed = programme_of(self._config, items, self._wanted, self._history)
            except pytest.UsageError:
                raise
            except Exception as error:  # noqa: BLE001 - tests are to run whatever this package does
                self._failure = error
        return self._programmed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> bool | None:
        option = session.config.option
        if option.collectonly or other_plugins.owner_of_loop(self._config) is not None:
            return None
        if session.testsfailed and not option.continue_on_collection_errors:
            return None
        taken = take_over(self._config)
        if not session.items and taken is None:
            return None
        planned = self._plan(session.items)
        if planned is None and taken is None:
            return None
        if planned is None:
            raise self._failure or RuntimeError("no plan")
        self._run(session, taken, planned)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _run(self, session: Session, taken: TakenItems | None, programmed: Programmed) -> None:
        config, items = self._config, session.items
        hide_own_frames()
        stage = Stage()
        floor = Floor()
        net = Net(floor, items)
        context = self._premises(session, floor, stage, net, is_handed_out=taken is not None)
        assignment = Assignment(items, programmed.programme, taken)
        run = ParallelRun(
            session,
            programmed.programme,
            Tests(config, assignment, context, programmed.seconds),
            assignment=assignment,
            progress=progress_for(config, self._wanted.progress, [item.nodeid for item in items]),
        )
        self._checked = run.checked
        if taken is not None or config.pluginmanager.has_plugin(Telling.NAME):
            # The controller of xdist, or a store, has to hear what only this process knows.
            register_telling(config).alone = floor.reasons
        limits = [TimeLimits(context.watcher)] if programmed.seconds else []
        # Around tests that run alone, too: they share fixtures, and loops, with the others.
        with (
            asyncs_apart(session),
            environment_by_test(items),
            nets(net, session),
            context.fixtures.installed(),
            self._registered(Middle(), *limits),
            self._telling_why_alone(floor.reasons, programmed.alone),
            _dots_of_many_files(config, items),
        ):
            try:
                run.run()
            finally:
                context.watcher.close()
                kept = self._history.is_kept
                self._notes += notes_on(run, floor, context.check, is_kept=kept)
            tear_down_rest(config, context.setup)
        self._history.remember_alone(floor.reasons)
        self._history.remember_alone(dict.fromkeys(run.passed_alone, FAILED_BESIDE))

    def _premises(
        self, session: Session, floor: Floor, stage: Stage, net: Net, *, is_handed_out: bool
    ) -> Premises:
        setup = SharedSetup(None if is_handed_out else session.items, floor)
        session._setupstate = setup
        fixtures = OwnFixtures(session, floor)
        apart = Apart(self._walls(stage))
        # With -x the first failure ends the run; and xdist's controller waits for each test's end.
        is_hurried = bool(self._config.getoption("maxfail", 0)) or is_handed_out
        return Premises(
            stage=stage,
            apart=apart,
            floor=floor,
            setup=setup,
            fixtures=fixtures,
            watcher=Watcher(),
            solo=Solo(apart, fixtures, net, keep=setup.keep, on_end=self._history.ran_alone),
            check="none"
            if is_hurried
            else "all"
            if self._wanted.check_alone
            else "all but callers",
        )

    @contextmanager
    def _telling_why_alone(self, *reasons: dict[str, str]) -> Iterator[None]:
        """While tests end; a summary is as without this plugin."""
        self._reasons = ChainMap(*reasons)
        try:
            yield
        finally:
            self._reasons, self._checked = ChainMap(), ()

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

    def _walls(self, stage: Stage) -> Walls:
        config = self._config
        return [
            carrying,
            partial(warnings_apart, config),
            partial(streams_apart, config),
            children_apart,
            partial(logs_apart, config, stage.post),
            partial(asserts_apart, config),
            partial(unhandled_apart, config),
            parsing_one_by_one,
            folders_one_by_one,
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> object | None:
        return set_up_capsys(fixturedef, request)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Session) -> None:
        self._order.restore(session.items)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self._notes:
            terminalreporter.write_line(line, yellow=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any, config: pytest.Config) -> Any:
        """With -v: why a test ran alone."""
        status = yield
        why = f" (alone: {self._reasons[report.nodeid]})" if report.nodeid in self._reasons else ""
        if report.nodeid in self._checked:
            why = " alone (failed beside others)" if report.passed else " alone, too"
        if not why or config.get_verbosity() < 1 or not status or not status[2]:
            return status
        category, letter, word = status
        if isinstance(word, tuple):
            return category, letter, (f"{word[0]}{why}", word[1])
        return category, letter, f"{word}{why}"


def _fallback_words(failure: Exception | None, count: int) -> str:
    return (
        f"parallel: an error of this plugin ({type(failure).__name__}: {failure}): the {count} "
        "tests run one after another. Please report it"
    )


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


# ---- what a user is told


MOST_REASONS = 3
REMEDY = (
    'scope="session" (by pytest.MonkeyPatch.context() or session_mocker) would let them run side '
    "by side, if no test needs a patch of its own"
)
MOST_NAMES = 3


def summary_of(alone: Mapping[str, str], count: int) -> str:
    """In one line; `alone`: by node id, why a test runs alone, of `count` tests in all."""
    beside = count - len(alone)
    told = f"{beside} side by side"
    if alone:
        told += f", {len(alone)} alone: {_reasons(Counter(alone.values()))}"
    return f"little is gained: {told}" if 2 * beside < count else told


def _reasons(reasons: Counter[str]) -> str:
    common = reasons.most_common(MOST_REASONS)
    told = [common[0][0] if len(reasons) == 1 else f"{why} ({times})" for why, times in common]
    others = reasons.total() - sum(times for _, times in common)
    if others:
        told.append(f"other reasons, told by -v ({others})")
    if common[0][0].startswith("fixture ") and " patches " in common[0][0]:
        told.append(REMEDY)
    return "; ".join(told)


def notes_on(run: ParallelRun, floor: Floor, check: Check, *, is_kept: bool) -> Iterator[str]:
    """After a run: what was broken off, what was run again, and what was found out too late to
    keep it from others. `is_kept`: the next session knows of it."""
    yield from run.still_running
    if run.failure is not None:
        yield run.failure
    later = "; from the next session on, that runs alone" if is_kept else ""
    if run.passed_alone:
        passed = run.passed_alone
        yield (
            f"parallel: {len(passed)} passed alone (failed beside others): {_some(passed)}{later}"
        )
    if run.failed_callers:
        yield (
            f"parallel: {counted(run.failed_callers, 'test')} that failed beside others may have "
            "asked a model, and so did not run again: --check-alone runs such tests once more, "
            "alone"
        )
    elif run.failed_beside and check == "none":
        yield (
            f"parallel: {counted(run.failed_beside, 'test')} failed beside others; with -x or "
            "--maxfail, none is run again alone to see whether it fails there, too"
        )
    changed = {f"fixture {name}": why for name, why in floor.by_shared_fixtures.items()}
    for why in dict.fromkeys((changed | floor.shared).values()):
        names = [name for name, reason in (changed | floor.shared).items() if reason == why]
        yield f"parallel: changed the process beside other tests ({why}): {_some(names)}{later}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
