"""`paraval run`, `paraval resume`, `paraval regrade`, and `paraval control` for a run in another
terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paraval import Suite
from paraval.cli.error_messages import (
    EXIT_BUSY,
    EXIT_INPUT_OUTPUT,
    EXIT_INTERRUPTED,
    EXIT_WRONG_REQUEST,
    complain,
    exit_code_of,
    talk,
)
from paraval.cli.options import (
    Choices,
    axes_and_values,
    baseline_from,
    baseline_options,
    budget_in_dollars,
    cluster_options,
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
from paraval.cli.output import own_name, print_at_end
from paraval.cli.progress.progress import RunOutput, choose, shown_by
from paraval.cli.suites import suite_files, suite_from
from paraval.errors import ParavalError, RequestError
from paraval.records import RunInfo
from paraval.report.files import check_output_paths
from paraval.runner.live import live_lines, require_live, send_command
from paraval.runner.run import open_store, run_stoppably
from paraval.settings import (
    PAIRWISE,
    Options,
    Selection,
    default_store,
    is_imported,
    is_of_tests,
    is_race,
)
from paraval.store.reader import RunReader
from paraval.text.terminal import printable
from paraval.text.words import some

if TYPE_CHECKING:
    from paraval.report.report import Report


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
    # Only now: what shows a report takes a while to load, and no run needs it before.
    from paraval.cli.run_report import show_report  # noqa: PLC0415 - see above

    return report, show_report(suite, selection, options, showing, report)


# ---- several suites

_WORST_FIRST = (EXIT_INTERRUPTED, EXIT_WRONG_REQUEST, EXIT_INPUT_OUTPUT, EXIT_BUSY, 1, 3, 0)
_IN_OUTPUT = "{suite}"


def _run_each(
    files: Sequence[Path], selection: Selection, options: Options, showing: RunOutput
) -> int:
    """Run suites one after another, print a table of them, and return the worst exit code."""
    from paraval.cli.run_report import SuiteEnd, heading, suites_text  # noqa: PLC0415 - as above

    outputs = _outputs_by_suite(files, showing.outputs)
    ends: list[SuiteEnd] = []
    for file in files:
        print_at_end(partial(heading, file, len(ends), len(files)))
        report, code = _run_one(file, selection, options, replace(showing, outputs=outputs[file]))
        ends.append(SuiteEnd(file=file, report=report, code=code))
        if ends[-1].code == EXIT_INTERRUPTED:
            break
    print_at_end(partial(suites_text, ends))
    if left := [str(file) for file in files[len(ends) :]]:
        talk(f"Not run: {some(left, 5)}")
    return min((end.code for end in ends), key=_WORST_FIRST.index)


def _run_one(
    file: Path, selection: Selection, options: Options, showing: RunOutput
) -> tuple[Report | None, int]:
    """No report: an error kept it from running to its end."""
    try:
        return report_and_code(suite_from(file), selection, options, showing)
    except ParavalError as error:
        complain(error)
        return None, exit_code_of(error)


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


@click.command("run")
@suites_argument
@selection_options
@baseline_options
@cluster_options
@output_option
@progress_option
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
    after a crash, continue with `paraval resume`.
    """
    selection = baseline_from(given).over(selection_from(given))
    options = Options(
        store=given["store"],
        seed=given["seed"],
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
@click.option("--errors", is_flag=True, help="Also rerun trials that ended in an error.")
@click.option("--failed", is_flag=True, help="Also rerun trials that failed, or ended in an error.")
@store_option
@verbose_option
def resume_command(run: str, **given: Any) -> int:
    """Resume a RUN of a suite, or a race. RUN is an id, the start of an id, `last` (the default) or
    `last~1` for the one before it.

    Trials that have a result do not run again, unless the suite has changed what decides it: the
    prompt, the case, the target or the graders. To judge stored answers by changed graders, use
    regrade. With --errors or --failed, new results take the place of the old ones in the report,
    and what was paid stays counted. Filters and --models narrow what runs now; --budget is for the
    whole run, including what it has already spent.
    """
    selection = baseline_from(given).over(selection_from(given))
    store = open_store(Options(store=given["store"]))
    info = store.find(run)
    options = Options(
        store=given["store"],
        resume=info.folder,
        rerun="failed" if given["failed"] else "errors" if given["errors"] else None,
        cluster=given["cluster"],
        insecure_cluster=given["insecure_cluster"],
    )
    if PAIRWISE in store.selection(info):
        from paraval.cli.commands.compare import show_pairs  # noqa: PLC0415 - few runs judge pairs
        from paraval.runner.pairwise import request_of  # noqa: PLC0415 - see above

        return show_pairs(*request_of(store, info), selection, RunOutput.from_options(given))
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
    from paraval.runner.regrade import source_of  # noqa: PLC0415 - seldom needed

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
    from paraval.cli import race_report  # noqa: PLC0415 - see above

    if options.rerun == "failed":
        raise RequestError(
            f"run {info.id} is a race, whose failed candidates do not run again",
            hint="--errors reruns the steps that ended in an error",
        )
    asked = set(selection.as_mapping()) - {"parallel"}
    if asked:
        raise RequestError(
            f"run {info.id} is a race, which resumes with its original settings",
            hint=f"leave out options for suites: {', '.join(sorted(asked))}",
        )
    parallel = None if selection.parallel == "auto" else selection.parallel
    showing = RunOutput.from_options(given)
    report = race_report.go_on_with_race(info, options, showing, parallel)
    return race_report.exit_code_after(report, showing)


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
        chosen = axes_and_values(given["variants"])
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
