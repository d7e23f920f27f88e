"""Blocks, and calling off what has not started: what a run needs that may stop early."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import Budget, Case, CommandTarget, Limits, Outcome, RetryPolicy, Trial
from paraval.schedule.estimates import case_by_case
from paraval.schedule.messages import (
    Added,
    AttemptOver,
    Begin,
    CallOff,
    Instruction,
    Over,
    RetryLater,
    Skip,
    StartAttempt,
    StopAsked,
    Work,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import SimulatedEnd, simulate
from paraval.statistics.anytime import drawn_order


def scheduler(
    works: list[Work],
    parallel: int = 2,
    named: dict[str, int] | None = None,
    budget: Budget | None = None,
) -> Scheduler:
    limits = Limits(parallel=parallel, named=named or {})
    return Scheduler(works, limits=limits, retry=RetryPolicy(), seed=0, budget=budget)


def skips(instructions: list[Instruction]) -> list[Skip]:
    return [one for one in instructions if isinstance(one, Skip)]


# ---- order


def test_the_longest_go_first_only_inside_a_block() -> None:
    works = [
        Work(index=0, block=1, expected_s=9),
        Work(index=1, block=0, expected_s=1),
        Work(index=2, block=0, expected_s=2),
        Work(index=3, block=1, expected_s=10),
        Work(index=4, block=0, expected_s=2),
    ]
    trace = simulate(scheduler(works, 1), lambda *_: SimulatedEnd(duration_s=1))
    assert [span.index for span in trace.spans] == [2, 4, 1, 3, 0]


def test_an_earlier_block_goes_first_although_another_lane_holds_up_the_end() -> None:
    works = [Work(index=i, block=i, needs=("m=a",)) for i in range(3)]
    works += [Work(index=3 + i, block=i, needs=("m=b",), expected_s=50) for i in range(3)]
    trace = simulate(
        scheduler(works, 1, {"m=a": 1, "m=b": 1}), lambda *_: SimulatedEnd(duration_s=1)
    )
    assert [span.index % 3 for span in trace.spans] == [0, 0, 1, 1, 2, 2]


def test_a_lane_without_room_keeps_no_slot_idle() -> None:
    works = [Work(index=i, block=i, needs=("m=a",)) for i in range(4)]
    works += [Work(index=4 + i, block=i) for i in range(4)]
    trace = simulate(scheduler(works, 2, {"m=a": 1}), lambda *_: SimulatedEnd(duration_s=1))
    assert trace.makespan_s == 4


def test_the_blocks_are_the_cases_in_drawn_order() -> None:
    target = CommandTarget(command=("true",), cwd="/")
    trials = [
        Trial(index=i, key=str(i), case=Case(id=f"c{i // 2}"), variant={}, repeat=1, target=target)
        for i in range(20)
    ]
    works = case_by_case([Work(index=i) for i in range(20)], trials, seed=4)
    by_block = sorted(works, key=lambda work: work.block)
    drawn = drawn_order([f"c{i}" for i in range(10)], 4)
    assert [f"c{work.index // 2}" for work in by_block[::2]] == drawn
    assert [work.block for work in by_block] == [i // 2 for i in range(20)]
    assert case_by_case([Work(index=7)], trials, seed=4) == [works[7]], "the same on a resume"


# ---- the drawn order itself


def test_a_drawn_order_is_the_same_for_a_seed_and_another_for_another() -> None:
    names = [f"case-{i}" for i in range(50)]
    orders = {tuple(drawn_order(names, seed)) for seed in range(20)}
    assert len(orders) == 20
    assert drawn_order(names, 3) == drawn_order(names[::-1], 3)
    assert sorted(drawn_order(names, -1)) == sorted(names)
    assert drawn_order([], 10**30) == []


@given(st.sets(st.text(max_size=5), max_size=8), st.integers())
@settings(max_examples=60, deadline=None)
def test_names_keep_their_order_when_others_come_or_go(names: set[str], seed: int) -> None:
    order = drawn_order(sorted(names), seed)
    fewer = [name for name in order if len(name) % 2]
    assert drawn_order(fewer[::-1], seed) == fewer


def test_half_a_surrogate_pair_can_be_drawn_too() -> None:
    assert sorted(drawn_order(["\ud800", "a"], 0)) == ["a", "\ud800"]


def test_every_place_is_as_likely() -> None:
    """Each of ten names comes first about as often: 2,000 seeds, 200 each, within 5 deviations."""
    names = [f"n{i}" for i in range(10)]
    firsts = [drawn_order(names, seed)[0] for seed in range(2_000)]
    for name in names:
        assert abs(firsts.count(name) - 200) < 5 * (2_000 * 0.1 * 0.9) ** 0.5


# ---- calling off


def test_what_waits_is_skipped_for_good_and_what_runs_may_end() -> None:
    works = [Work(index=i) for i in range(10)]
    trace = simulate(scheduler(works), lambda *_: SimulatedEnd(duration_s=2), call_off_at=3)
    assert sorted(trace.concluded) == [0, 1, 2, 3]
    assert trace.skipped == [Skip(index=i, reason="called off", final=True) for i in range(4, 10)]
    assert trace.over_at == 4


def test_a_trial_that_rests_is_skipped_for_good() -> None:
    machine = scheduler([Work(index=0)])
    machine.handle(Begin(at=0))
    (retry, *_) = machine.handle(AttemptOver(at=1, index=0, outcome=Outcome.INFRA_ERROR))
    assert isinstance(retry, RetryLater)
    assert machine.handle(CallOff(at=1, reason="r")) == [
        Skip(index=0, reason="r", final=True),
        Over(),
    ]


def test_what_would_be_tried_again_after_it_is_skipped_for_good() -> None:
    machine = scheduler([Work(index=0)])
    machine.handle(Begin(at=0))
    assert machine.handle(CallOff(at=1, reason="r")) == []
    ended = machine.handle(AttemptOver(at=2, index=0, outcome=Outcome.INFRA_ERROR))
    assert ended == [Skip(index=0, reason="r", final=True), Over()]


def test_an_account_that_stops_after_it_leaves_nothing_for_later() -> None:
    works = [Work(index=i, needs=("account:a",)) for i in range(2)]
    machine = scheduler(works)
    machine.handle(Begin(at=0))
    machine.handle(CallOff(at=1, reason="r"))
    ended = machine.handle(
        AttemptOver(at=2, index=0, outcome=Outcome.INFRA_ERROR, stops="account:a", reason="quota")
    )
    assert skips(ended) == [Skip(index=0, reason="r", final=True)]


def test_a_run_that_is_called_off_as_it_begins_starts_nothing() -> None:
    machine = scheduler([Work(index=i) for i in range(3)])
    begun = machine.handle(Begin(at=0, called_off="r"))
    assert begun == [*(Skip(index=i, reason="r", final=True) for i in range(3)), Over()]


def test_what_is_added_after_it_is_skipped_too() -> None:
    machine = scheduler([])
    machine.handle(Begin(at=0, called_off="r"))
    added = machine.handle(Added(at=1, works=(Work(index=0),)))
    assert added == [Skip(index=0, reason="r", final=True), Over()]


def test_after_a_stop_nothing_is_called_off_so_that_a_resume_decides() -> None:
    machine = scheduler([Work(index=i) for i in range(3)], 1)
    machine.handle(Begin(at=0))
    machine.handle(StopAsked(at=1))
    assert machine.handle(CallOff(at=2, reason="r")) == []
    assert machine.handle(AttemptOver(at=3, index=0, outcome=Outcome.PASSED))[-1] == Over()


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 9), st.sampled_from(["", "m=a", "m=b"]), st.booleans(), st.integers(0, 3)
        ),
        max_size=25,
    ),
    st.integers(1, 5),
    st.floats(0, 30),
    st.one_of(st.none(), st.floats(0, 30)),
    st.one_of(st.none(), st.floats(0.5, 30)),
    st.integers(0, 999),
)
@settings(max_examples=100, deadline=None)
def test_every_trial_ends_or_is_skipped_once_whatever_is_called_off_when(
    plan: list[tuple[float, str, bool, int]],
    parallel: int,
    call_off_at: float,
    stop_at: float | None,
    budget_usd: float | None,
    seed: int,
) -> None:
    """With limits, blocks, exclusive trials, retries, a budget and a stop: nothing starts after the
    rest was called off, nothing is decided twice, and the run ends."""
    works = [
        Work(index=i, expected_s=s, needs=(n,) * bool(n), exclusive=e, block=b, cost_usd=1.0)
        for i, (s, n, e, b) in enumerate(plan)
    ]
    draw = random.Random(seed)
    ends = (Outcome.PASSED, Outcome.FAILED, Outcome.INFRA_ERROR, Outcome.RATE_LIMITED)
    budget = None if budget_usd is None else Budget(usd=budget_usd)
    trace = simulate(
        scheduler(works, parallel, {"m=a": 1}, budget),
        lambda index, _: SimulatedEnd(
            duration_s=plan[index][0], outcome=draw.choice(ends), cost_usd=draw.uniform(0, 2)
        ),
        stop_at=stop_at,
        call_off_at=call_off_at,
    )
    skipped = [skip.index for skip in trace.skipped]
    assert len({*trace.concluded, *skipped}) == len(trace.concluded) + len(skipped)
    assert trace.over_at is not None
    assert all(span.start <= call_off_at for span in trace.spans)
    if stop_at is None:
        assert len(trace.concluded) + len(skipped) == len(works)
    for skip in trace.skipped:
        assert skip.final is (skip.reason == "called off")


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_stop_leaves_alone_what_was_called_off(blocks: int) -> None:
    works = [Work(index=i, block=i * blocks) for i in range(6)]
    trace = simulate(
        scheduler(works), lambda *_: SimulatedEnd(duration_s=4), call_off_at=1, stop_at=2
    )
    assert len(trace.skipped) == 4
    assert sorted(trace.concluded) == [0, 1]


def test_starts_go_on_as_before_without_blocks() -> None:
    machine = scheduler([Work(index=i) for i in range(3)], 3)
    assert machine.handle(Begin(at=0)) == [StartAttempt(index=i) for i in range(3)]
