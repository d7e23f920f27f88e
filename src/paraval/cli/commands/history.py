"""`paraval history`: a suite's figures over its runs, and what changed between them."""

from __future__ import annotations

from pathlib import Path

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import axis_and_value, files_option, json_option, store_option
from paraval.cli.output import print_shown
from paraval.cli.suites import suite_named
from paraval.errors import RequestError
from paraval.report.contents import Choice, Part, axes_in, require_trials
from paraval.report.formats.json import to_json
from paraval.report.history.history import History
from paraval.report.history.history_formats import (
    check_history_outputs,
    history_as_dict,
    write_history,
)
from paraval.report.history.history_table import history_text
from paraval.runner.run import open_store
from paraval.runner.stored_runs import StoredRun, history_of
from paraval.settings import Options
from paraval.store.store import Store
from paraval.text.terminal import one_line

DEFAULT_LIMIT = 20


@click.command("history")
@click.argument("suite", metavar="SUITE")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="Show the last N runs.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Only trials with this value.",
)
@files_option("the history: .json .csv .md .html")
@store_option
@json_option
def history_command(
    suite: str,
    limit: int,
    variants: tuple[str, ...],
    outputs: tuple[Path, ...],
    store: Path,
    *,
    as_json: bool,
) -> None:
    """Show a SUITE's pass rate, cost and time over its last runs, newest last.

    SUITE is its file or its name. Also shows what changed in the suite between two runs, and
    where the pass rate is better or worse than in the previous run, by a paired comparison of
    cases. Rates of incomplete runs are marked as partial.
    """
    check_history_outputs(outputs)
    choice = chosen(variants)
    opened = open_store(Options(store=store))
    name = suite_named(suite, opened.runs(), opened)
    history = history_of(opened, name, limit=limit, choice=choice)
    _require_entries(history, opened)
    for run_id, why in history.unreadable.items():
        talk(f"note: run {run_id} cannot be shown: {one_line(why, 500)}")
    write_history(history, outputs)
    if as_json:
        print_shown(lambda _: to_json(history_as_dict(history)))
    else:
        print_shown(lambda page: history_text(history, page))


def chosen(variants: tuple[str, ...]) -> Choice:
    """What `--variant` selects: one value per axis."""
    choice: dict[str, str] = {}
    for axis, value in map(axis_and_value, variants):
        if axis in choice:
            raise RequestError(f"--variant {axis}={value}: duplicate axis '{axis}'")
        choice[axis] = value
    return choice


def _require_entries(history: History, store: Store) -> None:
    """RequestError that lists what exists, if nothing can be shown."""
    if history.entries:
        return
    name = one_line(history.suite, 60)
    if not history.unfitting:
        raise RequestError(
            f"there is no run of suite '{name}' that can be shown", hint="races have no history"
        )
    last = next(run for run in store.runs() if run.suite == history.suite)
    source = StoredRun(store, last)
    require_trials(Part(source=source, choice=history.choice, axes=axes_in(source)), last.id)
    raise RequestError(f"no trial of the last runs of '{name}' matches --variant")
