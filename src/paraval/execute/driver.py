"""The loop that performs what the scheduler decides, and reports back to it.

It owns the clock and the tasks. attempts.py performs an attempt; `RunLedger` records results; a
source names trials while a run is in progress. An attempt starts only after its start is on disk,
and a trial counts as done only when its result is. Starts of short attempts are recorded ahead.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Protocol

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.execute.listeners import Decider, EarlyStopListener, RunNotices, Waits
from paraval.execute.machine_watch import MachineWatch, Measure
from paraval.execute.pace import Pace
from paraval.execute.recording import RunLedger, StartsAhead
from paraval.execute.trial_source import Growth, NewTrials, SourceReader
from paraval.records import (
    Attempt,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Capacity,
    ChatTarget,
    Failure,
    FoundLimit,
    Happening,
    MachineReading,
    NodeChanged,
    Outcome,
    RunNotice,
    StoredTarget,
    Target,
    Trial,
    TrialEnded,
    TrialResult,
    TrialSkipped,
)
from paraval.schedule.messages import (
    Abandoned,
    Added,
    AttemptOver,
    Begin,
    BudgetChanged,
    CallOff,
    Canceled,
    CapacityChanged,
    Conclude,
    Event,
    MachineMeasured,
    NeedStopped,
    NodeJoined,
    NodeLeft,
    Over,
    ParallelChanged,
    RetryLater,
    Skip,
    Standing,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
)
from paraval.schedule.scheduler import Scheduler

_NO_FAILURE = Failure(kind=Outcome.PASSED, message="")


def end_of(attempt: Attempt, result: AttemptResult, at: float) -> AttemptOver:
    """What the scheduler needs to know about an attempt's end."""
    error = result.error or _NO_FAILURE
    return AttemptOver(
        at=at,
        index=attempt.trial.index,
        outcome=result.outcome,
        retry_after=error.retry_after,
        account=error.account,
        lasting=error.lasting,
        stops=error.stops,
        reason=error.message,
        uses=result.uses,
        cost_usd=_cost_usd(attempt, result),
        at_least_usd=sum(
            spend.known_usd for spend in (result.spend, result.judging) if spend is not None
        ),
        memory_bytes=result.memory_bytes,
        is_lost=error.lost,
    )


def _cost_usd(attempt: Attempt, result: AttemptResult) -> float | None:
    """What the attempt cost; None if part of it is unknown."""
    if result.spend is None and not isinstance(attempt.trial.target, ChatTarget | StoredTarget):
        # A program may have spent money without reporting it; a call that was not billed has not.
        return None
    spends = [spend for spend in (result.spend, result.judging) if spend is not None]
    costs = [spend.cost_usd for spend in spends if spend.cost_usd is not None]
    return sum(costs) if len(costs) == len(spends) else None


COUNTED_AS_FAILED = ", counted as failed: "


def as_counted(target: Target, result: AttemptResult) -> AttemptResult:
    """A trial's last result: failed, if the suite says that errors of this kind are failures."""
    error = result.error
    if error is None or isinstance(target, ChatTarget) or result.outcome not in target.fails_on:
        return result
    kind = result.outcome.value.replace("_", " ")
    error = replace(error, message=f"{kind}{COUNTED_AS_FAILED}{error.message}")
    return replace(result, outcome=Outcome.FAILED, score=0.0, error=error)


WAITS_LOOKED_AT_EVERY_S = 1.0
STOP_GRACE_S = 5.0
"""How long running attempts may continue after a stop was requested."""
NO_ATTEMPT = 0
"""Attempt number for a trial that was left out for good, without an attempt."""


class Performer(Protocol):
    """Perform one attempt, whatever happens in it."""

    async def perform(self, attempt: Attempt) -> AttemptResult: ...

    def forget(self, index: int) -> None:
        """No further attempt at this trial will be made."""
        ...

    def kill(self) -> None:
        """Immediately end whatever it has running outside this process."""
        ...


@dataclass(slots=True)
class _TrialState:
    """The driver's state of a trial between its first start and its result."""

    queued_s: float
    attempts: int
    ended: list[AttemptResult] = field(default_factory=list)
    """Results of its attempts by this engine."""


@dataclass(slots=True)
class _Counts:
    """The progress of a run, in trials."""

    total: int
    done_before: int
    done: int = 0
    skipped: int = 0
    left_out: int = 0
    """Trials that will never run, which is recorded as their result."""
    known: int = 0
    """Trials named by a source that already had a result."""

    @property
    def done_in_all(self) -> int:
        return self.done_before + self.known + self.done


class Driver:
    """Runs the trials that were given to the scheduler."""

    def __init__(
        self,
        trials: Mapping[int, Trial],
        *,
        scheduler: Scheduler,
        performer: Performer,
        ledger: RunLedger,
        tell: Callable[[Happening], None],
        pace: Pace[Trial],
    ) -> None:
        self._trials = dict(trials)
        self._scheduler = scheduler
        self._performer = performer
        self._ledger = ledger
        self._observer = tell
        self._pace = pace
        self._states: dict[int, _TrialState] = {}
        self._starting: dict[int, Attempt] = {}
        """Attempts that wait for their start to be on disk."""
        self._ahead: StartsAhead | None = None
        self._untold: deque[tuple[int, Attempt]] = deque()
        """Attempts that have started, which observers don't know yet; and how many ends come
        before each."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._free_task: asyncio.Task[None] | None = None
        """The task of an attempt that has just ended: it performs what starts in its place ..."""
        self._next: Attempt | None = None
        """... which is this."""
        self._counts = _Counts(
            total=len(ledger.done) + len(self._trials), done_before=len(ledger.done)
        )
        self._notices = RunNotices(self._tell)
        self._waits = Waits()
        self._early_stop = EarlyStopListener(None, self._call_off)
        self._recorded = 0
        """How many ends were recorded, and how many of them are not on disk yet."""
        self._undurable = 0
        self._growing: SourceReader | None = None
        self._unasked = False
        """The source has not named its first trials yet."""
        self._named_at: dict[int, float] = {}
        """When a source named each trial, until it first starts."""
        self._over = False
        self._stopping = False
        self._failure: Exception | None = None
        """The error that ends the run early: the store's, or an observer's."""
        self._finished = asyncio.Event()
        self._canceled: dict[int, str] = {}
        """Trials whose running attempt is being canceled for good, and why."""
        self._measure: Measure | None = None
        self._watch: MachineWatch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._group = asyncio.TaskGroup()

    @property
    def done(self) -> int:
        """Trials whose result was written to disk since this driver started."""
        return self._counts.done

    @property
    def skipped(self) -> int:
        """Trials that were deferred on purpose."""
        return self._counts.skipped

    @property
    def left(self) -> int:
        """Trials that were neither done nor skipped."""
        counts = self._counts
        return counts.total - counts.done_in_all - counts.skipped - counts.left_out

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def standing(self) -> Standing:
        """What may run now, and what the others wait for."""
        return self._scheduler.standing(self._loop.time())

    def found_limits(self) -> dict[str, FoundLimit]:
        """By account, what the next run may start at."""
        return self._scheduler.found_limits()

    def wait_notices(self) -> tuple[RunNotice, ...]:
        """What held trials back."""
        return self._waits.notices

    def eta_s(self) -> float | None:
        """Seconds to the end; None if unknown so far."""
        return self._pace.eta_s(self._scheduler, self._loop.time())

    def heed(self, decider: Decider) -> None:
        """Stop early once the decider has decided. Call once, before `run`."""
        self._early_stop = EarlyStopListener(decider, self._call_off)

    def record_ahead(self) -> None:
        """Record starts ahead where attempts are short. Call once, before `run`."""
        self._ahead = StartsAhead(self._ledger, self._scheduler)

    def follow(self, growth: Growth) -> None:
        """Run what a source names, too. Call once, before `run`."""
        self._growing = SourceReader(growth)
        self._unasked = True

    # The nodes of a cluster. Only in the loop; before `run`, too.

    def node_joined(self, node: str, slots: int) -> None:
        """It takes trials from now on; one that is known has this many slots from now on."""
        self._tell(NodeChanged(node=node, slots=slots))
        self._handle(NodeJoined(at=self._loop.time(), node=node, slots=slots))

    def node_left(self, node: str) -> None:
        """It takes no more trials. Attempts on it end by themselves, lost or not."""
        self._tell(NodeChanged(node=node, slots=0))
        self._handle(NodeLeft(at=self._loop.time(), node=node))

    def node_measured(self, node: str, reading: MachineReading | None) -> None:
        """None: it cannot be measured. Readings of a node that has left count for nothing."""
        self._handle(MachineMeasured(at=self._loop.time(), reading=reading, node=node))

    # Changes by users. Only in the loop, and while `run` lasts.

    def cancel(self, index: int, reason: str) -> bool:
        """Skip a trial for good, and end its attempt if it is running. False: it has ended, or is
        not one of these."""
        if index not in self._trials:
            return False
        if (task := self._tasks.get(index)) is not None:
            self._canceled[index] = reason
            task.cancel()
            return True
        self._starting.pop(index, None)
        before = self._undurable
        self._handle(Canceled(at=self._loop.time(), index=index, reason=reason))
        return self._undurable > before

    def change_parallel(self, parallel: int, *, auto: bool) -> None:
        self._handle(ParallelChanged(at=self._loop.time(), parallel=parallel, auto=auto))
        self._watch_machine()

    def change_budget(self, usd: float, spent_usd: float) -> None:
        self._handle(BudgetChanged(at=self._loop.time(), usd=usd, spent_usd=spent_usd))

    async def run(self, measure: Measure | None = None) -> None:
        """Run until every trial has its result, a stop is requested, or the store fails.

        `measure` measures the machine, if the scheduler needs readings.
        """
        self._began_at = self._loop.time()
        self._measure = measure
        async with self._group:
            try:
                self._handle(Begin(at=self._began_at, called_off=self._early_stop.verdict))
                self._grow(SourceReader.begin)
                self._unasked = False
                self._finish_if_over()
                self._watch_machine()
                watching = self._group.create_task(self._watch_waits())
                await self._finished.wait()
                watching.cancel()
            except asyncio.CancelledError:
                self.end_now()
                raise
            finally:
                if self._watching is not None:
                    self._watching.cancel()
                if self._ahead is not None:
                    self._ahead.take_back()
        if self._failure is not None:
            raise self._failure

    async def _watch_waits(self) -> None:
        """Tell observers every second what holds trials back, if anything does."""
        while True:
            await asyncio.sleep(WAITS_LOOKED_AT_EVERY_S)
            held_back = self._waits.look(self._loop.time(), self.standing())
            if held_back is not None:
                self._tell(held_back)

    def _watch_machine(self) -> None:
        """Once the scheduler needs readings; until the end."""
        if not self._scheduler.wants_readings or self._watching is not None:
            return

        def measured(reading: MachineReading | None) -> None:
            self._handle(MachineMeasured(at=self._loop.time(), reading=reading))

        if self._measure is None:
            measured(None)
            return
        self._watch = MachineWatch(
            self._measure,
            on_reading=measured,
            warn=self._notices.say,
        )
        self._watching = self._group.create_task(self._watch.run())

    def stop(self, reason: str) -> None:
        """Start nothing new and give running attempts a grace period. A second call ends them
        immediately."""
        if self._stopping:
            self._notices.say("Killing everything that is still running.")
            self._performer.kill()
            self._end_running()
            return
        self._stopping = True
        if self._tasks:
            self._notices.say(
                f"{reason}: no new trials start; running ones ({len(self._tasks)}) have "
                f"{STOP_GRACE_S:g} s to finish (Ctrl-C again kills them now)."
            )
        self._loop.call_later(STOP_GRACE_S, self._end_running)
        self._handle(StopAsked(at=self._loop.time()))

    def fail(self, error: Exception) -> None:
        """The run cannot continue: let running attempts finish, and spend nothing new."""
        if self._failure is None:
            self._failure = error
            why = error.message if isinstance(error, ParavalError) else repr(error)
            self._notices.say(f"{why}; no new trials start.")
            self._stop_starting()

    def end_now(self) -> None:
        """Start nothing new, and cancel what is running."""
        self._stopping = True
        self._stop_starting()
        self._end_running()

    def _stop_starting(self) -> None:
        now = self._loop.time()
        self._handle(StopAsked(at=now))
        for index, attempt in tuple(self._starting.items()):
            del self._starting[index]
            self._ledger.take_back(attempt)
            self._handle(Abandoned(at=now, index=index))

    def _tell(self, event: Happening) -> None:
        """An exception in an observer must not break the chain of events; it ends the run
        instead."""
        try:
            self._observer(event)
        except Exception as error:  # noqa: BLE001 - may be anything, from the user's code
            self.fail(error)

    def _end_running(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _handle(self, event: Event, ended: tuple[Attempt, AttemptResult] | None = None) -> None:
        for instruction in self._scheduler.handle(event):
            match instruction:
                case StartAttempt(index=index, node=node):
                    self._start(self._trials[index], node, event.at)
                case Conclude():
                    assert ended is not None
                    attempt, result = ended
                    result = as_counted(attempt.trial.target, result)
                    then = partial(self._concluded, attempt, result)
                    self._record(attempt, result, final=True, then=then)
                case RetryLater(delay_s=delay_s):
                    assert ended is not None
                    self._record(*ended, final=False, then=lambda: None)
                    attempt, result = ended
                    self._tell(AttemptEnded(attempt=attempt, result=result, retry_in_s=delay_s))
                case Skip():
                    self._skip(instruction, ended)
                case NeedStopped():
                    self._notices.need_stopped(instruction)
                case CapacityChanged(at_once=at_once, wanted=wanted, held_by=held_by, node=node):
                    self._tell(Capacity(at_once=at_once, wanted=wanted, held_by=held_by, node=node))
                case WakeAt(at=at):
                    self._loop.call_at(at, lambda: self._handle(Tick(at=self._loop.time())))
                case Over():
                    self._over = True
        self._finish_if_over()

    def _call_off(self, verdict: str) -> None:
        self._handle(CallOff(at=self._loop.time(), reason=verdict))

    def _finish_if_over(self) -> None:
        if self._over and not self._unasked and (self._undurable == 0 or self._failure is not None):
            self._finished.set()

    @property
    def _is_ending(self) -> bool:
        return self._stopping or self._failure is not None

    # ---- trials that come during the run

    def _grow(self, ask: Callable[[SourceReader], NewTrials]) -> None:
        """Ask the source. Its exceptions end the run, like an observer's."""
        growing = self._growing
        if growing is None or self._failure is not None:
            return
        try:
            named = ask(growing)
        except Exception as error:  # noqa: BLE001 - may be anything, and must not break the chain
            self.fail(error)
            return
        self._counts.known = growing.known
        if named.trials:
            self._join(named)

    def _join(self, named: NewTrials) -> None:
        """After a stop too: trials left for a resume are recorded but not started."""
        now = self._loop.time()
        self._trials.update((trial.index, trial) for trial in named.trials)
        self._counts.total += len(named.trials)
        self._ledger.add(named.trials)
        if not named.to_run:
            return
        self._named_at.update((work.index, now) for work in named.to_run)
        self._over = False
        self._handle(Added(at=now, works=tuple(named.to_run)))

    # ---- steps of an attempt

    def _start(self, trial: Trial, node: str | None, now: float) -> None:
        index = trial.index
        state = self._state_of(trial, now)
        attempt, is_on_disk = (None, False) if self._ahead is None else self._ahead.take(index)
        is_recorded = attempt is not None
        if attempt is None:
            attempt = self._attempt_at(trial, state.attempts + 1)
        if node is not None:
            attempt = replace(attempt, node=node)
        state.attempts = attempt.number
        self._starting[index] = attempt
        if is_on_disk:
            self._launch(index)
        elif not is_recorded:
            self._ledger.record_start(attempt, time.time(), partial(self._launch, index))

    def _attempt_at(self, trial: Trial, number: int) -> Attempt:
        folder = self._ledger.attempt_folder(trial, number)
        return Attempt(trial=trial, number=number, folder=folder)

    def _next_attempt(self, index: int) -> Attempt:
        """Of a trial that waits."""
        state = self._states.get(index)
        made = self._ledger.attempts_made(index) if state is None else state.attempts
        return self._attempt_at(self._trials[index], made + 1)

    def _state_of(self, trial: Trial, now: float) -> _TrialState:
        state = self._states.get(trial.index)
        if state is None:
            ahead = None if self._ahead is None else self._ahead.number(trial.index)
            made = self._ledger.attempts_made(trial.index) if ahead is None else ahead - 1
            queued_s = now - self._named_at.pop(trial.index, self._began_at)
            state = self._states[trial.index] = _TrialState(queued_s=queued_s, attempts=made)
        return state

    def _launch(self, index: int) -> None:
        attempt = self._starting.pop(index, None)
        if attempt is None:
            return
        if self._stopping or self._failure is not None:
            self._ledger.take_back(attempt)
            self._handle(Abandoned(at=self._loop.time(), index=index))
            return
        self._untold.append((self._recorded, attempt))
        self._tell_starts()
        if self._watch is not None:
            self._watch.stir()
        task, self._free_task = self._free_task, None
        if task is None:
            task = self._group.create_task(self._attempts(attempt))
        else:
            self._next = attempt
        self._tasks[index] = task
        self._record_ahead()

    def _tell_starts(self) -> None:
        """An end is told when it is on disk; starts come after the ends before them, so that
        observers never see more running than there are slots."""
        on_disk = self._recorded - (0 if self._ahead is None else self._undurable)
        while self._untold and self._untold[0][0] <= on_disk:
            self._tell(AttemptStarted(attempt=self._untold.popleft()[1]))

    async def _attempts(self, first: Attempt) -> None:
        """Perform an attempt, and what starts in its place. In a task of its own, that would start
        only after all attempts that ended at the same moment were graded and recorded."""
        attempt: Attempt | None = first
        while attempt is not None:
            await self._attempt(attempt)
            attempt, self._next = self._next, None

    async def _attempt(self, attempt: Attempt) -> None:
        index = attempt.trial.index
        try:
            result = await self._performer.perform(attempt)
        except asyncio.CancelledError:
            del self._tasks[index]
            now, canceled = self._loop.time(), self._canceled.pop(index, None)
            if canceled is None:
                self._handle(Abandoned(at=now, index=index))
            else:
                self._handle(Canceled(at=now, index=index, reason=canceled))
            return
        del self._tasks[index]
        if self._watch is not None:
            self._watch.stir()
        self._states[index].ended.append(result)
        self._pace.observe(attempt.trial, result)
        if self._ahead is not None:
            self._ahead.observe(result.duration_s)
            self._free_task = asyncio.current_task()
        self._handle(end_of(attempt, result, self._loop.time()), (attempt, result))
        self._free_task = None
        if (canceled := self._canceled.pop(index, None)) is not None:
            # It ended by itself at the same moment: that counts, unless it would be retried.
            self.cancel(index, canceled)

    def _skip(self, skip: Skip, ended: tuple[Attempt, AttemptResult] | None) -> None:
        """Skip for a resume or for good; an inconclusive attempt that just ended is recorded
        too."""
        trial, last = self._trials[skip.index], None
        if ended is not None and ended[0].trial is trial:
            last = ended[1]
            self._record(*ended, final=False, then=lambda: None)
        state = self._state_of(trial, self._loop.time())
        if self._ahead is not None:
            self._ahead.take_back(trial.index)
        is_called_off = skip.final and skip.reason == self._early_stop.verdict
        if is_called_off:
            self._notices.called_off(skip.reason)
        number = NO_ATTEMPT if skip.final else state.attempts + 1
        attempt = Attempt(
            trial=trial, number=number, folder=self._ledger.attempt_folder(trial, number)
        )
        # A canceled trial is missing from the gate; one that was called off is not.
        failure = Failure(kind=Outcome.SKIPPED, message=skip.reason, lasting=is_called_off)
        result = AttemptResult(outcome=Outcome.SKIPPED, error=failure)
        skipped = TrialSkipped(trial=trial, reason=skip.reason, last=last)
        self._record(
            attempt,
            result,
            final=skip.final,
            then=lambda: self._skipped_now(skipped, final=skip.final),
        )

    def _skipped_now(self, skipped: TrialSkipped, *, final: bool) -> None:
        index = skipped.trial.index
        del self._states[index]
        self._performer.forget(index)
        if final:
            self._counts.left_out += 1
        else:
            self._counts.skipped += 1
        self._grow(lambda growing: growing.skipped(skipped.trial, skipped.reason))
        self._tell(skipped)

    def _record(
        self, attempt: Attempt, result: AttemptResult, *, final: bool, then: Callable[[], None]
    ) -> None:
        self._recorded += 1
        self._undurable += 1

        def durable() -> None:
            self._undurable -= 1
            then()
            self._tell_starts()
            self._record_ahead()
            self._finish_if_over()

        queued_s = self._states[attempt.trial.index].queued_s
        self._ledger.record_end(attempt, result, final=final, queued_s=queued_s, on_durable=durable)

    def _record_ahead(self) -> None:
        if self._ahead is not None and not self._is_ending:
            running = len(self._tasks) + len(self._starting)
            self._ahead.record(running, self._undurable, self._next_attempt, self._launch)

    def _concluded(self, attempt: Attempt, result: AttemptResult) -> None:
        trial = attempt.trial
        state = self._states.pop(trial.index)
        self._performer.forget(trial.index)
        self._counts.done += 1
        found = TrialResult.decided_by(
            result,
            state.ended[:-1],
            index=trial.index,
            case_id=trial.case.id,
            variant=trial.variant,
            repeat=trial.repeat,
            attempts=attempt.number,
            queued_s=state.queued_s,
        )
        if self._growing is not None:
            # Before notifying observers, so that the total is right.
            self._grow(lambda growing: growing.ended(trial, found))
        self._tell(
            TrialEnded(
                trial=trial,
                result=found,
                done=self._counts.done_in_all,
                total=self._counts.total,
                eta_s=self.eta_s(),
            )
        )
        self._early_stop.hear(trial, result.outcome)
