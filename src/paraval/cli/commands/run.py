"""`paraval run`, `paraval resume`, `paraval regrade`, and `paraval control` for a run in another
terminal."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from paraval import Suite
from paraval.cli.error_messages import (
    EXIT_BUSY,
    EXIT_CANNOT_TELL,
    EXIT_INPUT_OUTPUT,
    EXIT_INTERRUPTED,
    EXIT_WRONG_REQUEST,
    complain,
    exit_code_of,
    talk,
)
from paraval.cli.github import report_to_github
from paraval.cli.options import (
    Choices,
    axis_and_value,
    baseline_from,
    baseline_options,
    budget_in_dollars,
    cluster_options,
    failed_option,
    has_values,
    no_match,
    output_of_any_option,
    output_option,
    parallel_in_range,
    parallel_option,
    progress_option,
    regrade_options,
    run_argument,
    seed_option,
    selection_from,
    selection_options,
    store_option,
    suite_argument,
    suites_argument,
    verbose_option,
)
from paraval.cli.output import command_to_resume, cost_of, own_name, print_at_end, rate_of
from paraval.cli.progress.progress import RunOutput, choose, shown_by
from paraval.cli.suites import suite_files, suite_from
from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.records import RunInfo
from paraval.report.contents import Contents
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.gate import GateVerdict
from paraval.report.report import Report, check_output_paths, write_files
from paraval.report.summary.summary import Summary, Tally
from paraval.runner.live import live_lines, require_live, send_command
from paraval.runner.pairwise import PairwiseRequest, request_of
from paraval.runner.regrade import source_of
from paraval.runner.run import open_store, run_stoppably
from paraval.settings import Options, Selection, default_store, is_imported, is_of_tests, is_race
from paraval.store.reader import RunReader
from paraval.text.tables import Column, Page, Table, TableRow, table_lines
from paraval.text.terminal import printable
from paraval.text.words import UNKNOWN, counted, listed, some

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


def run_and_show(suite: Suite, selection: Selection, options: Options, showing: RunOutput) -> int:
    """Run a suite, show its report, and return the exit code."""
    _, code = report_and_code(suite, selection, options, showing)
    return code


def report_and_code(
    suite: Suite, selection: Selection, options: Options, showing: RunOutput
) -> tuple[Report, int]:
    """Run a suite and show its report."""
    check_output_paths(showing.outputs)
    with shown_by(choose(showing.progress, sys.stderr, verbose=showing.verbose)) as observer:
        report = run_stoppably(suite, selection=selection, options=options, observer=observer)
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
    target = report.summary.target
    if options.failed and target.cached and not target.calls:
        talk("Every answer came from the cache; --cache refresh asks the models again")
    report_to_github(report)
    return report, code


def _judge_pairs(
    suite: Suite, selection: Selection, report: Report, showing: RunOutput
) -> RunInfo | None:
    """Judge pairs of the answers with what is left of the budget; the report then shows it."""
    # Only here: few suites compare answers in pairs.
    from paraval.cli.commands.compare import judge_pairs_shown  # noqa: PLC0415 - see above

    run, summary, budget = report.run, report.summary, suite.definition.budget
    usd = selection.budget_usd if budget is None or selection.budget_usd else budget.usd
    spent = summary.target.spent_usd + summary.judging.spent_usd + run.dropped_usd
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


# ---- several suites

_WORST_FIRST = (EXIT_INTERRUPTED, EXIT_WRONG_REQUEST, EXIT_INPUT_OUTPUT, EXIT_BUSY, 1, 3, 0)
_IN_OUTPUT = "{suite}"
_VERDICTS = {
    GateVerdict.MET: "passed",
    GateVerdict.MISSED: "failed",
    GateVerdict.UNKNOWN: "undecided",
}
_STYLES = {"passed": "green", "failed": "red", "error": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SuiteEnd:
    """How one of several suites ended."""

    file: Path
    report: Report | None
    """None: an error kept it from running to its end."""
    code: int

    @property
    def gate(self) -> str:
        if self.code == EXIT_INTERRUPTED:
            return "interrupted"
        return "error" if self.report is None else _VERDICTS[self.report.gate.verdict]


def _run_each(
    files: Sequence[Path], selection: Selection, options: Options, showing: RunOutput
) -> int:
    """Run suites one after another, print a table of them, and return the worst exit code."""
    if options.resumes:
        raise RequestError(
            f"--resume and --retry-errors are for one suite, not {len(files)}",
            hint=f"name one of them: {some([str(file) for file in files], 5)}",
        )
    outputs = _outputs_by_suite(files, showing.outputs)
    ends: list[_SuiteEnd] = []
    for file in files:
        print_at_end(partial(_heading, file, len(ends), len(files)))
        ends.append(_run_one(file, selection, options, replace(showing, outputs=outputs[file])))
        if ends[-1].code == EXIT_INTERRUPTED:
            break
    print_at_end(partial(_suites_text, ends))
    if left := [str(file) for file in files[len(ends) :]]:
        talk(f"Not run: {some(left, 5)}")
    return min((end.code for end in ends), key=_WORST_FIRST.index)


def _heading(file: Path, before: int, number: int, page: Page) -> str:
    return "\n" * bool(before) + page.quote(f"Suite {before + 1} of {number}: {file}")


def _run_one(file: Path, selection: Selection, options: Options, showing: RunOutput) -> _SuiteEnd:
    try:
        report, code = report_and_code(suite_from(file), selection, options, showing)
    except ParavalError as error:
        complain(error)
        return _SuiteEnd(file=file, report=None, code=exit_code_of(error))
    return _SuiteEnd(file=file, report=report, code=code)


def _outputs_by_suite(
    files: Sequence[Path], outputs: Sequence[Path]
) -> dict[Path, tuple[Path, ...]]:
    """The report files of each suite, with its path in place of `{suite}`."""
    for output in outputs:
        if len(files) > 1 and _IN_OUTPUT not in output.name:
            raise RequestError(
                f"-o {output.name}: {len(files)} suites cannot share one report file",
                hint=f"put {_IN_OUTPUT} into the file name: -o report-{_IN_OUTPUT}{output.suffix}",
            )
    shared = Path(os.path.commonpath([file.absolute().parent for file in files]))
    found: dict[Path, tuple[Path, ...]] = {}
    for file in files:
        name = "-".join(file.absolute().relative_to(shared).with_suffix("").parts)
        found[file] = tuple(
            output.with_name(output.name.replace(_IN_OUTPUT, name)) for output in outputs
        )
    written = [output for of_one in found.values() for output in of_one]
    if doubled := [output for place, output in enumerate(written) if output in written[:place]]:
        raise RequestError(f"two suites would write the same report file {doubled[0]}")
    check_output_paths(written)
    return found


def _suites_text(ends: Sequence[_SuiteEnd], page: Page) -> str:
    def row(end: _SuiteEnd) -> TableRow:
        gate, report = end.gate, end.report
        name = str(end.file) if report is None else report.run.suite
        figures = (
            (UNKNOWN, UNKNOWN, UNKNOWN)
            if report is None
            else (rate_of(report.summary), cost_of(report.summary), report.run.id)
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


@click.command("run")
@suites_argument
@selection_options
@baseline_options
@cluster_options
@output_option
@progress_option
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Resume a run; without RUN, the suite's last unfinished one.",
)
@click.option(
    "--retry-errors", is_flag=True, help="Rerun the trials of the suite's last run that had errors."
)
@failed_option
@store_option
@seed_option
@verbose_option
def run_command(suites: tuple[Path, ...], **given: Any) -> int:
    """Run a SUITE and print its report. Without SUITE: suite.yaml in the current folder.

    A folder stands for every suite in it and below: .yaml, .yml, .toml and .json files with a
    `target` key, outside of hidden folders and node_modules. Several suites run one after another,
    each as a run of its own; options such as --budget apply to each. A summary table comes last,
    and the exit code is the worst of them. For -o, write {suite} in the file name.

    The report goes to stdout, progress to stderr. Every result is saved as soon as it is known:
    after a crash, continue with --resume.
    """
    selection = baseline_from(given).over(selection_from(given))
    options = Options(
        store=given["store"],
        seed=given["seed"],
        resume=given["resume"],
        retry_errors=given["retry_errors"],
        failed=given["failed"],
        cluster=given["cluster"],
        insecure_cluster=given["insecure_cluster"],
    )
    showing = RunOutput.from_options(given)
    files = suite_files(suites, quiet=showing.progress == "json")
    if len(files) > 1:
        return _run_each(files, selection, options, showing)
    outputs = _outputs_by_suite(files, showing.outputs)[files[0]]
    return run_and_show(suite_from(files[0]), selection, options, replace(showing, outputs=outputs))


@click.command("resume")
@run_argument
@selection_options
@baseline_options
@cluster_options
@output_of_any_option
@progress_option
@click.option("--retry-errors", is_flag=True, help="Also rerun trials that ended in an error.")
@store_option
@verbose_option
def resume_command(run: str, **given: Any) -> int:
    """Resume a RUN of a suite, or a race. RUN is an id, the start of an id, `last` (the default) or
    `last~1` for the one before it.

    Trials that have a result do not run again, unless the suite has changed what decides it: the
    prompt, the case, the target or the graders. To judge stored answers by changed graders, use
    regrade. Filters and --models narrow what runs now; --budget is for the whole run, including
    what it has already spent.
    """
    selection = baseline_from(given).over(selection_from(given))
    store = open_store(Options(store=given["store"]))
    info = store.find(run)
    options = Options(
        store=given["store"],
        resume=info.id,
        retry_errors=given["retry_errors"],
        cluster=given["cluster"],
        insecure_cluster=given["insecure_cluster"],
    )
    if (pairs := request_of(store, info)) is not None:
        from paraval.cli.commands.compare import show_pairs  # noqa: PLC0415 - few runs judge pairs

        return show_pairs(*pairs, selection, RunOutput.from_options(given))
    if is_race(store.selection(info)):
        return _resume_race(info, selection, options, given)
    if is_of_tests(store.selection(info)):
        raise RequestError(
            f"run {info.id} is a pytest session, which cannot be resumed",
            hint="run the tests again; `pytest --lf` runs those that failed",
        )
    if is_imported(store.selection(info)):
        raise RequestError(
            f"run {info.id} was imported from another program, and cannot be resumed",
            hint=f"run the imported suite, then: paraval compare {info.id} last",
        )
    if info.source is None:
        raise RequestError(
            f"run {info.id} was started from Python, where its suite is defined",
            hint=f"resume there: paraval.run(suite, options=paraval.Options(resume='{info.id}'))",
        )
    return run_and_show(
        suite_from(Path(info.source)), selection, options, RunOutput.from_options(given)
    )


@click.command("regrade")
@run_argument
@suite_argument
@regrade_options
@baseline_options
@output_option
@progress_option
@store_option
@seed_option
@verbose_option
def regrade_command(run: str, suite: Path | None, **given: Any) -> int:
    """Grade the stored answers of a RUN again, with the graders of a SUITE as they are now.

    RUN is an id, the start of an id, `last` (the default) or `last~1` for the one before it. SUITE
    defaults to the run's own suite file. All answers of the run are graded, or those that the
    filters choose. Nothing runs again but graders, and nothing is paid for but judges, whose cached
    verdicts are reused. Errors stay errors. The result is a new run, which names its source;
    `paraval compare` shows which verdicts changed.

    Where a grader needs the files that attempts left in their workspaces, they are rebuilt from
    what the attempts started with and their patches.
    """
    selection = baseline_from(given).over(selection_from(given))
    options, showing = (
        Options(store=given["store"], seed=given["seed"]),
        RunOutput.from_options(given),
    )
    info = source_of(open_store(options), run)
    if suite is None and info.source is None:
        raise RequestError(
            f"run {info.id} was started from Python, where its suite is defined",
            hint="name a suite file, or regrade it there: paraval.run(suite,"
            f" selection=paraval.Selection(regrade='{info.id}'))",
        )
    file = Path(info.source or "") if suite is None else suite
    selection = replace(selection, regrade=info.folder)
    report, code = report_and_code(suite_from(file), selection, options, showing)
    if not (report.run.interrupted or report.run.held_back) and showing.progress != "json":
        stored = (
            "" if given["store"] == default_store().absolute() else f" --store {given['store']}"
        )
        talk(f"Changed verdicts: {own_name()} compare {info.id} {report.run.id}{stored}")
    return code


def _resume_race(
    info: RunInfo, selection: Selection, options: Options, given: dict[str, Any]
) -> int:
    # Only here: runs of suites need nothing of it.
    from paraval.cli.progress import race_showing  # noqa: PLC0415 - see above

    asked = set(selection.as_mapping()) - {"parallel"}
    if asked:
        raise RequestError(
            f"run {info.id} is a race, which resumes with its original settings",
            hint=f"leave out options for suites: {', '.join(sorted(asked))}",
        )
    parallel = None if selection.parallel == "auto" else selection.parallel
    showing = RunOutput.from_options(given)
    report = race_showing.go_on_with_race(info, options, showing, parallel)
    return race_showing.exit_code_after(report, showing)


@click.command("control")
@run_argument
@parallel_option
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Change the budget.")
@click.option(
    "--cancel", metavar="CASE", help="Skip this case for good: its trials that run or wait."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="AXIS=VALUE",
    help="With --cancel: only trials with this value. Repeatable.",
)
@click.option("--stop", is_flag=True, help="Stop the run, as Ctrl-C does; it can be resumed.")
@store_option
def control_command(run: str, *, store: Path | None, **given: Any) -> None:
    """Change a RUN that is running in another terminal, or show what it is doing.

    RUN is an id, the start of an id, or `last` (the default). What you change takes effect within
    a second: after a lower --parallel, running trials finish. --budget is for the whole run,
    including what it has already spent. A canceled trial is skipped for good, also by a resume.
    """
    folder = Path(open_store(Options(store=store)).find(run).folder)
    live = require_live(folder)
    commands: list[dict[str, Any]] = []
    if (parallel := parallel_in_range(given["parallel"])) is not None:
        commands.append({"do": "parallel", "value": parallel})
    if (budget := budget_in_dollars(given["budget"])) is not None:
        commands.append({"do": "budget", "value": budget})
    if given["cancel"] is not None:
        chosen = tuple(map(axis_and_value, given["variants"]))
        found = _pending_of(folder, given["cancel"], chosen)
        commands += [{"do": "cancel", "index": index} for index in found]
    elif given["variants"]:
        raise RequestError("--variant needs --cancel CASE")
    if given["stop"]:
        commands.append({"do": "stop"})
    for command in commands:
        send_command(folder, {**command, "by": f"{own_name()} control"})
    if commands:
        talk(f"Sent to run {folder.name}. See its terminal, or: {own_name()} control {run}")
    else:
        click.echo(printable("\n".join(live_lines(live))))


def _pending_of(folder: Path, case: str, choices: Choices) -> Sequence[int]:
    """The trials of a case that have no result yet, by index."""
    with RunReader(folder) as reader:
        pending = reader.pending(case)
        found = [index for index, variant in pending if has_values(variant, choices)]
        if not found:
            raise no_match(reader, case, choices, "trial without a result")
    return found
