"""`paraval race` and its flags, each tied to a key of the race file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import (
    cluster_options,
    files_option,
    progress_option,
    store_option,
    verbose_option,
)
from paraval.cli.progress.progress import RunOutput
from paraval.cli.race_report import exit_code_after, go_on_with_race, race_and_show
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.racing.apply import apply_winner, check_can_apply
from paraval.racing.candidates.names import path_of
from paraval.racing.correctness.node_tests import OBJECTS
from paraval.racing.race_file import FlagValue, load_race, race_of
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.run import run_race_stoppably
from paraval.racing.standings import CandidateStanding
from paraval.racing.steps import Base
from paraval.records import RunInfo
from paraval.runner.run import open_store
from paraval.settings import Options, is_race
from paraval.store.store import Store

# The flags of a race: each declared once, with the race-file key that it overrides.

COMPARE_REFS = "--compare-refs"
FILE_ENDINGS = (".yaml", ".yml", ".toml", ".json")
Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceFlag:
    """A flag, and the race-file keys that it sets."""

    name: str
    places: tuple[Steps, ...]
    help: str
    short: tuple[str, ...] = ()
    """Alternative names."""
    metavar: str | None = None
    kind: Any = str
    """`bool`: takes no value. `list`: repeatable."""
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
        """The values that it sets, if it is given."""
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


def _variables(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise RequestError(f"--env {wrong[0]}: must be NAME=VALUE")
    return {name: value for name, _, value in pairs}


FLAGS = (
    RaceFlag(
        name="--repo",
        places=(("repo", "git"),),
        metavar="FOLDER",
        help="The git repository that candidates change. [default: .]",
        read=_from_here,
    ),
    RaceFlag(
        name="--ref",
        places=(("repo", "ref"),),
        metavar="REF",
        help="The commit to start from. [default: HEAD]",
    ),
    RaceFlag(
        name="--uncommitted",
        places=(("repo", "uncommitted"),),
        kind=bool,
        help="Start from the working tree, uncommitted changes included.",
    ),
    RaceFlag(
        name="--test",
        short=("--tests",),
        places=(("test", "command"),),
        metavar="COMMAND",
        help="Command that tests a candidate: exit code 0 means that it passed.",
    ),
    RaceFlag(
        name="--compare",
        places=(("compare",),),
        metavar="stdout|FILE",
        kind=list,
        help="Test output that must match the baseline's. Repeatable.",
    ),
    RaceFlag(
        name="--bench",
        short=("--script",),
        places=(("bench", "command"),),
        metavar="COMMAND",
        help="Command that measures speed.",
    ),
    RaceFlag(
        name="--metric",
        short=("--script-output",),
        places=(("bench", "metric"),),
        metavar="wall|cpu|memory|FILE",
        help="What to compare: wall time, CPU time, memory, or seconds in a JSON file that the "
        "benchmark writes. [default: wall]",
    ),
    RaceFlag(
        name="--timeout",
        places=(("test", "timeout"), ("bench", "timeout")),
        metavar="SECONDS",
        kind=float,
        help="Time limit for each run of the tests and the benchmark. [default: ten times the"
        " baseline's, at least 30]",
    ),
    RaceFlag(
        name="--setup",
        places=(("setup",),),
        metavar="COMMAND",
        help="Command that prepares a worktree, with the candidate's code, before its tests and "
        "before its benchmark.",
    ),
    RaceFlag(
        name="--env",
        places=(("env",),),
        metavar="NAME=VALUE",
        kind=list,
        help="A variable for the tests and the benchmark, such as PYTHONPATH=src. Repeatable.",
        read=_variables,
    ),
    RaceFlag(
        name="--sandbox",
        places=(("sandbox",),),
        kind=bool,
        help="Also hide from candidates what they have no need to see. Needs bubblewrap.",
    ),
    RaceFlag(
        name="--no-sandbox",
        places=(("sandbox",),),
        kind=bool,
        help="Let tests and benchmarks write anywhere; by default, where there is bubblewrap, only"
        " to their worktree, home and temporary folders.",
        read=lambda _given: False,
    ),
    RaceFlag(
        name="--propose",
        places=(("propose", "command"),),
        metavar="COMMAND",
        help="Command that gets the standings as JSON, once a round, and prints candidates as JSON"
        " lines.",
    ),
    RaceFlag(
        name="--rounds",
        places=(("propose", "rounds"),),
        metavar="N",
        kind=int,
        help="How many rounds of proposals. [default: 3]",
    ),
    RaceFlag(
        name="--profile",
        places=(("profile",),),
        metavar="line|none",
        help="Time the lines of the baseline and of the winner.",
    ),
    RaceFlag(
        name="--function",
        places=(("functions",),),
        metavar="MODULE:FUNCTION",
        kind=list,
        help="A function to profile. Repeatable. [default: all in the files it changed]",
    ),
    RaceFlag(
        name="--speedup",
        short=("--accept-speedup",),
        places=(("accept", "speedup"),),
        metavar="TIMES",
        kind=float,
        help="Required speedup of a winner. [default: 1.05]",
    ),
    RaceFlag(
        name="--confidence",
        places=(("accept", "confidence"),),
        metavar="SHARE",
        kind=float,
        help="Confidence level of speedups. [default: 0.95]",
    ),
    RaceFlag(
        name="--accept-caches",
        places=(("accept", "caches"),),
        kind=bool,
        help="Let a candidate win that keeps results between calls.",
    ),
    RaceFlag(
        name="--accept-unseen-results",
        places=(("accept", "unseen_results"),),
        kind=bool,
        help="Let a candidate win although the benchmark prints nothing that shows its results.",
    ),
    RaceFlag(
        name="--parallel",
        short=("-j",),
        places=(("limits", "parallel"),),
        metavar="N|auto",
        help="How many candidates to test in parallel; measurements run one at a time. "
        "[default: auto]",
        read=_number_or_text,
    ),
    RaceFlag(
        name="--max-candidates",
        places=(("limits", "candidates"),),
        metavar="N",
        kind=int,
        help="Maximum number of candidates. [default: 200]",
    ),
    RaceFlag(
        name="--seconds",
        places=(("limits", "seconds"),),
        metavar="SECONDS",
        kind=float,
        help="Nothing new starts after this time.",
    ),
    RaceFlag(
        name="--budget",
        places=(("limits", "usd"),),
        metavar="USD",
        kind=float,
        help="What proposals may cost.",
    ),
)


def race_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that define a race to a command."""
    for flag in reversed(FLAGS):
        command = flag.option()(command)
    return command


def flags_given(given: Mapping[str, Any]) -> list[str]:
    """The names of the flags that were given."""
    compared = [COMPARE_REFS] if given["compare_refs"] is not None else []
    return compared + [flag.name for flag in FLAGS if any(flag.laid(given[flag.variable]))]


def request_from(named: Sequence[str], given: Mapping[str, Any]) -> RaceRequest:
    """The race from the named file and candidates, overridden by flags."""
    laid = [one for flag in FLAGS for one in flag.laid(given[flag.variable])]
    laid += _instead(given)
    has_file = bool(named) and named[0].lower().endswith(FILE_ENDINGS)
    if given["compare_refs"] is not None:
        laid += _comparison(given["compare_refs"], named[has_file:])
    if not has_file:
        _require(given, *(["test"] if given["compare_refs"] is None else []), "bench")
    candidates = [_candidate(text) for text in named[has_file:]]
    if candidates:
        laid.append(FlagValue(flag="CANDIDATE", steps=("candidates",), value=candidates))
    return load_race(Path(named[0]), laid) if has_file else race_of({}, Path.cwd(), laid)


def _comparison(refs: tuple[str, str], candidates: Sequence[str]) -> Iterator[FlagValue]:
    """Two refs instead of the file's candidates."""
    if candidates:
        raise RequestError("--compare-refs compares two refs, without other candidates")
    base, head = refs
    yield FlagValue(flag=COMPARE_REFS, steps=("repo", "ref"), value=base)
    yield FlagValue(flag=COMPARE_REFS, steps=("repo", "head"), value=head)
    yield FlagValue(flag=COMPARE_REFS, steps=("repo", "uncommitted"), value=False)
    for name in ("candidates", "propose"):
        yield FlagValue(flag=COMPARE_REFS, steps=(name,), value=None)


def _require(given: Mapping[str, Any], *names: str) -> None:
    missing = [f"--{name}" for name in names if given[name] is None]
    if missing:
        raise RequestError(
            "a race needs a command to test candidates and one to measure them:"
            f" {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            if "test" in names
            else f"{COMPARE_REFS} needs a command that measures: --script (or --bench) is missing",
            hint="or give a race file that has them; see `paraval race --help` for examples",
        )


def _instead(given: Mapping[str, Any]) -> Iterator[FlagValue]:
    """Unset keys of the file that a flag rules out."""
    if given["ref"] is not None and not given["uncommitted"]:
        yield FlagValue(flag="--ref", steps=("repo", "uncommitted"), value=False)
    if given["uncommitted"] and given["ref"] is None:
        yield FlagValue(flag="--uncommitted", steps=("repo", "ref"), value="HEAD")
    if given["function"] and given["profile"] is None:
        yield FlagValue(flag="--function", steps=("profile",), value="line")


def _candidate(text: str) -> str:
    """Resolve a path from the current folder; anything else may be a git ref."""
    return path_of(text, Path.cwd()) or text


EXAMPLES = """\b
Examples:
  paraval race --test "pytest -q" --bench "python bench.py" candidates/*.patch
  paraval race race.yaml -j 4 -o race.json -o winner.patch
  paraval race --compare-refs main HEAD --script "python bench.py" -o report.md

Exit codes: 0 there is a winner, 1 none beats the baseline, 2 invalid request, or the winner could
not be applied (--apply), 3 the baseline fails its own tests, or a limit ended the race without a
winner, 75 the race is in use by another process, 130 interrupted."""


@click.command("race", epilog=EXAMPLES)
@click.argument("named", nargs=-1, metavar="[RACE.yaml] [CANDIDATE]...")
@click.option(
    COMPARE_REFS,
    nargs=2,
    metavar="BASE HEAD",
    help="Compare the speed of two branches, tags or commits instead of racing candidates: exit "
    "code 1 if HEAD is slower. Needs --script; with --script-output FILE, compares each key of a "
    "JSON file of seconds.",
)
@race_flags
@cluster_options
@click.option(
    "--apply",
    is_flag=True,
    help="Apply the winning patch to the working tree, if what it changes is as the race began.",
)
@files_option("it: .json .md .txt the report, .patch the winner")
@progress_option
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Resume a race with its original settings. Without RUN: the last unfinished race, of the "
    "race file if one is given.",
)
@click.option(
    "--retry-errors", is_flag=True, help="Rerun steps of the last race that ended in an error."
)
@store_option
@click.option("--seed", type=int, default=0, help="Seed for retry jitter. [default: 0]")
@verbose_option
def race_command(named: tuple[str, ...], **given: Any) -> int:
    """Race candidate changes to a git repository: which one is correct and fastest?

    The baseline is the unmodified repository. Candidates are tested in parallel, each in its own
    worktree. Those that pass are measured against the baseline, one at a time, to show which are
    faster and by how much. Nothing is written to your working tree, unless you use --apply. With
    --cluster, tests run on the nodes of a cluster, and everything else on this machine.

    A CANDIDATE is a patch, a folder of patches, a folder of replacement files, a git ref, or a
    .jsonl file. A race file has the same settings as the flags, and more:
    docs/reference/race-file.md. Flags override the file, and candidates given here replace the
    file's.

    COMMANDs run in a shell (`sh -c`). pytest reports its single tests by itself; another test
    program may write a JUnit XML file, if its command has {junit}, the path of the file.
    """
    showing = RunOutput.from_options(given)
    options = Options(
        store=given["store"],
        seed=given["seed"],
        resume="" if given["retry_errors"] and given["resume"] is None else given["resume"],
        rerun="errors" if given["retry_errors"] else None,
        cluster=given["cluster"],
        insecure_cluster=given["insecure_cluster"],
    )
    if options.resumes and not (named or flags_given(given)):
        run = _race_to_resume(open_store(options), options)
        report = go_on_with_race(run, options, showing)
    else:
        request = request_from(named, given)
        if given["apply"] and not options.resumes:
            check_can_apply(request)
        report = race_and_show(
            lambda observer: run_race_stoppably(request, options=options, observer=observer),
            showing,
        )
    code = exit_code_after(report, showing)
    if given["apply"] and report.winner is not None and not report.run.interrupted:
        _apply(report, report.winner)
    return code


def _race_to_resume(store: Store, options: Options) -> RunInfo:
    """The named race; else the last unfinished one, or the last one to retry errors."""
    if options.resume:
        run = store.find(options.resume)
        if not is_race(store.selection(run)):
            raise RequestError(
                f"run {run.id} is a run of the suite '{run.suite}', not a race",
                hint=f"resume it with: paraval resume {run.id}",
            )
        return run
    for run in store.runs():
        is_unfinished = run.interrupted or run.held_back or run.ended_at is None
        if (is_unfinished or options.rerun) and is_race(store.selection(run)):
            return run
    kind = "race" if options.rerun else "unfinished race"
    raise RequestError(f"there is no {kind} in {store.root}", hint="start one without --resume")


def _apply(report: RaceReport, winner: CandidateStanding) -> None:
    patch, baseline = report.patch_path(winner.name), report.standings.baseline
    assert patch is not None, "the winner was staged, so it has a patch"
    applied = apply_winner(
        patch,
        report.request.repo,
        Base(tree=baseline.tree, commit=baseline.commit),
        uncommitted=report.request.keys.repo.uncommitted,
        objects=Path(report.run.folder, OBJECTS),
    )
    talk(f"Applied {winner.name} to the working tree: {applied}")
