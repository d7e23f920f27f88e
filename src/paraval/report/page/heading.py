"""The top of a page: the verdict, facts about the run, and the answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.records import RunInfo, choice_label
from paraval.report.contents import Contents
from paraval.report.gate import GateVerdict
from paraval.report.page.charts.data import RateRow
from paraval.report.page.charts.intervals import rate_bar
from paraval.report.summary.closing import total_cost
from paraval.report.summary.columns import label_of, taken
from paraval.report.summary.summary import Summary, VariantSummary
from paraval.text.terminal import cut_middle, one_line
from paraval.text.words import counted, duration, percent, percent_range, telling_axes

MARKS = {
    GateVerdict.NONE: "",
    GateVerdict.MET: "✓",
    GateVerdict.MISSED: "✗",
    GateVerdict.UNKNOWN: "?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The first thing that is read."""

    suite: str
    mark: str
    verdict: str
    """met, missed or unknown."""
    sentence: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The pass rate of a whole run, if there is nothing to compare."""

    judged: str
    errors: str


MOST_TILES = 8
"""Tiles that are visible; the rest are folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A variant at a glance."""

    label: str
    title: str
    """The whole label, if it is cut."""
    rate: str
    interval: str
    bar: Markup
    figures: tuple[Fact, ...]
    """Cost, time and errors, as far as they are known."""


def tiles_of(summary: Summary) -> list[Tile]:
    """One for each variant, the best pass rate first."""
    axes = telling_axes([one.variant for one in summary.variants])
    best_first = sorted(summary.variants, key=lambda one: -(one.pass_rate or 0.0))
    return [_tile(one, axes) for one in best_first]


def _tile(one: VariantSummary, axes: list[str]) -> Tile:
    values = (choice_label(axis, one.variant[axis]) for axis in axes if axis in one.variant)
    parts = [cut_middle(one_line(value, 200), 30) for value in values]
    whole = one_line(label_of(one), 300)
    label = " · ".join(parts) or whole
    interval = one.pass_rate_interval
    row = RateRow(
        label=whole,
        rate=one.pass_rate,
        interval=interval,
        worst=one.rate_if_errors_failed,
        best=one.rate_if_errors_passed,
        judged=one.judged,
        errors=one.errors,
        is_by_case=one.is_by_case,
    )
    figures = (
        ("cost", str(one.target) if one.target.is_told else ""),
        ("median time", taken(one.median_s, one) if one.median_s is not None else ""),
        ("errors", f"{one.errors:,}" if one.errors else ""),
    )
    return Tile(
        label=label,
        title="" if label == whole else whole,
        rate="no rate" if one.pass_rate is None else percent(one.pass_rate),
        interval="" if interval is None else percent_range(*interval),
        bar=rate_bar(row),
        figures=tuple(Fact(name=name, value=value) for name, value in figures if value),
    )


def heading_of(contents: Contents) -> Heading:
    gate = contents.gate
    return Heading(
        suite=contents.run.suite,
        mark=MARKS[gate.verdict],
        verdict=gate.verdict.value,
        sentence=gate.sentence,
        facts=tuple(_facts(contents.run, contents.summary)),
    )


def rate_of(summary: Summary) -> Rate:
    errors = ""
    worst, best = summary.rate_if_errors_failed, summary.rate_if_errors_passed
    if summary.errors and summary.judged and worst is not None and best is not None:
        counted_errors = counted(summary.errors, "error")
        errors = f"with {counted_errors} between {percent(worst)} and {percent(best)}"
    return Rate(
        judged=f"{summary.passed:,} of {summary.judged:,} judged trials passed,"
        f" over {counted(summary.cases, 'case')}{'; rate averaged by case' * summary.is_by_case}",
        errors=errors,
    )


def _facts(run: RunInfo, summary: Summary) -> Iterator[Fact]:
    yield Fact(name="run", value=run.id)
    began = datetime.fromtimestamp(run.started_at, UTC)
    yield Fact(name="began", value=f"{began.day} {began:%B %Y, %H:%M} UTC")
    yield Fact(name="took", value=duration(run.wall_s) + _how_it_went(run))
    trials = counted(summary.trials, "trial")
    if summary.ended < summary.trials:
        trials = f"{summary.ended:,} of {trials} ended"
    yield Fact(name="trials", value=f"{trials}, {run.parallel:,} in parallel")
    if run.regraded_from is not None:
        yield Fact(name="regraded from", value=run.regraded_from)
    for notice in run.notices:
        if notice.waited_s is None:
            yield Fact(name="note", value=notice.message)
    if run.cases is not None:
        yield Fact(name="cases", value=run.cases.sentence)
    if run.models is not None:
        yield Fact(name="models", value=run.models.sentence)
    if summary.total_cost_usd is not None:
        yield Fact(name="cost", value=total_cost(summary))


def _how_it_went(run: RunInfo) -> str:
    words = []
    if run.running:
        words.append("in progress")
    elif run.interrupted:
        words.append("interrupted")
    elif run.held_back:
        words.append("trials pending")
    if run.resumed:
        words.append("resumed once" if run.resumed == 1 else f"resumed {run.resumed:,} times")
    return "".join(f"; {word}" for word in words)
