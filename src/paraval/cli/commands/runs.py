"""`paraval runs`: the runs in the store, a line each. `runs remove` (also called `paraval clean`),
`runs keep` and `runs size` tidy the store."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.help import SuggestingGroup, example
from paraval.cli.options import json_option, store_option
from paraval.cli.output import iso, own_name, print_shown, rate_of
from paraval.cli.suites import suite_named
from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError, StoreError
from paraval.records import RunInfo
from paraval.report.contents import Contents
from paraval.report.summary.tally import Summary
from paraval.runner.resources import CACHE_FILE
from paraval.runner.run import open_store
from paraval.settings import IMPORTED, RACE, TESTS, Options
from paraval.store.baselines import Baselines
from paraval.store.connection import RUN_FILE, NoPlanError, has_run
from paraval.store.folder import is_run_id, unreadable
from paraval.store.reader import RunReader
from paraval.store.store import Store
from paraval.text.tables import Column, Page, Table, TableRow, table_lines
from paraval.text.terminal import one_line
from paraval.text.words import UNKNOWN, counted, duration, size

DEFAULT_LIMIT = 20
SUITE = "suite"
_SECOND = len("20260131-120000")
"""The part of a run's id that is the time of its start."""
_LONGEST_SUITE = 30
_GIVEN = click.core.ParameterSource.COMMANDLINE


@click.group("runs", cls=SuggestingGroup, invoke_without_command=True)
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
@click.pass_context
def runs_command(
    context: click.Context,
    suite: str | None,
    limit: int | None,
    store: Path | None,
    *,
    as_json: bool,
) -> None:
    """List the runs in the store, newest first; or remove some, keep some, or show their size."""
    if (command := context.invoked_subcommand) is not None:
        given = [name for name in context.params if context.get_parameter_source(name) is _GIVEN]
        if given:
            raise click.UsageError(f"put the options after the command: runs {command} …")
        return
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
    winner: str = ""
    """Of a race: `winner: heap 3.21× (3.05–3.38)`."""


def _read_row(store: Store, info: RunInfo) -> _RunRow:
    kind, summary, winner = _kind(store, info), None, ""
    try:
        with store.reader(info) as reader:
            not_run = reader.not_run() if info.stop else 0
            if kind != RACE:
                summary = Contents(reader).summary
        if kind == RACE and not info.running:
            winner = _winner(store, info)
    except ParavalError as error:
        talk(f"note: the results of run {info.id} cannot be read: {error.message}")
        not_run = 0
    return _RunRow(info=info, kind=kind, not_run=not_run, summary=summary, winner=winner)


def _winner(store: Store, info: RunInfo) -> str:
    # Only here: a list without races needs nothing of them.
    from paraval.racing.report.race_words import speedup_cell  # noqa: PLC0415 - see above
    from paraval.racing.run import report_of  # noqa: PLC0415 - see above

    winner = report_of(store, info).winner
    if winner is None:
        return "no winner"
    return f"winner: {winner.name} {speedup_cell(winner.speedup)}"


def _text(rows: Sequence[_RunRow], page: Page) -> str:
    columns: list[Column[_RunRow]] = [
        Column(heading="suite", cell=lambda row: _suite(row, page), is_left=True),
        Column(heading="started (UTC)", cell=_started, is_left=True, is_spare=True),
        Column(heading="state", cell=_row_state, is_left=True),
        Column(heading="trials", cell=_trials),
        Column(heading="pass rate", cell=lambda row: _figure(row.summary, rate_of)),
        Column(heading="errors", cell=lambda row: _figure(row.summary, _errors), is_spare=True),
        Column(heading="cost", cell=lambda row: _figure(row.summary, lambda one: one.total_cost)),
        Column(heading="time", cell=lambda row: duration(row.info.wall_s), is_spare=True),
    ]
    table = Table(
        label="run",
        columns=columns,
        rows=[
            TableRow(
                label=row.info.id,
                cells=tuple(column.cell(row) for column in columns),
                beside=page.quote(row.winner),
            )
            for row in rows
        ],
    )
    return "\n".join(table_lines(table, page))


def _suite(row: _RunRow, page: Page) -> str:
    kind = "" if row.kind == SUITE else f" ({row.kind})"
    return page.cut_middle(page.quote(row.info.suite), _LONGEST_SUITE) + kind


def _started(row: _RunRow) -> str:
    return f"{datetime.fromtimestamp(row.info.started_at, UTC):%Y-%m-%d %H:%M}"


def _row_state(row: _RunRow) -> str:
    state = row.info.state
    if state == "held_back":
        state = "pending"
    elif row.not_run and state == "done":
        state = "stopped early"
    if row.info.regraded_from is not None:
        state = "regraded" if state == "done" else f"{state} regrade"
    return f"{state}, kept" if is_kept(row.info) else state


def _trials(row: _RunRow) -> str:
    if row.kind == RACE:
        return UNKNOWN  # Its steps are no trials.
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
        selection = store.selection(info)
        return next((kind for kind in (TESTS, IMPORTED) if kind in selection), SUITE)
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
        "state": info.state,
        "kept": is_kept(info),
    }


# ---- removing old runs

_AGE = re.compile(r"(\d{1,6})([hdw])", re.ASCII)
_SECONDS = {"h": 3_600, "d": 86_400, "w": 604_800}


def _age(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and _AGE.fullmatch(text) is None:
        raise click.BadParameter(f"'{text}' is not an age such as 12h, 30d or 8w")
    return text


@runs_command.command(
    "remove", epilog=example("paraval runs remove --older-than 30d --suite my-suite")
)
@click.argument("names", nargs=-1, metavar="[RUN]...")
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    help="Remove runs that started longer ago: 12h, 30d or 8w.",
)
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Keep the newest N runs, of any age."
)
@click.option("--suite", metavar="SUITE", help="Only runs of this suite: its name or its file.")
@click.option("--yes", is_flag=True, help="Remove them; otherwise several are only listed.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@store_option
@click.pass_context
def remove_command(
    context: click.Context, /, names: tuple[str, ...], store: Path | None, **given: Any
) -> None:
    """Remove runs from the store, with their logs.

    Name a RUN to remove it. Several, or those that --older-than, --keep and --suite choose, are
    only listed unless you add --yes. Running runs, baselines, sources of unfinished regrades and
    runs that `paraval runs keep` protects stay, and so does the cache of model answers. What is
    removed cannot be restored; export what you need first: paraval report RUN -o report.json.
    """
    options = {name: given[name] for name in ("older_than", "keep", "suite")}
    if bool(names) is any(value is not None for value in options.values()):
        raise RequestError(
            "choose runs to remove: name them, or use --older-than AGE, --keep N or --suite SUITE",
            hint=f"e.g. {own_name()} {_called(context)} --older-than 30d",
        )
    opened = open_store(Options(store=store))
    runs = opened.runs()
    found = _named(opened, names) if names else _chosen(opened, runs, **options)
    staying = _staying(found, runs, opened)
    for run in found:
        if names and run.id in staying:
            raise RequestError(f"run {run.id} was not removed: {staying[run.id]}")
    removed = [run for run in found if run.id not in staying]
    for run_id, why in staying.items():
        talk(f"note: {run_id} stays: {why}")
    if not removed:
        talk(f"Nothing to remove: {counted(len(runs), 'run')} in {opened.root}")
        return
    for run in removed:
        click.echo(f"{run.id}  {one_line(run.suite, _LONGEST_SUITE)}")
    used = size(sum(sum(_sizes(run).values()) for run in removed))
    what = f"{counted(len(removed), 'run')} ({used}) of {len(runs):,}"
    if given["dry_run"] or not (given["yes"] or (names and len(removed) == 1)):
        if context.get_parameter_source("store") is _GIVEN:
            options["store"] = opened.root
        flags = (f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value)
        again = shlex.join((*_called(context).split(), *names, *flags, "--yes"))
        talk(f"Would remove {what}. To remove: {own_name()} {again}")
        return
    for run in removed:
        opened.remove(run)
    talk(f"Removed {what}")


clean_command = click.Command(
    "clean",
    callback=remove_command.callback,
    params=remove_command.params,
    help=remove_command.help,
)


def _called(context: click.Context) -> str:
    return "clean" if context.info_name == "clean" else "runs remove"


def _named(store: Store, names: Iterable[str]) -> list[RunInfo]:
    """The runs of these names, each once; RequestError for one that is not in the store."""
    found = {run.id: run for run in map(store.find, names)}
    for run in found.values():
        if Path(run.folder).parent != store.runs_folder:
            raise RequestError(f"{run.folder} is not in the store {store.root}")
    return list(found.values())


def _chosen(
    store: Store,
    runs: Sequence[RunInfo],
    *,
    older_than: str | None,
    keep: int | None,
    suite: str | None,
) -> list[RunInfo]:
    if suite is not None:
        name = suite_named(suite, runs, store)
        runs = [run for run in runs if run.suite == name]
    age = _AGE.fullmatch(older_than or "")
    started_before = time.time() - (int(age[1]) * _SECONDS[age[2]] if age else 0)
    return [run for run in runs[keep or 0 :] if run.started_at < started_before]


def _staying(found: Sequence[RunInfo], runs: Sequence[RunInfo], store: Store) -> Mapping[str, str]:
    """Those that must not be removed -> why."""
    baselines = {one.run: suite for suite, one in Baselines(store.root).all().items()}
    gone = {run.id for run in found}
    users = {run.baseline.name: run.id for run in runs if run.baseline and run.id not in gone}
    regrades = {
        run.regraded_from: run.id for run in runs if run.state != "done" and run.id not in gone
    }
    staying = {}
    for run in found:
        names = (run.id, run.folder)
        if run.running:
            staying[run.id] = "it is running"
        elif is_kept(run):
            staying[run.id] = f"it is kept; to change that: {own_name()} runs keep --undo {run.id}"
        elif suites := [one_line(baselines[name], 60) for name in names if name in baselines]:
            staying[run.id] = f"it is the baseline of suite '{suites[0]}'"
        elif user := [users[name] for name in names if name in users]:
            staying[run.id] = f"it is the baseline of run {user[0]}"
        elif run.id in regrades:
            staying[run.id] = f"run {regrades[run.id]}, which regrades it, is not finished"
    return staying


# ---- keeping runs


def is_kept(run: RunInfo) -> bool:
    return (Path(run.folder) / _KEPT_FILE).exists()


_KEPT_FILE = "kept"
"""In a run's folder: protects it."""


@runs_command.command("keep", epilog=example("paraval runs keep last"))
@click.argument("names", nargs=-1, metavar="RUN...", required=True)
@click.option("--undo", is_flag=True, help="Don't protect them any longer.")
@store_option
def keep_command(names: tuple[str, ...], store: Path | None, *, undo: bool) -> None:
    """Protect runs from `paraval runs remove` and `paraval clean`."""
    for run in _named(open_store(Options(store=store)), names):
        mark = Path(run.folder) / _KEPT_FILE
        try:
            mark.unlink(missing_ok=True) if undo else mark.touch()
        except OSError as error:
            raise RequestError(f"cannot write {mark}: {error.strerror}") from error
        click.echo(f"{run.id}  {'not kept' if undo else 'kept'}")


# ---- how large they are


def _sizes(run: RunInfo) -> dict[str, int]:
    """Bytes of a run's files."""
    sizes = {"database": 0, "artifacts": 0, "patches": 0}
    for path in Path(run.folder).rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # It may be running.
            if path.is_symlink() or not path.is_dir():
                is_database = path.name.startswith(RUN_FILE) and path.parent == Path(run.folder)
                is_patch = path.suffix == ".patch"
                kind = "database" if is_database else "patches" if is_patch else "artifacts"
                sizes[kind] += path.lstat().st_size
    return sizes


@runs_command.command("size", epilog=example("paraval runs size --limit 5"))
@click.option("--suite", metavar="SUITE", help="Only runs of this suite: its name or its file.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=DEFAULT_LIMIT,
    show_default=True,
    help="List the largest N runs.",
)
@store_option
@json_option
def size_command(suite: str | None, limit: int, store: Path | None, *, as_json: bool) -> None:
    """Show how much room runs take, the largest first, and the cache of model answers."""
    opened = open_store(Options(store=store))
    runs, _ = _listed(opened, suite, None)
    found = sorted(((run, _sizes(run)) for run in runs), key=lambda one: -sum(one[1].values()))
    cache = opened.root / CACHE_FILE
    cache_bytes = cache.stat().st_size if cache.is_file() else 0
    if as_json:
        listed = [
            {"id": run.id, "suite": run.suite, **{f"{name}_bytes": n for name, n in sizes.items()}}
            for run, sizes in found
        ]
        click.echo(json.dumps({"runs": listed, "cache_bytes": cache_bytes}, indent=2))
        return
    print_shown(lambda page: _size_text(found, limit, cache_bytes, page))


def _size_text(
    found: Sequence[tuple[RunInfo, Mapping[str, int]]], limit: int, cache_bytes: int, page: Page
) -> str:
    kinds = ("database", "artifacts", "patches")

    def row(label: str, suite: str, sizes: Sequence[Mapping[str, int]]) -> TableRow:
        sums = [sum(one[kind] for one in sizes) for kind in kinds]
        return TableRow(label=label, cells=(suite, *map(size, sums), size(sum(sums))))

    headings = ("suite", *kinds, "total")
    table = Table(
        label="run",
        columns=[Column(heading=one, cell=str, is_left=one == "suite") for one in headings],
        rows=[
            row(run.id, page.cut_middle(page.quote(run.suite), _LONGEST_SUITE), [sizes])
            for run, sizes in found[:limit]
        ],
        total=row("total", counted(len(found), "run"), [sizes for _, sizes in found]),
        unshown=max(0, len(found) - limit),
    )
    return "\n".join((*table_lines(table, page), f"Cache of model answers: {size(cache_bytes)}"))
