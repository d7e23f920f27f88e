"""What a run prints and writes when it has ended; loaded only then."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from paraval import Suite
from paraval.cli.error_messages import EXIT_CANNOT_TELL, EXIT_INTERRUPTED, complain, talk
from paraval.cli.github import report_to_github
from paraval.cli.output import command_to_resume, own_name, print_at_end, rate_of
from paraval.cli.progress.progress import RunOutput
from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.records import Outcome, RunInfo
from paraval.report.contents import Contents
from paraval.report.files import write_files
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.gate import SPOKEN
from paraval.report.report import Report
from paraval.report.summary.tally import Summary, Tally
from paraval.runner.pairwise import PairwiseRequest
from paraval.runner.run import open_store
from paraval.settings import Options, Selection
from paraval.text.tables import Column, Page, Table, TableRow, table_lines
from paraval.text.words import UNKNOWN, counted, listed


def show_report(
    suite: Suite, selection: Selection, options: Options, showing: RunOutput, report: Report
) -> int:
    """Judge pairs if the suite asks for it, write and print the report; returns the exit code."""
    pairs: RunInfo | None = None
    if suite.definition.pairwise is not None and not report.run.interrupted:
        pairs = _judge_pairs(suite, selection, report, showing)
    code = _write(report, showing)
    if pairs is not None and pairs.interrupted:
        code = EXIT_INTERRUPTED
    detail = TextDetail(
        verbose=showing.verbose,
        are_failures_above=_are_failures_above(report, showing),
        resume=_command_to_resume(report.run, options),
    )
    print_at_end(partial(showing.text or partial(run_text, detail=detail), report))
    _print_how_to_resume(report, detail.resume)
    if options.rerun == "failed" and _are_cached_again(report):
        talk("Every answer came from the cache; --cache refresh asks the models again")
    report_to_github(report)
    return code


def _are_cached_again(report: Report) -> bool:
    """Whether all that had failed was answered from the cache, so that nothing new was tried."""
    spends = [one.result.told_spend for one in report.trials if Outcome.FAILED in one.retries]
    return bool(spends) and all(one and one.cached and not one.calls for one in spends)


def _judge_pairs(
    suite: Suite, selection: Selection, report: Report, showing: RunOutput
) -> RunInfo | None:
    """Judge pairs of the answers with what is left of the budget; the report then shows it."""
    # Only here: few suites compare answers in pairs.
    from paraval.cli.commands.compare import judge_pairs_shown  # noqa: PLC0415 - see above

    run, summary, budget = report.run, report.summary, suite.definition.budget
    usd = selection.budget_usd if budget is None or selection.budget_usd else budget.usd
    spent = summary.spent + run.dropped_usd
    left = None if usd is None else usd - spent
    if run.held_back or (left is not None and left <= 0):
        talk(f"Pairs are not judged yet. When the run is complete: paraval pairwise {run.id}")
        return None
    store = open_store(Options(store=Path(run.folder).parent.parent))
    settings = Selection(parallel=selection.parallel, cache=selection.cache, budget_usd=left)
    try:
        return judge_pairs_shown(store, suite, PairwiseRequest(run=run.id), settings, showing)
    except RequestError as error:
        talk(f"note: pairs are not judged: {error.message}")
        return None


def _are_failures_above(report: Report, showing: RunOutput) -> bool:
    """Whether progress has just shown each failure on the terminal that the report goes to."""
    is_shown = showing.progress not in ("none", "json") and not report.run.resumed
    streams = (sys.stdout, sys.stderr)
    return is_shown and all(stream is not None and stream.isatty() for stream in streams)


def _write(report: Report, showing: RunOutput) -> int:
    """Write the files; the exit code also shows if one could not be written after all."""
    try:
        write_files(report, showing.outputs)
    except ParavalError as error:
        complain(error)
        return report.exit_code or EXIT_CANNOT_TELL
    if showing.outputs and showing.progress != "json":
        here = Path.cwd()
        written = [
            path.relative_to(here) if path.is_relative_to(here) else path
            for path in showing.outputs
        ]
        talk(f"Wrote {listed(list(map(str, written)))}")
    return report.exit_code


def _print_how_to_resume(report: Report, resume: str) -> None:
    run = report.run
    if run.source is not None and run.held_back and not run.interrupted:
        for sentence in ways_to_resume(report, resume):
            talk(sentence)


def _command_to_resume(run: RunInfo, options: Options) -> str:
    """On the same cluster."""
    command = command_to_resume(run)
    if options.cluster is not None:
        command += f" --cluster {options.cluster}{' --insecure-cluster' * options.insecure_cluster}"
    return command


# How to resume a run that left trials pending on purpose.

BUDGET = "budget"
"""The reason of a trial that the budget left pending starts with this."""

_SPARE = 1.5
"""Estimates are a little off, and a budget that runs out again near the end helps no one."""
_AMOUNT = re.compile(r"\$(\d[\d,]*(?:\.\d+)?)")


def ways_to_resume(contents: Contents, resume: str) -> Iterator[str]:
    """What to do next, by why trials were skipped; `resume` is the command that resumes."""
    summary = contents.summary
    by_budget = [why for why in summary.skipped_by_reason if why.startswith(BUDGET)]
    skipped = sum(summary.skipped_by_reason[why] for why in by_budget)
    pending = summary.skipped - skipped
    if pending:
        are = "is" if pending == 1 else "are"
        trials = counted(pending, "trial")
        yield f"{trials} {are} pending. Fix the problem above, then run: {resume}"
    if by_budget:
        yield "The next trial would exceed the budget. " + _with_more(contents, by_budget, resume)


def _with_more(contents: Contents, by_budget: list[str], resume: str) -> str:
    budget = enough_for_all(contents, above=max(map(_largest_amount, by_budget)))
    if budget is not None:
        return f"Resume with: {resume} --budget {budget:g}"
    plan = f"{own_name()} plan {shlex.quote(contents.run.source or 'SUITE')}"
    return f"{plan} estimates the cost of trials. Resume with: {resume} --budget USD"


def enough_for_all(contents: Contents, *, above: float) -> float | None:
    """A budget that covers every trial at the cost so far; None if no cost is known.

    It is also well above the last one: a run stops at what trials may cost, which can be far more
    than what they cost so far.
    """
    expected = _expected(contents.summary)
    if expected <= 0:
        return None
    return _rounded_up(max(expected * _SPARE + contents.run.dropped_usd, above * 2))


def _expected(summary: Summary) -> float:
    """The expected cost of all trials, from each variant's mean, or else the highest mean."""
    means = [_mean(one) for one in summary.variants]
    highest = max((mean for mean in means if mean is not None), default=0.0)
    return sum(
        one.trials * (highest if mean is None else mean)
        for one, mean in zip(summary.variants, means, strict=True)
    )


def _mean(tally: Tally) -> float | None:
    """Mean cost of trials with a known cost; cached ones as when they were requested, since the
    next ones are not cached."""
    known = tally.ended - tally.trials_without_cost
    return None if known <= 0 else (tally.total_cost_usd or 0.0) / known


def _largest_amount(reason: str) -> float:
    """The budget. A run does not store it, but the reason names it, and it exceeds the spend."""
    return max((float(usd.replace(",", "")) for usd in _AMOUNT.findall(reason)), default=0.0)


def _rounded_up(usd: float) -> float:
    """Round up to two significant digits: 4.83 becomes 4.9, 0.0123 becomes 0.013."""
    step = 10.0 ** (math.floor(math.log10(usd)) - 1)
    return round(math.ceil(usd / step - 1e-9) * step, 12)


# ---- several suites

_STYLES = {"passed": "green", "failed": "red", "error": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteEnd:
    """How one of several suites ended."""

    file: Path
    report: Report | None
    """None: an error kept it from running to its end."""
    code: int

    @property
    def gate(self) -> str:
        if self.code == EXIT_INTERRUPTED:
            return "interrupted"
        return "error" if self.report is None else SPOKEN[self.report.gate.verdict]


def heading(file: Path, before: int, number: int, page: Page) -> str:
    return "\n" * bool(before) + page.quote(f"Suite {before + 1} of {number}: {file}")


def suites_text(ends: Sequence[SuiteEnd], page: Page) -> str:
    def row(end: SuiteEnd) -> TableRow:
        gate, report = end.gate, end.report
        name = str(end.file) if report is None else report.run.suite
        figures = (
            (UNKNOWN, UNKNOWN, UNKNOWN)
            if report is None
            else (rate_of(report.summary), report.summary.total_cost, report.run.id)
        )
        return TableRow(label=page.quote(name), cells=(gate, *figures), style=_STYLES.get(gate, ""))

    columns: list[Column[str]] = [
        Column(heading="gate", cell=str, is_left=True),
        Column(heading="pass rate", cell=str),
        Column(heading="cost", cell=str),
        Column(heading="run", cell=str, is_left=True),
    ]
    table = Table(label="suite", columns=columns, rows=[row(end) for end in ends])
    return "\n" + "\n".join(table_lines(table, page))
