"""`paraval runs`, `paraval report` and `paraval logs`: what the store holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from paraval.cli.complaints import talk
from paraval.cli.options import json_option, output_option, run_argument, store_option
from paraval.cli.showing import print_report
from paraval.composition import open_store
from paraval.errors import RequestError
from paraval.records import AttemptRecord, RunInfo
from paraval.report.as_json import AsJson
from paraval.report.attempt_end import end_as_dict, end_in_lines
from paraval.report.document import Report
from paraval.report.files import check_output_paths, write_files
from paraval.report.text import one_line, printable, well_formed
from paraval.report.wording import duration, variant_label
from paraval.settings import Options
from paraval.store.reader import RunReader

STREAMS = ("stdout", "stderr")
PIECE_BYTES = 1 << 16


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
        click.echo(json.dumps([_run_mapping(info) for info in runs], indent=2))
        return
    if not runs:
        click.echo("No runs yet. Start one: paraval run SUITE", err=True)
    for info in runs:
        suite = one_line(info.suite, 30)
        click.echo(
            f"{info.id}  {suite:<30}  {info.done:>6,}/{info.trials:,} trials  "
            f"{duration(info.wall_s):>12}  {_state(info).replace('_', ' ')}"
        )


def _state(info: RunInfo) -> str:
    if info.running:
        return "running"
    if info.done == info.trials:
        return "done"
    if info.held_back:
        return "held_back"
    return "killed" if info.ended_at is None else "interrupted"


def _run_mapping(info: RunInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "suite": info.suite,
        "source": info.source,
        "folder": info.folder,
        "started_at": _iso(info.started_at),
        "ended_at": None if info.ended_at is None else _iso(info.ended_at),
        "wall_s": info.wall_s,
        "parallel": info.parallel,
        "trials": info.trials,
        "done": info.done,
        "resumed": info.resumed,
        "state": _state(info),
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@click.command("report")
@run_argument
@output_option
@store_option
@json_option
def report_command(
    run: str, outputs: tuple[Path, ...], store: Path | None, *, as_json: bool
) -> int:
    """Show the report of a RUN (an id, the beginning of one, a run's folder, or `last`).

    Ends with the exit code that the run itself ended with.
    """
    check_output_paths(outputs)
    opened = open_store(Options(store=store))
    with opened.reader(opened.find(run)) as reader:
        report = Report(reader)
        if as_json:
            AsJson().write(report, sys.stdout)
        else:
            print_report(report)
        write_files(report, outputs)
        return report.exit_code


@click.command("logs")
@run_argument
@click.option("--case", "case", metavar="GLOB", help="Only attempts at these cases.")
@click.option("--trial", "index", type=int, help="Only attempts at the trial with this index.")
@click.option("--attempt", "number", type=int, help="Only the attempt with this number.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream.")
@store_option
@json_option
def logs_command(run: str, *, as_json: bool, **given: Any) -> None:
    """Print what the attempts of a RUN wrote, one after another, each whole.

    Each is under a line that names it, unless there is only one stream. An attempt that has none,
    as those at models, is told by how it ended, what it cost, and its answer; so is an agent's,
    with the tools it called and what it changed, behind its streams. To a terminal, escape codes
    are made visible; to a pipe or file, every byte is as it came.
    """
    opened = open_store(Options(store=given["store"]))
    info = opened.find(run)
    with opened.reader(info) as reader:
        attempts = list(_attempts(reader, given))
    if not attempts:
        raise RequestError(f"run {info.id} has no attempt that fits")
    streams = (given["stream"],) if given["stream"] else STREAMS
    if as_json:
        rows = [_attempt_mapping(info, attempt, streams) for attempt in attempts]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for attempt in attempts:
        paths = {name: path for name in streams if (path := _path(info, attempt, name)) is not None}
        # What an agent prints is for programs: how it went is told behind it.
        is_told = not given["stream"] and (not paths or _is_agents(attempt))
        for stream, path in paths.items():
            if len(paths) > 1 or len(attempts) > 1 or is_told:
                click.echo(f"==> {_title(attempt)} · {stream} <==")
            _print_log(path)
        if is_told:
            click.echo(f"==> {_title(attempt)} <==")
            for line in end_in_lines(attempt.result, goes_on=info.running):
                _print_line(line)


def _attempts(reader: RunReader, given: dict[str, Any]) -> Iterator[AttemptRecord]:
    for attempt in reader.attempts(case=given["case"], index=given["index"]):
        if given["number"] in (None, attempt.number):
            yield attempt


def _is_agents(attempt: AttemptRecord) -> bool:
    return attempt.result is not None and attempt.result.activity is not None


def _title(attempt: AttemptRecord) -> str:
    repeat = f"#{attempt.repeat}" if attempt.repeat > 1 else ""
    parts = [attempt.case_id, variant_label(attempt.variant), repeat, f"attempt {attempt.number}"]
    return one_line(" · ".join(part for part in parts if part), 200)


def _path(info: RunInfo, attempt: AttemptRecord, stream: str) -> Path | None:
    if attempt.result is None:
        # It never ended: what it wrote until then is where it would have been.
        path = Path(info.folder, attempt.folder, f"{stream}.log")
        return path if path.exists() else None
    if stream not in attempt.result.artifacts:
        return None
    return Path(info.folder, attempt.result.artifacts[stream])


def _attempt_mapping(
    info: RunInfo, attempt: AttemptRecord, streams: tuple[str, ...]
) -> dict[str, Any]:
    result = attempt.result
    return {
        "index": attempt.index,
        "case": attempt.case_id,
        "variant": dict(attempt.variant),
        "repeat": attempt.repeat,
        "attempt": attempt.number,
        "started_at": _iso(attempt.started_at),
        "outcome": None if result is None else result.outcome,
        "message": None if result is None or result.error is None else result.error.message,
        "notes": [] if result is None else list(result.notes),
        **end_as_dict(result),
        **{
            stream: None if (path := _path(info, attempt, stream)) is None else str(path)
            for stream in streams
        },
    }


def _print_log(path: Path) -> None:
    try:
        file = path.open("rb")
    except OSError as error:
        click.echo(f"cannot read {path}: {error.strerror}", err=True)
        return
    sys.stdout.flush()
    last = b""
    with file:
        while piece := file.read(PIECE_BYTES):
            _write(piece)
            last = piece
    if last and not last.endswith(b"\n") and sys.stdout.isatty():
        click.echo("")


def _print_line(text: str) -> None:
    click.echo(printable(text) if sys.stdout.isatty() else well_formed(text))


def _write(piece: bytes) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(printable(piece.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
