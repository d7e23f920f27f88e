"""The comparisons of a run as its answer, and the cases that broke, were mended or are flaky."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from paraval.report.compare.comparison import Comparison, Finding, Method
from paraval.report.compare.outline import ChangedCases
from paraval.report.compare.sentences import details, evidence, heading, headline, not_made, notes
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
from paraval.report.page.cases import LONGEST_NAME
from paraval.report.page.charts.data import ForestRow
from paraval.report.page.charts.forest import forest, reach_of
from paraval.text.terminal import one_line

# The cases that broke, were mended or are flaky, as lists of a page: the first are read at once,
# others are there to be opened.

_IN_PLAIN_SIGHT = 20
_LONGEST_REASON = 300
_SIGNS = {"broke": ("wrong", "✗"), "mended": ("pass", "✓"), "flaky": ("skip", "±")}
"""The class of a line, and its sign: nothing is told by color alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedCase:
    name: str
    why: str
    """Why it failed on the side where it did; empty where both are mixed."""
    anchor: str
    """Of its section on the page; empty where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedList:
    """Cases that changed in one way."""

    style: str
    sign: str
    heading: str
    cases: tuple[TurnedCase, ...]
    more: tuple[TurnedCase, ...]
    left_out: str
    """How many are not on the page, and where they are; or empty."""


def turned_lists(
    lists: Sequence[ChangedCases], anchors: Mapping[str, str], elsewhere: str
) -> Iterator[TurnedList]:
    """`anchors`: of the cases that have a section; `elsewhere`: the command that tells all."""
    for one in lists:
        style, sign = _SIGNS[one.kind]
        cases = tuple(
            TurnedCase(
                name=one_line(name, LONGEST_NAME),
                why=one_line(why, _LONGEST_REASON),
                anchor=anchors.get(name, ""),
            )
            for name, why in one.cases
        )
        yield TurnedList(
            style=style,
            sign=sign,
            heading=one.heading,
            cases=cases[:_IN_PLAIN_SIGHT],
            more=cases[_IN_PLAIN_SIGHT:],
            left_out=f"… and {one.more:,} more: {elsewhere}" if one.more else "",
        )


_LONGEST_NAME = 80
IN_PLAIN_SIGHT = 12
"""Answers that are read at once; more are there to be opened."""
KINDS = {
    Finding.BETTER: ("better", "▲"),
    Finding.WORSE: ("worse", "▼"),
    Finding.NOT_SHOWN: ("open", "○"),
}
"""The class of an answer, and its mark: nothing is told by color alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonAnswer:
    """One comparison in words."""

    kind: str
    """better, worse or open."""
    mark: str
    headline: str
    evidence: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGroup:
    """What was compared by one axis."""

    heading: str
    answers: tuple[ComparisonAnswer, ...]
    more: tuple[ComparisonAnswer, ...]
    forest: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    groups: tuple[AnswerGroup, ...]
    """None where there is nothing to compare."""
    is_single: bool
    """True: there is one comparison, and room to tell all of it."""
    left_out: str
    """A word on what was not compared, or empty."""


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
    """By axis; `answering` says each, where that is not about pass rates."""
    # One axis of points for all: differences of two axes are read against one another.
    reach = reach_of(list(forest_rows(made)))
    room = IN_PLAIN_SIGHT
    for axis, family in groupby(made, key=lambda comparison: comparison.axis):
        # What is shown comes first: it is what one looks for.
        comparisons = sorted(family, key=lambda each: each.finding is Finding.NOT_SHOWN)
        answers = [answering(comparison) for comparison in comparisons]
        yield AnswerGroup(
            heading=heading(axis, named, going_on=going_on),
            answers=tuple(answers[:room]),
            more=tuple(answers[room:]),
            forest=forest(list(forest_rows(comparisons)), reach),
        )
        room = max(0, room - len(answers))


def forest_rows(comparisons: Sequence[Comparison]) -> Iterator[ForestRow]:
    for comparison in comparisons:
        names = f"{comparison.subject.label} against {comparison.reference.label}"
        yield from forest_row(comparison, names)


def forest_row(comparison: Comparison, label: str) -> Iterator[ForestRow]:
    """None where there is nothing to draw."""
    passing = comparison.passing
    if passing is not None and passing.method is not Method.NONE:
        yield ForestRow(
            label=label,
            difference=passing.mean,
            interval=passing.interval,
            shown=comparison.finding is not Finding.NOT_SHOWN,
        )


def named(text: str) -> str:
    return one_line(text, _LONGEST_NAME)
