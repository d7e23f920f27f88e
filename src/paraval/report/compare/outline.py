"""A comparison of two sides, in whatever form it is then shown: the finding in a sentence, the
figures of both sides, which cases changed, and notices.

Names and reasons are untrusted text: callers pass a `quote` function that makes them safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paraval.report.compare.comparison import Comparison, Difference, Finding, Method
from paraval.report.compare.compute import finding_of
from paraval.report.compare.sentences import (
    Quote,
    figure_lines,
    notes,
    p_value,
    score_line,
    score_range,
    sentence,
    signed_score,
)
from paraval.report.compare.two_runs import (
    ComparedMetric,
    ComparisonSide,
    SideComparison,
    failing_reasons,
    notices_of,
)
from paraval.report.contents import choice_text
from paraval.report.gate import DropVerdict
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
_LONGEST_REASON = 300
BEFORE, AFTER = "before", "after"
"""Labels of the sides of a comparison of two runs; a variant may be called A or B."""
_LONGEST_HEADING = 24
_SCORES_SAY_NOTHING = "no more information than pass and fail"
_NO_SCORES_AT_ANY_TIME = "not compared if a run may stop early"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCases:
    """Cases that changed in one way."""

    kind: str
    """`broke` (regressed), `mended` (fixed) or `flaky`."""
    heading: str
    cases: tuple[tuple[str, str], ...]
    """Each with why it failed on the side where it failed; empty for flaky cases."""
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
    versus: SideComparison, quote: Quote, *, most: int | None, drop: DropVerdict | None
) -> ComparisonOutline:
    """`most`: how many cases of each list; None for all."""
    return ComparisonOutline(
        headline=headline(versus.comparison, versus.question.metric, quote),
        reference=_which(versus.reference, quote),
        subject=_which(versus.subject, quote),
        table=Table(rows=list(_rows(versus)), columns=list(_columns(versus, quote))),
        figures=tuple(_figures(versus, quote)),
        by_variant=tuple(_by_variant(versus, quote)),
        lists=tuple(_lists(versus, quote, most)),
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
) -> str:
    most = None if every_case else out.most(_MOST_CASES, _MOST_IN_MARKDOWN)
    story = story_of(versus, out.quote, most=most, drop=drop)
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
            *(_case_section(one, out) for one in story.lists),
            list(map(Paragraph, story.notices)),
            [] if story.gate is None else [Paragraph(story.gate)],
        ],
    )
    return render(document, out)


def _case_section(one: ChangedCases, out: Medium) -> list[Part]:
    rows = [
        TableRow(label=out.quote(name), beside=out.quote(why, _LONGEST_REASON) if why else "")
        for name, why in one.cases
    ]
    hint, most = (": add --all", 1) if out.is_terminal else ("", None)
    if out.is_terminal and not any(row.beside for row in rows):
        rows, most = [TableRow(beside=", ".join(row.label for row in rows))], None
    table = Table(rows=rows, label_share=0.45, beside_lines=most, unshown=one.more, hint=hint)
    return [Subheading(one.heading, ""), table]


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
    adjusted = f", adjusted for {comparison.among:,} comparisons" if comparison.among > 1 else ""
    sure = percent(comparison.confidence)
    figures = ", ".join(
        (
            *(f"{sure} CI {bounds}" for bounds in score_range(score.interval)),
            counted(comparison.cases, "case"),
            f"{p_value(score.adjusted_p, comparison.confidence)}{adjusted}",
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
    """`20260131-120000-abcd (mode=new) of greetings`."""
    chosen = f" ({quote(choice_text(side.choice))})" if side.choice else ""
    suite = f" of {quote(side.run.suite)}" if side.tells_run else ""
    return f"{quote(side.name)}{chosen}{suite}"


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
        ("could be", rates_with_errors, bool(one.errors or other.errors)),
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


def _lists(versus: SideComparison, quote: Quote, most: int | None) -> Iterator[ChangedCases]:
    """Cases that regressed, cases that were fixed, and apart from both flaky ones; of each variant,
    if the sides share several."""
    noun = "case-variant pair" if versus.by_variant else ""
    subject, reference = (_on(side, quote) for side in (versus.subject, versus.reference))
    regressed = f"regressed: passed {reference}, failed {subject}"
    fixed = f"fixed: failed {reference}, passed {subject}"
    flaky = "flaky: repeats on one side both passed and failed"
    for kind, failing, how in (
        ("broke", versus.subject, regressed),
        ("mended", versus.reference, fixed),
        ("flaky", None, flaky),
    ):
        cases = _changed(versus, kind)
        if cases:
            shown = cases[:most]
            whys = {} if failing is None else failing_reasons(failing.contents, frozenset(shown))
            number = counted(len(cases), noun) if noun else f"{len(cases):,}"
            yield ChangedCases(
                kind=kind,
                heading=f"{number} {how}",
                cases=tuple((case, whys.get(case, "")) for case in shown),
                more=len(cases) - len(shown),
            )


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
