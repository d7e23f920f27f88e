"""A comparison as one self-contained page: no script, no network.

It has the same contents as the terminal, in the style of a run's page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from paraval.records import Case
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.compute import finding_of
from paraval.report.compare.outline import (
    ChangedCase,
    ChangedCases,
    headline,
    show_commands,
    story_of,
)
from paraval.report.compare.sentences import not_made
from paraval.report.compare.two_runs import ComparedMetric, SideComparison
from paraval.report.compare.within_run import VariantComparisons, both_answers, details_of
from paraval.report.gate import DropVerdict
from paraval.report.page.answers import (
    IN_PLAIN_SIGHT,
    KINDS,
    Answers,
    ComparisonAnswer,
    answer_of,
    axis_of,
    groups_of,
    named,
    plotted,
    shared_reach,
    turned_lists,
    variant_answer,
)
from paraval.report.page.figures import case_anchor
from paraval.report.page.heading import MARKS, Fact
from paraval.report.page.rendering import policy, rendered, style
from paraval.report.page.side_by_side import CaseColumns, asked_of
from paraval.text.terminal import one_line
from paraval.text.words import variant_label

_MOST_CASES = 2_000
"""Cases shown of each list."""
_MOST_ANSWERS = 100
"""Cases of each list whose two answers are shown."""
_MOST_NAMED = 20
_LONGEST_NAME = 200
_LONGEST_COMMAND = 400


def versus_page(versus: SideComparison, drop: DropVerdict | None) -> str:
    story = story_of(versus, _named, most=_MOST_CASES, drop=drop, answers=_MOST_ANSWERS)
    shown = {one.subject.case_id for each in story.lists for one in each.cases if one.subject}
    known = {case.id: case for case in versus.subject.contents.cases() if case.id in shown}
    metric = versus.question.metric
    every = [versus.comparison, *(comparison for _, comparison in versus.by_variant)]
    # All plots share one axis of points, so that they can be compared.
    reach = shared_reach(every)
    whole = replace(_answer(versus.comparison, metric), details=())
    (answer,) = plotted([(whole, versus.comparison)], reach)
    variants = plotted(
        ((variant_answer(variant_label(one), found), found) for one, found in versus.by_variant),
        reach,
    )
    return rendered(
        "versus.html",
        policy=policy(),
        style=style(),
        title=_title(versus),
        gate=drop,
        gate_mark="" if drop is None else MARKS[drop.verdict],
        facts=[
            Fact(name=_named(versus.reference.label), value=story.reference),
            Fact(name=_named(versus.subject.label), value=story.subject),
        ],
        answer=answer,
        axis=axis_of([answer], reach),
        notices=story.notices,
        table=story.table,
        figures=story.figures,
        by_variant=variants[:IN_PLAIN_SIGHT],
        more_variants=variants[IN_PLAIN_SIGHT:],
        lists=list(
            turned_lists(
                story.lists,
                _anchors(story.lists),
                "-o comparison.json has all of them",
                lambda case: _both_answers(case, known, versus),
            )
        ),
    )


def _anchors(lists: Sequence[ChangedCases]) -> dict[str, str]:
    """Of the cases whose answers are shown."""
    shown = (case.name for one in lists for case in one.cases if case.subject is not None)
    return {name: case_anchor(number) for number, name in enumerate(shown)}


def _both_answers(
    case: ChangedCase, known: Mapping[str, Case], versus: SideComparison
) -> Markup | None:
    """The reference and the subject, side by side."""
    if case.reference is None or case.subject is None:
        return None
    asked = known.get(case.subject.case_id)
    columns = CaseColumns(asked, linked=False)
    for side, one in ((versus.reference, case.reference), (versus.subject, case.subject)):
        # Named by its side: the variant is that of the list, and the same in both.
        result = replace(one, variant={"side": side.label})
        sent = columns.asked(result, side.contents.exchanges(result.index))
        columns.add(result, columns.body(result, side.run, (), sent))
    return rendered(
        "compared_case.html",
        asked=asked_of(asked),
        columns=columns.html(),
        commands=show_commands(versus, case.subject.case_id),
    )


def within_page(within: VariantComparisons) -> str:
    def answering(comparison: Comparison) -> ComparisonAnswer:
        return _answer(comparison, within.metric)

    going_on = within.run.running
    groups = groups_of(within.comparisons, going_on=going_on, answering=answering)
    return rendered(
        "within.html",
        policy=policy(),
        style=style(),
        title=_named(within.run.suite),
        gate=None,
        facts=[Fact(name="run", value=_named(within.name))],
        both_answers=one_line(both_answers(within), _LONGEST_COMMAND),
        answers=Answers(
            groups=tuple(groups),
            is_single=len(within.comparisons) == 1,
            left_out=f"{not_made(within.not_made)}." if within.not_made else "",
        ),
    )


def _answer(comparison: Comparison, metric: ComparedMetric) -> ComparisonAnswer:
    """The answer by the chosen metric: pass rates, or scores if they add something."""
    details = tuple(details_of(comparison, metric, named, _MOST_NAMED))
    score = comparison.score
    if metric is ComparedMetric.PASS or score is None:
        return replace(answer_of(comparison), details=details)
    kind, mark = KINDS[finding_of(score, comparison.confidence)]
    told = headline(comparison, metric, named)
    return ComparisonAnswer(kind=kind, mark=mark, headline=told, evidence="", details=details)


def _names(comparison: Comparison) -> str:
    return f"{comparison.subject.label} vs {comparison.reference.label}"


def _title(versus: SideComparison) -> str:
    subject = versus.subject
    return _named(subject.run.suite) if subject.tells_run else _named(_names(versus.comparison))


def _named(text: str) -> str:
    return one_line(text, _LONGEST_NAME)
