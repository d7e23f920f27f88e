"""The page of a run from top to bottom, in reading order: first the verdict, then the figures, then
every case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple, TextIO

from paraval.errors import ParavalError
from paraval.records import Outcome, RunInfo, choice_label
from paraval.report.compare.claims import (
    claim_of,
    details,
    heading,
    not_made,
    notes,
    signed_range,
)
from paraval.report.compare.comparison import Comparison, Finding, Method
from paraval.report.compare.comparison_text import (
    ChangedCase,
    ChangedCases,
    changed_cases,
    side_words,
    versus_figures,
)
from paraval.report.compare.two_runs import (
    ComparisonQuestion,
    ComparisonSide,
    SideComparison,
    first_ended,
    notices_of,
)
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
from paraval.report.gate import DropVerdict, GateVerdict, RegressionVerdict
from paraval.report.history.history import EarlierRuns
from paraval.report.history.history_formats import points_of
from paraval.report.page.cases import (
    LARGEST_PAGE,
    CaseWriter,
    filters_of,
    trial_anchor,
)
from paraval.report.page.plots import (
    KINDS,
    DifferencePlot,
    TrendPoint,
    attempt_spans,
    case_anchor,
    difference_plot,
    heat_map,
    over_time,
    quality_costs,
    rate_words,
    reach_of,
    scatter,
    trend,
)
from paraval.report.page.rendering import HtmlPage, rendered, rendered_page
from paraval.report.page.trials import SIGNS
from paraval.report.reasons import reason
from paraval.report.report_file import ReportFile
from paraval.report.summary.closing import (
    closing_sentences,
    deed_sections,
    errors_heading,
    first_unpassed,
    held_back,
    total_cost,
    wrong_heading,
)
from paraval.report.summary.figures import breakdown_tables, label_of, summary_table, taken
from paraval.report.summary.tally import Summary, VariantSummary
from paraval.text.terminal import cut_middle, one_line
from paraval.text.words import counted, duration, percent, telling_axes, trial_label, variant_label

MOST_LISTED = 300
"""Of failures, of errors, and of cases that changed."""
_MOST_ROWS = 500
_NOW, _BEFORE = "this run", "the baseline"
MARKS = {
    GateVerdict.NONE: "",
    GateVerdict.MET: "✓",
    GateVerdict.MISSED: "✗",
    GateVerdict.UNKNOWN: "?",
}


def named(text: str) -> str:
    return one_line(text, 80)


# ---- comparisons in words, each with its interval


class Answer(NamedTuple):
    kind: str
    """better, worse or open."""
    headline: str
    evidence: str
    details: Sequence[str]
    plot: DifferencePlot | None


def answer_of(comparison: Comparison, label: str = "") -> Answer:
    """`label`: the variant that it is about; details are then left out."""
    every = () if label else (*notes(comparison, named), *details(comparison, named))
    claim, start = claim_of(comparison, named), f"{named(label)}: " if label else ""
    kind, headline = KINDS[comparison.finding], f"{start}{claim.headline}"
    return Answer(kind, headline, claim.evidence, every, difference_plot(comparison))


def groups_of(
    made: Iterable[Comparison],
    *,
    going_on: bool,
    answering: Callable[[Comparison], Answer] = answer_of,
) -> list[tuple[str, list[Answer]]]:
    """Comparisons by axis, each with its heading. What is shown comes first: it is what readers
    look for."""
    return [
        (
            heading(axis, named, going_on=going_on),
            [answering(one) for one in sorted(family, key=_is_open)],
        )
        for axis, family in groupby(made, key=lambda comparison: comparison.axis)
    ]


def _is_open(comparison: Comparison) -> bool:
    return comparison.finding is Finding.NOT_SHOWN


# ---- the top: facts, and a card for each variant


def facts_of(run: RunInfo, summary: Summary) -> Iterator[tuple[str, str]]:
    yield "run", run.id
    began = datetime.fromtimestamp(run.started_at, UTC)
    yield "began", f"{began.day} {began:%B %Y, %H:%M} UTC"
    states = (
        (run.running, "in progress"),
        (run.interrupted, "interrupted"),
        (run.held_back, "trials pending"),
    )
    words = [word for is_so, word in states if is_so][:1]
    if run.resumed:
        words.append("resumed once" if run.resumed == 1 else f"resumed {run.resumed:,} times")
    yield "took", "; ".join((duration(run.wall_s), *words))
    trials = counted(summary.trials, "trial")
    if summary.ended < summary.trials:
        trials = f"{summary.ended:,} of {trials} ended"
    yield "trials", f"{trials}, at most {run.parallel:,} in parallel"
    if run.regraded_from is not None:
        yield "regraded from", run.regraded_from
    yield from (("note", notice.message) for notice in run.notices if notice.waited_s is None)
    for name, part in (("cases", run.cases), ("models", run.models)):
        if part is not None:
            yield name, part.sentence
    if summary.total_cost_usd is not None:
        yield "cost", total_cost(summary)


class Card(NamedTuple):
    """A variant at a glance."""

    label: str
    title: str
    """The whole label, if it is cut."""
    tally: VariantSummary
    words: str
    figures: Sequence[tuple[str, str]]


def cards_of(summary: Summary) -> list[Card]:
    """The best pass rate first."""
    axes = telling_axes([one.variant for one in summary.variants])
    return [
        _card(one, axes) for one in sorted(summary.variants, key=lambda one: -(one.pass_rate or 0))
    ]


def _card(one: VariantSummary, axes: Sequence[str]) -> Card:
    values = (choice_label(axis, one.variant[axis]) for axis in axes if axis in one.variant)
    whole = one_line(label_of(one), 300)
    label = " · ".join(cut_middle(one_line(value, 200), 30) for value in values) or whole
    figures = (
        ("cost", one.cost if one.target.is_told else ""),
        ("median time", taken(one.median_s, one) if one.median_s is not None else ""),
        ("errors", f"{one.errors:,}" if one.errors else ""),
    )
    shown = [(name, value) for name, value in figures if value]
    return Card(label, "" if label == whole else whole, one, rate_words(one), shown)


def result_sentence(summary: Summary) -> str:
    """Of a run with nothing to compare."""
    words = (
        f"{summary.passed:,} of {summary.judged:,} judged trials passed, over"
        f" {counted(summary.cases, 'case')}{'; rate averaged by case' * summary.is_by_case}"
    )
    worst, best = summary.rate_if_errors_failed, summary.rate_if_errors_passed
    if summary.errors and summary.judged and worst is not None and best is not None:
        errors = counted(summary.errors, "error")
        words += f"; with {errors} between {percent(worst)} and {percent(best)}"
    return f"{words}."


# ---- beside its baseline


class Against(NamedTuple):
    """The comparison with the baseline; the gate's verdict on the drop is above it."""

    answers: Sequence[Answer]
    reach: float
    lines: Sequence[str]
    lists: Sequence[ChangedCases]
    anchors: Mapping[str, str]
    """Of the sections of cases, by what the lists call them."""
    elsewhere: str


def against_of(contents: Contents) -> Against | None:
    """None if the run has no baseline, or the gate could not use it."""
    drop, regressions = contents.gate.baseline, contents.gate.regressions
    reference, baseline = contents.reference, contents.run.baseline
    if (drop is None and regressions is None) or reference is None or baseline is None:
        return None
    source = reference.source
    tells_run = not isinstance(source, ReportFile) or source.tells_run
    now = ComparisonSide(label=_NOW, name=contents.run.id, contents=contents)
    before = ComparisonSide(
        label=_BEFORE, name=baseline.name, contents=reference, tells_run=tells_run
    )
    try:
        versus = SideComparison(now, before, ComparisonQuestion())
        lists = changed_cases(versus, named, MOST_LISTED)
    except ParavalError:
        # No variant in common, or a deleted file: the gate's sentence explains it.
        return None
    if regressions is not None:
        # What the gate counts, and not what failed once.
        own = [_regressed(contents, regressions)] if regressions.regressed else []
        lists = [*own, *(it for it in lists if it.kind != "broke")]
    whole = answer_of(versus.comparison)
    first = whole._replace(headline=whole.headline[:1].upper() + whole.headline[1:], details=())
    every = versus.by_variant if len(versus.by_variant) <= 12 else ()
    return Against(
        answers=[first, *(answer_of(found, variant_label(one)) for one, found in every)],
        reach=reach_of((versus.comparison, *(found for _, found in every))),
        lines=[
            *(() if drop is None else _gate_interval(versus.comparison, drop)),
            f"baseline: {side_words(before, named)}",
            *versus_figures(versus, named),
            *notices_of(versus, named),
        ],
        lists=lists,
        anchors=_anchors(contents, lists),
        elsewhere=f"paraval compare {named(baseline.name)} {contents.run.id} --all",
    )


def _gate_interval(comparison: Comparison, drop: DropVerdict) -> Iterator[str]:
    """Explain why a page shows two intervals for one difference."""
    passing, interval = comparison.passing, drop.interval
    if passing is None or interval is None or passing.method is Method.NONE:
        return
    judged = signed_range(interval)
    if judged != signed_range(passing.interval):
        yield (
            f"The gate judges by {judged}: what it rules out must be so also where cases are few,"
            " or verdicts are missing."
        )


def _regressed(contents: Contents, found: RegressionVerdict) -> ChangedCases:
    """All that the gate counts as regressed: with repeats, a case need not fail each of them."""
    names = found.regressed
    failed = first_ended(contents, dict.fromkeys(names, Outcome.FAILED))
    whys = {name: reason(result.result) for name, result in failed.items()}
    return ChangedCases(
        kind="broke",
        heading=f"{len(names):,} regressed: passed in {_BEFORE}, failed in {_NOW}",
        cases=tuple(ChangedCase(name=name, why=whys.get(name, "")) for name in names),
        more=0,
    )


def _anchors(contents: Contents, lists: Iterable[ChangedCases]) -> dict[str, str]:
    """By what the lists call a case: its id, or `case · variant`."""
    listed = {case.name for one in lists for case in one.cases}
    labels = [variant_label(variant) for variant in contents.book.variants.values()]
    return {
        name: case_anchor(number)
        for number, (case, _) in enumerate(contents.book.rows())
        for name in (case, *(f"{case} · {label}" for label in labels))
        if name in listed
    }


# ---- the page


def past_of(contents: Contents) -> list[TrendPoint]:
    """The suite's earlier complete runs, and this one last; empty if there is no earlier run: a
    single point is no history."""
    past = EarlierRuns(tells_shifts=False)
    try:
        earlier = list(past.entries(contents.earlier()))
    except ParavalError:
        # The page is about this run: if the store cannot list the others, it does without them.
        return []
    return list(points_of([*earlier, past.add(contents, contents.run)])) if earlier else []


class AsHtml:
    """A self-contained HTML page: no script, no network."""

    def write(self, contents: Contents, file: TextIO) -> None:
        write_page(contents, file)


def write_page(contents: Contents, file: TextIO, *, largest: int = LARGEST_PAGE) -> None:
    """`largest`: approximate number of characters; trials without room are shown in short."""
    summary = contents.summary
    against, heat = against_of(contents), heat_map(contents.book)
    unpassed = first_unpassed(contents, MOST_LISTED, MOST_LISTED)
    used = 0
    for piece in rendered_page("top.html", **_top(contents), against=against, heat=heat, unpassed=[
            (kind, head(summary), groups, number - sum(group.number for group in groups))
            for kind, head, groups, number in zip(
                ("wrong", "error"),
                (wrong_heading, errors_heading),
                unpassed,
                (summary.failed, summary.errors),
                strict=True,
            )
            if groups
        ]):  # fmt: skip
        used += len(piece)
        file.write(piece)
    cases = heat.linked_cases if heat else frozenset()
    writer = CaseWriter(
        contents,
        file,
        linked_cases=cases | frozenset(against.anchors.values() if against else ()),
        linked_trials=frozenset(group.first.index for groups in unpassed for group in groups),
        largest=largest,
        used=used,
    )
    writer.write()
    file.write(rendered("bottom.html", not_here=writer.not_here(), run_id=contents.run.id))


def _top(contents: Contents) -> dict[str, Any]:
    run, summary, page = contents.run, contents.summary, HtmlPage()
    left_out = number_left_out(contents.book)
    table = summary_table(summary, page, running=run.running)
    past, shown = past_of(contents), table.rows[:_MOST_ROWS]
    held = (f"{one}." for one in held_back(run))
    return {
        "title": run.suite,
        "verdict": contents.gate.verdict.value,
        "mark": MARKS[contents.gate.verdict],
        "sentence": contents.gate.sentence,
        "facts": list(facts_of(run, summary)),
        "cards": cards_of(summary)[:_MOST_ROWS],
        "groups": groups_of(contents.comparisons, going_on=run.running),
        "reach": reach_of(contents.comparisons),
        "not_made": f"{not_made(left_out)}." if left_out else "",
        "result": result_sentence(summary),
        "table": replace(table, rows=shown, unshown=len(table.rows) - len(shown)),
        "breakdowns": breakdown_tables(summary, page),
        "elsewhere": f"paraval report {run.id} -o report.json",
        "closing": closing_sentences(contents, lambda text: one_line(text, 500)),
        "deeds": list(deed_sections(summary, lambda text: one_line(text, 200))),
        "scatter": scatter(quality_costs(summary, contents.book)),
        "over_time": over_time(attempt_spans(contents.source.attempts()), held),
        "trend": trend(past),
        "judged": summary.judged,
        "filters": filters_of(contents.book),
        "signs": SIGNS,
        "label_of": lambda group: trial_label(replace(group.first, repeat=1)),
        "anchor_of": lambda group: trial_anchor(group.first.index),
    }
