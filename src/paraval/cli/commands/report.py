"""`paraval runs` and `paraval report`: what the store holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.github import tell_github
from paraval.cli.options import (
    baseline_from,
    baseline_options,
    json_option,
    output_of_any_option,
    run_argument,
    store_option,
)
from paraval.cli.output import iso, print_report
from paraval.errors import ParavalError, RequestError
from paraval.records import RunInfo
from paraval.report.contents import References, RunSource
from paraval.report.formats.json import AsJson
from paraval.report.formats.run_text import TextDetail
from paraval.report.report import Report, check_output_paths, write_files
from paraval.runner.baseline import resolve_baseline_for
from paraval.runner.resume import how_to_resume
from paraval.runner.run import open_store, references_in
from paraval.runner.stored_runs import earlier_in
from paraval.settings import RACE, TESTS, Options, is_of_tests, is_race
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.text.words import duration

SUITE = "suite"


@click.command("runs")
@store_option
@json_option
def runs_command(store: Path | None, *, as_json: bool) -> None:
    """List the runs in the store, newest first."""
    opened = open_store(Options(store=store))
    runs = opened.runs()
    for run_id, error in opened.unreadable().items():
        talk(f"note: run {run_id} cannot be shown: {error.message}")
    if as_json:
        click.echo(json.dumps([_run_mapping(opened, info) for info in runs], indent=2))
        return
    if not runs:
        click.echo("No runs yet. Start one: paraval run SUITE", err=True)
    for info in runs:
        suite, kind = one_line(info.suite, 30), _kind(opened, info)
        not_run = _not_run(opened, info)
        click.echo(
            f"{info.id}  {suite:<30}  {info.done - not_run:>6,}/{info.trials:,} "
            f"{'steps ' if kind == RACE else 'trials'}  {duration(info.wall_s):>12}  "
            f"{_state(info).replace('_', ' ')}{'' if kind == SUITE else f' ({kind})'}"
            f"{f', stopped early: {not_run:,} not run' if not_run else ''}"
        )


def _kind(store: Store, info: RunInfo) -> str:
    """By what grows while it goes on, which is told without reading all that a race began with."""
    try:
        if store.grows(info):
            return RACE
        return TESTS if is_of_tests(store.selection(info)) else SUITE
    except ParavalError:
        # It went, or broke, since it was listed.
        return SUITE


def _not_run(store: Store, info: RunInfo) -> int:
    """What an early stop left out; looked for only where there may have been one."""
    if info.stop is None:
        return 0
    try:
        with store.reader(info) as reader:
            return reader.not_run()
    except ParavalError:
        # As above.
        return 0


def _state(info: RunInfo) -> str:
    if info.running:
        return "running"
    if info.held_back:
        return "held_back"
    # A race that names its trials as it goes on may have a result for each, and not be over.
    if info.done == info.trials and not info.interrupted:
        return "done"
    return "killed" if info.ended_at is None else "interrupted"


def _run_mapping(store: Store, info: RunInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "kind": _kind(store, info),
        "suite": info.suite,
        "source": info.source,
        "folder": info.folder,
        "started_at": iso(info.started_at),
        "ended_at": None if info.ended_at is None else iso(info.ended_at),
        "wall_s": info.wall_s,
        "parallel": info.parallel,
        "trials": info.trials,
        "done": info.done,
        "not_run": _not_run(store, info),
        "resumed": info.resumed,
        "state": _state(info),
    }


@click.command("report")
@run_argument
@output_of_any_option
@baseline_options
@store_option
@click.option(
    "-v", "--verbose", is_flag=True, help="Add p-values, power, p95, tokens, retries and notes."
)
@json_option
def report_command(
    run: str, outputs: tuple[Path, ...], store: Path | None, *, as_json: bool, **given: Any
) -> int:
    """Show the report of a RUN (an id, the beginning of one, a run's folder, `last`,
    or `last~1` for the one before it).

    Ends with the exit code that the run itself ended with, unless it is held against another
    baseline here.
    """
    asked = baseline_from(given)
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if is_race(opened.selection(info)):
        if asked.as_mapping():
            raise RequestError(f"run {info.id} is a race, which has a baseline of its own")
        # Only here: runs of suites need nothing of it.
        from paraval.cli.progress.race_showing import show_recorded  # noqa: PLC0415 - see above

        return show_recorded(opened, info, outputs, as_json=as_json)
    check_output_paths(outputs)
    baseline = resolve_baseline_for(info, asked, opened)
    with opened.reader(info) as reader:
        references = references_in(opened)
        if asked.baseline is None and Path(info.folder).parent != opened.runs_folder:
            references = _only_runs(references)
        report = Report(reader, references, earlier_in(opened, info))
        report.hold_against(baseline)
        if as_json:
            AsJson().write(report, sys.stdout)
        else:
            resume = how_to_resume(report.run)
            print_report(report, TextDetail(verbose=given["verbose"], resume=resume))
        write_files(report, outputs)
        tell_github(report)
        return report.exit_code


def _only_runs(references: References) -> References:
    """For a run from elsewhere, which may be a stranger's: no file is read because it says so."""

    def find(name: str) -> RunSource:
        if Path(name).is_absolute():
            why = "only the run itself names it, and it may be a stranger's"
            talk(f"note: the baseline {name} is not read: {why}; name it with --baseline")
            raise RequestError(why)
        return references(name)

    return find
