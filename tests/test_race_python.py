"""Races from Python: arguments ask for the race that a race file would ask for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from operator import attrgetter
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
race:
  test: {command: [python3, check.py], timeout: 5}
  bench: {command: [python3, bench.py], metric: cpu}
  candidates: given.patch
  propose: {command: [python3, propose.py], rounds: 4, timeout: 9}
  limits: {parallel: 3, candidates: 7}
"""


@dataclass
class Handed:
    """What the engine was handed, in the place of a race."""

    request: RaceRequest | None = None
    proposals: tuple[Proposal, ...] = ()
    function: Any = None
    options: paraval.Options | None = None
    interrupted: bool = False

    def stoppably(self, request: RaceRequest, **rest: Any) -> Any:
        self.request, self.function = request, rest["function"]
        self.proposals, self.options = rest["proposals"], rest["options"]
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


def propose(_ask: paraval.Ask) -> list[str]:
    return [PATCH]


def test_the_keys_of_a_race_file_are_arguments(handed: Handed, folder: Path) -> None:
    paraval.race(
        name="sorting",
        models={"sim": {"provider": "loopback"}},
        repo={"git": folder, "ref": "main"},
        test="python3 -m pytest -q",
        bench={"command": ("python3", "bench.py"), "metric": "cpu"},
        compare=["stdout"],
        candidates=["given.patch"],
        accept={"speedup": 1.2},
        limits={"parallel": 2, "seconds": 60},
    )
    asked = handed.asked
    assert (asked.name, asked.source, asked.repo) == ("sorting", None, str(folder))
    assert list(asked.models) == ["sim"]
    assert asked.test.command == ("python3", "-m", "pytest", "-q")
    assert (asked.bench.metric, asked.accept.speedup) == ("cpu", 1.2)
    assert (asked.limits.parallel, asked.limits.seconds) == (2, 60)
    assert [one.name for one in handed.proposals] == ["given"]


@pytest.mark.parametrize(
    ("keys", "looks"),
    [
        ({"test": "python3 t.py"}, {"test.command": ("python3", "t.py"), "test.timeout": 5}),
        ({"bench": {"metric": "wall"}}, {"bench.command": ("python3", "bench.py")}),
        ({"limits": {"parallel": 1}}, {"limits.parallel": 1, "limits.candidates": 7}),
        ({"compare": ("stdout", "a.txt")}, {"keys.compare": ("stdout", "a.txt")}),
        ({"repo": {"git": Path(), "ref": "main"}}, {"keys.repo.ref": "main"}),
        ({"name": "mine"}, {"name": "mine"}),
        ({"propose": None}, {"propose": None}),
        ({"propose": "python3 b.py"}, {"propose.command": ("python3", "b.py")}),
    ],
)
def test_arguments_override_a_file_key_by_key(
    handed: Handed, keys: Any, looks: dict[str, object]
) -> None:
    paraval.race("race.yaml", **keys)
    for key, value in looks.items():
        assert attrgetter(key)(handed.asked) == value


def test_models_for_a_function_are_added_to_a_file(handed: Handed) -> None:
    paraval.race("race.yaml", models={"sim": {"provider": "loopback"}}, propose=propose)
    assert list(handed.asked.models) == ["sim"]


@pytest.mark.parametrize(
    ("given", "rounds"), [(propose, 4), ({"function": propose, "rounds": 2}, 2)]
)
def test_a_function_proposes_in_place_of_the_program_of_a_file(
    handed: Handed, given: Any, rounds: int
) -> None:
    paraval.race("race.yaml", propose=given)
    spec = handed.asked.propose
    assert spec is not None
    assert (spec.command, spec.rounds) == (None, rounds)
    assert handed.function is propose


def test_a_function_is_enough_without_given_candidates(handed: Handed) -> None:
    paraval.race(test="python3 t.py", bench="python3 b.py", propose=propose)
    assert (handed.proposals, handed.function) == ((), propose)


def test_candidates_may_be_data(handed: Handed) -> None:
    given: Any = [
        {"patch": PATCH, "note": "first"},
        Path("given.patch"),
        {"name": "ref", "ref": "main"},
    ]
    paraval.race("race.yaml", candidates=given)
    assert [one.name for one in handed.proposals] == ["given", "candidate-1", "ref"]
    assert all(one.content for one in handed.proposals)
    assert handed.proposals[1].note == "first"


@pytest.mark.parametrize("given", [[{"name": "mine", "patch": PATCH}], []])
def test_candidates_replace_those_of_a_file(handed: Handed, given: list[dict[str, str]]) -> None:
    paraval.race("race.yaml", candidates=given)
    assert [one.name for one in handed.proposals] == [one["name"] for one in given]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"candidates": [{"pach": "p"}]}, "candidates: item 1: unknown key 'pach'"),
        (
            {"candidates": ["given.patch", {"name": "given", "patch": "p"}]},
            "duplicate name 'given'",
        ),
        ({"candidates": [{"ref": "nowhere"}]}, "candidates: item 1: 'nowhere' is not a branch"),
        ({"candidates": [{"folder": "nowhere"}]}, "candidates: item 1: folder .*nowhere"),
        ({"candidates": 5}, "candidates: must be"),
        ({"candidates": [], "propose": None}, "no candidates"),
        ({"propose": {"command": None}}, "needs a command or models"),
        ({"propose": {"function": "propose"}}, "propose: .*callable"),
        ({"propose": {"function": propose, "command": "x"}}, "propose: "),
        ({"propose": {"function": propose, "deep": 3}}, "propose.*deep"),
        ({"onlooker": propose}, "unknown key 'onlooker'"),
        ({"test": 7}, "test"),
    ],
)
def test_a_mistake_is_reported_before_anything_runs(handed: Handed, keys: Any, words: str) -> None:
    with pytest.raises(paraval.ParavalError, match=words):
        paraval.race("race.yaml", **keys)
    assert handed.request is None


def test_an_interrupted_race_raises_and_can_be_resumed(handed: Handed) -> None:
    handed.interrupted = True
    options = paraval.Options(resume="last", seed=3)
    with pytest.raises(KeyboardInterrupt, match="race-1 was interrupted"):
        paraval.race("race.yaml", options=options)
    assert handed.options == options


def test_inside_an_event_loop_there_is_an_async_form(handed: Handed) -> None:
    async def within() -> None:
        with pytest.raises(paraval.ParavalError, match="race_async") as refused:
            paraval.race("race.yaml")
        assert "await paraval.race_async" in (refused.value.hint or "")
        await paraval.race_async("race.yaml", propose=propose)

    asyncio.run(within())
    assert handed.function is propose
