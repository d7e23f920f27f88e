"""From values to places between two edges, and the round values to write at an axis."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paraval.report.wording import duration

_ROUND_TIMES = (
    *(digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5)),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18000.0),
    *(digit * 36_000.0 * 10**power for power in range(6) for digit in (1, 2, 5)),
)
_ROUNDEST_TIMES = (
    *(10.0**power for power in range(-6, 2)),
    *(60.0, 600.0, 3600.0),
    *(36_000.0 * 10**power for power in range(6)),
)
_ROUND_NUMBERS = tuple(digit * 10.0**power for power in range(-9, 10) for digit in (1, 2, 5))
_ROUNDEST_NUMBERS = tuple(10.0**power for power in range(-9, 10))
_LOG_BEYOND = 10
"""Where the largest value is more than so many times the smallest, the axis is logarithmic."""
_SMALLEST_SHARE = 1e-9
"""Of the largest value: what is below it, 0 too, stands at the left edge of a logarithmic axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The values at both edges."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 to 1; what lies outside stands at the edge."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def scale_of(values: Iterable[float], *, always_log: bool = False) -> Scale:
    """A scale that shows all values: from 0, or logarithmic where they lie far apart."""
    known = [value for value in values if math.isfinite(value) and value >= 0]
    high = max(known, default=0.0) or 1.0
    low = min((value for value in known if value > high * _SMALLEST_SHARE), default=high)
    if always_log or high > low * _LOG_BEYOND:
        # Some air, so that no mark is cut by the edge.
        air = max((high / low) ** 0.06, 1.15)
        return Scale(low=low / air, high=high * air, is_log=True)
    return Scale(low=0.0, high=high * 1.1)


def time_ticks(scale: Scale, most: int = 5) -> list[float]:
    """Round times within a scale, about so many at most."""
    return _log_ticks(scale, (_ROUND_TIMES, _ROUNDEST_TIMES), most) or _even(
        scale, _ROUND_TIMES, most
    )


def number_ticks(scale: Scale, most: int = 5) -> list[float]:
    """Round numbers within a scale, about so many at most."""
    return _log_ticks(scale, (_ROUND_NUMBERS, _ROUNDEST_NUMBERS), most) or _even(
        scale, _ROUND_NUMBERS, most
    )


def tick_time(seconds: float) -> str:
    """`1 min` and not `1 min 00 s`: ticks are round."""
    if 0 < seconds < 0.001:
        return f"{seconds * 1000:g} ms"
    return re.sub(r" 00 (s|min)$|\.0(?= s)", "", duration(seconds)) if seconds else "0"


def _even(scale: Scale, round_values: Sequence[float], most: int) -> list[float]:
    """Steps of the same size; none on a logarithmic scale, where they would not look it."""
    if scale.is_log:
        return []
    steps = (step for step in round_values if (scale.high - scale.low) / step <= most)
    step = next(steps, scale.high - scale.low)
    first = math.ceil(scale.low / step)
    return [index * step for index in range(first, math.floor(scale.high / step) + 1)]


def _log_ticks(scale: Scale, tiers: Sequence[Sequence[float]], most: int) -> list[float]:
    """All round values where they stand far enough apart, else the roundest, else some."""
    if not scale.is_log:
        return []
    fine, roundest = (
        [value for value in tier if scale.low <= value <= scale.high] for tier in tiers
    )
    some = [tier[::step] for tier in (roundest, fine) for step in range(1, len(tier) + 1)]
    spread = [values for values in (fine, *some) if _are_apart(values, scale, 0.8 / most)]
    # One value alone does not tell how far it is from one to another.
    return next((values for values in spread if len(values) > 1), [*spread, []][0])


def _are_apart(values: Sequence[float], scale: Scale, distance: float) -> bool:
    places = map(scale.place, values)
    return all(after - before >= distance for before, after in pairwise(places))
