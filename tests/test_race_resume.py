"""What a race comes to is read from its store alone: later, elsewhere, and by the next engine."""

from __future__ import annotations

from pathlib import Path

from tests.faults.race_kills import World, essence, statuses

PLAIN = """
name: plain
repo: repository
test: {{command: [sh, {work}/test.sh], timeout: 60}}
bench: {{command: [sh, {work}/bench.sh], metric: {{file: m.json}}, quiet: 0, blocks: 3, cpus: 0}}
candidates: candidates.jsonl
limits: {{parallel: 4}}
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
