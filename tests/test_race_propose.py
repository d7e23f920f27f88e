"""`propose`: what it gets in each round, what counts of its answer, and what it cannot spoil.

First whole races of a second or two, then single calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import pytest

import paraval
from paraval.processes.children import Warden
from paraval.racing.candidates.lines import MOST_LINES
from paraval.racing.candidates.propose import Proposer
from paraval.racing.context import RaceContext
from paraval.racing.findings import Proposal, Proposed, RunDifference, StagedCandidate, StepFinding
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.standings import (
    BaselineStanding,
    CandidateStanding,
    Standings,
    Status,
    proposer_data,
)
from paraval.racing.steps import Base, Step, StepEnd, StepKind, finding_of, trial_of
from paraval.records import Attempt, AttemptResult, Outcome
from paraval.scratch import Homes
from paraval.settings import LOG_LIMIT_BYTES
from paraval.targets.command import ProcessRoom
from paraval.workspaces.pool import Pool
from tests.race_kit import Track, telling, track_fixture
from tests.repositories import make_repository

__all__ = ["track_fixture"]

PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-slow\n+quick\n"

# ---- whole races

JUNIT = """\
. ./work.sh; got=$(cat answer); test "$got" = 42 || bad="<failure message='want 42, got $got'/>"
echo "<testsuite><testcase classname='t' name='answer'>$bad</testcase></testsuite>" >"$1"
test "$got" = 42
"""
PROPOSER = """
import json, re, sys

race = json.load(sys.stdin)
open(f"stdin-{race['round']}.json", "w").write(json.dumps(race))

def show(name, file, old, new, parent=None):
    patch = f"--- a/{file}\\n+++ b/{file}\\n@@ -1 +1 @@\\n-{old}\\n+{new}\\n"
    print(json.dumps({"name": name, "patch": patch, "parent": parent, "cost_usd": 0.25}))

if race["round"] == 1:
    show("wrong", "answer", 42, 41)
    show("slow", "seconds", "1.0", 0.8)
for one in race["candidates"]:
    if one["status"] == "failed" and one["round"] == race["round"] - 1:
        want, got = re.findall(r"\\d+", one["differences"][0]["message"])
        assert f"+{got}" in one["patch"]
        show("repaired", "seconds", "1.0", float(want) / 60, one["name"])
if race["round"] > 1:
    fastest = max((one for one in race["candidates"] if one["speedup"]),
                  key=lambda one: one["speedup"]["estimate"])
    seconds = 0.5 / fastest["speedup"]["estimate"]
    show(f"refined-{race['round']}", "seconds", "1.0", seconds, fastest["name"])
"""


def test_a_program_repairs_a_failure_and_refines_the_fastest_over_three_rounds(
    track: Track,
) -> None:
    track.commit({"check.sh": JUNIT})
    (track.folder / "propose.py").write_text(PROPOSER)
    command = [sys.executable, str(track.folder / "propose.py")]
    cwd = Path.cwd()
    os.chdir(track.folder)
    try:
        report = track.race(test=["sh", "check.sh", "{junit}"], propose={"command": command})
    finally:
        os.chdir(cwd)
    found = [(one.name, one.round, one.parent, str(one.status)) for one in report]
    assert found == [
        ("wrong", 0, None, "failed"),
        ("slow", 0, None, "accepted"),
        ("repaired", 1, "wrong", "accepted"),
        ("refined-2", 1, "slow", "accepted"),
        ("refined-3", 2, "refined-2", "won"),
    ]
    assert report["refined-3"].speedup is not None
    assert report["refined-3"].speedup.estimate == pytest.approx(5)
    assert (report.standings.rounds, report.standings.cost_usd) == (3, 1.25)
    first, third = (json.loads((track.folder / f"stdin-{n}.json").read_text()) for n in (1, 3))
    assert (first["round"], first["rounds"], first["candidates"]) == (1, 3, [])
    assert first["baseline"]["tests"]["passed"] == 1
    assert first["baseline"]["seconds"] == {"__total__": 1.0}
    wrong = third["candidates"][0]
    assert (wrong["tests"]["failed"], wrong["speedup"]) == (1, None)
    assert wrong["reason"] == "1 of 1 tests failed: t::answer"


def test_a_function_proposes_until_nothing_is_new(track: Track) -> None:
    asks: list[paraval.Ask] = []

    async def propose(ask: paraval.Ask) -> AsyncIterator[dict[str, Any]]:
        asks.append(ask)
        if ask.round == 1:
            yield track.with_patch(telling("half", 0.5))
        elif ask.round == 2:
            _, half = ask.candidates
            assert half["speedup"]["estimate"] == pytest.approx(2)
            yield track.with_patch(telling("same", 0.5))
            yield {**track.with_patch(telling("quarter", 0.25)), "parent": "half"}

    given = telling("given", 0.9)
    report = track.race(given, propose={"function": propose, "rounds": 9})
    assert [ask.round for ask in asks] == [1, 2, 3]
    assert [one["name"] for one in asks[2].candidates] == ["given", "half", "same", "quarter"]
    assert (report.winner and report.winner.name, report["same"].status) == ("quarter", "duplicate")
    assert report["given"].round is None
    assert report["quarter"].parent == "half"


def test_the_budget_and_the_number_of_candidates_end_the_rounds(track: Track) -> None:
    def propose(ask: paraval.Ask) -> list[dict[str, Any]]:
        return [
            {**track.with_patch(telling(f"r{ask.round}", 1 / (1 + ask.round))), "cost_usd": 0.4}
        ]

    report = track.race(propose={"function": propose, "rounds": 9}, limits={"usd": 1})
    assert [one.name for one in report] == ["r1", "r2"]
    assert report.standings.cost_usd == pytest.approx(0.8)
    assert "propose, round 3 was not called: budget of $1.00 reached" in report.standings.notes
    report = track.race(propose={"function": propose, "rounds": 9}, limits={"candidates": 2})
    assert [one.name for one in report] == ["r1", "r2"]
    assert report.winner is not None
    assert "no more proposals: the limit of 2 candidates was reached" in report.standings.notes


def test_a_function_calls_models_and_their_cost_is_the_calls(track: Track) -> None:
    scenario = {"answers": [{"match": "", "text": "0.5"}], "tokens": {"input": 1, "output": 1}}
    (track.folder / "scenario.json").write_text(json.dumps(scenario))
    price = {"input_per_million": 100_000, "output_per_million": 100_000}
    simulated = {"provider": "loopback", "scenario": str(track.folder / "scenario.json")}

    async def propose(ask: paraval.Ask) -> dict[str, Any]:
        seconds = await ask.model("sim", "How fast?")
        if ask.round == 2:
            await ask.model("simm", "How fast?")
        return track.with_patch(telling("answered", float(seconds)))

    models = {"sim": {**simulated, "price": price}}
    report = track.race(models=models, propose=propose)
    assert (report["answered"].status, report.standings.rounds) == ("won", 3), "it is asked again"
    assert report.standings.cost_usd == pytest.approx(0.2), "the second answer is cached"
    (note,) = report.standings.notes
    assert (
        "round 2 ended as crashed: ParavalError: unknown model 'simm', did you mean 'sim'?" in note
    )


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo no idea >&2; exit 3", "crashed: exit code 3: no idea"),
        ("sleep 60", "timeout: timed out after 0.5 s"),
        ("echo thinking", "line 1: is not JSON"),
    ],
)
def test_a_failing_or_hanging_program_does_not_end_the_race(
    track: Track, script: str, note: str
) -> None:
    timeout = 0.5 if "sleep" in script else 30
    propose = {"command": ["sh", "-c", script], "timeout": timeout, "rounds": 3}
    report = track.race(telling("given", 0.5), propose=propose)
    assert report.winner is not None
    assert any(note in one for one in report.standings.notes), report.standings.notes
    assert note in report.text()


def test_a_program_that_asks_for_a_retry_is_called_again(track: Track) -> None:
    called = track.folder / "called"
    line = json.dumps(track.with_patch(telling("second", 0.5)))
    (track.folder / "line.json").write_text(f"{line}\n")
    script = f"[ -e {called} ] || {{ touch {called}; exit 75; }}; cat {track.folder}/line.json"
    report = track.race(propose={"command": ["sh", "-c", script], "rounds": 1})
    assert report.winner is not None
    assert report.winner.name == "second"


def test_a_resumed_race_does_not_repeat_finished_rounds(track: Track) -> None:
    rounds: list[int] = []
    begun = asyncio.Event()

    async def propose(ask: paraval.Ask) -> list[dict[str, Any]]:
        rounds.append(ask.round)
        if rounds == [1, 2]:
            begun.set()
            await asyncio.sleep(60)
        return [{**track.with_patch(telling(f"r{ask.round}", 1 / (1 + ask.round))), "cost_usd": 1}]

    async def stop_and_resume() -> paraval.RaceReport:
        keys = track.keys(propose={"function": propose, "rounds": 2})
        race = asyncio.create_task(paraval.race_async(**keys))
        await asyncio.wait_for(begun.wait(), 60)
        race.cancel()
        with pytest.raises(asyncio.CancelledError):
            await race
        keys["options"] = paraval.Options(store=track.store, resume="last")
        return await paraval.race_async(**keys)

    report = asyncio.run(stop_and_resume())
    assert rounds == [1, 2, 2]
    assert [one.name for one in report] == ["r1", "r2"]
    assert (report.run.resumed, report.standings.cost_usd) == (1, 2)
    track.assert_nothing_is_left()


# ---- single calls

BASE = Base(tree="1" * 40, commit="2" * 40)
HEAP = CandidateStanding(
    name="heap",
    status=Status.FAILED,
    reason="1 of 4 tests failed",
    differences=(
        RunDifference(
            scope="test", name="test_a", status="failed", baseline="passed", message="not 3"
        ),
    ),
    note="a heap",
    parent="list",
    round=0,
)


@dataclass
class Scene:
    """A race in its second round, with one candidate so far."""

    folder: Path
    propose: dict[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    patch: str = PATCH
    """Of the candidate."""
    applies: bool = True
    homes: str = "homes"

    def context(self, warden: Warden) -> RaceContext:
        keys = RaceKeys.model_validate(
            {
                "test": ["pytest", "-q"],
                "bench": ["python", "bench.py"],
                "propose": self.propose,
                "pass_env": ["RACE_KEY"],
            }
        )
        folder = str(self.folder)
        return RaceContext(
            request=RaceRequest(name="race", source=None, folder=folder, repo=folder, keys=keys),
            base=BASE,
            processes=ProcessRoom(
                warden=warden, run_id="race-1", homes=Homes(self.folder / self.homes)
            ),
            workspaces=cast("Pool", None),
            objects=self.folder / "objects",
            run_folder=self.folder,
            ends={(StepKind.STAGE, "heap", 1): self._staged()},
            function=self.function,
        )

    def _staged(self) -> StepEnd:
        (self.folder / "heap.patch").write_text(self.patch)
        heap = Proposal(name="heap", patch=self.patch)
        return StepEnd(
            step=Step(kind=StepKind.STAGE, candidate="heap", proposal=heap),
            outcome=Outcome.PASSED,
            finding=StepFinding(staged=StagedCandidate(tree="3" * 40, normal="n")),
            artifacts={"patch": "heap.patch"} if self.applies else {},
        )

    def begin(self, warden: Warden) -> tuple[Proposer, Attempt, Step]:
        context = self.context(warden)
        standings = Standings(baseline=BaselineStanding(commit=BASE.commit), candidates=(HEAP,))
        details = proposer_data(standings, 1, 3)
        step = Step(kind=StepKind.PROPOSE, candidate="propose", round=1, details=details)
        trial = trial_of(step, 0, context.request, BASE)
        attempt = Attempt(trial=trial, number=1, folder=str(self.folder / "attempt"))
        return Proposer(context), attempt, step

    def ask(self) -> AttemptResult:
        async def perform() -> AttemptResult:
            async with Warden() as warden:
                proposer, attempt, step = self.begin(warden)
                result = await proposer.perform(attempt, step)
                await proposer.close()
                return result

        return asyncio.run(perform())

    def run(self, script: str, **options: Any) -> AttemptResult:
        """The result of a program."""
        self.propose = {"command": [sys.executable, "-uc", script], "timeout": 20.0, **options}
        return self.ask()

    def call(self, function: Callable[..., Any], **options: Any) -> AttemptResult:
        """The result of a function."""
        self.function, self.propose = function, options
        return self.ask()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    (tmp_path / "x.py").write_text("slow\n")
    make_repository(tmp_path)
    return Scene(tmp_path)


def proposed(result: AttemptResult) -> Proposed:
    found = finding_of(result).proposed
    assert found is not None
    return found


def patches(result: AttemptResult) -> list[str | None]:
    return [one.patch for one in proposed(result).proposals]


def reason(result: AttemptResult) -> str:
    assert result.error is not None
    return result.error.message


SHOW = (
    "import json, sys; race = json.load(sys.stdin); print(json.dumps({'patch': 'p', 'note': %s}))"
)


def test_a_program_gets_the_standings_with_patches_as_json(scene: Scene) -> None:
    (proposal,) = proposed(scene.run(SHOW % "json.dumps(race)")).proposals
    race = json.loads(proposal.note)
    assert race.keys() == {
        *("round", "rounds", "repo", "base", "test", "bench", "accept", "limits", "baseline"),
        "candidates",
    }
    assert (race["round"], race["rounds"], race["repo"]) == (2, 3, str(scene.folder))
    assert race["base"] == {"tree": BASE.tree, "commit": BASE.commit}
    assert race["test"] == {"command": ["pytest", "-q"]}
    assert race["bench"] == {"command": ["python", "bench.py"], "metric": "wall"}
    (heap,) = race["candidates"]
    assert (heap["name"], heap["status"], heap["parent"], heap["round"]) == (
        *("heap", "failed", "list"),
        1,
    )
    assert (heap["patch"], heap["patch_file"]) == (PATCH, str(scene.folder / "heap.patch"))
    assert heap["differences"][0]["message"] == "not 3"
    assert (proposal.name, proposal.content != "") == ("round-2-1", True)


def test_the_patch_of_a_candidate_that_never_applied_is_what_was_proposed(scene: Scene) -> None:
    scene.applies = False
    asks: list[paraval.Ask] = []
    scene.call(asks.append)
    assert (asks[0].candidates[0]["patch"], asks[0].candidates[0]["patch_file"]) == (PATCH, None)


def test_a_program_need_not_read_its_input(scene: Scene) -> None:
    """Which may be more than a pipe holds."""
    scene.patch = "+" * 150_000
    assert patches(scene.run('print(\'{"patch": "p"}\')')) == ["p"]


@pytest.mark.parametrize(
    ("ending", "outcome", "words"),
    [
        ("sys.exit('no model')", Outcome.CRASHED, "exit code 1: no model"),
        ("os.kill(os.getpid(), 9)", Outcome.CRASHED, "killed by SIGKILL"),
        ("time.sleep(60)", Outcome.TIMEOUT, "timed out after 0.5 s"),
        ("sys.exit(75)", Outcome.INFRA_ERROR, "asked for a retry"),
    ],
)
def test_what_a_program_printed_before_it_failed_counts(
    scene: Scene, ending: str, outcome: Outcome, words: str
) -> None:
    script = f'import os, sys, time\nprint(\'{{"patch": "p", "cost_usd": 1}}\')\n{ending}'
    result = scene.run(script, timeout=0.5 if outcome is Outcome.TIMEOUT else 20.0)
    assert result.outcome is outcome
    assert words in reason(result)
    assert patches(result) == ["p"]
    assert result.spend is not None


def test_a_missing_program_is_a_crash_of_that_call(scene: Scene) -> None:
    scene.propose = {"command": ["no-such-proposer"]}
    result = scene.ask()
    assert result.outcome is Outcome.CRASHED
    assert "no-such-proposer" in reason(result)


def test_costs_are_added_up_and_unknown_if_none_is_reported(scene: Scene) -> None:
    spend = scene.run('print(\'{"patch": "p", "cost_usd": 0.25}\\n{"cost_usd": 0.5}\')').spend
    assert spend is not None
    assert spend.cost_usd == pytest.approx(0.75)
    scene.homes = "others"
    assert scene.run('print(\'{"patch": "p"}\')').spend is None


def test_lines_that_are_no_candidates_are_reported_by_their_number(scene: Scene) -> None:
    lines = 'thinking...\n\n{"patch": "p"}\n{"pach": "p"}\n{"folder": "nowhere"}\n'
    script = f'import sys; sys.stdout.buffer.write({lines.encode()!r} + b\'{{"patch": "\\xe9"}}\')'
    result = scene.run(script)
    assert patches(result) == ["p"]
    complaints = proposed(result).complaints
    assert [words.split(":")[0] for words in complaints] == ["line 1", "line 4", "line 5", "line 6"]
    assert "not UTF-8" in complaints[3]


def test_a_program_may_propose_a_folder_that_is_kept_with_the_run(scene: Scene) -> None:
    script = (
        "import json, os\n"
        "place = os.path.join(os.environ['PARAVAL_FOLDER'], 'mine'); os.mkdir(place)\n"
        "open(os.path.join(place, 'x.py'), 'w').write('quick')\n"
        "print(json.dumps({'folder': place}))"
    )
    (proposal,) = proposed(scene.run(script)).proposals
    assert proposal.folder is not None
    assert Path(proposal.folder, "x.py").read_text() == "quick"


@pytest.mark.parametrize("size", [2_000_000, LOG_LIMIT_BYTES + 4_000_000])
def test_a_flood_costs_no_other_line(scene: Scene, size: int) -> None:
    result = scene.run(f'print("x" * {size}); print(\'{{"patch": "p"}}\'); print("nonsense")')
    assert patches(result) == ["p"]
    assert "at most 1,048,576 are read" in proposed(result).complaints[0]
    if size > LOG_LIMIT_BYTES:
        assert "only the beginning and the end were kept" in " ".join(result.notes)


def test_the_first_lines_of_many_count(scene: Scene) -> None:
    script = (
        f"for n in range({MOST_LINES + 50}): print('nonsense' if n else '{{\"patch\": \"p\"}}')"
    )
    result = scene.run(script)
    assert patches(result) == ["p"]
    found = proposed(result)
    assert len(found.complaints) + found.more_complaints == MOST_LINES


def test_a_program_has_the_users_home_and_only_the_named_variables(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("RACE_KEY", "k")
    monkeypatch.setenv("OTHER_KEY", "secret")
    result = scene.run("import os;" + SHOW % "json.dumps(dict(os.environ))")
    seen = json.loads(proposed(result).proposals[0].note)
    assert (seen["HOME"], seen["RACE_KEY"]) == ("/home/me", "k")
    assert "OTHER_KEY" not in seen


def test_cancelling_a_race_ends_its_program(scene: Scene) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('gone', 'w'), sys.exit()))\n"
        "open('begun', 'w')\n"
        "time.sleep(60)"
    )
    scene.propose = {"command": [sys.executable, "-c", script]}

    async def cancel() -> None:
        async with Warden() as warden:
            proposer, attempt, step = scene.begin(warden)
            task = asyncio.create_task(proposer.perform(attempt, step))
            while not (scene.folder / "begun").exists():  # noqa: ASYNC110 - by another process
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert (scene.folder / "gone").exists()
            await proposer.close()

    asyncio.run(cancel())


def test_the_program_on_the_page_works(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in the model's place that answers as models do."""
    page = (Path(__file__).parent.parent / "docs/how-to/propose-candidates.md").read_text()
    (program,) = re.findall(r"^```python\n(import json\n.*?)^```$", page, re.DOTALL | re.MULTILINE)
    claude = scene.folder / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text(f"#!/bin/sh\ncat <<'END'\nHere you are:\n```diff\n{PATCH}```\nEND\n")
    claude.chmod(0o755)
    monkeypatch.setenv("PATH", f"{claude.parent}:{os.environ['PATH']}")
    result = scene.run(program)
    assert result.outcome is Outcome.PASSED, result.error
    (proposal,) = proposed(result).proposals
    assert (proposal.patch, proposal.note) == (PATCH, "round 2")


# ---- functions


async def async_function(ask: paraval.Ask) -> str:
    return f"round {ask.round}"


async def async_generator(ask: paraval.Ask) -> AsyncIterator[dict[str, str]]:
    yield {"patch": f"round {ask.round}"}


def plain_function(ask: paraval.Ask) -> dict[str, str]:
    return {"patch": f"round {ask.round}"}


def plain_generator(ask: paraval.Ask) -> Iterator[dict[str, str]]:
    yield {"patch": f"round {ask.round}"}


class AnObject:
    async def __call__(self, ask: paraval.Ask) -> tuple[str, ...]:
        return (f"round {ask.round}",)


def an_awaitable(ask: paraval.Ask) -> Awaitable[str]:
    return async_function(ask)


@pytest.mark.parametrize(
    "function",
    [
        async_function,
        async_generator,
        plain_function,
        plain_generator,
        AnObject(),
        an_awaitable,
        lambda ask: async_generator(ask),  # noqa: PLW0108 - a plain function that returns one
    ],
)
def test_a_function_of_any_kind_proposes(scene: Scene, function: Callable[..., Any]) -> None:
    result = scene.call(function)
    assert result.outcome is Outcome.PASSED, result.error
    assert patches(result) == ["round 2"]


def test_a_function_gets_what_a_program_gets(scene: Scene) -> None:
    asks: list[paraval.Ask] = []
    assert patches(scene.call(asks.append)) == []
    (ask,) = asks
    assert (ask.round, ask.rounds, ask.repo) == (2, 3, str(scene.folder))
    assert ask.baseline == ask.data["baseline"]
    assert list(ask.candidates) == ask.data["candidates"]
    assert ask.candidates[0]["patch"] == PATCH
    assert Path(ask.folder).is_dir()
    page = (Path(__file__).parent.parent / "docs/how-to/propose-candidates.md").read_text()
    assert all(f"`{one.name}`" in page or f"ask.{one.name}" in page for one in fields(paraval.Ask))


def test_a_function_reports_costs_and_mistakes_like_a_program(scene: Scene) -> None:
    items = [
        {"patch": "p", "cost_usd": 1},
        7,
        {"patch": {1, 2}},
        b"p",
        [["p"]],
        {},
        {"cost_usd": 2},
    ]
    result = scene.call(lambda _ask: items)
    assert (result.outcome, patches(result)) == (Outcome.PASSED, ["p"])
    assert result.spend is not None
    assert result.spend.cost_usd == 3
    numbers = [words.split(":")[0] for words in proposed(result).complaints]
    assert numbers == [f"item {number}" for number in range(2, 7)]


def test_an_exception_ends_its_call_and_what_was_yielded_before_counts(scene: Scene) -> None:
    def raising(_ask: paraval.Ask) -> Iterator[Any]:
        yield {"patch": "p", "cost_usd": 1}
        print("thinking")
        raise KeyError("no idea")

    result = scene.call(raising)
    assert result.outcome is Outcome.CRASHED
    assert "KeyError: 'no idea' (test_race_propose.py:" in reason(result)
    assert Path(result.artifacts["stdout"]).read_text() == "thinking\n"
    assert "Traceback" in Path(result.artifacts["stderr"]).read_text()
    assert patches(result) == ["p"]
    assert result.spend is not None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (paraval.RateLimitedError("slow down", retry_after=7), Outcome.RATE_LIMITED),
        (paraval.TransientError("no answer"), Outcome.INFRA_ERROR),
        (SystemExit(3), Outcome.CRASHED),
        (asyncio.CancelledError(), Outcome.CRASHED),
    ],
)
@pytest.mark.parametrize("as_async", [True, False])
def test_an_exception_means_what_it_means_in_targets(
    scene: Scene, error: BaseException, outcome: Outcome, *, as_async: bool
) -> None:
    async def raising(_ask: paraval.Ask) -> None:
        raise error

    def raising_in_a_thread(_ask: paraval.Ask) -> None:
        raise error

    result = scene.call(raising if as_async else raising_in_a_thread)
    assert result.outcome is outcome
    if outcome is Outcome.RATE_LIMITED:
        assert result.error is not None
        assert result.error.retry_after == 7


async def waiting(_ask: paraval.Ask) -> None:
    await asyncio.sleep(60)


def blocking(_ask: paraval.Ask) -> None:
    time.sleep(3)


async def deaf(_ask: paraval.Ask) -> None:
    """Cannot be cancelled."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("function", [waiting, blocking, deaf])
def test_a_function_that_takes_too_long_is_abandoned(
    scene: Scene, function: Callable[..., Any]
) -> None:
    async def perform() -> tuple[AttemptResult, float]:
        async with Warden() as warden:
            scene.function, scene.propose = function, {"timeout": 0.2}
            proposer, attempt, step = scene.begin(warden)
            began = time.monotonic()
            result = await proposer.perform(attempt, step)
            return result, time.monotonic() - began

    result, took = asyncio.run(perform())
    assert took < 2
    assert (result.outcome, "timed out after 0.2 s" in reason(result)) == (Outcome.TIMEOUT, True)


@pytest.mark.parametrize("as_async", [True, False])
def test_an_endless_generator_is_ended(scene: Scene, *, as_async: bool) -> None:
    given = itertools.count()

    async def endless(_ask: paraval.Ask) -> AsyncIterator[int]:
        for number in itertools.takewhile(lambda number: number < 100_000, given):
            yield number

    result = scene.call(endless if as_async else lambda _ask: (next(given) for _ in range(100_000)))
    assert result.outcome is Outcome.PASSED
    assert proposed(result).complaints[0].startswith("item 1: ")
    assert next(given) < 10 * MOST_LINES


def test_a_function_that_is_not_here_fails_with_what_to_do(scene: Scene) -> None:
    """As in a race that began in Python and is resumed by the command."""
    result = scene.ask()
    assert result.outcome is Outcome.CRASHED
    assert "resume the race from the program that started it" in reason(result)
