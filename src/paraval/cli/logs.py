"""`paraval logs`: what attempts and their graders wrote, and how each attempt ended."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from paraval.cli.complaints import talk
from paraval.cli.options import axis_and_value, json_option, run_argument, store_option
from paraval.cli.showing import iso
from paraval.composition import open_store
from paraval.errors import RequestError
from paraval.plain_files import PlainFileError, is_plain_file, leads_out, open_plain_file
from paraval.racing.steps import FINDING
from paraval.records import AttemptRecord, RunInfo, value_text
from paraval.report.attempt_end import end_as_dict, end_in_lines
from paraval.report.text import one_line, printable, well_formed
from paraval.report.wording import variant_label
from paraval.settings import Options
from paraval.store.reader import RunReader

STREAMS = ("stdout", "stderr")
BESIDE = ("log", "traceback")
"""Of tests: what they logged, and where they failed."""
PIECE_BYTES = 1 << 16


@click.command("logs")
@run_argument
@click.option("--case", "case", metavar="GLOB", help="Only attempts at these cases.")
@click.option("--variant", "variants", multiple=True, metavar="AXIS=VALUE", help="Only this value.")
@click.option("--repeat", type=int, help="Only attempts at trials of this repeat.")
@click.option("--trial", "index", type=int, help="Only attempts at the trial with this index.")
@click.option("--attempt", "number", type=int, help="Only the attempt with this number.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream of the target's.")
@store_option
@json_option
def logs_command(run: str, *, as_json: bool, **given: Any) -> None:
    """Print what the attempts of a RUN wrote, one after another, each whole.

    Each is under a line that names it, unless there is only one stream. What graders printed comes
    behind what the target did, and so does what a test logged, and where it failed. An attempt that
    has no streams, as those at models, is told by how it ended, what it cost, and its answer; so is
    an agent's, with the tools it called and what it changed, behind its streams; and a step of a
    race, by what it found. To a terminal, escape codes are made visible; to a pipe or file, every
    byte is as it came (on GitHub Actions, to a file).
    """
    wanted = _Wanted.from_options(given)
    opened = open_store(Options(store=given["store"]))
    info = opened.find(run)
    with opened.reader(info) as reader:
        attempts = list(wanted.attempts(reader))
    if not attempts:
        raise RequestError(f"run {info.id} has no attempt that fits")
    if as_json:
        rows = [_as_mapping(info, attempt, given["stream"]) for attempt in attempts]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for attempt in attempts:
        _print_attempt(info, attempt, given["stream"], is_alone=len(attempts) == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which attempts are asked for."""

    case: str | None
    choices: tuple[tuple[str, str], ...]
    repeat: int | None
    index: int | None
    number: int | None

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> _Wanted:
        return cls(
            case=given["case"],
            choices=tuple(map(axis_and_value, given["variants"])),
            repeat=given["repeat"],
            index=given["index"],
            number=given["number"],
        )

    def attempts(self, reader: RunReader) -> Iterator[AttemptRecord]:
        for attempt in reader.attempts(case=self.case, index=self.index):
            told = {axis: value_text(value) for axis, value in attempt.variant.items()}
            if (
                all(told.get(axis) == value for axis, value in self.choices)
                and self.repeat in (None, attempt.repeat)
                and self.number in (None, attempt.number)
            ):
                yield attempt


def _print_attempt(
    info: RunInfo, attempt: AttemptRecord, stream: str | None, *, is_alone: bool
) -> None:
    streams = (stream,) if stream else STREAMS
    paths = {name: path for name in streams if (path := _path(info, attempt, name)) is not None}
    # What an agent prints is for programs: how it went is told behind it.
    is_told = stream is None and (not paths or _is_agents(attempt))
    if stream is None:
        paths.update(_other_paths(attempt))
    for name, path in paths.items():
        title = f"{_title(attempt)} · {one_line(name, 100)}"
        try:
            descriptor = open_plain_file(path, within=info.folder)
        except PlainFileError as error:
            talk(f"{title}: {error}")
            continue
        if len(paths) > 1 or not is_alone or is_told:
            click.echo(f"==> {title} <==")
        with os.fdopen(descriptor, "rb") as file:
            _print_log(file)
    if is_told:
        click.echo(f"==> {_title(attempt)} <==")
        for line in _end_of(attempt, goes_on=info.running):
            _print_line(line)


def _end_of(attempt: AttemptRecord, *, goes_on: bool) -> Iterator[str]:
    result = attempt.result
    if result is None or result.output is None or FINDING not in result.output.metadata:
        yield from end_in_lines(result, goes_on=goes_on)
        return
    # Only here: runs of suites need nothing of it.
    from paraval.cli.race_findings import finding_lines  # noqa: PLC0415 - see above

    # A step of a race has no answer: it has a finding.
    yield from end_in_lines(replace(result, output=None), goes_on=goes_on)
    yield from finding_lines(result)


def _is_agents(attempt: AttemptRecord) -> bool:
    return attempt.result is not None and attempt.result.activity is not None


def _title(attempt: AttemptRecord) -> str:
    repeat = f"#{attempt.repeat}" if attempt.repeat > 1 else ""
    parts = [attempt.case_id, variant_label(attempt.variant), repeat, f"attempt {attempt.number}"]
    return one_line(" · ".join(part for part in parts if part), 200)


def _path(info: RunInfo, attempt: AttemptRecord, stream: str) -> str | None:
    """Relative to the run's folder."""
    if attempt.result is None:
        # It never ended: what it wrote until then is where it would have been.
        path = f"{attempt.folder}/{stream}.log"
        return path if is_plain_file(path, within=info.folder) else None
    return attempt.result.artifacts.get(stream)


def _other_paths(attempt: AttemptRecord) -> dict[str, str]:
    """What graders printed: `tests.stdout` of a command of this name, `graders.stdout` of all that
    are Python functions. And what tests left beside their streams."""
    artifacts = {} if attempt.result is None else attempt.result.artifacts
    endings = tuple(f".{stream}" for stream in STREAMS)
    return {
        name: path for name, path in artifacts.items() if name.endswith(endings) or name in BESIDE
    }


def _absolute(info: RunInfo, path: str | None) -> str | None:
    """For programs to open; None where it leads out of the run's folder."""
    return None if path is None or leads_out(path) else str(Path(info.folder, path))


def _as_mapping(info: RunInfo, attempt: AttemptRecord, stream: str | None) -> dict[str, Any]:
    result = attempt.result
    streams = (stream,) if stream else STREAMS
    graders = {} if stream else _other_paths(attempt)
    return {
        "index": attempt.index,
        "case": attempt.case_id,
        "variant": dict(attempt.variant),
        "repeat": attempt.repeat,
        "attempt": attempt.number,
        "started_at": iso(attempt.started_at),
        "outcome": None if result is None else result.outcome,
        "message": None if result is None or result.error is None else result.error.message,
        "notes": [] if result is None else list(result.notes),
        **end_as_dict(result),
        **{name: _absolute(info, _path(info, attempt, name)) for name in streams},
        "graders": {name: _absolute(info, path) for name, path in graders.items()},
        **_finding(attempt),
    }


def _finding(attempt: AttemptRecord) -> dict[str, Any]:
    """Of a step of a race, what it found; in the words of `racing/findings.py`."""
    output = None if attempt.result is None else attempt.result.output
    if output is None or FINDING not in output.metadata:
        return {}
    return {"finding": output.metadata[FINDING]}


def _print_log(file: BinaryIO) -> None:
    sys.stdout.flush()
    last = b""
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
