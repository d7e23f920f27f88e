"""`paraval report`: a stored run. `paraval history`: a suite's figures over its runs. `paraval
view`: both in a browser, also while a run is in progress."""

from __future__ import annotations

import asyncio
import html
import os
import sys
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.github import report_to_github
from paraval.cli.options import (
    axes_and_values,
    baseline_from,
    baseline_options,
    files_option,
    json_option,
    output_of_any_option,
    run_argument,
    store_option,
)
from paraval.cli.output import command_to_resume, print_shown
from paraval.cli.suites import suite_of
from paraval.errors import RequestError
from paraval.report.contents import Choice, Part, axes_in, require_trials
from paraval.report.files import check_output_paths, write_files
from paraval.report.formats.json import AsJson, to_json
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.history.history import History
from paraval.report.history.history_formats import (
    check_history_outputs,
    history_as_dict,
    history_text,
    write_history,
)
from paraval.report.report import Report
from paraval.runner.baseline import resolve_baseline_for
from paraval.runner.run import open_store
from paraval.runner.stored_runs import (
    InStore,
    StoredRun,
    history_of,
)
from paraval.settings import Options, is_race
from paraval.store.store import Store
from paraval.text.terminal import one_line
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
@click.option(
    "--full",
    is_flag=True,
    help="In JSON, include what was sent to models, agents and commands, and their transcripts.",
)
@json_option
def report_command(
    run: str,
    outputs: tuple[Path, ...],
    store: Path | None,
    *,
    check: bool,
    full: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Show the report of a RUN, or write it to files. RUN is an id, the start of an id, a run's
    folder, `last` (the default) or `last~1` for the one before it.

    Exits with 0 once the report is printed and written, whatever the verdict. With --check, exits
    as the run itself did, or by the verdict against the baseline given here.
    """
    if full and not as_json and not any(path.suffix in (".json", ".jsonl") for path in outputs):
        raise RequestError("--full is for JSON only: add -o report.json, or --json")
    asked = baseline_from(given)
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if is_race(opened.selection(info)):
        if asked.as_mapping():
            raise RequestError(f"run {info.id} is a race, which has its own baseline")
        # Only here: runs of suites need nothing of it.
        from paraval.cli.race_report import show_recorded  # noqa: PLC0415 - see above

        return show_recorded(opened, info, outputs, as_json=as_json, check=check)
    check_output_paths(outputs)
    baseline = resolve_baseline_for(info, asked, opened)
    with opened.reader(info) as reader:
        is_own = Path(info.folder).parent == opened.runs_folder
        names_files = is_own or asked.baseline is not None
        report = Report(reader, InStore(opened, info, names_files=names_files))
        if baseline is not None and Path(baseline.name).is_absolute() and not names_files:
            why = "only the run itself names it, and the run may not be yours"
            talk(f"note: the baseline {baseline.name} is not read: {why}; name it with --baseline")
        report.hold_against(baseline)
        report.full = full
        if as_json:
            AsJson().write(report, sys.stdout)
        else:
            resume = command_to_resume(report.run)
            detail = TextDetail(verbose=given["verbose"], resume=resume)
            print_shown(lambda page: run_text(report, page, detail))
        write_files(report, outputs)
        if outputs:
            talk(f"Wrote {listed([str(path) for path in outputs])}")
        report_to_github(report)
        return report.exit_code if check else 0


# ---- over several runs

HISTORY_LIMIT = 20


@click.command("history")
@click.argument("suite", metavar="[SUITE]", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=HISTORY_LIMIT,
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
    suite: str | None,
    limit: int,
    variants: tuple[str, ...],
    outputs: tuple[Path, ...],
    store: Path,
    *,
    as_json: bool,
) -> None:
    """Show a SUITE's pass rate, cost and time over its last runs, newest last.

    SUITE is its file or its name; omit it if the store has runs of only one suite. Also shows what
    changed in the suite between two runs, and where the pass rate is better or worse than in the
    previous run, by a paired comparison of cases. Rates of incomplete runs are marked as partial.
    """
    check_history_outputs(outputs)
    choice = chosen(variants)
    opened = open_store(Options(store=store))
    name = suite_of(opened, suite)
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
    for axis, value in axes_and_values(variants):
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


@click.command("view")
@click.argument("run", required=False)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Serve on this port. [default: the first free one from 8765 on]",
)
@click.option("--no-open", is_flag=True, help="Don't open a browser; only print the address.")
@store_option
def view_command(run: str | None, port: int | None, store: Path, *, no_open: bool) -> int:
    """Show runs in a browser, also while they run: progress, cases, answers side by side.

    RUN is an id, the start of an id, a run's folder, `last` or `last~1`; without it, all runs are
    listed. Serves on 127.0.0.1 only, to whoever has the printed address. Ctrl-C ends it; runs
    continue.
    """
    # Only here: the server takes long to load.
    from paraval.view.server import serve  # noqa: PLC0415 - see above

    opened = open_store(Options(store=store))
    info = None if run is None else opened.find(run)

    async def until_interrupted() -> None:
        serving = await serve(opened, info, port)
        try:
            place = "/" if info is None else f"/runs/{info.id}"
            click.echo(serving.address(place))
            talk("Press Ctrl-C to end the viewer; runs continue.")
            with TemporaryDirectory(prefix="paraval-view-") as private:
                if not no_open and sys.stdout.isatty() and _has_display():
                    _open_browser(serving.address(place), Path(private))
                await asyncio.Event().wait()
        finally:
            await serving.close()

    try:
        asyncio.run(until_interrupted())
    except KeyboardInterrupt:
        talk("The viewer ended.")
    return 0


def _open_browser(address: str, private: Path) -> None:
    """By a page in a folder of the user's own: arguments of programs can be read by all users."""
    page = private / "viewer.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
    webbrowser.open(page.as_uri())


def _has_display() -> bool:
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
