"""Who waits for memory or the disk, by the kernel's own measure (PSI), smoothed over a second.

One short stall must not close the gate, and a gate at its threshold must not flutter: it takes two
readings to close it, and it opens again at half of what closed it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from paraval.isolation import MachineReading

SMOOTHED_OVER_S = 1.0
READINGS_TO_CLOSE = 2


@dataclass(slots=True)
class Average:
    """Of what is read again and again, the latest counting most."""

    level: float = 0.0
    over_s: float = SMOOTHED_OVER_S

    def add(self, share: float, passed_s: float) -> None:
        weight = 1.0 - math.exp(-max(0.0, passed_s) / self.over_s)
        self.level += weight * (share - self.level)


@dataclass(slots=True)
class _Valve:
    """Closes above a share of time, opens at half of it."""

    threshold: float
    average: Average = field(default_factory=Average)
    is_closed: bool = False
    _in_a_row: int = 0

    def feel(self, share: float, passed_s: float) -> None:
        self.average.add(share, passed_s)
        self._in_a_row = self._in_a_row + 1 if share > self.threshold else 0
        if self.is_closed:
            self.is_closed = self.average.level > self.threshold / 2
        else:
            stays = self._in_a_row >= READINGS_TO_CLOSE
            self.is_closed = stays and self.average.level > self.threshold


class Pressures:
    """Of the whole machine, or of the container that we are in."""

    def __init__(self) -> None:
        self._memory_full = _Valve(0.01)
        self._memory_some = _Valve(0.10)
        self._io_full = _Valve(0.20)
        self._cpu_some = Average()

    def feel(self, reading: MachineReading, passed_s: float) -> None:
        self._memory_full.feel(reading.memory_full, passed_s)
        self._memory_some.feel(reading.memory_some, passed_s)
        self._io_full.feel(reading.io_full, passed_s)
        self._cpu_some.add(reading.cpu_some, passed_s)

    @property
    def cpu_some(self) -> float:
        return self._cpu_some.level

    @property
    def closed_by(self) -> str | None:
        """What nothing new may start for; None: it is open."""
        if self._memory_full.is_closed or self._memory_some.is_closed:
            return "memory"
        return "disk" if self._io_full.is_closed else None
