"""A comparison of two sides, in whatever form it is then shown: the finding in a sentence, the
figures of both sides, which cases changed, and notices.

Names and reasons are untrusted text: callers pass a `quote` function that makes them safe.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from paraval.dataclass import dataclass
from paraval.records import Outcome, TrialResult
from paraval.report.compare.comparison import Comparison, Difference, Finding, Method
from paraval.report.compare.compute import finding_of
from paraval.report.compare.sentences import (
    Quote,
    chance,
    figure_lines,
    notes,
    score_line,
    score_range,
    sentence,
    signed_score,
)
from paraval.report.compare.two_runs import (
    ComparedMetric,
    ComparisonSide,
    SideComparison,
    first_ended,
    notices_of,
)
from paraval.report.contents import choice_text
from paraval.report.gate import DropVerdict
from paraval.report.reasons import EMPTY_ANSWER, reason
from paraval.report.summary.columns import (
    TARGET_COST,
    mean_score,
    rates_with_errors,
    share,
    taken,
)
from paraval.report.summary.summary import Tally
from paraval.text.document import Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Column, Medium, Table, TableRow, list_of
from paraval.text.terminal import cut_middle
from paraval.text.words import UNKNOWN, counted, percent, percent_range, variant_label

_MOST_CASES = 20
"""Cases shown of each list, unless all are requested."""
_MOST_IN_MARKDOWN = 500
_MOST_ANSWERS = 3
"""Cases of each list whose two answers are shown, unless all are requested."""
_LONGEST_REASON = 300
_LONGEST_ANSWER = 2_000
_LONGEST_COMMAND = 400
BEFORE, AFTER = "before", "after"
"""Labels of the sides of a comparison of two runs; a variant may be called A or B."""
_LONGEST_HEADING = 24
_SCORES_SAY_NOTHING = "no more information than pass and fail"
_NO_SCORES_AT_ANY_TIME = "not compared if a run may stop early"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOutline:
    """The parts of a comparison, in reading order."""

    headline: str
    reference: str
    """Which run, file or part it is, in words."""
    subject: str
    table: Table
    """The figures of both sides."""
    figures: tuple[str, ...]
    by_variant: tuple[str, ...]
    lists: tuple[ChangedCases, ...]
    notices: tuple[str, ...]
    gate: str | None


def story_of(
    versus: SideComparison,
    quote: Quote,
    *,
    most: int | None,
    drop: DropVerdict | None,
    answers: int | None = 0,
) -> ComparisonOutline:
    """`most`: how many cases of each list, and `answers`: of how many of them both answers; None
    for all."""
    return ComparisonOutline(
        headline=headline(versus.comparison, versus.question.metric, quote),
        reference=_which(versus.reference, quote),
        subject=_which(versus.subject, quote),
        table=Table(rows=list(_rows(versus)), columns=list(_columns(versus, quote))),
        figures=tuple(_figures(versus, quote)),
        by_variant=tuple(_by_variant(versus, quote)),
        lists=tuple(changed_cases(versus, quote, most, answers)),
        notices=tuple(notices_of(versus, quote)),
        gate=None if drop is None else drop.sentence,
    )


# ---- as text


def versus_text(
    versus: SideComparison,
    out: Medium,
    drop: DropVerdict | None = None,
    *,
    every_case: bool = False,
    every_answer: bool = False,
) -> str:
    """`every_answer`: show both answers of all listed cases, and more of them than a line."""
    most = None if every_case else out.most(_MOST_CASES, _MOST_IN_MARKDOWN)
    answers = most if every_answer else _MOST_ANSWERS
    story = story_of(versus, out.quote, most=most, drop=drop, answers=answers)
    variants: list[Part] = [Subheading("By variant:", ""), list_of(story.by_variant)]
    document = TextDocument(
        title="paraval: comparison",
        sections=[
            [Paragraph(story.headline, strong=True)],
            [
                Paragraph(f"{out.quote(versus.reference.label)}: {story.reference}"),
                Paragraph(f"{out.quote(versus.subject.label)}: {story.subject}"),
            ],
            [story.table],
            list(map(Paragraph, story.figures)),
            variants if story.by_variant else [],
            *(_case_section(one, versus, out, whole=every_answer) for one in story.lists),
            [Paragraph(line) for line in _how_to_read_on(versus, story.lists, out)],
            list(map(Paragraph, story.notices)),
            [] if story.gate is None else [Paragraph(story.gate)],
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
    ids = (case.subject.case_id for one in lists for case in one.cases if case.subject is not None)
    commands = [command for case_id in islice(ids, 1) for command in show_commands(versus, case_id)]
    if out.is_terminal and commands:
        yield f"Everything about a case: {out.quote(commands[0], _LONGEST_COMMAND)}"
    if out.is_terminal and any(
        case.why and case.subject is None for it in lists for case in it.cases
    ):
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


# ---- the result


def headline(comparison: Comparison, metric: ComparedMetric, quote: Quote) -> str:
    """The finding in one sentence, without the period."""
    if metric is ComparedMetric.SCORE and comparison.score is not None:
        return score_sentence(comparison, comparison.score, quote)
    return sentence(comparison, quote)


def other_metric(comparison: Comparison, metric: ComparedMetric, quote: Quote) -> Iterator[str]:
    """Scores if the headline is about pass rates, and the other way round."""
    if metric is ComparedMetric.PASS:
        if (score := score_line(comparison)) is not None:
            yield score
    elif comparison.score is not None:
        yield sentence(comparison, quote)
    elif comparison.passing is not None:
        is_for_any_time = comparison.passing.method in (Method.ANYTIME, Method.NONE)
        why = _NO_SCORES_AT_ANY_TIME if is_for_any_time else _SCORES_SAY_NOTHING
        yield f"score: {why}"


def score_sentence(comparison: Comparison, score: Difference, quote: Quote) -> str:
    """The finding about scores in one sentence, without the period."""
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    sure = percent(comparison.confidence)
    figures = ", ".join(
        (
            *(f"{sure} CI {bounds}" for bounds in score_range(score.interval)),
            counted(comparison.cases, "case"),
            *chance(comparison, score),
        )
    )
    finding = finding_of(score, comparison.confidence)
    if finding is Finding.NOT_SHOWN:
        none = "no difference in scores shown"
        return f"{subject} vs {reference}: {none} ({signed_score(score.mean)}, {figures})"
    more = "more" if score.mean > 0 else "less"
    scores = f"scores {abs(score.mean):.2f} {more} than"
    return f"{subject} {scores} {reference} ({figures}): {finding.value}"


def _figures(versus: SideComparison, quote: Quote) -> Iterator[str]:
    """All results that are not in the headline."""
    comparison, passing = versus.comparison, versus.comparison.passing
    yield from other_metric(comparison, versus.question.metric, quote)
    if passing is not None:
        level = comparison.cases - passing.wins - passing.losses
        yield f"cases: {passing.wins:,} ahead, {passing.losses:,} behind, {level:,} tied"
    yield from figure_lines(comparison, quote)
    yield from notes(comparison, quote)


def _by_variant(versus: SideComparison, quote: Quote) -> Iterator[str]:
    for variant, comparison in versus.by_variant:
        yield f"{quote(variant_label(variant))}: {sentence(comparison, quote)}"


# ---- both sides


def _which(side: ComparisonSide, quote: Quote) -> str:
    """`20260131-120000-abcd (mode=new) of greetings, regraded from 20260130-120000-abcd`."""
    chosen = f" ({quote(choice_text(side.choice))})" if side.choice else ""
    suite = f" of {quote(side.run.suite)}" if side.tells_run else ""
    source = side.run.regraded_from
    regraded = "" if source is None else f", regraded from {quote(source)}"
    return f"{quote(side.name)}{chosen}{suite}{regraded}"


def _columns(versus: SideComparison, quote: Quote) -> Iterator[Column[str]]:
    for side in (versus.reference, versus.subject):
        yield Column(heading=quote(cut_middle(side.label, _LONGEST_HEADING)), cell=str)


def _rows(versus: SideComparison) -> Iterator[TableRow]:
    one, other = versus.reference.summary, versus.subject.summary
    cost = TARGET_COST if one.judging.is_paid or other.judging.is_paid else "cost"
    if versus.leaves_out:
        # Otherwise it would repeat the rate below.
        comparison = versus.comparison
        rates = share(comparison.rate_reference), share(comparison.rate_subject)
        yield TableRow(label="compared", cells=rates)
    for heading, cell, is_shown in (
        ("pass rate", lambda tally: share(tally.pass_rate), True),
        ("95%", _rate_interval, True),
        ("cases", lambda tally: f"{tally.cases:,}", True),
        ("errors", lambda tally: f"{tally.errors:,}", True),
        ("with errors", rates_with_errors, bool(one.errors or other.errors)),
        ("skipped", lambda tally: f"{tally.skipped:,}", bool(one.skipped or other.skipped)),
        ("score", mean_score, one.is_scored or other.is_scored),
        (cost, lambda tally: str(tally.target), one.target.is_told or other.target.is_told),
        ("median", lambda tally: taken(tally.median_s, tally), True),
        ("p95", lambda tally: taken(tally.p95_s, tally), True),
    ):
        if is_shown:
            yield TableRow(label=heading, cells=(cell(one), cell(other)))


def _rate_interval(tally: Tally) -> str:
    interval = tally.pass_rate_interval
    return UNKNOWN if interval is None else percent_range(*interval)


# ---- cases


def _on(side: ComparisonSide, quote: Quote) -> str:
    """`with swift`, `before`."""
    return side.label if side.label in (BEFORE, AFTER) else f"with {quote(side.label)}"


def changed_cases(
    versus: SideComparison, quote: Quote, most: int | None, answers: int | None
) -> Iterator[ChangedCases]:
    """Cases that regressed, cases that were fixed, and apart from both flaky ones; of each variant,
    if the sides share several."""
    noun = "case-variant pair" if versus.by_variant else ""
    subject, reference = (_on(side, quote) for side in (versus.subject, versus.reference))
    names = {kind: _changed(versus, kind) for kind in ("broke", "mended", "flaky")}
    shown = {kind: some[:most] for kind, some in names.items()}
    answered = {kind: frozenset(some[:answers]) for kind, some in shown.items()}
    before, after = (
        first_ended(side.contents, _ends(shown, failing) | _ends(answered, passing, passed=True))
        for side, failing, passing in (
            (versus.reference, "mended", "broke"),
            (versus.subject, "broke", "mended"),
        )
    )
    for kind, failed, how in (
        ("broke", after, f"regressed: passed {reference}, failed {subject}"),
        ("mended", before, f"fixed: failed {reference}, passed {subject}"),
        ("flaky", {}, "flaky: repeats on one side both passed and failed"),
    ):
        if names[kind]:
            number = len(names[kind])
            yield ChangedCases(
                kind=kind,
                heading=f"{counted(number, noun) if noun else f'{number:,}'} {how}",
                cases=tuple(
                    ChangedCase(
                        name=name,
                        why=reason(failed[name].result) if name in failed else "",
                        reference=before.get(name) if name in answered[kind] else None,
                        subject=after.get(name) if name in answered[kind] else None,
                    )
                    for name in shown[kind]
                ),
                more=number - len(shown[kind]),
            )


def _ends(
    names: Mapping[str, Iterable[str]], kind: str, *, passed: bool = False
) -> dict[str, Outcome]:
    return dict.fromkeys(names[kind], Outcome.PASSED if passed else Outcome.FAILED)


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
