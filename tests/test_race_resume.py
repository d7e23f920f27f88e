"""What a race comes to is read from its store alone: later, elsewhere, and by the next engine."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.faults.race_kills import STATUSES, World, essence, statuses, wait_until

PLAIN = """
name: plain
repo: repository
test: {{command: [sh, {work}/test.sh], timeout: 60}}
bench: {{command: [sh, {work}/bench.sh], metric: {{file: m.json}}, quiet: 0, blocks: 3, cpus: 0}}
candidates: candidates.jsonl
limits: {{parallel: 4}}
sandbox: false
"""


def candidate(name: str, value: str) -> dict[str, object]:
    return {"name": name, "files": {"value.txt": f"{value}\n"}}


def test_whoever_failed_first_was_repaired_and_a_replay_knows_it(tmp_path: Path) -> None:
    """One call is left, and the second candidate was sooner: the store tells who had it."""
    world = World(
        tmp_path / "world",
        race=PLAIN + "repair: {{command: [sh, {work}/repair.sh], calls: 1}}\n",
        given=[candidate("late", "wrong 0.5"), candidate("wrong", "wrong 0.25")],
    )
    world.hold("test-late")
    engine = world.start("race", "race.yaml", "-o", "live.json")
    world.await_held("test-late", engine)
    engine.await_event("attempt_started", step="repair")
    world.release("test-late")
    assert engine.wait() == 0, engine.told()
    report = world.report()
    assert statuses(report) == {"late": "failed", "wrong": "failed", "mended": "won"}
    assert report["over"]
    assert report == world.written("live.json")
    again = world.run("resume", "last")
    assert again.started() == set()
    assert essence(world.report()) == essence(report)


def test_a_race_is_told_the_same_when_all_that_it_was_made_of_is_gone(tmp_path: Path) -> None:
    """Hooks, failures, a duplicate, one that does not apply: live, from its store, elsewhere."""
    world = World(tmp_path / "world")
    world.run("race", "race.yaml", "-o", "live.json")
    live = world.written("live.json")
    assert statuses(live) == STATUSES
    assert world.report() == live
    for name in ("repository", "work"):
        shutil.rmtree(world.folder / name)
    (world.folder / "candidates.jsonl").unlink()
    (world.folder / "race.yaml").unlink()
    (world.folder / ".paraval").rename(tmp_path / "elsewhere")
    moved = world.report(tmp_path / "elsewhere")
    assert moved["run"].pop("folder").startswith(str(tmp_path / "elsewhere"))
    del live["run"]["folder"]
    assert moved == live


def test_a_race_with_more_candidates_than_it_may_have_is_told_the_same(tmp_path: Path) -> None:
    given = [candidate(f"c{place}", f"wrong 0.{place + 1}") for place in range(6)]
    world = World(
        tmp_path / "world",
        race=PLAIN.replace("parallel: 4", "parallel: 4, candidates: 7")
        + "repair: {{command: [sh, {work}/generate.sh], calls: 3}}\n",
        given=given,
    )
    world.run("race", "race.yaml", "-o", "live.json", code=0)
    live = world.written("live.json")
    assert world.report() == live
    again = world.run("race", "--resume", "last")
    assert again.started() == set()
    assert essence(world.report()) == essence(live)
    told = [one["status"] for one in live["candidates"]]
    assert told.count("skipped") >= 2


def test_a_race_ends_near_its_time_limit_and_says_whom_it_cost_what(tmp_path: Path) -> None:
    limit = 4
    world = World(
        tmp_path / "world",
        race=PLAIN.replace("parallel: 4", f"parallel: 4, seconds: {limit}"),
        given=[candidate(f"c{place}", f"right 0.{place + 4}") for place in range(5)],
    )
    (world.work / "pause").write_text("0.1")
    began = time.monotonic()
    engine = world.start("race", "race.yaml", "-o", "live.json")
    assert engine.wait() in (0, 1), engine.told()
    # A step that has begun ends; what is wide is for machines that do much else.
    assert time.monotonic() - began < limit + 8
    live = world.written("live.json")
    assert live["over"]
    assert world.report() == live
    late = [one for one in live["candidates"] if "time limit" in one["reason"]]
    assert late
    assert any("time limit of 4 s" in note for note in live["notes"])
    assert {one["status"] for one in live["candidates"]} <= {
        "won",
        "accepted",
        "not_shown",
        "skipped",
    }
    again = world.start("resume", "last")
    again.wait()
    assert again.started() == set()
    assert essence(world.report()) == essence(live)


# ---- two at once


def test_a_race_that_is_run_elsewhere_is_not_taken_up_and_that_is_said(tmp_path: Path) -> None:
    world = World(tmp_path / "world", race=PLAIN, given=[candidate("quick", "right 0.5")])
    world.hold("test-quick")
    first = world.start("race", "race.yaml")
    world.await_held("test-quick", first)
    (run,) = world.store.runs()
    for arguments in (["race", "race.yaml", "--resume"], ["race", "--resume"], ["resume", run.id]):
        second = world.run(*arguments, code=75)
        assert run.id in second.told()
        assert f"pid {first.process.pid}" in second.told()
    world.release("test-quick")
    assert first.wait() == 0, first.told()
    assert world.begun()["test", "quick"] == 1


def test_two_races_of_one_repository_in_one_store_both_come_to_their_end(tmp_path: Path) -> None:
    world = World(tmp_path / "world", race=PLAIN, given=[candidate("quick", "right 0.5")])
    other = PLAIN.replace("name: plain", "name: other").format(work=world.work)
    (world.folder / "other.yaml").write_text(other)
    world.hold("test-quick")
    engines = [world.start("race", f"{name}.yaml") for name in ("race", "other")]
    wait_until(lambda: world.begun()["test", "quick"] == 2, "both test", engines[1].told)
    world.release("test-quick")
    for engine in engines:
        assert engine.wait() == 0, engine.told()
    assert {run.suite for run in world.store.runs()} == {"plain", "other"}
    assert world.left_in_scratch() == []
    assert world.tree() == world.before
