"""`paraval baseline`: which run a suite is held against."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import json_option, store_option
from paraval.cli.output import iso
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


@click.group("baseline", short_help="Set, show or clear the run that a suite is held against.")
def baseline_command() -> None:
    """The run that a suite is held against.

    It counts where the suite says `max_drop`, or a run --max-drop: then the gate fails when the
    pass rate dropped by more than that.
    """


@baseline_command.command("set")
@click.argument("run")
@click.option("--suite", metavar="NAME", help="For this suite. [default: the run's own]")
@store_option
def set_command(run: str, suite: str | None, store: Path | None) -> None:
    """Hold a suite against a RUN (an id, the beginning of one, a run's folder, `last`,
    or `last~1` for the one before it).

    The run must be complete.
    """
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if opened.grows(info):
        raise RequestError(f"run {info.id} is a race, and no baseline of a suite")
    _refuse_unfinished(info)
    with opened.reader(info) as reader:
        summary = Report(reader).summary
    if summary.pass_rate is None:
        raise RequestError(
            f"run {info.id} cannot be a baseline: none of its trials was judged",
            hint="take a run with verdicts; errors are none",
        )
    name = info.suite if suite is None else suite
    is_here = Path(info.folder).parent == opened.runs_folder
    chosen = SetBaseline(
        run=info.id if is_here else info.folder,
        set_at=iso(time.time()),
        pass_rate=summary.pass_rate,
    )
    before = Baselines(opened.root).set(name, chosen)
    _tell(name, chosen, before, summary)


def _refuse_unfinished(info: RunInfo) -> None:
    if info.running:
        raise RequestError(
            f"run {info.id} cannot be a baseline: it still goes on", hint="wait until it has ended"
        )
    if info.interrupted or info.held_back or info.done < info.trials:
        left = counted(info.trials - info.done, "trial")
        raise RequestError(
            f"run {info.id} cannot be a baseline: it is not complete, {left} without a result",
            hint=f"go on with it first: paraval resume {info.id}",
        )


def _tell(name: str, chosen: SetBaseline, before: SetBaseline | None, summary: Summary) -> None:
    instead = f" in the place of {before.run}" if before and before.run != chosen.run else ""
    click.echo(
        f"Suite '{one_line(name, LONGEST_NAME)}' is held against run {chosen.run}{instead}:"
        f" {percent(chosen.pass_rate)} passed, {counted(summary.cases, 'case')}."
    )
    if summary.errors:
        has = "has" if summary.errors == 1 else "have"
        talk(f"note: {counted(summary.errors, 'error')} of it {has} no verdict to compare with")
    talk("It counts in runs with `max_drop` in the suite, or with --max-drop.")


@baseline_command.command("show")
@store_option
@json_option
def show_command(store: Path | None, *, as_json: bool) -> None:
    """List the baselines of the store, by suite."""
    opened = open_store(Options(store=store))
    known = Baselines(opened.root).all()
    if as_json:
        click.echo(json.dumps({suite: asdict(one) for suite, one in known.items()}, indent=2))
        return
    if not known:
        talk("No baseline is set. Set one: paraval baseline set RUN")
    for suite, one in known.items():
        gone = "" if _is_there(opened, one.run) else "  (the run is gone)"
        click.echo(
            f"{one_line(suite, LONGEST_NAME)}  {one_line(one.run, 200)}"
            f"  {percent(one.pass_rate)} passed  set {one_line(one.set_at, 30)}{gone}"
        )


def _is_there(store: Store, run: str) -> bool:
    try:
        store.find(run)
    except RequestError:
        return False
    return True


@baseline_command.command("clear")
@click.argument("suite")
@store_option
def clear_command(suite: str, store: Path | None) -> None:
    """Hold a SUITE, by its name, against no run any more. The run itself stays."""
    opened = open_store(Options(store=store))
    baselines = Baselines(opened.root)
    before = baselines.clear(suite)
    if before is None:
        known = ", ".join(shlex.quote(one_line(name, LONGEST_NAME)) for name in baselines.all())
        raise RequestError(
            f"no baseline is set for suite '{suite}'",
            hint=f"there is one for: {known}" if known else "none is set at all",
        )
    click.echo(f"Suite '{one_line(suite, LONGEST_NAME)}' is no longer held against {before.run}.")
