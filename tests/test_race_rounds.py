"""The course of a race: every rule by a small race, and what must hold for any."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.findings import (
    Block,
    Calibration,
    Canary,
    CorrectnessFinding,
    Proposed,
    StepFinding,
)
from paraval.racing.integrity.benchmark_checks import PRINTS_ELSE
from paraval.racing.integrity.protection import LEADS_OUT
from paraval.racing.request import TOTAL, RaceRequest
from paraval.racing.rounds import UNSEEN
from paraval.racing.standings import Status
from paraval.racing.steps import BASELINE, Step, StepEnd, StepKind, trial_of
from paraval.racing.verdicts import FIRST_BLOCKS, LEAST_FINAL_BLOCKS, most_finalists
from paraval.records import Model, Outcome, Provider
from tests.race_world import (
    BASE,
    BLOCK_S,
    PROCESS_S,
    PYTHON,
    Fate,
    Noise,
    Raced,
    Recorded,
    World,
    course,
    failed,
    first,
    gaussian,
    go,
    last,
    one_sided,
    proposals,
    race,
    request,
    silent,
    when,
)

FAILED, PASSED, SKIPPED = Outcome.FAILED, Outcome.PASSED, Outcome.SKIPPED
PROPOSE = {"command": ["propose"], "rounds": 3}
STATE = Canary(broken=("f",), lines=4, lines_run=4, state=("a dict in f",))
UNTESTED = Canary(broken=("f",), passed=True)


def phases_of(raced: Raced) -> str:
    """The kind of the steps of each phase, and how many there are."""
    return " ".join(f"{each[0].kind}:{len(each)}" for each in raced.phases)


# ---- the order of phases


def test_each_phase_of_a_round_begins_when_the_one_before_it_is_over() -> None:
    fates = {"given": Fate(speed=1.5), "bad": Fate(test=FAILED), "new": Fate(speed=2.0)}
    asked = request(propose=PROPOSE, profile="line", blocks=5)
    raced = race(fates, asked, proposed=[["new"], []], files=PYTHON)
    assert phases_of(raced) == (
        "test:2 calibrate:1 profile:1 propose:1 stage:3 canary:1 test:3 screen:2 screen:6"
        " propose:1 canary:2 final:10 profile:1"
    )
    assert raced.statuses == {"given": "accepted", "bad": "failed", "new": "won"}
    assert (raced.standings.rounds, raced.standings.finalists) == (2, 2)
    assert (raced.steps[-1].candidate, raced.steps[-1].files) == ("new", ("a.py",))
    assert raced.standings.profile_problem == "no line_profiler"


def test_blocks_take_turns_so_that_a_drift_affects_all_candidates_equally() -> None:
    raced = race({f"c{n}": Fate() for n in range(6)})
    (rest,) = (each for each in raced.phases if each[0].kind is StepKind.SCREEN and len(each) > 6)
    turns = [rest[place : place + 6] for place in range(0, len(rest), 6)]
    assert [{step.number for step in turn} for turn in turns] == [{2}, {3}, {4}]
    assert len({tuple(step.candidate for step in turn) for turn in turns}) > 1


def test_no_winner_is_shown_before_the_race_is_over() -> None:
    fates = {"a": Fate(speed=2.0), "b": Fate(speed=1.5)}
    one, world, stray = course(request(), fates), World(fates=fates), Step(kind=StepKind.FINAL)
    running = one.begin()
    while running:
        standings = one.standings()
        assert (standings.over, standings.winner) == (False, None)
        assert Status.WON not in {each.status for each in standings.candidates}
        assert one.skipped(stray, "not awaited") == []
        running += one.handle(world.end(running.pop(0)))
    assert (one.standings().over, one.standings().winner) == (True, "a")


# ---- the baseline


Tested = tuple[Outcome, CorrectnessFinding]


def baseline_that(*tested: Tested) -> Callable[[StepEnd], StepEnd]:
    """The baseline's two test runs end like this."""

    def change(end: StepEnd) -> StepEnd:
        if end.step.candidate != BASELINE:
            return end
        outcome, found = tested[end.step.number - 1]
        return replace(end, outcome=outcome, finding=StepFinding(tested=found))

    return when(StepKind.TEST, change)


NOTHING = CorrectnessFinding()
SEVEN = CorrectnessFinding(failing=tuple(f"t{n}" for n in range(7)))


@pytest.mark.parametrize(
    ("first_run", "second_run", "reason"),
    [
        ((FAILED, SEVEN), (FAILED, SEVEN), "fails its own tests: t0, t1, t2, t3, t4 and 2 more"),
        ((FAILED, NOTHING), (FAILED, NOTHING), "their exit code is not 0"),
        ((PASSED, NOTHING), (FAILED, NOTHING), "passed once and failed once"),
        ((PASSED, NOTHING), (Outcome.TIMEOUT, NOTHING), "gave no result: timeout"),
        ((Outcome.INFRA_ERROR, NOTHING), (FAILED, SEVEN), "gave no result: infra_error"),
        ((PASSED, NOTHING), (SKIPPED, NOTHING), "was not tested twice"),
    ],
)
def test_a_baseline_that_fails_its_tests_ends_the_race(
    first_run: Tested, second_run: Tested, reason: str
) -> None:
    raced = race({"a": Fate()}, change=baseline_that(first_run, second_run))
    assert phases_of(raced) == "test:2"
    assert reason in str(raced.standings.baseline.reason)
    assert raced.standings.over


def test_what_is_flaky_on_the_baseline_is_not_compared_unless_that_is_requested() -> None:
    flaky = baseline_that(
        (FAILED, CorrectnessFinding(failing=("t::a",))),
        (PASSED, CorrectnessFinding(unstable=("t::a", "out.json"))),
    )
    raced = race({"a": Fate(speed=2.0)}, change=flaky)
    assert raced.standings.baseline.unstable == ("t::a", "out.json")
    assert raced.standings.winner == "a"
    refused = race({"a": Fate()}, request(compare=["stdout", "out.json"]), change=flaky)
    reason = str(refused.standings.baseline.reason)
    assert reason.startswith("out.json cannot be compared")
    assert "remove it from `compare`" in reason


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.CRASHED, "the baseline's benchmark cannot be measured: no module"),
        (SKIPPED, "the baseline was not measured: no module"),
    ],
)
def test_a_benchmark_that_cannot_be_measured_ends_the_race(outcome: Outcome, reason: str) -> None:
    change = when(StepKind.CALIBRATE, lambda end: failed(end.step, outcome, "no module"))
    raced = race({"a": Fate()}, request(propose=PROPOSE), change=change)
    assert phases_of(raced) == "test:2 calibrate:1"
    assert raced.standings.baseline.reason == reason


def test_a_race_whose_tests_do_not_notice_broken_code_ends_before_they_test_a_candidate() -> None:
    raced = race({"a": Fate(), "bad": Fate(flags=("edits b.py",))}, files=PYTHON, is_blind=True)
    assert phases_of(raced).endswith(" stage:2 canary:1")
    assert "even when a.py cannot be imported" in str(raced.standings.baseline.reason)
    assert raced["a"].reason == "the race did not start"
    assert raced.standings.notes == ()


def test_the_canary_waits_for_the_first_candidate_that_changes_python() -> None:
    fates = {"text": Fate(files=()), "code": Fate(files=PYTHON, speed=0.5)}
    raced = race(fates, request(propose=PROPOSE), proposed=[[], ["code"]])
    canaries = [step for step in raced.steps if step.kind is StepKind.CANARY]
    assert [step.candidate for step in canaries] == [BASELINE]
    off = request(test={"command": ["pytest"], "canary": False})
    raced = race({"code": Fate(files=PYTHON, speed=2.0)}, off)
    assert not raced.count(StepKind.CANARY, BASELINE)
    assert raced.count(StepKind.CANARY, "code"), "it is searched for state all the same"


# ---- which candidates are tested


def test_duplicates_are_found_by_tree_and_by_form_whichever_is_staged_first() -> None:
    fates = {
        "a": Fate(normal="n", test=FAILED),
        "again": Fate(normal="n", tree="tree of a"),
        "reformatted": Fate(normal="n"),
        "nothing": Fate(tree=BASE.tree),
        "comments": Fate(normal=BASE_NORMAL),
    }
    for pick in (first, last):
        raced = go(course(request(), fates), World(fates=fates), pick=pick)
        found = {one.name: (one.duplicate_of, one.reason) for one in raced.standings.candidates}
        assert found == {
            "a": (None, "1 test failed"),
            "again": ("a", "identical to a"),
            "reformatted": ("a", "identical to a except for formatting"),
            "nothing": (BASELINE, "it changes nothing"),
            "comments": (BASELINE, "it changes only formatting"),
        }
        assert raced.count(StepKind.TEST) == 3


def test_names_are_made_unique_and_a_parent_is_one_that_raced() -> None:
    new = [replace(one, parent=parent) for one in proposals("a") for parent in ("a", "?")]
    found = StepFinding(proposed=Proposed(proposals=tuple(new)))
    change = when(StepKind.PROPOSE, lambda end: replace(end, finding=found))
    asked = request(propose={**PROPOSE, "rounds": 2})
    raced = go(course(asked, ["a", BASELINE]), World(change=change))
    assert {one.name: (one.parent, one.round) for one in raced.standings.candidates} == {
        "a": (None, None),
        "baseline-2": (None, None),
        "a-2": ("a", 0),
        "a-3": (None, 0),
        "a-4": ("a", 1),
        "a-5": (None, 1),
    }


def test_what_does_not_apply_or_changes_protected_files_is_invalid_and_not_tested() -> None:
    fates = {
        "broken": Fate(stage=FAILED),
        "unlucky": Fate(stage=Outcome.INFRA_ERROR),
        "cheat": Fate(flags=("edits tests/test_a.py", "adds conftest.py")),
        "link": Fate(flags=(f"adds x, {LEADS_OUT}",)),
        "typo": Fate(problem="syntax error in a.py, line 3"),
    }
    raced = race(fates, files=PYTHON)
    found = ["invalid", "infra_error", "invalid", "invalid", "failed"]
    assert [*raced.statuses.values()] == found
    assert raced["broken"].reason == "error: patch failed: a.py:1"
    assert raced["cheat"].reason.startswith("it edits tests/test_a.py; it adds conftest.py, which ")
    assert "`protect: []` allows it" in raced["cheat"].reason
    assert "`protect: []`" not in raced["link"].reason
    assert raced["typo"].reason == "syntax error in a.py, line 3"
    assert {step.candidate for step in raced.steps if step.kind is StepKind.TEST} == {BASELINE}


def test_proposals_beyond_the_limit_are_left_out_with_a_note() -> None:
    asked = request(propose=PROPOSE, limits={"candidates": 3})
    raced = race(dict.fromkeys("abcde", Fate()), asked, proposed=[["c", "d", "e"], ["f"]])
    assert list(raced.statuses) == ["a", "b", "c"]
    assert raced.count(StepKind.PROPOSE) == 1
    assert raced.standings.notes == (
        "2 proposals left out: the limit is 3 candidates",
        "no more proposals: the limit of 3 candidates was reached",
    )


# ---- tests and benchmarks


@pytest.mark.parametrize("step", ["test", "bench"])
@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (FAILED, Status.FAILED),
        (Outcome.INVALID_OUTPUT, Status.FAILED),
        (Outcome.TIMEOUT, Status.TIMEOUT),
        (Outcome.CRASHED, Status.CRASHED),
        (Outcome.INFRA_ERROR, Status.INFRA_ERROR),
    ],
)
def test_the_status_of_a_candidate_follows_from_its_test_or_first_block(
    step: str, outcome: Outcome, status: Status
) -> None:
    raced = race({"bad": Fate(**{step: outcome}), "good": Fate(speed=1.5)})  # type: ignore[arg-type]
    assert (raced["bad"].status, raced["good"].status) == (status, Status.WON)
    assert raced["bad"].reason
    assert raced.count(StepKind.SCREEN, "bad") == (step == "bench")
    assert raced["bad"].patch == "bad.patch"


def test_a_candidate_that_changes_its_tests_while_they_run_fails() -> None:
    flags = ("changed tests/test_a.py while it ran",)
    raced = race({"a": Fate(test_flags=flags), "b": Fate(test=FAILED, test_flags=flags)})
    assert raced.statuses == {"a": "failed", "b": "failed"}
    assert raced["a"].reason == "while its tests ran it changed tests/test_a.py"
    assert raced["b"].reason == "while its tests ran it changed tests/test_a.py; 1 test failed"
    assert raced["b"].differences[0].message == "1 is not 2"
    assert not raced.count(StepKind.SCREEN)


def test_measurements_that_are_not_times_take_out_their_candidate() -> None:
    wrong = Block(baseline=({TOTAL: 1.0},) * 2, candidate=({TOTAL: 0.0}, {TOTAL: math.nan}))

    def change(end: StepEnd) -> StepEnd:
        is_it = end.step.candidate == "odd" and end.finding.block is not None
        return replace(end, finding=StepFinding(block=wrong)) if is_it else end

    raced = race({"odd": Fate(), "good": Fate(speed=1.5, noisy=True)}, change=change)
    assert raced.statuses == {"odd": "failed", "good": "won"}
    assert "seconds above 0" in raced["odd"].reason
    assert raced["good"].noisy


def test_a_candidate_stands_the_same_whichever_of_its_blocks_ended_first() -> None:
    def change(end: StepEnd) -> StepEnd:
        step, block = end.step, end.finding.block
        if block is None or step.number not in (2, 3):
            return end
        if step.candidate == "fails":
            return failed(step, Outcome.CRASHED if step.number == 2 else Outcome.TIMEOUT, "x")
        flagged = replace(block, flags=(f"left {step.number}",))
        return replace(end, finding=StepFinding(block=flagged), notes=(f"note {step.number}",))

    one, other = (
        go(course(request(), ["fails", "leaves"]), World(change=change), pick=pick).standings
        for pick in (first, last)
    )
    assert one == other


# ---- rounds


def test_proposers_get_every_failure_and_every_speed_so_far() -> None:
    fates = {"fast": Fate(speed=2.0), "wrong": Fate(test=FAILED)}
    raced = race(fates, request(propose=PROPOSE), proposed=[["wrong"], ["fast"], []], noise=silent)
    first, second, third = (step for step in raced.steps if step.kind is StepKind.PROPOSE)
    assert [step.round for step in (first, second, third)] == [0, 1, 2]
    assert first.details is not None
    assert first.details["candidates"] == []
    assert first.details["baseline"]["seconds"] == {TOTAL: PROCESS_S, "a": PROCESS_S / 2}
    assert third.details is not None
    data = json.loads(json.dumps(third.details, allow_nan=False))
    assert (data["round"], data["rounds"]) == (3, 3)
    wrong, fast = data["candidates"]
    assert (wrong["status"], wrong["differences"][0]["message"]) == ("failed", "1 is not 2")
    assert (fast["speedup"]["estimate"], fast["blocks"]) == (pytest.approx(2.0), FIRST_BLOCKS)
    assert fast["round"] == 2


def test_rounds_stop_when_nothing_new_is_proposed() -> None:
    raced = race({"a": Fate(speed=2.0)}, request(propose=PROPOSE), proposed=[["a"], [], ["b"]])
    assert (raced.count(StepKind.PROPOSE), raced.standings.winner) == (2, "a")
    assert raced.standings.notes == ()
    assert race({}, request(propose=PROPOSE)).standings.over


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_a_spent_budget_stops_the_proposals_with_a_note(rounds: int) -> None:
    asked = request(propose={**PROPOSE, "rounds": rounds}, limits={"usd": 0.15})
    raced = race({}, asked, proposed=[["a"], ["b"], ["c"], ["d"]], cost_usd=0.1)
    assert raced.count(StepKind.PROPOSE) == 2
    assert raced.standings.cost_usd == pytest.approx(0.2)
    note = "no more proposals: the budget of $0.15 was reached"
    assert raced.standings.notes == (() if rounds == 2 else (note,))


@pytest.mark.parametrize(
    ("blocks", "proposed", "calls", "note"),
    [
        (9, [["a"], ["b"]], 1, "no more proposals: the time limit of 18 s leaves only the finals"),
        # Nothing new was proposed; then the finals took the remaining time.
        (12, [["a"], []], 2, None),
    ],
)
def test_proposals_stop_while_there_is_time_for_the_finals(
    blocks: int, proposed: list[list[str]], calls: int, note: str | None
) -> None:
    asked = request(propose=PROPOSE, limits={"seconds": blocks * BLOCK_S}, blocks=5)
    raced = race({"a": Fate(speed=2.0)}, asked, proposed=proposed)
    assert (raced.count(StepKind.PROPOSE), raced.statuses) == (calls, {"a": "won"})
    assert raced.standings.notes == (() if note is None else (note,))


def test_nothing_is_proposed_where_the_given_candidates_fill_the_limit() -> None:
    asked = request(propose=PROPOSE, limits={"candidates": 2})
    raced = race({"a": Fate(), "b": Fate()}, asked, proposed=[["c"]])
    assert not raced.count(StepKind.PROPOSE)


def test_a_call_that_fails_is_noted_and_what_it_proposed_races() -> None:
    def change(end: StepEnd) -> StepEnd:
        found = Proposed(proposals=proposals("a"), complaints=tuple("123456"), more_complaints=2)
        end = failed(end.step, Outcome.CRASHED, "exit code 1")
        return replace(end, finding=StepFinding(proposed=found), is_priced=False)

    asked = request(propose={**PROPOSE, "rounds": 1})
    raced = race({}, asked, change=when(StepKind.PROPOSE, change))
    assert raced.statuses == {"a": "not_shown"}
    assert "propose, round 1 ended as crashed: exit code 1" in raced.standings.notes
    assert "propose, round 1: 3 more like these" in raced.standings.notes
    assert raced.standings.unpriced_calls == 1


def test_the_proposals_of_several_models_join_in_the_order_of_the_calls() -> None:
    models = {
        name: Model(name=name, provider=Provider.OPENAI, model=name, base_url="", account=name)
        for name in ("m", "k")
    }
    keys = request(propose={"models": ["m", "k"], "files": ["a.py"], "n": 2, "rounds": 1})
    asked = replace(keys, models=models, prompt="faster")

    def change(end: StepEnd) -> StepEnd:
        found = Proposed(proposals=proposals([end.step.candidate]))
        return replace(end, finding=StepFinding(proposed=found))

    raced = go(course(asked), World(change=when(StepKind.PROPOSE, change)), pick=last)
    assert list(raced.statuses) == ["m-1", "m-2", "k-1", "k-2"]


# ---- finals


def test_all_that_may_win_are_measured_again_together_and_only_those_blocks_count() -> None:
    fates = {"best": Fate(speed=1.6), "good": Fate(speed=1.4), "same": Fate(speed=0.99)}
    fates |= {"slow": Fate(speed=0.5)}
    raced = race(fates, request(blocks=6), noise=lambda rng: rng.gauss(0, 0.005))
    assert raced.count(StepKind.FINAL) == 2 * 6
    assert [*raced.statuses.values()] == ["won", "accepted", "not_shown", "slower"]
    speedup = raced["best"].speedup
    assert speedup is not None
    assert speedup.blocks == 6
    assert 1.05 < speedup.low < speedup.estimate < speedup.high
    assert set(raced["best"].cases) == {"a", "b"}
    assert raced["good"].reason.endswith("; best is faster")


def test_a_candidate_with_a_caution_loses_a_tie_and_its_place_in_the_finals() -> None:
    clean, cautioned = Fate(speed=2.0), Fate(speed=2.0, canary=UNTESTED)
    tie = race({"cautioned": cautioned, "clean": clean}, files=PYTHON)
    assert tie.statuses == {"cautioned": "accepted", "clean": "won"}
    assert "no test runs the code that it changes (f)" in tie["cautioned"].cautions[0]
    blocks = 50
    most = most_finalists(request(blocks=blocks).bench, PROCESS_S)
    fates = {f"cautioned-{n}": replace(cautioned, speed=9.0) for n in range(2)}
    fates |= {f"clean-{n}": clean for n in range(most)}
    raced = race(fates, request(blocks=blocks), files=PYTHON)
    finalists = {step.candidate for step in raced.steps if step.kind is StepKind.FINAL}
    assert finalists == {f"clean-{n}" for n in range(most)}
    assert raced["cautioned-0"].status is Status.NOT_SHOWN
    assert raced["cautioned-0"].reason == (
        f"{most} other candidates looked better and were measured again"
    )


def test_a_candidate_that_keeps_state_wins_only_where_caches_are_accepted() -> None:
    fates = {"memo": Fate(speed=9.0, canary=STATE), "fair": Fate(speed=1.5)}
    refused = race(fates, files=PYTHON)
    assert refused.statuses == {"memo": "not_shown", "fair": "won"}
    assert "it keeps state between calls (a dict in f)" in refused["memo"].reason
    assert not refused.count(StepKind.FINAL, "memo")
    allowed = race(fates, request(accept={"caches": True}), files=PYTHON)
    assert allowed.statuses == {"memo": "won", "fair": "accepted"}
    assert allowed["memo"].cautions


def test_a_candidate_wins_unseen_only_where_unseen_results_are_accepted() -> None:
    prints_nothing = Calibration(samples=(), process_s=PROCESS_S, busy_cpus=1.0, printed=None)
    finding = StepFinding(calibration=prints_nothing)
    change = when(StepKind.CALIBRATE, lambda end: replace(end, finding=finding))
    fates = {"a": Fate(speed=2.0), "slow": Fate(speed=0.5)}
    refused = race(fates, change=change)
    assert refused.statuses == {"a": "not_shown", "slow": "slower"}
    assert refused["a"].reason == UNSEEN
    assert refused.standings.baseline.unseen
    accepted = race(fates, request(accept={"unseen_results": True}), change=change)
    assert accepted.standings.winner == "a"


def test_a_benchmark_that_leaves_files_holds_its_candidate_and_other_output_fails_it() -> None:
    fates = {
        "leaves": Fate(speed=9.0, bench_flags=("left cache.db",)),
        "lies": Fate(speed=9.0, bench_flags=(f"{PRINTS_ELSE}: 1",)),
        "fair": Fate(speed=1.5),
    }
    raced = race(fates)
    assert raced.statuses == {"leaves": "not_shown", "lies": "failed", "fair": "won"}
    assert raced["leaves"].flags == ("left cache.db",)


@pytest.mark.parametrize("canary", [None, STATE])
@pytest.mark.parametrize(("speed", "status"), [(0.5, "slower"), (1.0, "not_shown"), (2.0, "won")])
def test_two_refs_are_always_compared_to_the_end(
    speed: float, status: str, canary: Canary | None
) -> None:
    fates = {"head": Fate(speed=speed, canary=canary)}
    raced = race(fates, request(repo={"head": "feature"}), files=PYTHON)
    assert raced.count(StepKind.FINAL, "head") >= LEAST_FINAL_BLOCKS
    assert raced.statuses["head"] == status, "one's own commit may keep state"


# ---- skipped steps


def leaving(kind: StepKind, reason: str = "no disk") -> Callable[[Step], str | None]:
    """Skips such steps of candidate b, and of proposers."""
    return lambda step: reason if step.kind is kind and step.candidate in ("b", "propose") else None


@pytest.mark.parametrize("kind", [StepKind.STAGE, StepKind.TEST, StepKind.SCREEN, StepKind.FINAL])
def test_a_skipped_step_leaves_its_candidate_pending_and_the_others_race(kind: StepKind) -> None:
    fates = {"a": Fate(speed=2.0), "b": Fate(speed=3.0)}
    raced = go(course(request(), fates), World(fates=fates), skips=leaving(kind))
    assert raced.standings.winner == "a"
    assert raced["b"].reason == "no disk"
    if kind is not StepKind.FINAL:
        assert raced["b"].status is Status.SKIPPED
        assert raced.standings.notes == ("1 candidate pending: no disk",)
    known = [end for end in raced.ends if end.outcome is not SKIPPED]
    resumed = go(course(request(), fates), Recorded(known, World(fates=fates)))
    assert resumed.standings.winner == "b"


def test_a_candidate_whose_later_blocks_of_a_round_are_skipped_still_reaches_the_finals() -> None:
    def skips(step: Step) -> str | None:
        return "no time" if step.kind is StepKind.SCREEN and step.number > 1 else None

    fates = {"a": Fate(speed=2.0), "b": Fate(speed=1.5)}
    raced = go(course(request(), fates), World(fates=fates), skips=skips)
    assert raced.statuses == {"a": "won", "b": "accepted"}


def test_a_skipped_call_is_noted_and_a_skipped_canary_holds_nothing() -> None:
    fates, asked = {"b": Fate(speed=2.0)}, request(propose=PROPOSE)
    world = World(fates=fates, files=PYTHON)
    raced = go(course(asked, ["b"]), world, skips=leaving(StepKind.PROPOSE, "the budget is spent"))
    assert raced.standings.notes[0] == "propose, round 1 was not called: the budget is spent"
    assert raced.standings.winner == "b"
    later = go(course(request(), ["b"]), world, skips=leaving(StepKind.CANARY))
    assert later.standings.winner == "b"


# ---- who wins by chance


@pytest.mark.parametrize("noise", [gaussian, one_sided])
def test_of_forty_equal_candidates_hardly_any_wins_or_is_called_slower(noise: Noise) -> None:
    """At most 5% of 60 races, and what chance adds."""
    forty, asked = {f"c{number}": Fate() for number in range(40)}, request(accept={"speedup": 1.0})
    statuses = [
        race(forty, asked, noise=noise, seed=seed, cases=()).statuses.values() for seed in range(60)
    ]
    assert sum("won" in each for each in statuses) <= 6
    assert sum("slower" in each for each in statuses) <= 6


@pytest.mark.parametrize("noise", [gaussian, one_sided])
def test_the_fastest_candidate_wins_and_no_equal_one_is_accepted_beside_it(noise: Noise) -> None:
    fates = {"good": Fate(speed=1.3), "best": Fate(speed=1.5)}
    fates |= {f"c{number}": Fate() for number in range(20)}
    wrong = 0
    for seed in range(40):
        raced = race(fates, noise=noise, seed=seed, cases=())
        wrong += raced.standings.winner != "best"
        wrong += sorted(raced.statuses.values()).count("accepted") != 1
    assert wrong <= 4


# ---- what must hold for any race


def any_fate(seed: int, name: str) -> Fate:
    rng = random.Random(f"{seed} {name}")
    return Fate(
        speed=rng.choice((0.7, 1.0, 1.02, 1.3, 1.6)),
        stage=rng.choice((PASSED,) * 6 + (FAILED, Outcome.INFRA_ERROR)),
        test=rng.choice((PASSED,) * 4 + (FAILED, Outcome.TIMEOUT, Outcome.INFRA_ERROR)),
        bench=rng.choice((PASSED,) * 6 + (Outcome.CRASHED,)),
        tree=rng.choice((None,) * 6 + ("shared", BASE.tree)),
        normal=rng.choice((None,) * 6 + ("alike",)),
        problem=rng.choice(("",) * 6 + ("syntax error",)),
        flags=rng.choice(((),) * 6 + (("edits tests/a.py",),)),
        bench_flags=rng.choice(((),) * 8 + (("left x",),)),
        canary=rng.choice((None, None, UNTESTED, STATE)),
    )


def any_race(seed: int) -> tuple[RaceRequest, list[str], World]:
    rng = random.Random(seed)
    limits = {
        "candidates": rng.choice((1, 5, 30)),
        "seconds": rng.choice((None, rng.uniform(1, 200))),
        "usd": rng.choice((None, 0.25)),
    }
    names = [f"c{number}" for number in range(9)]
    asked = request(
        blocks=3,
        limits=limits,
        propose=rng.choice((None, PROPOSE)),
        profile=rng.choice((None, "line")),
    )
    world = World(
        fate_of=lambda name: any_fate(seed, name),
        proposed=[rng.sample(names, rng.randrange(5)) for _ in range(3)],
        cost_usd=0.1,
        seed=seed,
        cases=(),
        files=rng.choice(((), PYTHON)),
        is_blind=rng.random() < 0.1,
    )
    return asked, rng.sample(names, rng.randrange(7)), world


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_race_that_left_steps_is_read_as_it_ended_and_a_resume_ends_as_if_it_had_not(
    seed: int,
) -> None:
    asked, names, world = any_race(seed)
    rng = random.Random(f"order {seed}")
    share = rng.choice((0.0, 0.05))

    def pick(running: Sequence[Step]) -> int:
        return rng.randrange(len(running))

    def skips(step: Step) -> str | None:
        return f"no room to {step.kind}" if rng.random() < share else None

    raced = go(course(asked, names), world, pick=pick, skips=skips)
    again = go(course(asked, names), Recorded(raced.ends), pick=pick)
    assert again.standings == raced.standings
    undisturbed = go(course(asked, names), world)
    known = [end for end in raced.ends if end.outcome is not SKIPPED]
    killed = known[: rng.randrange(len(known) + 1)]
    for ends in (known, killed) if asked.limits.seconds is None else ():
        resumed = go(course(asked, names), Recorded(ends, world), pick=pick)
        assert resumed.standings == undisturbed.standings


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_any_race_keeps_to_its_limits_and_gives_each_candidate_a_reason(seed: int) -> None:
    asked, names, world = any_race(seed)
    raced = go(course(asked, names), world)
    standings = raced.standings
    assert len(raced.statuses) == len(standings.candidates) <= asked.limits.candidates
    assert all(one.reason for one in standings.candidates)
    won = [one.name for one in standings.candidates if one.status is Status.WON]
    assert won == ([] if standings.winner is None else [standings.winner])
    keys = [trial_of(step, 0, asked, BASE).key for step in raced.steps]
    assert len(set(keys)) == len(keys), "two steps have one key"


def test_a_call_that_fails_ends_no_rounds() -> None:
    def crash(end: StepEnd) -> StepEnd:
        first = end.step.kind is StepKind.PROPOSE and end.step.round == 0
        return replace(end, outcome=Outcome.CRASHED, reason="exit code 3") if first else end

    asked = request(propose={**PROPOSE, "rounds": 3})
    raced = race({}, asked, proposed=[[], ["late"], []], change=crash)
    assert raced.count(StepKind.PROPOSE) == 3
    assert "late" in raced.statuses
    (note,) = raced.standings.notes
    assert note == "propose, round 1 ended as crashed: exit code 3"
