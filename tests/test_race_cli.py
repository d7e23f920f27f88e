"""`paraval race` as a user types it: the race that it asks for, what it shows, and exit codes.

Races do not run here: a stand-in for the engine records what was asked and returns a report.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from paraval.cli.commands.race import FLAGS
from paraval.cli.main import paraval
from paraval.errors import ParavalError, RequestError
from paraval.racing.prepare import RaceStart
from paraval.racing.race_file import race_of
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.standings import BaselineStanding, CandidateStanding, Standings, Status
from paraval.racing.steps import Base
from paraval.records import Limits, Plan, RunInfo
from paraval.runner.run import open_store
from paraval.settings import RACE, Options
from tests.conftest import Paraval, WriteSuite
from tests.repositories import make_repository, put_on_path

FILE = """
    name: sorting
    race:
      test: {command: pytest, timeout: 9}
      bench: {command: pytest b.py, metric: cpu}
      candidates: candidates
      propose: {command: fix, timeout: 5}
      accept: {confidence: 0.9}
      limits: {parallel: 3}
"""


@dataclass(slots=True)
class Runner:
    """Stands in for the engine: records what was asked, and returns the report of the test."""

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
    return race_of({"test": "pytest", "bench": "pytest b.py"}, folder)


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
    """The exit code of a valid command."""
    result = typed("race", "--progress", "none", *arguments)
    if result.exception is not None:
        raise result.exception
    code: int = result.return_value
    return code


# ---- what is asked


@pytest.mark.usefixtures("file")
def test_a_race_file_is_the_whole_request(runner: Runner, folder: Path) -> None:
    assert race("race.yaml") == 0
    request = runner.request
    assert (request.name, request.limits.parallel) == ("sorting", 3)
    assert request.keys.candidates == (str(folder / "candidates"),)


def test_flags_without_a_file_race_in_the_current_folder(runner: Runner, folder: Path) -> None:
    race("--test", "pytest -q", "--bench", "{python} b.py", "candidates/quick.patch", "-j", "4")
    request = runner.request
    assert request.test.command == ("pytest", "-q")
    assert request.bench.command == (sys.executable, "b.py")
    assert request.keys.candidates == (str(folder / "candidates/quick.patch"),)
    assert (request.repo, request.limits.parallel) == (str(folder), 4)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--test 'python t.py'", "test.command", ("python", "t.py")),
        ("--test 'python t.py'", "test.timeout", 9),
        ("--bench 'fix | cat'", "bench.command", ("sh", "-c", "fix | cat")),
        ("--bench 'fix | cat'", "bench.metric", "cpu"),
        ("--metric b.json", "bench.file", "b.json"),
        ("--timeout 7", "test.timeout", 7),
        ("--timeout 7", "bench.timeout", 7),
        ("--compare stdout --compare o.txt", "compare", ("stdout", "o.txt")),
        ("--propose 'fix -g'", "propose.command", ("fix", "-g")),
        ("--propose 'fix -g'", "propose.timeout", 5),
        ("--rounds 7", "propose.rounds", 7),
        ("--rounds 7", "propose.command", ("fix",)),
        ("--profile none", "profile", "none"),
        ("--function m:f", "functions", ("m:f",)),
        ("--function m:f", "profile", "line"),
        ("--speedup 1.5", "accept.speedup", 1.5),
        ("--speedup 1.5", "accept.confidence", 0.9),
        ("--accept-speedup 2", "accept.speedup", 2),
        ("--confidence 0.99", "accept.confidence", 0.99),
        ("--accept-caches", "accept.caches", True),
        ("--accept-unseen-results", "accept.unseen_results", True),
        ("--parallel auto", "limits.parallel", "auto"),
        ("--max-candidates 5", "limits.candidates", 5),
        ("--seconds 60", "limits.seconds", 60),
        ("--budget 2.5", "limits.usd", 2.5),
        ("--setup 'make deps'", "setup", ("make", "deps")),
        ("--sandbox", "sandbox", True),
        ("--no-sandbox", "sandbox", False),
        ("--env A=1 --env B=x=y", "env", {"A": "1", "B": "x=y"}),
        ("--uncommitted", "repo.uncommitted", True),
        ("--ref main", "repo.ref", "main"),
        ("main", "candidates", ("main",)),
    ],
)
def test_a_flag_overrides_its_key_of_the_file(
    runner: Runner, flags: str, key: str, value: object
) -> None:
    race("race.yaml", *shlex.split(flags))
    assert attrgetter(key)(runner.request.keys) == value


def test_a_ref_and_the_working_tree_replace_one_another(runner: Runner, write: WriteSuite) -> None:
    write("a.yaml", "race: {test: pytest, bench: pytest b.py, repo: {uncommitted: true}}\n")
    write("b.yaml", "race: {test: pytest, bench: pytest b.py, repo: {ref: main}}\n")
    race("a.yaml", "--ref", "main")
    race("b.yaml", "--uncommitted")
    repos = [asked[1].keys.repo for asked in runner.asked]
    assert [(one.ref, one.uncommitted) for one in repos] == [("main", False), ("HEAD", True)]


def test_paths_on_the_command_line_are_relative_to_the_current_folder(
    runner: Runner, write: WriteSuite, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("race.yaml", FILE)
    monkeypatch.chdir(folder / "candidates")
    race("../race.yaml", "quick.patch", "--repo", "..")
    assert runner.request.keys.candidates == (str(folder / "candidates/quick.patch"),)
    assert runner.request.repo == str(folder)


def test_every_flag_belongs_to_a_key_of_the_file() -> None:
    for flag in FLAGS:
        for steps in flag.places:
            assert steps[0] in RaceKeys.model_fields


# ---- what is refused


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--test and --bench are missing"),
        ("--test pytest", "--bench is missing"),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
        ("race.yaml nope", "CANDIDATE: 'nope' is not a file, folder or glob"),
        ("race.yaml candidates/quik.patch", "did you mean 'candidates/quick.patch'?"),
        ("race.yaml mian", "did you mean 'main'?"),
        ("race.yaml --test ''", "--test: must be a command"),
        ("race.yaml --test 'nowhere x'", "--test: program 'nowhere' not found on PATH"),
        ("race.yaml --metric wal", "--metric: must be 'wall', 'cpu'"),
        ("race.yaml --speedup 0.5", "--speedup: must be a number from 1 to 1000, not 0.5"),
        ("race.yaml --speedup nan", "--speedup: must be"),
        ("race.yaml --confidence nan", "--confidence: must be"),
        ("race.yaml --seconds inf", "--seconds: must be"),
        ("race.yaml -j x", "--parallel: must be a whole number, 1 or more, or 'auto'"),
        ("race.yaml --compare ../x", "--compare: must be the path of a file"),
        ("race.yaml --repo nowhere", "--repo: folder '"),
        ("race.yaml --ref main --uncommitted", "--ref: cannot be combined with"),
        ("race.yaml --env A", "--env A: must be NAME=VALUE"),
        ("--test a --bench b --rounds 2", "needs a command or models"),
        ("race.yaml -o race.docx", "unknown format '.docx' for a race's report"),
        ("race.yaml -o no/such/folder/race.json", "there is no folder"),
        ("--resume nope", "no run 'nope'"),
        ("--resume", "there is no unfinished race"),
        ("--retry-errors", "there is no race"),
        ("--compare-refs main HEAD", "--script (or --bench) is missing"),
        ("--compare-refs main nope --script fix", "'nope' is not a branch, tag or commit"),
        ("--compare-refs main HEAD --script fix x.patch", "without other candidates"),
    ],
)
def test_an_invalid_race_is_refused_before_anything_runs(
    runner: Runner, arguments: str, message: str
) -> None:
    with pytest.raises(ParavalError) as refused:
        race(*shlex.split(arguments))
    assert message in refused.value.message
    assert runner.asked == []


@pytest.mark.usefixtures("file")
def test_a_suite_given_as_a_race_is_refused_with_the_right_command_and_the_reverse(
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
    assert refused.value.message.startswith("suite.yaml is not a race")
    assert refused.value.hint == "it is a suite; run it with: paraval run suite.yaml"
    assert runner.asked == []


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
def test_the_exit_code_shows_how_the_race_ended(
    runner: Runner, stands: Standings, interrupted: bool, code: int
) -> None:
    runner.standings, runner.interrupted = stands, interrupted
    result = typed("race", "race.yaml")
    assert result.return_value == code
    assert "quick" in result.stdout or code == 3
    assert ("Resume it with: paraval race --resume 20260101" in result.stdout) == interrupted


@pytest.mark.usefixtures("file")
def test_reports_and_the_winning_patch_are_written(runner: Runner, folder: Path) -> None:
    patch = Path(info(runner).folder) / "quick.patch"
    patch.parent.mkdir(parents=True)
    patch.write_bytes(b"--- a\n+++ b\n")
    race("race.yaml", "-o", "race.json", "-o", "best.patch")
    assert json.loads((folder / "race.json").read_text())["winner"] == "quick"
    assert (folder / "best.patch").read_bytes() == b"--- a\n+++ b\n"


@pytest.mark.usefixtures("file")
def test_a_missing_patch_is_explained_if_there_is_no_winner(runner: Runner, folder: Path) -> None:
    runner.standings = standings(winner=None)
    result = typed("race", "race.yaml", "-o", "best.patch")
    assert result.return_value == 1
    assert "best.patch was not written: there is no winner" in result.stderr
    assert not (folder / "best.patch").exists()


# ---- races that began earlier


@pytest.fixture
def begun(runner: Runner, folder: Path) -> RunInfo:
    """An unfinished race in the store."""
    start = RaceStart(request=request_of(folder), proposals=(), base=Base(tree="0" * 40))
    assert runner.folder == folder
    plan = Plan(
        name="sorting",
        source=None,
        axes={},
        variants=(),
        trials=(),
        limits=Limits(parallel=1),
        selection={RACE: json.dumps(start.as_data())},
    )
    ledger = open_store(Options()).create_run(plan, seed=0)
    ledger.close(interrupted=True, held_back=False)
    return ledger.run


def test_a_race_resumes_by_its_id_or_as_the_last_one(runner: Runner, begun: RunInfo) -> None:
    race("--resume")
    race("--resume", begun.id)
    result = typed("resume", "last", "-j", "2", "--progress", "none")
    assert result.exception is None
    assert result.return_value == 0
    assert [(kind, run.id) for kind, run, _ in runner.asked] == [("resume", begun.id)] * 3
    assert [given["parallel"] for _, _, given in runner.asked] == [None, None, 2]


@pytest.mark.usefixtures("file", "begun")
def test_with_a_file_the_race_of_that_file_is_resumed(runner: Runner) -> None:
    race("race.yaml", "--resume", "last")
    ((kind, _, given),) = runner.asked
    assert (kind, given["options"].resume) == ("run", "last")


@pytest.mark.usefixtures("begun")
def test_options_for_suites_are_refused_for_a_race(runner: Runner) -> None:
    result = typed("resume", "last", "--case", "a", "--repeats", "2")
    assert isinstance(result.exception, RequestError)
    assert result.exception.hint == "leave out options for suites: cases, repeats"
    assert runner.asked == []


def test_a_recorded_race_is_shown(
    runner: Runner, begun: RunInfo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(_store: object, run: RunInfo) -> RaceReport:
        return RaceReport(runner.standings, replace(run, interrupted=False), request_of(folder))

    monkeypatch.setattr("paraval.cli.race_report.report_of", recorded)
    shown = typed("report", begun.id, "--check")
    assert (shown.exception, shown.return_value) == (None, 0)
    assert "quick" in shown.stdout
    as_json = typed("report", begun.id, "--json", "-o", "race.md")
    assert json.loads(as_json.stdout)["winner"] == "quick"
    assert "quick" in (folder / "race.md").read_text()


def test_a_run_of_a_suite_is_not_resumed_as_a_race(runner: Runner) -> None:
    plan = Plan(name="s", source=None, axes={}, variants=(), trials=(), limits=Limits(parallel=1))
    ledger = open_store(Options()).create_run(plan, seed=0)
    ledger.close(interrupted=True, held_back=False)
    with pytest.raises(RequestError, match="is a run of the suite 's', not a race"):
        race("--resume", ledger.run.id)
    with pytest.raises(RequestError, match="there is no unfinished race"):
        race("--resume")
    assert runner.asked == []


# ---- help and schema


def test_the_help_shows_examples_exit_codes_and_every_flag() -> None:
    result = typed("race", "--help")
    for words in ("Examples:", "paraval race race.yaml", "candidates/*.patch", "Exit codes: 0"):
        assert words in result.stdout
    for flag in FLAGS:
        assert flag.name in result.stdout


def test_suites_and_races_have_different_schemas() -> None:
    assert json.loads(typed("schema").stdout)["title"] == "paraval suite"
    assert json.loads(typed("schema", "race").stdout)["title"] == "paraval race"
    assert isinstance(typed("schema", "rave").exception, click.BadParameter)


def test_each_mistake_is_one_line_on_stderr_and_the_exit_code_is_2(
    paraval: Paraval, write: WriteSuite
) -> None:
    write("race.yaml", "race: {test: 5, bench: [], sandbox: maybe}\n")
    ended = paraval("race", "race.yaml")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert [line.partition(": ")[0] for line in ended.stderr.splitlines()] == ["error"] * 3


# ---- two refs


def test_two_refs_and_a_script_are_compared_without_a_race_file(runner: Runner) -> None:
    race("--compare-refs", "main", "HEAD", "--script", "python b.py", "--script-output", "t.json")
    request = runner.request
    repo = request.keys.repo
    assert (repo.ref, repo.head, request.keys.candidates) == ("main", "HEAD", ())
    assert (request.bench.command, request.bench.file) == (("python", "b.py"), "t.json")
    assert (request.accept.speedup, request.test.canary) == (1, False)


@pytest.mark.usefixtures("file")
def test_two_refs_replace_the_candidates_of_a_race_file(runner: Runner) -> None:
    race("race.yaml", "--compare-refs", "main", "HEAD")
    keys = runner.request.keys
    assert (keys.repo.head, keys.candidates, keys.propose) == ("HEAD", (), None)
    assert (keys.test.command, keys.bench.metric) == (("pytest",), "cpu")
