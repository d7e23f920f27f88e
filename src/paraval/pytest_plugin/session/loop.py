"""The loop of a parallel run, in place of pytest's own.

Tests become trials, the engine runs them, and the main thread reports each as it ends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin.fixtures.setup_tree import SharedSetup
from paraval.pytest_plugin.isolation import item_warnings as test_warnings
from paraval.pytest_plugin.progress.progress import Progress
from paraval.pytest_plugin.pytest_internals import CaptureManager, xml_key
from paraval.pytest_plugin.running import attempts
from paraval.pytest_plugin.running.current_test import PhaseEnd
from paraval.pytest_plugin.running.protocol import ItemResult
from paraval.pytest_plugin.session.engine import EngineCallbacks, EngineThread, SessionPlan
from paraval.pytest_plugin.timeouts.stacks import HangReport, look_at, raise_at
from paraval.pytest_plugin.timeouts.watchdog import interrupt
from paraval.records import (
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Failure,
    Happening,
    Outcome,
    TrialEnded,
    TrialSkipped,
)

if TYPE_CHECKING:
    from paraval.pytest_plugin.running.current_test import RunningTest
    from paraval.pytest_plugin.running.performer import PytestPerformer
    from paraval.pytest_plugin.session.planning import ItemAssignment

GRACE_S = 3.0
"""How long tests have to end after Ctrl-C."""
TICK_S = 0.1
MOST_LINES = 10
MOST_FAILED_AGAIN = 20
"""After this many consecutive failures alone, parallel execution is not the cause."""


class ParallelRun:
    """One session's tests, from the first to the last."""

    def __init__(
        self,
        session: pytest.Session,
        plan: SessionPlan,
        performer: PytestPerformer,
        *,
        assignment: ItemAssignment,
        progress: Progress,
    ) -> None:
        self._session = session
        self._performer = performer
        self._assignment = assignment
        self._main_thread = performer.services.main_thread
        # With -x, the next test must not start before this one is reported.
        is_hurried = bool(session.config.getoption("maxfail", 0))
        self._post = self._main_thread.post if is_hurried else self._main_thread.post_later
        self._isolation = performer.services.isolation
        self._progress = progress
        self._failure: BaseException | None = None
        self._reported: set[int] = set()
        """Indexes of trials that have been reported."""
        self._to_check: list[tuple[int, ItemResult]] = []
        """Tests that failed in parallel, and are rerun alone at the end."""
        self.checked: set[str] = set()
        """Node ids of those, once rerun."""
        self.passed_alone: list[str] = []
        """Those of them that passed."""
        self.failure: str | None = None
        """The message of an internal error."""
        self.failed_in_parallel = self.failed_callers = 0
        """How many tests failed in parallel, and how many of these may have called a model."""
        self._interrupted: frozenset[int] = frozenset()
        """Indexes of interrupted tests: however they end, it is no result."""
        self._interrupted_at: list[HangReport] = []
        """Where the first of them were at that moment."""
        self._engine = EngineThread(
            plan,
            EngineCallbacks(performer=performer, tell=self._on_event, on_end=self._engine_ended),
            is_fed=assignment.is_handed_out,
        )

    def run(self) -> None:
        """Run until every test has ended, or the session must stop."""
        try:
            self._engine.start()
            self._assignment.begin(self._engine)
            self._main_thread.serve(self._progress.tick, TICK_S)
            self._isolation.remove()
            self._check_alone()
        except BaseException as error:
            self._break_off()
            place = self._interrupted_at[0].place if self._interrupted_at else None
            if isinstance(error, KeyboardInterrupt) and place is not None:
                raise_at(place, error)  # As in plain pytest: at a line of a test that ran.
            raise
        finally:
            self._isolation.remove()
            self._progress.close()
        left = self._assignment.count - len(self._reported)
        if left and not (self._session.shouldfail or self._session.shouldstop):
            self._go_on_plainly(self._failure or RuntimeError("some tests did not run"), left)

    @property
    def still_running(self) -> Sequence[str]:
        """What was running when the run was stopped, and where, one line each."""
        return _lines_on(self._interrupted_at, len(self._interrupted))

    def _go_on_plainly(self, failure: BaseException, left: int) -> None:
        """After an internal error, run the remaining tests one by one, in collection order."""
        if self._assignment.is_handed_out:
            raise failure
        self.failure = (
            f"parallel: internal error in this plugin ({type(failure).__name__}: {failure}); "
            f"{left} tests ran one after another. Please report this"
        )
        self._interrupt()
        for index in range(self._assignment.count):
            if index not in self._reported and not (
                self._session.shouldfail or self._session.shouldstop
            ):
                item = self._assignment.item(index)
                before = partial(self._assignment.about_to_report, index)
                end = self._performer.services.alone_runner.run(
                    item, before=before, is_deferred=False
                )
                self._ended(index, end, None)

    # ---- in the engine's thread

    def _on_event(self, event: Happening) -> None:
        match event:
            case AttemptStarted(attempt=attempt) if self._progress.shows_starts:
                self._main_thread.post(partial(self._progress.started, attempt.trial.case.id))
            case AttemptEnded(attempt=attempt, result=result, retry_in_s=seconds):
                self._performer.take_end(attempt.trial.index)
                if result.error is not None:
                    nodeid, why = attempt.trial.case.id, result.error
                    if seconds is None:
                        seconds = why.retry_after or 1.0
                    self._main_thread.post(partial(self._progress.waits, nodeid, why, seconds))
            case TrialEnded(trial=trial) | TrialSkipped(trial=trial) if (
                trial.index in self._interrupted
            ):
                self._performer.take_end(trial.index)
            case TrialEnded(trial=trial, eta_s=eta_s):
                end = self._performer.take_end(trial.index)
                if end is None or not end.is_to_be_checked:
                    self._performer.services.setup.release(self._assignment.item(trial.index))
                # None: xdist gave it to another worker before it began.
                if end is None:
                    self._assignment.give_away()
                else:
                    self._post(partial(self._ended, trial.index, end, eta_s))
            case TrialSkipped(trial=trial, reason=reason):
                item = self._assignment.item(trial.index)
                self._performer.services.setup.release(item)
                end = self._performer.take_end(trial.index)
                if end is None:
                    self._performer.services.setup.forget(item)
                    end = _not_run(item, reason)
                self._main_thread.post(partial(self._ended, trial.index, end, None))

    def _engine_ended(self, error: BaseException | None) -> None:
        self._failure = error
        self._main_thread.close()

    # ---- in the main thread

    def _ended(self, index: int, end: ItemResult, eta_s: float | None) -> None:
        if end.is_to_be_checked:
            self._to_check.append((index, end))
            self._progress.put_off(end.item.nodeid)
            return
        self._reported.add(index)
        if end.is_parallel and any(phase.report.failed for phase in end.phases):
            self.failed_in_parallel += 1
            self.failed_callers += end.may_have_called
        if not end.is_reported:
            self._assignment.about_to_report(index)
            emit(end)
        self._assignment.done(index, end.result.duration_s)
        self._progress.ended(end, eta_s)
        if self._session.shouldfail or self._session.shouldstop:
            self._engine.end_early()

    def _check_alone(self) -> None:
        """Rerun what failed in parallel; how it ends alone is its outcome."""
        services = self._performer.services
        in_a_row = 0
        while self._to_check:
            index, end = self._to_check[0]
            is_stopped = self._session.shouldfail or self._session.shouldstop
            if not is_stopped and in_a_row < MOST_FAILED_AGAIN:
                attempts.begin_again(end.item)
                before = partial(self._assignment.about_to_report, index)
                self.checked.add(end.item.nodeid)
                self._progress.started(end.item.nodeid)
                end = services.alone_runner.run(end.item, before=before, is_deferred=False)
                in_a_row += 1
                if not any(phase.report.failed for phase in end.phases):
                    self.passed_alone.append(end.item.nodeid)
                    in_a_row = 0
            self._to_check.pop(0)
            self._ended(index, replace(end, is_to_be_checked=False), None)

    def _break_off(self) -> None:
        """After Ctrl-C, pytest.exit or a reporter's error: give running tests a moment to end."""
        self._engine.end_early()
        self._interrupt()
        # Again, for tests that began before the engine was notified.
        self._interrupt()
        self._engine.end_now()
        self._engine.join()
        self._main_thread.do_what_is_left()
        for index, end in self._to_check:
            self._ended(index, replace(end, is_to_be_checked=False), None)

    def _interrupt(self) -> None:
        running = {
            index: test
            for index, test in tuple(self._performer.running.items())
            if not test.is_over and index not in self._interrupted
        }
        self._interrupted |= frozenset(running)
        tests = tuple(running.values())
        self._interrupted_at += [
            _place_of(test) for test in tests[: MOST_LINES - len(self._interrupted_at)]
        ]
        interrupt(tests, GRACE_S)


def _place_of(test: RunningTest) -> HangReport:
    return look_at(test.item, test.thread or 0, phase=test.phase, seconds=0.0, test=test)


def _lines_on(places: Sequence[HangReport], count: int) -> Sequence[str]:
    lines = []
    for place in places:
        at = f", in {place.where}" if place.where else ""
        lines.append(f"still running: {place.nodeid}{at}")
    if count > len(places):
        lines.append(f"still running: {count - len(places)} more")
    return lines


def _not_run(item: pytest.Item, reason: str) -> ItemResult:
    """A test whose account is unusable for the rest of the run: no verdict, but not ignored."""
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"not run: {reason}",
        when="setup",
    )
    failure = Failure(kind=Outcome.INFRA_ERROR, message=reason)
    return ItemResult(
        item=item,
        phases=[PhaseEnd(report=report, error=None)],
        result=AttemptResult(outcome=Outcome.INFRA_ERROR, error=failure),
    )


# ---- reporting


def emit(end: ItemResult) -> None:
    """Report the test as pytest's runner would have, had it run here."""
    item, hook = end.item, end.item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for phase in end.phases:
        hook.pytest_runtest_logreport(report=phase.report)
        if phase.interacts is not None:
            phase.interacts()
    test_warnings.emit(item, end.warned)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


# ---- the order of reports


class ReportOrder:
    """A plugin that remembers which test junit's reporters are for, and sorts them at the end."""

    NAME = "paraval-order"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._nodes: dict[int, str] = {}
        """By id of junit's reporters: their tests, which they do not remember."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Note new reporters: created with a test's first report, or earlier by a fixture."""
        xml: Any = self._config.stash.get(xml_key, None)
        if xml is None:
            return (yield)
        for (node, *_), reporter in list(xml.node_reporters.items()):
            self._nodes[id(reporter)] = str(getattr(node, "nodeid", node))
        known = len(xml.node_reporters_ordered)
        yield
        for reporter in xml.node_reporters_ordered[known:]:
            self._nodes.setdefault(id(reporter), report.nodeid)
        return None

    def restore(self, items: Sequence[pytest.Item]) -> None:
        """Sort before the file and the summary are written; what belongs to no test comes first."""
        place = {item.nodeid: index for index, item in enumerate(items)}
        written = self._junit_reporters()
        written.sort(key=lambda one: place.get(self._nodes.get(id(one), ""), -1))
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            for reports in reporter.stats.values():
                reports.sort(key=lambda one: place.get(getattr(one, "nodeid", ""), -1))

    def _junit_reporters(self) -> list[Any]:
        xml: Any = self._config.stash.get(xml_key, None)
        return [] if xml is None else xml.node_reporters_ordered


# ---- what is still set up after the last test


def tear_down_rest(config: pytest.Config, setup: SharedSetup) -> None:
    """Tear it down in the session's own thread, when no test runs."""
    item = setup.last
    if item is None or not setup.stack:
        return
    capture = config.pluginmanager.get_plugin("capturemanager")
    captured = (
        capture.item_capture("teardown", item)
        if isinstance(capture, CaptureManager)
        else nullcontext()
    )
    # This test's teardown hooks have been called; what is left belongs to no test.
    with captured:
        call = pytest.CallInfo.from_call(
            lambda: setup.teardown_exact(None),
            when="teardown",
            reraise=(pytest.exit.Exception, KeyboardInterrupt),
        )
    if call.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)
