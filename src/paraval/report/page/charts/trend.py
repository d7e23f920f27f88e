"""A suite's history, one line per variant: pass rate with its interval, cost and time by run.

Each variant has its own charts on shared axes, side by side, so that sixty of them need neither
sixty colors nor a legend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.report.page.charts.data import TrendPoint, color_class
from paraval.report.page.charts.svg import (
    LONGEST_NAME,
    NOTHING,
    Scale,
    chart,
    element,
    level,
    note,
    number,
    scale_of,
    share,
    short,
    stretched,
    strip,
    tick_text,
    upright,
)
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent

_MOST_RUNS = 40
_MOST_SERIES = 60
_WIDTH = 1000
"""Size of the view box; it is stretched to the available width."""
_HEIGHT = 64
_TOP = 14
"""The letters of changes are above it."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrendData:
    runs: Sequence[str]
    """The last runs, oldest first."""
    series: Mapping[str, Mapping[int, TrendPoint]]
    """By label: its points, by the run's number."""
    changes: Mapping[int, tuple[str, tuple[str, ...]]]
    """From which run on what changed, with a letter while there are letters."""
    older: int
    """Number of runs that are not drawn."""

    def at(self, run: int) -> float:
        """A run's position, from 0 to 1."""
        return (run + 0.5) / len(self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """What is drawn for each variant."""

    field: str
    """Of a point."""
    heading: str
    say: Callable[[float], str]
    scale: Scale

    def values(self, of_runs: Mapping[int, TrendPoint]) -> dict[int, float]:
        told = {run: getattr(point, self.field) for run, point in of_runs.items()}
        return {run: value for run, value in told.items() if value is not None}

    def down(self, value: float) -> float:
        """How far below the top of its chart a value is."""
        return _TOP + (_HEIGHT - _TOP - 2) * (1 - self.scale.place(value))


def trend(points: Sequence[TrendPoint]) -> Markup:
    """Points of the oldest run first; empty if there are none."""
    if not points:
        return NOTHING
    history = _history(points)
    figures = list(_figures(points))
    shown = list(history.series.items())[:_MOST_SERIES]
    rows = [
        element(
            "div",
            _name(label),
            *(_panel(label, of_runs, figure, history) for figure in figures),
            class_=f"row {color_class(index, len(shown))}".rstrip(),
        )
        for index, (label, of_runs) in enumerate(shown)
    ]
    return chart(
        f"trend figures-{len(figures)}",
        element("div", *rows, class_="rows"),
        _changes(history),
        note(_runs(history), _left_out(history)),
    )


def _history(points: Sequence[TrendPoint]) -> _TrendData:
    runs = list(dict.fromkeys(point.run for point in points))
    shown = runs[-_MOST_RUNS:]
    numbers = {run: index for index, run in enumerate(shown)}
    series: dict[str, dict[int, TrendPoint]] = {}
    changed: dict[int, tuple[str, ...]] = {}
    for point in points:
        if point.run in numbers:
            series.setdefault(point.series, {})[numbers[point.run]] = point
            if point.changed:
                changed[numbers[point.run]] = point.changed
    changes = {
        run: (_LETTERS[index : index + 1], what)
        for index, (run, what) in enumerate(changed.items())
    }
    return _TrendData(runs=shown, series=series, changes=changes, older=len(runs) - len(shown))


def _figures(points: Sequence[TrendPoint]) -> Iterator[_Figure]:
    """The pass rate, and what else is known for any variant."""
    yield _Figure(field="rate", heading="pass rate", say=percent, scale=Scale(low=0.0, high=1.0))
    costs = [point.usd for point in points if point.usd is not None]
    if costs:
        yield _Figure(field="usd", heading="cost per trial", say=money, scale=scale_of(costs))
    times = [point.seconds for point in points if point.seconds is not None]
    if times:
        yield _Figure(field="seconds", heading="median time", say=duration, scale=scale_of(times))


def _name(label: str) -> Markup:
    name = short(label, LONGEST_NAME)
    return element("span", name, class_="name", title=None if name == label else label)


def _panel(
    label: str, of_runs: Mapping[int, TrendPoint], figure: _Figure, history: _TrendData
) -> Markup:
    values = figure.values(of_runs)
    last = figure.say(values[max(values)]) if values else UNKNOWN
    drawn = strip(
        _HEIGHT,
        _shapes(of_runs, figure, history),
        title=f"{short(label, LONGEST_NAME)}: {figure.heading}" if label else figure.heading,
        words=_words(list(values.values()), figure),
    )
    heading = element("span", f"{figure.heading} ", element("b", last), class_="heading")
    return element("div", heading, drawn, class_="panel")


def _shapes(
    of_runs: Mapping[int, TrendPoint], figure: _Figure, history: _TrendData
) -> Iterator[Markup]:
    for run, (mark, _) in history.changes.items():
        yield upright(history.at(run), _TOP, _HEIGHT, "change")
        yield tick_text(history.at(run), _TOP - 3, mark)
    if figure.field == "rate":
        for value in (0.0, 1.0):
            yield level(0.0, 1.0, figure.down(value), "zero")
            # Beside the lines: above them stand the marks of changes.
            y = figure.down(value) + 4
            yield element("text", figure.say(value), x="100%", dx=4, y=y, text_anchor="start")
        for run, point in of_runs.items():
            if point.interval is not None:
                low, high = map(figure.down, point.interval)
                yield upright(history.at(run), high, low, "whisker")
    values = figure.values(of_runs)
    ways = [
        "L".join(
            f"{number(_WIDTH * history.at(run))} {number(figure.down(values[run]))}" for run in runs
        )
        for runs in _stretches(values)
    ]
    yield stretched(_WIDTH, _HEIGHT, *(element("path", d=f"M{way}", class_="way") for way in ways))
    for run, value in values.items():
        at = share(history.at(run))
        yield element("circle", cx=at, cy=figure.down(value), r=3, class_="one")


def _stretches(runs: Iterable[int]) -> list[list[int]]:
    """Consecutive runs: the line is broken where a run has no figure."""
    stretches: list[list[int]] = []
    for run in runs:
        if stretches and stretches[-1][-1] == run - 1:
            stretches[-1].append(run)
        else:
            stretches.append([run])
    return stretches


def _words(values: Sequence[float], figure: _Figure) -> str:
    told = [figure.say(value) for value in values]
    if not told:
        return "Unknown for all runs."
    if len(told) == 1:
        return f"{told[0]} in one run."
    return f"From {told[0]} to {told[-1]} over {counted(len(told), 'run')}: {', '.join(told)}."


def _changes(history: _TrendData) -> Markup | None:
    """What the dashed lines mean."""
    if not history.changes:
        return None
    told = [
        element("li", element("b", mark), f" {_run(history, run)}: {listed(what)} changed")
        for run, (mark, what) in history.changes.items()
    ]
    return element("ul", *told, class_="changes")


def _run(history: _TrendData, run: int) -> str:
    return short(history.runs[run], LONGEST_NAME)


def _runs(history: _TrendData) -> str:
    first, last = _run(history, 0), _run(history, -1)
    if len(history.runs) == 1:
        return f"One run: {first}."
    return f"{counted(len(history.runs), 'run')}, from {first} to {last}."


def _left_out(history: _TrendData) -> str:
    older = f"{counted(history.older, 'older run')} left out." if history.older else ""
    more = len(history.series) - _MOST_SERIES
    return f"{older} {counted(more, 'variant')} left out." if more > 0 else older
