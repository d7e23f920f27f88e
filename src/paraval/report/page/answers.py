"""The comparisons of a run as its answer: a sentence each, with the line that draws it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from paraval.report.contents import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    finding: str
    sentence: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGroup:
    """What was compared by one axis."""

    heading: str
    answers: tuple[Answer, ...]
    forest: Markup


def answers_of(contents: Contents) -> tuple[AnswerGroup, ...]:
    """Empty where there is nothing to compare."""
    return ()
