"""The gate on a simulated machine: sleepers, burners, hogs, other people's load, small containers.

Virtual time in steps of 10 ms, a reading every 100 ms. Cores are shared fairly, memory is taken as
each program takes it; what does not fit any more is counted as a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import AttemptLoad, Limits, MachineReading, Outcome, RetryPolicy
from paraval.schedule.messages import (
    AttemptOver,
    Begin,
    CapacityChanged,
    Event,
    MachineMeasured,
    Over,
    StartAttempt,
    Tick,
    WakeAt,
    Work,
)
from paraval.schedule.scheduler import Scheduler

STEP_S = 0.01
READ_EVERY = 10
GB = 1 << 30
MB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a trial does."""

    lasts_s: float = 0.0
    """Asleep."""
    burns_s: float = 0.0
    """CPU time that it needs, before it is over."""
    threads: float = 1.0
    holds: int = 2 * MB
    takes_s: float = 0.0
    """How long it takes to have it all ..."""
    after_s: float = 0.0
    """... and how long it waits before."""
    by_cpu: bool = False
    """True: it has as much of it as it has burnt of its CPU time."""

    def memory(self, age_s: float, burnt_s: float) -> int:
        if self.by_cpu:
            return int(self.holds * min(1.0, burnt_s / self.burns_s))
        if age_s < self.after_s:
            return min(self.holds, 2 * MB)
        share = 1.0 if self.takes_s <= 0.0 else min(1.0, (age_s - self.after_s) / self.takes_s)
        return int(self.holds * share)


@dataclass
class Running:
    program: Program
    since: float
    burnt_s: float = 0.0
    read_s: float = 0.0
    peak: int = 0


@dataclass
class Machine:
    """Runs a plan's programs, as far as it can."""

    cpus: float = 2.0
    memory: int = 24 * GB
    others_cpus: float = 0.0
    others_memory: int = 0
    pressure: Callable[[float], dict[str, float]] = lambda _: {}
    readable: bool = True
    now: float = 0.0
    running: dict[int, Running] = field(default_factory=dict)
    most: int = 0
    seen: list[int] = field(default_factory=list)
    """How many ran, at each reading."""
    news: list[CapacityChanged] = field(default_factory=list)
    least_available: int = 1 << 62
    held: list[int] = field(default_factory=list)
    busy_s: float = 0.0
    waited_s: float = 0.0

    def play(self, works: list[Work], programs: list[Program], parallel: int = 64) -> None:
        """To the end; fails where it does not come."""
        limits = Limits(parallel=parallel, auto=True)
        scheduler = Scheduler(works, limits=limits, retry=RetryPolicy(), seed=0)
        left, step, wakes, over = len(works), 0, list[float](), False

        def happen(event: Event) -> None:
            nonlocal over
            for told in scheduler.handle(event):
                match told:
                    case StartAttempt(index=index):
                        self.running[index] = Running(programs[index], self.now)
                        self.most = max(self.most, len(self.running))
                    case CapacityChanged():
                        self.news.append(told)
                    case WakeAt(at=at):
                        wakes.append(at)
                    case Over():
                        over = True
                    case _:
                        pass

        happen(Begin(at=0.0))
        while not over:
            assert step < 200_000, "it never ends"
            step += 1
            self.now = step * STEP_S
            for index in self._advance():
                peak = self.running.pop(index).peak
                left -= 1
                end = AttemptOver(
                    at=self.now, index=index, outcome=Outcome.PASSED, memory_bytes=peak
                )
                happen(end)
            for at in [at for at in wakes if at <= self.now]:
                wakes.remove(at)
                happen(Tick(at=self.now))
            if step % READ_EVERY == 0:
                happen(MachineMeasured(at=self.now, reading=self._read()))
                self.seen.append(len(self.running))
            assert self.running or not left, "work waits, and nothing runs"
            self.least_available = min(self.least_available, self._available())
            self.held.append(self._ours())
        assert left == 0

    def _advance(self) -> list[int]:
        """A step of time; who has ended in it."""
        hungry = {
            index: one.program.threads
            for index, one in self.running.items()
            if one.burnt_s < one.program.burns_s
        }
        wanted = sum(hungry.values()) + self.others_cpus
        share = min(1.0, self.cpus / wanted) if wanted else 1.0
        for index, threads in hungry.items():
            self.running[index].burnt_s += threads * share * STEP_S
        self.busy_s += min(self.cpus, wanted) * STEP_S
        self.waited_s += STEP_S if wanted > self.cpus else 0.0
        ended = []
        for index, one in self.running.items():
            age_s = self.now - one.since
            one.peak = max(one.peak, one.program.memory(age_s, one.burnt_s))
            if age_s >= one.program.lasts_s - 1e-9 and one.burnt_s >= one.program.burns_s - 1e-9:
                ended.append(index)
        return ended

    def _ours(self) -> int:
        running = self.running.values()
        return sum(one.program.memory(self.now - one.since, one.burnt_s) for one in running)

    def _available(self) -> int:
        return self.memory - self.others_memory - self._ours()

    def _read(self) -> MachineReading | None:
        passed_s = READ_EVERY * STEP_S
        loads = {}
        for index, one in self.running.items():
            burnt_s, one.read_s = one.burnt_s - one.read_s, one.burnt_s
            memory = one.program.memory(self.now - one.since, one.burnt_s)
            loads[index] = AttemptLoad(memory_bytes=memory, cpus=burnt_s / passed_s)
        reading = MachineReading(
            cpus=self.cpus,
            busy_cpus=self.busy_s / passed_s,
            memory_bytes=self.memory,
            memory_available=max(0, self._available()),
            cpu_some=self.waited_s / passed_s,
            attempts=loads,
            **self.pressure(self.now),
        )
        self.busy_s = self.waited_s = 0.0
        return reading if self.readable else None


def works_of(count: int, **facts: Any) -> list[Work]:
    return [Work(index=index)._replace(**facts) for index in range(count)]


def play(
    machine: Machine, program: Program, count: int, parallel: int = 64, **facts: Any
) -> Machine:
    machine.play(works_of(count, **facts), [program] * count, parallel)
    return machine


# ---- cores


def test_sleepers_soon_all_run_and_at_once_where_their_needs_are_known() -> None:
    machine = play(Machine(), Program(lasts_s=1.0), 40)
    assert machine.most >= 32
    assert machine.now <= 2.5
    longer = play(Machine(), Program(lasts_s=10.0), 40)
    assert longer.seen[45] == 40
    known = play(Machine(), Program(lasts_s=10.0), 40, memory_bytes=100 * MB, cores=0.0)
    assert known.seen[7] == 40


def test_burners_run_as_many_as_there_are_cores() -> None:
    machine = play(Machine(), Program(burns_s=1.0), 40)
    assert machine.most == 2
    assert machine.now <= 1.05 * 20


@pytest.mark.parametrize("cpus", [1.0, 1.5, 4.0, 16.0, 64.0])
def test_burners_use_all_cores_and_hardly_more(cpus: float) -> None:
    machine = play(Machine(cpus=cpus, memory=256 * GB), Program(burns_s=2.0), 100)
    assert machine.most <= max(1.0, cpus) + 1
    assert machine.now <= 1.1 * 200 / cpus + 1.0


def test_programs_of_many_threads_are_fewer() -> None:
    machine = play(Machine(cpus=8.0), Program(burns_s=8.0, threads=4.0), 20)
    assert max(machine.seen[10:]) <= 3


def test_what_burns_only_while_it_starts_ends_up_with_many() -> None:
    machine = play(Machine(), Program(burns_s=0.3, lasts_s=20.0), 40)
    assert machine.most >= 30


def test_others_that_want_every_core_leave_sleepers_alone_and_burners_one() -> None:
    sleepers = play(Machine(others_cpus=8.0), Program(lasts_s=2.0, burns_s=0.002), 40)
    assert sleepers.most >= 20
    burners = play(Machine(others_cpus=8.0), Program(burns_s=0.5), 10)
    assert max(burners.seen[5:]) <= 2


def test_sleepers_that_turn_to_burning_make_room_again() -> None:
    """Nothing is ended for it: no new one begins."""
    programs = [Program(lasts_s=1.0)] * 60 + [Program(burns_s=1.0)] * 60
    machine = Machine(cpus=4.0)
    machine.play(works_of(120), programs, 64)
    assert machine.seen[-20] <= 8
    assert any(told.held_by == "cpu" for told in machine.news)


def test_reserved_cores_are_not_promised_twice() -> None:
    machine = play(Machine(cpus=4.0), Program(lasts_s=1.0), 12, cpu=2.0)
    assert machine.most == 2
    more_than_there_are = play(Machine(cpus=4.0), Program(lasts_s=1.0), 3, cpu=8.0)
    assert more_than_there_are.most == 1


# ---- memory


def test_hogs_that_take_their_memory_at_once_never_pass_what_there_is() -> None:
    machine = play(Machine(), Program(holds=2 * GB, takes_s=1.0, lasts_s=8.0), 40)
    assert machine.least_available >= 0
    middle = machine.held[len(machine.held) // 4 : 3 * len(machine.held) // 4]
    usable = machine.memory - GB
    assert sum(middle) / len(middle) >= 0.8 * usable
    assert any(told.held_by == "memory" for told in machine.news)


@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.3, 0.5])
@pytest.mark.parametrize("takes_s", [0.0, 0.2, 2.0, 10.0])
def test_hogs_of_unknown_need_are_not_started_all_at_once(takes_s: float, after_s: float) -> None:
    program = Program(holds=2 * GB, takes_s=takes_s, after_s=after_s, lasts_s=15.0)
    machine = play(Machine(), program, 32)
    assert machine.least_available >= 0


@pytest.mark.parametrize("others_cpus", [0.0, 4.0, 16.0, 64.0])
@pytest.mark.parametrize("burns_s", [1.0, 5.0])
def test_hogs_that_are_slowed_down_by_others_are_not_taken_for_small_ones(
    burns_s: float, others_cpus: float
) -> None:
    program = Program(holds=2 * GB, burns_s=burns_s, by_cpu=True, lasts_s=100.0)
    machine = play(Machine(others_cpus=others_cpus), program, 24)
    assert machine.least_available >= 0


def test_what_earlier_runs_tell_is_enough_even_where_they_allocate_late() -> None:
    program = Program(holds=2 * GB, takes_s=0.1, after_s=5.0, lasts_s=8.0)
    machine = play(Machine(), program, 32, memory_bytes=int(2.2 * GB))
    assert machine.least_available >= 0
    assert machine.most >= 9


def test_a_container_of_2_gb_runs_few_at_once() -> None:
    machine = play(Machine(memory=2 * GB), Program(holds=600 * MB, takes_s=0.3, lasts_s=3.0), 10)
    assert machine.least_available >= 0
    assert machine.most >= 2


def test_one_runs_although_it_fits_nowhere() -> None:
    machine = play(Machine(memory=GB), Program(lasts_s=0.2), 3, memory_bytes=8 * GB)
    assert machine.most == 1


def test_one_that_needs_much_is_not_overtaken_for_ever() -> None:
    large = Program(lasts_s=1.0, holds=12 * GB)
    small = Program(lasts_s=3.0, holds=2 * GB)
    works = [
        Work(index=0, kind="large", memory_bytes=12 * GB, expected_s=0.5),
        *(
            Work(index=index, kind="small", memory_bytes=2 * GB, expected_s=3.0)
            for index in range(1, 200)
        ),
    ]
    order: list[int] = []

    class Watched(Machine):
        def _advance(self) -> list[int]:
            ended = super()._advance()
            order.extend(ended)
            return ended

    machine = Watched(cpus=16.0)
    machine.play(works, [large, *[small] * 199], 64)
    assert machine.least_available >= 0
    assert order.index(0) < 150


# ---- pressure


def at_times(until_s: float, **shares: float) -> Callable[[float], dict[str, float]]:
    return lambda now: shares if 0.5 <= now < until_s else {}


def test_one_blip_of_pressure_closes_nothing() -> None:
    blip = at_times(0.55, memory_full=0.5)
    machine = play(Machine(pressure=blip), Program(lasts_s=1.0), 40)
    assert machine.now <= 2.6


@pytest.mark.parametrize(
    ("shares", "held_by"),
    [
        ({"memory_full": 0.05}, "memory"),
        ({"memory_some": 0.3}, "memory"),
        ({"io_full": 0.6}, "disk"),
    ],
)
def test_lasting_pressure_closes_the_gate_and_its_end_opens_it(
    shares: dict[str, float], held_by: str
) -> None:
    machine = play(Machine(pressure=at_times(6.0, **shares)), Program(lasts_s=1.0), 100)
    assert held_by in {told.held_by for told in machine.news}
    assert max(machine.seen[25:55]) <= 1, "one always runs, and no more"
    assert max(machine.seen[65:], default=64) > 8


# ---- what an onlooker is told


def test_capacity_is_told_on_change_a_few_times_a_second() -> None:
    machine = play(Machine(), Program(holds=2 * GB, takes_s=1.0, lasts_s=8.0), 40)
    assert len(machine.news) <= 4 * machine.now
    assert all(told.at_once < told.wanted or told.held_by is None for told in machine.news)


def test_where_the_machine_cannot_be_read_a_plain_number_runs() -> None:
    machine = play(Machine(readable=False), Program(lasts_s=1.0), 40)
    assert machine.most == 4


# ---- what must hold always


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return Program(
        lasts_s=draw(st.floats(0.0, 3.0)),
        burns_s=draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])),
        threads=draw(st.sampled_from([0.5, 1.0, 4.0])),
        holds=draw(st.sampled_from([MB, 100 * MB, GB, 3 * GB])),
        takes_s=draw(st.sampled_from([0.0, 0.2, 2.0])),
        after_s=draw(st.sampled_from([0.0, 0.5])),
    )


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    shares = st.sampled_from([0.0, 0.0, 0.05, 0.5])
    told = {name: draw(shares) for name in ("memory_full", "memory_some", "io_full")}
    return Machine(
        cpus=draw(st.sampled_from([0.5, 1.0, 2.0, 8.0])),
        memory=draw(st.sampled_from([GB, 4 * GB, 16 * GB])),
        others_cpus=draw(st.sampled_from([0.0, 1.0, 16.0])),
        others_memory=draw(st.sampled_from([0, GB // 2])),
        pressure=lambda _: told,
        readable=draw(st.sampled_from([True, True, False])),
    )


@given(machines(), st.lists(programs(), max_size=12), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_a_run_always_ends_something_always_runs_and_parallel_is_the_most(
    machine: Machine, plan: list[Program], parallel: int
) -> None:
    works = [
        Work(index=index, kind=program, expected_s=program.lasts_s)
        for index, program in enumerate(plan)
    ]
    again = replace(machine, running={}, seen=[], news=[], held=[])
    machine.play(works, plan, parallel)
    assert machine.most <= parallel
    again.play(works, plan, parallel)
    assert (again.seen, again.news, again.now) == (machine.seen, machine.news, machine.now)


@given(machines(), st.lists(programs(), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_known_needs_are_never_promised_twice(machine: Machine, plan: list[Program]) -> None:
    works = [
        Work(index=index, kind=program, memory_bytes=program.holds)
        for index, program in enumerate(plan)
    ]
    machine.readable = True
    machine.play(works, plan, 12)
    largest = max(program.holds for program in plan)
    # One alone may always run, whatever it needs.
    alone = machine.memory - machine.others_memory - largest
    assert machine.least_available >= min(0, alone)
