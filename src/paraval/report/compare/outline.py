"""What is told of one side held against another, whatever form it is then shown in: the result in a
sentence, the figures of both, which cases changed, and what else to know.

Names and reasons are others' words: whoever shows the story says how to show those.
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
    sentence,
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
from paraval.report.summary.columns import mean_score, rates_with_errors, share, taken
from paraval.report.summary.summary import Tally
from paraval.text.document import Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Column, Medium, Table, TableRow, list_of
from paraval.text.words import UNKNOWN, counted, percent, percent_range, variant_label

_MOST_CASES = 20
"""Of each list, unless all are asked for."""
_MOST_IN_MARKDOWN = 500
_LONGEST_REASON = 300
_SIDES = [Column(heading=name, cell=str) for name in "AB"]
_SCORES_SAY_NOTHING = "nothing that pass and fail don't say"
_NO_SCORES_AT_ANY_TIME = "not compared where a run may stop early"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCases:
    """Cases that changed in one way."""

    kind: str
    """broke, mended or flaky."""
    heading: str
    cases: tuple[tuple[str, str], ...]
    """Each with why it failed on the side where it did; empty where both are mixed."""
    more: int
    """So many are not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOutline:
    """In the order in which it is read."""

    headline: str
    reference: str
    """Which it is, in words."""
    subject: str
    table: Table
    """The figures of both."""
    figures: tuple[str, ...]
    by_variant: tuple[str, ...]
    lists: tuple[ChangedCases, ...]
    notices: tuple[str, ...]
    gate: str | None


def story_of(
    versus: SideComparison, quote: Quote, *, most: int | None, drop: DropVerdict | None
) -> ComparisonOutline:
    """`most`: so many cases of each list; None for all."""
    return ComparisonOutline(
        headline=headline(versus.comparison, versus.question.metric, quote),
        reference=_which(versus.reference, quote),
        subject=_which(versus.subject, quote),
        table=Table(rows=list(_rows(versus)), columns=_SIDES),
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
            [Paragraph(f"A: {story.reference}"), Paragraph(f"B: {story.subject}")],
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
    hint, most = (": --all shows them", 1) if out.is_terminal else ("", None)
    if out.is_terminal and not any(row.beside for row in rows):
        rows, most = [TableRow(beside=", ".join(row.label for row in rows))], None
    table = Table(rows=rows, label_share=0.45, beside_lines=most, unshown=one.more, hint=hint)
    return [Subheading(one.heading, ""), table]


# ---- the result


def headline(comparison: Comparison, metric: ComparedMetric, quote: Quote) -> str:
    """What is found, in one sentence without its full stop."""
    if metric is ComparedMetric.SCORE and comparison.score is not None:
        return score_sentence(comparison, comparison.score, quote)
    return sentence(comparison, quote)


def other_metric(comparison: Comparison, metric: ComparedMetric, quote: Quote) -> Iterator[str]:
    """What the headline does not say of scores and pass rates."""
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
    """What is found of the scores, in one sentence without its full stop."""
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    low, high = score.interval
    after = f" after {comparison.among:,} comparisons" if comparison.among > 1 else ""
    told = (
        f"{percent(comparison.confidence)}: {low:+.2f} to {high:+.2f},"
        f" {counted(comparison.cases, 'case')},"
        f" {p_value(score.adjusted_p, comparison.confidence)}{after}"
    )
    finding = finding_of(score, comparison.confidence)
    if finding is Finding.NOT_SHOWN:
        none = "no difference of scores shown"
        return f"{subject} and {reference}: {none} ({score.mean:+.2f}, {told})"
    more = "more" if score.mean > 0 else "less"
    scores = f"scores {abs(score.mean):.2f} {more} than"
    return f"{subject} {scores} {reference} ({told}): {finding.value}"


def _figures(versus: SideComparison, quote: Quote) -> Iterator[str]:
    """All that the headline does not say."""
    comparison, passing = versus.comparison, versus.comparison.passing
    yield from other_metric(comparison, versus.question.metric, quote)
    if passing is not None:
        level = comparison.cases - passing.wins - passing.losses
        yield f"cases: {passing.wins:,} ahead, {passing.losses:,} behind, {level:,} level"
    yield from figure_lines(comparison, quote)
    yield from notes(comparison, quote)


def _by_variant(versus: SideComparison, quote: Quote) -> Iterator[str]:
    for variant, comparison in versus.by_variant:
        yield f"{quote(variant_label(variant))}: {sentence(comparison, quote)}"


# ---- both sides


def _which(held: ComparisonSide, quote: Quote) -> str:
    """`20260131-120000-abcd (mode=new) of greetings`."""
    chosen = f" ({quote(choice_text(held.choice))})" if held.choice else ""
    suite = f" of {quote(held.run.suite)}" if held.tells_run else ""
    return f"{quote(held.name)}{chosen}{suite}"


def _rows(versus: SideComparison) -> Iterator[TableRow]:
    one, other = versus.reference.summary, versus.subject.summary
    if versus.leaves_out:
        # Else it would be the rate below once more.
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
        ("cost", lambda tally: str(tally.target), one.target.is_told or other.target.is_told),
        ("median", lambda tally: taken(tally.median_s, tally), True),
        ("p95", lambda tally: taken(tally.p95_s, tally), True),
    ):
        if is_shown:
            yield TableRow(label=heading, cells=(cell(one), cell(other)))


def _rate_interval(tally: Tally) -> str:
    interval = tally.pass_rate_interval
    return UNKNOWN if interval is None else percent_range(*interval)


# ---- cases


def _lists(versus: SideComparison, quote: Quote, most: int | None) -> Iterator[ChangedCases]:
    """What broke, what was mended, and apart from both what is flaky."""
    turned = versus.comparison.turned
    subject, reference = quote(versus.subject.label), quote(versus.reference.label)
    for kind, cases, failing, how in (
        ("broke", turned.broke, versus.subject, f"right with {reference}, wrong with {subject}"),
        (
            "mended",
            turned.mended,
            versus.reference,
            f"wrong with {reference}, right with {subject}",
        ),
        ("flaky", turned.flaky, None, "repeats on one side passed and failed"),
    ):
        if cases:
            shown = cases[:most]
            whys = {} if failing is None else failing_reasons(failing, frozenset(shown))
            yield ChangedCases(
                kind=kind,
                heading=f"{counted(len(cases), 'case')} {kind}: {how}",
                cases=tuple((case, whys.get(case, "")) for case in shown),
                more=len(cases) - len(shown),
            )
