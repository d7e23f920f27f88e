"""`paraval diff`: what attempts or a race's candidates changed, as patches."""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, TextIO

import click

from paraval.cli.error_messages import EXIT_WRONG_REQUEST, talk
from paraval.cli.options import axes_and_values, run_argument, store_option
from paraval.cli.output import has_unicode, page_on
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.plain_files import PlainFileError, open_plain_file
from paraval.racing.report.race_report import RaceReport
from paraval.racing.run import report_of
from paraval.racing.standings import CandidateStanding
from paraval.racing.steps import STEP, StepKind, finding_of
from paraval.records import (
    PATCH,
    AttemptRecord,
    Change,
    FileChange,
    RunInfo,
    TrialResult,
    value_text,
)
from paraval.report.reasons import reason
from paraval.report.summary.attempt_lines import stat_lines
from paraval.runner.run import open_store
from paraval.settings import Options, is_race
from paraval.store.reader import RunReader
from paraval.store.store import Store
from paraval.text.document import patch_style
from paraval.text.suggest import nearest
from paraval.text.terminal import one_line, to_ascii
from paraval.text.words import variant_label

# Prints a stored patch: byte for byte, or colored and made harmless on a terminal.

PIECE_BYTES = 1 << 16
"""A very long line is shown in pieces."""


def put_patch(run: RunInfo, path: str, heading: Callable[[], None] = lambda: None) -> str | None:
    """Print it under its heading; returns the reason if it cannot be read."""
    try:
        descriptor = open_plain_file(path, within=run.folder)
    except PlainFileError as error:
        return f"the patch cannot be read: {error}"
    with os.fdopen(descriptor, "rb") as file:
        heading()
        sys.stdout.flush()
        if sys.stdout.isatty():
            _show_patch(file, sys.stdout)
        else:
            # Every byte as stored.
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    return None


def _show_patch(file: BinaryIO, stream: TextIO) -> None:
    """For people: in color if wanted, and without terminal control sequences."""
    page = page_on(stream)
    in_hunk, style, is_start = False, "", True
    while piece := file.readline(PIECE_BYTES):
        text = piece.decode(errors="replace")
        if is_start:
            style, in_hunk = patch_style(text, in_hunk=in_hunk)
        is_start = text.endswith("\n")
        stream.write(page.paint(page.verbatim(text.removesuffix("\n")), style) + "\n" * is_start)
    stream.flush()


# `paraval diff` of a race: the patches of its candidates, including losers.

LONGEST_NAME = 200
MOST_NAMED = 3


def show_candidates(store: Store, run: RunInfo, case: str | None, *, stat: bool) -> int:
    """Print the winner's patch, or those of candidates that match a glob. Returns the exit code."""
    report = report_of(store, run)
    fitting = [_winner(report)] if case is None else _named(report, case)
    shown = [one for one in fitting if one.patch is not None]
    for one in fitting:
        if one.patch is None:
            talk(one_line(f"{one.name} has no patch: {one.reason or one.status}", 500))
    if not shown:
        raise RequestError(f"race {run.id} has no patch to show")
    files = _files(store, run) if stat else {}
    code = 0
    for one in shown:
        name = one_line(one.name, LONGEST_NAME)
        heading = (f"# {name}",) if len(shown) > 1 else ()
        if stat:
            _say_of_candidate(*heading, *stat_lines(_candidate_change(files.get(one.name, ()))))
        elif one.patch is not None:
            problem = put_patch(run, one.patch, partial(_say_of_candidate, *heading))
            if problem is not None:
                talk(one_line(f"{name}: {problem}", 500))
                code = EXIT_WRONG_REQUEST
    return code


def _winner(report: RaceReport) -> CandidateStanding:
    if report.winner is None:
        raise RequestError(
            f"race {report.run.id} has no winner whose patch could be shown",
            hint="name a candidate: --case NAME, or --case '*' for all of them",
        )
    return report.winner


def _named(report: RaceReport, case: str) -> list[CandidateStanding]:
    # An exact name takes precedence over a glob: `heap[1]` is both.
    fitting = [one for one in report if one.name == case] or [
        one for one in report if fnmatch.fnmatchcase(one.name, case)
    ]
    if not fitting:
        names = [one.name for one in report]
        near = nearest(case, names) or names[:MOST_NAMED]
        there = ", ".join(one_line(name, LONGEST_NAME) for name in near)
        raise RequestError(
            f"race {report.run.id} has no candidate '{case}'",
            hint=f"it has {there}" if near else "it has none",
        )
    return fitting


def _files(store: Store, run: RunInfo) -> Mapping[str, tuple[FileChange, ...]]:
    """What each candidate changes, as found when it was staged."""
    with store.reader(run) as reader:
        staged = {
            result.case_id: finding_of(result.result).staged
            for result in reader.results()
            if result.variant.get(STEP) == StepKind.STAGE
        }
    return {name: one.files for name, one in staged.items() if one is not None}


def _candidate_change(files: tuple[FileChange, ...]) -> Change:
    statuses = [file.status for file in files]
    return Change(
        files_added=statuses.count("added"),
        files_changed=statuses.count("changed"),
        files_deleted=statuses.count("deleted"),
        binary_files=sum(file.binary for file in files),
        lines_added=sum(file.lines_added or 0 for file in files),
        lines_deleted=sum(file.lines_deleted or 0 for file in files),
        files=files,
    )


def _say_of_candidate(*lines: str) -> None:
    for line in lines:
        click.echo(line if has_unicode(sys.stdout) else to_ascii(line))


Found = TrialResult | AttemptRecord
"""A trial by its deciding attempt, or one attempt."""

LONGEST_LABEL = 200


@click.command("diff", short_help="Print what attempts changed in their workspaces.")
@run_argument
@click.option("--case", "case", metavar="GLOB", help="Only these cases, or candidates.")
@click.option("--variant", "variants", multiple=True, metavar="AXIS=VALUE", help="Only this value.")
@click.option("--repeat", type=int, help="Only trials of this repeat.")
@click.option("--attempt", "number", type=int, help="This attempt instead of the deciding one.")
@click.option("--stat", is_flag=True, help="Show counts by file instead.")
@store_option
def diff_command(run: str, **given: Any) -> int:
    """Print what the trials of a RUN changed in their workspaces, as patches.

    Shows the attempt that decided each trial. A pipe or file (on GitHub Actions, only a file)
    gets every byte as stored, so `git apply` accepts it. With several trials, each patch follows
    a line that starts with #.

    For a race: the winner's patch, or those of the candidates that --case names, including
    losers.
    """
    wanted = _TrialFilter.from_options(given)
    opened = open_store(Options(store=given["store"]))
    info = opened.find(run)
    if is_race(opened.selection(info)):
        return _show_race(opened, info, wanted, stat=given["stat"])
    with opened.reader(info) as reader:
        fitting = _fitting(reader, info, wanted)
    shown = [(found, change) for found in fitting if (change := _change(found)) is not None]
    if not shown:
        raise _nothing_known(info, fitting)
    is_alone = len(shown) == 1
    code = 0
    for found, change in shown:
        if given["stat"] and change.files_in_all:
            _say(None if is_alone else found, *stat_lines(change))
            continue
        if change.unknown is not None:
            _tell_unknown(found, change.unknown)
        elif not change.files_in_all:
            talk(f"{_label(found)} changed nothing")
        if change.files_in_all and not _print_patch(info, found, is_alone=is_alone):
            code = EXIT_WRONG_REQUEST
    return code


def _show_race(store: Store, info: RunInfo, wanted: _TrialFilter, *, stat: bool) -> int:
    if wanted.choices or wanted.repeat is not None or wanted.number is not None:
        raise RequestError(
            f"run {info.id} is a race, whose candidates have one patch each",
            hint="name them with --case; leave out --variant, --repeat and --attempt",
        )
    # Only here: runs of suites don't need it.

    return show_candidates(store, info, wanted.case, stat=stat)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialFilter:
    """Which trials are selected."""

    case: str | None
    choices: tuple[tuple[str, str], ...]
    repeat: int | None
    number: int | None

    @classmethod
    def from_options(cls, given: dict[str, Any]) -> _TrialFilter:
        return cls(
            case=given["case"],
            choices=axes_and_values(given["variants"]),
            repeat=given["repeat"],
            number=given["number"],
        )

    def has_case(self, case_id: str) -> bool:
        # An exact name takes precedence over a glob: `fix[1]` is both.
        return self.case in (None, case_id) or fnmatch.fnmatchcase(case_id, self.case or "")

    def has(self, found: Found) -> bool:
        told = {axis: value_text(value) for axis, value in found.variant.items()}
        return (
            all(told.get(axis) == value for axis, value in self.choices)
            and self.repeat in (None, found.repeat)
            and (not isinstance(found, AttemptRecord) or found.number == self.number)
        )


def _fitting(reader: RunReader, info: RunInfo, wanted: _TrialFilter) -> list[Found]:
    """The selected trials; if none matches, RequestError lists what exists."""
    cases: dict[str, None] = {}
    values: dict[str, dict[str, None]] = {}
    fitting: list[Found] = []
    for found in _all(reader, wanted):
        cases[found.case_id] = None
        for axis, value in found.variant.items():
            values.setdefault(axis, {})[value_text(value)] = None
        if wanted.has_case(found.case_id) and wanted.has(found):
            fitting.append(found)
    if fitting:
        return fitting
    if not any(map(wanted.has_case, cases)):
        raise _no_such_case(info, wanted.case or "", list(cases))
    for axis, value in wanted.choices:
        if value not in values.get(axis, {}):
            raise _no_such_value(info, f"{axis}={value}", values)
    raise RequestError(
        f"run {info.id} has no matching {'trial' if wanted.number is None else 'attempt'}",
        hint="leave out --repeat or --attempt to see all",
    )


def _all(reader: RunReader, wanted: _TrialFilter) -> Iterator[Found]:
    if wanted.number is None:
        yield from reader.results()
    else:
        yield from reader.attempts()


def _no_such_case(info: RunInfo, case: str, cases: list[str]) -> RequestError:
    near = nearest(case, cases) or cases[:3]
    hint = f"it has {', '.join(one_line(name, LONGEST_LABEL) for name in near)}" if near else None
    return RequestError(f"run {info.id} has no case '{case}'", hint=hint)


def _no_such_value(info: RunInfo, asked: str, values: dict[str, dict[str, None]]) -> RequestError:
    there = [f"{axis}={value}" for axis, known in values.items() for value in known]
    near = nearest(asked, there) or there[:3]
    hint = f"it has {', '.join(near)}" if near else "it has no variants"
    return RequestError(f"run {info.id} has no variant with {asked}", hint=one_line(hint, 500))


def _nothing_known(info: RunInfo, fitting: list[Found]) -> RequestError:
    """Why there is no change to show: no workspace, or no end."""
    first = fitting[0]
    if first.result is None:
        why = "has not ended yet" if info.running else "never ended"
        return RequestError(f"{_label(first)} {why}")
    if not first.result.outcome.is_judged:
        why = one_line(f"{first.result.outcome}: {reason(first.result)}", 500)
        return RequestError(f"it is unknown what {_label(first)} changed: {why}")
    return RequestError(
        f"run {info.id} had no workspaces, so no changes were stored",
        hint="add a workspace, for example workspace: {git: .}",
    )


def _change(found: Found) -> Change | None:
    return None if found.result is None else found.result.change


def _tell_unknown(found: Found, why: str) -> None:
    assert found.result is not None, "only those with a change are shown"
    is_kept = PATCH in found.result.artifacts
    what = "the patch is incomplete" if is_kept else "its changes were not stored"
    talk(one_line(f"{_label(found)}: {what}: {why}", 500))


def _print_patch(info: RunInfo, found: Found, *, is_alone: bool) -> bool:
    """Whether the stored patch could be read."""
    assert found.result is not None, "only those with a change are printed"
    kept = found.result.artifacts.get(PATCH)
    if kept is None:
        if found.result.change is not None and found.result.change.unknown is not None:
            return True  # The reason was reported.
        why = "".join(f"; {note}" for note in found.result.notes)
        talk(one_line(f"{_label(found)}: no patch was stored{why}", 500))
        return True
    problem = put_patch(info, kept, lambda: None if is_alone else _say(found))
    if problem is not None:
        talk(one_line(f"{_label(found)}: {problem}", 500))
    return problem is None


def _say(titled: Found | None, *lines: str) -> None:
    """Lines on stdout, after one that names the trial; git ignores such a line."""
    for line in (*([] if titled is None else [f"# {_label(titled)}"]), *lines):
        click.echo(line if has_unicode(sys.stdout) else to_ascii(line))


def _label(found: Found) -> str:
    repeat = f"#{found.repeat}" if found.repeat > 1 else ""
    attempt = f"attempt {found.number}" if isinstance(found, AttemptRecord) else ""
    parts = (found.case_id, variant_label(found.variant), repeat, attempt)
    return one_line(" · ".join(filter(None, parts)), LONGEST_LABEL)
