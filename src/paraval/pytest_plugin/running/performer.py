"""Runs tests for the engine: in parallel in threads, or exclusively in the main thread.

`item_outcomes` derives the outcome from a test's phases, and `session.loop` decides when to report
it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.isolation.capture import CapturedOutput
from paraval.pytest_plugin.isolation.item_logs import LogRecorder
from paraval.pytest_plugin.isolation.item_warnings import record_warnings
from paraval.pytest_plugin.models.item_outcomes import result_of
from paraval.pytest_plugin.models.model_accounts import retry_mark_of
from paraval.pytest_plugin.recording.report_data import (
    ATTRIBUTE as REPORT_DATA,
    ReportData,
    attach_report_data,
)
from paraval.pytest_plugin.running import attempts
from paraval.pytest_plugin.running.current_test import Check, PhaseEnd, RunningTest
from paraval.pytest_plugin.running.protocol import ItemResult, RuntestProtocol
from paraval.pytest_plugin.timeouts.time_limits import counts_only_the_call
from paraval.records import Attempt, AttemptResult, Outcome
from paraval.threads import FunctionExit, Threads

if TYPE_CHECKING:
    from paraval.pytest_plugin.exclusive.lock import ExclusiveLock
    from paraval.pytest_plugin.fixtures.instances import FixtureInstances
    from paraval.pytest_plugin.fixtures.setup_tree import SharedSetup
    from paraval.pytest_plugin.running.patches import Isolation
    from paraval.pytest_plugin.running.protocol import AloneRunner
    from paraval.pytest_plugin.session.main_thread import MainThread
    from paraval.pytest_plugin.session.planning import ItemAssignment
    from paraval.pytest_plugin.timeouts.stacks import HangReport
    from paraval.pytest_plugin.timeouts.watchdog import TimeoutWatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What parallel tests share."""

    main_thread: MainThread
    isolation: Isolation
    exclusive_lock: ExclusiveLock
    setup: SharedSetup
    fixtures: FixtureInstances
    watcher: TimeoutWatcher
    alone_runner: AloneRunner
    check: Check


class PytestPerformer:
    """Performs the tests of a pytest session."""

    def __init__(
        self,
        config: pytest.Config,
        assignment: ItemAssignment,
        services: RunServices,
        seconds: Mapping[str, float],
    ) -> None:
        """`seconds`: by node id, the timeouts of tests that have one."""
        self._config = config
        self._assignment = assignment
        self.services = self._services = services
        self._seconds = seconds
        self._protocol = RuntestProtocol(config, services.setup.keep, self._begin_again)
        self._threads = Threads()
        self._ends: dict[int, ItemResult] = {}
        self._tried: set[int] = set()
        self.running: dict[int, RunningTest] = {}
        """The running tests, by their trial's index."""

    def take_end(self, index: int) -> ItemResult | None:
        """Return how a test's last execution ended, once."""
        return self._ends.pop(index, None)

    # ---- called by the driver

    async def perform(self, attempt: Attempt) -> AttemptResult:
        index = attempt.trial.index
        item = self._assignment.item(index)
        if _is_to_stop(item):
            raise asyncio.CancelledError
        if index in self._tried:
            attempts.begin_again(item)
        elif not self._assignment.claim(index):
            return AttemptResult(outcome=Outcome.SKIPPED)
        else:
            attempts.begin(item)
        self._tried.add(index)
        retry_mark = retry_mark_of(item)
        is_retried = retry_mark is not None and attempt.number < retry_mark.tries
        item.stash[attempts.MAY_COME_AGAIN] = is_retried
        try:
            end = await (
                self._exclusively(index, item, is_deferred=retry_mark is not None)
                if attempt.trial.exclusive
                else self._in_parallel(index, item)
            )
        except Exception as error:
            # pytest.exit, the test's own KeyboardInterrupt, or a failed hook: as in pytest, it ends
            # the run. When the run is being stopped, the interrupt may be ours, and nothing handles
            # it any more.
            cause = error.__cause__ if isinstance(error, FunctionExit) else None
            self._services.main_thread.end(cause or error)
            raise asyncio.CancelledError from error
        if not is_retried and end.result.error is not None:
            # A test is retried only if its mark asks for it.
            failure = replace(end.result.error, lasting=True, stops=None)
            end = replace(end, result=replace(end.result, error=failure))
        self._ends[index] = end
        return end.result

    def forget(self, index: int) -> None:
        self._tried.discard(index)

    def kill(self) -> None:
        """Do nothing: threads cannot be killed, so they are abandoned."""

    # ---- exclusive tests

    async def _exclusively(self, index: int, item: pytest.Item, *, is_deferred: bool) -> ItemResult:
        def run() -> ItemResult | None:
            if _is_to_stop(item):
                return None
            before = partial(self._assignment.about_to_report, index)
            return self._services.alone_runner.run(item, before=before, is_deferred=is_deferred)

        end = await self._services.main_thread.call(run)
        if end is None:
            raise asyncio.CancelledError
        return end

    # ---- parallel tests

    async def _in_parallel(self, index: int, item: pytest.Item) -> ItemResult:
        if not self._services.isolation.is_installed:
            await self._services.main_thread.call(self._services.isolation.install)
        test = RunningTest(
            item=item,
            captured=CapturedOutput(self._config),
            logs=LogRecorder(item, self._config),
            check=self._services.check,
        )
        began = time.perf_counter()
        self.running[index] = test
        try:
            phases = await self._phases(test)
        finally:
            del self.running[index]
            test.is_over = True
            test.captured.close()
        result = result_of(item, phases, time.perf_counter() - began)
        if test.item.nodeid in self._seconds and not hasattr(phases[-1].report, REPORT_DATA):
            # The test may have been abandoned, and then its last report was not made in the usual
            # way.
            attach_report_data(phases[-1].report, ReportData(result=result))
        return ItemResult(
            item=item,
            phases=phases,
            result=result,
            warned=tuple(test.warned),
            is_parallel=True,
            may_have_called=test.check == "all but callers" and test.has_called,
            is_to_be_checked=test.is_to_be_checked
            and any(end.report.failed and end.report.when != "teardown" for end in phases),
        )

    async def _phases(self, test: RunningTest) -> Sequence[PhaseEnd]:
        seconds = self._seconds.get(test.item.nodeid)
        if seconds is None:
            return await self._threads.call(partial(self._run, test, nullcontext()))
        loop = asyncio.get_running_loop()
        given_up: asyncio.Future[HangReport] = loop.create_future()

        def give_up(hung: HangReport) -> None:
            loop.call_soon_threadsafe(_settle, given_up, hung)

        watch = self._services.watcher.watching(
            test, seconds, give_up, call_only=counts_only_the_call(test.item)
        )
        call = asyncio.ensure_future(self._threads.call(partial(self._run, test, watch)))
        try:
            either: set[asyncio.Future[Any]] = {call, given_up}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
        finally:
            # If the test hangs, its thread is abandoned.
            call.cancel()
        self._services.exclusive_lock.leave(test)
        self._services.setup.abandon(test.item)
        return given_up.result().phases(test)

    def _run(self, test: RunningTest, watch: AbstractContextManager[Any]) -> list[PhaseEnd]:
        """Run the test in its own thread."""
        services = self._services
        with test.running_here():
            services.exclusive_lock.enter(test)
            try:
                services.fixtures.give(test.item)
                with watch, record_warnings(test):
                    return self._protocol.run(test)
            finally:
                services.exclusive_lock.leave(test)

    def _begin_again(self, test: RunningTest) -> None:
        """Prepare another run in the same thread."""
        test.logs = LogRecorder(test.item, self._config)
        test.unhandled = []
        self._services.fixtures.give(test.item)


def _settle(future: asyncio.Future[HangReport], hung: HangReport) -> None:
    if not future.done():
        future.set_result(hung)


def _is_to_stop(item: pytest.Item) -> bool:
    """Whether the session is stopping, with -x after a failure for instance."""
    return bool(item.session.shouldfail or item.session.shouldstop)
