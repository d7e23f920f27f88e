"""`paraval diff` of a race: the patches of its candidates, losers too."""

from __future__ import annotations

import difflib
import fnmatch
import sys
from collections.abc import Mapping
from functools import partial

import click

from paraval.cli.complaints import EXIT_WRONG_REQUEST, talk
from paraval.cli.patches import put_patch
from paraval.cli.showing import has_unicode
from paraval.errors import RequestError
from paraval.isolation import Change, FileChange
from paraval.racing.report import RaceReport, report_of
from paraval.racing.standings import Standing
from paraval.racing.steps import STEP, StepKind, finding_of
from paraval.records import RunInfo
from paraval.report.attempt_deeds import stat_lines
from paraval.report.text import one_line, to_ascii
from paraval.store.store import Store

LONGEST_NAME = 200
MOST_NAMED = 3


def show_candidates(store: Store, run: RunInfo, case: str | None, *, stat: bool) -> int:
    """The winner's patch, or those of the candidates that a glob names. Gives the exit code."""
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
            _say(*heading, *stat_lines(_change(files.get(one.name, ()))))
        elif one.patch is not None:
            problem = put_patch(run, one.patch, partial(_say, *heading))
            if problem is not None:
                talk(one_line(f"{name}: {problem}", 500))
                code = EXIT_WRONG_REQUEST
    return code


def _winner(report: RaceReport) -> Standing:
    if report.winner is None:
        raise RequestError(
            f"race {report.run.id} has no winner whose patch could be shown",
            hint="name a candidate: --case NAME, or --case '*' for all of them",
        )
    return report.winner


def _named(report: RaceReport, case: str) -> list[Standing]:
    # A candidate's own name goes before a glob: `heap[1]` is both.
    fitting = [one for one in report if one.name == case] or [
        one for one in report if fnmatch.fnmatchcase(one.name, case)
    ]
    if not fitting:
        names = [one.name for one in report]
        near = difflib.get_close_matches(case, names, n=MOST_NAMED) or names[:MOST_NAMED]
        there = ", ".join(one_line(name, LONGEST_NAME) for name in near)
        raise RequestError(
            f"race {report.run.id} has no candidate '{case}'",
            hint=f"it has {there}" if near else "it has none",
        )
    return fitting


def _files(store: Store, run: RunInfo) -> Mapping[str, tuple[FileChange, ...]]:
    """What each candidate changes, as it was found when it was staged."""
    with store.reader(run) as reader:
        staged = {
            result.case_id: finding_of(result.result).staged
            for result in reader.results()
            if result.variant.get(STEP) == StepKind.STAGE
        }
    return {name: one.files for name, one in staged.items() if one is not None}


def _change(files: tuple[FileChange, ...]) -> Change:
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


def _say(*lines: str) -> None:
    for line in lines:
        click.echo(line if has_unicode(sys.stdout) else to_ascii(line))
