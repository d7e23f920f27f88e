"""A race that is killed or interrupted, wherever it is: it goes on, and ends as it would have."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.race_kills import STATUSES, World, essence, kill_in, killed_at_random, statuses

PARALLEL = 4


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a race that nobody killed comes to."""
    world = World(tmp_path_factory.mktemp("undisturbed") / "world")
    world.run("race", "race.yaml")
    report = world.report()
    assert statuses(report) == STATUSES
    return essence(report)


PHASES = (
    "stage",
    "test-baseline",
    "bench-baseline",
    "generate",
    "test-streamed",
    "repair-wrong",
    "bench-slow",
    "refine-quick",
    "final",
    "profile-best",
)


def test_a_race_that_is_killed_in_each_of_its_phases_ends_as_one_that_is_not(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """One race, eleven engines; what has a result is run once, and nothing is left of the dead."""
    world = World(tmp_path / "world")
    world.hold("apply", *(phase for phase in PHASES if phase not in ("stage", "final")))
    starts: Counter[tuple[str, str, int]] = Counter()
    again: Counter[tuple[str, str, int]] = Counter()
    done: set[tuple[str, str, int]] = set()
    arguments = [["race", "race.yaml"], ["resume", "last"], ["race", "race.yaml", "--resume"]]
    for number, phase in enumerate(PHASES):
        engine = world.start(*arguments[0 if not number else 1 + number % 2])
        kill_in(phase, world, engine)
        world.await_nobody()
        assert not engine.started() & done
        assert done <= world.done()
        done = world.done()
        in_flight = engine.started() - done
        assert len(in_flight) <= PARALLEL
        starts.update(engine.started())
        again.update(in_flight)
        world.let_go("apply" if phase == "stage" else phase)
    world.let_go()
    engine = world.run("race", "--resume")
    assert not engine.started() & done
    starts.update(engine.started())
    assert essence(world.report()) == undisturbed
    assert starts == Counter(world.done()) + again
    for (kind, case), times in world.begun().items():
        if kind != "bench":
            assert times <= sum(n for one, n in starts.items() if one[:2] == (kind, case))
    assert world.left_in_scratch() == []
    assert world.tree() == world.before


def test_a_race_that_is_killed_at_random_moments_ends_as_one_that_is_not(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    world = World(tmp_path / "world")
    killed_at_random(world, random.Random(4), kills=4)
    assert essence(world.report()) == undisturbed
    assert world.left_in_scratch() == []
    assert world.tree() == world.before


# ---- Ctrl-C


@pytest.mark.parametrize("where", ["test-quick", "repair-wrong", "bench-slow"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_a_race_says_how_to_go_on_and_a_resume_finishes_it(
    tmp_path: Path, undisturbed: dict[str, Any], where: str, times: int
) -> None:
    world = World(tmp_path / "world")
    world.hold(where)
    engine = world.start("race", "race.yaml")
    world.await_held(where, engine)
    engine.process.send_signal(signal.SIGINT)
    if times == 2:
        engine.await_event("notice")
        engine.process.send_signal(signal.SIGINT)
    assert engine.wait() == 130, engine.told()
    assert world.processes() == []
    assert world.left_in_scratch() == []
    (run,) = world.store.runs()
    assert f"paraval resume {run.id}" in engine.stdout.read_text()
    done = world.done()
    assert done
    world.let_go()
    resumed = world.run("resume", run.id)
    assert not resumed.started() & done
    assert essence(world.report()) == undisturbed
    assert world.tree() == world.before
