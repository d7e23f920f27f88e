"""`paraval race`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from paraval.cli.complaints import talk
from paraval.cli.options import files_option, store_option
from paraval.cli.race_flags import flags_given, race_flags, request_from
from paraval.cli.race_showing import RaceShowing, exit_code_after, go_on_with_race, race_and_show
from paraval.cli.running import progress_option, verbose_option
from paraval.composition import open_store
from paraval.errors import RequestError
from paraval.racing.applying import apply_winner, check_can_apply
from paraval.racing.remembering import is_race
from paraval.racing.report import RaceReport
from paraval.racing.running import OBJECTS, run_race_stoppably
from paraval.racing.standings import Standing
from paraval.racing.steps import Base
from paraval.records import RunInfo
from paraval.settings import Options
from paraval.store.store import Store

EXAMPLES = """\b
Examples:
  paraval race --test "pytest -q" --bench "python bench.py" candidates/*.patch
  paraval race race.yaml -j 4 -o race.json -o winner.patch

Exit codes: 0 there is a winner, 1 none beats the baseline, 2 wrong request, or the winner could not
be laid on (--apply), 3 the baseline fails its own tests, or a limit ended the race and nobody won,
75 the race is busy, 130 interrupted."""


@click.command("race", epilog=EXAMPLES)
@click.argument("named", nargs=-1, metavar="[RACE.yaml] [CANDIDATE]...")
@race_flags
@click.option(
    "--apply",
    is_flag=True,
    help="In the end, lay the winner on the working tree, if it is as it was.",
)
@files_option("it: .json .md .txt all of it, .patch the winner")
@progress_option
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on with a race, as it was asked for; without a name, with the last unfinished one: of "
    "the race file, or of all.",
)
@click.option("--retry-errors", is_flag=True, help="In the last race, run again what was an error.")
@store_option
@click.option("--seed", type=int, default=0, help="For the jitter of retries. [default: 0]")
@verbose_option
def race_command(named: tuple[str, ...], **given: Any) -> int:
    """Race candidate changes to a git repository: who is right, and fastest?

    The baseline is the repository as it is. Each candidate is tested in a worktree of its own, many
    side by side; those that pass are measured against the baseline, one at a time, until it is
    shown which of them is faster, and by how much. Nothing is written to your working tree.

    A CANDIDATE is a patch, a folder of patches, a folder of replacement files, a git ref, or a
    .jsonl file. A race file holds the same as the flags, and more: docs/race-file.md. Flags go
    before what it says, and candidates take the place of its own.

    COMMANDs are split as a shell would, and run without one.
    """
    showing = RaceShowing.from_options(given)
    options = Options(
        store=given["store"],
        seed=given["seed"],
        resume=given["resume"],
        retry_errors=given["retry_errors"],
    )
    if options.resumes and not (named or flags_given(given)):
        run = _race_to_resume(open_store(options), options)
        report = go_on_with_race(run, options, showing)
    else:
        request = request_from(named, given)
        if given["apply"] and not options.resumes:
            check_can_apply(request)
        report = race_and_show(
            request,
            lambda onlooker: run_race_stoppably(request, options=options, onlooker=onlooker),
            showing,
        )
    code = exit_code_after(report, showing)
    if given["apply"] and report.winner is not None and not report.run.interrupted:
        _apply(report, report.winner, showing.outputs)
    return code


def _race_to_resume(store: Store, options: Options) -> RunInfo:
    """The one that is named; else the last that is unfinished, or for errors simply the last."""
    if options.resume:
        run = store.find(options.resume)
        if not is_race(store.selection(run)):
            raise RequestError(
                f"run {run.id} is of the suite '{run.suite}', and no race",
                hint=f"go on with: paraval resume {run.id}",
            )
        return run
    for run in store.runs():
        is_unfinished = run.interrupted or run.held_back or run.ended_at is None
        if (is_unfinished or options.retry_errors) and is_race(store.selection(run)):
            return run
    kind = "race" if options.retry_errors else "unfinished race"
    raise RequestError(f"there is no {kind} in {store.root}", hint="start one: without --resume")


def _apply(report: RaceReport, winner: Standing, outputs: Sequence[Path]) -> None:
    patch, baseline = report.patch_path(winner.name), report.standings.baseline
    assert patch is not None, "what won was staged, and so has a patch"
    applied = apply_winner(
        patch,
        report.request.repo,
        Base(tree=baseline.tree, commit=baseline.commit),
        uncommitted=report.request.uncommitted,
        objects=Path(report.run.folder, OBJECTS),
        leaving_out=outputs,
    )
    talk(f"{winner.name} is laid on the working tree: {applied}")
