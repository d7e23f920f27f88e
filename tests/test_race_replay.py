"""A race that is gone once more from what is recorded: it is told the same, whatever happened.

First by chance and without a clock, then whole races and what their stores tell.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings, strategies as st
from paraval.racing.course.recorded import RaceTime, StepId, id_of
from paraval.racing.course.steps import Step, StepEnd, StepKind, trial_of

import paraval
from paraval.racing.findings import HookAnswer, Origin, Proposal, StepFinding
from paraval.racing.report.race_report import report_of
from paraval.racing.request import HookSpec, RaceLimits, RaceRequest
from paraval.records import Limits, Outcome, Plan
from paraval.store.store import Store
from tests.race_kit import Track, telling, track_fixture, whose_test_runs, wrong  # noqa: F401 - a fixture
from tests.race_world import (
    BASE,
    PYTHON,
    Fate,
    Gone,
    World,
    course,
    go,
    proposals,
    recorded_of,
    request,
)

FAILED, PASSED = Outcome.FAILED, Outcome.PASSED
HELD_BACK = "the budget of $0.01 is reached"
NAMES = ("fix", "x", "x-2", "a-x", "n1", "fix-2")
"""Few, so that hooks use the same ones again and again."""


@dataclass(frozen=True, kw_only=True)
class Chances:
    """Any race, by a seed."""

    asked: RaceRequest
    names: list[str]
    world: World
    held_back: frozenset[StepKind]
    """Kinds of steps of which some are left for later."""
    seed: int

    def skips(self, step: Step, elapsed_s: float) -> str | None:
        limit = self.asked.limits.seconds
        if step.kind.is_timed and limit is not None and elapsed_s >= limit:
            return RaceTime(limit).why_skipped
        rng = random.Random(f"{self.seed} {id_of(step)}")
        return HELD_BACK if step.kind in self.held_back and rng.random() < 0.3 else None


def any_race(seed: int) -> Chances:
    rng = random.Random(seed)
    clashing = rng.random() < 0.5
    hooks = {
        kind: HookSpec(depth=rng.randrange(4), calls=rng.randrange(7))
        for kind in ("generate", "repair", "refine")
        if rng.random() < 0.8
    }
    limits = RaceLimits(
        candidates=rng.choice((0, 2, 5, 10, 30)),
        seconds=rng.choice((None, None, rng.uniform(0, 200))),
        usd=rng.choice((None, None, rng.uniform(0, 0.2))),
    )
    pool = NAMES if clashing else tuple(f"g{number}" for number in range(20))
    world = World(
        fate_of=lambda name: any_fate(f"{seed} {name}", name, clashing=clashing),
        generated=tuple(rng.sample(pool, rng.randrange(len(pool)))),
        seed=seed,
        cases=(),
        test_s=rng.choice((0.0, 3.0)),
        files=rng.choice(((), PYTHON)),
        is_blind=rng.random() < 0.1,
    )
    kinds = rng.sample([*StepKind], rng.randrange(4)) if rng.random() < 0.3 else []
    return Chances(
        asked=request(blocks=5, hooks=hooks, limits=limits),
        names=rng.sample([f"n{n}" for n in range(12)], rng.randrange(9)),
        world=world,
        held_back=frozenset(kinds),
        seed=seed,
    )


def any_fate(seed: str, name: str, *, clashing: bool) -> Fate:
    rng = random.Random(seed)
    own = tuple(f"{name}{letter}" for letter in "xy"[: rng.randrange(3)])
    ends = (PASSED, PASSED, FAILED, Outcome.TIMEOUT, Outcome.INFRA_ERROR)
    return Fate(
        speed=rng.choice((0.7, 1.0, 1.02, 1.3, 1.6)),
        stage=rng.choice((PASSED,) * 6 + (FAILED, Outcome.INFRA_ERROR)),
        test=rng.choice(ends),
        bench=rng.choice((PASSED,) * 6 + (Outcome.CRASHED,)),
        tree=rng.choice((None,) * 4 + ("shared", BASE.tree)),
        normal=rng.choice((None,) * 6 + ("alike",)),
        flags=rng.choice(((),) * 4 + (("edits tests/a.py",),)),
        bench_flags=rng.choice(((),) * 8 + (("left x",),)),
        repairs=tuple(rng.sample(NAMES, 2)) if clashing else own,
        refinements=tuple(rng.sample(NAMES, 2)) if clashing else tuple(f"{c}r" for c in own),
        cost_usd=0.01,
    )


def by_chance(rng: random.Random) -> Callable[[Sequence[Step]], int]:
    return lambda out: rng.randrange(len(out))


def known_of(ends: Sequence[StepEnd]) -> dict[StepId, StepEnd]:
    return {id_of(end.step): end for end in ends}


def gone_live(chances: Chances) -> Gone:
    rng = random.Random(f"live {chances.seed}")
    one = course(chances.asked, chances.names)
    return go(one, chances.world, pick=by_chance(rng), skips=chances.skips)


def require_same_again(seed: int) -> None:
    """What is gone live is told again, in whatever order its ends are heard."""
    chances = any_race(seed)
    gone = gone_live(chances)
    keys = [trial_of(step, 0, chances.asked, BASE).key for step in gone.named]
    assert len(set(keys)) == len(keys), "two steps have one key"
    told = gone.course.standings()
    assert told.over
    known = known_of(gone.ends)
    for pick in (lambda _: 0, by_chance(random.Random(f"again {seed}"))):
        recorded = gone.recorded(chances.asked)
        again = go(
            course(chances.asked, chances.names, recorded), chances.world, pick=pick, known=known
        )
        assert set(again.ids) == set(gone.ids)
        assert again.course.standings() == told


def require_goes_on(seed: int) -> None:
    """A race that is killed anywhere, and whose hooks then answer otherwise, keeps to its limits,
    and what it comes to is told again."""
    chances = any_race(seed)
    rng = random.Random(f"kill {seed}")
    ends = [end for end in gone_live(chances).ends if end.outcome is not Outcome.SKIPPED]
    ends = ends[: rng.randrange(len(ends) + 1)]
    known = known_of(ends)
    before_s = max((end.elapsed_s for end in ends), default=0.0)
    world = replace(chances.world, mood=rng.choice(("", " otherwise")))
    one = course(chances.asked, chances.names, recorded_of(ends, chances.asked))
    out = one.begin()
    named, heard = [*out], list[StepEnd]()
    while out:
        step = out.pop(rng.randrange(len(out)))
        end = known.get(id_of(step)) or replace(world.end(step), elapsed_s=before_s)
        heard.append(end)
        following = one.handle(end, end.elapsed_s)
        named += following
        out += following
    assert one.standings().over
    staged = sum(step.kind is StepKind.STAGE for step in named)
    assert staged <= max(chances.asked.limits.candidates, 0)
    again = go(
        course(chances.asked, chances.names, Gone(one, heard, named).recorded(chances.asked)),
        world,
        known=known_of(heard),
    )
    assert set(again.ids) == {id_of(step) for step in named}
    assert again.course.standings() == one.standings()


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_replay_in_any_order_comes_to_the_same_and_names_nothing_new(seed: int) -> None:
    require_same_again(seed)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_race_that_was_killed_keeps_to_its_limits_and_is_told_the_same(seed: int) -> None:
    require_goes_on(seed)


def test_two_hooks_that_use_one_name_are_told_apart_by_a_replay() -> None:
    """What `generate` calls as a given one is called has a number, and is looked for under it."""
    asked = request(hooks={"generate": HookSpec()})
    world = World(generated=("x", "x-2", "y"))
    gone = go(course(asked, ["x"]), world)
    staged = [step.candidate for step in gone.named if step.kind is StepKind.STAGE]
    assert staged == ["x", "x-2", "x-2-2", "y"]
    again = go(course(asked, ["x"], gone.recorded(asked)), World(), known=known_of(gone.ends))
    assert again.ids == gone.ids
    assert again.course.standings() == gone.course.standings()


def test_the_same_proposal_of_two_hooks_stays_that_of_the_one_that_came_first() -> None:
    """Its name, its content: all is equal but whose it is."""
    asked = request(hooks={"repair": HookSpec()})
    said = tuple(replace(one, content="same") for one in proposals("x"))
    one, world = course(asked, ["a", "b"]), World(fates=dict.fromkeys("ab", Fate(test=FAILED)))

    def end_of(step: Step) -> StepEnd:
        end = world.end(step)
        is_repair = step.kind is StepKind.REPAIR
        return (
            replace(end, finding=StepFinding(asked=HookAnswer(proposals=said)))
            if is_repair
            else end
        )

    ends: list[StepEnd] = []
    out = one.begin()
    named = [*out]
    while out:
        # The last first, so that b is repaired before a.
        ends.append(end_of(out.pop()))
        following = one.handle(ends[-1], 0.0)
        named += following
        out += following
    found = {each.name: each.parent for each in one.standings().candidates}
    assert found == {"a": None, "b": None, "x": "b", "a-x": "a"}
    gone = Gone(one, ends, named)
    again = go(course(asked, ["a", "b"], gone.recorded(asked)), World(), known=known_of(ends))
    assert again.course.standings() == one.standings()


def test_two_that_have_one_tree_are_never_both_tested_whatever_their_form() -> None:
    fates = {"a": Fate(tree="t", normal="one"), "b": Fate(tree="t", normal="two")}
    gone = go(course(request(), fates), World(fates=fates))
    assert gone.count(StepKind.TEST, "b") == 0
    assert gone.course.standings().candidates[1].reason == "identical to a"


def test_what_a_killed_hook_had_proposed_and_proposes_no_more_takes_no_place() -> None:
    asked = request(hooks={"generate": HookSpec()}, limits=RaceLimits(candidates=3))
    old = [Step(kind=StepKind.STAGE, candidate=name, proposal=one) for name, one in staged_before()]
    world = World(generated=("new1", "new2", "new3"))
    recorded = recorded_of([world.end(step) for step in old], asked)
    gone = go(course(asked, (), recorded), world)
    staged = [step.candidate for step in gone.named if step.kind is StepKind.STAGE]
    assert staged == ["new1", "new2", "new3"]


def staged_before() -> list[tuple[str, Proposal]]:
    return [
        (one.name, replace(one, origin=Origin.GENERATE))
        for one in proposals("old1", "old2", "old3")
    ]


def test_a_thousand_candidates_are_gone_through_in_seconds() -> None:
    """A third of them is repaired; each end of a step costs the same, however many there are."""
    fates = {
        f"c{n}": Fate(test=FAILED if n % 3 == 0 else PASSED, repairs=(f"c{n}-r",))
        for n in range(1000)
    }
    limits = RaceLimits(candidates=9999)
    asked = request(hooks={"repair": HookSpec(calls=9999)}, limits=limits)
    world = World(fates=fates, cases=())
    one = course(asked, fates)
    waiting, took_s = deque(one.begin()), 0.0
    while waiting:
        end = world.end(waiting.popleft())
        began = time.process_time()
        waiting.extend(one.handle(end, 0.0))
        took_s += time.process_time() - began
    assert one.standings().over
    assert took_s < 5.0, "about 1 s where nothing else runs; 24 s when each end walked all of them"


# ---- whole races


def test_a_hook_that_the_budget_holds_back_costs_nobody_the_report(track: Track) -> None:
    """The second repair is held back: the race has its winner live, and later from its store."""

    async def repair(ask: paraval.Ask) -> dict[str, object]:
        return {"files": {"answer": f"{ask.candidate} again\n"}, "cost_usd": 0.9}

    report = track.race(
        wrong("a"),
        wrong("b"),
        telling("quick", 0.5),
        repair=repair,
        limits={"parallel": 1, "usd": 1.0},
    )
    assert report.winner is not None
    assert (report.winner.name, report.exit_code) == ("quick", 0)
    assert (report.run.held_back, report.standings.over) == (True, True)
    assert any("was not called: budget" in note for note in report.standings.notes)
    assert "Candidates are pending" in report.text()
    assert "interrupted" not in report.text()
    assert report_of(Store(track.store), report.run).standings == report.standings


def test_past_the_time_limit_no_test_starts_and_a_resume_with_more_time_goes_on(
    track: Track,
) -> None:
    slow = [whose_test_runs(f"c{n}", f"sleep 0.7{n}") for n in range(6)]
    began = time.monotonic()
    report = track.race(*slow, limits={"parallel": 1, "seconds": 2.5})
    assert time.monotonic() - began < 2.5 + 4, "six tests would take that long by themselves"
    late = [one for one in report if one.status == "skipped"]
    assert late
    assert {one.reason for one in late} <= {
        f"the time limit of 2.5 s was reached before it was {done}"
        for done in ("tested", "measured")
    }
    assert "it was tested" in late[-1].reason
    assert (report.run.held_back, report.standings.over) == (True, True)
    assert report.exit_code == 3
    assert any(
        "the time limit of 2.5 s was reached before the race was done" in n
        for n in report.standings.notes
    )
    assert report_of(Store(track.store), report.run).standings == report.standings
    again = track.race(
        *slow,
        limits={"parallel": 2},
        options=paraval.Options(store=track.store, resume=report.run.id),
    )
    assert again.exit_code == 0
    assert [one for one in again if one.status == "skipped"] == []
    assert not again.run.held_back


def test_a_time_limit_that_the_baseline_does_not_fit_in_is_a_race_that_did_not_start(
    track: Track,
) -> None:
    report = track.race(telling("quick", 0.5), limits={"parallel": 1, "seconds": 0.001})
    assert report.exit_code == 3
    assert report.standings.baseline.reason == (
        "the baseline was not tested: the time limit of 0.001 s was reached before its turn"
    )
    assert "Candidates are pending" in report.text()
    assert report_of(Store(track.store), report.run).standings == report.standings


def test_a_race_that_an_engine_took_up_and_named_nothing_of_stands_as_it_stood(
    track: Track,
) -> None:
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
