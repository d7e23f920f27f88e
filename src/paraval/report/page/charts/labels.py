"""Room for labels: each beside its point, where it covers neither a point nor another label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_LINE = 14
"""The height of a line of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    @staticmethod
    def around(x: float, y: float, radius: float) -> Box:
        return Box(left=x - radius, top=y - radius, right=x + radius, bottom=y + radius)

    def meets(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not beside and self.top < other.bottom and other.top < self.bottom

    def holds(self, other: Box) -> bool:
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


class Spot(NamedTuple):
    """Where a text begins (or has its middle, or ends), on its base line."""

    x: float
    y: float
    anchor: str


class Labels:
    """What is taken of a drawing so far."""

    def __init__(self, room: Box) -> None:
        self._room = room
        self._taken: list[Box] = []

    def take(self, box: Box) -> None:
        self._taken.append(box)

    def put(self, x: float, y: float, width: float, away: float) -> Spot | None:
        """Beside a point, the first of eight places that is free; None: there is none."""
        for spot in _spots(x, y, away):
            start = {"start": 0.0, "middle": width / 2, "end": width}[spot.anchor]
            left = spot.x - start
            box = Box(left=left, right=left + width, top=spot.y - _LINE + 3, bottom=spot.y + 3)
            if self._room.holds(box) and not any(box.meets(other) for other in self._taken):
                self.take(box)
                return spot
        return None


def _spots(x: float, y: float, away: float) -> tuple[Spot, ...]:
    # A text reaches 3 below its base line and 11 above it.
    above, below = y - away - 1, y + away + 9
    return (
        Spot(x + away, y + 4, "start"),
        Spot(x - away, y + 4, "end"),
        Spot(x, above, "middle"),
        Spot(x, below, "middle"),
        Spot(x + away / 2, above, "start"),
        Spot(x + away / 2, below, "start"),
        Spot(x - away / 2, above, "end"),
        Spot(x - away / 2, below, "end"),
    )
