"""The driver looks at the machine while a run lasts, and the run does not hang on it; nodes of a
cluster join and leave through it; short attempts do not wait for the disk."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from paraval.execute.driver import Driver
from paraval.execute.event_loop import run_in_a_loop
from paraval.execute.listeners import Waits, waits_of
from paraval.execute.pace import Pace
from paraval.records import (
    Attempt,
    AttemptLoad,
    AttemptResult,
    AttemptStarted,
    Capacity,
    Case,
    Failure,
    FunctionTarget,
    Happening,
    HeldBack,
    Limits,
    MachineReading,
    Notice,
    Outcome,
    RetryPolicy,
    RunNotice,
    Trial,
    TrialEnded,
)
from paraval.schedule.messages import RETRY, SLOT, LimitUse, Standing, Work
from paraval.schedule.scheduler import Scheduler

GB = 1 << 30
IDLE = MachineReading(cpus=2.0, busy_cpus=0.0, memory_bytes=24 * GB, memory_available=23 * GB)


class Book:
    """A ledger whose disk is quick."""

    done: Mapping[int, Outcome] = {}

    def add(self, trials: Sequence[Trial]) -> None: ...

    def record_start(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(on_durable)

    record_ahead = record_start

    def hurry(self) -> None: ...

    def take_back(self, attempt: Attempt) -> None: ...

    def record_end(
        self,
        attempt: Attempt,
        result: AttemptResult,
        *,
        final: bool,
        queued_s: float | None,
        on_durable: Callable[[], None],
    ) -> None:
        asyncio.get_running_loop().call_soon(on_durable)

    def attempts_made(self, index: int) -> int:
        return 0

    def attempt_folder(self, trial: Trial, number: int) -> str:
        return f"{trial.index}-{number}"


class Sleeping:
    """Performs attempts by waiting, and remembers how many did so at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.running: set[int] = set()
        self.most = 0

    async def perform(self, attempt: Attempt) -> AttemptResult:
        self.running.add(attempt.trial.index)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running.discard(attempt.trial.index)
        return AttemptResult(outcome=Outcome.PASSED, duration_s=self.seconds, memory_bytes=10 << 20)

    def forget(self, index: int) -> None: ...

    def kill(self) -> None: ...


def trial(index: int) -> Trial:
    target = FunctionTarget(reference="m:f", folder="/")
    case = Case(id=f"case-{index}")
    return Trial(index=index, key=str(index), case=case, variant={}, repeat=1, target=target)


class Run:
    """A run of sleeping attempts, and what was told of it."""

    def __init__(self, count: int, seconds: float, *, auto: bool = True) -> None:
        self.told: list[Happening] = []
        self.performer = Sleeping(seconds)
        self.count = count
        self.auto = auto

    async def go(self, measure: Callable[[], MachineReading] | None) -> None:
        trials = {index: trial(index) for index in range(self.count)}
        scheduler = Scheduler(
            [Work(index=index) for index in trials],
            limits=Limits(parallel=32, auto=self.auto),
            retry=RetryPolicy(),
            seed=0,
        )
        driver = Driver(
            trials,
            scheduler=scheduler,
            performer=self.performer,
            ledger=Book(),
            tell=self.told.append,
            pace=Pace(lambda _: 1.0, from_history=False),
        )
        await driver.run(measure)

    def ended(self) -> int:
        return sum(isinstance(one, TrialEnded) for one in self.told)

    def notices(self) -> list[str]:
        return [one.message for one in self.told if isinstance(one, Notice)]


def test_with_readings_of_an_idle_machine_many_run_at_once() -> None:
    run = Run(24, 0.4)
    began = time.monotonic()
    asyncio.run(run.go(lambda: IDLE))
    assert run.ended() == 24
    assert run.performer.most >= 8
    assert time.monotonic() - began < 24 * 0.4 / 2


def test_the_readings_of_each_attempt_reach_the_gate() -> None:
    """Attempts that hold 8 GB each: no third is let in."""
    run = Run(6, 0.5)

    def measure() -> MachineReading:
        running = tuple(run.performer.running)
        return MachineReading(
            cpus=8.0,
            busy_cpus=0.0,
            memory_bytes=24 * GB,
            memory_available=(23 - 8 * len(running)) * GB,
            attempts={index: AttemptLoad(memory_bytes=8 * GB, cpus=0.0) for index in running},
        )

    asyncio.run(run.go(measure))
    assert run.ended() == 6
    assert run.performer.most <= 2
    held = [one for one in run.told if isinstance(one, Capacity) and one.held_by]
    assert {one.held_by for one in held} == {"memory"}
    assert all(one.at_once < one.wanted for one in held)


def test_a_machine_that_cannot_be_measured_is_told_once_and_the_run_goes_on() -> None:
    run = Run(12, 0.15)

    def measure() -> MachineReading:
        raise PermissionError("/proc/stat")

    asyncio.run(run.go(measure))
    assert run.ended() == 12
    assert run.performer.most == 4
    assert len(run.notices()) == 1
    assert "PermissionError" in run.notices()[0]


def test_a_reading_that_hangs_holds_no_finished_run() -> None:
    run = Run(1, 0.15)
    let_go = threading.Event()

    def measure() -> MachineReading:
        let_go.wait(30)
        return IDLE

    began = time.monotonic()
    try:
        asyncio.run(run.go(measure))
    finally:
        let_go.set()
    assert run.ended() == 1
    assert time.monotonic() - began < 10


def test_auto_without_anybody_to_measure_runs_a_few_at_once() -> None:
    run = Run(8, 0.05)
    asyncio.run(run.go(None))
    assert run.ended() == 8
    assert run.performer.most == 4


def test_nobody_looks_at_the_machine_where_the_number_is_given() -> None:
    run = Run(8, 0.15, auto=False)
    asyncio.run(run.go(lambda: pytest.fail("it was looked at")))
    assert run.performer.most == 8


def test_a_cancelled_run_stops_looking() -> None:
    run = Run(8, 30.0)
    looks: list[float] = []

    def measure() -> MachineReading:
        looks.append(time.monotonic())
        return IDLE

    async def cancelled() -> None:
        task = asyncio.create_task(run.go(measure))
        await asyncio.sleep(0.25)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert not run.performer.running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancelled())
    assert 1 <= len(looks) <= 4


# ---- the nodes of a cluster


class Losing(Sleeping):
    """Performs attempts on nodes, and loses everything that runs on the first."""

    def __init__(self) -> None:
        super().__init__(0.01)
        self.attempts: list[tuple[str | None, int]] = []

    async def perform(self, attempt: Attempt) -> AttemptResult:
        self.attempts.append((attempt.node, attempt.number))
        if attempt.node == "first":
            lost = Failure(kind=Outcome.INFRA_ERROR, message="node first was lost", lost=True)
            return AttemptResult(outcome=Outcome.INFRA_ERROR, error=lost, node="first")
        return await super().perform(attempt)


def test_attempts_lost_with_their_node_are_made_again_on_another() -> None:
    told: list[Happening] = []
    performer = Losing()

    async def go() -> None:
        driver = Driver(
            {index: trial(index) for index in range(4)},
            scheduler=Scheduler(
                [Work(index=index, on_node=True) for index in range(4)],
                limits=Limits(parallel=32),
                retry=RetryPolicy(attempts=1),
                seed=0,
            ),
            performer=performer,
            ledger=Book(),
            tell=told.append,
            pace=Pace(lambda _: 1.0, from_history=False),
        )
        driver.node_joined("first", 4)
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, driver.node_left, "first")
        loop.call_later(0.1, driver.node_joined, "second", 2)
        loop.call_later(0.1, driver.node_measured, "second", IDLE)
        await driver.run()

    asyncio.run(go())
    ended = [one.result for one in told if isinstance(one, TrialEnded)]
    assert [one.outcome for one in ended] == [Outcome.PASSED] * 4
    assert [node for node, _ in performer.attempts if node != "first"] == ["second"] * 4
    assert performer.most <= 2


class SlowDisk(Book):
    """A ledger that commits what is recorded every 30 ms, and what its disk shows."""

    def __init__(self) -> None:
        self.queued: list[tuple[str, Attempt, Callable[[], None]]] = []
        self.started: set[int] = set()
        self.ended: set[int] = set()
        self.ahead = 0
        self.starts: list[Attempt] = []
        self.taken_back: list[int] = []
        self.on_ahead: Callable[[int], None] = lambda _: None

    def _queue(self, what: str, attempt: Attempt, on_durable: Callable[[], None]) -> None:
        if what == "start":
            self.starts.append(attempt)
        if not self.queued:
            asyncio.get_running_loop().call_later(0.03, self._commit)
        self.queued.append((what, attempt, on_durable))

    def _commit(self) -> None:
        durable, self.queued = self.queued, []
        for what, attempt, _ in durable:
            if what == "unused":
                self.started.discard(attempt.trial.index)
            else:
                (self.started if what == "start" else self.ended).add(attempt.trial.index)
        for _, _, on_durable in durable:
            on_durable()

    def record_start(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None:
        self._queue("start", attempt, on_durable)

    def record_ahead(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None:
        self.ahead += 1
        self._queue("start", attempt, on_durable)
        self.on_ahead(self.ahead)

    def take_back(self, attempt: Attempt) -> None:
        self.taken_back.append(attempt.trial.index)
        self._queue("unused", attempt, lambda: None)

    def record_end(
        self, attempt: Attempt, result: AttemptResult, *, on_durable: Callable[[], None], **_: Any
    ) -> None:
        self._queue("end", attempt, on_durable)


class Checking(Sleeping):
    """Sleeps, and compares with the disk whenever an attempt begins."""

    def __init__(self, seconds: float, disk: SlowDisk) -> None:
        super().__init__(seconds)
        self.disk = disk
        self.began: set[int] = set()
        self.most_exposed = 0
        self.told: set[int] = set()
        self.most_told = 0

    def hear(self, event: Happening) -> None:
        if isinstance(event, AttemptStarted):
            self.told.add(event.attempt.trial.index)
            self.most_told = max(self.most_told, len(self.told))
        elif isinstance(event, TrialEnded):
            self.told.remove(event.trial.index)

    async def perform(self, attempt: Attempt) -> AttemptResult:
        assert attempt.trial.index in self.disk.started, "it began before its start was on disk"
        self.began.add(attempt.trial.index)
        self.most_exposed = max(self.most_exposed, len(self.began - self.disk.ended))
        return await super().perform(attempt)


async def drive(count: int, seconds: float, *, stop_at: int | None = None) -> Checking:
    performer = Checking(seconds, SlowDisk())
    driver = driver_of(count, performer)
    performer.disk.on_ahead = lambda made: driver.stop("Stopped") if made == stop_at else None
    await asyncio.wait_for(driver.run(), 30)
    return performer


def driver_of(count: int, performer: Checking) -> Driver:
    driver = Driver(
        {index: trial(index) for index in range(count)},
        scheduler=Scheduler(
            [Work(index=index) for index in range(count)],
            limits=Limits(parallel=4),
            retry=RetryPolicy(),
            seed=0,
        ),
        performer=performer,
        ledger=performer.disk,
        tell=performer.hear,
        pace=Pace(lambda _: 1.0, from_history=False),
    )
    driver.record_ahead()
    return driver


def test_short_attempts_do_not_wait_for_the_disk_and_at_most_twice_as_many_are_exposed() -> None:
    began = time.monotonic()
    performer = asyncio.run(drive(120, 0.04))
    wall_s = time.monotonic() - began
    assert performer.began == performer.disk.ended == set(range(120))
    assert performer.most == performer.most_told == 4
    assert 4 < performer.most_exposed <= 8
    assert performer.disk.ahead > 80
    assert wall_s < 30 * 0.07, "each round of four waited for the disk"


def test_starts_of_long_attempts_are_taken_back_as_soon_as_they_are_known_to_be_long() -> None:
    performer = asyncio.run(drive(12, 1.1))
    disk = performer.disk
    assert performer.began == disk.started == disk.ended == set(range(12))
    assert disk.taken_back == [4, 5, 6, 7]
    assert disk.ahead == 4
    assert performer.most_exposed == 4


def test_the_first_attempts_are_presumed_short() -> None:
    began = time.monotonic()
    performer = asyncio.run(drive(8, 0.3))
    assert performer.disk.ahead == 4
    assert performer.disk.taken_back == []
    # Only the first four wait for the disk, and the last for their ends.
    assert time.monotonic() - began < 0.9


def test_a_slot_performs_its_trials_in_one_task_and_a_cancel_reaches_only_the_one_it_is_for() -> (
    None
):
    """A machine that is busy may start more tasks in one run, but not in each of three."""

    def tasks_of_a_run() -> int:
        tasks: dict[int, asyncio.Task[Any] | None] = {}
        ended: dict[int, bool] = {}
        halfway = asyncio.Event()

        class Noting(Checking):
            async def perform(self, attempt: Attempt) -> AttemptResult:
                index = attempt.trial.index
                tasks[index] = asyncio.current_task()
                ended[index] = False
                if len(tasks) == 20:
                    halfway.set()
                result = await super().perform(attempt)
                ended[index] = True
                return result

        async def run() -> None:
            performer = Noting(0.05, SlowDisk())
            driver = driver_of(40, performer)
            running = asyncio.ensure_future(driver.run())
            await halfway.wait()
            assert driver.cancel(max(tasks), "not wanted")
            await asyncio.wait_for(running, 30)

        asyncio.run(run())
        assert sum(not is_ended for is_ended in ended.values()) == 1
        assert len(ended) == 40
        return len(set(tasks.values()))

    assert any(tasks_of_a_run() < 20 for _ in range(3))


def test_a_stop_takes_back_the_starts_that_were_recorded_ahead() -> None:
    performer = asyncio.run(drive(400, 0.04, stop_at=20))
    disk = performer.disk
    assert disk.taken_back
    assert performer.began.isdisjoint(disk.taken_back)
    assert disk.started <= performer.began | set(disk.taken_back)
    assert {attempt.trial.index for attempt in disk.starts} == performer.began | set(
        disk.taken_back
    )


class Pings:
    """Sockets that always have something to read, and how often the loop read from each."""

    def __init__(self, count: int) -> None:
        self.reads: list[int] = [0] * count
        self.order: list[int] = []
        self._pairs = [socket.socketpair() for _ in range(count)]

    async def read_for(self, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        for number, (reader, writer) in enumerate(self._pairs):
            writer.send(b"x")
            loop.add_reader(reader, self._heard, number)
        for _ in range(rounds):
            await asyncio.sleep(0)
        for reader, writer in self._pairs:
            loop.remove_reader(reader)
            reader.close()
            writer.close()

    def _heard(self, number: int) -> None:
        self.reads[number] += 1
        self.order.append(number)


def test_what_one_answer_sets_off_happens_before_all_others_are_read() -> None:
    pings = Pings(64)
    run_in_a_loop(pings.read_for(3))
    assert 0 < len(pings.order) <= 3 * 8


def test_all_sockets_that_are_ready_get_their_turn() -> None:
    pings = Pings(64)
    run_in_a_loop(pings.read_for(100))
    assert min(pings.reads) >= 0.5 * max(pings.reads) > 0


def test_waits_are_told_after_five_seconds_or_at_once_where_nothing_runs() -> None:
    held = LimitUse(
        name="account:a model:mid",
        in_flight=0,
        limit=None,
        requests_per_minute=720.0,
        is_found=True,
        next_at=13.0,
    )
    waiting = {held.name: 31, SLOT: 4}
    busy = Standing(allowed=9, waiting=waiting, limits=(held,), running=2)
    waits = Waits()
    assert waits.look(0.0, busy) is None
    assert waits.look(4.0, busy) is None
    told = waits.look(10.0, busy)
    assert told is not None
    assert [wait.sentence for wait in told.waits] == [
        "model mid: 12 requests/s found (429), 31 trials wait, next in 3 s"
    ]
    # An account that knows no limit holds nothing up: its trials wait for a slot of the run.
    own = LimitUse(name="account:b", in_flight=0, limit=None)
    at_one = Standing(allowed=1, waiting={own.name: 31}, limits=(own,), running=1)
    assert not list(waits_of(at_one, 11.0))
    free = Standing(allowed=9, waiting={SLOT: 4}, limits=(held,), running=9)
    assert waits.look(12.0, free) == HeldBack(waits=())
    assert waits.look(13.0, free) is None
    resting = Standing(allowed=9, waiting={RETRY: 1}, limits=(), running=0, retry_at=20.0)
    told = waits.look(14.0, resting)
    assert told is not None
    assert [wait.sentence for wait in told.waits] == [
        "retry: before another attempt, 1 trial waits, next in 6 s"
    ]
    (notice,) = waits.notices
    assert notice == RunNotice(message="model mid: 12 requests/s found (429)", waited_s=10.0)
