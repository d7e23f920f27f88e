"""What the charts of a page draw: numbers, signs and words. `plots.html` has their markup.

Positions are shares of a chart's width, from 0 to 1, or pixels below its top.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, pairwise
from typing import NamedTuple

from paraval.codec import finite
from paraval.dataclass import dataclass
from paraval.records import AttemptRecord, Variant, value_text
from paraval.report.compare.case_results import CaseBook, Cell
from paraval.report.compare.claims import signed_points, signed_range
from paraval.report.compare.comparison import Comparison, Finding, Interval, Method
from paraval.report.summary.figures import WITHOUT_MATRIX, label_of
from paraval.report.summary.tally import Summary, Tally
from paraval.text.terminal import cut_middle, one_line
from paraval.text.words import (
    counted,
    duration,
    listed,
    money,
    percent,
    percent_range,
    telling_axes,
    variant_label,
)

# ---- scales

_NUMBERS = tuple(digit * 10.0**power for power in range(-9, 10) for digit in (1, 2, 5))
_TIMES = (
    *(digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5)),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18000.0),
    *(digit * 36_000.0 * 10**power for power in range(6) for digit in (1, 2, 5)),
)
_LOG_BEYOND = 10
"""If the largest value is more than this many times the smallest, the axis is logarithmic."""
_SMALLEST_SHARE = 1e-9
"""Share of the largest value: what is below it, such as 0, is at the left edge of a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The values at both edges."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 to 1; values outside are clamped to the edges."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5

    def ticks(self, round_values: Sequence[float] = _NUMBERS, most: int = 5) -> list[float]:
        """Round values within the scale, about this many at most."""
        if not self.is_log:
            width = self.high - self.low
            step = next((one for one in round_values if width / one <= most), width)
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            return [number * step for number in range(first, last + 1)]
        kept: list[float] = []
        for value in (one for one in round_values if self.low <= one <= self.high):
            if not kept or self.place(value) - self.place(kept[-1]) >= 0.8 / most:
                kept.append(value)
        return kept


def scale_of(values: Iterable[float]) -> Scale:
    """A scale for all values: from 0, or logarithmic if they are far apart."""
    known = [value for value in values if math.isfinite(value) and value >= 0]
    high = max(known, default=0.0) or 1.0
    low = min((value for value in known if value > high * _SMALLEST_SHARE), default=high)
    if high > low * _LOG_BEYOND:
        # Some margin, so that no mark is cut off at the edge.
        air = max((high / low) ** 0.06, 1.15)
        return Scale(low=low / air, high=high * air, is_log=True)
    return Scale(low=0.0, high=high * 1.1)


# ---- a pass rate as a bar, and a difference as a dot, each with its interval


def rate_words(one: Tally) -> str:
    """What the bar of a pass rate shows."""
    rate, interval = one.pass_rate, one.pass_rate_interval
    said = "Nothing was judged."
    if rate is not None:
        trials = counted(one.judged, "judged trial")
        said = f"{percent(rate)} of {trials} passed"
        if one.is_by_case:
            said = f"Pass rate {percent(rate)}, the mean of cases, over {trials}"
        said += f", interval {percent_range(*interval)}." if interval else "."
    if one.errors:
        worst, best = one.rate_if_errors_failed, one.rate_if_errors_passed
        could = "" if worst is None or best is None else percent_range(worst, best)
        said += f" {counted(one.errors, 'error')}{could and ' could make it ' + could}."
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferencePlot:
    """A difference of two rates, from -1 to 1; above 0 is better."""

    mean: float
    interval: Interval
    kind: str
    """better, worse or open."""
    words: str


_REACHES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
KINDS = {Finding.BETTER: "better", Finding.WORSE: "worse", Finding.NOT_SHOWN: "open"}
"""The CSS class of a finding."""


def difference_plot(comparison: Comparison) -> DifferencePlot | None:
    """None if there is nothing to draw."""
    passing = comparison.passing
    if passing is None or passing.method is Method.NONE:
        return None
    kind = KINDS[comparison.finding]
    found = "no difference shown" if kind == "open" else kind
    interval = signed_range(passing.interval)
    words = f"{signed_points(passing.mean)}, interval {interval}: {found}."
    return DifferencePlot(mean=passing.mean, interval=passing.interval, kind=kind, words=words)


def reach_of(comparisons: Iterable[Comparison]) -> float:
    """The smallest round difference that covers all of them: their plots share one axis."""
    plots = filter(None, map(difference_plot, comparisons))
    most = max((abs(end) for one in plots for end in (one.mean, *one.interval)), default=0.0)
    return next((reach for reach in _REACHES if reach >= most), 1.0)


# ---- cases by variants

_MOST_CELLS = 20_000
_MOST_ROWS = 2_000
_HEAD = 105
"""Letters that fit above all columns; a head has its share of them ..."""
_SHORTEST_HEAD = 7
"""... but at least these."""
_PARTS = ((1, 4), (2, 3), (4, 2))
"""Up to so many variants: how many tables stand side by side."""
_LEAST_IN_A_PART = 8
_MOST_FITTING = 24
"""With more variants, the table is wider than the page."""
_STATES = {
    "p": ("✓", "passed"),
    "x": ("✗", "failed"),
    "f": ("±", "passed and failed"),
    "e": ("!", "error"),
    "s": ("\N{EN DASH}", "skipped"),
    "n": ("", "not run"),
}
"""Each state, a CSS class, with its sign and meaning: color is never the only signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """How the repeats of a case with a variant ended."""

    style: str
    sign: str
    count: str = ""
    """`2/3` passed, of several."""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    name: str
    title: str
    """The whole name, if it is cut."""
    anchor: str
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """One row per case, one column per variant."""

    heads: Sequence[Sequence[tuple[str, str, int]]]
    """For each line: name, whole name if it is cut, and how many columns it stands over."""
    rows: Sequence[HeatRow]
    rows_a_part: int
    """With few variants and many cases, the cases stand in several tables side by side."""
    style: str
    words: str
    legend: Sequence[tuple[str, str, str]]
    left_out: int

    @property
    def linked_cases(self) -> frozenset[str]:
        return frozenset(row.anchor for row in self.rows)


def case_anchor(number: int) -> str:
    """The anchor of a case's section: our own, since its name is untrusted."""
    return f"case-{number}"


def heat_map(book: CaseBook) -> HeatMap | None:
    """All cases; if there are too many, those that did not pass everywhere."""
    variants = list(book.variants.values())
    if not variants:
        return None
    most = min(_MOST_ROWS, max(1, _MOST_CELLS // len(variants)))
    rows = (
        HeatRow(
            name=(name := cut_middle(one_line(case, 200), 40)),
            title="" if name == case else one_line(case, 600),
            anchor=case_anchor(number),
            cells=[_heat_cell(cells.get(key)) for key in book.variants],
        )
        for number, (case, cells) in enumerate(book.rows())
        if len(book) <= most or any(cell.failed or cell.errors for cell in cells.values())
    )
    shown = list(islice(rows, most))
    if not shown:
        return None
    states = Counter(cell.style.partition(" ")[0] for row in shown for cell in row.cells)
    parts = next((parts for few, parts in _PARTS if len(variants) <= few), 1)
    said = [f"{states[one]:,} {meaning}" for one, (_, meaning) in _STATES.items() if states[one]]
    with_errors = any(len(cell.sign) > 1 for row in shown for cell in row.cells)
    return HeatMap(
        heads=list(_heads(variants, _HEAD // parts)),
        rows=shown,
        rows_a_part=max(-(-len(shown) // parts), _LEAST_IN_A_PART),
        style="several" if len(variants) <= _MOST_FITTING else "several many",
        words=f"{counted(len(shown), 'case')} by variant: {listed(said)}",
        legend=[
            *(
                (style, sign, meaning)
                for style, (sign, meaning) in _STATES.items()
                if states[style]
            ),
            *([("p", "✓!", "with errors (no verdict)")] if with_errors else []),
        ],
        left_out=len(book) - len(shown),
    )


def _heads(variants: Sequence[Variant], room: int) -> Iterator[list[tuple[str, str, int]]]:
    """A line for each axis on which variants differ, the outer ones over their inner values."""

    def head(value: str, span: int) -> tuple[str, str, int]:
        letters = room if len(variants) == 1 else room // len(variants) * span
        name = cut_middle(one_line(value, 80), max(letters, _SHORTEST_HEAD))
        return name, "" if name == value else value, span

    axes = telling_axes(variants)
    if not axes:
        yield [("case", "", 1), head(variant_label(variants[0]) or WITHOUT_MATRIX, 1)]
    for depth, axis in enumerate(axes, start=1):
        outer = [[value_text(one.get(name, "")) for name in axes[:depth]] for one in variants]
        corner = one_line(f"case / {axis}" if depth == len(axes) else axis, 80)
        groups = ((path[-1], len(list(same))) for path, same in groupby(outer))
        yield [(corner, "", 1), *(head(name, span) for name, span in groups)]


def _heat_cell(cell: Cell | None) -> HeatCell:
    if cell is None or not sum(cell[:4]):
        return HeatCell(style="n", sign="")
    passed, failed, errors, skipped = cell[:4]
    style = "s" if skipped and not (passed or failed or errors) else "e"
    if cell.judged:
        style = "f" if cell.is_flaky else "p" if passed else "x"
    sign = _STATES[style][0] + "!" * bool(errors and cell.judged)
    if style == "f":
        style += f" f{min(int(4 * passed / cell.judged) + 1, 4)}"
    if passed + failed + errors + skipped == 1:
        return HeatCell(style=style, sign=sign)
    words = zip(cell[:4], ("passed", "failed", "errors", "skipped"), strict=True)
    title = ", ".join(f"{number} {word}" for number, word in words if number)
    return HeatCell(style=style, sign=sign, count=f"{passed}/{cell.judged}", title=title)


# ---- quality against cost

_COLORS = 8
"""More than this many colors are indistinguishable; then all variants have the same."""
_TOP, _BOTTOM = 32, 310
_LINE = 14
_NAME = 0.3
"""Share of the width that a name may take."""
_MOST_POINTS = 200
_MOST_TOLD = 6


def color_class(index: int, variants: int) -> str:
    """CSS class with a variant's color; empty if colors would not help."""
    return f"v{index + 1}" if 1 < variants <= _COLORS else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCost:
    """A variant's pass rate, the mean cost of a judged trial, and its median time."""

    label: str
    rate: float
    usd: float
    seconds: float | None = None
    color: str = ""

    @property
    def words(self) -> str:
        time = "" if self.seconds is None else f", median {duration(self.seconds)}"
        return f"{percent(self.rate)} passed, {money(self.usd)} per judged trial{time}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Points with the Pareto frontier, which is drawn as a stair."""

    points: Sequence[QualityCost]
    frontier: Sequence[QualityCost]
    named: Sequence[QualityCost]
    """Those whose names have room."""
    cost: Scale
    rate: Scale
    note: str

    def x(self, one: QualityCost) -> float:
        return self.cost.place(one.usd)

    def y(self, rate: float) -> float:
        return _BOTTOM - self.rate.place(rate) * (_BOTTOM - _TOP)

    @property
    def stairs(self) -> Iterator[tuple[float, float, float]]:
        """From where to where, and how far below the top."""
        ends = [*map(self.x, self.frontier), 1.0]
        for one, (start, end) in zip(self.frontier, pairwise(ends), strict=True):
            yield start, end, self.y(one.rate)


def quality_costs(summary: Summary, book: CaseBook) -> list[QualityCost]:
    """Only of variants whose costs are known: a point at 0 would mean that it was free."""
    spent: dict[str, list[float]] = {key: [0.0, 0.0] for key in book.variants}
    for _, cells in book.rows():
        for key, cell in cells.items():
            spent[key][0] += cell.sum_usd
            spent[key][1] += cell.priced
    known = [
        (one, usd / priced)
        for one, (usd, priced) in zip(summary.variants, spent.values(), strict=True)
        if priced and one.pass_rate is not None
    ]
    return [
        QualityCost(
            label=label_of(one),
            rate=one.pass_rate or 0.0,
            usd=usd,
            seconds=one.median_s,
            color=color_class(number, len(known)),
        )
        for number, (one, usd) in enumerate(known)
    ]


def scatter(every: Sequence[QualityCost]) -> Scatter | None:
    """None if there are fewer than two variants, or all were free."""
    if len(every) < 2 or not any(one.usd for one in every):
        return None
    frontier = frontier_of(every)
    # Points of the frontier are labeled first, while there is room.
    points = sorted(every[:_MOST_POINTS], key=lambda one: one not in frontier)
    cost = scale_of(one.usd for one in points)
    rate = Scale(low=0.0 if min(one.rate for one in points) < 0.5 else 0.5, high=1.0)
    drawn = Scatter(points=points, frontier=frontier, named=[], cost=cost, rate=rate, note="")
    named, taken = [], list[tuple[float, float]]()
    for one in points:
        x, y = drawn.x(one), drawn.y(one.rate)
        start = x if x < 0.5 else x - _NAME
        if all(abs(y - line) >= _LINE or abs(start - other) >= _NAME for other, line in taken):
            taken.append((start, y))
            named.append(one)
    best = (
        f"{one_line(one.label, 40)} ({percent(one.rate)}, {money(one.usd)})" for one in frontier
    )
    notes = (
        f"Pareto frontier: {listed(best)}." if len(frontier) <= _MOST_TOLD else "",
        "Logarithmic: cost." if cost.is_log else "",
        "Hover over a point to see its name." if len(named) < len(points) else "",
        f"{counted(len(every) - len(points), 'more variant')} left out."
        if len(points) < len(every)
        else "",
    )
    note = " ".join(filter(None, notes))
    return Scatter(points=points, frontier=frontier, named=named, cost=cost, rate=rate, note=note)


def frontier_of(points: Sequence[QualityCost]) -> list[QualityCost]:
    """Those that nothing else beats: passing as much for less, or more for as much."""
    found: list[QualityCost] = []
    for one in sorted(points, key=lambda point: (point.usd, -point.rate)):
        last = found[-1] if found else None
        if last is None or one.rate > last.rate or (one.usd, one.rate) == (last.usd, last.rate):
            found.append(one)
    return found


# ---- how many ran over time

_BINS = 300
_HEIGHT = 72
_LEAST_HEIGHT = 0.04
_LONG_PAUSE = 0.1
"""An idle pause is cut out from this share of the working time on."""
_SHORTEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """How many attempts ran, and what held others back."""

    words: str
    most: int
    hill: str
    """The path of a curve, 300 wide."""
    ticks: Sequence[tuple[float, str]]
    notes: Sequence[str]


def attempt_spans(attempts: Iterable[AttemptRecord]) -> list[tuple[float, float]]:
    """When attempts started and ended, by start. One that has not ended, and that no other
    followed, runs until the last sign of life; when another was cut off is unknown."""
    starts, ends, latest = array("d"), array("d"), 0.0
    unended: dict[int, float] = {}
    for attempt in attempts:
        latest = max(latest, attempt.started_at)
        if attempt.result is None:
            unended[attempt.index] = attempt.started_at
            continue
        unended.pop(attempt.index, None)
        starts.append(attempt.started_at)
        ends.append(attempt.started_at + (finite(attempt.result.duration_s) or 0.0))
        latest = max(latest, ends[-1])
    starts.extend(unended.values())
    ends.extend([latest] * len(unended))
    pairs = zip(starts, ends, strict=True)
    return sorted((a, b) for a, b in pairs if math.isfinite(a + b) and b >= a)


def over_time(spans: Sequence[tuple[float, float]], held_back: Iterable[str]) -> OverTime | None:
    """`held_back`: what limited the number, one sentence each."""
    if not spans:
        return None
    moved, pauses = _without_pauses(spans)
    end_s = max(end for _, end in moved)
    scale = Scale(low=0.0, high=end_s)
    numbers, now, last = [0] * _BINS, 0, 0
    for at, step in sorted((at, step) for span in moved for at, step in zip(span, (1, -1))):  # noqa: B905 - two each
        place = min(int(scale.place(at) * _BINS), _BINS - 1)
        for number in range(last, place + 1):
            numbers[number] = max(numbers[number], now)
        now, last = now + step, place
        numbers[place] = max(numbers[place], now)
    most = max(1, *numbers)
    mean = math.fsum(end - start for start, end in moved) / end_s if end_s else 1.0
    # What is little is visible, too.
    shares = (max(number / most, _LEAST_HEIGHT) if number else 0.0 for number in numbers)
    steps = "".join(f"V{_HEIGHT - _HEIGHT * share:.4g}h1" for share in shares)
    cut = f"{counted(len(pauses), 'pause')} cut out, {duration(math.fsum(pauses))} in all."
    ticks = [at for at in scale.ticks(_TIMES, 4) if at < 0.74 * end_s]
    return OverTime(
        words=f"Up to {most:,} at once, {mean:,.1f} on average, within {duration(end_s)}.",
        most=most,
        hill=f"M0 {_HEIGHT}{steps}V{_HEIGHT}Z",
        ticks=[*((scale.place(at), tick_time(at)) for at in ticks), (1.0, duration(end_s))],
        notes=[*held_back, *([cut] if pauses else [])],
    )


def _without_pauses(
    spans: Sequence[tuple[float, float]],
) -> tuple[list[tuple[float, float]], list[float]]:
    """Spans from 0 s on without long pauses, and the lengths of these: a run that was resumed the
    next morning would otherwise be two needles."""
    gaps, end_s = [], spans[0][0]
    for start, end in spans:
        gaps.append(max(start - end_s, 0.0))
        end_s = max(end_s, end)
    working_s = end_s - spans[0][0] - math.fsum(gaps)
    least_s = max(_LONG_PAUSE * working_s, _SHORTEST_PAUSE_S)
    origin_s, moved = spans[0][0], []
    for (start, end), gap in zip(spans, gaps, strict=True):
        origin_s += gap if gap > least_s else 0.0
        moved.append((start - origin_s, end - origin_s))
    return moved, [gap for gap in gaps if gap > least_s]


def tick_time(seconds: float) -> str:
    """`1 min` and not `1 min 00 s`: ticks are round."""
    if 0 < seconds < 0.001:
        return f"{seconds * 1000:g} ms"
    return re.sub(r" 00 (s|min)$|\.0(?= s)", "", duration(seconds)) if seconds else "0"


# ---- a suite's history, one line per variant

_MOST_RUNS = 40
_MOST_SERIES = 60
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE_TOP, _LINE_BOTTOM = 14, 64
"""The letters of changes are above the line."""


class TrendPoint(NamedTuple):
    """A variant in one run of a suite's history."""

    run: str
    series: str
    rate: float | None
    interval: Interval | None = None
    changed: tuple[str, ...] = ()
    """What changed since the previous run: suite, prompt, model."""


class TrendLine(NamedTuple):
    """The pass rates of one variant, from 0 to 1 across, and down."""

    label: str
    color: str
    last: str
    words: str
    dots: Sequence[tuple[float, float]]
    ways: Sequence[str]
    """Paths, 1000 wide: the line is broken where a run has no figure."""
    whiskers: Sequence[tuple[float, float, float]]


class Trend(NamedTuple):
    """Each variant has its own line on a shared axis, so that sixty of them need neither sixty
    colors nor a legend."""

    lines: Sequence[TrendLine]
    changes: Sequence[tuple[float, str, str]]
    """Where a run is across, its letter, and what changed in it."""
    edges: Sequence[tuple[float, str]]
    note: str


def trend(points: Sequence[TrendPoint]) -> Trend | None:
    """Points of the oldest run first; None if there are none."""
    if not points:
        return None
    every = list(dict.fromkeys(point.run for point in points))
    runs = {run: number for number, run in enumerate(every[-_MOST_RUNS:])}
    series: dict[str, dict[int, TrendPoint]] = {}
    changed: dict[int, str] = {}
    for point in points:
        if (number := runs.get(point.run)) is not None:
            series.setdefault(point.series, {})[number] = point
            if point.changed:
                changed[number] = f"{one_line(point.run, 48)}: {listed(point.changed)} changed"
    first, last = (one_line(every[place], 48) for place in (-len(runs), -1))
    extent = f"{counted(len(runs), 'run')}, from {first} to {last}."
    left_out = (
        (len(every) - len(runs), "older run"),
        (max(0, len(series) - _MOST_SERIES), "variant"),
    )
    notes = [extent if len(runs) > 1 else f"One run: {first}."]
    notes += [f"{counted(number, what)} left out." for number, what in left_out if number]
    shown = islice(series.items(), _MOST_SERIES)
    return Trend(
        lines=[
            _line(label, color_class(number, len(series)), of_runs, len(runs))
            for number, (label, of_runs) in enumerate(shown)
        ],
        changes=[
            ((number + 0.5) / len(runs), _LETTERS[place : place + 1], what)
            for place, (number, what) in enumerate(changed.items())
        ],
        edges=[(_down(rate), percent(rate)) for rate in (0.0, 1.0)],
        note=" ".join(notes),
    )


def _down(rate: float) -> float:
    return _LINE_TOP + (_LINE_BOTTOM - _LINE_TOP - 2) * (1 - rate)


def _line(label: str, color: str, of_runs: Mapping[int, TrendPoint], runs: int) -> TrendLine:
    rates = {run: one.rate for run, one in of_runs.items() if one.rate is not None}
    told = [percent(rate) for rate in rates.values()]
    words = f"{told[0]} in one run." if told else "Unknown for all runs."
    if len(told) > 1:
        words = f"From {told[0]} to {told[-1]} over {counted(len(told), 'run')}: {', '.join(told)}."
    dots = {run: ((run + 0.5) / runs, _down(rate)) for run, rate in rates.items()}
    # Consecutive runs share a path.
    stretches = groupby(enumerate(dots), key=lambda placed: placed[1] - placed[0])
    return TrendLine(
        label=label,
        color=color,
        last=told[-1] if told else "-",
        words=words,
        dots=list(dots.values()),
        ways=[
            "M" + "L".join(f"{1000 * dots[run][0]:.5g} {dots[run][1]:.4g}" for _, run in stretch)
            for _, stretch in stretches
        ],
        whiskers=[
            ((run + 0.5) / runs, _down(one.interval[1]), _down(one.interval[0]))
            for run, one in of_runs.items()
            if one.interval is not None
        ],
    )
