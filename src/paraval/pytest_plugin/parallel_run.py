"""One run of a session's tests in workers: this process decides what runs where, and reports it.

The scheduler says when a test may start: longest first, within the limits of accounts and groups,
and again after a rate limit. Everything here happens in the main thread, in one loop.
"""

from __future__ import annotations

import heapq
import linecache
import os
import selectors
import signal
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from paraval.execute.pace import Pace
from paraval.machine.machine_reader import MachineReader
from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.keeper import (
    Began,
    Ended,
    Keeper,
    RunningWorker,
    Starter,
    how_it_ended,
    kill,
    raise_at,
)
from paraval.pytest_plugin.options import PluginOptions
from paraval.pytest_plugin.planning import SessionPlan, Unit
from paraval.pytest_plugin.program import ProgramStarter
from paraval.pytest_plugin.progress import Progress, progress_for
from paraval.pytest_plugin.pytest_internals import Session, temporary_folders_of
from paraval.pytest_plugin.reports import Reporters, loaded, made_up, not_run
from paraval.pytest_plugin.retries import RefusedAttempts, result_in
from paraval.pytest_plugin.time_limits import RING_AGAIN_S, seconds_of
from paraval.pytest_plugin.worker import (
    MODELS,
    Inbox,
    Message,
    SharedByAll,
    Worker,
    WorkerIdentity,
    add_coverage,
    measured_coverage,
    send,
    set_up_fork,
)
from paraval.records import AttemptResult, Outcome
from paraval.schedule.messages import (
    AttemptOver,
    Begin,
    Canceled,
    Event,
    MachineMeasured,
    Over,
    RetryLater,
    Skip,
    StartAttempt,
    Tick,
    WakeAt,
)
from paraval.schedule.scheduler import Scheduler
from paraval.text.words import counted, duration

GRACE_S = 3.0
"""How long tests have to end after Ctrl-C, or after the first failure with -x."""
TICK_S = 0.1
MEASURE_EVERY_S = 1.0
HANGS_AFTER_S = 60.0
HANGS_AFTER_TIMES = 10
NAMED_EVERY_S = 30.0
MOST_NAMES = 10
RECHECKED_SILENTLY_S = 2.0
FEW = 4
"""Short tests that a worker has left when it is given more."""
MOST_FAILED_AGAIN = 20
"""After this many consecutive failures alone, other tests are not the cause."""
PRINTS_AT_END = (
    "parallel: pytest_sessionfinish of a conftest prints in each worker, where it is lost: what "
    "tests collect in a global is only their worker's part (use record_property, and print in "
    "pytest_terminal_summary)"
)
RECHECKED = (Outcome.FAILED, Outcome.CRASHED, Outcome.INFRA_ERROR)
"""Ends that other tests may be the cause of; a test that hangs would hang again."""
MOST_LOST_AT_START = 3
"""Consecutive workers that end before their first test."""


class WorkerError(Exception):
    """An error of a hook, or of this plugin, in a worker."""


class ParallelRun:
    """One session's tests, from the first to the last."""

    def __init__(
        self,
        session: Session,
        plan: SessionPlan,
        options: PluginOptions,
        *,
        history: History,
        folder: str,
        is_forked: bool,
    ) -> None:
        self._session = session
        self._config: Any = session.config
        self._items = session.items
        self._plan = plan
        self._options = options
        self._history = history
        self._folder = folder
        self._session_id = uuid.uuid4().hex
        fixtures = (getattr(item, "fixturenames", ()) for item in session.items)
        self._calls_models = any("model" in names for names in fixtures)
        self._numbers = list(range(options.parallel + 1))
        """Of workers that may be started; the smallest first."""
        self._workers: dict[int, RunningWorker] = {}
        """By process."""
        self._idle: list[RunningWorker] = []
        self._tickets: deque[int] = deque()
        """Units that may start, as soon as there is a worker."""
        self._turns = {
            work.index: None for work in plan.works if not work.needs and not work.exclusive
        }
        """Tests without needs whose turn has not come."""
        self._starting = 0
        self._lost_at_start = 0
        self._refused = RefusedAttempts()
        self._reporters = Reporters(session.config)
        self._wakes: list[float] = []
        self._is_over = False
        self._to_recheck: dict[int, frozenset[str]] = {}
        """Tests that failed, and what ran beside them."""
        self._rechecked: tuple[int, bool] | None = None
        self._named_at = 0.0
        self._measured_at = 0.0
        self._reader = MachineReader() if plan.limits.auto else None
        self.notes: list[str] = []
        self._scheduler = Scheduler(plan.works, limits=plan.limits, retry=plan.retry, seed=0)
        self._pace = Pace[int](plan.expected.__getitem__, from_history=history.is_known)
        self._is_forked = is_forked
        self._starter = (
            self._start_forks() if is_forked else ProgramStarter(session, self._identity)
        )
        self._progress: Progress = Progress()
        self._recorder: Any = None

    # ---- workers

    def _identity(self, number: int) -> WorkerIdentity:
        return WorkerIdentity(
            number=number,
            count=self._options.parallel,
            session_id=self._session_id,
            folder=self._folder,
            calls_models=self._calls_models,
        )

    def _start_forks(self) -> Starter:
        session = self._session
        if self._calls_models:
            import paraval.pytest_plugin.model_fixture  # noqa: F401 - or each worker would
        if (folders := temporary_folders_of(self._config)) is not None:
            folders.getbasetemp()  # Workers have theirs below it.
        if (coverage := measured_coverage()) is not None:
            coverage.get_data()

        def work(number: int, sock: Any) -> None:
            identity = self._identity(number)
            set_up_fork(session, identity)
            Worker(session, identity, sock).serve()

        shared = SharedByAll(session, self._options.shared)
        return Keeper(work, before=shared.set_up, after=shared.tear_down)

    def _fill(self) -> None:
        """Give out tests that may start, and start workers where none is idle."""
        while self._tickets and self._idle:
            unit = self._plan.units[self._tickets[0]]
            worker = self._idle_one_for(unit)
            is_used = worker.last is not None and self._runs_alone(unit.tests[0])
            if is_used and self._starting:
                break  # A new one comes.
            self._idle.remove(worker)
            if is_used:
                self._dismiss(worker)
                break
            ticket = self._tickets.popleft()
            if not unit.is_fixed:
                others = {one.home for one in self._workers.values() if one is not worker}
                unit.tests = self._plan.shared.choose(
                    ticket, worker.home, others, at_most=self._chunk()
                )
                unit.is_fixed = True
                for _ in unit.tests[1:]:
                    self._call_off_a_turn()
                self._give(worker, ticket, *unit.tests)
            else:
                self._give(worker, ticket, unit.tests[0])
        for _ in range(min(len(self._tickets) - self._starting, len(self._numbers))):
            self._start()

    def _start(self) -> None:
        self._starting += 1
        self._starter.start(heapq.heappop(self._numbers))

    def _runs_alone(self, test: int) -> bool:
        """In a new worker, too: tests before it may have been the cause of its failure."""
        return self._history.why_alone(self._items[test].nodeid) is not None

    def _idle_one_for(self, unit: Unit) -> RunningWorker:
        """Prefer one that is new, or whose fixtures other tests wait for."""
        if self._runs_alone(unit.tests[0]):
            return min(self._idle, key=lambda worker: worker.last is not None)
        return max(self._idle, key=lambda worker: self._plan.shared.waits_for(worker.home))

    def _dismiss(self, worker: RunningWorker) -> None:
        """Have it tear down what its tests shared, and end."""
        worker.is_leaving = True
        with suppress(OSError):
            send(worker.socket, None)

    def _chunk(self) -> int:
        """The most further tests that a worker may be given: each takes the turn of another."""
        return len(self._turns) // (2 * len(self._workers))

    def _top_up(self, worker: RunningWorker) -> None:
        """Give it more short tests before it has run the last one."""
        ticket, test = worker.ticket, worker.test
        assert ticket is not None
        assert test is not None
        for more in self._plan.shared.more(test, at_most=self._chunk()):
            self._call_off_a_turn()
            self._plan.units[ticket].tests.append(more)
            worker.given.append(more)
            with suppress(OSError):
                send(worker.socket, more)

    def _call_off_a_turn(self) -> None:
        """Instead of one test, a worker was given two."""
        index, _ = self._turns.popitem()
        reason = "another test takes this turn, too"
        self._handle(Canceled(at=time.monotonic(), index=index, reason=reason))

    def _give(self, worker: RunningWorker, ticket: int, *tests: int) -> None:
        worker.ticket = ticket
        worker.given.extend(tests)
        worker.home = self._plan.shared.home(tests[0]) or worker.home
        self._begin_next(worker)
        # One that has just died is noticed by its end.
        with suppress(OSError):
            for test in tests:
                send(worker.socket, test)

    def _begin_next(self, worker: RunningWorker) -> None:
        """The worker begins the next of the tests that it was given."""
        worker.test, worker.began = worker.given.popleft(), time.monotonic()
        others = [one for one in self._workers.values() if one.test is not None]
        worker.beside = {one.test for one in others if one.test is not None and one is not worker}
        for one in others:
            one.beside.add(worker.test)
        nodeid = self._items[worker.test].nodeid
        if self._recorder is not None:
            self._recorder.started(nodeid)
        self._progress.started(nodeid)

    # ---- the loop

    def run(self) -> None:
        """Run until every test has ended, or the session must stop."""
        with selectors.DefaultSelector() as self._selector:
            self._selector.register(self._starter, selectors.EVENT_READ)
            if self._calls_models:
                from paraval.pytest_plugin.model_fixture import serve_models

                serve_models(self._config, str(Path(self._folder, MODELS)))
            self._recorder = self._config.pluginmanager.get_plugin("paraval-recording")
            nodeids = [item.nodeid for item in self._items]
            self._progress = progress_for(self._config, self._options.progress, nodeids)
            try:
                self._handle(Begin(at=time.monotonic()))
                self._serve(lambda: self._is_over)
                self._end_workers()
                self._recheck()
                self._end_workers()
                add_coverage(Path(self._folder))
            except KeyboardInterrupt as error:
                self._break_off(error)
            except BaseException:
                self._interrupt(GRACE_S)
                raise
            finally:
                self._progress.close()
                for process in self._workers:
                    kill(process, signal.SIGKILL)
                self._starter.close()

    @property
    def _is_stopping(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def _serve(self, is_done: Callable[[], bool], until: float = float("inf")) -> None:
        next_tick = 0.0
        while not is_done() and (now := time.monotonic()) < until:
            if self._is_stopping and until == float("inf"):
                self._interrupt(GRACE_S)
                return
            if now >= next_tick:
                self._tick(now)
                next_tick = now + TICK_S
            while self._wakes and self._wakes[0] <= now:
                heapq.heappop(self._wakes)
                self._handle(Tick(at=now))
            wake = min([next_tick, *self._wakes[:1]])
            for key, _ in self._selector.select(max(0.0, wake - time.monotonic())):
                if key.fileobj is self._starter:
                    self._take_news()
                else:
                    self._take_messages(key.data)
            if not self._is_stopping and self._rechecked is None:
                self._fill()

    def _take_news(self) -> None:
        try:
            news = list(self._starter.news())
        except EOFError:
            raise WorkerError("the process that starts workers has ended") from None
        for one in news:
            if isinstance(one, Began):
                self._starting -= 1
                identity = self._identity(one.number)
                worker = RunningWorker(identity, one.process, one.socket, Inbox(one.socket))
                worker.is_ready = self._is_forked
                self._workers[one.process] = worker
                self._selector.register(one.socket, selectors.EVENT_READ, worker)
                self._idle.append(worker)
            elif one.process in self._workers:
                self._worker_ended(self._workers[one.process], one)

    def _take_messages(self, worker: RunningWorker) -> None:
        if worker.process not in self._workers:
            return  # Its end was news of the same moment.
        try:
            for message in worker.inbox.take():
                self._heard(worker, message)
        except EOFError:
            # How it ended follows.
            self._selector.unregister(worker.socket)

    def _handle(self, event: Event) -> RetryLater | Skip | None:
        """Tell the scheduler; return what it says instead of `Conclude`."""
        instead: RetryLater | Skip | None = None
        for instruction in self._scheduler.handle(event):
            match instruction:
                case StartAttempt(index=index):
                    self._tickets.append(index)
                    self._turns.pop(index, None)
                case RetryLater():
                    instead = instruction
                case Skip(index=index, reason=reason) if not isinstance(event, Canceled):
                    if isinstance(event, AttemptOver) and index == event.index:
                        instead = instruction
                    else:
                        self._not_run(index, reason)
                case WakeAt(at=at):
                    heapq.heappush(self._wakes, at)
                case Over():
                    self._is_over = True
                case _:
                    pass
        return instead

    def _tick(self, now: float) -> None:
        self._progress.tick()
        if self._reader is not None and now - self._measured_at >= MEASURE_EVERY_S:
            self._measured_at = now
            self._handle(MachineMeasured(at=now, reading=self._reader.read({})))
        running = [worker for worker in self._workers.values() if worker.test is not None]
        for worker in running:
            seconds = seconds_of(self._item_of(worker))
            # The alarm in the worker comes first.
            is_late = seconds is not None and now - worker.began > 2 * (seconds + RING_AGAIN_S)
            if is_late and worker.why_killed is None:
                worker.why_killed = f"timed out after {seconds:g} s, and did not end"
                self._kill_with_stacks(worker)
        if not self._tickets and running and now - self._named_at >= NAMED_EVERY_S:
            hanging = [one for one in running if now - one.began > self._patience_s(one)]
            if len(hanging) == len(running) and not self._scheduler.standing(now).waiting:
                self._named_at = now
                for worker in hanging[:MOST_NAMES]:
                    took = duration(now - worker.began)
                    words = self._place_words(worker, worker.place(self._item_of(worker).path))
                    self._progress.say(f"running for {took}: {words}")

    def _patience_s(self, worker: RunningWorker) -> float:
        known_s = self._plan.expected[worker.test or 0] if self._history.is_known else 0.0
        return max(HANGS_AFTER_S, HANGS_AFTER_TIMES * known_s)

    def _kill_with_stacks(self, worker: RunningWorker) -> None:
        worker.why_killed = f"{worker.why_killed}\n\n{worker.stacks()}".rstrip()
        kill(worker.process, signal.SIGKILL)

    def _item_of(self, worker: RunningWorker) -> pytest.Item:
        assert worker.test is not None
        return self._items[worker.test]

    # ---- what workers tell

    def _heard(self, worker: RunningWorker, message: Message) -> None:
        if message.exit is not None and not worker.is_leaving:
            raise pytest.exit.Exception(*message.exit)
        if message.interrupted_at is not None and not worker.is_leaving:
            raise_at(message.interrupted_at, KeyboardInterrupt())
        if message.failure is not None:
            raise WorkerError(message.failure)
        if message.is_ready:
            worker.is_ready, worker.began = True, time.monotonic()
            return
        self._reporters.add_suite_properties(message.suite_properties)
        if self._rechecked is None:
            self._finish_held(worker, message.late)
        if message.is_end:
            self._reporters.warn(message.warnings)
            self._reporters.worker_ended(worker.identity.name, message.output)
            if message.is_printed and PRINTS_AT_END not in self.notes:
                self.notes.append(PRINTS_AT_END)
        elif self._rechecked is not None:
            is_passed = all(not loaded(report).failed for report in message.reports)
            self._rechecked = (self._rechecked[0], is_passed)
            worker.test = None
        elif not worker.is_leaving:
            self._test_ended(worker, message)

    def _finish_held(self, worker: RunningWorker, late: bytes | None = None) -> None:
        held, worker.held = worker.held, None
        self._reporters.finish(held, late)

    def _test_ended(self, worker: RunningWorker, message: Message) -> None:
        reports = [*map(loaded, message.reports)]
        test, item, result = worker.test, self._item_of(worker), result_in(reports)
        assert test is not None
        if self._refused.may_come_again(test, item, result):
            if self._conclude(worker, reports, result, may_come_again=True):
                self._report_end(worker, test, reports, message)
            return
        # First, since with -x nothing may begin after it.
        self._report_end(worker, test, reports, message)
        self._conclude(worker, reports, result)

    def _report_end(
        self,
        worker: RunningWorker,
        test: int,
        reports: Sequence[pytest.TestReport],
        message: Message,
    ) -> None:
        item = self._items[test]
        if message.stop is not None:
            self._session.shouldstop = message.stop
        *early, last = self._refused.joined(test, reports)
        if message.is_open:
            self._reporters.tell(item, early, message.warnings, finish=False)
            worker.held = (item, last)
        else:
            self._reporters.tell(item, [*early, last], message.warnings)

    def _conclude(
        self,
        worker: RunningWorker,
        reports: Sequence[pytest.TestReport],
        result: AttemptResult,
        *,
        may_come_again: bool = False,
    ) -> bool:
        """Tell the scheduler, and give the worker its next test; False: the test comes again."""
        ticket, test, now = worker.ticket, worker.test, time.monotonic()
        assert ticket is not None
        assert test is not None
        item, unit, error = self._items[test], self._plan.units[ticket], result.error
        self._pace.observe(test, result)
        self._note_failure(worker, result.outcome)
        worker.test, worker.last, self._lost_at_start = None, test, 0
        self._plan.shared.observe(result.duration_s)
        if not may_come_again:
            unit.tests.remove(test)
            if worker.given:
                self._begin_next(worker)
                if len(worker.given) == FEW:
                    self._top_up(worker)
            elif unit.tests and error is None and not self._is_stopping:
                self._give(worker, ticket, unit.tests[0])
            if worker.test is not None:
                self._progress.ended(item.nodeid, reports, result, self._eta_s(now))
                return True
        worker.ticket = None
        if worker.process in self._workers:
            self._idle.append(worker)
        instead = self._handle(
            AttemptOver(
                at=now,
                index=ticket,
                outcome=result.outcome,
                retry_after=None if error is None else error.retry_after,
                account=None if error is None else error.account,
                lasting=not may_come_again,
                stops=None if error is None else error.stops,
                reason="" if error is None else error.message,
                uses=result.uses,
            )
        )
        if may_come_again and isinstance(instead, RetryLater) and error is not None:
            self._refused.add(test, reports, result)
            wait_s = max(instead.delay_s or 0.0, error.retry_after or 0.0)
            self._progress.waits(item.nodeid, error, wait_s)
            return False
        self._progress.ended(item.nodeid, reports, result, self._eta_s(now))
        return True

    def _eta_s(self, now: float) -> float | None:
        return self._pace.eta_s(self._scheduler, now)

    def _not_run(self, ticket: int, reason: str) -> None:
        """Tests whose account is unusable for the rest of the run: no verdict, but not ignored."""
        for test in self._plan.units[ticket].tests:
            item = self._items[test]
            report, result = not_run(item, reason)
            self._progress.ended(item.nodeid, [report], result, None)
            self._reporters.tell(item, [report])

    def _worker_ended(self, worker: RunningWorker, ended: Ended) -> None:
        with suppress(EOFError):
            for message in worker.inbox.take():
                self._heard(worker, message)
        self._finish_held(worker)
        kill(ended.process, signal.SIGTERM)  # What its tests have left behind.
        del self._workers[ended.process]
        rest, worker.given = worker.given, deque()
        if worker in self._idle:
            self._idle.remove(worker)
        with suppress(KeyError):
            self._selector.unregister(worker.socket)
        worker.socket.close()
        heapq.heappush(self._numbers, worker.identity.number)
        if worker.is_leaving:
            return
        how = worker.why_killed or f"the process of this test {how_it_ended(ended.status)}"
        if not worker.is_ready:
            worker.test = worker.last = None
            if worker.ticket is not None:
                self._tickets.appendleft(worker.ticket)
        if worker.test is not None and self._rechecked is None:
            self._crashed(worker, how)
            if rest and worker.ticket is not None:
                self._tickets.appendleft(worker.ticket)
        elif self._rechecked is not None:
            worker.test = None
        elif worker.last is not None:
            item = self._items[worker.last]
            self._reporters.tell(item, [made_up(item, f"{how}, after the test", when="teardown")])
        else:
            self._lost_at_start += 1
            if self._lost_at_start >= MOST_LOST_AT_START:
                raise WorkerError(f"a worker {how_it_ended(ended.status)} before its first test")

    def _crashed(self, worker: RunningWorker, how: str) -> None:
        item = self._item_of(worker)
        reports, result = worker.crashed(item, how)
        self._reporters.tell(item, reports)
        self._conclude(worker, reports, result)

    # ---- ends

    def _end_workers(self) -> None:
        """Have them tear down what their tests shared."""

        def have_left() -> bool:
            for worker in self._workers.values():
                if not worker.is_leaving:  # It may have begun just now.
                    self._dismiss(worker)
            self._idle.clear()
            return not self._workers and not self._starting

        self._serve(have_left)

    def _interrupt(self, grace_s: float) -> None:
        """End running tests, and drop their results."""
        for worker in self._workers.values():
            if worker.test is None:
                self._dismiss(worker)
            worker.is_leaving = True
            if worker.test is not None:
                kill(worker.process, signal.SIGINT)
        with suppress(KeyboardInterrupt, pytest.exit.Exception, WorkerError):
            self._serve(lambda: not self._workers, time.monotonic() + grace_s)
        for process in self._workers:
            kill(process, signal.SIGKILL)

    def _break_off(self, error: KeyboardInterrupt) -> NoReturn:
        running = [one for one in self._workers.values() if one.test is not None]
        places = [one.place(self._item_of(one).path) for one in running[:MOST_NAMES]]
        for worker, place in zip(running, places, strict=False):
            self.notes.append(f"still running: {self._place_words(worker, place)}")
        if len(running) > MOST_NAMES:
            self.notes.append(f"still running: {len(running) - MOST_NAMES} more")
        self._interrupt(GRACE_S)
        first = next(filter(None, places), None)
        if first is not None:
            raise_at(first, error)  # As in plain pytest: at a line of a test that ran.
        raise error

    def _place_words(self, worker: RunningWorker, place: tuple[Path, int] | None) -> str:
        nodeid = self._item_of(worker).nodeid
        if place is None:
            return nodeid
        file, line = place
        code = linecache.getline(str(file), line).strip()
        return f"{nodeid}, in {os.path.relpath(file, self._config.rootpath)}:{line}: {code}"

    # ---- the second run of what failed

    def _note_failure(self, worker: RunningWorker, outcome: Outcome) -> None:
        item = self._item_of(worker)
        beside = frozenset(
            self._items[test].nodeid for test in worker.beside if test != worker.test
        )
        calls_models = {"model", "usage"} & {*getattr(item, "fixturenames", ())}
        if outcome in RECHECKED:
            self._history.forget_alone(item.nodeid)
        if outcome in RECHECKED and beside and not calls_models and worker.test is not None:
            self._to_recheck[worker.test] = beside

    def _recheck(self) -> None:
        """Run what failed beside other tests once more, alone. Its verdict stays."""
        if not self._options.recheck or self._config.getoption("maxfail", 0) or self._is_stopping:
            return
        failed_again, began, is_said = 0, time.monotonic(), False
        passed: list[int] = []
        for test in sorted(self._to_recheck):
            if failed_again >= MOST_FAILED_AGAIN:
                break
            if not is_said and time.monotonic() - began > RECHECKED_SILENTLY_S:
                is_said = True
                self._progress.say(
                    f"{counted(len(self._to_recheck), 'test')} that failed beside others: running "
                    "them once more, alone (--no-recheck leaves it out)"
                )
            self._rechecked = (test, False)
            if self._passes_alone(test):
                passed.append(test)
                failed_again = 0
            else:
                failed_again += 1
        for test in passed:
            nodeid = self._items[test].nodeid
            beside = sorted(self._to_recheck[test])
            more = f" and {len(beside) - 3} more" if len(beside) > 3 else ""
            self.notes.append(
                f"parallel: {nodeid} failed beside {', '.join(beside[:3])}{more}, and passed "
                "alone, in a new worker: do they share something?"
            )
            if self._history.remember_alone(nodeid):
                self.notes[-1] += " It runs alone from now on (until --cache-clear)"

    def _passes_alone(self, test: int) -> bool:
        if not self._idle:
            self._start()
            self._serve(lambda: bool(self._idle) or not self._starting)
        if not self._idle:
            return False
        worker = self._idle[0]
        worker.test, worker.began = test, time.monotonic()
        with suppress(OSError):
            send(worker.socket, test)
        self._serve(lambda: worker.test is None or worker.process not in self._workers)
        if self._is_forked and worker in self._idle:
            self._idle.remove(worker)  # The next one begins in a new worker, too.
            self._dismiss(worker)
        return self._rechecked == (test, True)
