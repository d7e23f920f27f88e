"""`paraval race` as a user types it: what is asked of the race, what is shown, the exit codes.

Races themselves are not run here: what runs them is told what was asked, and gives a report.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from paraval.racing.course.steps import Base
from paraval.racing.file.race_form import RaceForm
from paraval.racing.report.standings import BaselineStanding, CandidateStanding, Standings, Status
from paraval.racing.stored_race import RaceStart, as_selection

from paraval.cli.commands.race import FLAGS
from paraval.cli.main import paraval
from paraval.errors import ParavalError, RequestError
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import BenchMetric, Profile, RaceRequest
from paraval.records import Limits, Plan, RunInfo
from paraval.runner.run import open_store
from paraval.settings import Options
from tests.conftest import Paraval, WriteSuite
from tests.repositories import make_repository, put_on_path

FILE = """
    name: sorting
    test: {command: pytest, timeout: 9}
    bench: {command: pytest b.py, metric: cpu}
    candidates: candidates
    accept: {confidence: 0.9}
    limits: {parallel: 3}
"""


@dataclass(slots=True)
class Runner:
    """Stands where races are run: notes what is asked, and gives the report that a test wants."""

    standings: Standings = field(default_factory=lambda: standings(winner="quick"))
    interrupted: bool = False
    asked: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list)
    folder: Path = field(default_factory=Path.cwd)

    def run(self, request: RaceRequest, **given: Any) -> RaceReport:
        self.asked.append(("run", request, given))
        return RaceReport(self.standings, info(self), request)

    def resume(self, run: RunInfo, **given: Any) -> RaceReport:
        self.asked.append(("resume", run, given))
        return RaceReport(self.standings, info(self), request_of(self.folder))

    @property
    def request(self) -> RaceRequest:
        ((_, request, _),) = self.asked
        assert isinstance(request, RaceRequest)
        return request


def standings(*, winner: str | None, reason: str | None = None) -> Standings:
    status = Status.WON if winner else Status.NOT_SHOWN
    return Standings(
        baseline=BaselineStanding(reason=reason),
        candidates=(CandidateStanding(name="quick", status=status, patch="quick.patch"),),
        winner=winner,
    )


def info(runner: Runner) -> RunInfo:
    return RunInfo(
        id="20260101-000000-abcd",
        suite="sorting",
        source=None,
        folder=str(runner.folder / ".paraval/runs/20260101-000000-abcd"),
        trials=0,
        parallel=1,
        seed=0,
        started_at=0.0,
        ended_at=1.0,
        wall_s=1.0,
        resumed=0,
        interrupted=runner.interrupted,
        fail_under=None,
    )


def request_of(folder: Path) -> RaceRequest:
    from paraval.racing.file.race_file import request_from_mapping

    return request_from_mapping({"test": "pytest", "bench": "pytest b.py"}, folder)


@pytest.fixture
def runner(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Runner:
    put_on_path(tmp_path_factory.mktemp("bin"), monkeypatch, "python", "fix")
    (folder / "candidates").mkdir()
    (folder / "candidates/quick.patch").write_text("x\n")
    make_repository(folder)
    runner = Runner()
    monkeypatch.setattr("paraval.cli.commands.race.run_race_stoppably", runner.run)
    monkeypatch.setattr("paraval.cli.race_report.resume_race", runner.resume)
    return runner


@pytest.fixture
def file(runner: Runner, write: WriteSuite) -> Path:
    assert runner.asked == []
    return write("race.yaml", FILE)


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(paraval, arguments, standalone_mode=False)


def race(*arguments: str) -> int:
    """The exit code of a command that is understood."""
    result = typed("race", "--progress", "none", *arguments)
    if result.exception is not None:
        raise result.exception
    code: int = result.return_value
    return code


# ---- what is asked


@pytest.mark.usefixtures("file")
def test_a_race_file_alone_is_the_whole_request(runner: Runner, folder: Path) -> None:
    assert race("race.yaml") == 0
    request = runner.request
    assert (request.name, request.limits.parallel) == ("sorting", 3)
    assert request.candidates == (str(folder / "candidates"),)


def test_flags_alone_are_a_race_of_the_folder_one_stands_in(runner: Runner, folder: Path) -> None:
    race("--test", "pytest -q", "--bench", "python bench.py", "candidates/quick.patch", "-j", "4")
    request = runner.request
    assert request.test.command == ("pytest", "-q")
    assert request.bench.command == ("python", "bench.py")
    assert request.candidates == (str(folder / "candidates/quick.patch"),)
    assert (request.repo, request.limits.parallel) == (str(folder), 4)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("flags", "look", "value"),
    [
        (
            ("--test", "python t.py"),
            lambda it: (it.test.command, it.test.timeout),
            (("python", "t.py"), 9),
        ),
        (
            ("--bench", "python b.py"),
            lambda it: (it.bench.command, it.bench.metric),
            (("python", "b.py"), BenchMetric.CPU),
        ),
        (("--metric", "wall"), lambda it: it.bench.metric, BenchMetric.WALL),
        (
            ("--metric", "b.json"),
            lambda it: (it.bench.metric, it.bench.file),
            (BenchMetric.FILE, "b.json"),
        ),
        (("--timeout", "7"), lambda it: (it.test.timeout, it.bench.timeout), (7, 7)),
        (
            ("--compare", "stdout", "--compare", "o.txt"),
            lambda it: [c.name for c in it.compare],
            ["stdout", "o.txt"],
        ),
        (("--generate", "fix -g"), lambda it: it.generate.command, ("fix", "-g")),
        (("--repair", "fix"), lambda it: it.repair.command, ("fix",)),
        (("--refine", "fix"), lambda it: it.refine.command, ("fix",)),
        (("--profile", "line"), lambda it: it.profile.kind, Profile.LINE),
        (
            ("--function", "m:f"),
            lambda it: (it.profile.kind, it.profile.functions),
            (Profile.LINE, ("m:f",)),
        ),
        (("--speedup", "1.5"), lambda it: (it.accept.speedup, it.accept.confidence), (1.5, 0.9)),
        (("--accept-speedup", "2"), lambda it: it.accept.speedup, 2),
        (("--confidence", "0.99"), lambda it: it.accept.confidence, 0.99),
        (("--parallel", "auto"), lambda it: it.limits.parallel, None),
        (("--max-candidates", "5"), lambda it: it.limits.candidates, 5),
        (("--seconds", "60"), lambda it: it.limits.seconds, 60),
        (("--budget", "2.5"), lambda it: it.limits.usd, 2.5),
        (("--setup", "make deps"), lambda it: it.setup, ("make", "deps")),
        (("--sandbox",), lambda it: it.sandbox, True),
        (("--env", "A=1", "--env", "B=x=y"), lambda it: it.env, {"A": "1", "B": "x=y"}),
        (("--uncommitted",), lambda it: it.uncommitted, True),
        (("--ref", "main"), lambda it: it.ref, "main"),
        (("main",), lambda it: it.candidates, ("main",)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) and value else None,
)
def test_a_flag_goes_before_what_the_file_says(
    runner: Runner, flags: tuple[str, ...], look: Callable[[RaceRequest], Any], value: Any
) -> None:
    race("race.yaml", *flags)
    assert look(runner.request) == value


def test_a_ref_that_is_asked_for_puts_away_the_working_tree_of_the_file_and_the_other_way_round(
    runner: Runner, write: WriteSuite
) -> None:
    write("a.yaml", "{test: pytest, bench: pytest b.py, uncommitted: true}\n")
    write("b.yaml", "{test: pytest, bench: pytest b.py, ref: main}\n")
    race("a.yaml", "--ref", "main")
    race("b.yaml", "--uncommitted")
    requests = [asked[1] for asked in runner.asked]
    assert [(one.ref, one.uncommitted) for one in requests] == [("main", False), ("HEAD", True)]


def test_paths_on_the_command_line_are_from_here_and_not_from_the_file(
    runner: Runner, write: WriteSuite, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("race.yaml", FILE)
    monkeypatch.chdir(folder / "candidates")
    race("../race.yaml", "quick.patch", "--repo", "..")
    assert runner.request.candidates == (str(folder / "candidates/quick.patch"),)
    assert runner.request.repo == str(folder)


def test_every_flag_stands_for_a_key_of_the_file() -> None:
    for flag in FLAGS:
        for steps in flag.places:
            assert steps[0] in RaceForm.model_fields


# ---- what is refused


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--test and --bench are missing"),
        (("--test", "pytest"), "--bench is missing"),
        (("nowhere.yaml",), "nowhere.yaml: no such file"),
        (("race.yaml", "nope"), "CANDIDATE[0]: 'nope' is not a file, folder or glob"),
        (("race.yaml", "candidates/quik.patch"), "did you mean 'candidates/quick.patch'?"),
        (("race.yaml", "mian"), "did you mean 'main'?"),
        (("race.yaml", "--test", "a && b"), "--test: '&&' needs a shell"),
        (("race.yaml", "--test", "a && b"), """or write --test 'sh -c "a && b"'"""),
        (("race.yaml", "--metric", "wal"), "--metric: must be 'wall' or 'cpu'"),
        (("race.yaml", "--speedup", "0.5"), "--speedup: must be a number from 1 to 1000, not 0.5"),
        (("race.yaml", "--speedup", "nan"), "--speedup: must be"),
        (("race.yaml", "--confidence", "nan"), "--confidence: must be"),
        (("race.yaml", "--seconds", "inf"), "--seconds: must be"),
        (("race.yaml", "-j", "0"), "--parallel: must be a whole number, 1 or more, or 'auto'"),
        (("race.yaml", "-j", "x"), "--parallel: must be a whole number, 1 or more, or 'auto'"),
        (("race.yaml", "--compare", "../x"), "--compare[0]: must be the path of a file"),
        (("race.yaml", "--repo", "nowhere"), "--repo: folder '"),
        (("race.yaml", "--ref", "main", "--uncommitted"), "--ref: cannot be combined with"),
        (("race.yaml", "-o", "race.docx"), "unknown format '.docx' for a race's report"),
        (("race.yaml", "-o", "no/such/folder/race.json"), "there is no folder"),
        (("--resume", "nope"), "no run 'nope'"),
        (("--resume",), "there is no unfinished race"),
        (("--retry-errors",), "there is no race"),
    ],
)
def test_what_cannot_be_raced_is_refused_before_anything_runs(
    runner: Runner, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ParavalError) as refused:
        race(*arguments)
    assert message in refused.value.message
    assert runner.asked == []


@pytest.mark.usefixtures("file")
def test_a_suite_and_a_race_in_one_anothers_place_are_told_in_one_sentence(
    write: WriteSuite, runner: Runner
) -> None:
    for command in ("run", "plan"):
        error = typed(command, "race.yaml").exception
        assert isinstance(error, RequestError)
        assert error.message == "race.yaml is a race, not a suite"
        assert error.hint == "run it with: paraval race race.yaml"
    write("suite.yaml", "cases: [{input: a}]\ntarget: {command: [cat]}\n")
    with pytest.raises(RequestError) as refused:
        race("suite.yaml")
    assert refused.value.message == "suite.yaml is a suite, not a race"
    assert refused.value.hint == "run it with: paraval run suite.yaml"
    assert runner.asked == []


@pytest.mark.usefixtures("file")
# ---- what is shown


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("stands", "interrupted", "code"),
    [
        (standings(winner="quick"), False, 0),
        (standings(winner=None), False, 1),
        (standings(winner=None, reason="its tests fail"), False, 3),
        (replace(standings(winner=None), over=False), True, 130),
    ],
    ids=["a winner", "none", "the baseline fails", "interrupted"],
)
def test_the_exit_code_tells_how_it_ended(
    runner: Runner, stands: Standings, interrupted: bool, code: int
) -> None:
    runner.standings, runner.interrupted = stands, interrupted
    result = typed("race", "race.yaml")
    assert result.return_value == code
    assert "quick" in result.stdout or code == 3
    assert ("Resume it with: paraval race --resume 20260101" in result.stdout) == interrupted


@pytest.mark.usefixtures("file")
def test_reports_are_written_and_the_winner_as_a_patch(runner: Runner, folder: Path) -> None:
    patch = Path(info(runner).folder) / "quick.patch"
    patch.parent.mkdir(parents=True)
    patch.write_bytes(b"--- a\n+++ b\n")
    race("race.yaml", "-o", "race.json", "-o", "best.patch")
    assert json.loads((folder / "race.json").read_text())["winner"] == "quick"
    assert (folder / "best.patch").read_bytes() == b"--- a\n+++ b\n"


@pytest.mark.usefixtures("file")
def test_without_a_winner_there_is_no_patch_and_that_is_said(runner: Runner, folder: Path) -> None:
    runner.standings = standings(winner=None)
    result = typed("race", "race.yaml", "-o", "best.patch")
    assert result.return_value == 1
    assert "best.patch was not written: there is no winner" in result.stderr
    assert not (folder / "best.patch").exists()


# ---- races that were begun


@pytest.fixture
def begun(runner: Runner, folder: Path) -> RunInfo:
    """A race in the store that has not come to an end."""
    beginning = RaceStart(request=request_of(folder), proposals=(), base=Base(tree="0" * 40))
    assert runner.folder == folder
    plan = Plan(
        name="sorting",
        source=None,
        axes={},
        variants=(),
        trials=(),
        limits=Limits(parallel=1),
        selection=as_selection(beginning),
    )
    ledger = open_store(Options()).create_run(plan, seed=0)
    ledger.close(interrupted=True, held_back=False)
    return ledger.run


def test_a_race_is_gone_on_with_by_its_name_or_as_the_last(runner: Runner, begun: RunInfo) -> None:
    race("--resume")
    race("--resume", begun.id)
    result = typed("resume", "last", "-j", "2", "--progress", "none")
    assert result.exception is None
    assert result.return_value == 0
    assert [(kind, run.id) for kind, run, _ in runner.asked] == [("resume", begun.id)] * 3
    assert [given["parallel"] for _, _, given in runner.asked] == [None, None, 2]


@pytest.mark.usefixtures("file", "begun")
def test_with_a_file_the_race_of_that_file_is_looked_for(runner: Runner) -> None:
    race("race.yaml", "--resume", "last")
    ((kind, _, given),) = runner.asked
    assert (kind, given["options"].resume) == ("run", "last")


@pytest.mark.usefixtures("begun")
def test_what_is_for_suites_is_refused_with_a_race(runner: Runner) -> None:
    result = typed("resume", "last", "--case", "a", "--repeats", "2")
    assert isinstance(result.exception, RequestError)
    assert result.exception.hint == "leave out options for suites: cases, repeats"
    assert runner.asked == []


def test_a_recorded_race_is_reported(
    runner: Runner, begun: RunInfo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(_store: object, run: RunInfo) -> RaceReport:
        return RaceReport(runner.standings, replace(run, interrupted=False), request_of(folder))

    monkeypatch.setattr("paraval.cli.race_report.report_of", recorded)
    shown = typed("report", begun.id, "--check")
    assert (shown.exception, shown.return_value) == (None, 0)
    assert "quick" in shown.stdout
    told = typed("report", begun.id, "--json", "-o", "race.md")
    assert json.loads(told.stdout)["winner"] == "quick"
    assert "quick" in (folder / "race.md").read_text()


def test_a_suite_is_no_race_to_go_on_with(runner: Runner) -> None:
    plan = Plan(name="s", source=None, axes={}, variants=(), trials=(), limits=Limits(parallel=1))
    ledger = open_store(Options()).create_run(plan, seed=0)
    ledger.close(interrupted=True, held_back=False)
    with pytest.raises(RequestError, match="is a run of the suite 's', not a race"):
        race("--resume", ledger.run.id)
    with pytest.raises(RequestError, match="there is no unfinished race"):
        race("--resume")
    assert runner.asked == []


# ---- help and schema


def test_the_help_shows_how_to_begin_and_what_the_end_means() -> None:
    result = typed("race", "--help")
    for words in ("Examples:", "paraval race race.yaml", "candidates/*.patch", "Exit codes: 0"):
        assert words in result.stdout
    for flag in FLAGS:
        assert flag.name in result.stdout


def test_the_schemas_of_suites_and_races_are_told_apart() -> None:
    assert json.loads(typed("schema").stdout)["title"] == "paraval suite"
    assert json.loads(typed("schema", "race").stdout)["title"] == "paraval race"
    assert isinstance(typed("schema", "rave").exception, click.BadParameter)


def test_what_is_wrong_ends_with_2_and_a_sentence_each(paraval: Paraval, write: WriteSuite) -> None:
    write("race.yaml", "{test: 5, bench: 'a |', repo: nowhere}\n")
    ended = paraval("race", "race.yaml")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert [line.partition(": ")[0] for line in ended.stderr.splitlines()] == ["error"] * 3


# ---- two refs


def test_two_refs_and_a_script_are_a_comparison_without_a_race_file(runner: Runner) -> None:
    race("--compare-refs", "main", "HEAD", "--script", "python b.py", "--script-output", "t.json")
    request = runner.request
    assert (request.ref, request.head, request.candidates) == ("main", "HEAD", ())
    assert (request.bench.command, request.bench.file) == (("python", "b.py"), "t.json")
    assert (request.accept.speedup, request.test.canary) == (1, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("main", "HEAD"), "--script (or --bench) is missing"),
        (
            ("main", "nowhere", "--script", "python b.py"),
            "'nowhere' is not a branch, tag or commit",
        ),
        (("main", "HEAD", "--script", "fix", "x.patch"), "without other candidates"),
    ],
)
@pytest.mark.usefixtures("runner")
def test_a_comparison_that_cannot_be_made_is_refused(
    arguments: tuple[str, ...], words: str
) -> None:
    with pytest.raises(RequestError) as refused:
        race("--compare-refs", *arguments)
    assert words in refused.value.message
