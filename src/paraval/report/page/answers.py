"""The comparisons of a run as its answer: a headline each, what it rests on below it in small, and
the lines that draw them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_IN_PLAIN_SIGHT = 12
"""Answers that are read at once; more are there to be opened."""
_KINDS = {
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
        groups=tuple(_groups(contents)),
        is_single=len(contents.comparisons) == 1,
        left_out=f"{not_made(left_out)}." if left_out else "",
    )


def _groups(contents: Contents) -> Iterator[AnswerGroup]:
    made = contents.comparisons
    # One axis of points for all: differences of two axes are read against one another.
    reach = reach_of(list(_rows(made)))
    room = _IN_PLAIN_SIGHT
    for axis, family in groupby(made, key=lambda comparison: comparison.axis):
        # What is shown comes first: it is what one looks for.
        comparisons = sorted(family, key=lambda each: each.finding is Finding.NOT_SHOWN)
        answers = [_answer(comparison) for comparison in comparisons]
        yield AnswerGroup(
            heading=heading(axis, _named, going_on=contents.run.running),
            answers=tuple(answers[:room]),
            more=tuple(answers[room:]),
            forest=forest(list(_rows(comparisons)), reach),
        )
        room = max(0, room - len(answers))


def _answer(comparison: Comparison) -> Answer:
    kind, mark = _KINDS[comparison.finding]
    return Answer(
        kind=kind,
        mark=mark,
        headline=headline(comparison, _named),
        evidence=evidence(comparison),
        details=(*notes(comparison, _named), *details(comparison, _named)),
    )


def _rows(comparisons: Sequence[Comparison]) -> Iterator[ForestRow]:
    for comparison in comparisons:
        passing = comparison.passing
        if passing is None or passing.method is Method.NONE:
            continue
        yield ForestRow(
            label=f"{comparison.subject.label} against {comparison.reference.label}",
            difference=passing.mean,
            interval=passing.interval,
            shown=comparison.finding is not Finding.NOT_SHOWN,
        )


def _named(text: str) -> str:
    return one_line(text, _LONGEST_NAME)
