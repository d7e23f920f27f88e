"""Comparisons as documents: two sides, and the variants of one run.

Names and reasons are untrusted text: the medium, or a `quote` function, makes them safe.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import Outcome, RunInfo, TrialResult, value_text
from paraval.report.compare.claims import (
    Claim,
    Quote,
    claim_of,
    figure_lines,
    heading,
    not_made,
    notes,
    score_claim,
    score_line,
    turned_lines,
)
from paraval.report.compare.comparison import Comparison, Method, Side
from paraval.report.compare.compute import finding_of
from paraval.report.compare.two_runs import (
    ComparedMetric,
    ComparisonSide,
    SideComparison,
    first_ended,
    notices_of,
)
from paraval.report.compare.variants import comparisons_of, number_left_out
from paraval.report.contents import Contents, choice_text
from paraval.report.gate import DropVerdict
from paraval.report.reasons import EMPTY_ANSWER, reason
from paraval.report.summary.figures import figures_of, figures_table, share
from paraval.text.document import Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Medium, Table, TableRow, list_of
from paraval.text.terminal import cut_middle
from paraval.text.words import counted, variant_label

BEFORE, AFTER = "before", "after"
"""Labels of the sides of a comparison of two runs; a variant may be called A or B."""
_MOST_CASES = 20
"""Cases shown of each list, unless all are requested."""
_MOST_IN_MARKDOWN = 500
_MOST_ANSWERS = 3
"""Cases of each list whose two answers are shown, unless all are requested."""
_MOST_NAMED = 20
_LONGEST_REASON = 300
_LONGEST_ANSWER = 2_000
_LONGEST_COMMAND = 400
_LONGEST_HEADING = 24


def claim_by(comparison: Comparison, metric: ComparedMetric, quote: Quote) -> Claim:
    """The claim by the chosen metric: pass rates, or scores if they add something."""
    score = comparison.score
    if metric is ComparedMetric.SCORE and score is not None:
        return score_claim(comparison, score, finding_of(score, comparison.confidence), quote)
    return claim_of(comparison, quote)


def details_of(
    comparison: Comparison, metric: ComparedMetric, quote: Quote, most: int | None = _MOST_NAMED
) -> Iterator[str]:
    """All results beside the claim; `most`: how many changed cases are named, None for all."""
    yield from _figures(comparison, metric, quote)
    yield from turned_lines(comparison, quote, most)


def _figures(comparison: Comparison, metric: ComparedMetric, quote: Quote) -> Iterator[str]:
    """Scores if the claim is about pass rates, and the other way round; time, cost, cases."""
    passing = comparison.passing
    if metric is ComparedMetric.PASS:
        yield from score_line(comparison)
    elif comparison.score is not None:
        yield claim_of(comparison, quote).sentence
    elif passing is not None:
        is_for_any_time = passing.method in (Method.ANYTIME, Method.NONE)
        why = "not compared if a run may stop early"
        yield f"score: {why if is_for_any_time else 'no more information than pass and fail'}"
    yield from figure_lines(comparison, quote)
    yield from notes(comparison, quote)


# ---- two sides


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCase:
    """A case that regressed, was fixed, or is flaky."""

    name: str
    """Its id, or `case · variant`."""
    why: str = ""
    """Why it failed on the side where it failed; empty for flaky cases."""
    reference: TrialResult | None = None
    """A trial of each side that ended as the list says; None if they are not shown."""
    subject: TrialResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCases:
    """Cases that changed in one way."""

    kind: str
    """`broke` (regressed), `mended` (fixed) or `flaky`."""
    heading: str
    cases: tuple[ChangedCase, ...]
    more: int
    """How many are not shown."""


def sides_table(versus: SideComparison, quote: Quote) -> Table:
    sides = (versus.reference, versus.subject)
    are_partial = versus.comparison.are_scores_partial
    has_scores = not are_partial and all(side.summary.has_same_graders for side in sides)
    shown = figures_of([side.summary for side in sides], has_scores=has_scores)
    names = (quote(cut_middle(side.label, _LONGEST_HEADING)) for side in sides)
    rows = zip(names, (side.summary for side in sides), strict=True)
    return figures_table("side", rows, shown)


def side_words(side: ComparisonSide, quote: Quote) -> str:
    """`20260131-120000-abcd (mode=new) of greetings, regraded from 20260130-120000-abcd`."""
    chosen = f" ({quote(choice_text(side.choice))})" if side.choice else ""
    suite = f" of {quote(side.run.suite)}" if side.tells_run else ""
    source = side.run.regraded_from
    regraded = "" if source is None else f", regraded from {quote(source)}"
    return f"{quote(side.name)}{chosen}{suite}{regraded}"


def versus_figures(versus: SideComparison, quote: Quote) -> Iterator[str]:
    """All results that are not in the claim."""
    comparison, passing = versus.comparison, versus.comparison.passing
    if versus.leaves_out and comparison.cases:
        # Otherwise these rates are in the table.
        before, after = (quote(side.label) for side in (versus.reference, versus.subject))
        now = f"{share(comparison.rate_subject)} {after}"
        yield f"of the compared cases, {share(comparison.rate_reference)} passed {before} and {now}"
    if passing is not None:
        level = comparison.cases - passing.wins - passing.losses
        yield f"cases: {passing.wins:,} ahead, {passing.losses:,} behind, {level:,} tied"
    yield from _figures(comparison, versus.question.metric, quote)


def versus_text(
    versus: SideComparison,
    out: Medium,
    drop: DropVerdict | None = None,
    *,
    every_case: bool = False,
    every_answer: bool = False,
) -> str:
    """`every_answer`: show both answers of all listed cases, and more of them than a line."""
    quote = out.quote
    most = None if every_case else out.most(_MOST_CASES, _MOST_IN_MARKDOWN)
    lists = changed_cases(versus, quote, most, most if every_answer else _MOST_ANSWERS)
    variants = [
        f"{quote(variant_label(variant))}: {claim_of(comparison, quote).sentence}"
        for variant, comparison in versus.by_variant
    ]
    claim = claim_by(versus.comparison, versus.question.metric, quote)
    sides = (versus.reference, versus.subject)
    words = [f"{quote(side.label)}: {side_words(side, quote)}" for side in sides]
    document = TextDocument(
        title="paraval: comparison",
        sections=[
            [Paragraph(claim.sentence, strong=True)],
            list(map(Paragraph, words)),
            [sides_table(versus, quote)],
            list(map(Paragraph, versus_figures(versus, quote))),
            [Subheading("By variant:", ""), list_of(variants)] if variants else [],
            *(_case_section(one, versus, out, whole=every_answer) for one in lists),
            list(map(Paragraph, _how_to_read_on(versus, lists, out))),
            list(map(Paragraph, notices_of(versus, quote))),
            [] if drop is None else [Paragraph(drop.sentence)],
        ],
    )
    return render(document, out)


def _case_section(
    one: ChangedCases, versus: SideComparison, out: Medium, *, whole: bool
) -> list[Part]:
    longest = _LONGEST_ANSWER if whole else _LONGEST_REASON
    rows = [
        TableRow(
            label=out.quote(case.name),
            beside=out.quote(case.why, longest) if case.why else "",
            below=tuple(_answer_lines(case, versus, out, longest)),
        )
        for case in one.cases
    ]
    hint, most = (": add --all", None if whole else 1) if out.is_terminal else ("", None)
    if out.is_terminal and not any(row.beside or row.below for row in rows):
        rows, most = [TableRow(beside=", ".join(row.label for row in rows))], None
    table = Table(rows=rows, label_share=0.45, beside_lines=most, unshown=one.more, hint=hint)
    return [Subheading(one.heading, ""), table]


def _answer_lines(
    case: ChangedCase, versus: SideComparison, out: Medium, longest: int
) -> Iterator[str]:
    """`before: the answer (why it passed)`."""
    for side, result in ((versus.reference, case.reference), (versus.subject, case.subject)):
        if result is not None and result.result.output is not None:
            text = result.result.output.text or EMPTY_ANSWER
            why = passing_reason(result)
            added = f" ({out.quote(why, _LONGEST_REASON)})" if why else ""
            yield f"{out.quote(side.label)}: {out.quote(text, longest)}{added}"


def _how_to_read_on(
    versus: SideComparison, lists: Sequence[ChangedCases], out: Medium
) -> Iterator[str]:
    cases = [case for one in lists for case in one.cases]
    first = next((case.subject.case_id for case in cases if case.subject is not None), None)
    if out.is_terminal and first is not None and (commands := show_commands(versus, first)):
        yield f"Everything about a case: {out.quote(commands[0], _LONGEST_COMMAND)}"
    if out.is_terminal and any(case.why and case.subject is None for case in cases):
        yield "Both answers of all listed cases: add -v"


def show_commands(versus: SideComparison, case_id: str) -> list[str]:
    """What shows the case in full, of each side that is a stored run; the subject's first."""
    sides = (versus.subject, versus.reference)
    runs = dict.fromkeys(side.run.id for side in sides if side.is_stored)
    return [f"paraval show {run} --case {shlex.quote(case_id)}" for run in runs]


def passing_reason(result: TrialResult) -> str:
    """What graders said about a trial that passed; empty if it did not."""
    is_passed = result.outcome is Outcome.PASSED
    return "; ".join(grade.reason for grade in result.result.grades if grade.reason and is_passed)


def changed_cases(
    versus: SideComparison, quote: Quote, most: int | None, answers: int | None = 0
) -> list[ChangedCases]:
    """Cases that regressed, cases that were fixed, and apart from both flaky ones; of each variant,
    if the sides share several. `most`: how many of each list, and `answers`: of how many of them
    both answers; None for all."""
    noun = "case-variant pair" if versus.by_variant else "case"
    subject, reference = (
        side.label if side.label in (BEFORE, AFTER) else f"with {quote(side.label)}"
        for side in (versus.subject, versus.reference)
    )
    names = {kind: _changed(versus, kind) for kind in ("broke", "mended", "flaky")}
    shown = {kind: some[:most] for kind, some in names.items()}
    answered = {kind: some[:answers] for kind, some in shown.items()}
    before, after = (
        first_ended(
            side.contents,
            dict.fromkeys(shown[failing], Outcome.FAILED)
            | dict.fromkeys(answered[passing], Outcome.PASSED),
        )
        for side, failing, passing in (
            (versus.reference, "mended", "broke"),
            (versus.subject, "broke", "mended"),
        )
    )
    nothing: Mapping[str, TrialResult] = {}
    return [
        ChangedCases(
            kind=kind,
            heading=f"{counted(len(names[kind]), noun)} {how}",
            cases=tuple(
                ChangedCase(
                    name=name,
                    why=reason(failed[name].result) if name in failed else "",
                    reference=before.get(name) if name in answered[kind] else None,
                    subject=after.get(name) if name in answered[kind] else None,
                )
                for name in shown[kind]
            ),
            more=len(names[kind]) - len(shown[kind]),
        )
        for kind, failed, how in (
            ("broke", after, f"regressed: passed {reference}, failed {subject}"),
            ("mended", before, f"fixed: failed {reference}, passed {subject}"),
            ("flaky", nothing, "flaky: repeats on one side both passed and failed"),
        )
        if names[kind]
    ]


def _changed(versus: SideComparison, kind: str) -> list[str]:
    """Names of the cases that changed in this way, those of one case together."""
    if not versus.by_variant:
        return list(getattr(versus.comparison.turned, kind))
    order = {case: at for at, (case, _) in enumerate(versus.subject.contents.book.rows())}
    changed = [
        (case, variant)
        for variant, comparison in versus.by_variant
        for case in getattr(comparison.turned, kind)
    ]
    changed.sort(key=lambda one: order.get(one[0], len(order)))
    return [f"{case} · {variant_label(variant)}" for case, variant in changed]


# ---- the variants of one run


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantComparisons:
    """A run, or a part of one, whose variants are compared."""

    name: str
    run: RunInfo
    metric: ComparedMetric
    seed: int
    comparisons: tuple[Comparison, ...]
    not_made: int
    """Pairs of values that were not compared because there are too many."""


def within_run(
    name: str,
    contents: Contents,
    *,
    metric: ComparedMetric = ComparedMetric.PASS,
    confidence: float | None = None,
    seed: int = 0,
) -> VariantComparisons:
    """Raises RequestError if there are no two variants to compare."""
    comparisons = comparisons_of(contents.book, contents.run, confidence=confidence, seed=seed)
    if not comparisons:
        number = len(contents.book.variants)
        has = {0: "has no trials", 1: "has one variant"}.get(number, "has no comparable variants")
        raise RequestError(
            f"{name} {has}: nothing to compare",
            hint=f"compare it with another run: paraval compare OTHER {name}",
        )
    return VariantComparisons(
        name=name,
        run=contents.run,
        metric=metric,
        seed=seed,
        comparisons=comparisons,
        not_made=number_left_out(contents.book),
    )


def within_text(within: VariantComparisons, out: Medium, *, every_case: bool = False) -> str:
    most = None if every_case else _MOST_NAMED
    sections: list[Sequence[Part]] = []
    for axis, family in groupby(within.comparisons, key=lambda one: one.axis):
        rows = [
            TableRow(
                beside=claim_by(one, within.metric, out.quote).sentence,
                below=tuple(details_of(one, within.metric, out.quote, most)),
                strong=True,
            )
            for one in family
        ]
        head = heading(axis, out.quote, going_on=False)
        sections.append([Subheading(f"{head}:", ""), Table(rows=rows, most_bytes=50_000)])
    if within.not_made:
        sections.append([Paragraph(not_made(within.not_made))])
    if out.is_terminal and (command := both_answers(within)):
        sections.append([Paragraph(out.quote(command, _LONGEST_COMMAND))])
    document = TextDocument(
        title=f"paraval: {out.quote(within.run.suite)}, compared",
        sections=sections,
        closing=f"Run {out.quote(within.name)}.",
    )
    return render(document, out)


def both_answers(within: VariantComparisons) -> str:
    """How to see both answers of cases that changed, of the first comparison that has any."""
    for one in within.comparisons:
        if one.turned.broke or one.turned.mended:
            sides = _choices(within, (one.reference, one.subject))
            return f"Both answers of changed cases: paraval compare {shlex.join(sides)}"
    return ""


def _choices(within: VariantComparisons, sides: Iterable[Side]) -> Iterator[str]:
    for side in sides:
        choice = {axis: value_text(value) for axis, value in side.choice.items()}
        yield f"{within.name}:{choice_text(choice)}"
