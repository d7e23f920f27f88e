"""A session with `--parallel`: the plugin that connects the parts."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from paraval.pytest_plugin.async_tests.plugins import isolate_async_plugins
from paraval.pytest_plugin.exclusive import other_plugins
from paraval.pytest_plugin.exclusive.guards import ProcessGuard, install_guards
from paraval.pytest_plugin.exclusive.lock import ExclusiveLock
from paraval.pytest_plugin.fixtures.instances import FixtureInstances
from paraval.pytest_plugin.fixtures.setup_tree import SharedSetup
from paraval.pytest_plugin.isolation.capture import isolate_children, isolate_streams, set_up_capsys
from paraval.pytest_plugin.isolation.exceptions import isolate_asserts, isolate_unhandled
from paraval.pytest_plugin.isolation.item_environment import environment_by_test
from paraval.pytest_plugin.isolation.item_logs import isolate_logs
from paraval.pytest_plugin.isolation.item_warnings import isolate_warnings
from paraval.pytest_plugin.options import PluginOptions
from paraval.pytest_plugin.progress.progress import progress_for
from paraval.pytest_plugin.pytest_internals import Session
from paraval.pytest_plugin.recording.report_data import ReportDataPlugin, register_report_data
from paraval.pytest_plugin.running.current_test import Check, propagate_to_threads
from paraval.pytest_plugin.running.patches import (
    Isolation,
    IsolationParts,
    hide_own_frames,
    serialize_parsing,
    serialize_temporary_folders,
)
from paraval.pytest_plugin.running.performer import PytestPerformer, RunServices
from paraval.pytest_plugin.running.protocol import AloneRunner, InnermostProtocol
from paraval.pytest_plugin.session.item_history import FAILED_IN_PARALLEL, DurationHistory
from paraval.pytest_plugin.session.loop import ParallelRun, ReportOrder, tear_down_rest
from paraval.pytest_plugin.session.main_thread import MainThread
from paraval.pytest_plugin.session.planning import ItemAssignment, PlannedSession, plan_session
from paraval.pytest_plugin.session.xdist_worker import WorkerItems, is_controller, take_worker_items
from paraval.pytest_plugin.timeouts.time_limits import TimeoutPlugin
from paraval.pytest_plugin.timeouts.watchdog import TimeoutWatcher
from paraval.text.words import counted

NAME = "paraval-parallel"
LINE_TO_END = -2
"""pytest's own marker for a line to end before anything else is written."""
OLDEST_PYTEST = (8, 4)
"""Older versions replace the process's hooks for thread errors around each phase of each test."""


def register_parallel(config: pytest.Config, options: PluginOptions) -> None:
    """Take over the session's loop; under xdist, that of each worker."""
    if pytest.version_tuple[:2] < OLDEST_PYTEST:
        oldest = ".".join(map(str, OLDEST_PYTEST))
        raise pytest.UsageError(
            f"--parallel needs pytest {oldest} or newer; this is {pytest.__version__}. "
            "With --parallel 0, tests run one after another"
        )
    manager = config.pluginmanager
    history = DurationHistory(config)
    manager.register(history, DurationHistory.NAME)
    if is_controller(config):
        from paraval.pytest_plugin.session.xdist_controller import XdistDistribution

        manager.register(XdistDistribution(options.parallel), XdistDistribution.NAME)
        return
    order = ReportOrder(config)
    manager.register(order, ReportOrder.NAME)
    manager.register(ParallelSession(config, options, history=history, order=order), NAME)


class ParallelSession:
    """Hooks of a session whose tests run in parallel."""

    def __init__(
        self,
        config: pytest.Config,
        options: PluginOptions,
        *,
        history: DurationHistory,
        order: ReportOrder,
    ) -> None:
        self._config = config
        self._options = options
        self._history = history
        self._order = order
        self._planned: PlannedSession | None = None
        self._failure: Exception | None = None
        """An internal error: then tests run one after another."""
        self._reasons: ChainMap[str, str] = ChainMap()
        """By node id: why a test runs or ran exclusively, shown when it ends."""
        self._checked: Collection[str] = ()
        """Node ids of tests that failed in parallel, and are rerun alone."""
        self._notes: list[str] = []
        """The notes at the end, one line each."""

    def pytest_report_header(self) -> list[str]:
        return other_plugins.notes(self._config)

    @pytest.hookimpl(trylast=True)
    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> str:
        """Show how many tests run concurrently, and why the others do not."""
        try:
            planned = self._plan(items)
        except pytest.UsageError:  # It is raised again when tests start.
            return ""
        if planned is None:
            return _fallback_words(self._failure, len(items))
        at_once = "auto" if self._options.auto else str(self._options.parallel)
        return f"parallel {at_once}: {summary_of(planned.alone, len(items))}"

    def _plan(self, items: Sequence[pytest.Item]) -> PlannedSession | None:
        """Plan once; None: an internal error prevented it."""
        if self._planned is None and self._failure is None:
            try:
                self._planned = plan_session(self._config, items, self._options, self._history)
            except pytest.UsageError:
                raise
            except Exception as error:  # noqa: BLE001 - tests must run whatever this package does
                self._failure = error
        return self._planned

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> bool | None:
        option = session.config.option
        if option.collectonly or other_plugins.owner_of_loop(self._config) is not None:
            return None
        if session.testsfailed and not option.continue_on_collection_errors:
            return None
        taken = take_worker_items(self._config)
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

    def _run(self, session: Session, taken: WorkerItems | None, planned: PlannedSession) -> None:
        config, items = self._config, session.items
        hide_own_frames()
        main_thread = MainThread()
        exclusive_lock = ExclusiveLock()
        guard = ProcessGuard(exclusive_lock, items)
        services = self._services(
            session, exclusive_lock, main_thread, guard, is_handed_out=taken is not None
        )
        assignment = ItemAssignment(items, planned.plan, taken)
        run = ParallelRun(
            session,
            planned.plan,
            PytestPerformer(config, assignment, services, planned.seconds),
            assignment=assignment,
            progress=progress_for(config, self._options.progress, [item.nodeid for item in items]),
        )
        self._checked = run.checked
        if taken is not None or config.pluginmanager.has_plugin(ReportDataPlugin.NAME):
            # xdist's controller and the store need what only this process knows.
            register_report_data(config).alone = exclusive_lock.reasons
        limits = [TimeoutPlugin(services.watcher)] if planned.seconds else []
        # Also around exclusive tests, which share fixtures and loops with the others.
        with (
            isolate_async_plugins(session),
            environment_by_test(items),
            install_guards(guard, session),
            services.fixtures.installed(),
            self._registered(InnermostProtocol(), *limits),
            self._reporting_why_alone(exclusive_lock.reasons, planned.alone),
            _dots_of_many_files(config, items),
        ):
            try:
                run.run()
            finally:
                services.watcher.close()
                kept = self._history.is_kept
                self._notes += notes_on(run, exclusive_lock, services.check, is_kept=kept)
            tear_down_rest(config, services.setup)
        self._history.remember_alone(exclusive_lock.reasons)
        self._history.remember_alone(dict.fromkeys(run.passed_alone, FAILED_IN_PARALLEL))

    def _services(
        self,
        session: Session,
        exclusive_lock: ExclusiveLock,
        main_thread: MainThread,
        guard: ProcessGuard,
        *,
        is_handed_out: bool,
    ) -> RunServices:
        setup = SharedSetup(None if is_handed_out else session.items, exclusive_lock)
        session._setupstate = setup
        fixtures = FixtureInstances(session, exclusive_lock)
        isolation = Isolation(self._parts(main_thread))
        # With -x the first failure ends the run, and xdist's controller waits for each test's end.
        is_hurried = bool(self._config.getoption("maxfail", 0)) or is_handed_out
        return RunServices(
            main_thread=main_thread,
            isolation=isolation,
            exclusive_lock=exclusive_lock,
            setup=setup,
            fixtures=fixtures,
            watcher=TimeoutWatcher(),
            alone_runner=AloneRunner(
                isolation, fixtures, guard, keep=setup.keep, on_end=self._history.ran_alone
            ),
            check="none"
            if is_hurried
            else "all"
            if self._options.check_alone
            else "all but callers",
        )

    @contextmanager
    def _reporting_why_alone(self, *reasons: dict[str, str]) -> Iterator[None]:
        """Show reasons while tests end; the summary is as without this plugin."""
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

    def _parts(self, main_thread: MainThread) -> IsolationParts:
        config = self._config
        return [
            propagate_to_threads,
            partial(isolate_warnings, config),
            partial(isolate_streams, config),
            isolate_children,
            partial(isolate_logs, config, main_thread.post),
            partial(isolate_asserts, config),
            partial(isolate_unhandled, config),
            serialize_parsing,
            serialize_temporary_folders,
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
        """With -v, show why a test ran exclusively."""
        status = yield
        why = ""
        if report.nodeid in self._reasons:
            why = f" (exclusive: {self._reasons[report.nodeid]})"
        if report.nodeid in self._checked:
            why = " when rerun alone"
            why += " (failed in parallel)" if report.passed else ", too"
        if not why or config.get_verbosity() < 1 or not status or not status[2]:
            return status
        category, letter, word = status
        if isinstance(word, tuple):
            return category, letter, (f"{word[0]}{why}", word[1])
        return category, letter, f"{word}{why}"


def _fallback_words(failure: Exception | None, count: int) -> str:
    return (
        f"parallel: internal error in this plugin ({type(failure).__name__}: {failure}); the "
        f"{count} tests run one after another. Please report this"
    )


@contextmanager
def _dots_of_many_files(config: pytest.Config, items: Sequence[pytest.Item]) -> Iterator[None]:
    """Print no file names: tests of several files end in turns, and each turn would need a line."""
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


# ---- messages for the user


MOST_REASONS = 3
REMEDY = (
    'scope="session" (by pytest.MonkeyPatch.context() or session_mocker) would let them run '
    "concurrently, if no test needs a patch of its own"
)
MOST_NAMES = 3


def summary_of(alone: Mapping[str, str], count: int) -> str:
    """Summarize in one line; `alone`: by node id, why a test runs exclusively, of `count` tests."""
    concurrent = count - len(alone)
    summary = f"{concurrent} concurrent"
    if alone:
        summary += f", {len(alone)} exclusive: {_reasons(Counter(alone.values()))}"
    return f"little speedup expected: {summary}" if 2 * concurrent < count else summary


def _reasons(reasons: Counter[str]) -> str:
    common = reasons.most_common(MOST_REASONS)
    shown = [common[0][0] if len(reasons) == 1 else f"{why} ({times})" for why, times in common]
    others = reasons.total() - sum(times for _, times in common)
    if others:
        shown.append(f"other reasons, see -v ({others})")
    if common[0][0].startswith("fixture ") and " patches " in common[0][0]:
        shown.append(REMEDY)
    return "; ".join(shown)


def notes_on(
    run: ParallelRun, exclusive_lock: ExclusiveLock, check: Check, *, is_kept: bool
) -> Iterator[str]:
    """Notes after a run: what was interrupted or rerun, and which changes were found too late.

    `is_kept`: the next session will know about them.
    """
    yield from run.still_running
    if run.failure is not None:
        yield run.failure
    later = "; exclusive from now on" if is_kept else ""
    if run.passed_alone:
        passed = run.passed_alone
        yield (
            f"parallel: {len(passed)} passed when rerun alone (failed in parallel): "
            f"{_some(passed)}{later}"
        )
    if run.failed_callers:
        yield (
            f"parallel: {counted(run.failed_callers, 'test')} failed in parallel and may have "
            "called a model: not rerun (--check-alone reruns such tests alone)"
        )
    elif run.failed_in_parallel and check == "none":
        yield (
            f"parallel: {counted(run.failed_in_parallel, 'test')} failed in parallel; with -x or "
            "--maxfail, failed tests are not rerun alone"
        )
    changed = {f"fixture {name}": why for name, why in exclusive_lock.by_shared_fixtures.items()}
    for why in dict.fromkeys((changed | exclusive_lock.shared).values()):
        names = [
            name for name, reason in (changed | exclusive_lock.shared).items() if reason == why
        ]
        yield (
            f"parallel: changed process-wide state while other tests ran ({why}): "
            f"{_some(names)}{later}"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
