"""`paraval baseline`: the run that a suite is compared with."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path

import click

from paraval.cli.error_messages import talk
from paraval.cli.help import SuggestingGroup, example
from paraval.cli.options import json_option, store_option
from paraval.cli.output import iso, own_name
from paraval.errors import RequestError
from paraval.records import RunInfo
from paraval.report.report import Report
from paraval.report.summary.summary import Summary
from paraval.runner.run import open_store
from paraval.settings import Options
from paraval.store.baselines import Baselines, SetBaseline
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.text.words import counted, percent

LONGEST_NAME = 60


@click.group("baseline", cls=SuggestingGroup)
def baseline_command() -> None:
    """Set, show or clear the run that a suite is compared with.

    It applies if the suite has `max_drop` or `max_regressed`, or if a run is started with one of
    them as an option: the gate then fails if the pass rate drops by more than that, or if more
    cases regress.
    """


@baseline_command.command("set", epilog=example("paraval baseline set last"))
@click.argument("run")
@click.option("--suite", metavar="NAME", help="Set it for this suite. [default: the run's own]")
@store_option
def set_command(run: str, suite: str | None, store: Path | None) -> None:
    """Set a RUN as the baseline of its suite.

    RUN is an id, the start of an id, a run's folder, `last`, or `last~1` for the one before it. It
    must be complete.
    """
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if opened.grows(info):
        raise RequestError(f"run {info.id} is a race, and cannot be the baseline of a suite")
    _refuse_unfinished(info)
    with opened.reader(info) as reader:
        summary = Report(reader).summary
    if summary.pass_rate is None:
        raise RequestError(
            f"run {info.id} cannot be a baseline: none of its trials passed or failed",
            hint="choose a run with verdicts; errors are not verdicts",
        )
    name = info.suite if suite is None else suite
    is_here = Path(info.folder).parent == opened.runs_folder
    chosen = SetBaseline(
        run=info.id if is_here else info.folder,
        set_at=iso(time.time()),
        pass_rate=summary.pass_rate,
    )
    before = Baselines(opened.root).set(name, chosen)
    _print_set(name, chosen, before, summary)


def _refuse_unfinished(info: RunInfo) -> None:
    if info.running:
        raise RequestError(
            f"run {info.id} cannot be a baseline: it is still running",
            hint="wait until it has ended",
        )
    if info.interrupted or info.held_back or info.done < info.trials:
        left = counted(info.trials - info.done, "trial")
        raise RequestError(
            f"run {info.id} cannot be a baseline: it is not complete, {left} without a result",
            hint=f"resume it first: {own_name()} resume {info.id}",
        )


def _print_set(
    name: str, chosen: SetBaseline, before: SetBaseline | None, summary: Summary
) -> None:
    instead = f", replacing {before.run}" if before and before.run != chosen.run else ""
    click.echo(
        f"Baseline of suite '{one_line(name, LONGEST_NAME)}': run {chosen.run}"
        f" ({percent(chosen.pass_rate)} passed, {counted(summary.cases, 'case')}){instead}."
    )
    if summary.errors:
        has = "has" if summary.errors == 1 else "have"
        talk(f"note: {counted(summary.errors, 'error')} in it {has} no verdict to compare with")
    talk("It applies to runs with `max_drop` or `max_regressed` in the suite or as an option.")


@baseline_command.command("show", epilog=example("paraval baseline show"))
@store_option
@json_option
def show_command(store: Path | None, *, as_json: bool) -> None:
    """List the baselines in the store, by suite."""
    opened = open_store(Options(store=store))
    known = Baselines(opened.root).all()
    if as_json:
        click.echo(json.dumps({suite: asdict(one) for suite, one in known.items()}, indent=2))
        return
    if not known:
        talk(f"No baseline is set. Set one: {own_name()} baseline set RUN")
    for suite, one in known.items():
        gone = "" if _exists(opened, one.run) else "  (the run no longer exists)"
        click.echo(
            f"{one_line(suite, LONGEST_NAME)}  {one_line(one.run, 200)}"
            f"  {percent(one.pass_rate)} passed  set {one_line(one.set_at, 30)}{gone}"
        )


def _exists(store: Store, run: str) -> bool:
    try:
        store.find(run)
    except RequestError:
        return False
    return True


@baseline_command.command("clear", epilog=example("paraval baseline clear my-suite"))
@click.argument("suite")
@store_option
def clear_command(suite: str, store: Path | None) -> None:
    """Remove the baseline of a SUITE, given by its name. The run itself stays."""
    opened = open_store(Options(store=store))
    baselines = Baselines(opened.root)
    before = baselines.clear(suite)
    if before is None:
        known = ", ".join(shlex.quote(one_line(name, LONGEST_NAME)) for name in baselines.all())
        raise RequestError(
            f"no baseline is set for suite '{suite}'",
            hint=f"suites with a baseline: {known}" if known else "no suite has a baseline",
        )
    click.echo(
        f"Removed the baseline of suite '{one_line(suite, LONGEST_NAME)}': run {before.run}."
    )
