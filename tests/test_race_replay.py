"""A race that is gone once more from what is recorded: it is told the same, whatever happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from paraval.racing.course_recorded import StepId, id_of
from paraval.racing.course_time import RaceTime
from paraval.racing.request import HookSpec, RaceLimits, RaceRequest
from paraval.racing.steps import Step, StepEnd, StepKind, trial_of
from paraval.records import Outcome
from tests.race_world import (
    BASE,
    Fate,
    Gone,
    World,
    course,
    go,
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
