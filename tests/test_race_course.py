"""The course of a race in virtual time: every rule by a small race, and what must hold for any."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from paraval.racing.course.baseline_check import BaselineCheck
from paraval.racing.course.recorded import RaceTime, id_of, recorded_in
from paraval.racing.course.steps import BASELINE, Step, StepEnd, StepKind, trial_of
from paraval.racing.report.standings import CandidateStanding, Standings, Status

from paraval.racing.findings import CorrectnessFinding as FromTests, HookAnswer, Origin, StepFinding
from paraval.racing.request import (
    TOTAL,
    ComparedOutput,
    HookSpec,
    Profile,
    ProfileSpec,
    RaceLimits,
    RaceRequest,
)
from paraval.records import AttemptResult, Outcome, TrialResult
from tests.race_world import (
    BASE,
    PROCESS_S,
    PYTHON,
    Fate,
    Gone,
    Noise,
    World,
    course,
    gaussian,
    go,
    one_sided,
    proposals,
    race,
    recorded_of,
    request,
    same_as_baseline,
    silent,
)

FAILED = Outcome.FAILED
REPAIR = {"repair": HookSpec()}
REFINE = {"refine": HookSpec()}
BLOCK_S = 4 * PROCESS_S


def by_name(gone: Gone) -> dict[str, CandidateStanding]:
    return {one.name: one for one in gone.course.standings().candidates}


def statuses(gone: Gone) -> dict[str, str]:
    return {name: one.status.value for name, one in by_name(gone).items()}


# ---- the baseline


def test_a_race_begins_with_two_tests_of_the_baseline_and_the_staging_of_all() -> None:
    steps = course(request(), ["a", "b"]).begin()
    assert [id_of(step) for step in steps] == [
        (StepKind.TEST, BASELINE, 1),
        (StepKind.TEST, BASELINE, 2),
        (StepKind.STAGE, "a", 1),
        (StepKind.STAGE, "b", 1),
    ]


def test_nothing_is_tested_or_generated_before_the_benchmark_is_known_to_work() -> None:
    asked = request(hooks={"generate": HookSpec()})
    gone = go(course(asked, ["a"]), World(generated=("b",)))
    ids = gone.ids
    calibrated = ids.index((StepKind.CALIBRATE, BASELINE, 1))
    assert calibrated < ids.index((StepKind.GENERATE, BASELINE, 1))
    assert calibrated < ids.index((StepKind.TEST, "a", 1))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (
            (FAILED, FromTests(failing=("t::a", "t::b"))),
            (FAILED, FromTests(failing=("t::a",))),
            "the baseline fails its own tests: t::a and t::b",
        ),
        ((FAILED, FromTests()), (FAILED, FromTests()), "exit code is not 0"),
        ((Outcome.PASSED, FromTests()), (FAILED, FromTests()), "passed once and failed once"),
        (
            (Outcome.PASSED, FromTests()),
            (Outcome.TIMEOUT, FromTests()),
            "gave no result: timeout",
        ),
        (
            (Outcome.INFRA_ERROR, FromTests()),
            (FAILED, FromTests(failing=("t",))),
            "gave no result: infra_error",
        ),
    ],
)
def test_a_baseline_that_fails_ends_the_race(
    first: tuple[Outcome, FromTests], second: tuple[Outcome, FromTests], reason: str
) -> None:
    gone, _ = race({"a": Fate()}, baseline={1: first, 2: second})
    standings = gone.course.standings()
    assert reason in (standings.baseline.reason or "")
    assert standings.over
    assert statuses(gone) == {"a": "skipped"}
    assert {step.kind for step in gone.named} == {StepKind.TEST, StepKind.STAGE}


def test_the_failing_tests_of_the_baseline_are_named() -> None:
    failed = (FAILED, FromTests(failing=tuple(f"t{number}" for number in range(7))))
    gone, _ = race({}, baseline={1: failed, 2: failed})
    baseline = gone.course.standings().baseline
    assert baseline.failing == failed[1].failing
    assert (baseline.reason or "").endswith("t0, t1, t2, t3, t4 and 2 more")


def test_a_test_that_fails_in_one_of_two_runs_is_unstable_and_the_race_goes_on() -> None:
    flaky = {
        1: (FAILED, FromTests(failing=("t::flaky",))),
        2: (Outcome.PASSED, FromTests(unstable=("t::flaky", "t::other"))),
    }
    gone, _ = race({"a": Fate(speed=2.0)}, baseline=flaky)
    standings = gone.course.standings()
    assert standings.baseline.unstable == ("t::flaky", "t::other")
    assert standings.winner == "a"


def test_what_is_compared_and_differs_in_the_baseline_itself_ends_the_race() -> None:
    asked = request(compare=(ComparedOutput(), ComparedOutput(file="out.json")))
    tested = FromTests(unstable=("out.json",))
    gone, _ = race({"a": Fate()}, asked, baseline={2: (Outcome.PASSED, tested)})
    reason = gone.course.standings().baseline.reason or ""
    assert reason.startswith("out.json cannot be compared")
    assert "remove it from `compare`" in reason


def test_a_benchmark_that_does_not_work_ends_the_race() -> None:
    gone, _ = race({"a": Fate()}, calibration=Outcome.CRASHED)
    standings = gone.course.standings()
    assert standings.baseline.reason == (
        "the baseline's benchmark cannot be measured: No module named bench"
    )
    assert standings.candidates[0].reason == "the race did not start"


def test_the_baseline_is_told_with_its_seconds() -> None:
    gone, _ = race({"a": Fate()}, noise=silent)
    baseline = gone.course.standings().baseline
    assert (baseline.tree, baseline.commit) == (BASE.tree, BASE.commit)
    assert baseline.seconds[TOTAL] == pytest.approx(PROCESS_S)


# ---- staging


def test_of_two_equals_the_later_one_is_the_duplicate_whichever_is_staged_first() -> None:
    fates = {"a": Fate(normal="n"), "b": Fate(normal="n", tree="reformatted"), "c": Fate()}
    for pick in (lambda _: 0, lambda out: len(out) - 1):
        gone = go(course(request(), fates), World(fates=fates), pick=pick)
        duplicate = by_name(gone)["b"]
        assert (duplicate.status, duplicate.duplicate_of) == (Status.DUPLICATE, "a")
        assert duplicate.reason == "identical to a except for formatting"
        assert not gone.count(StepKind.TEST, "b")


def test_duplicates_of_the_baseline_and_of_one_that_failed_are_duplicates_too() -> None:
    fates = {
        "nothing": Fate(tree=BASE.tree, normal="x"),
        "format": same_as_baseline(),
        "wrong": Fate(test=FAILED, tree="t"),
        "again": Fate(tree="t"),
    }
    found = by_name(race(fates)[0])
    assert found["nothing"].reason == "it changes nothing"
    assert found["format"].reason == "it changes only formatting"
    assert found["format"].duplicate_of == BASELINE
    assert found["again"].reason == "identical to wrong"


def test_what_does_not_apply_or_edits_its_judge_is_invalid_with_the_reason() -> None:
    fates = {
        "broken": Fate(stage=FAILED),
        "cheat": Fate(flags=("edits tests/test_a.py", "adds conftest.py")),
        "unlucky": Fate(stage=Outcome.INFRA_ERROR),
    }
    found = by_name(race(fates)[0])
    assert found["broken"].status is Status.INVALID
    assert found["broken"].reason == "error: patch failed: a.py:1"
    assert found["cheat"].status is Status.INVALID
    assert found["cheat"].flags == ("edits tests/test_a.py", "adds conftest.py")
    assert found["cheat"].reason.startswith("it edits tests/test_a.py; it adds conftest.py, which ")
    assert "`protect: []` allows it" in found["cheat"].reason
    assert found["unlucky"].status is Status.INFRA_ERROR


def test_those_past_the_limit_are_skipped_with_the_reason() -> None:
    asked = request(limits=RaceLimits(candidates=3), hooks={"generate": HookSpec()})
    gone = go(course(asked, ["a", "b"]), World(generated=("c", "d")))
    assert by_name(gone)["d"].status is Status.SKIPPED
    assert by_name(gone)["d"].reason == "over the limit of 3 candidates"
    assert gone.count(StepKind.STAGE) == 3


def test_a_name_that_is_taken_has_its_parents_before_it() -> None:
    fates = {
        "a": Fate(test=FAILED, repairs=("fix",)),
        "b": Fate(test=FAILED, repairs=("fix",)),
    }
    asked = request(hooks={**REPAIR, "generate": HookSpec()})
    gone = go(course(asked, ["a", "b"]), World(fates=fates, generated=("a", "baseline")))
    assert set(statuses(gone)) == {"a", "b", "a-2", "baseline-2", "fix", "b-fix"}
    assert by_name(gone)["b-fix"].parent == "b"


# ---- tests


def test_each_end_of_a_test_has_its_status() -> None:
    ends = (FAILED, Outcome.TIMEOUT, Outcome.CRASHED, Outcome.INFRA_ERROR)
    fates = {end.value: Fate(test=end) for end in ends} | {"right": Fate()}
    gone, _ = race(fates)
    found = statuses(gone)
    assert {name: status for name, status in found.items() if name != "right"} == {
        end.value: end.value for end in ends
    }
    wrong = by_name(gone)["failed"]
    assert wrong.reason == "1 difference from the baseline"
    assert (wrong.differences[0].name, wrong.tests and wrong.tests.failed) == ("t", 1)
    assert wrong.patch == "failed.patch"


def test_one_that_changes_its_judge_while_it_runs_fails_though_its_tests_pass() -> None:
    gone, _ = race({"a": Fate(test_flags=("changed tests/test_a.py",))})
    found = by_name(gone)["a"]
    assert found.status is Status.FAILED
    assert found.reason == "while its tests ran it changed tests/test_a.py"
    assert not gone.count(StepKind.SCREEN)


def test_of_one_that_changes_its_judge_and_fails_the_change_is_told_first() -> None:
    fate = Fate(test=Outcome.FAILED, test_flags=("changed tests/test_a.py while it ran",))
    reason = by_name(race({"a": fate})[0])["a"].reason
    assert reason is not None
    assert reason.startswith("while its tests ran it changed tests/test_a.py; ")


# ---- repair


def test_a_failure_is_repaired_at_once_while_others_are_tested() -> None:
    asked = request(hooks=REPAIR)
    one = course(asked, ["bad", "good"])
    world = World(fates={"bad": Fate(test=FAILED, repairs=("fixed",))})
    (calibrate,) = [new for step in one.begin() for new in one.handle(world.end(step), 0.0)]
    tests = one.handle(world.end(calibrate), 0.0)
    (repair,) = one.handle(world.end(tests[0]), 0.0)
    assert (repair.kind, repair.candidate, repair.tree) == (StepKind.REPAIR, "bad", "tree of bad")
    assert repair.details is not None
    told = json.loads(json.dumps(repair.details, allow_nan=False))
    assert told["kind"] == "repair"
    assert told["status"] == "failed"
    assert told["differences"][0]["name"] == "t"
    assert told["tests"]["failed"] == 1
    assert told["accept"]["speedup"] == 1.05
    assert told["baseline"]["seconds"][TOTAL] == PROCESS_S


def test_a_repair_that_is_right_may_win() -> None:
    fates = {"bad": Fate(test=FAILED, repairs=("fixed",)), "fixed": Fate(speed=2.0)}
    gone, _ = race(fates, request(hooks=REPAIR))
    won = by_name(gone)["fixed"]
    assert (won.status, won.parent, won.origin) == (Status.WON, "bad", Origin.REPAIR)


def test_what_does_not_apply_is_repaired_each_in_a_step_of_its_own() -> None:
    fates = {"a": Fate(stage=FAILED, repairs=("x",)), "b": Fate(stage=FAILED, repairs=("y",))}
    asked = request(hooks=REPAIR)
    gone, _ = race(fates, asked)
    repairs = [step for step in gone.named if step.kind is StepKind.REPAIR]
    assert len({trial_of(step, 0, asked, BASE).key for step in repairs}) == 2
    assert all(step.details is not None and step.details["reason"] for step in repairs)


def test_an_infra_error_and_a_duplicate_are_not_repaired() -> None:
    fates = {
        "unlucky": Fate(test=Outcome.INFRA_ERROR),
        "wrong": Fate(test=FAILED, tree="t"),
        "again": Fate(tree="t"),
    }
    gone, _ = race(fates, request(hooks=REPAIR))
    assert [s.candidate for s in gone.named if s.kind is StepKind.REPAIR] == ["wrong"]


def chain(length: int, cost_usd: float = 0.0) -> dict[str, Fate]:
    """Each is the repair of the one before, and all are wrong."""
    return {
        f"c{n}": Fate(test=FAILED, repairs=(f"c{n + 1}",), cost_usd=cost_usd) for n in range(length)
    }


@pytest.mark.parametrize("depth", [0, 2])
def test_what_a_hook_proposed_is_handed_to_it_again_so_many_times(depth: int) -> None:
    world = World(fates=chain(20))
    gone = go(course(request(hooks={"repair": HookSpec(depth=depth)}), ["c0"]), world)
    assert world.asked == depth + 1
    note = f"repair was not called for 1 candidate: the depth limit of {depth}"
    assert gone.course.standings().notes[0].startswith(note)


@pytest.mark.parametrize(
    ("hook", "limits"),
    [
        (HookSpec(depth=99, calls=3), RaceLimits()),
        (HookSpec(depth=99, calls=99, usd=0.25), RaceLimits()),
        (HookSpec(depth=99, calls=99), RaceLimits(usd=0.25)),
        (HookSpec(depth=99, calls=99), RaceLimits(candidates=4)),
    ],
)
def test_calls_spend_and_candidates_are_bounded(hook: HookSpec, limits: RaceLimits) -> None:
    world = World(fates=chain(50, cost_usd=0.1))
    go(course(request(hooks={"repair": hook}, limits=limits), ["c0"]), world)
    assert world.asked == (4 if limits.candidates == 4 else 3)


def test_a_hook_that_breaks_is_noted_and_what_it_proposed_counts() -> None:
    one = course(request(hooks=REPAIR), ["bad"])
    world = World(fates={"bad": Fate(test=FAILED)})

    def end(step: Step) -> StepEnd:
        if step.kind is not StepKind.REPAIR:
            return world.end(step)
        asked = HookAnswer(proposals=proposals("fixed"), complaints=tuple("123456"))
        finding = StepFinding(asked=asked)
        return StepEnd(step=step, outcome=Outcome.CRASHED, finding=finding, reason="exit code 1")

    out = one.begin()
    while out:
        out += one.handle(end(out.pop(0)), 0.0)
    standings = one.standings()
    assert "repair of bad ended as crashed: exit code 1" in standings.notes
    assert "repair of bad: 1 more like these" in standings.notes
    assert [one.name for one in standings.candidates] == ["bad", "fixed"]


def test_what_a_hook_proposes_while_it_runs_joins_at_once_and_once() -> None:
    asked = request(hooks={"generate": HookSpec()})
    one, world = course(asked), World(generated=("a", "b"))
    out = one.begin()
    while out[0].kind is not StepKind.GENERATE:
        out += one.handle(world.end(out.pop(0)), 0.0)
    generate = out.pop(0)
    asked_for = world.end(generate).finding.asked
    assert asked_for is not None
    (stage,) = one.proposed(generate, asked_for.proposals[:1])
    assert id_of(stage) == (StepKind.STAGE, "a", 1)
    assert one.proposed(generate, asked_for.proposals[:1]) == []
    (test,) = one.handle(world.end(stage), 0.0)
    assert id_of(test) == (StepKind.TEST, "a", 1)
    assert [id_of(step) for step in one.handle(world.end(generate), 0.0)] == [
        (StepKind.STAGE, "b", 1)
    ]
    assert one.proposed(generate, proposals("late")) == []


# ---- speed


def test_the_rounds_halve_the_field_and_the_finals_are_on_fresh_blocks() -> None:
    fates = {f"c{n}": Fate(speed=1 + n / 10) for n in range(8)}
    gone, _ = race(fates, request(blocks=5))
    assert gone.count(StepKind.SCREEN) == 8 * 3 + 4 * 6
    assert gone.count(StepKind.FINAL) == 2 * 5
    assert gone.count(StepKind.SCREEN, "c7") == 9
    won = by_name(gone)["c7"]
    assert won.status is Status.WON
    assert won.speedup is not None
    assert won.speedup.blocks == 5
    assert set(won.cases) == {"a", "b"}


def test_blocks_of_a_round_go_round_so_that_a_drift_hits_all_alike() -> None:
    fates = {f"c{n}": Fate() for n in range(6)}
    gone, _ = race(fates)
    numbers = [step.number for step in gone.named if step.kind is StepKind.SCREEN][:18]
    assert numbers == sorted(numbers)
    turns = [
        [step.candidate for step in gone.named if step.kind is StepKind.SCREEN][6 * n : 6 * n + 6]
        for n in range(3)
    ]
    assert all(set(turn) == set(fates) for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1


def test_those_that_are_clearly_slower_are_measured_no_more() -> None:
    fates = {f"c{n}": Fate(speed=0.5) for n in range(7)} | {"ok": Fate(speed=1.5)}
    gone, _ = race(fates)
    assert gone.count(StepKind.SCREEN) == 8 * 3
    assert {step.candidate for step in gone.named if step.kind is StepKind.FINAL} == {"ok"}
    assert statuses(gone) == {f"c{n}": "slower" for n in range(7)} | {"ok": "won"}


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (Outcome.CRASHED, Status.CRASHED),
        (Outcome.TIMEOUT, Status.TIMEOUT),
        (Outcome.INVALID_OUTPUT, Status.FAILED),
        (Outcome.INFRA_ERROR, Status.INFRA_ERROR),
    ],
)
def test_a_benchmark_that_breaks_takes_out_its_own_candidate_after_one_block(
    end: Outcome, status: Status
) -> None:
    gone, _ = race({"breaks": Fate(bench=end), "good": Fate(speed=1.5)})
    found = by_name(gone)
    assert found["breaks"].status is status
    assert found["breaks"].reason == f"its benchmark: {end.value}"
    assert gone.count(StepKind.SCREEN, "breaks") == 1
    assert found["good"].status is Status.WON


def test_one_whose_benchmark_leaves_files_behind_cannot_win() -> None:
    fates = {"cheat": Fate(speed=9.0, bench_flags=("left cache.db",)), "fair": Fate(speed=1.5)}
    gone, _ = race(fates)
    found = by_name(gone)
    assert found["cheat"].status is Status.NOT_SHOWN
    assert found["cheat"].flags == ("left cache.db",)
    assert "left cache.db" in found["cheat"].reason
    assert gone.course.standings().winner == "fair"


def test_measurements_that_are_no_times_take_out_their_candidate_and_raise_nothing() -> None:
    def end(world: World, step: Step) -> StepEnd:
        found = world.end(step)
        if found.finding.block is None or step.candidate != "odd":
            return found
        block = replace(found.finding.block, candidate=({TOTAL: 0.0}, {TOTAL: float("nan")}))
        return replace(found, finding=StepFinding(block=block))

    one, world = course(request(), ["odd", "good"]), World(fates={"good": Fate(speed=1.5)})
    out = one.begin()
    while out:
        out += one.handle(end(world, out.pop(0)), 0.0)
    odd, good = one.standings().candidates
    assert odd.status is Status.FAILED
    assert "seconds above 0" in odd.reason
    assert good.status is Status.WON


def test_noise_is_told_of_the_candidates_it_hit() -> None:
    found = by_name(race({"a": Fate(noisy=True), "b": Fate()})[0])
    assert (found["a"].noisy, found["b"].noisy) == (True, False)


def test_the_winner_is_profiled_where_that_is_asked_for() -> None:
    asked = request(profile=ProfileSpec(kind=Profile.LINE))
    gone, _ = race({"a": Fate(speed=2.0)}, asked)
    assert gone.count(StepKind.PROFILE, "a") == 1
    assert gone.course.standings().profile_problem == "no line_profiler"
    nobody, _ = race({"a": Fate()}, asked)
    assert not nobody.count(StepKind.PROFILE)


# ---- refine


def test_promising_ones_are_refined_after_their_first_round_and_newcomers_catch_up() -> None:
    fates = {
        "quick": Fate(speed=1.5, refinements=("quicker",)),
        "slow": Fate(speed=0.5, refinements=("no",)),
        "quicker": Fate(speed=3.0, refinements=("quickest",)),
        "quickest": Fate(speed=4.0),
    }
    gone, _ = race(fates, request(hooks=REFINE))
    assert statuses(gone) == {
        "quick": "accepted",
        "slow": "slower",
        "quicker": "accepted",
        "quickest": "won",
    }
    (first, *_) = [step for step in gone.named if step.kind is StepKind.REFINE]
    assert first.details is not None
    told = json.loads(json.dumps(first.details, allow_nan=False))
    assert told["status"] == "passed"
    assert len(told["measurements"]) == 3
    assert told["speedup"]["low"] > 1


def test_a_refiner_that_returns_the_same_for_ever_ends() -> None:
    fates = {f"c{n}": Fate(speed=1.5, tree="t", refinements=(f"c{n + 1}",)) for n in range(50)}
    gone = go(
        course(request(hooks={"refine": HookSpec(depth=99, calls=99)}), ["c0"]), World(fates=fates)
    )
    assert statuses(gone) == {"c0": "won", "c1": "duplicate"}


def test_a_refiner_that_always_has_something_new_ends_by_its_bounds() -> None:
    fates = {f"c{n}": Fate(speed=1.5, refinements=(f"c{n + 1}",)) for n in range(50)}
    world = World(fates=fates)
    go(course(request(hooks={"refine": HookSpec(depth=99, calls=4)}), ["c0"]), world)
    assert world.asked == 4


# ---- time


def timed(seconds: float, fates: dict[str, Fate], **more: HookSpec) -> Gone:
    asked = request(limits=RaceLimits(seconds=seconds), blocks=5, hooks=more)
    return race(fates, asked)[0]


EIGHT = {f"c{n}": Fate(speed=1 + n / 10) for n in range(8)}


def test_finals_are_kept_in_mind_when_the_time_is_short() -> None:
    """Time for the first round and the finals, not for the second round between them."""
    gone = timed((24 + 10 + 5) * BLOCK_S, EIGHT)
    assert gone.count(StepKind.SCREEN) == 24
    assert gone.count(StepKind.FINAL) == 10
    assert statuses(gone)["c7"] == "won"


def test_one_finalist_does_where_there_is_no_time_for_two() -> None:
    gone = go(
        course(request(limits=RaceLimits(seconds=(6 + 10) * BLOCK_S), blocks=5), ["a", "b"]),
        _slow_in_screening(World(fates={"a": Fate(speed=2.0), "b": Fate(speed=1.5)})),
    )
    assert gone.count(StepKind.FINAL) == 5
    found = by_name(gone)
    assert found["a"].status is Status.WON
    assert found["b"].status is Status.NOT_SHOWN
    assert "was reached before it was measured again" in found["b"].reason


def _slow_in_screening(world: World) -> World:
    """Each block takes longer than the baseline's benchmark let expect."""
    answer = world.end
    world.end = lambda step: replace(  # type: ignore[method-assign]  # a world with another clock
        answer(step), duration_s=answer(step).duration_s * (1.5 if step.number <= 3 else 1)
    )
    return world


def test_as_many_are_measured_as_there_is_time_for() -> None:
    gone = timed((5 * 3 + 10) * BLOCK_S, EIGHT)
    assert {s.candidate for s in gone.named if s.kind is StepKind.SCREEN} == {
        f"c{n}" for n in range(5)
    }
    last = by_name(gone)["c7"]
    assert last.status is Status.SKIPPED
    assert last.reason == "the time limit of 50 s was reached before it was measured"
    assert gone.course.standings().notes[0].endswith("3 candidates pending")
    assert gone.course.standings().over


def test_one_candidate_goes_straight_to_its_finals_where_there_is_time_for_no_more() -> None:
    gone = timed(6 * BLOCK_S, {"a": Fate(speed=2.0)})
    assert (gone.count(StepKind.SCREEN), gone.count(StepKind.FINAL)) == (0, 5)
    assert statuses(gone) == {"a": "won"}


def test_nothing_new_is_named_once_the_time_is_up() -> None:
    asked = request(limits=RaceLimits(seconds=10), hooks={**REPAIR, "generate": HookSpec()})
    one = course(asked, ["bad", "good"])
    world = World(fates={"bad": Fate(test=FAILED, repairs=("x",))}, generated=("late",))
    out = one.begin()
    while len(out) > 1 or out[0].kind is not StepKind.CALIBRATE:
        out += one.handle(world.end(out.pop(0)), 1.0)
    tests = one.handle(world.end(out.pop(0)), 9.0)
    named = [step for end in map(world.end, tests) for step in one.handle(end, 11.0)]
    assert named == []
    found = {each.name: each for each in one.standings().candidates}
    assert found["bad"].status is Status.FAILED
    assert found["good"].reason == "the time limit of 10 s was reached before it was measured"
    assert found["late"].reason == "the time limit of 10 s was reached before it was prepared"


# ---- skipped, interrupted, watched


def skipping(
    names: list[str], world: World, asked: RaceRequest, reason: Callable[[Step], str | None]
) -> Standings:
    """A race of which the engine leaves some steps for later."""
    return go(course(asked, names), world, skips=lambda step, _: reason(step)).course.standings()


def test_what_is_skipped_takes_out_its_candidate_and_the_others_go_on() -> None:
    fates = {"a": Fate(speed=2.0), "b": Fate(speed=1.5)}
    standings = skipping(
        ["a", "b"],
        World(fates=fates),
        request(),
        lambda step: "no disk" if step.candidate == "b" and step.kind is StepKind.SCREEN else None,
    )
    assert (standings.over, standings.winner) == (True, "a")
    assert [(each.status, each.reason) for each in standings.candidates][1] == (
        Status.SKIPPED,
        "no disk",
    )
    assert standings.notes == ("1 candidate pending: no disk",)


def test_a_hook_that_is_held_back_was_just_not_asked() -> None:
    fates = {"bad": Fate(test=FAILED, repairs=("x",)), "good": Fate(speed=2.0)}
    standings = skipping(
        ["bad", "good"],
        World(fates=fates),
        request(hooks=REPAIR),
        lambda step: "the budget is spent" if step.kind is StepKind.REPAIR else None,
    )
    assert (standings.over, standings.winner) == (True, "good")
    assert standings.notes == ("repair of bad was not called: the budget is spent",)
    assert standings.candidates[0].status is Status.FAILED


def test_what_was_measured_counts_for_more_than_what_was_left_for_later() -> None:
    """Whichever of two blocks of one round is heard of first."""
    one, world = course(request(), ["a"]), World()
    out = one.begin()
    while out:
        step = out.pop(0)
        if step.kind is StepKind.SCREEN and step.number == 2:
            out += one.skipped(step, "no disk")
            continue
        end = world.end(step)
        if step.kind is StepKind.SCREEN and step.number == 3:
            end = replace(end, outcome=Outcome.CRASHED, finding=StepFinding(), reason="signal 11")
        out += one.handle(end, 0.0)
    standings = one.standings()
    found = standings.candidates[0]
    assert (found.status, found.reason, standings.notes) == (Status.CRASHED, "signal 11", ())


@pytest.mark.parametrize(
    ("kind", "done"), [(StepKind.TEST, "tested"), (StepKind.CALIBRATE, "measured")]
)
def test_a_baseline_that_has_to_wait_is_a_race_that_did_not_start(
    kind: StepKind, done: str
) -> None:
    standings = skipping(
        ["a"], World(), request(), lambda step: "no disk" if step.kind is kind else None
    )
    assert standings.over
    assert standings.baseline.reason == f"the baseline was not {done}: no disk"
    assert standings.candidates[0].reason == "the race did not start"


@pytest.mark.parametrize("first", ["skipped", "passed"])
def test_a_baseline_that_is_tested_once_is_told_so_whichever_comes_first(first: str) -> None:
    one, two = (Step(kind=StepKind.TEST, number=number) for number in (1, 2))
    ends = [
        StepEnd(step=one, outcome=Outcome.PASSED, finding=StepFinding()),
        StepEnd(step=two, outcome=Outcome.SKIPPED, finding=StepFinding(), reason="no time"),
    ]
    baseline = BaselineCheck.of(request(), BASE)
    for end in ends if first == "passed" else reversed(ends):
        assert baseline.handle(end) == []
    assert baseline.standing.reason == "the baseline was tested once instead of twice: no time"


def test_a_step_that_comes_too_late_is_out_of_time_and_nothing_is_measured_after_it() -> None:
    asked = request(limits=RaceLimits(seconds=100), hooks=REPAIR)
    late = RaceTime(100).why_skipped
    fates = {"bad": Fate(test=FAILED, repairs=("x",)), "good": Fate(speed=2.0)}
    one, world = course(asked, [*fates, "slow"]), World(fates=fates)
    out, named = one.begin(), list[Step]()
    while out:
        step = out.pop(0)
        is_late = id_of(step)[:2] in ((StepKind.REPAIR, "bad"), (StepKind.TEST, "slow"))
        out += one.skipped(step, late) if is_late else one.handle(world.end(step), 1.0)
        named.append(step)
    standings = one.standings()
    assert {each.name: each.reason for each in standings.candidates} == {
        "bad": "1 difference from the baseline",
        "good": "the time limit of 1 min 40 s was reached before it was measured",
        "slow": "the time limit of 1 min 40 s was reached before it was tested",
    }
    assert standings.over
    assert StepKind.SCREEN not in {step.kind for step in named}
    assert standings.notes == (
        "the time limit of 1 min 40 s was reached before the race was done: 2 candidates pending",
        "repair of bad was not called: the time limit of 1 min 40 s was reached before its turn",
    )


def test_one_that_comes_too_late_to_be_staged_was_not_looked_at() -> None:
    asked = request(limits=RaceLimits(seconds=5))
    late = RaceTime(5).why_skipped
    standings = skipping(
        ["a", "b"],
        World(),
        asked,
        lambda step: late if id_of(step)[:2] == (StepKind.STAGE, "b") else None,
    )
    found = {each.name: each.reason for each in standings.candidates}
    assert found["b"] == "the time limit of 5 s was reached before it was prepared"


def test_a_race_that_is_stopped_anywhere_is_not_over_and_has_no_winner() -> None:
    fates = dict(EIGHT) | {"bad": Fate(test=FAILED, repairs=("x",)), "x": Fate(speed=1.2)}
    whole, _ = race(fates, request(hooks=REPAIR))
    for stop in range(0, len(whole.ends), 7):
        one, world = course(request(hooks=REPAIR), [*EIGHT, "bad"]), World(fates=fates)
        out = one.begin()
        for _ in range(stop):
            out += one.handle(world.end(out.pop(0)), 0.0)
        assert not one.standings().over
        assert one.standings().winner is None
        assert all(each.status is not Status.WON for each in one.standings().candidates)


def test_an_end_that_nobody_waits_for_is_left_alone() -> None:
    gone, world = race({"a": Fate()})
    assert gone.course.handle(world.end(gone.named[0]), 0.0) == []
    assert gone.course.skipped(gone.named[0], "late") == []


def test_standings_can_be_had_at_any_time_and_no_winner_is_told_too_early() -> None:
    fates = {"a": Fate(speed=2.0), "b": Fate(speed=1.5)}
    one, world = course(request(), fates), World(fates=fates)
    assert not one.standings().over
    out = one.begin()
    while out:
        standings = one.standings()
        assert (standings.over, standings.winner) == (False, None)
        assert len(standings.candidates) == 2
        out += one.handle(world.end(out.pop(0)), 0.0)
    assert one.standings().over
    assert one.standings().winner == "a"


# ---- odd fields


def test_nobody_in_the_race_is_no_winner() -> None:
    standings = race({})[0].course.standings()
    assert (standings.over, standings.winner, standings.candidates) == (True, None, ())


def test_all_fail_or_all_are_duplicates() -> None:
    failed, _ = race({name: Fate(test=FAILED) for name in "abc"})
    assert set(statuses(failed).values()) == {"failed"}
    same, _ = race({name: Fate(tree="t", speed=2.0) for name in "abc"})
    assert statuses(same) == {"a": "won", "b": "duplicate", "c": "duplicate"}


def test_fifty_that_are_right_end_with_the_best_one() -> None:
    fates = {f"c{n:02}": Fate(speed=1 + n / 50) for n in range(50)} | {"best": Fate(speed=2.5)}
    gone, _ = race(fates)
    assert gone.course.standings().winner == "best"


# ---- who wins


def winners(
    fates: dict[str, Fate], asked: RaceRequest, noise: Noise, races: int
) -> list[str | None]:
    return [
        race(fates, asked, noise=noise, seed=seed, cases=())[0].course.standings().winner
        for seed in range(races)
    ]


@pytest.mark.parametrize("noise", [gaussian, one_sided])
@pytest.mark.parametrize("speedup", [1.0, 1.05])
def test_of_ten_that_are_the_same_as_the_baseline_none_wins(speedup: float, noise: Noise) -> None:
    ten = {f"c{n}": Fate() for n in range(10)}
    won = winners(ten, request(speedup=speedup), noise, 100)
    assert won.count(None) >= 95


def test_of_many_that_are_the_same_hardly_any_is_accepted_beside_a_winner() -> None:
    fates = {"best": Fate(speed=2.0), **{f"c{n}": Fate() for n in range(20)}}
    accepted = 0
    for seed in range(60):
        gone, _ = race(fates, request(speedup=1.0), noise=gaussian, seed=seed, cases=())
        accepted += list(statuses(gone).values()).count("accepted")
    assert accepted <= 4, "5% of 60 races, and what chance adds"


@pytest.mark.parametrize("noise", [gaussian, one_sided])
def test_the_right_one_wins(noise: Noise) -> None:
    fates = {"one": Fate(), "best": Fate(speed=1.5), "good": Fate(speed=1.3)}
    fates |= {f"c{n}": Fate() for n in range(5)}
    assert winners(fates, request(), noise, 100).count("best") >= 95


# ---- what must hold for any race

ENDS = (Outcome.PASSED, Outcome.PASSED, FAILED, Outcome.TIMEOUT, Outcome.INFRA_ERROR)


def any_fate(name: str) -> Fate:
    """Of any candidate, by its name; names are as long as their chain of parents."""
    rng = random.Random(name)
    children = tuple(f"{name}{letter}" for letter in "xy"[: rng.randrange(3)])
    return Fate(
        speed=rng.choice((0.7, 1.0, 1.02, 1.3, 1.6)),
        stage=rng.choice((Outcome.PASSED,) * 6 + (FAILED, Outcome.INFRA_ERROR)),
        test=rng.choice(ENDS),
        bench=rng.choice((Outcome.PASSED,) * 6 + (Outcome.CRASHED,)),
        tree=rng.choice((None, None, None, None, "shared", BASE.tree)),
        flags=rng.choice(((), (), (), (), ("edits tests/a.py",))),
        bench_flags=rng.choice(((),) * 8 + (("left x",),)),
        repairs=children,
        refinements=tuple(f"{child}r" for child in children),
        cost_usd=0.01,
    )


REQUESTS = st.builds(
    lambda repair, refine, candidates, seconds, usd: request(
        blocks=5,
        hooks={
            "generate": HookSpec(),
            "repair": HookSpec(depth=repair, calls=repair * 2),
            "refine": HookSpec(depth=refine, calls=refine * 2),
        },
        limits=RaceLimits(candidates=candidates, seconds=seconds, usd=usd),
    ),
    repair=st.integers(0, 3),
    refine=st.integers(0, 2),
    candidates=st.integers(0, 30),
    seconds=st.one_of(st.none(), st.floats(0, 200)),
    usd=st.one_of(st.none(), st.floats(0, 0.2)),
)
FIELDS = st.lists(st.sampled_from([f"n{n}" for n in range(40)]), max_size=10, unique=True)


def _by_chance(rng: random.Random) -> Callable[[Sequence[Step]], int]:
    return lambda out: rng.randrange(len(out))


def gone_by_chance(asked: RaceRequest, names: list[str], seed: int) -> tuple[Gone, World]:
    rng = random.Random(seed)
    world = World(fate_of=any_fate, generated=("g1", "g2"), seed=seed)
    return go(course(asked, names), world, pick=_by_chance(rng)), world


@settings(max_examples=60, deadline=None)
@given(asked=REQUESTS, names=FIELDS, seed=st.integers(0, 10**6))
def test_any_race_ends_within_its_limits_and_everyone_has_a_status(
    asked: RaceRequest, names: list[str], seed: int
) -> None:
    gone, _ = gone_by_chance(asked, names, seed)
    standings = gone.course.standings()
    assert standings.over
    assert len(set(gone.ids)) == len(gone.ids)
    assert gone.count(StepKind.STAGE) <= asked.limits.candidates
    for kind in (StepKind.REPAIR, StepKind.REFINE):
        hook = asked.hook(kind.value)
        assert hook is not None
        assert gone.count(kind) <= hook.calls
    told = [one.name for one in standings.candidates]
    assert len(set(told)) == len(told)
    assert set(names) <= set(told)
    assert all(one.reason for one in standings.candidates)
    won = [one.name for one in standings.candidates if one.status is Status.WON]
    assert won == ([] if standings.winner is None else [standings.winner])
    keys = [trial_of(step, 0, asked, BASE).key for step in gone.named]
    assert len(set(keys)) == len(keys), "two steps have one key"


@settings(max_examples=60, deadline=None)
@given(
    asked=REQUESTS,
    names=FIELDS,
    seed=st.integers(0, 10**6),
    order=st.randoms(),
)
def test_a_race_that_was_killed_goes_on_from_what_is_recorded(
    asked: RaceRequest, names: list[str], seed: int, order: random.Random
) -> None:
    gone, world = gone_by_chance(asked, names, seed)
    ends = gone.ends[: order.randrange(len(gone.ends) + 1)]
    known = {id_of(end.step): end for end in ends}
    one = course(asked, names, recorded_of(ends, asked))
    out, answered = one.begin(), set[object]()
    while out:
        step = out.pop(order.randrange(len(out)))
        answered.add(id_of(step))
        end = known.get(id_of(step)) or replace(
            world.end(step), elapsed_s=ends[-1].elapsed_s if ends else 0
        )
        out += one.handle(end, end.elapsed_s)
    assert one.standings().over
    assert set(known) <= answered, "what was paid for is used"


@settings(max_examples=30, deadline=None)
@given(names=FIELDS, orders=st.tuples(st.randoms(), st.randoms()))
def test_the_same_ends_in_any_order_give_the_same_standings(
    names: list[str], orders: tuple[random.Random, random.Random]
) -> None:
    """Without recorded steps: where no bound is met, and no two hooks propose the same."""

    def fate(name: str) -> Fate:
        found = any_fate(name)
        return found if name in names else replace(found, tree=None)

    asked = request(
        blocks=5,
        hooks={"repair": HookSpec(depth=1, calls=999), "refine": HookSpec(depth=1, calls=999)},
    )
    found: list[Standings] = []
    for order in orders:
        one = course(asked, names)
        gone = go(one, World(fate_of=fate), pick=_by_chance(order))
        found.append(gone.course.standings())
    assert found[0] == found[1]


def test_a_replay_knows_whose_name_it_was_by_what_is_recorded_under_it() -> None:
    fates = {name: Fate(test=FAILED, repairs=("fix",)) for name in "ab"}
    asked = request(hooks=REPAIR, limits=RaceLimits(candidates=3))
    last = lambda out: len(out) - 1  # noqa: E731 - the order of ends, turned round
    gone = go(course(asked, "ab"), World(fates=fates), pick=last)
    known = {id_of(end.step): end for end in gone.ends}
    again = go(course(asked, "ab", gone.recorded(asked)), World(), known=known)
    assert again.course.standings() == gone.course.standings()
    assert by_name(again)["fix"].parent == "b"
    assert by_name(again)["a-fix"].reason == "over the limit of 3 candidates"


def test_what_is_recorded_is_read_from_results() -> None:
    results = [
        TrialResult(
            index=n,
            case_id=case,
            variant={"step": kind},
            repeat=1,
            result=AttemptResult(outcome=Outcome.PASSED),
            attempts=1,
        )
        for n, (case, kind) in enumerate([("a", "stage"), ("generate", "generate")])
    ]
    recorded = recorded_in({str(result.index): result for result in results})
    assert recorded.has(StepKind.STAGE, "a")
    assert recorded.has(StepKind.GENERATE, BASELINE)
    assert recorded.candidates(StepKind.TEST) == frozenset()


# ---- canaries


def test_candidates_that_change_python_are_tested_after_the_canary_and_winners_have_their_own() -> (
    None
):
    fates = {"a": Fate(speed=2.0), "b": Fate(speed=1.5), "c": Fate(speed=0.5)}
    gone = go(course(request(), fates), World(fates=fates, files=PYTHON, noise=silent))
    named = [id_of(end.step) for end in gone.ends]
    canaries = [one for one in named if one[0] is StepKind.CANARY]
    assert canaries == [(StepKind.CANARY, name, 1) for name in (BASELINE, "a", "b")]
    first_test = named.index((StepKind.TEST, "a", 1))
    assert max(named.index((StepKind.STAGE, name, 1)) for name in fates) < named.index(canaries[0])
    assert named.index(canaries[0]) < first_test


def test_a_race_whose_tests_do_not_notice_broken_code_does_not_start() -> None:
    gone = go(course(request(), ["a"]), World(files=PYTHON, is_blind=True))
    standings = gone.course.standings()
    assert standings.over
    assert "a.py cannot be imported" in str(standings.baseline.reason)
    assert statuses(gone) == {"a": "skipped"}


def test_a_canary_that_is_left_for_later_takes_no_candidate_out() -> None:
    fates = {"a": Fate(speed=2.0)}

    def skips(step: Step, _elapsed_s: float) -> str | None:
        return "later" if step.kind is StepKind.CANARY else None

    gone = go(course(request(), fates), World(fates=fates, files=PYTHON), skips=skips)
    assert statuses(gone) == {"a": "won"}
    assert gone.course.standings().over
