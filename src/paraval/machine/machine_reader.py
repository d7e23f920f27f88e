"""Measures the machine: CPU load, free memory, pressure.

Rates are computed between two readings, since the kernel's own averages lag by seconds. The
scheduler interprets the readings. Blocking, for less than a millisecond; not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from paraval.dataclass import dataclass
from paraval.records import AttemptLoad, MachineReading

# The cgroups of this process, v1, v2 or both, and their limits.

# Small kernel files, if they exist and are valid.


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """A file that contains one number; None also for `max`, which means no limit."""
    return number(text_of(path))


def number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def table_of(path: Path) -> dict[str, int]:
    """`name number` or `name: number kB` lines, with the numbers as written."""
    found: dict[str, int] = {}
    for line in (text_of(path) or "").splitlines():
        words = line.split()
        value = number(words[1]) if len(words) > 1 else None
        if value is not None:
            found[words[0].rstrip(":")] = value
    return found


UNIFIED = "unified"
"""The name for v2 here, next to the names of v1's controllers."""
CONTROLLERS = ("cpu", "cpuacct", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """Where a hierarchy is mounted, and which of its groups is visible there."""

    top: Path
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuQuota:
    """A group's CPU limit in cores, and the CPU time used so far."""

    cpus: float
    used_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """A group's memory limit, and how much of it is left: reclaimable memory does not count as
    used."""

    bytes: int
    available: int


class CgroupLimits:
    """The groups of this process, innermost first; found once, read on every call."""

    def __init__(self, root: Path) -> None:
        own = _own_groups(root)
        self._groups = {
            name: _visible(mount, own[name]) for name, mount in _mounts(root).items() if name in own
        }

    def cpu_quotas(self) -> Iterator[CpuQuota]:
        for group in self._groups.get(UNIFIED, ()):
            words = (text_of(group / "cpu.max") or "").split()
            if len(words) == 2:
                used_us = table_of(group / "cpu.stat").get("usage_usec")
                used_s = None if used_us is None else used_us / 1e6
                yield from _quota(number(words[0]), number(words[1]), used_s)
        for group in self._groups.get("cpu", ()):
            quota = number_of(group / "cpu.cfs_quota_us")
            yield from _quota(quota, number_of(group / "cpu.cfs_period_us"), self._used_s(group))

    def _used_s(self, group: Path) -> float | None:
        """For a v1 group: usage is often found in another hierarchy."""
        top = self._groups["cpu"][-1]
        accounting = self._groups.get("cpuacct", (top,))[-1] / group.relative_to(top)
        used_ns = number_of(accounting / "cpuacct.usage")
        return None if used_ns is None else used_ns / 1e9

    def memory_limits(self) -> Iterator[MemoryLimit]:
        for group in self._groups.get(UNIFIED, ()):
            # Above `high` it is slowed down until it is useless, so this is as much a limit as the
            # other.
            limits = [number_of(group / "memory.high"), number_of(group / "memory.max")]
            limit = min((one for one in limits if one is not None), default=None)
            yield from _memory(group, limit, "memory.current", "inactive_file")
        for group in self._groups.get("memory", ()):
            limit = number_of(group / "memory.limit_in_bytes")
            yield from _memory(group, limit, "memory.usage_in_bytes", "total_inactive_file")

    def pressure(self, resource: str) -> str | None:
        """Pressure on the topmost visible group: the container's, or the whole machine's.

        Not on our own group, since the processes we start may be placed next to it.
        """
        for group in reversed(self._groups.get(UNIFIED, ())):
            text = text_of(group / f"{resource}.pressure")
            if text:
                return text
        return None


def _quota(quota: int | None, period: int | None, used_s: float | None) -> Iterator[CpuQuota]:
    if quota is not None and period is not None and quota > 0 and period > 0:
        yield CpuQuota(cpus=quota / period, used_s=used_s)


def _memory(group: Path, limit: int | None, usage: str, reclaimable: str) -> Iterator[MemoryLimit]:
    used = number_of(group / usage)
    if limit is None or limit <= 0 or used is None:
        return
    kept = used - table_of(group / "memory.stat").get(reclaimable, 0)
    yield MemoryLimit(bytes=limit, available=max(0, limit - max(0, kept)))


# ---- finding the groups


def _own_groups(root: Path) -> dict[str, str]:
    """Hierarchy -> our group in it."""
    groups: dict[str, str] = {}
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        names = parts[1].split(",") if parts[1] else [UNIFIED]
        groups.update(dict.fromkeys(names, parts[2]))
    return groups


def _mounts(root: Path) -> dict[str, _Mount]:
    """Hierarchy -> where it is mounted."""
    mounts: dict[str, _Mount] = {}
    for line in (text_of(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        words, kind = before.split(), after.split()
        if len(words) < 5 or len(kind) < 3:
            continue
        mount = _Mount(top=root / words[4].lstrip("/"), group=words[3])
        if kind[0] == "cgroup2":
            mounts.setdefault(UNIFIED, mount)
        elif kind[0] == "cgroup":
            for name in set(kind[2].split(",")) & set(CONTROLLERS):
                mounts.setdefault(name, mount)
    return mounts


def _visible(mount: _Mount, own: str) -> tuple[Path, ...]:
    """Our group and those above it, as far as they are mounted, topmost last."""
    below = own if mount.group == "/" else own.removeprefix(mount.group)
    is_below = mount.group in ("/", own) or own.startswith(f"{mount.group}/")
    names = [name for name in below.split("/") if name] if is_below else []
    if ".." in names:
        names = []
    groups = [mount.top.joinpath(*names[:depth]) for depth in range(len(names), -1, -1)]
    return tuple(group for group in groups if group.is_dir()) or (mount.top,)


SHORTEST_S = 0.005
"""Rates over shorter periods are noise: the kernel counts CPU time in ticks of 10 ms."""
PRESSURES = (("memory", "full"), ("memory", "some"), ("cpu", "some"), ("io", "full"))


class TreeUsage(Protocol):
    """Memory of a process tree, and the CPU time it has used."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def cpu_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """CPU times so far, in any unit."""

    busy: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counters:
    """All counters, at one moment."""

    at: float
    cpus: Mapping[str, _Times]
    quotas_used_s: tuple[float | None, ...]
    stalled_s: Mapping[tuple[str, str], float]
    attempts_s: Mapping[int, float]


class MachineReader:
    """Each reading covers the time since the last one; the first, since this was created."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._cgroups = CgroupLimits(root)
        self._quotas: tuple[float, ...] = ()
        self._before = self._counters({})
        cpus = min([float(max(1, len(self._before.cpus))), *self._quotas])
        memory, available = self._memory()
        # Until measured, everything counts as busy, so that nothing relies on it.
        self._last = MachineReading(
            cpus=cpus, busy_cpus=cpus, memory_bytes=memory, memory_available=available
        )

    def read(self, loads: Mapping[int, TreeUsage]) -> MachineReading:
        """Read the machine, and what each attempt uses; `loads` by the trial's index."""
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
        """Usable cores and busy cores, by the limit that leaves the fewest."""
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
        """Total, and how much of it is left."""
        memory, available = _system_memory(self._root)
        for limit in self._cgroups.memory_limits():
            # Without a limit, v1 reports one that no machine has.
            memory = min(memory, limit.bytes)
            available = min(available, limit.available)
        return memory, available

    # ---- pressure

    def _stalled(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Seconds so far in which some, or all, tasks waited for a resource."""
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
    """A counter that decreased was restarted: another attempt at the trial, a recreated cgroup."""
    return now_s - before_s if now_s >= before_s else now_s


# ---- cores


def _cpu_times(root: Path) -> Mapping[str, _Times]:
    """Times of the CPUs that this process may run on."""
    stat = text_of(root / "proc/stat") or ""
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    every = {words[0][3:]: _times(words[1:]) for words in lines if len(words[0]) > 3}
    known = {name: times for name, times in every.items() if times is not None}
    if not known:
        return _cpu_times_by_psutil()
    allowed = _allowed(root)
    return {name: times for name, times in known.items() if name in allowed} or known


def _times(columns: list[str]) -> _Times | None:
    """From `user nice system idle iowait irq softirq steal ...`; user includes guests."""
    ticks = [number(column) for column in columns[:8]]
    known = [tick for tick in ticks if tick is not None]
    if len(ticks) < 5 or len(known) < len(ticks):
        return None
    return _Times(busy=sum(known) - known[3] - known[4], total=sum(known))


def _allowed(root: Path) -> set[str]:
    """The CPUs in `Cpus_allowed_list: 0-3,6`, which includes a cpuset's limits."""
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
    """A CPU without data counts as busy."""
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
    meminfo = table_of(root / "proc/meminfo")
    if "MemTotal" not in meminfo:
        return _memory_by_psutil()
    # Sandboxed kernels may not report available memory: free memory is a lower bound.
    available = meminfo.get("MemAvailable", meminfo.get("MemFree", 0) + meminfo.get("Cached", 0))
    return meminfo["MemTotal"] * 1024, available * 1024


def _memory_by_psutil() -> tuple[int, int]:
    import psutil  # noqa: PLC0415 - Linux, which is first, does without it

    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available)
