"""When a machine counts as quiet, in virtual time; once, the real one is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from paraval.machine.machine_reader import MachineReader, TreeUsage
from paraval.racing.speed.measurer import (
    LEAST_DISTURBING_CPUS,
    LOOK_S,
    QUIET_LOOKS,
    QuietMachine,
    is_disturbed,
    is_quiet,
    others_cpus,
)
from paraval.records import MachineReading


def reading(busy_cpus: float, *, cpus: float = 2.0, cpu_some: float = 0.0) -> MachineReading:
    return MachineReading(
        cpus=cpus, busy_cpus=busy_cpus, memory_bytes=1, memory_available=1, cpu_some=cpu_some
    )


class Machine:
    """What it reads from second to second, and its clock."""

    def __init__(self, *readings: MachineReading) -> None:
        self.now = 100.0
        self.readings = list(readings)
        self.engine_s = 0.0

    def read(self, loads: Mapping[int, TreeUsage]) -> MachineReading:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def quiet(self) -> QuietMachine:
        return QuietMachine(
            self,
            clock=lambda: self.now,
            engine_cpu_s=lambda: self.engine_s,
            sleep=self.sleep,
        )

    def wait(self, limit_s: float) -> tuple[bool, float]:
        """Whether it became quiet, and how long that took."""
        began = self.now
        return asyncio.run(self.quiet().wait_until_quiet(limit_s)), self.now - began


CALM, LOUD = reading(0.05), reading(1.0)


def test_a_quiet_machine_is_recognized_without_a_longer_wait() -> None:
    is_quiet_now, waited_s = Machine(CALM).wait(30.0)
    assert is_quiet_now
    assert waited_s == pytest.approx(QUIET_LOOKS * LOOK_S)


def test_a_machine_that_becomes_quiet_is_waited_for() -> None:
    machine = Machine(*[LOUD] * 20, CALM)
    is_quiet_now, waited_s = machine.wait(30.0)
    assert is_quiet_now
    assert 4.0 < waited_s < 7.0


def test_a_moment_between_two_bursts_is_not_quiet() -> None:
    machine = Machine(LOUD, CALM, CALM, LOUD, CALM, CALM, LOUD, CALM, CALM, CALM)
    is_quiet_now, waited_s = machine.wait(30.0)
    assert is_quiet_now
    assert waited_s == pytest.approx(9 * LOOK_S)


def test_the_wait_for_a_busy_machine_ends_in_time() -> None:
    is_quiet_now, waited_s = Machine(LOUD).wait(3.0)
    assert not is_quiet_now
    assert waited_s == pytest.approx(3.0, abs=LOOK_S)


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.floats(0.0, 20.0))
def test_the_wait_is_bounded_whatever_the_machine_does(loud: list[bool], limit_s: float) -> None:
    machine = Machine(*(LOUD if one else CALM for one in loud))
    assert machine.wait(limit_s)[1] <= limit_s + (QUIET_LOOKS + 1) * LOOK_S


def test_a_wait_of_zero_seconds_is_no_wait_and_counts_as_quiet() -> None:
    assert Machine(LOUD).wait(0.0) == (True, 0.0)


def test_a_machine_under_pressure_is_not_quiet() -> None:
    """On many CPUs a few that wait for one another are seen by nothing else."""
    assert is_quiet(reading(0.0, cpu_some=0.01), 1.0, 0.0)
    assert not is_quiet(reading(0.0, cpu_some=0.2), 1.0, 0.0)


def test_our_own_processes_do_not_disturb() -> None:
    assert not is_disturbed(reading(1.0), 2.0, own_cpu_s=2.0)
    assert is_disturbed(reading(1.5), 2.0, own_cpu_s=2.0)


def test_pressure_by_our_own_threads_does_not_disturb() -> None:
    assert not is_disturbed(reading(1.0, cpu_some=0.9), 2.0, own_cpu_s=2.0)


def test_other_processes_may_take_more_of_a_large_machine() -> None:
    assert is_disturbed(reading(1.0, cpus=4.0), 10.0, 0.0)
    assert not is_disturbed(reading(1.0, cpus=64.0), 10.0, 0.0)


def test_a_very_short_block_is_not_called_disturbed() -> None:
    assert not is_disturbed(reading(1.0), 0.08, own_cpu_s=0.04)


@given(st.floats(0.0, 8.0), st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_other_processes_never_take_less_than_nothing(
    busy: float, passed: float, own: float
) -> None:
    assert 0.0 <= others_cpus(reading(busy, cpus=8.0), passed, own) <= busy


def test_a_block_is_judged_by_the_time_since_it_began() -> None:
    machine = Machine(LOUD, LOUD, CALM, LOUD)
    quiet = machine.quiet()
    machine.now += 5.0
    quiet.begin()
    machine.now += 2.0
    assert quiet.was_disturbed(4, own_cpu_s=0.1)
    machine.now += 2.0
    assert not quiet.was_disturbed(4, own_cpu_s=0.0)
    machine.now += 2.0
    machine.engine_s += 2.0
    assert not quiet.was_disturbed(4, own_cpu_s=0.0), "the engine's own time is ours"


def test_the_real_machine_can_be_read() -> None:
    async def look() -> bool:
        quiet = QuietMachine(MachineReader())
        quiet.begin()
        await asyncio.sleep(0.02)
        return quiet.was_disturbed(0, own_cpu_s=0.0)

    assert asyncio.run(look()) in (True, False)
    assert LEAST_DISTURBING_CPUS > 0
