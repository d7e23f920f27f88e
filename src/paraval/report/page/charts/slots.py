"""Who ran where and when: slots for attempts, and a clock that leaves out long pauses. Pure."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from paraval.report.page.charts.data import Span

_LONG_PAUSE = 0.1
"""A pause in which nobody worked is cut out from this share of the working time on ..."""
_MOST_PAUSES = 8
"""... but no more than so many, the longest."""
_SHORTEST_PAUSE_S = 5.0
_CUT_WIDTH = 0.02
"""Of the working time: what a pause that was cut out still takes of the axis."""
_CLOCK_STEP_S = 1e-6
"""An attempt that begins where another ended takes its slot, as far as clocks can tell."""


def in_order(spans: Sequence[Span]) -> list[Span]:
    """Those with sensible times, by their start."""
    sensible = (
        span
        for span in spans
        if math.isfinite(span.start_s) and math.isfinite(span.end_s) and span.end_s >= span.start_s
    )
    return sorted(sensible, key=lambda span: (span.start_s, span.end_s))


def slots_of(spans: Sequence[Span]) -> list[int]:
    """A slot for each span, which come by their start: the lowest that is free then."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    slots = []
    for span in spans:
        while busy and busy[0][0] <= span.start_s + _CLOCK_STEP_S:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (span.end_s, slot))
        slots.append(slot)
    return slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time without long pauses."""

    start_s: float
    end_s: float
    place: float
    """Where it begins on the axis, from 0 to 1."""


class WorkClock:
    """From seconds to places between 0 and 1, long pauses cut out."""

    def __init__(self, spans: Sequence[Span]) -> None:
        worked = _merged(spans)
        pauses = _long_pauses(worked)
        edges = [worked[0][0], *(edge for pause in pauses for edge in pause), worked[-1][1]]
        pieces = list(zip(edges[::2], edges[1::2], strict=True))
        self.pauses_s = [end - start for start, end in pauses]
        self.shown_s = math.fsum(end - start for start, end in pieces)
        gap = _CUT_WIDTH * self.shown_s
        self._whole = (self.shown_s + gap * len(pauses)) or 1.0
        before = 0.0
        self.stretches: list[Stretch] = []
        for start, end in pieces:
            place = before / self._whole
            self.stretches.append(Stretch(start_s=start, end_s=end, place=place))
            before += end - start + gap
        self.cut = gap / self._whole
        """How wide a pause that was cut out is."""
        self._starts = [start for start, _ in pieces]

    def place(self, seconds: float) -> float:
        index = max(bisect_right(self._starts, seconds) - 1, 0)
        stretch = self.stretches[index]
        within = min(max(seconds, stretch.start_s), stretch.end_s) - stretch.start_s
        return stretch.place + within / self._whole

    def cuts(self) -> list[float]:
        """The middle of each pause that was cut out."""
        return [after.place - self.cut / 2 for after in self.stretches[1:]]


def _merged(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """The times in which anybody worked."""
    merged: list[tuple[float, float]] = []
    for span in spans:
        if merged and span.start_s <= merged[-1][1]:
            start, end = merged[-1]
            merged[-1] = (start, max(end, span.end_s))
        else:
            merged.append((span.start_s, span.end_s))
    return merged


def _long_pauses(worked: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    busy = math.fsum(end - start for start, end in worked)
    least = max(_LONG_PAUSE * busy, _SHORTEST_PAUSE_S)
    pauses = [(end, start) for (_, end), (start, _) in pairwise(worked) if start - end > least]
    return sorted(sorted(pauses, key=lambda pause: pause[0] - pause[1])[:_MOST_PAUSES])


def share_in_use(spans: Sequence[Span], clock: WorkClock, slots: int, bins: int) -> list[float]:
    """The share of slots that were in use, in each bin of the axis."""
    used = [0.0] * bins
    steps = [0.0] * (bins + 1)
    for span in spans:
        start, end = clock.place(span.start_s) * bins, clock.place(span.end_s) * bins
        first, last = min(int(start), bins - 1), min(int(end), bins - 1)
        if first == last:
            used[first] += end - start
            continue
        used[first] += first + 1 - start
        used[last] += end - last
        steps[first + 1] += 1
        steps[last] -= 1
    running = 0.0
    for index in range(bins):
        running += steps[index]
        used[index] = min((used[index] + running) / max(slots, 1), 1.0)
    return used


def last_busy(spans: Sequence[Span], more_than: int) -> float | None:
    """The last moment at which more than so many were at work; None: they never were."""
    changes = [(span.start_s, 1) for span in spans] + [(span.end_s, -1) for span in spans]
    # At one moment ends come first: what begins then takes the place of what ended.
    changes.sort()
    at_work, last = 0, None
    for moment, change in changes:
        if at_work > more_than:
            last = moment
        at_work += change
    return last
