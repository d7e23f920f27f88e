"""Shows a race: while it runs, when it ends, and later from the store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from paraval.cli.error_messages import EXIT_CANNOT_TELL, EXIT_INTERRUPTED, complain, talk
from paraval.cli.github import append_summary
from paraval.cli.output import print_at_end
from paraval.cli.progress.progress import RunOutput, choose, shown_by
from paraval.cli.progress.race_progress import RaceProgress
from paraval.errors import ParavalError
from paraval.racing.report.race_report import RaceReport, check_race_outputs
from paraval.racing.run import report_of, resume_race
from paraval.records import RunInfo
from paraval.runner.session import Observer
from paraval.settings import Options
from paraval.store.store import Store

OF_THE_WINNER = (".patch", ".diff")


def race_and_show(start: Callable[[Observer], RaceReport], showing: RunOutput) -> RaceReport:
    """Run a race and show its progress."""
    check_race_outputs(showing.outputs)
    view = choose(showing.progress, sys.stderr, showing.verbose, shown_as=RaceProgress)
    with shown_by(view) as observer:
        return start(observer)


def exit_code_after(report: RaceReport, showing: RunOutput) -> int:
    """Print and write the report; return the exit code."""
    code = EXIT_INTERRUPTED if report.run.interrupted else report.exit_code
    is_written = _write(report, showing.outputs)
    print_at_end(report.text_on)
    append_summary(report.markdown)
    return code if is_written else code or EXIT_CANNOT_TELL


def go_on_with_race(
    run: RunInfo, options: Options, showing: RunOutput, parallel: int | None = None
) -> RaceReport:
    """Resume a race that was interrupted or killed, with its original settings."""
    return race_and_show(
        lambda observer: resume_race(run, parallel=parallel, options=options, observer=observer),
        showing,
    )


def show_recorded(
    store: Store, run: RunInfo, outputs: Sequence[Path], *, as_json: bool, check: bool
) -> int:
    """Show a stored race; with `check`, its verdict is the exit code."""
    check_race_outputs(outputs)
    report = report_of(store, run)
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        print_at_end(report.text_on)
    append_summary(report.markdown)
    verdict = EXIT_INTERRUPTED if report.run.interrupted else report.exit_code
    code = verdict if check else 0
    return code if _write(report, outputs) else code or EXIT_CANNOT_TELL


def _write(report: RaceReport, outputs: Sequence[Path]) -> bool:
    """Write all outputs, even if one fails; False if any did."""
    failures = 0
    for path in outputs:
        if report.winner is None and path.suffix.lower() in OF_THE_WINNER:
            talk(f"note: {path} was not written: there is no winner")
            continue
        try:
            report.write(path)
        except ParavalError as error:
            failures += 1
            complain(error)
    if failures:
        talk(f"hint: the race is stored; write it with: paraval report {report.run.id} -o FILE")
    return not failures
