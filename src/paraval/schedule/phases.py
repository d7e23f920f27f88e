"""Whose turn it is: what runs alone, or what shares the machine.

The two take turns, each for as long as something of its own can start, so that waiting for the last
of the others is paid for once. Where trials come while a run goes on, neither side may have the
machine for ever: who comes after the other side has begun to wait may go before it for a while, and
then waits for its own side's next turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from paraval.schedule.capacities import Lane

OVERTAKEN_AT_MOST_S = 10.0
"""So long latecomers go before the other side."""


class Phases:
    """Of a run: alone or shared, whichever started last."""

    def __init__(self) -> None:
        self.is_alone = False
        """True: what started last is exclusive. As long as it runs, nothing else may."""
        self._other_waits: tuple[float, int] | None = None
        """Since when the other side could start but for its turn, and how many trials had come
        by then."""

    def start(self, lane: Lane) -> None:
        if lane.exclusive is not self.is_alone:
            self.is_alone = lane.exclusive
            self._other_waits = None

    def admitted(
        self, ready: Sequence[Lane], now: float, *, come: int, is_busy: bool
    ) -> list[Lane]:
        """Those of the lanes that could start whose turn it is; `come`: how many trials there are,
        `is_busy`: whether something runs."""
        others = [lane for lane in ready if lane.exclusive is not self.is_alone]
        if not others:
            self._other_waits = None
            return list(ready)
        since, mark = self._other_waits = self._other_waits or (now, come)
        own = [lane for lane in ready if lane.exclusive is self.is_alone]
        if now - since >= OVERTAKEN_AT_MOST_S:
            own = [lane for lane in own if lane.places[0] < mark]
        if own:
            return own
        return others if self.is_alone or not is_busy else []
