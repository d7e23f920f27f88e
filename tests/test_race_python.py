"""Races from Python: what is asked for by arguments is what a race file would ask for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import paraval
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceRequest
from tests.repositories import make_repository

PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-slow\n+quick\n"
FILE = """\
test: {command: [python3, check.py], timeout: 5}
bench: {command: [python3, bench.py], metric: cpu}
candidates: given.patch
repair: {command: [python3, repair.py], depth: 4}
limits: {parallel: 3, candidates: 7}
"""


@dataclass
class Handed:
    """What the engine was handed, in the place of a race."""

    request: RaceRequest | None = None
    proposals: tuple[Proposal, ...] = ()
    functions: dict[str, Any] = field(default_factory=dict)
    options: paraval.Options | None = None
    interrupted: bool = False

    def stoppably(self, request: RaceRequest, **rest: Any) -> Any:
        self.request = request
        self.proposals, self.options = rest["proposals"], rest["options"]
        self.functions = dict(rest["functions"])
        return SimpleNamespace(run=SimpleNamespace(id="race-1", interrupted=self.interrupted))

    async def inside_a_loop(self, request: RaceRequest, **rest: Any) -> Any:
        return self.stoppably(request, **rest)

    @property
    def asked(self) -> RaceRequest:
        assert self.request is not None
        return self.request


@pytest.fixture
def handed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Handed:
    """In a folder that is a repository, with a race file and a patch beside it."""
    (folder / "x.py").write_text("slow\n")
    (folder / "race.yaml").write_text(FILE)
    (folder / "given.patch").write_text(PATCH)
    make_repository(folder)
    handed = Handed()
    monkeypatch.setattr("paraval.racing.api.run_race_stoppably", handed.stoppably)
    monkeypatch.setattr("paraval.racing.api.run_race_async", handed.inside_a_loop)
    return handed


def mend(ask: paraval.Ask) -> str:
    return ask.patch


def test_the_keys_of_a_race_file_are_arguments(handed: Handed, folder: Path) -> None:
    paraval.race(
        test="python3 -m pytest -q",
        bench={"command": ["python3", "bench.py"], "metric": "cpu"},
        compare=["stdout"],
        candidates=["given.patch"],
        accept={"speedup": 1.2},
        limits={"parallel": 2, "seconds": 60},
    )
    asked = handed.asked
    assert asked.repo == str(folder)
    assert asked.test.command == ("python3", "-m", "pytest", "-q")
    assert asked.bench.metric == "cpu"
    assert asked.accept.speedup == 1.2
    assert (asked.limits.parallel, asked.limits.seconds) == (2, 60)
    assert [one.name for one in handed.proposals] == ["given"]
    assert asked.source is None


def test_arguments_lie_over_a_file_key_by_key(handed: Handed, folder: Path) -> None:
    paraval.race(folder / "race.yaml", bench="python3 other.py", limits={"parallel": 1})
    asked = handed.asked
    assert asked.test.timeout == 5
    assert asked.bench.command == ("python3", "other.py")
    assert (asked.limits.parallel, asked.limits.candidates) == (1, 7)
    assert asked.repair is not None
    assert asked.repair.depth == 4


def test_a_function_takes_the_place_of_a_program_and_keeps_its_bounds(handed: Handed) -> None:
    paraval.race("race.yaml", repair=mend, refine={"function": mend, "calls": 2})
    asked = handed.asked
    assert asked.repair is not None
    assert (asked.repair.command, asked.repair.depth) == ((), 4)
    assert asked.refine is not None
    assert (asked.refine.command, asked.refine.calls) == ((), 2)
    assert handed.functions == {"repair": mend, "refine": mend}


def test_programs_may_be_hooks_too(handed: Handed) -> None:
    paraval.race("race.yaml", refine=["python3", "refine.py"])
    assert handed.asked.refine is not None
    assert handed.asked.refine.command == ("python3", "refine.py")
    assert handed.functions == {}


def test_generate_alone_is_enough(handed: Handed) -> None:
    paraval.race(test="python3 t.py", bench="python3 b.py", generate=mend)
    assert handed.proposals == ()
    assert handed.asked.generate is not None


def test_candidates_may_be_data(handed: Handed) -> None:
    paraval.race(
        "race.yaml",
        candidates=[
            {"patch": PATCH, "note": "the first"},
            Path("given.patch"),
            {"name": "files", "files": {"x.py": "quick\n", "old.py": None}},
            Proposal(name="record", ref="main"),
        ],
    )
    assert [one.name for one in handed.proposals] == ["given", "candidate-1", "files", "record"]
    assert all(one.content for one in handed.proposals)
    assert handed.proposals[1].note == "the first"


def test_data_alone_takes_the_place_of_a_files_candidates(handed: Handed) -> None:
    paraval.race("race.yaml", candidates=[{"name": "mine", "patch": PATCH}])
    assert [one.name for one in handed.proposals] == ["mine"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"candidates": [{"pach": "p"}]}, "candidates: item 1: unknown key 'pach'"),
        (
            {"candidates": ["given.patch", {"name": "given", "patch": "p"}]},
            "duplicate name 'given'",
        ),
        ({"candidates": [{"name": "far", "ref": "nowhere"}]}, "candidates: far: .*nowhere"),
        ({"candidates": [{"folder": "nowhere"}]}, "candidates: candidate-1: .*nowhere"),
        ({"candidates": [], "repair": None}, "no candidate"),
        ({"repair": {"function": "mend"}}, "repair: 'function' must be a function, not str"),
        ({"repair": {"function": mend, "command": "x"}}, "both a command and a function"),
        ({"repair": {"function": mend, "deep": 3}}, "deep"),
        ({"tests": "pytest"}, "tests"),
        ({"test": 7}, "test"),
    ],
)
def test_what_is_wrong_is_said_by_its_key(handed: Handed, keys: Any, words: str) -> None:
    with pytest.raises(paraval.ParavalError, match=words):
        paraval.race("race.yaml", **keys)
    assert handed.request is None, "nothing ran"


def test_an_interrupted_race_raises_and_can_be_resumed(handed: Handed) -> None:
    handed.interrupted = True
    with pytest.raises(KeyboardInterrupt, match="race-1 was interrupted"):
        paraval.race("race.yaml")


def test_options_are_handed_on(handed: Handed) -> None:
    options = paraval.Options(resume="last", seed=3)
    paraval.race("race.yaml", options=options)
    assert handed.options == options


def test_inside_a_loop_there_is_another_way_to_ask(handed: Handed) -> None:
    async def within() -> None:
        with pytest.raises(paraval.ParavalError, match="race_async"):
            paraval.race("race.yaml")
        await paraval.race_async("race.yaml", generate=mend)

    asyncio.run(within())
    assert handed.functions == {"generate": mend}


# ---- real races


def source(seconds: float, answer: int = 42) -> str:
    return f"import time\n\ndef work():\n    time.sleep({seconds})\n    return {answer}\n"


@pytest.fixture
def slow(folder: Path) -> dict[str, Any]:
    """A repository whose one function sleeps; the keys of a race for it."""
    repository = folder / "repository"
    repository.mkdir()
    (repository / "work.py").write_text(source(0.05))
    (repository / "check.py").write_text(
        "import sys\nfrom work import work\nsys.exit(0 if work() == 42 else 'wrong answer')\n"
    )
    (repository / "bench.py").write_text("from work import work\nwork()\n")
    make_repository(repository)
    return {
        "repo": repository,
        "test": [sys.executable, "check.py"],
        "bench": {"command": [sys.executable, "bench.py"], "quiet": 0, "blocks": 5},
        "limits": {"parallel": 2},
    }


def test_functions_drive_a_race_to_its_winner(slow: dict[str, Any]) -> None:
    """What is generated is wrong; its repair is right; the refinement of that one wins."""
    asked: list[tuple[str, str | None, str | None]] = []

    async def generate(_ask: paraval.Ask) -> AsyncIterator[dict[str, Any]]:
        yield {"name": "wrong", "files": {"work.py": source(0, answer=41)}}

    def repair(ask: paraval.Ask) -> dict[str, Any]:
        asked.append((ask.kind, ask.candidate, ask.status))
        assert "return 41" in ask.patch
        return {"files": {"work.py": source(0.02)}, "cost_usd": 0.25}

    async def refine(ask: paraval.Ask) -> list[dict[str, Any]]:
        asked.append((ask.kind, ask.candidate, ask.status))
        assert ask.speedup is not None
        return [{"name": "best", "files": {"work.py": source(0)}}]

    report = paraval.race(**slow, generate=generate, repair=repair, refine=refine)
    assert asked[:2] == [("repair", "wrong", "failed"), ("refine", "wrong-repair-1", "passed")]
    assert report.winner is not None
    assert (report.winner.name, report.winner.parent) == ("best", "wrong-repair-1")
    assert report["wrong"].status == "failed"
    assert "+    time.sleep(0)" in (report.patch or "")
    assert (slow["repo"] / "work.py").read_text() == source(0.05)


def test_a_cancelled_race_is_gone_on_with_from_python(slow: dict[str, Any]) -> None:
    calls = []

    async def generate(_ask: paraval.Ask) -> AsyncIterator[dict[str, Any]]:
        calls.append(asyncio.current_task())
        yield {"name": "wrong", "files": {"work.py": source(0, answer=41)}}
        if len(calls) == 1:
            begun.set()
            await asyncio.sleep(60)

    begun = asyncio.Event()

    async def stop_and_go_on() -> paraval.RaceReport:
        race = asyncio.create_task(paraval.race_async(**slow, generate=generate))
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({race, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not race.done(), race.result()
        race.cancel()
        with pytest.raises(asyncio.CancelledError):
            await race
        options = paraval.Options(resume="last")
        return await paraval.race_async(**slow, generate=generate, options=options)

    report = asyncio.run(stop_and_go_on())
    assert len(calls) == 2
    assert [one.name for one in report] == ["wrong"]
    assert (report["wrong"].status, report.exit_code) == ("failed", 1)
    assert report.run.resumed == 1
