"""Attempts by slot over time, for each node of a cluster: idle slots are gaps, long pauses are cut
out.

With very many attempts or slots, only the share of slots in use is drawn.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.report.page.charts.data import Span
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    chart,
    element,
    hill,
    legend,
    level,
    note,
    short,
    strip,
    tick_line,
    tick_time,
    time_ticks,
    upright,
)
from paraval.text.words import counted, duration, percent

# Slots for attempts, and times without long pauses. Pure functions.

_LONG_PAUSE = 0.1
"""An idle pause is cut out from this share of the working time on."""
_SHORTEST_PAUSE_S = 5.0
_CLOCK_STEP_S = 1e-6
"""An attempt that begins when another ended takes its slot, within clock precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """An idle time that was cut out."""

    at_s: float
    """In seconds of work."""
    length_s: float


def in_order(spans: Sequence[Span]) -> list[Span]:
    """Spans with valid times, by their start."""
    sensible = (
        span
        for span in spans
        if math.isfinite(span.start_s) and math.isfinite(span.end_s) and span.end_s >= span.start_s
    )
    return sorted(sensible, key=lambda span: (span.start_s, span.end_s))


def slots_of(spans: Sequence[Span]) -> list[int]:
    """A slot for each span, ordered by start: the lowest free one."""
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
class Lanes:
    """The slots of one machine, and the attempts in them."""

    node: str | None
    """None: the machine of the run."""
    spans: Sequence[Span]
    places: Sequence[int]
    """The slot of each span."""
    number: int


def lanes_of(spans: Sequence[Span], slots: int | None) -> list[Lanes]:
    """The machine of the run, then nodes by name. `slots`: how many a run on one machine may use;
    of nodes, only those in use are known."""
    by_node: dict[str | None, list[Span]] = {}
    for span in spans:
        by_node.setdefault(span.node, []).append(span)
    at_least = slots or 0 if by_node.keys() == {None} else 0
    lanes = []
    for node in sorted(by_node, key=lambda name: (name is not None, name or "")):
        places = slots_of(by_node[node])
        number = max(max(places) + 1, at_least)
        lanes.append(Lanes(node=node, spans=by_node[node], places=places, number=number))
    return lanes


def without_pauses(spans: Sequence[Span]) -> tuple[list[Span], list[Pause]]:
    """Spans ordered by start, from 0 s on, with long pauses removed."""
    busy_s, end_s = 0.0, spans[0].start_s
    for span in spans:
        busy_s += max(span.end_s - max(span.start_s, end_s), 0.0)
        end_s = max(end_s, span.end_s)
    least_s = max(_LONG_PAUSE * busy_s, _SHORTEST_PAUSE_S)
    moved, pauses = [], []
    earlier_s = end_s = spans[0].start_s
    for span in spans:
        length_s = span.start_s - end_s
        if length_s > least_s:
            pauses.append(Pause(at_s=end_s - earlier_s, length_s=length_s))
            earlier_s += length_s
        end_s = max(end_s, span.end_s)
        start_s = span.start_s - earlier_s
        moved.append(replace(span, start_s=start_s, end_s=span.end_s - earlier_s))
    return moved, pauses


def share_in_use(spans: Sequence[Span], slots: int, bins: int) -> list[float]:
    """The share of slots in use in each bin, from 0 s to the last end."""
    used = [0.0] * bins
    scale = Scale(low=0.0, high=max(span.end_s for span in spans))
    for span in spans:
        start, end = scale.place(span.start_s) * bins, scale.place(span.end_s) * bins
        for index in range(min(int(start), bins - 1), min(int(end), bins - 1) + 1):
            used[index] += max(min(end, index + 1) - max(start, index), 0.0)
    return [min(one / max(slots, 1), 1.0) for one in used]


def last_busy(spans: Sequence[Span], more_than: int) -> float | None:
    """The last moment with more than this many at work; None if there was none."""
    changes = [(span.start_s, 1) for span in spans] + [(span.end_s, -1) for span in spans]
    # Ends come before starts at the same moment: a new span takes the place of the ended one.
    changes.sort()
    at_work, last = 0, None
    for moment, change in changes:
        if at_work > more_than:
            last = moment
        at_work += change
    return last


_MOST_DRAWN = 1_500
_MOST_SLOTS = 200
_BINS = 240
_LONGEST_LABEL = 60
_NARROWEST = 0.001
"""Share of the width."""
_LONG_TAIL = 0.05
"""Share of the time: every run has a shorter end with idle slots."""
_KINDS = {
    "passed": "passed",
    "failed": "failed",
    "error": "error",
    "skipped": "skipped",
    "open": "not ended",
}


def timeline(spans: Sequence[Span], slots: int | None = None) -> Markup:
    """Attempts in their slots; `slots` is how many the run may use, if known."""
    ordered = in_order(spans)
    if not ordered:
        return NOTHING
    worked, pauses = without_pauses(ordered)
    lanes = lanes_of(worked, slots)
    at_once = sum(one.number for one in lanes)
    in_use = share_in_use(worked, at_once, _BINS)
    scale = Scale(low=0.0, high=max(span.end_s for span in worked))
    is_drawn = at_once <= _MOST_SLOTS and len(worked) <= _MOST_DRAWN
    return chart(
        "timeline",
        _lead(lanes, in_use, _tail(worked, at_once, scale.high), is_drawn=is_drawn),
        _machines(lanes, at_once, scale, pauses) if is_drawn else None,
        _axis(scale),
        _use(in_use),
        legend(_legend(worked, is_drawn=is_drawn)),
        note(_left_out(pauses)),
    )


def _lead(lanes: Sequence[Lanes], in_use: Sequence[float], tail: str, *, is_drawn: bool) -> Markup:
    """What the chart shows."""
    slots = sum(one.number for one in lanes)
    used = f"{percent(_mean(in_use))} of their time in use"
    if nodes := sum(one.node is not None for one in lanes):
        used = f"on {counted(nodes, 'node')}, {used}"
    if not is_drawn:
        seen = f"Up to {slots:,} in parallel, {used}; too many attempts or slots to draw each."
    elif slots == 1:
        seen = "One slot: one attempt at a time."
    else:
        seen = f"Each line is a slot: up to {slots:,} in parallel, {used}."
    return element("p", " ".join(filter(None, (seen, tail))), class_="lead")


def _machines(lanes: Sequence[Lanes], slots: int, scale: Scale, pauses: Sequence[Pause]) -> Markup:
    """The slots of each machine; in a run on a cluster, below its name."""
    pitch = max(2, min(18, 400 // slots))
    if len(lanes) == 1 and lanes[0].node is None:
        return element("div", _slots(lanes[0], pitch, scale, pauses), class_="slots")
    parts: list[Markup] = []
    for one in lanes:
        name = "this machine" if one.node is None else short(one.node, _LONGEST_LABEL)
        parts.append(element("p", name, class_="node"))
        parts.append(_slots(one, pitch, scale, pauses))
    return element("div", *parts, class_="slots")


def _slots(lanes: Lanes, pitch: int, scale: Scale, pauses: Sequence[Pause]) -> Markup:
    spans, slots = lanes.spans, lanes.number
    height = slots * pitch
    on_node = "" if lanes.node is None else f" of {lanes.node}"
    return strip(
        height,
        (
            element("rect", x=0, y=0, width="100%", height=height, class_="lane"),
            *(
                _attempt(span, (slot + 0.5) * pitch, pitch, scale)
                for span, slot in zip(spans, lanes.places, strict=True)
            ),
            *(upright(scale.place(pause.at_s), 0, height, "cut") for pause in pauses),
        ),
        title="Attempts by slot over time",
        words=f"{counted(len(spans), 'attempt')} in {counted(slots, 'slot')}{on_node}"
        f" within {duration(scale.high)}.",
    )


def _attempt(span: Span, middle: float, pitch: int, scale: Scale) -> Markup:
    start, end = scale.place(span.start_s), scale.place(span.end_s)
    # Slightly shorter than it was, so that adjacent spans stay separate.
    end = max(end - _NARROWEST, start + _NARROWEST)
    thick = max(pitch - 2, 1) if span.final else max(pitch / 2 - 1, 1)
    kind = _kind(span)
    parts = (
        element("title", _title(span)),
        level(start, end, middle, kind, thick),
        level(start, end, middle, "stripe", max(thick / 5, 1)) if kind == "failed" else None,
    )
    if span.anchor is None:
        return element("g", *parts)
    # By keyboard the same cases are reached from the table, and not a thousand times.
    return element("a", *parts, href=f"#{span.anchor}", tabindex=-1)


def _kind(span: Span) -> str:
    if span.outcome is None:
        return "open"
    if span.outcome.is_error:
        return "error"
    return span.outcome.value


def _title(span: Span) -> str:
    ended = "not ended" if span.outcome is None else span.outcome.value.replace("_", " ")
    again = "" if span.final else ", retried"
    took = duration(span.end_s - span.start_s)
    where = "" if span.node is None else f", on {short(span.node, _LONGEST_LABEL)}"
    return f"{short(span.label, _LONGEST_LABEL)}: {ended}{again}, {took}{where}"


def _axis(scale: Scale) -> Markup:
    ticks = [value for value in time_ticks(scale, 4) if value < 0.74 * scale.high]
    told = [(scale.place(value), tick_time(value)) for value in ticks]
    return tick_line([*told, (1.0, duration(scale.high))])


def _use(in_use: Sequence[float]) -> Markup:
    lane = element("rect", x=0, y=0, width="100%", height=36, class_="lane")
    words = f"Slots in use over time: {percent(_mean(in_use))} on average."
    drawn = strip(36, (lane, hill(in_use, 36)), title="Slots in use", words=words)
    return element("div", drawn, class_="use")


def _mean(in_use: Sequence[float]) -> float:
    """In hundredths: more precision is invisible."""
    return round(sum(in_use) / len(in_use), 2)


def _legend(spans: Sequence[Span], *, is_drawn: bool) -> Iterator[tuple[Markup, str]]:
    at = {"x1": 0, "x2": 26, "y1": 7, "y2": 7}
    kinds = {_kind(span) for span in spans} if is_drawn else set()
    for kind, words in _KINDS.items():
        if kind in kinds:
            line = element("line", **at, class_=kind, stroke_width=10)
            stripe = element("line", **at, class_="stripe", stroke_width=2)
            yield element("g", line, stripe if kind == "failed" else None), words
    if is_drawn and not all(span.final for span in spans):
        yield element("line", **at, class_="error", stroke_width=5), "retried"
    yield element("path", d="M1 13V3h12V8h12V13Z", class_="hill"), "share of slots in use"


def _left_out(pauses: Sequence[Pause]) -> str:
    if not pauses:
        return ""
    whole = duration(math.fsum(pause.length_s for pause in pauses))
    if len(pauses) == 1:
        return f"A pause of {whole} is cut out at the dashed line."
    return f"{counted(len(pauses), 'pause')} are cut out at the dashed lines, {whole} in all."


def _tail(spans: Sequence[Span], slots: int, end_s: float) -> str:
    """What delayed the end, if anything did."""
    half = slots // 2
    busy_s = last_busy(spans, half) if half else None
    if busy_s is None or end_s - busy_s < _LONG_TAIL * end_s:
        return ""
    last = max(spans, key=lambda span: span.end_s)
    return (
        f"For the last {duration(end_s - busy_s)} no more than {counted(half, 'slot')} of {slots:,}"
        f" had work; last to end: {short(last.label, _LONGEST_LABEL)}"
        f" ({duration(last.end_s - last.start_s)})."
    )
