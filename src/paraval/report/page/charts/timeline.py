"""Who ran when in which slot: idle slots are gaps, and what held up the end stands out.

Up to some thousand attempts each is drawn with its name; more are drawn as one path for each way
to end, so that the markup stays small however many there are.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from paraval.report.page.charts.data import Span
from paraval.report.page.charts.svg import (
    NOTHING,
    Scale,
    chart,
    element,
    legend,
    level,
    note,
    number,
    share,
    short,
    tick_text,
    tick_time,
    time_ticks,
    together,
)
from paraval.text.words import counted, duration, percent

# Who ran where and when: slots for attempts, and a clock that leaves out long pauses. Pure.

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


_MOST_NAMED = 1_500
_MOST_BYTES = 350_000
_MOST_SLOTS = 200
_MOST_PIECES = 24_000
_BINS = 240
_LONGEST_LABEL = 60
_PITCHES = ((12, 18), (24, 12), (48, 8), (100, 4), (_MOST_SLOTS, 2))
"""Up to so many slots, so many pixels for each."""
_ROOMY = 8
"""From so many pixels on, slots have gaps between them."""
_NARROWEST = 0.001
_WIDE = 0.004
"""Of the width: attempts from here on have a line at their beginning."""
_LONG_TAIL = 0.05
"""Of the time: a shorter end with idle slots is what every run has."""
_KINDS = {
    "passed": "passed",
    "failed": "failed",
    "error": "error",
    "skipped": "skipped",
    "open": "not ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """What all parts of the drawing share."""

    spans: Sequence[Span]
    """By their start."""
    places: Sequence[int]
    """The slot of each."""
    slots: int
    clock: WorkClock

    @property
    def pitch(self) -> int:
        return next((pitch for most, pitch in _PITCHES if self.slots <= most), 2)

    @property
    def height(self) -> int:
        return self.slots * self.pitch

    def middle(self, slot: int) -> float:
        return slot * self.pitch + self.pitch / 2


def timeline(spans: Sequence[Span], slots: int | None = None) -> Markup:
    """Attempts in their slots; `slots` is how many the run may use, where that is known."""
    ordered = in_order(spans)
    if not ordered:
        return NOTHING
    places = slots_of(ordered)
    used = max(places) + 1
    sheet = _Sheet(
        spans=ordered,
        places=places,
        slots=max(used, min(slots or 0, _MOST_SLOTS)),
        clock=WorkClock(ordered),
    )
    at_once = max(used, slots or 0)
    in_use = share_in_use(ordered, sheet.clock, at_once, _BINS)
    return chart(
        "timeline",
        _lead(at_once, in_use, _tail(sheet, at_once)),
        _slots(sheet) if sheet.slots <= _MOST_SLOTS else None,
        _axis(sheet.clock),
        _use(in_use),
        legend(_legend(ordered)),
        note(_pauses(sheet.clock)),
    )


def _lead(slots: int, in_use: Sequence[float], tail: str) -> Markup:
    """What one sees, and what there is to see."""
    used = f"{percent(_mean(in_use))} of that in use"
    if slots == 1:
        seen = "One slot: one attempt after another."
    elif slots > _MOST_SLOTS:
        seen = f"Up to {slots:,} at once, {used}: too many to draw a line for each."
    else:
        seen = f"Each line is a slot: up to {slots:,} at once, {used}."
    return element("p", " ".join(filter(None, (seen, tail))), class_="lead")


def _slots(sheet: _Sheet) -> Markup:
    drawn = _named(sheet) if len(sheet.spans) <= _MOST_NAMED else NOTHING
    if not drawn or len(drawn.encode()) > _MOST_BYTES:
        drawn = _unnamed(sheet)
    return element(
        "svg",
        element("title", "Who ran when in which slot"),
        element("desc", _words(sheet)),
        _lanes(sheet),
        drawn,
        _cuts(sheet),
        role="img",
        width="100%",
        height=sheet.height,
        class_="slots",
    )


def _lanes(sheet: _Sheet) -> Markup:
    """A faint lane for each slot, so that an idle one is seen."""
    if sheet.pitch < _ROOMY:
        return element("rect", x=0, y=0, width="100%", height=sheet.height, class_="lane")
    high = sheet.pitch - 2
    return together(
        element("rect", x=0, y=slot * sheet.pitch + 1, width="100%", height=high, class_="lane")
        for slot in range(sheet.slots)
    )


def _cuts(sheet: _Sheet) -> Markup:
    width = sheet.clock.cut
    return together(
        element(
            "rect",
            x=share(middle - width / 2),
            y=0,
            width=share(width),
            height="100%",
            class_="cut",
        )
        for middle in sheet.clock.cuts()
    )


def _named(sheet: _Sheet) -> Markup:
    """Each attempt with its name; what tells them apart at their ends lies above them all."""
    spans = zip(sheet.spans, sheet.places, strict=True)
    drawn = element(
        "g",
        *(_one(span, slot, sheet) for span, slot in spans),
        stroke_width=_thickness(sheet.pitch, is_final=True),
    )
    return together((drawn, _edges(sheet)))


def _one(span: Span, slot: int, sheet: _Sheet) -> Markup:
    start, end = sheet.clock.place(span.start_s), sheet.clock.place(span.end_s)
    end = max(end, start + _NARROWEST)
    kind, middle = _kind(span), sheet.middle(slot)
    width = _thickness(sheet.pitch, is_final=span.final)
    line = level(start, end, middle, kind, None if span.final else width)
    inner = level(start, end, middle, "stripe", max(width / 5, 1)) if kind == "failed" else None
    title = element("title", _title(span))
    if span.anchor is None:
        return element("g", title, line, inner)
    # By keyboard the same cases are reached from the table, and not a thousand times over.
    return element("a", title, line, inner, href=f"#{span.anchor}", tabindex=-1)


def _edges(sheet: _Sheet) -> Markup:
    """A fine line at each beginning, where neighbours would run together."""
    high = _thickness(sheet.pitch, is_final=True)
    moves = []
    for span, slot in zip(sheet.spans, sheet.places, strict=True):
        start, end = sheet.clock.place(span.start_s), sheet.clock.place(span.end_s)
        if end - start > _WIDE:
            moves.append(
                f"M{number(1000 * start)} {number(sheet.middle(slot) - high / 2)}v{number(high)}"
            )
    return _stretched(sheet, 1000, [element("path", d="".join(moves), class_="edge")])


def _stretched(sheet: _Sheet, columns: int, shapes: Sequence[Markup]) -> Markup:
    """Paths cannot be drawn in shares of a width: their paper is stretched instead."""
    return element(
        "svg",
        *shapes,
        viewBox=f"0 0 {columns} {sheet.height}",
        preserveAspectRatio="none",
        width="100%",
        height=sheet.height,
    )


def _thickness(pitch: int, *, is_final: bool) -> float:
    whole = pitch - 2 if pitch >= _ROOMY else pitch
    return whole if is_final else max(whole / 2, 1)


def _unnamed(sheet: _Sheet) -> Markup:
    """One path for each way to end, in columns: neighbours of the same kind become one piece."""
    columns = max(min(1_000, _MOST_PIECES // sheet.slots), 1)
    paths: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for slot, pieces in enumerate(_pieces(sheet, columns)):
        middle = number(sheet.middle(slot))
        for start, end, kind, final in pieces:
            paths[kind, final].append(f"M{start} {middle}h{end - start}")
    drawn = []
    for (kind, final), moves in sorted(paths.items(), reverse=True):
        way, width = "".join(moves), _thickness(sheet.pitch, is_final=final)
        drawn.append(element("path", d=way, class_=kind, stroke_width=width))
        if kind == "failed" and sheet.pitch >= _ROOMY:
            drawn.append(element("path", d=way, class_="stripe", stroke_width=max(width / 5, 1)))
    return element("g", _stretched(sheet, columns, drawn), class_="dense")


_Piece = tuple[int, int, str, bool]


def _pieces(sheet: _Sheet, columns: int) -> list[list[_Piece]]:
    """By slot: from column to column, how it ended, and whether it decided anything."""
    slots: list[list[_Piece]] = [[] for _ in range(sheet.slots)]
    for span, slot in zip(sheet.spans, sheet.places, strict=True):
        start = int(sheet.clock.place(span.start_s) * columns)
        end = max(int(sheet.clock.place(span.end_s) * columns), start + 1)
        kind, pieces = _kind(span), slots[slot]
        if pieces and start < pieces[-1][1]:
            before = pieces[-1]
            # Of several in one column the worst is seen: few pass unseen among thousands.
            if end <= before[1] and _weight(kind) <= _weight(before[2]):
                continue
            if end <= before[1]:
                pieces[-1] = (before[0], before[1], kind, span.final)
                continue
            start = before[1]
        if pieces and pieces[-1][1] == start and pieces[-1][2:] == (kind, span.final):
            pieces[-1] = (pieces[-1][0], end, kind, span.final)
        else:
            pieces.append((start, end, kind, span.final))
    return slots


def _weight(kind: str) -> int:
    return ("passed", "skipped", "open", "failed", "error").index(kind)


def _kind(span: Span) -> str:
    if span.outcome is None:
        return "open"
    if span.outcome.is_error:
        return "error"
    return span.outcome.value


def _title(span: Span) -> str:
    ended = "not ended" if span.outcome is None else span.outcome.value.replace("_", " ")
    again = "" if span.final else ", tried again"
    took = duration(span.end_s - span.start_s)
    return f"{short(span.label, _LONGEST_LABEL)}: {ended}{again}, {took}"


def _axis(clock: WorkClock) -> Markup:
    scale = Scale(low=0.0, high=clock.shown_s or 1.0)
    ticks = [value for value in time_ticks(scale, 4) if value < 0.74 * scale.high]
    words = [tick_text(_at(clock, value), 14, tick_time(value)) for value in ticks]
    end = tick_text(1.0, 14, duration(clock.shown_s))
    return element(
        "svg",
        *words,
        end,
        width="100%",
        height=18,
        overflow="visible",
        aria_hidden="true",
        class_="axis",
    )


def _at(clock: WorkClock, worked_s: float) -> float:
    """Where so many seconds of work are over, pauses left out."""
    for stretch in clock.stretches:
        long = stretch.end_s - stretch.start_s
        if worked_s <= long:
            return clock.place(stretch.start_s + worked_s)
        worked_s -= long
    return 1.0


def _use(in_use: Sequence[float]) -> Markup:
    steps = "".join(f"V{number(30 - 30 * used)}h1" for used in in_use)
    area = element(
        "svg",
        element("path", d=f"M0 30{steps}V30Z", class_="hill"),
        viewBox=f"0 0 {len(in_use)} 30",
        preserveAspectRatio="none",
        width="100%",
        height=36,
    )
    words = f"Slots in use over the time: {percent(_mean(in_use))} in the mean."
    return element(
        "svg",
        element("title", "Slots in use"),
        element("desc", words),
        element("rect", x=0, y=0, width="100%", height=36, class_="lane"),
        area,
        role="img",
        width="100%",
        height=36,
        class_="use",
    )


def _mean(in_use: Sequence[float]) -> float:
    """In hundredths: nobody sees more of it."""
    return round(sum(in_use) / len(in_use), 2)


def _legend(spans: Sequence[Span]) -> Iterator[tuple[Markup, str]]:
    present = {(_kind(span), span.final) for span in spans}
    kinds = {kind for kind, _ in present}
    for kind, words in _KINDS.items():
        if kind in kinds:
            line = element("line", x1=0, x2=26, y1=7, y2=7, class_=kind, stroke_width=10)
            stripe = element("line", x1=0, x2=26, y1=7, y2=7, class_="stripe", stroke_width=2)
            yield element("g", line, stripe if kind == "failed" else None), words
    if not all(final for _, final in present):
        yield (
            element("line", x1=0, x2=26, y1=7, y2=7, class_="error", stroke_width=5),
            "tried again",
        )
    hill = element("path", d="M1 13V3h12V8h12V13Z", class_="hill")
    yield hill, "share of slots in use"


def _words(sheet: _Sheet) -> str:
    said = f"{counted(len(sheet.spans), 'attempt')} in {counted(sheet.slots, 'slot')}"
    return f"{said} within {duration(sheet.clock.shown_s)}."


def _pauses(clock: WorkClock) -> str:
    if not clock.pauses_s:
        return ""
    long, *others = clock.pauses_s
    if not others:
        return f"A pause of {duration(long)} is left out, at the dashed gap."
    number_of, whole = counted(len(clock.pauses_s), "pause"), duration(sum(clock.pauses_s))
    return f"{number_of} are left out, {whole} in all, at the dashed gaps."


def _tail(sheet: _Sheet, slots: int) -> str:
    """What held up the end, where it did."""
    half = slots // 2
    busy_s = last_busy(sheet.spans, half) if half else None
    if busy_s is None:
        return ""
    last_stretch = sheet.clock.stretches[-1]
    alone_s = last_stretch.end_s - max(busy_s, last_stretch.start_s)
    if alone_s < _LONG_TAIL * sheet.clock.shown_s:
        return ""
    last = max(sheet.spans, key=lambda span: span.end_s)
    return (
        f"For the last {duration(alone_s)} no more than {counted(half, 'slot')} of {slots:,}"
        f" had work; last to end: {short(last.label, _LONGEST_LABEL)}"
        f" ({duration(last.end_s - last.start_s)})."
    )
