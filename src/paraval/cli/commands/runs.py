"""`paraval runs`: the runs in the store, a line each. `paraval clean`: removes old ones."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import json_option, store_option
from paraval.cli.output import cost_of, iso, own_name, print_shown, rate_of
from paraval.cli.suites import suite_named
from paraval.errors import ParavalError, RequestError, StoreError
from paraval.records import RunInfo
from paraval.report.contents import Contents
from paraval.report.summary.summary import Summary
from paraval.runner.run import open_store
from paraval.settings import RACE, TESTS, Options, is_of_tests
from paraval.store.baselines import Baselines
from paraval.store.connection import NoPlanError, has_run
from paraval.store.folder import is_run_id, unreadable
from paraval.store.reader import RunReader
from paraval.store.store import Store
from paraval.text.tables import Column, Page, Table, TableRow, table_lines
from paraval.text.terminal import one_line
from paraval.text.words import UNKNOWN, counted, duration

DEFAULT_LIMIT = 20
SUITE = "suite"
_SECOND = len("20260131-120000")
"""The part of a run's id that is the time of its start."""
_LONGEST_SUITE = 30


@click.command("runs")
@click.option(
    "--suite", metavar="SUITE", help="List only runs of this suite: its name or its file."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"List the newest N runs. [default: {DEFAULT_LIMIT}, or all with --json]",
)
@store_option
@json_option
def runs_command(
    suite: str | None, limit: int | None, store: Path | None, *, as_json: bool
) -> None:
    """List the runs in the store, newest first."""
    opened = open_store(Options(store=store))
    most = limit or (None if as_json else DEFAULT_LIMIT)
    runs, more = _listed(opened, suite, most)
    if as_json:
        click.echo(json.dumps([_run_mapping(opened, info) for info in runs], indent=2))
        return
    if not runs:
        talk(f"No runs in {opened.root} yet. Start one: {own_name()} run SUITE")
        return
    rows = [_read_row(opened, info) for info in runs]
    print_shown(lambda page: _text(rows, page))
    if more:
        talk(f"{counted(more, 'older run')} not shown. To see more: --limit {len(runs) + more}")


def _listed(store: Store, suite: str | None, most: int | None) -> tuple[list[RunInfo], int]:
    """The newest runs, and how many more there are; notes on stderr name unreadable ones."""
    if suite is None and most is not None:
        return _newest(store, most)
    runs = store.runs()
    for run_id, error in store.unreadable().items():
        _note_unreadable(run_id, error)
    if suite is not None:
        name = suite_named(suite, runs, store)
        runs = [run for run in runs if run.suite == name]
    shown = runs if most is None else runs[:most]
    return shown, len(runs) - len(shown)


def _newest(store: Store, most: int) -> tuple[list[RunInfo], int]:
    """By the names of their folders, so that only the runs shown are read."""
    try:
        names = [folder.name for folder in store.runs_folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise unreadable(store.runs_folder, error) from error
    ids = sorted(filter(is_run_id, names), reverse=True)
    found: list[RunInfo] = []
    for place, run_id in enumerate(ids):
        # Which of two that began in the same second is newer, only their files show.
        if len(found) >= most and run_id[:_SECOND] != ids[place - 1][:_SECOND]:
            left = len(ids) - place
            break
        if (info := _read_info(store.runs_folder / run_id)) is not None:
            found.append(info)
    else:
        left = 0
    found.sort(key=lambda info: (info.started_at, info.id), reverse=True)
    return found[:most], left + len(found[most:])


def _read_info(folder: Path) -> RunInfo | None:
    try:
        if not has_run(folder):
            return None
        with RunReader(folder) as reader:
            return reader.info()
    except NoPlanError:
        return None
    except StoreError as error:
        _note_unreadable(folder.name, error)
        return None


def _note_unreadable(run_id: str, error: StoreError) -> None:
    talk(f"note: run {run_id} cannot be shown: {error.message}")


# ---- the table


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunRow:
    info: RunInfo
    kind: str
    not_run: int
    """Trials that an early stop left out."""
    summary: Summary | None
    """None: a race, which has no pass rate, or a run that cannot be read in full."""


def _read_row(store: Store, info: RunInfo) -> _RunRow:
    kind, summary = _kind(store, info), None
    try:
        with store.reader(info) as reader:
            not_run = reader.not_run() if info.stop else 0
            if kind != RACE:
                summary = Contents(reader).summary
    except ParavalError as error:
        talk(f"note: the results of run {info.id} cannot be read: {error.message}")
        not_run = 0
    return _RunRow(info=info, kind=kind, not_run=not_run, summary=summary)


def _text(rows: Sequence[_RunRow], page: Page) -> str:
    columns: list[Column[_RunRow]] = [
        Column(heading="suite", cell=lambda row: _suite(row, page), is_left=True),
        Column(heading="started (UTC)", cell=_started, is_left=True, is_spare=True),
        Column(heading="state", cell=_row_state, is_left=True),
        Column(heading="trials", cell=_trials),
        Column(heading="pass rate", cell=lambda row: _figure(row.summary, rate_of)),
        Column(heading="errors", cell=lambda row: _figure(row.summary, _errors), is_spare=True),
        Column(heading="cost", cell=lambda row: _figure(row.summary, cost_of)),
        Column(heading="time", cell=lambda row: duration(row.info.wall_s), is_spare=True),
    ]
    table = Table(
        label="run",
        columns=columns,
        rows=[
            TableRow(label=row.info.id, cells=tuple(column.cell(row) for column in columns))
            for row in rows
        ],
    )
    return "\n".join(table_lines(table, page))


def _suite(row: _RunRow, page: Page) -> str:
    kind = "" if row.kind == SUITE else f" ({row.kind})"
    if row.info.regraded_from is not None:
        kind = f" (regrade of {row.info.regraded_from})"
    return page.cut_middle(page.quote(row.info.suite), _LONGEST_SUITE) + kind


def _started(row: _RunRow) -> str:
    return f"{datetime.fromtimestamp(row.info.started_at, UTC):%Y-%m-%d %H:%M}"


def _row_state(row: _RunRow) -> str:
    state = _state(row.info)
    if state == "held_back":
        return "pending"
    return "stopped early" if row.not_run and state == "done" else state


def _trials(row: _RunRow) -> str:
    done, planned = row.info.done - row.not_run, row.info.trials
    return f"{planned:,}" if done == planned else f"{done:,}/{planned:,}"


def _errors(summary: Summary) -> str:
    return f"{summary.errors:,}"


def _figure(summary: Summary | None, cell: Callable[[Summary], str]) -> str:
    return UNKNOWN if summary is None else cell(summary)


# ---- JSON


def _kind(store: Store, info: RunInfo) -> str:
    """A race's trials grow while it runs: to see that, its large selection need not be read."""
    try:
        if store.grows(info):
            return RACE
        return TESTS if is_of_tests(store.selection(info)) else SUITE
    except ParavalError:
        # It was removed or damaged since it was listed.
        return SUITE


def _not_run(store: Store, info: RunInfo) -> int:
    """Trials that an early stop left out; read only if the run could stop early."""
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
    # A race adds trials as it goes: it may have a result for each and not be finished.
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
        "regraded_from": info.regraded_from,
        "state": _state(info),
    }


# ---- removing old runs

_AGE = re.compile(r"(\d{1,6})([hdw])", re.ASCII)
_SECONDS = {"h": 3_600, "d": 86_400, "w": 604_800}


def _age_s(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    if (found := _AGE.fullmatch(text)) is None:
        raise click.BadParameter(f"'{text}' is not an age such as 12h, 30d or 8w")
    return int(found[1]) * _SECONDS[found[2]]


@click.command("clean")
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Keep the newest N runs, of any age."
)
@click.option(
    "--older-than",
    "age_s",
    callback=_age_s,
    metavar="AGE",
    help="Remove only runs that started longer ago: 12h, 30d or 8w.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@store_option
def clean_command(
    keep: int | None, age_s: int | None, store: Path | None, *, dry_run: bool, yes: bool
) -> None:
    """Remove old runs from the store, with their logs.

    Needs --keep, --older-than or both. Running runs and baselines stay, and so does the cache of
    model answers. What is removed cannot be restored; export what you need first: paraval report
    RUN -o report.json.
    """
    if keep is None and age_s is None:
        raise RequestError(
            "choose runs to remove: --keep N, --older-than AGE or both",
            hint=f"e.g. {own_name()} clean --keep 20 --older-than 30d",
        )
    opened = open_store(Options(store=store))
    runs = opened.runs()
    started_before = time.time() - (age_s or 0)
    old = [run for run in runs[keep or 0 :] if run.started_at < started_before]
    removed = _removable(old, runs, opened)
    if not removed:
        talk(f"Nothing to remove: {counted(len(runs), 'run')} in {opened.root}")
        return
    for run in removed:
        click.echo(f"{run.id}  {one_line(run.suite, _LONGEST_SUITE)}")
    what = f"{counted(len(removed), 'run')} ({_megabytes(removed)} MB) of {len(runs):,}"
    if dry_run:
        talk(f"Would remove {what}")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError("nothing was removed: there is no terminal to ask at", hint=_YES)
        if not click.confirm(f"Remove {what}?", err=True):
            talk("Nothing was removed")
            return
    for run in removed:
        opened.remove(run)
    talk(f"Removed {what}")


_YES = "add --yes to remove them without a question, or --dry-run to list them"


def _removable(old: list[RunInfo], runs: list[RunInfo], store: Store) -> list[RunInfo]:
    """Those that don't run, and that nothing which stays is compared with."""
    baselines = {one.run for one in Baselines(store.root).all().values()}
    baselines |= {run.baseline.name for run in runs if run.baseline and run not in old}
    return [run for run in old if not run.running and not baselines & {run.id, run.folder}]


def _megabytes(runs: list[RunInfo]) -> str:
    files = (path for run in runs for path in Path(run.folder).rglob("*"))
    used = sum(path.lstat().st_size for path in files if not path.is_dir())
    return f"{used / 1e6:,.1f}"
