"""Exclusive trials and locks: who may run beside whom, whatever else holds a run up."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings, strategies as st

from paraval.records import AccountLimits, Budget, Limits, Outcome, RetryPolicy
from paraval.schedule.messages import AttemptOver, Begin, StartAttempt, Work
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import AttemptSpan, SimulatedEnd, Trace, bounds, simulate


def overlap(one: AttemptSpan, other: AttemptSpan) -> bool:
    return one.start < other.end and other.start < one.end


def play(works: list[Work], parallel: int = 4, named: dict[str, int] | None = None) -> Trace:
    limits = Limits(parallel=parallel, named=named or {})
    scheduler = Scheduler(works, limits=limits, retry=RetryPolicy(), seed=0)
    return simulate(scheduler, lambda index, _: SimulatedEnd(duration_s=works[index].expected_s))


def test_exclusive_trials_run_after_the_others_one_after_another() -> None:
    works = [Work(index=i, expected_s=2.0, exclusive=i % 3 == 0) for i in range(9)]
    trace = play(works, parallel=3)
    assert [span.index for span in trace.spans] == [1, 2, 4, 5, 7, 8, 0, 3, 6]
    assert trace.makespan_s == 4 + 3 * 2


def test_an_exclusive_trial_uses_the_time_in_which_the_others_only_wait() -> None:
    """They rest before a retry: nothing has to be drained for it."""
    works = [Work(index=0), Work(index=1, expected_s=5.0, exclusive=True)]

    def imagine(index: int, number: int) -> SimulatedEnd:
        if (index, number) == (0, 1):
            return SimulatedEnd(duration_s=1, outcome=Outcome.INFRA_ERROR, retry_after=3.0)
        return SimulatedEnd(duration_s=works[index].expected_s)

    scheduler = Scheduler(works, limits=Limits(parallel=4), retry=RetryPolicy(), seed=0)
    trace = simulate(scheduler, imagine)
    assert [(span.index, span.start) for span in trace.spans] == [(0, 0.0), (1, 1.0), (0, 6.0)]


def test_two_with_the_same_lock_never_run_at_once() -> None:
    works = [Work(index=i, needs=("lock:db",) if i % 2 else ()) for i in range(20)]
    trace = play(works, parallel=8, named={"lock:db": 1})
    locked = sorted((span for span in trace.spans if span.index % 2), key=lambda span: span.start)
    assert all(before.end <= after.start for before, after in pairwise(locked))
    assert trace.makespan_s == 10


def test_the_remaining_time_has_exclusive_trials_on_top() -> None:
    works = [Work(index=i, expected_s=2.0, exclusive=i >= 8) for i in range(10)]
    scheduler = Scheduler(works, limits=Limits(parallel=4), retry=RetryPolicy(), seed=0)
    scheduler.handle(Begin(at=0.0))
    assert scheduler.remaining_s(0.0) == 4 + 4


def test_a_plan_tells_that_exclusive_trials_decide_its_end() -> None:
    works = [Work(index=i, expected_s=1.0, exclusive=i >= 4) for i in range(14)]
    first, *others = bounds(works, Limits(parallel=4))
    assert (first.name, first.seconds) == ("exclusive trials", 11.0)
    assert first.text == "one at a time"
    assert [bound.name for bound in others] == ["longest trial"]


def test_after_an_exclusive_trial_was_called_off_the_others_go_on() -> None:
    works = [Work(index=0, exclusive=True), Work(index=1, exclusive=True)]
    scheduler = Scheduler(works, limits=Limits(parallel=4), retry=RetryPolicy(), seed=0)
    assert scheduler.handle(Begin(at=0.0)) == [StartAttempt(index=0)]
    told = scheduler.handle(AttemptOver(at=1.0, index=0, outcome=Outcome.CRASHED))
    assert StartAttempt(index=1) in told


# ---- what must hold always


@st.composite
def plans(
    draw: st.DrawFn,
) -> tuple[list[Work], dict[tuple[int, int], SimulatedEnd], Limits, Budget]:
    needs = ["account:a", "lock:db", "mode=x"]
    count = draw(st.integers(0, 16))
    seconds = st.sampled_from([0.0, 0.5, 3.0, 20.0])
    works = [
        Work(
            index=index,
            needs=tuple(sorted(draw(st.sets(st.sampled_from(needs), max_size=2)))),
            expected_s=draw(seconds),
            exclusive=draw(st.booleans()),
            cost_usd=draw(st.sampled_from([0.0, 0.1, None])),
        )
        for index in range(count)
    ]
    ends = {
        (index, number): SimulatedEnd(
            duration_s=draw(seconds),
            outcome=draw(st.sampled_from([o for o in Outcome if o is not Outcome.SKIPPED])),
            retry_after=draw(st.sampled_from([None, 3.0, 1e9])),
            account=draw(st.sampled_from([None, "account:a"])),
            stops=draw(st.sampled_from([None, None, None, "account:a"])),
            cost_usd=draw(st.sampled_from([None, 0.0, 0.2])),
        )
        for index in range(count)
        for number in (1, 2)
    }
    known = AccountLimits(requests_per_minute=draw(st.sampled_from([None, 30.0])))
    limits = Limits(
        parallel=draw(st.integers(1, 4)),
        named={"lock:db": 1, "mode=x": 2},
        accounts={"account:a": known},
    )
    return works, ends, limits, Budget(usd=draw(st.sampled_from([0.3, 100.0])))


@given(plans(), st.sampled_from([None, 4.0]))
@settings(max_examples=200, deadline=None)
def test_nothing_overlaps_an_exclusive_trial_and_the_run_ends(
    plan: tuple[list[Work], dict[tuple[int, int], SimulatedEnd], Limits, Budget],
    stop_at: float | None,
) -> None:
    works, ends, limits, budget = plan
    scheduler = Scheduler(works, limits=limits, retry=RetryPolicy(), seed=0, budget=budget)
    fallback = SimulatedEnd(duration_s=1.0)
    trace = simulate(
        scheduler, lambda index, number: ends.get((index, number), fallback), stop_at=stop_at
    )
    assert trace.over_at is not None
    if stop_at is None:
        decided = [*trace.concluded, *(skip.index for skip in trace.skipped)]
        assert sorted(decided) == [work.index for work in works]
    for place, one in enumerate(trace.spans):
        for other in trace.spans[place + 1 :]:
            shared = set(works[one.index].needs) & set(works[other.index].needs)
            alone = works[one.index].exclusive or works[other.index].exclusive
            assert not (overlap(one, other) and (alone or "lock:db" in shared))


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 7.0]), st.booleans()), max_size=30))
@settings(max_examples=100, deadline=None)
def test_exclusive_trials_cost_their_time_and_one_drain(plan: list[tuple[float, bool]]) -> None:
    works = [Work(index=i, expected_s=s, exclusive=alone) for i, (s, alone) in enumerate(plan)]
    shared = [work.expected_s for work in works if not work.exclusive]
    alone_s = sum(work.expected_s for work in works if work.exclusive)
    listed_s = sum(shared) / 3 + max(shared, default=0.0)
    assert play(works, parallel=3).makespan_s <= listed_s + alone_s + 1e-9
