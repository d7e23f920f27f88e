"""The comparisons of a run, and the cases that regressed, were fixed or are flaky."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.report.compare.comparison import Comparison, Finding, Method
from paraval.report.compare.outline import ChangedCase, ChangedCases
from paraval.report.compare.sentences import details, evidence, heading, headline, not_made, notes
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
from paraval.report.page.charts.data import DifferenceRow
from paraval.report.page.charts.intervals import interval_axis, interval_plot, reach_of
from paraval.report.page.side_by_side import LONGEST_NAME
from paraval.text.terminal import one_line

# Lists of cases that regressed, were fixed or are flaky: the first are visible, the rest folded.

_IN_PLAIN_SIGHT = 20
_LONGEST_REASON = 300
_SIGNS = {"broke": ("wrong", "✗"), "mended": ("pass", "✓"), "flaky": ("skip", "±")}
"""CSS class of a line, and its sign: color is never the only signal."""
_ANCHORS = {"broke": "regressed", "mended": "fixed", "flaky": "flaky"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedCase:
    name: str
    why: str
    """Why it failed on the side where it did; empty if both are mixed."""
    anchor: str
    """Anchor of its section on the page; empty if it has none."""
    beside: Markup | None = None
    """Both sides' answers, on the page of a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedList:
    """Cases that changed in the same way."""

    anchor: str
    style: str
    sign: str
    heading: str
    cases: tuple[TurnedCase, ...]
    more: tuple[TurnedCase, ...]
    left_out: str
    """How many are not on the page, and where to find them; or empty."""


def turned_lists(
    lists: Sequence[ChangedCases],
    anchors: Mapping[str, str],
    elsewhere: str,
    beside: Callable[[ChangedCase], Markup | None] = lambda _: None,
) -> Iterator[TurnedList]:
    """`anchors`: of the cases that have a section; `elsewhere`: the command that lists all;
    `beside`: both answers of a case."""
    for one in lists:
        style, sign = _SIGNS[one.kind]
        is_past = one.kind == "mended"
        cases = tuple(
            TurnedCase(
                name=one_line(case.name, LONGEST_NAME),
                why=one_line(f"was: {case.why}" if is_past else case.why, _LONGEST_REASON),
                anchor=anchors.get(case.name, ""),
                beside=beside(case),
            )
            for case in one.cases
        )
        yield TurnedList(
            anchor=_ANCHORS[one.kind],
            style=style,
            sign=sign,
            heading=one.heading,
            cases=cases[:_IN_PLAIN_SIGHT],
            more=cases[_IN_PLAIN_SIGHT:],
            left_out=f"… and {one.more:,} more: {elsewhere}" if one.more else "",
        )


_LONGEST_NAME = 80
IN_PLAIN_SIGHT = 12
"""Answers that are visible; the rest are folded."""
KINDS = {
    Finding.BETTER: ("better", "▲"),
    Finding.WORSE: ("worse", "▼"),
    Finding.NOT_SHOWN: ("open", "○"),
}
"""CSS class of an answer, and its mark: color is never the only signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonAnswer:
    """One comparison in words."""

    kind: str
    """better, worse or open."""
    mark: str
    headline: str
    evidence: str
    details: tuple[str, ...]
    plot: Markup | None = None
    """Its interval; None if there is nothing to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGroup:
    """The comparisons along one axis."""

    heading: str
    answers: tuple[ComparisonAnswer, ...]
    more: tuple[ComparisonAnswer, ...]
    axis: Markup | None
    """Of all plots; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    groups: tuple[AnswerGroup, ...]
    """None if there is nothing to compare."""
    is_single: bool
    """True: there is only one comparison, with room for its details."""
    left_out: str
    """A note about what was not compared, or empty."""


def answers_of(contents: Contents) -> Answers:
    left_out = number_left_out(contents.book)
    return Answers(
        groups=tuple(groups_of(contents.comparisons, going_on=contents.run.running)),
        is_single=len(contents.comparisons) == 1,
        left_out=f"{not_made(left_out)}." if left_out else "",
    )


def answer_of(comparison: Comparison) -> ComparisonAnswer:
    kind, mark = KINDS[comparison.finding]
    return ComparisonAnswer(
        kind=kind,
        mark=mark,
        headline=headline(comparison, named),
        evidence=evidence(comparison),
        details=(*notes(comparison, named), *details(comparison, named)),
    )


def groups_of(
    made: Sequence[Comparison],
    *,
    going_on: bool,
    answering: Callable[[Comparison], ComparisonAnswer] = answer_of,
) -> Iterator[AnswerGroup]:
    """Comparisons by axis; `answering` words each one that is not about pass rates."""
    # One scale in points for all plots, so that differences can be compared across axes.
    reach = shared_reach(made)
    room = IN_PLAIN_SIGHT
    for axis, family in groupby(made, key=lambda comparison: comparison.axis):
        # Shown differences come first: they are what readers look for.
        comparisons = sorted(family, key=lambda each: each.finding is Finding.NOT_SHOWN)
        answers = plotted(((answering(one), one) for one in comparisons), reach)
        yield AnswerGroup(
            heading=heading(axis, named, going_on=going_on),
            answers=tuple(answers[:room]),
            more=tuple(answers[room:]),
            axis=axis_of(answers, reach),
        )
        room = max(0, room - len(answers))


def variant_answer(label: str, comparison: Comparison) -> ComparisonAnswer:
    answer = answer_of(comparison)
    return replace(answer, headline=f"{named(label)}: {answer.headline}", details=())


def shared_reach(comparisons: Iterable[Comparison]) -> float:
    """The largest difference on the axis of all their plots."""
    return reach_of([row for one in comparisons for row in forest_row(one, "")])


def plotted(
    answers: Iterable[tuple[ComparisonAnswer, Comparison]], reach: float
) -> list[ComparisonAnswer]:
    """Answers, each with the interval of its comparison beside it."""
    return [
        replace(answer, plot=next((interval_plot(row, reach) for row in rows), None))
        for answer, comparison in answers
        for rows in [forest_row(comparison, answer.headline)]
    ]


def axis_of(answers: Sequence[ComparisonAnswer], reach: float) -> Markup | None:
    return interval_axis(reach) if any(answer.plot for answer in answers) else None


def forest_row(comparison: Comparison, label: str) -> Iterator[DifferenceRow]:
    """None if there is nothing to draw."""
    passing = comparison.passing
    if passing is not None and passing.method is not Method.NONE:
        yield DifferenceRow(
            label=label,
            difference=passing.mean,
            interval=passing.interval,
            shown=comparison.finding is not Finding.NOT_SHOWN,
        )


def named(text: str) -> str:
    return one_line(text, _LONGEST_NAME)
