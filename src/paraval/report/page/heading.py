"""The top of a page: the verdict, facts about the run, and the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from paraval.records import RunInfo
from paraval.report.contents import Contents
from paraval.report.gate import GateVerdict
from paraval.report.summary.closing import total_cost
from paraval.report.summary.summary import Summary
from paraval.text.words import counted, duration, percent, percent_range

MARKS = {GateVerdict.MET: "✓", GateVerdict.MISSED: "✗", GateVerdict.UNKNOWN: "?"}


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

    figure: str
    interval: str
    judged: str
    errors: str


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
    rate, interval = summary.pass_rate, summary.pass_rate_interval
    errors = ""
    worst, best = summary.rate_if_errors_failed, summary.rate_if_errors_passed
    if summary.errors and summary.judged and worst is not None and best is not None:
        counted_errors = counted(summary.errors, "error")
        errors = f"with {counted_errors} between {percent(worst)} and {percent(best)}"
    return Rate(
        figure="no rate" if rate is None else percent(rate),
        interval="" if interval is None else f"95%: {percent_range(*interval)}",
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
    yield Fact(name="trials", value=f"{trials}, {run.parallel:,} in parallel")
    if run.regraded_from is not None:
        yield Fact(name="regraded from", value=run.regraded_from)
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
