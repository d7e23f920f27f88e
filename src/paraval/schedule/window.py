"""How many requests at once an account bears, where nobody told: found by trying.

Slow start, then additive increase; one multiplicative cut in a window of time, however many
refusals come in it, since they all tell of the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 10
GROWTH = 0.05
CUT = 0.8
CUT_EVERY_S = 15.0
IN_USE = 0.8
"""A limit that was not nearly reached has not been tried: it doesn't grow."""


@dataclass(slots=True)
class Window:
    """A limit on what is in flight, between 1 and `most`."""

    most: int
    limit: int = 0
    in_flight: int = 0
    refused: bool = False
    """True: slow start is over."""
    _peak: int = 0
    _successes: int = 0
    _cut_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.limit = min(FIRST, self.most)

    def enter(self) -> None:
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1

    def succeed(self) -> None:
        """A round is clean when as many as the limit succeeded, one after the other."""
        self._successes += 1
        if self._successes < self.limit:
            return
        if self._peak >= IN_USE * self.limit:
            step = max(1, int(GROWTH * self.limit)) if self.refused else self.limit
            self.limit = min(self.most, self.limit + step)
        self._begin_round()

    def pause(self) -> None:
        """The provider has troubles of its own: no reason to do less, but none to do more."""
        self._begin_round()

    def refuse(self, now: float) -> None:
        """Cuts the limit, unless it was cut for the same reason a moment ago."""
        if now - self._cut_at >= CUT_EVERY_S:
            # While it doubled, the half is the last level that was known to be good.
            factor = CUT if self.refused else 0.5
            self.limit = max(1, int(self.limit * factor))
            self._cut_at = now
        self.refused = True
        self._begin_round()

    def _begin_round(self) -> None:
        self._successes = 0
        self._peak = self.in_flight
