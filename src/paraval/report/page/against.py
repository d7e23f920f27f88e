"""A run beside the baseline that its gate holds it against: what the difference is, and which cases
turned. Whether that is too large a drop, the gate says above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from markupsafe import Markup

from paraval.errors import ParavalError
from paraval.report.comparing.comparison import Comparison, Method
from paraval.report.comparing.points import signed_range
from paraval.report.contents import Contents
from paraval.report.gate import DropVerdict
from paraval.report.page.answers import IN_PLAIN_SIGHT, Answer, answer_of, forest_row, named
from paraval.report.page.charts.data import ForestRow
from paraval.report.page.charts.forest import forest
from paraval.report.page.figures import MOST_LISTED, case_anchor
from paraval.report.page.turned import TurnedList, turned_lists
from paraval.report.reading_back import ReportFile
from paraval.report.versus.held import Held, Question, Versus
from paraval.report.versus.story import Story, story_of
from paraval.report.wording import variant_label

_NOW, _BEFORE = "this run", "the baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What a page tells of it."""

    answer: Answer
    forest: Markup
    lines: tuple[str, ...]
    """What stands beside the answer, a sentence or a figure each."""
    lists: tuple[TurnedList, ...]
    linked_cases: frozenset[str]
    """By the anchors of their sections."""


def against_of(contents: Contents) -> Against | None:
    """None where the run is held against nothing, or the gate could not judge by it."""
    drop, reference = contents.gate.baseline, contents.reference
    if drop is None or reference is None:
        return None
    try:
        versus = Versus(_now(contents), _before(reference, drop), Question())
        story = story_of(versus, named, most=MOST_LISTED, drop=None)
    except ParavalError:
        # No variant in common, or a file that is gone by now: the gate's sentence says so.
        return None
    anchors = _anchors(contents, story)
    elsewhere = f"paraval compare {named(drop.baseline)} {contents.run.id} --all"
    answer = replace(answer_of(versus.comparison), details=())
    return Against(
        answer=replace(answer, headline=answer.headline[:1].upper() + answer.headline[1:]),
        forest=forest(list(_rows(versus))),
        lines=(*_gate_interval(versus.comparison, drop), *_lines(story)),
        lists=tuple(turned_lists(story.lists, anchors, elsewhere)),
        linked_cases=frozenset(anchors.values()),
    )


def _now(contents: Contents) -> Held:
    return Held(label=_NOW, name=contents.run.id, contents=contents)


def _before(reference: Contents, drop: DropVerdict) -> Held:
    source = reference.source
    tells_run = not isinstance(source, ReportFile) or source.tells_run
    return Held(label=_BEFORE, name=drop.baseline, contents=reference, tells_run=tells_run)


def _rows(versus: Versus) -> Iterator[ForestRow]:
    """All of it, and where they are few each variant by itself."""
    yield from forest_row(versus.comparison, f"{_NOW} against {_BEFORE}")
    if len(versus.by_variant) <= IN_PLAIN_SIGHT:
        for variant, comparison in versus.by_variant:
            yield from forest_row(comparison, variant_label(variant))


def _gate_interval(comparison: Comparison, drop: DropVerdict) -> Iterator[str]:
    """Where two intervals of one difference stand on a page, it says why."""
    passing, change = comparison.passing, drop.change
    if passing is None or change is None or passing.method is Method.NONE:
        return
    judged = signed_range(change.interval)
    if judged != signed_range(passing.interval):
        yield (
            f"The gate judges by {judged}: what it rules out must be so also where cases are few,"
            " or verdicts are missing."
        )


def _lines(story: Story) -> Iterator[str]:
    yield f"baseline: {story.reference}"
    yield from story.figures
    yield from story.notices


def _anchors(contents: Contents, story: Story) -> dict[str, str]:
    listed = {name for one in story.lists for name, _ in one.cases}
    rows = enumerate(contents.book.rows())
    return {case: case_anchor(number) for number, (case, _) in rows if case in listed}
