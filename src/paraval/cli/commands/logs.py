"""`paraval logs`: output of attempts, graders and the steps of a race, and how each ended."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import (
    axes_and_values,
    has_values,
    json_option,
    no_match,
    run_argument,
    store_option,
)
from paraval.cli.output import iso
from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.plain_files import PlainFileError, is_plain_file, leads_out, open_plain_file
from paraval.racing.findings import (
    Block,
    Calibration,
    CorrectnessFinding,
    ProfileFinding,
    Proposed,
    Sample,
    StagedCandidate,
)
from paraval.racing.report.race_words import difference_heading, tests_cell, times
from paraval.racing.request import TOTAL
from paraval.racing.steps import FINDING, finding_of
from paraval.records import AttemptRecord, AttemptResult, Exchange, RunInfo
from paraval.report.summary.attempt_lines import end_as_dict, end_in_lines
from paraval.report.transcript import conversation_lines, conversations_of, exchanges_data
from paraval.runner.run import open_store
from paraval.settings import Options
from paraval.store.reader import RunReader
from paraval.text.terminal import one_line, printable, well_formed
from paraval.text.words import counted, duration, listed, variant_label

# The findings of a race's step, in a line or two, for steps that printed nothing.

LONGEST = 500
SHOWN = 10
"""Maximum number of files, candidates or differences to list."""


def finding_lines(result: AttemptResult) -> Iterator[str]:
    try:
        finding = finding_of(result)
    except StoreError:
        yield "its findings were written by another version of paraval"
        return
    told: list[str] = []
    if finding.staged is not None:
        told += _staged(finding.staged)
    if finding.tested is not None:
        told += _tested(finding.tested)
    if finding.calibration is not None:
        told += _calibrated(finding.calibration)
    if finding.block is not None:
        told += _block(finding.block)
    if finding.proposed is not None:
        told += _proposed(finding.proposed)
    if finding.canary is not None and finding.canary.broken:
        told.append(f"run with deliberately changed code: {_some(finding.canary.broken)}")
    if finding.profiled is not None:
        told += _profiled(finding.profiled)
    yield from (one_line(line, LONGEST) for line in told)


def _staged(staged: StagedCandidate) -> Iterator[str]:
    changed = [f"{file.path} ({file.status})" for file in staged.files]
    yield f"tree {staged.tree}"
    yield f"{counted(len(changed), 'file')}: {_some(changed)}" if changed else "changes nothing"
    yield from staged.flags
    if staged.problem:
        yield staged.problem


def _tested(tested: CorrectnessFinding) -> Iterator[str]:
    if tested.counts is not None:
        yield f"tests passed: {tests_cell(tested.counts)}"
    for difference in tested.differences[:SHOWN]:
        yield difference_heading(difference, str)
    if (more := len(tested.differences) - SHOWN + tested.more) > 0:
        yield f"and {counted(more, 'more difference')}"
    yield from tested.flags
    if tested.unstable:
        yield f"other than in the other run: {_some(tested.unstable)}"


def _calibrated(found: Calibration) -> Iterator[str]:
    yield f"baseline: {_all(found.samples)}"
    took, busy = duration(found.process_s), f"{found.busy_cpus:.1f}"
    yield f"a process takes {took} and keeps {busy} CPUs busy{_noisy(is_so=found.noisy)}"


def _block(block: Block) -> Iterator[str]:
    yield f"baseline: {_all(block.baseline)}"
    yield f"candidate: {_all(block.candidate)}"
    before, after = (_total(side) for side in (block.baseline, block.candidate))
    ratio = times(before / after) if after > 0 else "?"
    on = f", on CPU {', '.join(map(str, block.pinned))}" if block.pinned else ""
    yield f"{ratio} as fast{on}{_noisy(is_so=block.noisy)}"
    yield from block.flags


def _proposed(proposed: Proposed) -> Iterator[str]:
    names = [proposal.name for proposal in proposed.proposals]
    yield f"proposes {counted(len(names), 'candidate')}" + (f": {_some(names)}" if names else "")
    yield from (f"left out: {complaint}" for complaint in proposed.complaints)
    if proposed.more_complaints:
        yield f"left out: {proposed.more_complaints:,} more like these"


def _profiled(profiled: ProfileFinding) -> Iterator[str]:
    for function in profiled.functions[:SHOWN]:
        yield f"{function.name}  {function.file}  {duration(function.seconds)}"
    if profiled.problem is not None:
        yield profiled.problem


def _all(samples: Iterable[Sample]) -> str:
    return ", ".join(_exact(sample[TOTAL]) for sample in samples)


def _total(side: tuple[Sample, ...]) -> float:
    return median(sample[TOTAL] for sample in side)


def _exact(seconds: float) -> str:
    """`0.2114 s`, `0.0002081 s`: the same unit for both sides, and enough digits to compare."""
    return f"{seconds:.4g} s"


def _noisy(*, is_so: bool) -> str:
    return "; noisy: other processes were busy" if is_so else ""


def _some(names: Iterable[str]) -> str:
    known = list(names)
    more = len(known) - SHOWN
    return listed([*known[:SHOWN], f"{more:,} more"] if more > 0 else known)


STREAMS = ("stdout", "stderr")
BESIDE = ("log", "traceback")
"""Files that tests leave: their log, and where they failed."""
PIECE_BYTES = 1 << 16


@click.command("logs")
@run_argument
@click.option("--case", "case", metavar="GLOB", help="Only these cases.")
@click.option("--variant", "variants", multiple=True, metavar="AXIS=VALUE", help="Only this value.")
@click.option("--repeat", type=int, help="Only this repeat.")
@click.option("--trial", "index", type=int, help="Only the trial with this index.")
@click.option("--attempt", "number", type=int, help="Only the attempt with this number.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream of the target.")
@store_option
@json_option
def logs_command(run: str, *, as_json: bool, **given: Any) -> None:
    """Print what the attempts of a RUN wrote.

    Each stream starts with a line that names it, unless there is only one. The target's output
    comes first, then that of graders, or what a test logged and where it failed. Attempts without
    streams, such as model calls, show what was sent, how they ended, their grades, cost and answer;
    agents, also their transcript and what they changed; steps of a race, their findings. On a
    terminal, escape codes are made visible; a pipe or file gets every byte as written (on GitHub
    Actions, only a file does).
    """
    wanted = _AttemptFilter.from_options(given)
    opened = open_store(Options(store=given["store"]))
    info = opened.find(run)
    with opened.reader(info) as reader:
        attempts = list(wanted.attempts(reader))
        if not attempts:
            raise no_match(reader, wanted.case, wanted.choices, "attempt")
        if as_json:
            rows = [
                {
                    **_as_mapping(info, attempt, given["stream"]),
                    "exchanges": exchanges_data(reader.exchanges(attempt.index, attempt.number)),
                }
                for attempt in attempts
            ]
            click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
            return
        for attempt in attempts:
            exchanges = reader.exchanges(attempt.index, attempt.number)
            is_alone = len(attempts) == 1
            _print_attempt(info, attempt, exchanges, given["stream"], is_alone=is_alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptFilter:
    """Which attempts are selected."""

    case: str | None
    choices: tuple[tuple[str, str], ...]
    repeat: int | None
    index: int | None
    number: int | None

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> _AttemptFilter:
        return cls(
            case=given["case"],
            choices=axes_and_values(given["variants"]),
            repeat=given["repeat"],
            index=given["index"],
            number=given["number"],
        )

    def attempts(self, reader: RunReader) -> Iterator[AttemptRecord]:
        for attempt in reader.attempts(case=self.case, index=self.index):
            if (
                has_values(attempt.variant, self.choices)
                and self.repeat in (None, attempt.repeat)
                and self.number in (None, attempt.number)
            ):
                yield attempt


def _print_attempt(
    info: RunInfo,
    attempt: AttemptRecord,
    exchanges: Sequence[Exchange],
    stream: str | None,
    *,
    is_alone: bool,
) -> None:
    streams = (stream,) if stream else STREAMS
    paths = {name: path for name in streams if (path := _path(info, attempt, name)) is not None}
    # An agent's output is for programs: a summary follows it.
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
        for conversation in conversations_of(exchanges, None):
            for line in conversation_lines(conversation):
                _print_line(line)
        for line in _end_of(attempt, goes_on=info.running):
            _print_line(line)


def _end_of(attempt: AttemptRecord, *, goes_on: bool) -> Iterator[str]:
    result = attempt.result
    if result is None or result.output is None or FINDING not in result.output.metadata:
        yield from end_in_lines(result, goes_on=goes_on)
        return
    # Only here: runs of suites don't need it.

    # A step of a race has findings instead of an answer.
    yield from end_in_lines(replace(result, output=None), goes_on=goes_on)
    yield from finding_lines(result)


def _is_agents(attempt: AttemptRecord) -> bool:
    return attempt.result is not None and attempt.result.activity is not None


def _title(attempt: AttemptRecord) -> str:
    repeat = f"#{attempt.repeat}" if attempt.repeat > 1 else ""
    node = None if attempt.result is None else attempt.result.node
    where = f" on {node}" if node else ""
    number = f"attempt {attempt.number}{where}"
    parts = [attempt.case_id, variant_label(attempt.variant), repeat, number]
    return one_line(" · ".join(part for part in parts if part), 200)


def _path(info: RunInfo, attempt: AttemptRecord, stream: str) -> str | None:
    """Relative to the run's folder."""
    if attempt.result is None:
        # It never ended: its output so far is where it would have been.
        path = f"{attempt.folder}/{stream}.log"
        return path if is_plain_file(path, within=info.folder) else None
    return attempt.result.artifacts.get(stream)


def _other_paths(attempt: AttemptRecord) -> dict[str, str]:
    """Output of graders: `tests.stdout` of a command with this name, `graders.stdout` of all Python
    functions; and files that tests left beside their streams."""
    artifacts = {} if attempt.result is None else attempt.result.artifacts
    endings = tuple(f".{stream}" for stream in STREAMS)
    return {
        name: path for name, path in artifacts.items() if name.endswith(endings) or name in BESIDE
    }


def _absolute(info: RunInfo, path: str | None) -> str | None:
    """For programs to open; None if it points outside the run's folder."""
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
    """The findings of a race's step, in the words of `racing/findings.py`."""
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
