"""What is told of one side held against another, whatever form it is then shown in: the result in a
sentence, the figures of both, which cases changed, and what else to know.

Names and reasons are others' words: whoever shows the story says how to show those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

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
from paraval.report.gate import DropVerdict
from paraval.report.part import choice_text
from paraval.report.summary.columns import taken
from paraval.report.summary.summary import Tally
from paraval.text.words import UNKNOWN, counted, percent, percent_range, variant_label

MOST_CASES = 20
"""Of each list, unless all are asked for."""
_SCORES_SAY_NOTHING = "nothing that pass and fail don't say"
_NO_SCORES_AT_ANY_TIME = "not compared where a run may stop early"


class FigureRow(NamedTuple):
    """A figure of both sides."""

    heading: str
    reference: str
    subject: str


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
    rows: tuple[FigureRow, ...]
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
        rows=tuple(_rows(versus)),
        figures=tuple(_figures(versus, quote)),
        by_variant=tuple(_by_variant(versus, quote)),
        lists=tuple(_lists(versus, quote, most)),
        notices=tuple(notices_of(versus, quote)),
        gate=None if drop is None else drop.sentence,
    )


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


def _rows(versus: SideComparison) -> Iterator[FigureRow]:
    one, other = versus.reference.summary, versus.subject.summary
    if versus.leaves_out:
        # Else it would be the rate below once more.
        comparison = versus.comparison
        rates = map(_share, (comparison.rate_reference, comparison.rate_subject))
        yield FigureRow("compared", *rates)
    for heading, cell, is_shown in (
        ("pass rate", _rate, True),
        ("95 %", _rate_interval, True),
        ("cases", lambda tally: f"{tally.cases:,}", True),
        ("errors", lambda tally: f"{tally.errors:,}", True),
        ("could be", _rate_with_errors, bool(one.errors or other.errors)),
        ("skipped", lambda tally: f"{tally.skipped:,}", bool(one.skipped or other.skipped)),
        ("score", _score, one.is_scored or other.is_scored),
        ("cost", lambda tally: str(tally.target), one.target.is_told or other.target.is_told),
        ("median", lambda tally: taken(tally.median_s, tally), True),
        ("p95", lambda tally: taken(tally.p95_s, tally), True),
    ):
        if is_shown:
            yield FigureRow(heading, cell(one), cell(other))


def _rate(tally: Tally) -> str:
    return _share(tally.pass_rate)


def _share(rate: float | None) -> str:
    return UNKNOWN if rate is None else percent(rate)


def _rate_interval(tally: Tally) -> str:
    interval = tally.pass_rate_interval
    return UNKNOWN if interval is None else percent_range(*interval)


def _rate_with_errors(tally: Tally) -> str:
    worst, best = tally.rate_if_errors_failed, tally.rate_if_errors_passed
    if not tally.errors or worst is None or best is None:
        return UNKNOWN
    return percent_range(worst, best)


def _score(tally: Tally) -> str:
    return UNKNOWN if tally.score is None else f"{tally.score:.2f}"


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
