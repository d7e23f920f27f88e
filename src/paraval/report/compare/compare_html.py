"""A comparison as one self-contained page, with the contents of the terminal: no script, no
network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from paraval.records import Case
from paraval.report.compare.claims import not_made
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.comparison_text import (
    ChangedCase,
    VariantComparisons,
    both_answers,
    changed_cases,
    claim_by,
    details_of,
    show_commands,
    side_words,
    sides_table,
    versus_figures,
)
from paraval.report.compare.two_runs import ComparedMetric, SideComparison, notices_of
from paraval.report.gate import DropVerdict
from paraval.report.page.cases import CaseColumns, asked_html
from paraval.report.page.page import MARKS, Answer, answer_of, groups_of, named
from paraval.report.page.plots import KINDS, case_anchor, reach_of
from paraval.report.page.rendering import rendered, rendered_page
from paraval.text.terminal import one_line
from paraval.text.words import variant_label

_MOST_CASES = 2_000
"""Cases shown of each list ..."""
_MOST_ANSWERS = 100
"""... and of how many of them both answers."""


def comparison_page(found: SideComparison | VariantComparisons, drop: DropVerdict | None) -> str:
    return versus_page(found, drop) if isinstance(found, SideComparison) else within_page(found)


def versus_page(versus: SideComparison, drop: DropVerdict | None) -> str:
    lists = changed_cases(versus, _line, _MOST_CASES, _MOST_ANSWERS)
    answered = [case for one in lists for case in one.cases if case.subject is not None]
    ids = {case.subject.case_id for case in answered if case.subject is not None}
    known = {case.id: case for case in versus.subject.contents.source.cases() if case.id in ids}
    every = [versus.comparison, *(comparison for _, comparison in versus.by_variant)]
    subject, reference = versus.subject, versus.reference
    title = f"{versus.comparison.subject.label} vs {versus.comparison.reference.label}"
    answer = _answer(versus.comparison, versus.question.metric)._replace(details=())
    return _page(
        title=_line(subject.run.suite if subject.tells_run else title),
        verdict="" if drop is None else drop.verdict.value,
        mark="" if drop is None else MARKS[drop.verdict],
        sentence="" if drop is None else drop.sentence,
        facts=[(_line(side.label), side_words(side, _line)) for side in (reference, subject)],
        groups=[("", [answer])],
        reach=reach_of(every),
        notices=list(notices_of(versus, _line)),
        table=sides_table(versus, _line),
        figures=list(versus_figures(versus, _line)),
        variants=[answer_of(found, variant_label(one)) for one, found in versus.by_variant],
        lists=lists,
        anchors={case.name: case_anchor(number) for number, case in enumerate(answered)},
        beside=lambda case: _both_answers(case, known, versus),
    )


def within_page(within: VariantComparisons) -> str:
    def answering(comparison: Comparison) -> Answer:
        return _answer(comparison, within.metric)

    going_on, notices = within.run.running, [one_line(both_answers(within), 400)]
    if within.not_made:
        notices.insert(0, f"{not_made(within.not_made)}.")
    return _page(
        title=_line(within.run.suite),
        facts=[("run", _line(within.name))],
        groups=groups_of(within.comparisons, going_on=going_on, answering=answering),
        reach=reach_of(within.comparisons),
        notices=[one for one in notices if one],
    )


def _page(**values: Any) -> str:
    usual: dict[str, Any] = dict.fromkeys(("verdict", "mark", "sentence"), "")
    usual |= {"table": None, "figures": (), "variants": (), "lists": (), "anchors": {}}
    return "".join(rendered_page("versus.html", **(usual | {"beside": None} | values)))


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
        sent = columns.asked(result, side.contents.source.exchanges(result.index))
        columns.add(result, columns.body(result, side.run, (), sent))
    return rendered(
        "compared_case.html",
        asked=asked_html(asked),
        columns=columns.html(),
        commands=show_commands(versus, case.subject.case_id),
    )


def _answer(comparison: Comparison, metric: ComparedMetric) -> Answer:
    """The answer by the chosen metric."""
    details = tuple(details_of(comparison, metric, named))
    if metric is ComparedMetric.PASS or comparison.score is None:
        return answer_of(comparison)._replace(details=details)
    claim = claim_by(comparison, metric, named)
    return Answer(KINDS[claim.finding], claim.headline, claim.evidence, details, None)


def _line(text: str) -> str:
    return one_line(text, 200)
