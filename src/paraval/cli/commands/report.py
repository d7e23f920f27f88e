"""`paraval report`: the report of a stored run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.github import report_to_github
from paraval.cli.options import (
    baseline_from,
    baseline_options,
    json_option,
    output_of_any_option,
    run_argument,
    store_option,
)
from paraval.cli.output import command_to_resume, print_report
from paraval.errors import RequestError
from paraval.report.contents import References, RunSource
from paraval.report.formats.json import AsJson
from paraval.report.formats.run_text import TextDetail
from paraval.report.report import Report, check_output_paths, write_files
from paraval.runner.baseline import resolve_baseline_for
from paraval.runner.run import open_store, references_in
from paraval.runner.stored_runs import earlier_in, labels_in, pairwise_in
from paraval.settings import Options, is_race
from paraval.text.words import listed


@click.command("report")
@run_argument
@output_of_any_option
@baseline_options
@click.option(
    "--check", is_flag=True, help="Exit with the gate's verdict: 0 passed, 1 failed, 3 undecided."
)
@store_option
@click.option(
    "-v", "--verbose", is_flag=True, help="Add p-values, power, p95, tokens, retries and notes."
)
@json_option
def report_command(
    run: str,
    outputs: tuple[Path, ...],
    store: Path | None,
    *,
    check: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Show the report of a RUN, or write it to files. RUN is an id, the start of an id, a run's
    folder, `last` (the default) or `last~1` for the one before it.

    Exits with 0 once the report is printed and written, whatever the verdict. With --check, exits
    as the run itself did, or by the verdict against the baseline given here.
    """
    asked = baseline_from(given)
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if is_race(opened.selection(info)):
        if asked.as_mapping():
            raise RequestError(f"run {info.id} is a race, which has its own baseline")
        # Only here: runs of suites need nothing of it.
        from paraval.cli.progress.race_showing import show_recorded  # noqa: PLC0415 - see above

        return show_recorded(opened, info, outputs, as_json=as_json, check=check)
    check_output_paths(outputs)
    baseline = resolve_baseline_for(info, asked, opened)
    with opened.reader(info) as reader:
        references = references_in(opened)
        if asked.baseline is None and Path(info.folder).parent != opened.runs_folder:
            references = _only_runs(references)
        report = Report(
            reader,
            references,
            earlier_in(opened, info),
            labels_in(opened, info),
            pairwise_in(opened, info),
        )
        report.hold_against(baseline)
        if as_json:
            AsJson().write(report, sys.stdout)
        else:
            resume = command_to_resume(report.run)
            print_report(report, TextDetail(verbose=given["verbose"], resume=resume))
        write_files(report, outputs)
        if outputs:
            talk(f"Wrote {listed([str(path) for path in outputs])}")
        report_to_github(report)
        return report.exit_code if check else 0


def _only_runs(references: References) -> References:
    """Find runs only, no files: the run may be a stranger's, who must not choose what is read."""

    def find(name: str) -> RunSource:
        if Path(name).is_absolute():
            why = "only the run itself names it, and the run may not be yours"
            talk(f"note: the baseline {name} is not read: {why}; name it with --baseline")
            raise RequestError(why)
        return references(name)

    return find
