"""How many attempts the machine can carry: by its load, its memory, pressure (PSI), and what
attempts have used so far.

It starts small, doubles while nothing is overloaded, and never ends running attempts: it only
delays new ones. Cores and memory are assigned by what similar attempts used; pressure on memory or
disk closes it for all. One attempt may always run. Pure: readings come in as events.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field

from paraval.dataclass import dataclass
from paraval.records import AttemptLoad, MachineReading
from paraval.schedule.messages import CapacityChanged, Work

# Pressure on memory and disk, as measured by the kernel (PSI), smoothed over a second.

SMOOTHED_OVER_S = 1.0
READINGS_TO_CLOSE = 2


@dataclass(slots=True)
class Average:
    """Moving average; the latest value counts most."""

    level: float = 0.0
    over_s: float = SMOOTHED_OVER_S

    def add(self, share: float, passed_s: float) -> None:
        weight = 1.0 - math.exp(-max(0.0, passed_s) / self.over_s)
        self.level += weight * (share - self.level)


@dataclass(slots=True)
class _Valve:
    """Closes above a share of time, and opens at half of it."""

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
    """Pressure on the whole machine, or on the container we are in."""

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
        """The resource that blocks new starts; None: open."""
        if self._memory_full.is_closed or self._memory_some.is_closed:
            return "memory"
        return "disk" if self._io_full.is_closed else None


# What attempts of each kind used in this run: peak memory, and cores kept busy.

OF_LATE = 50
PEAK_SHARE = 0.95
"""Quantile of the peaks that is used: one outlier must not halve a run."""
MEMORY_SMOOTHED_OVER_S = 0.5


@dataclass(slots=True)
class _UsageKind:
    peaks: deque[int] = field(default_factory=lambda: deque(maxlen=OF_LATE))
    peak_bytes: int | None = None
    cpus: float | None = None


class ObservedUsage:
    """Measured use by kind: attempts of one kind use alike."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _UsageKind] = {}

    def hold(self, kind: Hashable, peak_bytes: int) -> None:
        """Record the peak memory of an attempt that ended."""
        seen = self._kinds.setdefault(kind, _UsageKind())
        seen.peaks.append(peak_bytes)
        seen.peak_bytes = high_of(seen.peaks)

    def keep_busy(self, kind: Hashable, cpus: Sequence[float], passed_s: float) -> None:
        """Record the cores that each running attempt kept busy, and for how long."""
        seen = self._kinds.setdefault(kind, _UsageKind())
        mean = sum(cpus) / len(cpus)
        if seen.cpus is None:
            seen.cpus = mean
        else:
            seen.cpus += (1.0 - math.exp(-passed_s / MEMORY_SMOOTHED_OVER_S)) * (mean - seen.cpus)

    def peak_bytes(self, kind: Hashable) -> int | None:
        """Memory that nearly all stayed below; None: no measured attempt has ended."""
        seen = self._kinds.get(kind)
        return None if seen is None else seen.peak_bytes

    def cpus(self, kind: Hashable) -> float | None:
        """Cores that one keeps busy, recently; None: not measured."""
        seen = self._kinds.get(kind)
        return None if seen is None else seen.cpus


def high_of(peaks: Sequence[int]) -> int:
    """The value that nearly all stay at or below; for few values, the highest."""
    ordered = sorted(peaks)
    return ordered[min(len(ordered) - 1, math.ceil(PEAK_SHARE * len(ordered)) - 1)]


MEGABYTE = 1 << 20
KEPT_SHARE = 0.1
KEPT_MOST = 1024 * MEGABYTE
"""Memory kept free: a tenth, for attempts that use more than earlier ones, and for the page cache,
without which everything crawls. On larger machines 1 GB is enough; if it is not, pressure shows
it."""
UNKNOWN_LEAST = 512 * MEGABYTE
UNKNOWN_SHARE = 0.1
UNKNOWN_MOST = 2560 * MEGABYTE
PROVEN_S = 1.0
"""An attempt of unknown kind is assumed to want a tenth of the memory, or 2.5 GB, until one of its
kind has not grown for a second; less and less from then on."""
UNKNOWN_MARGIN = 1.25
AHEAD_S = 20.0
"""Memory growth is extrapolated this far: on a busy machine even 2 GB take time to fill."""
SEEN_MARGIN = 1.05
RISING_BYTES_PER_S = 64 * MEGABYTE
RISING_SHARE_PER_S = 0.01
GROWTH_MOST = 512 * MEGABYTE
RISEN_SHARE = 1.05
RISEN_BYTES = 4 * MEGABYTE
"""Smaller increases do not count as growth."""
SLACK_CPUS = 0.25
"""CPU time is measured in ticks, and some process always takes a little."""
OURS_CPUS = 0.25
"""Cores that attempts may keep busy together even if other processes want all of them: most
attempts wait for a model, and a busy machine must not delay those that cost it nothing."""
UNKNOWN_CPUS = 1.0
YOUNG_S = 0.25
"""How long an attempt takes to show its behavior."""
AT_WORK_CPUS = 0.1
CROWDED = 0.5
"""Share of time in which something waits for a core."""
CUT = 0.75
CUT_EVERY_S = 1.0
SHORTEST_S = 1e-3
ROUNDING = 1e-9
BLIND = 4
"""How many run in parallel if the machine cannot be measured."""
NEWS_EVERY_S = 0.25

CPU = "cpu"
MEMORY = "memory"
ITS_TURN = ""
"""The only reason is that the number in parallel is still growing."""


@dataclass(slots=True)
class _Occupant:
    """A running attempt."""

    work: Work
    since: float
    is_seen: bool = False
    held: int = 0
    cpus: float = 0.0
    growth: Average = field(default_factory=lambda: Average(over_s=0.5))
    """Bytes per second, recently."""
    _mark: float = 0.0
    _rose_at: float = 0.0

    def show(self, at: float, load: AttemptLoad, passed_s: float) -> None:
        more = load.memory_bytes - self.held
        # A single large increase says little about future growth.
        self.growth.add(min(GROWTH_MOST, max(0, more) / max(passed_s, SHORTEST_S)), passed_s)
        self.held = load.memory_bytes
        self.cpus = load.cpus
        self.is_seen = True
        if self.held > self._mark:
            self._mark = RISEN_SHARE * self.held + RISEN_BYTES
            self._rose_at = at

    def settled_s(self, at: float) -> float:
        """Seconds since it last grew noticeably."""
        return at - self._rose_at if self.is_seen else 0.0

    @property
    def heading_for(self) -> float:
        """Memory it will reach if it continues like this."""
        return max(UNKNOWN_MARGIN * self.held, self.held + AHEAD_S * self.growth.level)


@dataclass(slots=True)
class _KindNow:
    """The running attempts of a kind at this moment."""

    heading_for: float = 0.0
    """The highest among them."""
    growth: float = 0.0
    """The total."""
    settled_s: float = 0.0
    """The longest among them."""

    def add(self, one: _Occupant, at: float) -> None:
        self.heading_for = max(self.heading_for, one.heading_for)
        self.growth += one.growth.level
        self.settled_s = max(self.settled_s, one.settled_s(at))


class MachineGate:
    """Decides whether one more attempt may start now, and if not, why."""

    def __init__(self, parallel: int, *, node: str | None = None) -> None:
        self.parallel = parallel
        self._node = node
        self._allowance = 1
        self._was_cut = False
        self._cut_at = -math.inf
        self._is_blind = False
        self._reading: MachineReading | None = None
        self._read_at = -math.inf
        self._occupants: dict[int, _Occupant] = {}
        self._peak = 0
        """The highest number running in parallel since the last reading."""
        self._pressures = Pressures()
        self._seen = ObservedUsage()
        self._busy_cpus = 0.0
        """Cores that our attempts keep busy, by the last reading."""
        self._declared_cpus = 0.0
        """Cores that the suite reserves for what is running."""
        self._promised: int | None = 0
        """Memory that running attempts are expected to take beyond what they hold; None: to be
        summed up again."""
        self._coming_cpus = 0.0
        """Cores that will be busy but are not in the reading yet ..."""
        self._gone_cpus = 0.0
        """... and cores in the reading that are no longer busy."""
        self._now: dict[Hashable, _KindNow] = {}
        self._refused_by: str | None = None
        """Why something ready to start did not, at the last reading or since."""
        self._last_news: CapacityChanged | None = None
        self._news_at = -math.inf

    @property
    def at_once(self) -> int:
        """How many may run, as far as only their number counts."""
        return min(self._allowance, self.parallel)

    # ---- events

    def start(self, at: float, work: Work) -> None:
        self._occupants[work.index] = _Occupant(work, at)
        self._coming_cpus += self._expected_cpus(work)
        self._declared_cpus += work.cpu or 0.0
        if self._promised is not None and self._reading is not None:
            self._promised += self._reserved_bytes(work, self._reading)
        self._peak = max(self._peak, len(self._occupants))

    def end(self, index: int, memory_bytes: int | None) -> None:
        """`memory_bytes`: its peak memory; None: unknown."""
        occupant = self._occupants.pop(index)
        work = occupant.work
        self._gone_cpus += occupant.cpus if occupant.is_seen else 0.0
        self._busy_cpus -= occupant.cpus
        self._declared_cpus = self._declared_cpus - (work.cpu or 0.0) if self._occupants else 0.0
        if self._promised is not None and self._reading is not None:
            self._promised -= self._promised_bytes(occupant, self._reading)
        if memory_bytes is not None:
            before = self._seen.peak_bytes(work.kind)
            self._seen.hold(work.kind, max(memory_bytes, occupant.held))
            if self._seen.peak_bytes(work.kind) != before:
                self._promised = None

    def measure(self, at: float, reading: MachineReading | None) -> None:
        """Grow or shrink according to a reading."""
        self._refused_by = None
        self._is_blind = reading is None
        if reading is None:
            self._allowance = max(self._allowance, BLIND)
            return
        is_first = self._reading is None
        passed_s = YOUNG_S if is_first else at - self._read_at
        self._reading, self._read_at = reading, at
        self._look(at, reading, passed_s)
        self._pressures.feel(reading, passed_s)
        if is_first:
            free = int(reading.cpus - reading.busy_cpus + SLACK_CPUS)
            self._allowance = max(1, 2 * self._peak, free - 1)
        elif self._is_crowded(reading):
            self._cut(at, reading)
        elif self._peak >= self._allowance and self._pressures.closed_by is None:
            # Unused capacity is untested: don't grow.
            self._allowance = min(self.parallel, 2 * self._peak)
            self._was_cut = False
        self._peak = len(self._occupants)

    def _look(self, at: float, reading: MachineReading, passed_s: float) -> None:
        """Update what each running attempt uses, and what similar ones may be expected to use."""
        self._now = defaultdict(_KindNow)
        cpus: dict[Hashable, list[float]] = defaultdict(list)
        for index, occupant in self._occupants.items():
            load = reading.attempts.get(index)
            if load is not None:
                occupant.show(at, load, passed_s)
            kind, age_s = occupant.work.kind, at - occupant.since
            self._now[kind].add(occupant, at)
            is_new = self._seen.cpus(kind) is None
            if (occupant.is_seen and (is_new or age_s >= 0.8 * passed_s)) or (
                # An attempt without a process of its own never shows up, and keeps no core busy.
                is_new and age_s >= YOUNG_S
            ):
                cpus[kind].append(occupant.cpus)
        for kind, each in cpus.items():
            self._seen.keep_busy(kind, each, passed_s)
        self._gone_cpus = 0.0
        self._promised = None
        self._busy_cpus = sum(one.cpus for one in self._occupants.values())
        self._declared_cpus = sum(one.work.cpu or 0.0 for one in self._occupants.values())
        self._coming_cpus = sum(
            max(0.0, self._expected_cpus(one.work) - one.cpus)
            for one in self._occupants.values()
            # What the suite reserves counts as taken, used or not.
            if not one.is_seen or at - one.since < YOUNG_S or one.work.cpu is not None
        )

    # ---- the number in parallel

    def _is_crowded(self, reading: MachineReading) -> bool:
        """Whether more of our attempts want a core than there are, for longer than a start
        takes."""
        is_full = reading.busy_cpus >= reading.cpus - SLACK_CPUS
        at_work = sum(1 for one in self._occupants.values() if one.cpus > AT_WORK_CPUS)
        wait = self._pressures.cpu_some > CROWDED
        return is_full and wait and at_work > self._left_by_others(reading)

    def _cut(self, at: float, reading: MachineReading) -> None:
        """Shrink at most once per interval, since running attempts continue and the next reading
        shows the same."""
        if at - self._cut_at >= CUT_EVERY_S:
            self._cut_at, self._was_cut = at, True
            fewer = min(self._allowance, int(CUT * len(self._occupants)))
            self._allowance = max(1, int(self._left_by_others(reading)), fewer)

    def _left_by_others(self, reading: MachineReading) -> float:
        """Cores that other processes leave to us."""
        others = max(0.0, reading.busy_cpus - self._busy_cpus)
        return reading.cpus - others + SLACK_CPUS

    # ---- notifications

    def news(self, at: float, wanted: int) -> Iterator[CapacityChanged]:
        """Report changes from time to time; `wanted` would run if the machine could carry them
        all."""
        running = len(self._occupants)
        now: CapacityChanged | None = None
        if self._refused_by is not None and running < wanted:
            now = self._capacity(running, wanted, self._refused_by or None)
        if now != self._last_news and at - self._news_at >= NEWS_EVERY_S:
            self._last_news, self._news_at = now, at
            yield now or self._capacity(wanted, wanted, None)

    def _capacity(self, at_once: int, wanted: int, held_by: str | None) -> CapacityChanged:
        return CapacityChanged(at_once=at_once, wanted=wanted, held_by=held_by, node=self._node)

    # ---- admission

    def admits(self, work: Work) -> bool:
        """Whether this one may start now."""
        refusal = self._refusal(work)
        if refusal is not None:
            self._refused_by = self._refused_by or refusal
        return refusal is None

    @property
    def is_shut(self) -> bool:
        """Whether nothing may start, whatever it is, until something ends or is measured."""
        return self._refusal_of_all() is not None

    def _refusal(self, work: Work) -> str | None:
        """What keeps it from starting: memory, cpu, disk, its turn; None: nothing."""
        refusal = self._refusal_of_all()
        if refusal is not None or self._reading is None or self._is_blind or not self._occupants:
            return refusal
        if not self._has_memory(work, self._reading):
            return MEMORY
        return None if self._has_cores(work, self._reading) else CPU

    def _refusal_of_all(self) -> str | None:
        """What keeps any attempt from starting."""
        if not self._occupants:
            return None
        if self._is_blind:
            return None if len(self._occupants) < self.at_once else ITS_TURN
        if self._pressures.closed_by is not None:
            return self._pressures.closed_by
        if self._reading is None:
            return ITS_TURN
        if len(self._occupants) >= self.at_once:
            return CPU if self._was_cut else ITS_TURN
        return None

    def _has_memory(self, work: Work, reading: MachineReading) -> bool:
        is_known = work.memory_bytes is not None or self._seen.peak_bytes(work.kind) is not None
        growth = self._now[work.kind].growth if work.kind in self._now else 0.0
        # The running ones are still growing, and their peak is unknown.
        if not is_known and growth > max(
            RISING_BYTES_PER_S, RISING_SHARE_PER_S * reading.memory_bytes
        ):
            return False
        if self._promised is None:
            occupants = self._occupants.values()
            self._promised = sum(self._promised_bytes(one, reading) for one in occupants)
        left = reading.memory_available - self._promised - self._reserved_bytes(work, reading)
        return left >= min(KEPT_SHARE * reading.memory_bytes, KEPT_MOST)

    def _promised_bytes(self, one: _Occupant, reading: MachineReading) -> int:
        return max(0, self._reserved_bytes(one.work, reading) - one.held)

    def _reserved_bytes(self, work: Work, reading: MachineReading) -> int:
        """Expected peak memory of an attempt."""
        if work.memory_bytes is not None:
            return work.memory_bytes
        peak = self._seen.peak_bytes(work.kind)
        if peak is not None:
            return int(SEEN_MARGIN * peak)
        now = self._now.get(work.kind, _KindNow())
        guess = min(UNKNOWN_SHARE * reading.memory_bytes, UNKNOWN_MOST)
        unproven = guess / max(1.0, now.settled_s / PROVEN_S)
        return int(max(UNKNOWN_LEAST, now.heading_for, unproven))

    def _has_cores(self, work: Work, reading: MachineReading) -> bool:
        if work.cpu is not None:
            declared = self._declared_cpus
            return declared <= ROUNDING or declared + work.cpu <= reading.cpus + ROUNDING
        each = self._expected_cpus(work)
        spare = reading.cpus - reading.busy_cpus - self._coming_cpus + self._gone_cpus
        for_us = OURS_CPUS - self._busy_cpus - self._coming_cpus
        # Half of what it wants is enough, or else one attempt alone would occupy a core and a half.
        return each <= max(2.0 * spare, for_us)

    def _expected_cpus(self, work: Work) -> float:
        if work.cpu is not None:
            return work.cpu
        seen = self._seen.cpus(work.kind)
        if seen is not None:
            return seen
        return UNKNOWN_CPUS if work.cores is None else work.cores
