"""What attempts of a kind were seen to take in this run: the most memory, the cores at work."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

OF_LATE = 50
PEAK_SHARE = 0.95
"""Of the peaks so many are at most what is told: one freak must not halve a run."""
SMOOTHED_OVER_S = 0.5


@dataclass(slots=True)
class _Kind:
    peaks: deque[int] = field(default_factory=lambda: deque(maxlen=OF_LATE))
    peak_bytes: int | None = None
    cpus: float | None = None


class Seen:
    """By kind: attempts of one kind use alike."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}

    def hold(self, kind: Hashable, peak_bytes: int) -> None:
        """One ended that held so much at most."""
        seen = self._kinds.setdefault(kind, _Kind())
        seen.peaks.append(peak_bytes)
        seen.peak_bytes = high_of(seen.peaks)

    def keep_busy(self, kind: Hashable, cpus: Sequence[float], passed_s: float) -> None:
        """Running ones kept so many cores busy each, for so long."""
        seen = self._kinds.setdefault(kind, _Kind())
        mean = sum(cpus) / len(cpus)
        if seen.cpus is None:
            seen.cpus = mean
        else:
            seen.cpus += (1.0 - math.exp(-passed_s / SMOOTHED_OVER_S)) * (mean - seen.cpus)

    def peak_bytes(self, kind: Hashable) -> int | None:
        """What nearly all held at most; None: none has ended that was measured."""
        seen = self._kinds.get(kind)
        return None if seen is None else seen.peak_bytes

    def cpus(self, kind: Hashable) -> float | None:
        """Cores that one keeps busy, of late; None: none was seen."""
        seen = self._kinds.get(kind)
        return None if seen is None else seen.cpus


def high_of(peaks: Sequence[int]) -> int:
    """The value that nearly all stay at or below; of few, the highest."""
    ordered = sorted(peaks)
    return ordered[min(len(ordered) - 1, math.ceil(PEAK_SHARE * len(ordered)) - 1)]
