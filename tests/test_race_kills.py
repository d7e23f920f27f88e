"""A race that is killed or interrupted, in any phase, resumes and ends as if it had not been."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.race_kills import (
    FIXED,
    GIVEN,
    PARALLEL,
    PARAVAL,
    PHASES,
    STATUSES,
    TWO_ROUNDS,
    World,
    essence,
    interrupt_and_resume,
    kill_in,
    killed_at_random,
    only_tests,
    statuses,
)
from tests.test_store import needs_mounts


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a race that was not killed."""
    world = World(tmp_path_factory.mktemp("undisturbed") / "world")
    world.run("race", "race.yaml")
    report = world.report()
    assert statuses(report) == STATUSES
    return essence(report)


def test_a_race_that_is_killed_in_each_of_its_phases_ends_as_one_that_is_not(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """One race, twelve engines, killed in each round: a step with a result runs once, a round that
    was answered is not asked again, and no process or folder is left behind."""
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
        assert not world.started(engine) & done
        assert done <= world.done()
        done = world.done()
        in_flight = world.started(engine) - done
        assert len(only_tests(in_flight)) <= PARALLEL
        starts.update(world.started(engine))
        again.update(in_flight)
        world.let_go("apply" if phase == "stage" else phase)
    world.let_go()
    engine = world.run("race", "--resume")
    assert not world.started(engine) & done
    starts.update(world.started(engine))
    assert essence(world.report()) == undisturbed
    assert starts == Counter(world.done()) + again
    for (kind, case), times in world.begun().items():
        if kind != "bench":
            assert times <= sum(n for one, n in starts.items() if one[:2] == (kind, case))
    assert {world.ended()["propose", f"round-{number}"] for number in (1, 2, 3)} == {1}
    assert world.left_in_scratch() == []
    assert world.tree() == world.before


def test_a_race_that_is_killed_at_random_moments_ends_as_one_that_is_not(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    world = World(tmp_path / "world")
    killed_at_random(world, random.Random(4), kills=3)
    assert essence(world.report()) == undisturbed
    assert world.left_in_scratch() == []
    assert world.tree() == world.before


# ---- Ctrl-C

SMALL_STATUSES = {"quick": "won", "wrong": "failed", "fixed": "accepted"}


def small_world(folder: Path) -> World:
    return World(folder, race=TWO_ROUNDS, given=[GIVEN[0], GIVEN[2]], rounds=[[], [FIXED]])


@pytest.mark.parametrize(("where", "times"), [("propose-round-2", 1), ("bench-quick", 2)])
def test_ctrl_c_stops_a_race_and_a_resume_finishes_it(
    tmp_path: Path, where: str, times: int
) -> None:
    world = small_world(tmp_path / "world")
    interrupt_and_resume(world, where, times)
    assert statuses(world.report()) == SMALL_STATUSES


# ---- a full disk


FULL_DISK = """
mount -t tmpfs -o size=40m tmpfs .paraval || exit 99
"$@" race race.yaml --progress lines 2> told &
engine=$!
until [ -e work/held-bench-quick ]; do sleep 0.05; kill -0 $engine || exit 98; done
dd if=/dev/zero of=.paraval/filler bs=64k 2> /dev/null
touch work/release-bench-quick
wait $engine
echo $? > code
rm .paraval/filler
"$@" resume last --progress none -o resumed.json
"""


@needs_mounts
def test_a_race_on_a_full_disk_is_aborted_and_resumes_when_there_is_space(
    tmp_path: Path,
) -> None:
    """A disk of 40 MB, in a mount namespace of the engine's own."""
    world = small_world(tmp_path / "world")
    world.hold("bench-quick")
    (world.folder / ".paraval").mkdir()
    ended = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", FULL_DISK, "sh", *PARAVAL],
        cwd=world.folder,
        env=world.variables(),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    told = (world.folder / "told").read_text()
    assert ended.returncode == 0, told + ended.stderr
    assert int((world.folder / "code").read_text()) == 3
    assert "was aborted: no space left for results in" in told
    assert "hint: fix that, then run: paraval resume" in told
    report = world.written("resumed.json")
    assert report["over"]
    assert statuses(report) == SMALL_STATUSES
    assert world.begun()["test", "quick"] == world.begun()["propose", "round-2"] == 1
    assert world.left_in_scratch() == []
    assert world.tree() == world.before
