"""A suite's history, a line a variant: pass rate with its interval, cost and time, run by run.

Each variant has drawings of its own on the same axes, side by side, so that sixty of them need
neither sixty colours nor a legend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from paraval.report.page.charts.data import TrendPoint, colour_class
from paraval.report.page.charts.svg import (
    LONGEST_NAME,
    NOTHING,
    Scale,
    chart,
    element,
    finite,
    level,
    note,
    number,
    scale_of,
    share,
    short,
    strip,
    tick_text,
    upright,
)
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent

_MOST_RUNS = 60
_MOST_SERIES = 60
_WIDTH = 1000
"""Of the paper that lines are drawn on; it is stretched to the width there is."""
_TOP = 14
"""Above it stand the letters of changes."""
_MOST_DOTS = 30
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrendData:
    runs: Sequence[str]
    """The last ones, oldest first."""
    series: Mapping[str, Mapping[int, TrendPoint]]
    """By label: its points, by the run's number."""
    changes: Mapping[int, tuple[str, ...]]
    """What was another from a run on."""
    older: int
    """Runs that are not drawn."""

    def at(self, run: int) -> float:
        """Where a run stands, from 0 to 1."""
        return (run + 0.5) / len(self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """What is drawn of each variant."""

    field: str
    """Of a point."""
    heading: str
    say: Callable[[float], str]
    scale: Scale
    height: int


def trend(points: Sequence[TrendPoint]) -> Markup:
    """Points in any order; nothing where there is none."""
    if not points:
        return NOTHING
    history = _history(points)
    figures = _figures(history)
    shown = list(history.series.items())[:_MOST_SERIES]
    rows = [
        element("div", *_row(label, of_runs, figures, history), class_=f"row {colour}".rstrip())
        for colour, (label, of_runs) in zip(_colours(len(shown)), shown, strict=True)
    ]
    return chart(
        f"trend figures-{len(figures)}",
        element("div", *rows, class_="rows"),
        _changes(history),
        note(_runs(history), _left_out(history)),
    )


def _history(points: Sequence[TrendPoint]) -> _TrendData:
    begun: dict[str, float] = {}
    for point in points:
        begun[point.run] = min(point.at, begun.get(point.run, point.at))
    runs = sorted(begun, key=lambda run: begun[run])
    shown = runs[-_MOST_RUNS:]
    numbers = {run: index for index, run in enumerate(shown)}
    series: dict[str, dict[int, TrendPoint]] = {}
    changes: dict[int, dict[str, None]] = {}
    for point in points:
        if point.run in numbers:
            run = numbers[point.run]
            series.setdefault(point.series, {})[run] = point
            changes.setdefault(run, {}).update(dict.fromkeys(point.changed))
    told = {run: tuple(changes[run]) for run in sorted(changes) if changes[run]}
    return _TrendData(runs=shown, series=series, changes=told, older=len(runs) - len(shown))


def _figures(history: _TrendData) -> list[_Figure]:
    """The pass rate, and beside it what is known of any variant."""
    rate = _Figure(
        field="rate", heading="pass rate", say=percent, scale=Scale(low=0.0, high=1.0), height=64
    )
    figures = [rate]
    for field, heading, say in (
        ("usd", "cost a trial", money),
        ("seconds", "median time", duration),
    ):
        known = [
            value
            for of_runs in history.series.values()
            for value in _values(of_runs, field).values()
        ]
        if known:
            scale = scale_of(known)
            figures.append(_Figure(field=field, heading=heading, say=say, scale=scale, height=64))
    return figures


def _values(of_runs: Mapping[int, TrendPoint], field: str) -> dict[int, float]:
    told = {run: finite(getattr(point, field)) for run, point in sorted(of_runs.items())}
    return {run: value for run, value in told.items() if value is not None and value >= 0}


def _row(
    label: str,
    of_runs: Mapping[int, TrendPoint],
    figures: Sequence[_Figure],
    history: _TrendData,
) -> Iterator[Markup]:
    name = short(label, LONGEST_NAME)
    yield element("span", name, class_="name", title=None if name == label else label)
    for figure in figures:
        yield _panel(label, of_runs, figure, history)


def _colours(variants: int) -> list[str]:
    return [colour_class(index, variants) for index in range(variants)]


def _panel(
    label: str, of_runs: Mapping[int, TrendPoint], figure: _Figure, history: _TrendData
) -> Markup:
    values = _values(of_runs, figure.field)
    last = figure.say(values[max(values)]) if values else UNKNOWN
    drawn = strip(
        figure.height,
        _shapes(of_runs, values, figure, history),
        title=f"{short(label, LONGEST_NAME)}: {figure.heading}" if label else figure.heading,
        words=_words(values, figure),
    )
    heading = element("span", f"{figure.heading} ", element("b", last), class_="heading")
    return element("div", heading, drawn, class_="panel")


def _shapes(
    of_runs: Mapping[int, TrendPoint],
    values: Mapping[int, float],
    figure: _Figure,
    history: _TrendData,
) -> Iterator[Markup]:
    for run, mark in zip(history.changes, _marks(history), strict=True):
        yield upright(history.at(run), _TOP, figure.height, "change")
        yield tick_text(history.at(run), _TOP - 3, mark)
    for value in (figure.scale.low, figure.scale.high) if figure.field == "rate" else ():
        yield level(0.0, 1.0, _down(value, figure), "zero")
        yield tick_text(1.0, _down(value, figure) - 3, figure.say(value))
    yield _stretched(of_runs, values, figure, history)
    drawn = (
        values if len(history.runs) <= _MOST_DOTS else {run: values[run] for run in [*values][-1:]}
    )
    for run, value in drawn.items():
        yield element(
            "circle", cx=share(history.at(run)), cy=_down(value, figure), r=3, class_="one"
        )


def _down(value: float, figure: _Figure) -> float:
    """How far below the top of its drawing a value stands."""
    return _TOP + (figure.height - _TOP - 2) * (1 - figure.scale.place(value))


def _marks(history: _TrendData) -> list[str]:
    """A letter for each change, as long as there are letters."""
    return [_LETTERS[index : index + 1] for index in range(len(history.changes))]


def _stretched(
    of_runs: Mapping[int, TrendPoint],
    values: Mapping[int, float],
    figure: _Figure,
    history: _TrendData,
) -> Markup:
    """The line and the band of intervals: broken where a run has no figure."""

    def across(run: int) -> str:
        return number(_WIDTH * history.at(run))

    parts = []
    bands = _intervals(of_runs) if figure.field == "rate" else {}
    for stretch in _stretches(sorted(bands)):
        above = [f"{across(run)} {number(_down(bands[run][1], figure))}" for run in stretch]
        below = [
            f"{across(run)} {number(_down(bands[run][0], figure))}" for run in reversed(stretch)
        ]
        # One run alone has no width: it gets an upright line.
        kind = "band" if len(stretch) > 1 else "whisker"
        parts.append(element("path", d=f"M{'L'.join(above + below)}Z", class_=kind))
    for stretch in _stretches(list(values)):
        way = "L".join(f"{across(run)} {number(_down(values[run], figure))}" for run in stretch)
        parts.append(element("path", d=f"M{way}", class_="way"))
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH} {figure.height}",
        preserveAspectRatio="none",
        width="100%",
        height=figure.height,
    )


def _intervals(of_runs: Mapping[int, TrendPoint]) -> dict[int, tuple[float, float]]:
    known = {}
    for run, point in of_runs.items():
        low, high = map(finite, point.interval or (None, None))
        if low is not None and high is not None and finite(point.rate) is not None:
            known[run] = (low, high)
    return known


def _stretches(runs: Sequence[int]) -> list[list[int]]:
    """Runs that follow one another without a hole."""
    stretches: list[list[int]] = []
    for run in runs:
        if stretches and stretches[-1][-1] == run - 1:
            stretches[-1].append(run)
        else:
            stretches.append([run])
    return stretches


def _words(values: Mapping[int, float], figure: _Figure) -> str:
    if not values:
        return "Not known of any run."
    told = [figure.say(value) for value in values.values()]
    if len(told) == 1:
        return f"{told[0]} in one run."
    return f"From {told[0]} to {told[-1]} over {counted(len(told), 'run')}: {', '.join(told)}."


def _changes(history: _TrendData) -> Markup | None:
    """What the dashed lines stand for."""
    if not history.changes:
        return None
    told = [
        element("li", element("b", mark), f" {_run(history, run)}: {_what(what)} changed")
        for mark, (run, what) in zip(_marks(history), history.changes.items(), strict=True)
    ]
    return element("ul", *told, class_="changes")


def _run(history: _TrendData, run: int) -> str:
    return short(history.runs[run], LONGEST_NAME)


def _what(changed: Sequence[str]) -> str:
    return listed(short(what, 40) for what in changed[:6]) + (
        " and more" if len(changed) > 6 else ""
    )


def _runs(history: _TrendData) -> str:
    first, last = _run(history, 0), _run(history, -1)
    if len(history.runs) == 1:
        return f"One run: {first}."
    return f"{counted(len(history.runs), 'run')}, from {first} to {last}."


def _left_out(history: _TrendData) -> str:
    older = f"{counted(history.older, 'older run')} left out." if history.older else ""
    more = len(history.series) - _MOST_SERIES
    return f"{older} {counted(more, 'variant')} left out." if more > 0 else older
