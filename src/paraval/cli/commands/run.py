"""`paraval run` and `paraval resume`."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from paraval import Suite
from paraval.cli.error_messages import EXIT_CANNOT_TELL, complain, talk
from paraval.cli.github import tell_github
from paraval.cli.options import (
    baseline_from,
    baseline_options,
    output_of_any_option,
    output_option,
    run_argument,
    selection_from,
    selection_options,
    store_option,
    suite_argument,
)
from paraval.cli.output import print_at_end
from paraval.cli.progress.progress import MODES, RunOutput, choose, shown_by
from paraval.cli.suites import suite_from
from paraval.errors import ParavalError, RequestError
from paraval.records import RunInfo
from paraval.report.contents import Contents
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.report import Report, check_output_paths, write_files
from paraval.report.summary.summary import Summary, Tally
from paraval.runner.resume import how_to_resume
from paraval.runner.run import open_store, run_stoppably
from paraval.settings import Options, Selection, is_of_tests, is_race

# How to go on with a run that left trials for later on purpose.

BUDGET = "budget"
"""How the reason of a trial begins that the budget left for later."""

_SPARE = 1.5
"""Expectations are off by a little, and a budget that is spent again near the end helps no one."""
_AMOUNT = re.compile(r"\$(\d[\d,]*(?:\.\d+)?)")


def ways_to_go_on(contents: Contents, resume: str) -> Iterator[str]:
    """What to do, by why trials were skipped; `resume` is the command that goes on."""
    summary = contents.summary
    by_budget = [why for why in summary.skipped_by_reason if why.startswith(BUDGET)]
    skipped = sum(summary.skipped_by_reason[why] for why in by_budget)
    others = summary.skipped - skipped
    if others:
        wait = "trial waits" if others == 1 else "trials wait"
        yield f"{others:,} {wait} for what is told above. Mend it, then go on with: {resume}"
    if by_budget:
        yield "The next trial would pass the budget. " + _with_more(contents, by_budget, resume)


def _with_more(contents: Contents, by_budget: list[str], resume: str) -> str:
    budget = enough_for_all(contents, above=max(map(_largest_amount, by_budget)))
    if budget is not None:
        return f"Go on with: {resume} --budget {budget:g}"
    plan = f"paraval plan {shlex.quote(contents.run.source or 'SUITE')}"
    return f"{plan} tells what trials may cost. Go on with: {resume} --budget USD"


def enough_for_all(contents: Contents, *, above: float) -> float | None:
    """A budget that every trial fits in, at what they cost so far; None where nothing is known.

    Also well above the last one: what stops a run is what trials may cost, which can be far more
    than what they cost so far.
    """
    expected = _expected(contents.summary)
    if expected <= 0:
        return None
    return _rounded_up(max(expected * _SPARE + contents.run.dropped_usd, above * 2))


def _expected(summary: Summary) -> float:
    """What all trials cost, each variant by its own trials, and one without any by the dearest."""
    means = [_mean(one) for one in summary.variants]
    dearest = max((mean for mean in means if mean is not None), default=0.0)
    return sum(
        one.trials * (dearest if mean is None else mean)
        for one, mean in zip(summary.variants, means, strict=True)
    )


def _mean(tally: Tally) -> float | None:
    """Of trials whose cost is known, and without those from the cache: those to come are not."""
    paid = tally.ended - tally.trials_without_cost - tally.from_cache
    return None if paid <= 0 else (tally.total_cost_usd or 0.0) / paid


def _largest_amount(reason: str) -> float:
    """The budget, which a run does not keep but the reason names: more than what was spent."""
    return max((float(told.replace(",", "")) for told in _AMOUNT.findall(reason)), default=0.0)


def _rounded_up(usd: float) -> float:
    """To two digits that count: 4.83 becomes 4.9, 0.0123 becomes 0.013."""
    step = 10.0 ** (math.floor(math.log10(usd)) - 1)
    return round(math.ceil(usd / step - 1e-9) * step, 12)


def run_and_show(suite: Suite, selection: Selection, options: Options, showing: RunOutput) -> int:
    """Runs a suite, shows it, and gives the exit code."""
    _, code = report_and_code(suite, selection, options, showing)
    return code


def report_and_code(
    suite: Suite, selection: Selection, options: Options, showing: RunOutput
) -> tuple[Report, int]:
    """Runs a suite and shows it."""
    check_output_paths(showing.outputs)
    with shown_by(choose(showing.progress, sys.stderr, verbose=showing.verbose)) as observer:
        report = run_stoppably(suite, selection=selection, options=options, observer=observer)
    code = _write(report, showing.outputs)
    detail = TextDetail(
        verbose=showing.verbose,
        are_failures_above=_are_failures_above(report, showing),
        resume=how_to_resume(report.run),
    )
    print_at_end(lambda page: run_text(report, page, detail))
    _say_how_to_go_on(report)
    tell_github(report)
    return report, code


def _are_failures_above(report: Report, showing: RunOutput) -> bool:
    """Whether progress has just shown each failure on the terminal that the report goes to."""
    is_shown = showing.progress not in ("none", "json") and not report.run.resumed
    streams = (sys.stdout, sys.stderr)
    return is_shown and all(stream is not None and stream.isatty() for stream in streams)


def _write(report: Report, outputs: tuple[Path, ...]) -> int:
    """The exit code, which tells too when a file could not be written after all."""
    try:
        write_files(report, outputs)
    except ParavalError as error:
        complain(error)
        return report.exit_code or EXIT_CANNOT_TELL
    return report.exit_code


def _say_how_to_go_on(report: Report) -> None:
    run = report.run
    if run.source is not None and run.held_back and not run.interrupted:
        for sentence in ways_to_go_on(report, how_to_resume(run)):
            talk(sentence)


progress_option = click.option(
    "--progress",
    type=click.Choice(MODES),
    default="auto",
    show_default=True,
    help="How to show what happens, on stderr.",
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Name trials as they start; report in detail."
)


@click.command("run", short_help="Run a suite, in parallel, and report.")
@suite_argument
@selection_options
@baseline_options
@output_option
@progress_option
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on with a run; without a name, with the suite's last unfinished one.",
)
@click.option(
    "--retry-errors", is_flag=True, help="In the suite's last run, run again what was an error."
)
@store_option
@click.option(
    "--seed",
    type=int,
    help="For the jitter of retries, and the order of cases of an early stop."
    " [default: the suite's, or 0]",
)
@verbose_option
def run_command(suite: Path, **given: Any) -> int:
    """Run a SUITE, in parallel, and report.

    The report goes to stdout, progress to stderr. Every result is on disk as soon as it is there:
    after a crash, go on with --resume.
    """
    selection = baseline_from(given).over(selection_from(given))
    options = Options(
        store=given["store"],
        seed=given["seed"],
        resume=given["resume"],
        retry_errors=given["retry_errors"],
    )
    return run_and_show(suite_from(suite), selection, options, RunOutput.from_options(given))


@click.command("resume", short_help="Go on with a run that was interrupted, killed or held back.")
@run_argument
@selection_options
@baseline_options
@output_of_any_option
@progress_option
@click.option("--retry-errors", is_flag=True, help="Run again what ended in an error.")
@store_option
@verbose_option
def resume_command(run: str, **given: Any) -> int:
    """Go on with a RUN (an id, the beginning of one, `last` or `last~1`) of a suite, or a race.

    What has a result is not run again. Filters and --models narrow what runs now; --budget is for
    the whole run, what it spent before included.
    """
    selection = baseline_from(given).over(selection_from(given))
    store = open_store(Options(store=given["store"]))
    info = store.find(run)
    options = Options(store=given["store"], resume=info.id, retry_errors=given["retry_errors"])
    if is_race(store.selection(info)):
        return _go_on_with_race(info, selection, options, given)
    if is_of_tests(store.selection(info)):
        raise RequestError(
            f"run {info.id} is one of pytest, which goes on with no run",
            hint="run the tests again; `pytest --lf` runs those that failed",
        )
    if info.source is None:
        raise RequestError(
            f"run {info.id} was started from Python, where its suite is",
            hint=f"go on there: paraval.run(suite, options=paraval.Options(resume='{info.id}'))",
        )
    return run_and_show(
        suite_from(Path(info.source)), selection, options, RunOutput.from_options(given)
    )


def _go_on_with_race(
    info: RunInfo, selection: Selection, options: Options, given: dict[str, Any]
) -> int:
    # Only here: runs of suites need nothing of it.
    from paraval.cli.progress import race_showing  # noqa: PLC0415 - see above

    asked = set(selection.as_mapping()) - {"parallel"}
    if asked:
        raise RequestError(
            f"run {info.id} is a race, which goes on as it was asked for",
            hint=f"leave out what is for suites: {', '.join(sorted(asked))}",
        )
    parallel = None if selection.parallel == "auto" else selection.parallel
    showing = RunOutput.from_options(given)
    report = race_showing.go_on_with_race(info, options, showing, parallel)
    return race_showing.exit_code_after(report, showing)
