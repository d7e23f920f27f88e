"""The cgroups that this process is in, v1, v2 or both, and what they let it have.

A limit holds for all that is below it, so that every group from our own up to the topmost that can
be seen is asked. Inside a container that is the container's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Small files of the kernel's, as far as they are there and make sense.


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """A file that holds one number; None also for `max`, which is none."""
    return number(text_of(path))


def number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def table_of(path: Path) -> dict[str, int]:
    """`name number` or `name: number kB`, a line each, as they stand."""
    found: dict[str, int] = {}
    for line in (text_of(path) or "").splitlines():
        words = line.split()
        value = number(words[1]) if len(words) > 1 else None
        if value is not None:
            found[words[0].rstrip(":")] = value
    return found


UNIFIED = "unified"
"""What v2 is called here beside the names of v1's controllers."""
CONTROLLERS = ("cpu", "cpuacct", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """Where a hierarchy can be seen, and which of its groups is seen there."""

    top: Path
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuQuota:
    """So many cores' worth of time for a group, and what it used of them so far."""

    cpus: float
    used_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """So much memory for a group, and what of it is left: what it can give back is not used."""

    bytes: int
    available: int


class CgroupLimits:
    """The groups of this process, own ones first; found once, read whenever asked."""

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
        """Of a group of v1: what it used is often another hierarchy's to tell."""
        top = self._groups["cpu"][-1]
        accounting = self._groups.get("cpuacct", (top,))[-1] / group.relative_to(top)
        used_ns = number_of(accounting / "cpuacct.usage")
        return None if used_ns is None else used_ns / 1e9

    def memory_limits(self) -> Iterator[MemoryLimit]:
        for group in self._groups.get(UNIFIED, ()):
            # Past `high` it is slowed down until it is of no use: a limit as good as the other.
            told = [number_of(group / "memory.high"), number_of(group / "memory.max")]
            limit = min((one for one in told if one is not None), default=None)
            yield from _memory(group, limit, "memory.current", "inactive_file")
        for group in self._groups.get("memory", ()):
            limit = number_of(group / "memory.limit_in_bytes")
            yield from _memory(group, limit, "memory.usage_in_bytes", "total_inactive_file")

    def pressure(self, resource: str) -> str | None:
        """Of the topmost group that can be seen: the container's, or the whole machine's.

        Not of our own group alone, since what we start may be put beside it.
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


# ---- where they are


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
    """Our group and those above it, as far as they are mounted, the topmost last."""
    below = own if mount.group == "/" else own.removeprefix(mount.group)
    is_below = mount.group in ("/", own) or own.startswith(f"{mount.group}/")
    names = [name for name in below.split("/") if name] if is_below else []
    if ".." in names:
        names = []
    groups = [mount.top.joinpath(*names[:depth]) for depth in range(len(names), -1, -1)]
    return tuple(group for group in groups if group.is_dir()) or (mount.top,)
