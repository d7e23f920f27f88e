"""The comparisons of a run as its answer: a headline each, what it rests on below it in small, and
the lines that draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from paraval.report.comparing.axes import number_left_out
from paraval.report.comparing.comparison import Comparison, Finding, Method
from paraval.report.comparing.sentences import (
    details,
    evidence,
    heading,
    headline,
    not_made,
    notes,
)
from paraval.report.contents import Contents
from paraval.report.page.charts.data import ForestRow
from paraval.report.page.charts.forest import forest, reach_of
from paraval.report.text import one_line

_LONGEST_NAME = 80
IN_PLAIN_SIGHT = 12
"""Answers that are read at once; more are there to be opened."""
KINDS = {
    Finding.BETTER: ("better", "▲"),
    Finding.WORSE: ("worse", "▼"),
    Finding.NOT_SHOWN: ("open", "○"),
}
"""The class of an answer, and its mark: nothing is told by colour alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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
    answers: tuple[Answer, ...]
    more: tuple[Answer, ...]
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


def answer_of(comparison: Comparison) -> Answer:
    kind, mark = KINDS[comparison.finding]
    return Answer(
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
    answering: Callable[[Comparison], Answer] = answer_of,
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
