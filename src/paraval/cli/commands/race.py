"""`paraval race` and its flags, each with the key of a race file that it stands for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paraval.cli.commands.run import progress_option, verbose_option
from paraval.cli.error_messages import talk
from paraval.cli.options import files_option, store_option
from paraval.cli.progress.progress import RunOutput
from paraval.cli.progress.race_showing import exit_code_after, go_on_with_race, race_and_show
from paraval.errors import RequestError
from paraval.racing.apply import apply_winner, check_can_apply
from paraval.racing.candidates.names import path_of
from paraval.racing.course.steps import Base
from paraval.racing.file.race_file import load_race, race_of_flags
from paraval.racing.file.short_forms import FlagValue
from paraval.racing.report.race_report import RaceReport
from paraval.racing.report.standings import CandidateStanding
from paraval.racing.request import RaceRequest
from paraval.racing.run import OBJECTS, run_race_stoppably
from paraval.records import RunInfo
from paraval.runner.run import open_store
from paraval.settings import Options, is_race
from paraval.store.store import Store

# The flags of a race: each declared once, with the key of a race file whose place it takes.

FILE_ENDINGS = (".yaml", ".yml", ".toml", ".json")
Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceFlag:
    """A flag, and where in a race what it says belongs."""

    name: str
    places: tuple[Steps, ...]
    help: str
    short: tuple[str, ...] = ()
    """Other names of it."""
    metavar: str | None = None
    kind: Any = str
    """`bool`: it stands alone. `list`: it may be given several times."""
    read: Callable[[Any], Any] = lambda value: value

    @property
    def variable(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    def option(self) -> Callable[[Any], Any]:
        names = (self.variable, self.name, *self.short)
        if self.kind is bool:
            return click.option(*names, is_flag=True, help=self.help)
        return click.option(
            *names,
            multiple=self.kind is list,
            type=str if self.kind is list else self.kind,
            metavar=self.metavar,
            help=self.help,
        )

    def laid(self, given: Any) -> Iterator[FlagValue]:
        """What it says, if it is given."""
        if given is None or given is False or given == ():
            return
        value = self.read(list(given) if self.kind is list else given)
        for steps in self.places:
            yield FlagValue(flag=self.name, steps=steps, value=value)


def _number_or_text(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _from_here(path: str) -> str:
    return os.path.normpath(Path.cwd() / path) if "\0" not in path else path


FLAGS = (
    RaceFlag(
        name="--repo",
        places=(("repo", "git"),),
        metavar="FOLDER",
        help="The git repository that candidates are changes to. [default: .]",
        read=_from_here,
    ),
    RaceFlag(
        name="--ref",
        places=(("repo", "ref"),),
        metavar="REF",
        help="The commit to begin with. [default: HEAD]",
    ),
    RaceFlag(
        name="--uncommitted",
        places=(("repo", "uncommitted"),),
        kind=bool,
        help="Begin with the working tree as it is.",
    ),
    RaceFlag(
        name="--test",
        places=(("test", "command"),),
        metavar="COMMAND",
        help="Ends with exit code 0 if a candidate is right.",
    ),
    RaceFlag(
        name="--compare",
        places=(("compare",),),
        metavar="stdout|FILE",
        kind=list,
        help="What of the tests must be as it is with the baseline; several times for several.",
    ),
    RaceFlag(
        name="--bench",
        places=(("bench", "command"),),
        metavar="COMMAND",
        help="What is measured.",
    ),
    RaceFlag(
        name="--metric",
        places=(("bench", "metric"),),
        metavar="wall|cpu|FILE",
        help="What of it counts: time by the clock, of the CPUs, or seconds in a JSON file that it "
        "writes. [default: wall]",
    ),
    RaceFlag(
        name="--timeout",
        places=(("test", "timeout"), ("bench", "timeout")),
        metavar="SECONDS",
        kind=float,
        help="For each run of the tests and of the benchmark. [default: 600]",
    ),
    RaceFlag(
        name="--setup",
        places=(("setup",),),
        metavar="COMMAND",
        help="Makes a worktree ready, once in each.",
    ),
    RaceFlag(
        name="--sandbox",
        places=(("sandbox",),),
        kind=bool,
        help="Let candidates write nowhere but in their worktree. Needs bubblewrap.",
    ),
    RaceFlag(
        name="--generate",
        places=(("generate", "command"),),
        metavar="COMMAND",
        help="Prints candidates as JSON lines.",
    ),
    RaceFlag(
        name="--repair",
        places=(("repair", "command"),),
        metavar="COMMAND",
        help="Is told of a candidate that failed, as JSON; prints others.",
    ),
    RaceFlag(
        name="--refine",
        places=(("refine", "command"),),
        metavar="COMMAND",
        help="Is told of a right one with its speed; prints others.",
    ),
    RaceFlag(
        name="--profile",
        places=(("profile", "kind"),),
        metavar="line|none",
        help="Time the winner's lines.",
    ),
    RaceFlag(
        name="--function",
        places=(("profile", "functions"),),
        metavar="MODULE:FUNCTION",
        kind=list,
        help="What of it to time; several times for several. [default: all that it changed]",
    ),
    RaceFlag(
        name="--speedup",
        short=("--accept-speedup",),
        places=(("accept", "speedup"),),
        metavar="TIMES",
        kind=float,
        help="How many times as fast a winner must be shown to be. [default: 1.05]",
    ),
    RaceFlag(
        name="--confidence",
        places=(("accept", "confidence"),),
        metavar="SHARE",
        kind=float,
        help="With how much confidence. [default: 0.95]",
    ),
    RaceFlag(
        name="--parallel",
        short=("-j",),
        places=(("limits", "parallel"),),
        metavar="N|auto",
        help="How many candidates are tested at once; measured they are alone. [default: auto]",
        read=_number_or_text,
    ),
    RaceFlag(
        name="--max-candidates",
        places=(("limits", "candidates"),),
        metavar="N",
        kind=int,
        help="How many there may be in all. [default: 200]",
    ),
    RaceFlag(
        name="--seconds",
        places=(("limits", "seconds"),),
        metavar="SECONDS",
        kind=float,
        help="After this nothing new starts.",
    ),
    RaceFlag(
        name="--budget",
        places=(("limits", "usd"),),
        metavar="USD",
        kind=float,
        help="What generate, repair and refine may cost together.",
    ),
)


def race_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say what is raced, and how."""
    for flag in reversed(FLAGS):
        command = flag.option()(command)
    return command


def flags_given(given: Mapping[str, Any]) -> list[str]:
    """Those that say something."""
    return [flag.name for flag in FLAGS if any(flag.laid(given[flag.variable]))]


def request_from(named: Sequence[str], given: Mapping[str, Any]) -> RaceRequest:
    """The race of a file and candidates as named, with the flags laid over it."""
    laid = [one for flag in FLAGS for one in flag.laid(given[flag.variable])]
    laid += _instead(given)
    has_file = bool(named) and named[0].lower().endswith(FILE_ENDINGS)
    if not has_file:
        _require(given, "test", "bench")
    candidates = [_candidate(text) for text in named[has_file:]]
    if candidates:
        laid.append(FlagValue(flag="CANDIDATE", steps=("candidates",), value=candidates))
    return load_race(Path(named[0]), laid) if has_file else race_of_flags(laid)


def _require(given: Mapping[str, Any], *names: str) -> None:
    missing = [f"--{name}" for name in names if given[name] is None]
    if missing:
        raise RequestError(
            "a race needs a way to test candidates, and one to measure them:"
            f" {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            hint="or name a race file that has them; `paraval race --help` shows examples",
        )


def _instead(given: Mapping[str, Any]) -> Iterator[FlagValue]:
    """What a file says that a flag rules out."""
    if given["ref"] is not None and not given["uncommitted"]:
        yield FlagValue(flag="--ref", steps=("repo", "uncommitted"), value=False)
    if given["uncommitted"] and given["ref"] is None:
        yield FlagValue(flag="--uncommitted", steps=("repo", "ref"), value=None)
    if given["function"] and given["profile"] is None:
        yield FlagValue(flag="--function", steps=("profile", "kind"), value="line")


def _candidate(text: str) -> str:
    """Paths are from here, wherever the race file is; what is no path may be a ref."""
    return path_of(text, Path.cwd()) or text


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
    showing = RunOutput.from_options(given)
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
            lambda observer: run_race_stoppably(request, options=options, observer=observer),
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


def _apply(report: RaceReport, winner: CandidateStanding, outputs: Sequence[Path]) -> None:
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
