"""The slow proofs of the race: `make faults` runs and reports them."""

from __future__ import annotations

import random
import resource
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.race_kills import (
    GIVEN,
    PARALLEL,
    PARAVAL,
    PHASES,
    SMALL_RACE,
    STATUSES,
    World,
    candidate,
    essence,
    interrupt_and_resume,
    kill_in,
    killed_at_random,
    only_tests,
    statuses,
)

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a race that was not killed."""
    world = World(tmp_path_factory.mktemp("undisturbed") / "world")
    world.run("race", "race.yaml")
    report = world.report()
    assert statuses(report) == STATUSES
    return essence(report)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("times", [1, 2])
def test_a_race_that_is_killed_in_a_phase_once_or_twice_ends_as_one_that_is_not(
    tmp_path: Path, undisturbed: dict[str, Any], phase: str, times: int
) -> None:
    world = World(tmp_path / "world")
    hold = "apply" if phase == "stage" else phase
    arguments = ["race", "race.yaml"]
    done: set[tuple[str, str, int]] = set()
    for _ in range(times):
        world.hold(*([] if phase == "final" else [hold]))
        engine = world.start(*arguments)
        kill_in(phase, world, engine)
        world.await_nobody()
        assert not world.started(engine) & done
        done = world.done()
        assert len(only_tests(world.started(engine) - done)) <= PARALLEL
        world.let_go()
        arguments = ["resume", "last"]
    engine = world.run(*arguments)
    assert not world.started(engine) & done
    assert essence(world.report()) == undisturbed
    assert world.left_in_scratch() == []
    assert world.tree() == world.before


def test_sixty_random_kills_of_races_lose_and_double_nothing(
    tmp_path: Path, undisturbed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    draw, again = random.Random(12), 0
    for number in range(12):
        world = World(tmp_path / f"world-{number}")
        again += killed_at_random(world, draw, kills=5)
        assert essence(world.report()) == undisturbed
        assert world.left_in_scratch() == []
        assert world.tree() == world.before
    with capsys.disabled():
        print(f"\n12 races, up to 5 kills each: {again} steps were run again")


@pytest.mark.parametrize(
    "where", ["test-baseline", "bench-baseline", "propose-round-1", "test-quick", "bench-slow"]
)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_anywhere_in_a_race_and_a_resume_finishes_it(
    tmp_path: Path, undisturbed: dict[str, Any], where: str, times: int
) -> None:
    world = World(tmp_path / "world")
    interrupt_and_resume(world, where, times)
    assert essence(world.report()) == undisturbed


# ---- scale


def race_and_measure(world: World, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The report of a race; prints what it took, its programs included."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [*PARAVAL, "race", "race.yaml", "--progress", "none", "-o", "live.json"],
        cwd=world.folder,
        env=world.variables(),
        capture_output=True,
        check=False,
        timeout=600,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with capsys.disabled():
        print(f"\n{world.folder.name}: {time.monotonic() - began:.1f} s, CPU {cpu_s:.1f} s")
    live = world.written("live.json")
    assert world.report() == live
    return live


def test_a_thousand_candidates_of_which_five_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-x\n+y\n"
    given = [
        candidate(f"c{place}", f"right 0.{place % 5 + 4}")
        if place % 2
        else {"name": f"c{place}", "patch": broken}
        for place in range(1000)
    ]
    race = SMALL_RACE.replace("parallel: 4", "parallel: 4, candidates: 1000")
    live = race_and_measure(World(tmp_path / "thousand", race=race, given=given), capsys)
    assert Counter(statuses(live).values()) == {
        "invalid": 500,
        "duplicate": 495,
        "accepted": 4,
        "won": 1,
    }


GIVES_NONE = "  candidates: candidates.jsonl\n"


def test_ten_thousand_proposals_of_one_call_are_bounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proposing = "  propose: {{command: [cat, {work}/round-1], rounds: 2}}\n"
    lines = [candidate(f"c{n}", f"right 0.{n % 5 + 4}") for n in range(10_000)]
    race = SMALL_RACE.replace(GIVES_NONE, proposing)
    live = race_and_measure(World(tmp_path / "lines", race=race, rounds=[lines]), capsys)
    assert Counter(statuses(live).values()) == {"duplicate": 195, "accepted": 4, "won": 1}
    assert live["notes"] == [
        "800 proposals left out: the limit is 200 candidates",
        "propose, round 1: 9,000 more were skipped: at most 1,000 are read",
        "no more proposals: the limit of 200 candidates was reached",
    ]


def test_a_race_to_which_nothing_was_proposed_has_no_winner(tmp_path: Path) -> None:
    race = SMALL_RACE.replace(GIVES_NONE, '  propose: ["true"]\n')
    world = World(tmp_path / "world", race=race)
    engine = world.run("race", "race.yaml", code=1)
    assert "There were no candidates." in engine.stdout.read_text()
    assert world.report()["over"]


@pytest.mark.parametrize(("tests", "candidates"), [(300, 30), (50_000, 3)])
def test_many_single_tests_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tests: int, candidates: int
) -> None:
    given = [candidate(f"c{n}", f"right 0.{n + 10}") for n in range(candidates)]
    world = World(
        tmp_path / f"junit-{tests}",
        race=SMALL_RACE.replace("test.sh]", "test.sh, '{{junit}}']"),
        given=[*given, GIVEN[2]],
    )
    cases = [f'<testcase classname="t" name="test_{n}"/>' for n in range(tests)]
    failure = '<testcase classname="t" name="test_7"><failure message="no"/></testcase>'
    for name, suite in {"right": cases, "wrong": [*cases[:7], failure, *cases[8:]]}.items():
        (world.work / name).write_text(f"<testsuite>{''.join(suite)}</testsuite>")
    script = world.work / "test.sh"
    copying = f'cp {world.work}/"$verdict" "$1"\n[ "$verdict" = right ]'
    script.write_text(script.read_text().replace('[ "$verdict" = right ]', copying))
    live = race_and_measure(world, capsys)
    assert live["winner"] == "c0"
    wrong = live["candidates"][-1]
    assert wrong["tests"]["failed"] == len(wrong["differences"]) == 1
