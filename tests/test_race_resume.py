"""The report of a race is read from its store alone: later, elsewhere, and by the next engine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paraval
from paraval.racing.run import report_of
from paraval.records import Limits, Plan
from paraval.store.store import Store
from tests.faults.race_kills import (
    SMALL_RACE,
    STATUSES,
    World,
    candidate,
    essence,
    statuses,
    wait_until,
)
from tests.race_kit import (
    Track,
    patch_of,
    telling,
    track_fixture,  # noqa: F401 - a fixture
    whose_test_runs,
    wrong,
)


def test_a_report_is_the_same_when_all_that_the_race_was_made_of_is_gone(tmp_path: Path) -> None:
    """Three rounds, failures, a duplicate, one that does not apply: live, from its store, moved."""
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


def test_a_race_with_more_proposals_than_it_may_have_is_reported_the_same(tmp_path: Path) -> None:
    limited = SMALL_RACE.replace("parallel: 4", "parallel: 4, candidates: 7")
    world = World(
        tmp_path / "world",
        race=limited + "  propose: [sh, {work}/propose.sh]\n",
        given=[candidate(f"c{place}", f"wrong 0.{place + 1}") for place in range(6)],
        rounds=[[candidate(f"new{place}", f"right 0.{place + 1}") for place in range(3)]],
    )
    world.run("race", "race.yaml", "-o", "live.json")
    live = world.written("live.json")
    assert world.report() == live
    assert [one["status"] for one in live["candidates"]] == ["failed"] * 6 + ["won"]
    assert "2 proposals left out: the limit is 7 candidates" in live["notes"]
    again = world.run("race", "--resume", "last")
    assert world.started(again) == set()
    assert essence(world.report()) == essence(live)


def test_a_race_ends_near_its_time_limit_and_reports_what_was_left(tmp_path: Path) -> None:
    limit = 4
    world = World(
        tmp_path / "world",
        race=SMALL_RACE.replace("parallel: 4", f"parallel: 4, seconds: {limit}"),
        given=[candidate(f"c{place}", f"right 0.{place + 4}") for place in range(5)],
    )
    (world.work / "pause").write_text("0.1")
    began = time.monotonic()
    engine = world.start("race", "race.yaml", "-o", "live.json")
    assert engine.wait() in (0, 3), engine.told()
    # A step that has begun ends; the margin is for busy machines.
    assert time.monotonic() - began < limit + 8
    live = world.written("live.json")
    assert live["over"]
    assert world.report() == live
    late = [one for one in live["candidates"] if "time limit of 4 s was reached" in one["reason"]]
    assert late
    assert {one["status"] for one in late} <= {"not_shown", "skipped"}
    begun = world.begun()
    world.start("resume", "last").wait()
    assert world.begun() == begun
    assert essence(world.report()) == essence(live)


def test_past_the_time_limit_no_test_starts_and_a_resume_with_more_time_continues(
    track: Track,
) -> None:
    slow = [whose_test_runs(f"c{n}", f"sleep 0.7{n}") for n in range(6)]
    began = time.monotonic()
    report = track.race(*slow, limits={"parallel": 1, "seconds": 2.5})
    assert time.monotonic() - began < 2.5 + 4, "six tests would take that long by themselves"
    late = [one for one in report if one.status == "skipped"]
    assert {one.reason for one in late} == {
        "the time limit of 2.5 s was reached before its turn",
    }
    assert (report.run.held_back, report.standings.over, report.exit_code) == (True, True, 3)
    assert report_of(Store(track.store), report.run).standings == report.standings
    again = track.race(
        *slow,
        limits={"parallel": 2},
        options=paraval.Options(store=track.store, resume=report.run.id),
    )
    assert again.exit_code == 0
    assert [one for one in again if one.status == "skipped"] == []
    assert not again.run.held_back


def test_a_race_whose_time_limit_the_baseline_does_not_fit_in_does_not_start(track: Track) -> None:
    report = track.race(telling("quick", 0.5), limits={"parallel": 1, "seconds": 0.001})
    assert report.exit_code == 3
    assert report.standings.baseline.reason == (
        "the baseline was not tested twice: the time limit of 0.001 s was reached before its turn"
    )
    assert "Candidates are pending" in report.text()
    assert report_of(Store(track.store), report.run).standings == report.standings


def test_a_spent_budget_stops_the_proposals_and_a_resume_with_more_continues(track: Track) -> None:
    """Each call proposes one candidate and costs $0.60, so that a second one would exceed $1."""
    calls = []

    def propose(ask: paraval.Ask) -> Iterator[dict[str, Any]]:
        calls.append(ask.round)
        patch = patch_of(track.repo, {"seconds": f"0.{9 - ask.round}\n"})
        yield {"patch": patch, "name": f"c{ask.round}", "cost_usd": 0.6}

    def race(usd: float, **options: Any) -> paraval.RaceReport:
        return track.race(
            wrong("bad"),
            propose=propose,
            limits={"parallel": 1, "usd": usd},
            options=paraval.Options(store=track.store, **options),
        )

    report = race(1.0)
    assert (calls, report.exit_code, report.run.held_back) == ([1], 0, True)
    assert report.winner is not None
    assert report.winner.name == "c1"
    assert any("round 2 was not called: budget" in note for note in report.standings.notes)
    assert "Candidates are pending" in report.text()
    assert report_of(Store(track.store), report.run).standings == report.standings
    again = race(5.0, resume=report.run.id)
    assert calls == [1, 2, 3]
    assert again.winner is not None
    assert (again.winner.name, again.run.held_back) == ("c3", False)


def test_a_race_that_was_resumed_and_killed_at_once_stands_as_before(track: Track) -> None:
    report = track.race(telling("quick", 0.5), wrong("bad"))
    store = Store(track.store)
    plan = Plan(
        name=report.run.suite,
        source=None,
        axes={},
        variants=(),
        trials=(),
        limits=Limits(parallel=1),
        selection=store.selection(report.run),
    )
    store.resume_run(report.run.id, plan).close(interrupted=True)
    run = store.find(report.run.id)
    assert store.last_ends(run) == {}
    assert report_of(store, run).standings == report.standings


# ---- two engines


def test_a_race_that_another_engine_runs_is_not_resumed(tmp_path: Path) -> None:
    world = World(tmp_path / "world", race=SMALL_RACE, given=[candidate("quick", "right 0.5")])
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


def test_two_races_of_one_repository_in_one_store_both_end(tmp_path: Path) -> None:
    world = World(tmp_path / "world", race=SMALL_RACE, given=[candidate("quick", "right 0.5")])
    other = SMALL_RACE.replace("name: small", "name: other").format(work=world.work)
    (world.folder / "other.yaml").write_text(other)
    world.hold("test-quick")
    engines = [world.start("race", f"{name}.yaml") for name in ("race", "other")]
    wait_until(lambda: world.begun()["test", "quick"] == 2, "both test", engines[1].told)
    world.release("test-quick")
    for engine in engines:
        assert engine.wait() == 0, engine.told()
    assert {run.suite for run in world.store.runs()} == {"small", "other"}
    assert world.left_in_scratch() == []
    assert world.tree() == world.before
