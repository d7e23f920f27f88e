"""Reads the machine: how busy it is, what memory is left, who waits for what, again and again.

Rates are taken between two readings, since the kernel's own averages lag by seconds. What to make
of a reading is the scheduler's. Blocking, for less than a millisecond; not for two threads at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paraval.machine.cgroup_limits import CgroupLimits, number, table_of, text_of
from paraval.records import AttemptLoad, MachineReading

SHORTEST_S = 0.005
"""Rates over less are noise: the kernel counts CPU time in ticks of 10 ms."""
PRESSURES = (("memory", "full"), ("memory", "some"), ("cpu", "some"), ("io", "full"))


class TreeUsage(Protocol):
    """What a process tree holds and has used so far."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def cpu_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """What CPUs did so far, in any unit."""

    busy: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counters:
    """All that only grows, at one moment."""

    at: float
    cpus: Mapping[str, _Times]
    quotas_used_s: tuple[float | None, ...]
    stalled_s: Mapping[tuple[str, str], float]
    attempts_s: Mapping[int, float]


class MachineReader:
    """Each reading tells of the time since the one before; the first, since this was made."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._cgroups = CgroupLimits(root)
        self._quotas: tuple[float, ...] = ()
        self._before = self._counters({})
        cpus = min([float(max(1, len(self._before.cpus))), *self._quotas])
        memory, available = self._memory()
        # Until something is known all is taken to be busy, so that nobody builds on it.
        self._last = MachineReading(
            cpus=cpus, busy_cpus=cpus, memory_bytes=memory, memory_available=available
        )

    def read(self, loads: Mapping[int, TreeUsage]) -> MachineReading:
        """The machine now, and what each attempt takes of it; `loads` by the trial's index."""
        before, now = self._before, self._counters(loads)
        passed_s = now.at - before.at
        if passed_s < SHORTEST_S:
            return self._last
        cpus, busy = self._cores(before, now, passed_s)
        memory, available = self._memory()
        shares = {
            which: _share(now.stalled_s[which] - stalled_s, passed_s)
            for which, stalled_s in before.stalled_s.items()
            if which in now.stalled_s
        }
        self._before = now
        self._last = MachineReading(
            cpus=cpus,
            busy_cpus=busy,
            memory_bytes=memory,
            memory_available=available,
            memory_full=shares.get(("memory", "full"), 0.0),
            memory_some=shares.get(("memory", "some"), 0.0),
            cpu_some=shares.get(("cpu", "some"), 0.0),
            io_full=shares.get(("io", "full"), 0.0),
            attempts={
                index: AttemptLoad(
                    memory_bytes=load.memory_bytes,
                    cpus=_used(before.attempts_s.get(index, 0.0), load.cpu_s) / passed_s,
                )
                for index, load in loads.items()
            },
        )
        return self._last

    def _counters(self, loads: Mapping[int, TreeUsage]) -> _Counters:
        quotas = list(self._cgroups.cpu_quotas())
        self._quotas = tuple(quota.cpus for quota in quotas)
        return _Counters(
            at=self._clock(),
            cpus=_cpu_times(self._root),
            quotas_used_s=tuple(quota.used_s for quota in quotas),
            stalled_s=dict(self._stalled()),
            attempts_s={index: load.cpu_s for index, load in loads.items()},
        )

    # ---- cores

    def _cores(self, before: _Counters, now: _Counters, passed_s: float) -> tuple[float, float]:
        """Cores that may be used, and those in use: of several limits, by the one that leaves the
        least."""
        cpus = min([float(max(1, len(now.cpus))), *self._quotas])
        room = float(len(now.cpus))
        for name, times in now.cpus.items():
            room -= _busy_share(before.cpus.get(name), times)
        used = zip(self._quotas, before.quotas_used_s, now.quotas_used_s, strict=False)
        for quota, used_before, used_now in used:
            if used_before is not None and used_now is not None:
                room = min(room, quota - _used(used_before, used_now) / passed_s)
        return cpus, min(cpus, max(0.0, cpus - room))

    # ---- memory

    def _memory(self) -> tuple[int, int]:
        """In all, and what is left of it."""
        memory, available = _system_memory(self._root)
        for limit in self._cgroups.memory_limits():
            # Where there is no limit, v1 tells one that no machine has.
            memory = min(memory, limit.bytes)
            available = min(available, limit.available)
        return memory, available

    # ---- pressure

    def _stalled(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Seconds in which some, or all, waited for something so far."""
        for resource in ("cpu", "memory", "io"):
            text = self._cgroups.pressure(resource)
            if text is None:
                text = text_of(self._root / f"proc/pressure/{resource}") or ""
            for line in text.splitlines():
                kind, *words = line.split() or [""]
                total = next((w[6:] for w in words if w.startswith("total=")), None)
                stalled_us = number(total)
                if (resource, kind) in PRESSURES and stalled_us is not None:
                    yield (resource, kind), stalled_us / 1e6


def _share(part_s: float, whole_s: float) -> float:
    return min(1.0, max(0.0, part_s / whole_s))


def _used(before_s: float, now_s: float) -> float:
    """A counter that fell began anew: another attempt at the trial, a cgroup made again."""
    return now_s - before_s if now_s >= before_s else now_s


# ---- cores


def _cpu_times(root: Path) -> Mapping[str, _Times]:
    """Of the CPUs that this process may run on."""
    told = text_of(root / "proc/stat") or ""
    lines = (line.split() for line in told.splitlines() if line.startswith("cpu"))
    every = {words[0][3:]: _times(words[1:]) for words in lines if len(words[0]) > 3}
    known = {name: times for name, times in every.items() if times is not None}
    if not known:
        return _cpu_times_by_psutil()
    allowed = _allowed(root)
    return {name: times for name, times in known.items() if name in allowed} or known


def _times(columns: list[str]) -> _Times | None:
    """From `user nice system idle iowait irq softirq steal ...`; guests are in user."""
    ticks = [number(column) for column in columns[:8]]
    known = [tick for tick in ticks if tick is not None]
    if len(ticks) < 5 or len(known) < len(ticks):
        return None
    return _Times(busy=sum(known) - known[3] - known[4], total=sum(known))


def _allowed(root: Path) -> set[str]:
    """The CPUs of `Cpus_allowed_list: 0-3,6`; a cpuset's limits are in it."""
    found: set[str] = set()
    for line in (text_of(root / "proc/self/status") or "").splitlines():
        if not line.startswith("Cpus_allowed_list:"):
            continue
        for part in line.partition(":")[2].strip().split(","):
            first, _, last = part.partition("-")
            begin, end = number(first), number(last or first)
            if begin is not None and end is not None and 0 <= end - begin < 1 << 16:
                found.update(str(cpu) for cpu in range(begin, end + 1))
    return found


def _busy_share(before: _Times | None, now: _Times) -> float:
    """A CPU that nothing is known of yet is taken to be busy."""
    passed = 0.0 if before is None else now.total - before.total
    return 1.0 if before is None or passed <= 0.0 else _share(now.busy - before.busy, passed)


def _cpu_times_by_psutil() -> Mapping[str, _Times]:
    import psutil  # noqa: PLC0415 - Linux, which is first, does without it

    return {
        str(place): _Times(
            busy=times.user + times.system + getattr(times, "nice", 0.0),
            total=times.user + times.system + getattr(times, "nice", 0.0) + times.idle,
        )
        for place, times in enumerate(psutil.cpu_times(percpu=True))
    }


# ---- memory


def _system_memory(root: Path) -> tuple[int, int]:
    told = table_of(root / "proc/meminfo")
    if "MemTotal" not in told:
        return _memory_by_psutil()
    # Kernels in sandboxes may not tell what is available: what is free is the least that is.
    available = told.get("MemAvailable", told.get("MemFree", 0) + told.get("Cached", 0))
    return told["MemTotal"] * 1024, available * 1024


def _memory_by_psutil() -> tuple[int, int]:
    import psutil  # noqa: PLC0415 - Linux, which is first, does without it

    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available)
