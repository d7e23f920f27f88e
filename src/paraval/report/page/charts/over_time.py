"""How many attempts ran over time, and what held the others back."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    chart,
    element,
    hill,
    note,
    strip,
    tick_line,
    tick_text,
    tick_time,
    time_ticks,
)
from paraval.text.words import counted, duration

_BINS = 300
_HEIGHT = 72
_LEAST_HEIGHT = 0.04
_LONG_PAUSE = 0.1
"""An idle pause is cut out from this share of the working time on."""
_SHORTEST_PAUSE_S = 5.0


@dataclass(slots=True)
class AttemptTimes:
    """When attempts started and ended, on any clock in seconds."""

    starts: array[float]
    ends: array[float]

    def ordered(self) -> list[tuple[float, float]]:
        """Those with valid times, by start."""
        pairs = zip(self.starts, self.ends, strict=True)
        return sorted((a, b) for a, b in pairs if math.isfinite(a + b) and b >= a)


def over_time(times: AttemptTimes, held_back: Sequence[str]) -> Markup:
    """`held_back`: what limited the number, one sentence each."""
    if not (spans := times.ordered()):
        return NOTHING
    spans, pauses = _without_pauses(spans)
    end_s = max(end for _, end in spans)
    scale = Scale(low=0.0, high=end_s)
    numbers = _at_work(spans, scale)
    most = max(1, *numbers)
    mean = math.fsum(end - start for start, end in spans) / end_s if end_s else 1.0
    seen = f"Up to {most:,} at once, {mean:,.1f} on average, within {duration(end_s)}."
    drawn = strip(
        _HEIGHT,
        (
            hill([_height(number / most) for number in numbers], _HEIGHT),
            tick_text(0.0, 12, f"{most:,} at once"),
        ),
        title="Attempts at work over time",
        words=seen,
    )
    ticks = [value for value in time_ticks(scale, 4) if value < 0.74 * end_s]
    return chart(
        "over-time",
        element("p", seen, class_="lead"),
        drawn,
        tick_line([*((scale.place(at), tick_time(at)) for at in ticks), (1.0, duration(end_s))]),
        *map(note, held_back),
        note(_cut_out(pauses)),
    )


def _without_pauses(
    spans: Sequence[tuple[float, float]],
) -> tuple[list[tuple[float, float]], list[float]]:
    """Spans from 0 s on without long pauses, and the lengths of these: a run that was resumed the
    next morning would otherwise be two needles."""
    gaps = list(_gaps(spans))
    working_s = max(end for _, end in spans) - spans[0][0] - math.fsum(gaps)
    least_s = max(_LONG_PAUSE * working_s, _SHORTEST_PAUSE_S)
    origin_s, moved = spans[0][0], []
    for (start, end), gap in zip(spans, gaps, strict=True):
        origin_s += gap if gap > least_s else 0.0
        moved.append((start - origin_s, end - origin_s))
    return moved, [gap for gap in gaps if gap > least_s]


def _gaps(spans: Sequence[tuple[float, float]]) -> Iterator[float]:
    """For how long nothing ran before each span."""
    end_s = spans[0][0]
    for start, end in spans:
        yield max(start - end_s, 0.0)
        end_s = max(end_s, end)


def _height(share: float) -> float:
    """Of the hill: what is little is visible, too."""
    return max(share, _LEAST_HEIGHT) if share else 0.0


def _at_work(spans: Sequence[tuple[float, float]], scale: Scale) -> list[int]:
    """The largest number of attempts at work at a time, in each bin."""
    changes = sorted((at, step) for span in spans for at, step in zip(span, (1, -1), strict=True))
    numbers, now, last = [0] * _BINS, 0, 0
    for at, step in changes:
        place = min(int(scale.place(at) * _BINS), _BINS - 1)
        for number in range(last, place + 1):
            numbers[number] = max(numbers[number], now)
        now, last = now + step, place
        numbers[place] = max(numbers[place], now)
    return numbers


def _cut_out(pauses: Sequence[float]) -> str:
    if not pauses:
        return ""
    return f"{counted(len(pauses), 'pause')} cut out, {duration(math.fsum(pauses))} in all."
