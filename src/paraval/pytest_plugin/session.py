"""A session with `--parallel`: this process decides what runs where, and reports it; workers run
the tests.

The scheduler says when a test may start: longest first, within the limits of accounts and groups,
and again after a rate limit. Everything here happens in the main thread, in one loop.
"""

from __future__ import annotations

import heapq
import linecache
import os
import pickle
import selectors
import signal
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from paraval.execute.pace import Pace
from paraval.machine.machine_reader import MachineReader
from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.keeper import (
    Began,
    Ended,
    Keeper,
    ProgramStarter,
    Starter,
    how_it_ended,
    kill,
    why_not_fork,
)
from paraval.pytest_plugin.models.item_outcomes import PASSED
from paraval.pytest_plugin.models.model_accounts import TRIES, retry_mark_of
from paraval.pytest_plugin.models.spending import with_earlier
from paraval.pytest_plugin.options import PluginOptions, StartForm
from paraval.pytest_plugin.planning import SessionPlan, plan_session
from paraval.pytest_plugin.progress import Progress, progress_for
from paraval.pytest_plugin.pytest_internals import (
    ReportOrder,
    Session,
    count_failed_subtests,
    dots_of_many_files,
    junit_file_of,
    temporary_folders_of,
    why_one_by_one,
)
from paraval.pytest_plugin.recording.report_data import (
    ReportData,
    attach_report_data,
    report_data_of,
)
from paraval.pytest_plugin.time_limits import RING_AGAIN_S, seconds_of
from paraval.pytest_plugin.worker import (
    MODELS,
    STACKS_SIGNAL,
    Inbox,
    Message,
    Start,
    Worker,
    WorkerIdentity,
    measured_coverage,
    received_warning,
    send,
    set_up_fork,
)
from paraval.records import AttemptResult, Failure, Outcome
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

NAME = "paraval-parallel"
GRACE_S = 3.0
"""How long tests have to end after Ctrl-C, or after the first failure with -x."""
TICK_S = 0.1
STACKS_WITHIN_S = 0.5
MEASURE_EVERY_S = 1.0
HANGS_AFTER_S = 60.0
HANGS_AFTER_TIMES = 10
NAMED_EVERY_S = 30.0
MOST_NAMES = 10
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


@dataclass(slots=True)
class RunningWorker:
    """A worker, and what it is doing."""

    identity: WorkerIdentity
    process: int
    socket: Any
    inbox: Inbox
    ticket: int | None = None
    """The unit that it runs."""
    test: int | None = None
    """The test of that, by its position."""
    given: deque[int] = field(default_factory=deque)
    """More tests that it was given."""
    began: float = 0.0
    home: object = None
    """The module whose fixtures it has set up."""
    held: tuple[pytest.Item, pytest.TestReport] | None = None
    """A test whose teardown goes on when the worker knows its next one, and its last report."""
    last: int | None = None
    beside: set[int] = field(default_factory=set)
    """The tests that others ran while it ran this one."""
    why_killed: str | None = None
    is_ready: bool = True
    is_leaving: bool = False

    def stacks(self) -> str:
        """Where its threads are, as Python's faulthandler shows it; empty: it doesn't answer."""
        path = self.identity.file("stacks")
        with suppress(OSError):
            size = path.stat().st_size
            os.kill(self.process, STACKS_SIGNAL)
            until = time.monotonic() + STACKS_WITHIN_S
            while time.monotonic() < until and path.stat().st_size == size:
                time.sleep(0.01)
            time.sleep(0.02)
            return _shortened(path.read_bytes()[size:].decode(errors="replace"))
        return ""


def _shortened(stacks: str) -> str:
    """Without the frames of pytest and of this plugin, below those of the test."""
    kept, is_below = [], False
    for line in stacks.splitlines():
        is_below = line.startswith("  File") and (is_below or "_pytest" in line)
        if not is_below:
            kept.append(line)
    return "\n".join(kept)


def register_parallel(config: pytest.Config, options: PluginOptions) -> None:
    """Take over the session's loop."""
    if pytest.version_tuple < (8, 2):
        raise pytest.UsageError(
            f"--parallel needs pytest 8.2 or newer; this is {pytest.__version__}"
        )
    if getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError(
            "--parallel and xdist's -n cannot be combined: --parallel has workers of its own"
        )
    manager = config.pluginmanager
    history = History(config)
    manager.register(history, History.NAME)
    order = ReportOrder(config)
    manager.register(order, ReportOrder.NAME)
    manager.register(ParallelSession(config, options, history, order), NAME)


class ParallelSession:
    """Hooks of a session whose tests run in workers."""

    def __init__(
        self, config: pytest.Config, options: PluginOptions, history: History, order: ReportOrder
    ) -> None:
        self._config = config
        self._options = options
        self._history = history
        self._order = order
        self._plan: SessionPlan | None = None
        self._why_plain: str | None = None
        self._run: ParallelRun | None = None
        self._why_program: str | None = None
        """Why workers are programs of their own, and not forks."""

    @pytest.hookimpl(trylast=True)
    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Say how the tests will run."""
        if not items:
            return []
        self._why_plain = why_one_by_one(self._config)
        if self._why_plain is not None:
            return [f"not in parallel: {self._why_plain}"]
        if self._options.start is StartForm.EXEC:
            self._why_program = "--parallel-start exec"
        elif self._options.start is None:
            self._why_program = why_not_fork()
        plan = self._planned(items)
        at_once = "auto" if self._options.auto else str(self._options.parallel)
        words = "forked workers"
        if self._why_program is not None:
            words = f"workers start as programs ({self._why_program})"
        alone = f", {counted(len(plan.alone), 'test')} alone" if plan.alone else ""
        return [f"parallel {at_once}: {words}{alone}", *plan.conflicts]

    def _planned(self, items: Sequence[pytest.Item]) -> SessionPlan:
        if self._plan is None:
            self._plan = plan_session(items, self._options, self._history)
        return self._plan

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> Generator[None, Any, Any]:
        """Fork the keeper before anything has a thread, an open file or a connection."""
        option = session.config.option
        is_broken = session.testsfailed and not option.continue_on_collection_errors
        if option.collectonly or is_broken or not session.items or self._why_plain is not None:
            return (yield)
        with tempfile.TemporaryDirectory(prefix="paraval-pytest-") as folder:
            self._run = ParallelRun(
                session,
                self._planned(session.items),
                self._options,
                history=self._history,
                folder=folder,
                is_forked=self._why_program is None,
            )
            return (yield)

    @pytest.hookimpl(tryfirst=True, specname="pytest_runtestloop")
    def pytest_run_in_workers(self, session: Session) -> bool | None:
        run = self._run
        if run is None:
            return None
        with dots_of_many_files(self._config, session.items):
            run.run()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Session) -> None:
        self._order.restore(session.items)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in () if self._run is None else self._run.notes:
            terminalreporter.write_line(line, yellow=True)


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
        self._tries: dict[int, list[AttemptResult]] = {}
        """By test: attempts that a rate limit refused."""
        self._properties: dict[int, list[tuple[str, object]]] = {}
        self._wakes: list[float] = []
        self._is_over = False
        self._to_recheck: dict[int, frozenset[str]] = {}
        """Tests that failed, and what ran beside them."""
        self._rechecked: tuple[int, bool] | None = None
        self._error: BaseException | None = None
        """What ends the session: from a worker."""
        self._named_at = 0.0
        self._measured_at = 0.0
        self._reader = MachineReader() if plan.limits.auto else None
        self.notes: list[str] = []
        self._scheduler = Scheduler(plan.works, limits=plan.limits, retry=plan.retry, seed=0)
        self._pace = Pace[int](plan.expected.__getitem__, from_history=history.is_known)
        self._is_forked = is_forked
        self._starter = self._start_forks() if is_forked else self._start_programs()
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
        if (coverage := measured_coverage()) is not None:
            coverage.get_data()

        def work(number: int, sock: Any) -> None:
            identity = self._identity(number)
            set_up_fork(session, identity)
            Worker(session, identity, sock).serve()

        shared = SharedByAll(session, self._options.shared)
        return Keeper(work, before=shared.set_up, after=shared.tear_down)

    def _start_programs(self) -> Starter:
        folders = temporary_folders_of(self._config)
        basetemp = Path(self._folder, "tmp") if folders is None else folders.getbasetemp()
        arguments = [str(one) for one in self._config.invocation_params.args]
        if self._config.pluginmanager.has_plugin("_cov"):
            arguments.append("--cov-append")  # Or a worker would remove what others measured.

        def greet(number: int, sock: Any) -> None:
            identity = self._identity(number)
            gateway = SimpleNamespace(id=identity.name)
            node = SimpleNamespace(workerinput={}, config=self._config, gateway=gateway)
            hook = getattr(self._config.hook, "pytest_configure_node", None)
            for impl in () if hook is None else hook.get_hookimpls():
                with suppress(Exception):  # Some expect that xdist was asked for.
                    impl.function(node)
            start = Start(
                identity=identity,
                nodeids=[item.nodeid for item in self._items],
                arguments=arguments,
                folder=str(self._config.invocation_params.dir),
                path=sys.path,
                argv=sys.argv,
                basetemp=str(basetemp / f"popen-{identity.name}"),
                workerinput=node.workerinput,
            )
            send(sock, start)

        return ProgramStarter([sys.executable, "-m", "paraval.pytest_plugin.program"], greet)

    def _fill(self) -> None:
        """Give out tests that may start, and start workers where none is idle."""
        while self._tickets and self._idle:
            homes = [self._plan.shared.waits_for(worker.home) for worker in self._idle]
            worker = self._idle.pop(max(range(len(homes)), key=homes.__getitem__))
            ticket = self._tickets.popleft()
            unit = self._plan.units[ticket]
            if not unit.is_fixed:
                others = {one.home for one in self._workers.values() if one is not worker}
                unit.tests = self._plan.shared.choose(
                    ticket, worker.home, others, workers=len(self._workers)
                )
                unit.is_fixed = True
                for _ in unit.tests[1:]:
                    self._call_off_a_turn()
                self._give(worker, ticket, *unit.tests)
            else:
                self._give(worker, ticket, unit.tests[0])
        for _ in range(len(self._tickets) - self._starting):
            self._starting += 1
            self._starter.start(heapq.heappop(self._numbers))

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
                self._start_client()
            self._recorder = self._config.pluginmanager.get_plugin("paraval-recording")
            nodeids = [item.nodeid for item in self._items]
            self._progress = progress_for(self._config, self._options.progress, nodeids)
            try:
                self._handle(Begin(at=time.monotonic()))
                self._serve(lambda: self._is_over)
                self._end_workers()
                self._recheck()
                self._end_workers()
                self._add_coverage()
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

    def _add_coverage(self) -> None:
        coverage = measured_coverage()
        if coverage is not None:
            for path in Path(self._folder).glob("*.coverage*"):
                data = type(coverage.get_data())(str(path))
                data.read()
                coverage.get_data().update(data)

    def _start_client(self) -> None:
        """For the fixture `model` in all workers."""
        from paraval.pytest_plugin.model_fixture import CLIENT, ModelClientThread
        from paraval.pytest_plugin.models.choice import choice_in

        choice = choice_in(self._config)
        if choice is not None:
            models = choice.registry.models.values()
            client = ModelClientThread(models, str(Path(self._folder, MODELS)))
            self._config.stash[CLIENT] = client
            self._config.add_cleanup(client.close)

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
            if seconds is not None and now - worker.began > 2 * (seconds + RING_AGAIN_S):
                worker.why_killed = f"timed out after {seconds:g} s, and did not end"
                self._kill_with_stacks(worker)
        if not self._tickets and running and now - self._named_at >= NAMED_EVERY_S:
            hanging = [one for one in running if now - one.began > self._patience_s(one)]
            if len(hanging) == len(running) and not self._scheduler.standing(now).waiting:
                self._named_at = now
                for worker in hanging[:MOST_NAMES]:
                    took = duration(now - worker.began)
                    self._progress.say(f"running for {took}: {self._place_words(worker)}")

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
        self._take_suite_properties(message)
        if self._rechecked is None:
            self._end_held(worker, message.late)
        if message.is_end:
            self._emit_warnings(message)
            self._node_down(worker, message)
            if message.is_printed and PRINTS_AT_END not in self.notes:
                self.notes.append(PRINTS_AT_END)
        elif self._rechecked is not None:
            is_passed = all(not _loaded(report).failed for report in message.reports)
            self._rechecked = (self._rechecked[0], is_passed)
            worker.test = None
        elif not worker.is_leaving:
            self._test_ended(worker, message)

    def _test_ended(self, worker: RunningWorker, message: Message) -> None:
        reports = [*map(_loaded, message.reports)]
        test, item, result = worker.test, self._item_of(worker), result_in(reports)
        assert test is not None
        tries = self._tries.setdefault(test, []) if result.error is not None else []
        if result.outcome is Outcome.RATE_LIMITED and self._may_come_again(item, tries):
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
        *early, last = self._with_earlier(test, reports)
        if message.is_open:
            self._emit(item, early, message, finish=False)
            worker.held = (item, last)
        else:
            self._emit(item, [*early, last], message)

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
            self._tries[test].append(result)
            self._properties[test] = with_earlier(
                reports[-1].user_properties, self._properties.get(test, ())
            )
            self._progress.waits(item.nodeid, error, instead.delay_s or 0.0)
            return False
        self._progress.ended(item.nodeid, reports, result, self._eta_s(now))
        return True

    def _may_come_again(self, item: pytest.Item, tries: Sequence[AttemptResult]) -> bool:
        mark = retry_mark_of(item)
        return mark is not None and len(tries) + 1 < (mark.tries or TRIES)

    def _eta_s(self, now: float) -> float | None:
        return self._pace.eta_s(self._scheduler, now)

    def _with_earlier(
        self, test: int, reports: Sequence[pytest.TestReport]
    ) -> Sequence[pytest.TestReport]:
        """Add what refused attempts spent, and how they ended, to the test's reports."""
        tries = self._tries.pop(test, None)
        if tries:
            for report in reports:
                report.user_properties = with_earlier(
                    report.user_properties, self._properties[test]
                )
            data = ReportData(result=result_in(reports), earlier=tuple(tries))
            attach_report_data(reports[-1], data)
        return reports

    def _not_run(self, ticket: int, reason: str) -> None:
        """Tests whose account is unusable for the rest of the run: no verdict, but not ignored."""
        for test in self._plan.units[ticket].tests:
            item = self._items[test]
            report = _made_up(item, f"not run: {reason}", when="setup")
            failure = Failure(kind=Outcome.INFRA_ERROR, message=reason)
            result = AttemptResult(outcome=Outcome.INFRA_ERROR, error=failure)
            attach_report_data(report, ReportData(result=result))
            self._progress.ended(item.nodeid, [report], result, None)
            self._emit(item, [report])

    def _worker_ended(self, worker: RunningWorker, ended: Ended) -> None:
        with suppress(EOFError):
            for message in worker.inbox.take():
                self._heard(worker, message)
        self._end_held(worker, None)
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
            self._emit(item, [_made_up(item, f"{how}, after the test", when="teardown")])
        else:
            self._lost_at_start += 1
            if self._lost_at_start >= MOST_LOST_AT_START:
                raise WorkerError(f"a worker {how_it_ended(ended.status)} before its first test")

    def _crashed(self, worker: RunningWorker, how: str) -> None:
        item = self._item_of(worker)
        path = worker.identity.file("stacks")
        stacks = _shortened(path.read_text(errors="replace")) if path.exists() else ""
        text = f"{how}\n\n{stacks}".rstrip() if worker.why_killed is None else how
        took = time.monotonic() - worker.began
        report = _made_up(item, text, when="call", duration_s=took)
        for kind, name in (("out", "stdout"), ("err", "stderr")):
            with suppress(OSError):
                if content := worker.identity.file(kind).read_text(errors="replace"):
                    report.sections.append((f"Captured {name} call", content))
        kind = Outcome.CRASHED if worker.why_killed is None else Outcome.TIMEOUT
        first = text.partition("\n")[0]
        result = AttemptResult(
            outcome=kind,
            error=Failure(kind=kind, message=first, lasting=True),
            duration_s=took,
        )
        end = pytest.TestReport(
            item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "passed", None, "teardown"
        )
        attach_report_data(end, ReportData(result=result))
        self._emit(item, [report, end])
        self._conclude(worker, [report, end], result)

    # ---- reports

    def _emit(
        self,
        item: pytest.Item,
        reports: Sequence[pytest.TestReport],
        message: Message | None = None,
        *,
        finish: bool = True,
    ) -> None:
        """Report the test as pytest's runner would have, had it run here."""
        count_failed_subtests(item, reports)
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
            if hasattr(report, "rerun"):  # What pytest-rerunfailures looks at in the end.
                vars(item)["execution_count"] = report.rerun + 1
        if message is not None:
            self._emit_warnings(message)
        if finish:
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _emit_warnings(self, message: Message) -> None:
        hook = self._config.hook.pytest_warning_recorded
        for warning in message.warnings:
            told = received_warning(warning["warning_message"])
            hook.call_historic(kwargs={**warning, "warning_message": told})

    def _end_held(self, worker: RunningWorker, late: bytes | None) -> None:
        """The teardown of a worker's last test is over: `late` is how it really ended."""
        held, worker.held = worker.held, None
        hook, report = self._config.hook, None
        if late is not None:
            report = _loaded(late)
        if held is None:
            if report is not None and report.failed:
                hook.pytest_runtest_logreport(report=report)
            return
        item: pytest.Item = held[0]
        last: pytest.TestReport | None = held[1]
        if report is not None and held[1].failed:
            # Its own teardown has failed already.
            item.ihook.pytest_runtest_logreport(report=last)
            last = report if report.failed else None
        elif report is not None:
            report.user_properties = held[1].user_properties
            if (data := report_data_of(held[1])) is not None:
                attach_report_data(report, data)
            last = report
        if last is not None:
            item.ihook.pytest_runtest_logreport(report=last)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _take_suite_properties(self, message: Message) -> None:
        xml = junit_file_of(self._config)
        for one in message.suite_properties if xml is not None else ():
            if one not in xml.global_properties:
                xml.global_properties.append(one)

    def _node_down(self, worker: RunningWorker, message: Message) -> None:
        """As xdist does it, for those that collect what workers put out."""
        hook = getattr(self._config.hook, "pytest_testnodedown", None)
        if hook is not None and message.output:
            gateway = SimpleNamespace(id=worker.identity.name)
            node = SimpleNamespace(
                gateway=gateway, config=self._config, workeroutput=message.output
            )
            hook(node=node, error=None)

    # ---- ends

    def _end_workers(self) -> None:
        """Have them tear down what their tests shared."""
        for worker in self._workers.values():
            worker.is_leaving = True
            with suppress(OSError):
                send(worker.socket, None)
        self._idle.clear()
        self._serve(lambda: not self._workers and not self._starting)

    def _interrupt(self, grace_s: float) -> None:
        """End running tests, and drop their results."""
        for worker in self._workers.values():
            worker.is_leaving = True
            if worker.test is not None:
                kill(worker.process, signal.SIGINT)
            else:
                with suppress(OSError):
                    send(worker.socket, None)
        with suppress(KeyboardInterrupt, pytest.exit.Exception, WorkerError):
            self._serve(lambda: not self._workers, time.monotonic() + grace_s)
        for process in self._workers:
            kill(process, signal.SIGKILL)

    def _break_off(self, error: KeyboardInterrupt) -> NoReturn:
        running = [one for one in self._workers.values() if one.test is not None]
        places = [self._place_of(worker) for worker in running[:MOST_NAMES]]
        for worker in running[:MOST_NAMES]:
            self.notes.append(f"still running: {self._place_words(worker)}")
        if len(running) > MOST_NAMES:
            self.notes.append(f"still running: {len(running) - MOST_NAMES} more")
        self._interrupt(GRACE_S)
        place = next(filter(None, places), None)
        if place is not None:
            raise_at(place, error)  # As in plain pytest: at a line of a test that ran.
        raise error

    def _place_of(self, worker: RunningWorker) -> tuple[str, int] | None:
        """The file and line of the test that its main thread is at."""
        own = str(self._item_of(worker).path)
        _, _, current = worker.stacks().partition("Current thread")
        for line in current.splitlines():
            if line.startswith(f'  File "{own}", line '):
                return own, int(line.removeprefix(f'  File "{own}", line ').split()[0])
        return None

    def _place_words(self, worker: RunningWorker) -> str:
        place, nodeid = self._place_of(worker), self._item_of(worker).nodeid
        if place is None:
            return nodeid
        file = os.path.relpath(place[0], self._config.rootpath)
        return f"{nodeid}, in {file}:{place[1]}: {linecache.getline(*place).strip()}"

    # ---- the second run of what failed

    def _note_failure(self, worker: RunningWorker, outcome: Outcome) -> None:
        item = self._item_of(worker)
        beside = frozenset(
            self._items[test].nodeid for test in worker.beside if test != worker.test
        )
        calls_models = {"model", "usage"} & {*getattr(item, "fixturenames", ())}
        if outcome in RECHECKED and beside and not calls_models and worker.test is not None:
            self._to_recheck[worker.test] = beside

    def _recheck(self) -> None:
        """Run what failed beside other tests once more, alone. Its verdict stays."""
        if not self._options.recheck or self._config.getoption("maxfail", 0) or self._is_stopping:
            return
        failed_again = 0
        passed: list[int] = []
        for test in sorted(self._to_recheck):
            if failed_again >= MOST_FAILED_AGAIN:
                break
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
                f"parallel: {nodeid} failed beside {', '.join(beside[:3])}{more}, and passed alone:"
                " do they share something? It runs alone from now on (until --cache-clear)"
            )
            self._history.remember_alone(nodeid)

    def _passes_alone(self, test: int) -> bool:
        if not self._workers:
            self._starting += 1
            self._starter.start(heapq.heappop(self._numbers))
            self._serve(lambda: bool(self._idle) or not self._starting)
        if not self._idle:
            return False
        worker = self._idle[0]
        worker.test, worker.began = test, time.monotonic()
        with suppress(OSError):
            send(worker.socket, test)
        self._serve(lambda: worker.test is None or worker.process not in self._workers)
        return self._rechecked == (test, True)


def _loaded(data: bytes) -> pytest.TestReport:
    report: pytest.TestReport = pickle.loads(data)  # noqa: S301 - from a worker
    return report


def result_in(reports: Sequence[pytest.TestReport]) -> AttemptResult:
    """How a test ended, from its worker; tests that pass say nothing of it."""
    data = report_data_of(reports[-1])
    if data is not None:
        return data.result
    took = sum(report.duration for report in reports)
    return AttemptResult(outcome=Outcome.PASSED, grades=(PASSED,), score=1.0, duration_s=took)


def _made_up(
    item: pytest.Item, text: str, *, when: Any, duration_s: float = 0.0
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=text,
        when=when,
        duration=duration_s,
    )


def raise_at(place: tuple[str, int], error: BaseException) -> NoReturn:
    """Raise the error with a traceback that ends at this file and line."""
    code = compile("\n" * (place[1] - 1) + "raise error", place[0], "exec")
    exec(code, {"error": error.with_traceback(None)})  # noqa: S102 - our own constant code
    raise error


class SharedByAll:
    """Session fixtures that exist once: set up in the keeper, and inherited by all workers."""

    def __init__(self, session: Session, names: Sequence[str]) -> None:
        self._session = session
        self._names = names

    def set_up(self) -> None:
        session, state = self._session, self._session._setupstate
        if not self._names:
            return
        state.stack[session] = ([session.teardown], None)
        session.setup()
        for name in self._names:
            users = (one for one in session.items if name in getattr(one, "fixturenames", ()))
            item: Any = next(users, None)
            if item is not None:
                # An exception is kept, and raised in each test that asks for the fixture.
                with suppress(Exception):
                    item._request._get_active_fixturedef(name)

    def tear_down(self) -> None:
        self._session._setupstate.teardown_exact(None)
