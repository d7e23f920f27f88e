"""Whether others leave the machine alone while something is measured on it.

A benchmark is disturbed by whoever else computes meanwhile. What of that is ours is known, down to
the CPU time of each process, and taken off. Before a round the machine is waited for, within
bounds; while blocks are measured it is only looked at, which is a read of /proc. Where a system
tells of no pressure (PSI), how busy its CPUs are is all there is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from paraval.isolation import MachineReading
from paraval.machine.reader import Load

LEAST_DISTURBING_CPUS = 0.2
DISTURBING_SHARE = 0.05
"""Others disturb when they keep busy more than a fifth of a CPU, or on a large machine, more than
this share of it: on two cores that moves a benchmark by several percent, while a desktop at rest
stays far below."""
DISTURBING_PRESSURE = 0.05
"""The share of time in which somebody waited for a CPU (PSI `some`) while nothing of ours ran."""
LOOK_S = 0.25
QUIET_LOOKS = 3
"""In a row: a machine between two bursts is not quiet."""
TOLD_AFTER_LOOKS = 8
"""Then a person is told what is waited for."""
BLUR_S = 0.03
"""Most kernels count busy time in ticks of 10 ms, and so a little past the end of a block."""
START_S = 0.001
"""What the start and end of a process of ours cost those who watch over it."""


class Reader(Protocol):
    """`machine.reader.MachineReader`, or a fake."""

    def read(self, loads: Mapping[int, Load]) -> MachineReading: ...


def others_cpus(reading: MachineReading, passed_s: float, own_cpu_s: float) -> float:
    """How many CPUs those who are not ours kept busy; of what is too short to tell, fewer."""
    if passed_s <= 0.0:
        return 0.0
    return max(0.0, reading.busy_cpus - (own_cpu_s + BLUR_S) / passed_s)


def is_disturbed(reading: MachineReading, passed_s: float, own_cpu_s: float) -> bool:
    """Whether others computed while we did."""
    most = max(LEAST_DISTURBING_CPUS, DISTURBING_SHARE * reading.cpus)
    return others_cpus(reading, passed_s, own_cpu_s) > most


def is_quiet(reading: MachineReading, passed_s: float, own_cpu_s: float) -> bool:
    """Whether a benchmark may begin; nothing of ours but the engine itself runs."""
    pressed = reading.cpu_some > DISTURBING_PRESSURE
    return not pressed and not is_disturbed(reading, passed_s, own_cpu_s)


class Quiet:
    """Looks at the machine again and again; each look tells of the time since the one before."""

    def __init__(
        self,
        reader: Reader,
        *,
        clock: Callable[[], float] = time.monotonic,
        engine_cpu_s: Callable[[], float] = time.process_time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._engine_cpu_s = engine_cpu_s
        self._sleep = sleep
        self._seen_at = clock()
        self._engine_then_s = engine_cpu_s()

    async def wait_until_quiet(
        self, limit_s: float, on_wait: Callable[[], None] = lambda: None
    ) -> bool:
        """False: it was not, in time. No time at all: nobody asked.

        `on_wait` is called once, where it takes longer than a few looks.
        """
        if limit_s <= 0.0:
            return True
        began = self._clock()
        self._look(0.0)
        quiet, looks = 0, 0
        while quiet < QUIET_LOOKS:
            if self._clock() - began >= limit_s and not quiet:
                return False
            looks += 1
            if looks == TOLD_AFTER_LOOKS:
                on_wait()
            await self._sleep(LOOK_S)
            quiet = quiet + 1 if is_quiet(*self._look(0.0)) else 0
        return True

    def begin(self) -> None:
        """From now on, for `was_disturbed`."""
        self._look(0.0)

    def was_disturbed(self, processes: int, own_cpu_s: float) -> bool:
        """Since `begin`, in which so many processes of ours took this much CPU time."""
        return is_disturbed(*self._look(own_cpu_s + processes * START_S))

    def _look(self, own_cpu_s: float) -> tuple[MachineReading, float, float]:
        reading, now, engine_s = self._reader.read({}), self._clock(), self._engine_cpu_s()
        passed_s, engine_took_s = now - self._seen_at, engine_s - self._engine_then_s
        self._seen_at, self._engine_then_s = now, engine_s
        return reading, passed_s, own_cpu_s + engine_took_s
