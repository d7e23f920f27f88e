"""How much of its time a race has left. Pure: it is told how much went by."""

from __future__ import annotations

import math

from paraval.racing.course_entries import Entry
from paraval.racing.standings import Status
from paraval.report.wording import duration

LOOKED_AT = "it was looked at"
TESTED = "it was tested"
ITS_TURN = "its turn"
"""What the time comes before when a step was to start: of which kind, the course knows."""


class RaceTime:
    """The time limit of a race, and where it stands."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._elapsed_s = 0.0

    def advance(self, elapsed_s: float) -> None:
        """A replay hears of ends in another order: the latest counts."""
        self._elapsed_s = max(self._elapsed_s, elapsed_s)

    def run_out(self) -> None:
        """Something was to start, and it was too late."""
        self.advance(self._limit_s)

    @property
    def left_s(self) -> float:
        return self._limit_s - self._elapsed_s

    @property
    def is_up(self) -> bool:
        return self.left_s <= 0

    @property
    def why_skipped(self) -> str:
        """The words of a step that was to start and was too late."""
        return self.came_before(ITS_TURN)

    def end(self, entry: Entry, before: str) -> None:
        """There is no time left for a candidate."""
        entry.take_out(Status.SKIPPED, self.came_before(before))
        entry.is_late = True

    def came_before(self, what: str) -> str:
        """Why something was not done."""
        seconds = self._limit_s
        words = f"{seconds:g} s" if seconds < 60 else duration(seconds)
        return f"the time limit of {words} came before {what}"
