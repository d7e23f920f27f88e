"""Performs tests for the engine: beside others in threads, or alone on the stage.

What a test's phases come to is for `outcomes` to say, and when reporters hear of it for `running`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin.isolation.capture import Captured
from paraval.pytest_plugin.isolation.test_logs import TurnLogs
from paraval.pytest_plugin.isolation.test_warnings import catching
from paraval.pytest_plugin.models.model_accounts import patience_of
from paraval.pytest_plugin.models.test_outcomes import result_of
from paraval.pytest_plugin.recording.told import ATTRIBUTE as TOLD
from paraval.pytest_plugin.recording.told import Told, attach
from paraval.pytest_plugin.running import attempts
from paraval.pytest_plugin.running.current_test import Check, Turn
from paraval.pytest_plugin.running.protocol import ItemEnd, PhaseEnd, Protocol
from paraval.records import Attempt, AttemptResult, Outcome
from paraval.threads import FunctionExit, Threads

if TYPE_CHECKING:
    from paraval.pytest_plugin.exclusive.lock import Floor
    from paraval.pytest_plugin.fixtures.instances import OwnFixtures
    from paraval.pytest_plugin.fixtures.setup_tree import SharedSetup
    from paraval.pytest_plugin.running.patches import Apart
    from paraval.pytest_plugin.running.protocol import Solo
    from paraval.pytest_plugin.session.main_thread import Stage
    from paraval.pytest_plugin.session.planning import Assignment
    from paraval.pytest_plugin.timeouts.stacks import Hung
    from paraval.pytest_plugin.timeouts.time_limits import Watcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """What tests that run beside each other share."""

    stage: Stage
    apart: Apart
    floor: Floor
    setup: SharedSetup
    fixtures: OwnFixtures
    watcher: Watcher
    solo: Solo
    check: Check


class Tests:
    """The performer of a run of pytest."""

    def __init__(
        self,
        config: pytest.Config,
        assignment: Assignment,
        context: Premises,
        seconds: Mapping[str, float],
    ) -> None:
        """`seconds`: by node id, how long a test may take, of those that are told."""
        self._config = config
        self._assignment = assignment
        self.context = self._premises = context
        self._seconds = seconds
        self._protocol = Protocol(config, context.setup.keep, self._begin_again)
        self._threads = Threads()
        self._ends: dict[int, ItemEnd] = {}
        self._tried: set[int] = set()
        self.running: dict[int, Turn] = {}
        """The turns that run now, by their trial's index."""

    def take_end(self, index: int) -> ItemEnd | None:
        """How the last execution of a test ended; once."""
        return self._ends.pop(index, None)

    # ---- as the driver asks

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
        patience = patience_of(item)
        is_retried = patience is not None and attempt.number < patience.tries
        item.stash[attempts.MAY_COME_AGAIN] = is_retried
        try:
            end = await (
                self._alone(index, item, is_told_later=patience is not None)
                if attempt.trial.exclusive
                else self._beside(index, item)
            )
        except Exception as error:
            # pytest.exit, Ctrl-C of its own, or a hook that failed: as in pytest, the run ends with
            # it. As the run is broken off, it may be ours, and then nobody listens any more.
            cause = error.__cause__ if isinstance(error, FunctionExit) else None
            self._premises.stage.end(cause or error)
            raise asyncio.CancelledError from error
        if not is_retried and end.result.error is not None:
            # Only where a test asks for it is it tried again.
            failure = replace(end.result.error, lasting=True, stops=None)
            end = replace(end, result=replace(end.result, error=failure))
        self._ends[index] = end
        return end.result

    def forget(self, index: int) -> None:
        self._tried.discard(index)

    def kill(self) -> None:
        """Threads cannot be ended; they are left behind."""

    # ---- alone

    async def _alone(self, index: int, item: pytest.Item, *, is_told_later: bool) -> ItemEnd:
        def run() -> ItemEnd | None:
            if _is_to_stop(item):
                return None
            before = partial(self._assignment.about_to_tell, index)
            return self._premises.solo.run(item, before=before, is_told_later=is_told_later)

        end = await self._premises.stage.call(run)
        if end is None:
            raise asyncio.CancelledError
        return end

    # ---- beside others

    async def _beside(self, index: int, item: pytest.Item) -> ItemEnd:
        if not self._premises.apart.is_up:
            await self._premises.stage.call(self._premises.apart.put_up)
        turn = Turn(
            item=item,
            captured=Captured(self._config),
            logs=TurnLogs(item, self._config),
            check=self._premises.check,
        )
        began = time.perf_counter()
        self.running[index] = turn
        try:
            phases = await self._phases(turn)
        finally:
            del self.running[index]
            turn.is_over = True
            turn.captured.close()
        result = result_of(item, phases, time.perf_counter() - began)
        if turn.item.nodeid in self._seconds and not hasattr(phases[-1].report, TOLD):
            # It may have been given up, and then nobody made its last report in the usual way.
            attach(phases[-1].report, Told(result=result))
        return ItemEnd(
            item=item,
            phases=phases,
            result=result,
            warned=tuple(turn.warned),
            is_beside=True,
            may_have_asked=turn.check == "all but callers" and turn.has_called,
            is_to_be_checked=turn.is_to_be_checked
            and any(end.report.failed and end.report.when != "teardown" for end in phases),
        )

    async def _phases(self, turn: Turn) -> Sequence[PhaseEnd]:
        seconds = self._seconds.get(turn.item.nodeid)
        if seconds is None:
            return await self._threads.call(partial(self._run, turn, nullcontext()))
        loop = asyncio.get_running_loop()
        given_up: asyncio.Future[Hung] = loop.create_future()

        def give_up(hung: Hung) -> None:
            loop.call_soon_threadsafe(_settle, given_up, hung)

        watch = self._premises.watcher.watching(turn, seconds, give_up)
        call = asyncio.ensure_future(self._threads.call(partial(self._run, turn, watch)))
        try:
            either: set[asyncio.Future[Any]] = {call, given_up}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
        finally:
            # Of one that hangs, the thread is left behind.
            call.cancel()
        self._premises.floor.leave(turn)
        self._premises.setup.abandon(turn.item)
        return given_up.result().phases(turn)

    def _run(self, turn: Turn, watch: AbstractContextManager[Any]) -> list[PhaseEnd]:
        """In the test's own thread."""
        context = self._premises
        with turn.taken():
            context.floor.enter(turn)
            try:
                context.fixtures.give(turn.item)
                with watch, catching(turn):
                    return self._protocol.run(turn)
            finally:
                context.floor.leave(turn)

    def _begin_again(self, turn: Turn) -> None:
        """In the same thread."""
        turn.logs = TurnLogs(turn.item, self._config)
        turn.unhandled = []
        self._premises.fixtures.give(turn.item)


def _settle(future: asyncio.Future[Hung], hung: Hung) -> None:
    if not future.done():
        future.set_result(hung)


def _is_to_stop(item: pytest.Item) -> bool:
    """With -x after a failure, for instance: one that is about to start does not begin any more."""
    return bool(item.session.shouldfail or item.session.shouldstop)
