"""Trials that are added during a run, in virtual time: they end, and keep to every limit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hypothesis import given, settings, strategies as st

from paraval.records import AccountLimits, Budget, Limits, Outcome, RetryPolicy
from paraval.schedule.capacities import OVERTAKEN_AT_MOST_S
from paraval.schedule.messages import (
    Added,
    AttemptOver,
    Begin,
    Conclude,
    Over,
    StartAttempt,
    StopAsked,
    Work,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import AttemptSpan, SimulatedEnd, Trace, simulate


def scheduler(works: Sequence[Work] = (), parallel: int = 4) -> Scheduler:
    return Scheduler(works, limits=Limits(parallel=parallel), retry=RetryPolicy(), seed=0)


def ended(index: int, at: float) -> AttemptOver:
    return AttemptOver(at=at, index=index, outcome=Outcome.PASSED)


def test_trials_added_to_a_run_that_was_over_restart_it() -> None:
    one = scheduler()
    assert one.handle(Begin(at=0.0)) == [Over()]
    assert one.handle(Added(at=1.0, works=(Work(index=0),))) == [StartAttempt(index=0)]
    assert one.handle(ended(0, 2.0)) == [Conclude(index=0), Over()]
    assert one.handle(Added(at=3.0, works=(Work(index=1),))) == [StartAttempt(index=1)]


def test_a_stopped_run_takes_no_more_trials_and_is_over_again() -> None:
    one = scheduler([Work(index=0)])
    one.handle(Begin(at=0.0))
    one.handle(StopAsked(at=1.0))
    assert one.handle(Added(at=1.0, works=(Work(index=1),))) == []
    assert one.handle(ended(0, 2.0)) == [Conclude(index=0), Over()]
    assert one.handle(Added(at=3.0, works=(Work(index=2),))) == [Over()]


def test_added_trials_wait_behind_earlier_ones_and_the_longest_of_a_batch_starts_first() -> None:
    one = scheduler([Work(index=0), Work(index=1)], parallel=1)
    one.handle(Begin(at=0.0))
    one.handle(Added(at=0.0, works=(Work(index=2, expected_s=3.0), Work(index=3, expected_s=9.0))))
    trace = [0]
    while len(trace) < 4:
        starts = [i for i in one.handle(ended(trace[-1], 1.0)) if isinstance(i, StartAttempt)]
        trace += [start.index for start in starts]
    assert trace == [0, 1, 3, 2]


def test_the_remaining_time_counts_what_was_added() -> None:
    one = scheduler(parallel=4)
    one.handle(Begin(at=0.0))
    works = [Work(index=i, expected_s=2.0, exclusive=i >= 8) for i in range(10)]
    one.handle(Added(at=0.0, works=tuple(works)))
    assert one.remaining_s(0.0) == 4 + 4


def test_an_added_trial_may_have_needs_that_no_other_had() -> None:
    limits = Limits(parallel=4, named={"lock:db": 1})
    one = Scheduler([Work(index=0)], limits=limits, retry=RetryPolicy(), seed=0)
    one.handle(Begin(at=0.0))
    locked = tuple(Work(index=i, needs=("lock:db",)) for i in (1, 2))
    assert one.handle(Added(at=0.0, works=locked)) == [StartAttempt(index=1)]
    assert StartAttempt(index=2) in one.handle(ended(1, 1.0))


# ---- turns


def endless(*, exclusive: bool, seconds: float, until: int) -> tuple[list[Work], Trace]:
    """A stream in which the end of each names the next, and in its midst one of the other side."""
    works = [Work(index=0, expected_s=seconds, exclusive=exclusive)]

    def more(index: int) -> list[Work]:
        if len(works) >= until:
            return []
        kinds = [exclusive, not exclusive] if len(works) == 1 else [exclusive]
        new = [
            Work(index=len(works) + i, expected_s=seconds, exclusive=alone)
            for i, alone in enumerate(kinds)
        ]
        works.extend(new)
        return new

    trace = simulate(
        scheduler(works[:1]), lambda index, _: SimulatedEnd(duration_s=seconds), more=more
    )
    return works, trace


def test_an_exclusive_trial_is_not_starved_by_others_that_keep_coming() -> None:
    works, trace = endless(exclusive=False, seconds=1.0, until=100)
    (alone,) = (span for span in trace.spans if works[span.index].exclusive)
    assert alone.start <= OVERTAKEN_AT_MOST_S + 2.0


def test_exclusive_trials_that_keep_coming_do_not_starve_the_others() -> None:
    works, trace = endless(exclusive=True, seconds=1.0, until=100)
    (shared,) = (span for span in trace.spans if not works[span.index].exclusive)
    assert shared.start <= OVERTAKEN_AT_MOST_S + 3.0


def test_an_exclusive_batch_is_not_interrupted_by_trials_that_are_added_meanwhile() -> None:
    """Waiting for the others to end is paid for once; newcomers have their turn after it."""
    works = [Work(index=i, expected_s=5.0, exclusive=True) for i in range(8)]
    new = Work(index=8, expected_s=1.0)
    trace = simulate(
        scheduler(works),
        lambda index, _: SimulatedEnd(duration_s=5.0),
        more=lambda index: [new] if index == 0 else [],
    )
    assert [span.index for span in trace.spans] == list(range(9))


# ---- what must hold always

NEEDS = ("account:a", "lock:db", "mode=x")
SECONDS = st.sampled_from([0.0, 0.5, 3.0, 20.0])
Case = tuple[list[Work], dict[int, list[Work]], dict[tuple[int, int], SimulatedEnd]]


@st.composite
def growing(draw: st.DrawFn) -> Case:
    """Some trials to begin with, more by the end of which of them they come, and all ends."""
    count = draw(st.integers(1, 20))
    works = [
        Work(
            index=index,
            needs=tuple(sorted(draw(st.sets(st.sampled_from(NEEDS), max_size=2)))),
            expected_s=draw(SECONDS),
            exclusive=draw(st.booleans()),
            cost_usd=draw(st.sampled_from([0.0, 0.1, None])),
        )
        for index in range(count)
    ]
    parents = [draw(st.integers(-1, index - 1)) for index in range(count)]
    ends = {
        (index, number): SimulatedEnd(
            duration_s=draw(SECONDS),
            outcome=draw(st.sampled_from([o for o in Outcome if o is not Outcome.SKIPPED])),
            retry_after=draw(st.sampled_from([None, 3.0, 1e9])),
            account=draw(st.sampled_from([None, "account:a"])),
            stops=draw(st.sampled_from([None, None, None, "account:a"])),
            cost_usd=draw(st.sampled_from([None, 0.0, 0.1])),
        )
        for index in range(count)
        for number in (1, 2)
    }
    children: dict[int, list[Work]] = defaultdict(list)
    for work, parent in zip(works, parents, strict=True):
        children[parent].append(work)
    return works, children, ends


@given(
    case=growing(),
    parallel=st.integers(1, 4),
    auto=st.booleans(),
    budget=st.sampled_from([None, 0.3, 100.0]),
    stop_at=st.sampled_from([None, None, 4.0]),
)
@settings(max_examples=200, deadline=None)
def test_every_added_trial_ends_once_and_keeps_to_the_limits_and_the_budget(
    case: Case, parallel: int, auto: bool, budget: float | None, stop_at: float | None
) -> None:
    works, children, ends = case
    limits = Limits(
        parallel=parallel,
        auto=auto,
        named={"lock:db": 1, "mode=x": 2},
        accounts={"account:a": AccountLimits(requests_per_minute=30.0)},
    )
    one = Scheduler(
        children[-1],
        limits=limits,
        retry=RetryPolicy(),
        seed=0,
        budget=None if budget is None else Budget(usd=budget),
    )
    trace = simulate(
        one,
        lambda index, number: ends.get((index, number), SimulatedEnd(duration_s=1.0)),
        stop_at=stop_at,
        more=lambda index: children[index],
    )
    assert trace.over_at is not None
    assert trace.over_at >= max((span.end for span in trace.spans), default=0.0)
    decided = [*trace.concluded, *(skip.index for skip in trace.skipped)]
    assert len(decided) == len(set(decided))
    if stop_at is None:
        assert sorted(decided) == [work.index for work in works]
    keeps_to_limits(trace.spans, works, parallel)


def keeps_to_limits(spans: list[AttemptSpan], works: list[Work], parallel: int) -> None:
    for one in spans:
        beside = [other for other in spans if other.start <= one.start < other.end]
        assert len(beside) <= parallel
        for need, capacity in (("lock:db", 1), ("mode=x", 2)):
            assert sum(need in works[other.index].needs for other in beside) <= capacity
        if any(works[other.index].exclusive for other in beside):
            assert len(beside) == 1


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5]), st.booleans()), min_size=1))
@settings(max_examples=100, deadline=None)
def test_added_trials_that_run_together_do_not_exceed_the_budget(
    costs: list[tuple[float, bool]],
) -> None:
    works = [Work(index=i, cost_usd=usd, exclusive=e) for i, (usd, e) in enumerate(costs)]
    one = Scheduler(
        works[:1],
        limits=Limits(parallel=4),
        retry=RetryPolicy(),
        seed=0,
        budget=Budget(usd=1.0),
    )
    trace = simulate(
        one,
        lambda index, _: SimulatedEnd(duration_s=1.0, cost_usd=works[index].cost_usd),
        more=lambda index: works[1:] if index == 0 else [],
    )
    assert sum(costs[index][0] for index in trace.concluded) <= 1.0 + 1e-9
    skipped = {skip.index for skip in trace.skipped}
    assert {index for index, (usd, _) in enumerate(costs) if not usd}.isdisjoint(skipped)
