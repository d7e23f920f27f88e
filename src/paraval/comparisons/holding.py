"""From two sides that were found to one held against the other."""

from __future__ import annotations

from paraval.comparisons.sides import Opened
from paraval.errors import RequestError
from paraval.report.contents import Contents
from paraval.report.part import Part, choice_text, require_trials, side_by_side
from paraval.report.versus.held import Held, Question, Versus


def held_against(reference: Opened, subject: Opened, question: Question) -> Versus:
    """RequestError where they are the same, or a part of one is not there."""
    _refuse_the_same(reference, subject)
    parts = side_by_side((reference.source, reference.choice), (subject.source, subject.choice))
    opened = (reference, subject)
    labels = _labels(*opened)
    one, other = (_held(*each) for each in zip(opened, parts, labels, strict=True))
    return Versus(other, one, question)


def alone(opened: Opened) -> tuple[str, Contents]:
    """A side by itself, whose own variants are compared: what it is called, and what is in it."""
    if not opened.choice:
        return opened.name, Contents(opened.source)
    part, _ = side_by_side((opened.source, opened.choice), (opened.source, opened.choice))
    require_trials(part, opened.name)
    return f"{opened.name} ({choice_text(opened.choice)})", Contents(part)


def _held(opened: Opened, part: Part, label: str) -> Held:
    require_trials(part, opened.name)
    return Held(
        label=label,
        name=opened.name,
        contents=Contents(part),
        choice=opened.choice,
        tells_run=opened.tells_run,
    )


def _refuse_the_same(one: Opened, other: Opened) -> None:
    """A trial that is on both sides tells nothing."""
    both = one.choice.keys() & other.choice.keys()
    if one.name == other.name and all(one.choice[axis] == other.choice[axis] for axis in both):
        raise RequestError(
            f"both sides hold trials of {one.name} that are the same",
            hint="name two runs, or two values of an axis: paraval compare AXIS=VALUE AXIS=OTHER",
        )


def _labels(reference: Opened, subject: Opened) -> tuple[str, str]:
    """What they are called in sentences: parts of one run by their values, others by a letter,
    since ids are hard to tell apart; which is which stands below."""
    if reference.name != subject.name:
        return "A", "B"
    return " · ".join(reference.choice.values()), " · ".join(subject.choice.values())
