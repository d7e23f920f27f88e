"""The scheduler in virtual time: order, limits, retries, and that a run always ends."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import Limits, Outcome, RetryPolicy
from paraval.schedule.estimates import Estimates, Observation, shrunken_mean
from paraval.schedule.messages import (
    AttemptOver,
    Begin,
    Over,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
    Work,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import AttemptSpan, Imagine, SimulatedEnd, Trace, simulate


def scheduler(
    works: list[Work],
    parallel: int = 4,
    named: dict[str, int] | None = None,
    retry: RetryPolicy | None = None,
    seed: int = 0,
) -> Scheduler:
    limits = Limits(parallel=parallel, named=named or {})
    return Scheduler(works, limits=limits, retry=retry or RetryPolicy(), seed=seed)


def works_of(durations: list[float]) -> list[Work]:
    return [Work(index=i, expected_s=d) for i, d in enumerate(durations)]


def lasting(durations: list[float]) -> Imagine:
    return lambda index, _: SimulatedEnd(duration_s=durations[index])


def most_at_once(spans: list[AttemptSpan]) -> int:
    moments = [(span.start, 1) for span in spans] + [(span.end, -1) for span in spans]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


# ---- order


@pytest.mark.parametrize(
    ("machines", "durations", "makespan"),
    [
        (2, [3, 3, 2, 2, 2], 7),
        (3, [5, 5, 4, 4, 3, 3, 3], 11),
        (4, [7, 7, 6, 6, 5, 5, 4, 4, 4], 15),
    ],
)
def test_the_longest_expected_start_first(
    machines: int, durations: list[float], makespan: float
) -> None:
    trace = simulate(scheduler(works_of(durations), machines), lasting(durations))
    assert trace.makespan_s == makespan


def test_without_history_the_order_is_the_plans() -> None:
    durations = [1.0] * 6 + [3.0]
    works = [Work(index=i) for i in range(7)]
    trace = simulate(scheduler(works, 3), lasting(durations))
    assert [span.index for span in trace.spans] == list(range(7))
    assert trace.makespan_s == 5


def test_a_narrow_limit_is_kept_busy_from_the_start() -> None:
    """Short trials behind a limit of one decide the end; long ones fill the other slot."""
    works = [Work(index=i, expected_s=10) for i in range(10)]
    works += [Work(index=10 + i, expected_s=1, needs=("mode=slow",)) for i in range(100)]
    durations = [work.expected_s for work in works]
    trace = simulate(scheduler(works, 2, {"mode=slow": 1}), lasting(durations))
    assert trace.makespan_s == 100


def test_without_history_limited_values_run_side_by_side() -> None:
    works = [Work(index=i, needs=("m=a",)) for i in range(20)]
    works += [Work(index=20 + i, needs=("m=b",)) for i in range(20)]
    trace = simulate(scheduler(works, 4, {"m=a": 2, "m=b": 2}), lasting([1.0] * 40))
    assert trace.makespan_s == 10


def test_longest_first_from_case_means_is_within_a_tenth_of_the_lower_bound() -> None:
    """Lognormal cases, n=200 on 32: plan order needs about 1.36 of the bound."""
    by_history, by_plan = [], []
    for seed in range(60):
        draw = random.Random(seed)
        means = [math.exp(draw.gauss(0, 1)) for _ in range(200)]
        durations = [mean * math.exp(draw.gauss(0, 0.3)) for mean in means]
        longest = sorted(durations, reverse=True)
        bound = max(sum(durations) / 32, longest[0], longest[31] + longest[32])
        expected = simulate(scheduler(works_of(means), 32), lasting(durations))
        planned = simulate(scheduler(works_of([1.0] * 200), 32), lasting(durations))
        by_history.append(expected.makespan_s / bound)
        by_plan.append(planned.makespan_s / bound)
    assert sum(by_history) / 60 <= 1.10
    assert sum(by_plan) / 60 >= 1.25


# ---- retries


def test_a_transient_end_is_tried_again_until_it_is_given_up() -> None:
    trace = simulate(
        scheduler([Work(index=0)], retry=RetryPolicy(attempts=3)),
        lambda *_: SimulatedEnd(duration_s=1, outcome=Outcome.INFRA_ERROR),
    )
    assert [span.number for span in trace.spans] == [1, 2, 3]
    assert trace.concluded == [0]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.FAILED,
        Outcome.CRASHED,
        Outcome.TIMEOUT,
        Outcome.INVALID_OUTPUT,
        Outcome.GRADER_ERROR,
    ],
)
def test_wrong_answers_and_the_targets_own_errors_are_never_tried_again(outcome: Outcome) -> None:
    trace = simulate(
        scheduler([Work(index=0)], retry=RetryPolicy(attempts=3)),
        lambda *_: SimulatedEnd(duration_s=1, outcome=outcome),
    )
    assert len(trace.spans) == 1


def test_a_refusal_does_not_count_as_an_attempt() -> None:
    ends = [Outcome.RATE_LIMITED] * 5 + [Outcome.INFRA_ERROR, Outcome.PASSED]
    trace = simulate(
        scheduler([Work(index=0)], retry=RetryPolicy(attempts=2)),
        lambda _, number: SimulatedEnd(duration_s=1, outcome=ends[number - 1]),
    )
    assert len(trace.spans) == 7
    assert trace.concluded == [0]


def test_no_retry_comes_before_the_time_that_the_service_asked_for() -> None:
    def refused_once(_: int, number: int) -> SimulatedEnd:
        if number == 1:
            return SimulatedEnd(duration_s=1, outcome=Outcome.RATE_LIMITED, retry_after=30)
        return SimulatedEnd(duration_s=1)

    trace = simulate(scheduler([Work(index=0)]), refused_once)
    assert trace.spans[1].start >= 31


def test_a_refusal_for_longer_than_a_quarter_of_an_hour_is_final() -> None:
    refused = SimulatedEnd(duration_s=1, outcome=Outcome.RATE_LIMITED, retry_after=1e9)
    trace = simulate(scheduler([Work(index=0)]), lambda *_: refused)
    assert len(trace.spans) == 1
    assert trace.concluded == [0]


def test_a_trial_that_waits_for_its_retry_holds_no_slot() -> None:
    def first_fails(index: int, number: int) -> SimulatedEnd:
        if index == 0 and number == 1:
            return SimulatedEnd(duration_s=1, outcome=Outcome.RATE_LIMITED, retry_after=50)
        return SimulatedEnd(duration_s=1)

    trace = simulate(scheduler([Work(index=i) for i in range(11)], parallel=1), first_fails)
    others = [span for span in trace.spans if span.index > 0]
    assert max(span.end for span in others) == 11


# ---- stopping


def test_after_a_stop_nothing_starts_and_the_run_ends_with_what_runs() -> None:
    trace = simulate(
        scheduler([Work(index=i) for i in range(100)]),
        lasting(
            [2.0] * 100,
        ),
        stop_at=3,
    )
    assert max(span.start for span in trace.spans) <= 3
    assert len(trace.concluded) == 8
    assert trace.over_at == 4


def test_a_stop_drops_the_trials_that_wait_for_a_retry() -> None:
    refused = SimulatedEnd(duration_s=1, outcome=Outcome.RATE_LIMITED, retry_after=100)
    trace = simulate(scheduler([Work(index=0)]), lambda *_: refused, stop_at=5)
    assert trace.over_at == 5
    assert trace.concluded == []


def test_an_end_that_would_be_tried_again_decides_nothing_after_a_stop() -> None:
    broken = SimulatedEnd(duration_s=2, outcome=Outcome.INFRA_ERROR)
    trace = simulate(scheduler([Work(index=0)]), lambda *_: broken, stop_at=1)
    assert trace.over_at == 2
    assert trace.concluded == []


def test_the_remaining_time_counts_what_must_pass_through_a_limit() -> None:
    works = [Work(index=i, expected_s=2, needs=("m=a",)) for i in range(10)]
    machine = scheduler(works, parallel=10, named={"m=a": 1})
    machine.handle(Begin(at=0))
    assert machine.remaining_s(0) == 18


def test_a_wake_that_came_late_asks_for_no_second_one() -> None:
    """Else timers would pile up: each early wake leaves a later one behind."""
    machine = scheduler([Work(index=i) for i in range(2)], parallel=2)
    machine.handle(Begin(at=0))
    late, early = (
        AttemptOver(at=1, index=0, outcome=Outcome.RATE_LIMITED, retry_after=50),
        AttemptOver(at=1, index=1, outcome=Outcome.RATE_LIMITED, retry_after=20),
    )
    asked = [one for event in (late, early) for one in machine.handle(event)]
    assert [one.at for one in asked if isinstance(one, WakeAt)] == [51, 21]
    answer = machine.handle(Tick(at=21))
    assert answer == [StartAttempt(index=1), WakeAt(at=51)]
    assert machine.handle(Tick(at=51)) == [StartAttempt(index=0)]
    assert machine.handle(Tick(at=51)) == []


def test_an_empty_plan_is_over_at_once() -> None:
    assert simulate(scheduler([]), lasting([])).over_at == 0


# ---- what must hold always


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Work], Limits, dict[tuple[int, int], SimulatedEnd], int]:
    names = ["m=a", "m=b", "n=x"]
    count = draw(st.integers(0, 40))
    seconds = st.floats(0.0, 20.0, allow_nan=False)
    works = [
        Work(
            index=index,
            needs=tuple(sorted(draw(st.sets(st.sampled_from(names), max_size=2)))),
            expected_s=draw(seconds),
        )
        for index in range(count)
    ]
    limits = Limits(
        parallel=draw(st.integers(1, 8)), named={name: draw(st.integers(1, 4)) for name in names}
    )
    ends = {
        (index, number): SimulatedEnd(
            duration_s=draw(seconds),
            outcome=draw(st.sampled_from([o for o in Outcome if o is not Outcome.SKIPPED])),
            retry_after=draw(st.sampled_from([None, 0.0, 3.0, 1e9])),
        )
        for index in range(count)
        for number in (1, 2)
    }
    return works, limits, ends, draw(st.integers(0, 5))


def play(plan: tuple[list[Work], Limits, dict[tuple[int, int], SimulatedEnd], int]) -> Trace:
    works, limits, ends, seed = plan
    fallback = SimulatedEnd(duration_s=1.0)
    machine = Scheduler(works, limits=limits, retry=RetryPolicy(), seed=seed)
    return simulate(machine, lambda index, number: ends.get((index, number), fallback))


@given(plans())
@settings(max_examples=300, deadline=None)
def test_no_limit_is_exceeded_every_trial_ends_once_and_the_run_ends(
    plan: tuple[list[Work], Limits, dict[tuple[int, int], SimulatedEnd], int],
) -> None:
    works, limits, _, _ = plan
    trace = play(plan)
    assert sorted(trace.concluded) == [work.index for work in works]
    assert trace.over_at is not None
    assert most_at_once(trace.spans) <= limits.parallel
    for name, capacity in limits.named.items():
        needing = {work.index for work in works if name in work.needs}
        assert most_at_once([span for span in trace.spans if span.index in needing]) <= capacity
    for index in {span.index for span in trace.spans}:
        mine = [span for span in trace.spans if span.index == index]
        assert all(before.end <= after.start for before, after in pairwise(mine))


@given(plans())
@settings(max_examples=100, deadline=None)
def test_the_same_seed_gives_the_same_trace(
    plan: tuple[list[Work], Limits, dict[tuple[int, int], SimulatedEnd], int],
) -> None:
    assert play(plan) == play(plan)


@given(plans())
@settings(max_examples=100, deadline=None)
def test_no_slot_stands_idle_while_a_trial_could_start(
    plan: tuple[list[Work], Limits, dict[tuple[int, int], SimulatedEnd], int],
) -> None:
    """Without failures and named limits, list scheduling keeps Graham's bound."""
    works, limits, ends, seed = plan
    free = [Work(index=work.index, expected_s=work.expected_s) for work in works]
    machine = Scheduler(free, limits=limits, retry=RetryPolicy(), seed=seed)
    lasts = [ends[work.index, 1].duration_s for work in works]
    trace = simulate(machine, lasting(lasts))
    if lasts:
        bound = max(sum(lasts) / limits.parallel, *lasts)
        assert trace.makespan_s <= (2 - 1 / limits.parallel) * bound + 1e-9


def test_a_stop_in_the_middle_leaves_the_running_ones_alone() -> None:
    machine = scheduler([Work(index=i) for i in range(3)], parallel=2)
    machine.handle(Begin(at=0))
    assert machine.handle(StopAsked(at=1)) == []
    machine.handle(AttemptOver(at=2, index=0, outcome=Outcome.PASSED))
    assert machine.handle(AttemptOver(at=3, index=1, outcome=Outcome.PASSED))[-1] == Over()


def test_the_remaining_time_is_the_work_over_the_slots_and_never_less_than_the_longest() -> None:
    machine = scheduler(works_of([10.0] * 8), parallel=4)
    machine.handle(Begin(at=0))
    assert machine.remaining_s(0) == 20
    assert machine.remaining_s(5) == 15
    assert scheduler(works_of([])).remaining_s(0) == 0


# ---- estimates


def seen(case: str, model: str, *durations: float) -> Observation:
    logs = [math.log(duration) for duration in durations]
    return Observation(
        case_id=case, variant={"model": model}, count=len(logs), mean_log_s=sum(logs) / len(logs)
    )


@pytest.mark.parametrize(
    ("durations", "expected"), [([], 180.0), ([60], 124.81), ([60] * 4, 86.53)]
)
def test_few_observations_are_pulled_towards_what_is_known_more_widely(
    durations: list[float], expected: float
) -> None:
    total = sum(math.log(duration) for duration in durations)
    mean = math.exp(shrunken_mean(math.log(180), len(durations), total))
    assert mean == pytest.approx(expected, abs=0.01)


def test_without_history_all_trials_are_expected_to_last_the_same() -> None:
    estimates = Estimates([])
    assert not estimates.known
    assert estimates.expected_s("a", {}) == estimates.expected_s("b", {"model": "x"}) == 1.0


def test_a_case_is_known_by_its_other_variants() -> None:
    estimates = Estimates([seen("long", "a", *[100] * 8), seen("short", "a", *[1] * 8)])
    assert estimates.expected_s("long", {"model": "b"}) > estimates.expected_s(
        "short", {"model": "b"}
    )


def test_a_case_never_seen_is_expected_to_be_rather_long() -> None:
    estimates = Estimates([seen(f"case-{i}", "a", *[10.0 + i] * 5) for i in range(9)])
    known = sorted(estimates.expected_s(f"case-{i}", {"model": "a"}) for i in range(9))
    assert known[4] < estimates.expected_s("new", {"model": "a"})


def test_damaged_history_is_left_out() -> None:
    broken = Observation(case_id="a", variant={}, count=1, mean_log_s=math.nan)
    assert not Estimates([broken]).known
