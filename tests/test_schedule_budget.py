"""The budget: reserved before, settled after, and passed by no more than estimates were wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import Budget, Limits, Outcome, RetryPolicy
from paraval.schedule.budget import BudgetState, Cost
from paraval.schedule.messages import (
    Abandoned,
    AttemptOver,
    Begin,
    Conclude,
    Instruction,
    Over,
    Skip,
    StartAttempt,
    Work,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import SimulatedEnd, simulate


def scheduler(
    works: Sequence[Work], usd: float, *, parallel: int = 4, spent_usd: float = 0.0
) -> Scheduler:
    return Scheduler(
        works,
        limits=Limits(parallel=parallel),
        retry=RetryPolicy(),
        seed=0,
        budget=Budget(usd=usd),
        spent_usd=spent_usd,
    )


def trials(count: int, cost_usd: float | None = 1.0) -> list[Work]:
    return [Work(index=index, cost_usd=cost_usd) for index in range(count)]


def costing(usd: float) -> Work:
    return Work(index=0, cost_usd=usd)


def started(instructions: Sequence[Instruction]) -> list[int]:
    return [one.index for one in instructions if isinstance(one, StartAttempt)]


def skipped(instructions: Sequence[Instruction]) -> list[int]:
    return [one.index for one in instructions if isinstance(one, Skip)]


def ended(at: float, index: int, cost_usd: float | None) -> AttemptOver:
    return AttemptOver(at=at, index=index, outcome=Outcome.PASSED, cost_usd=cost_usd)


def test_attempts_that_cost_nothing_teach_nothing_of_what_the_others_cost() -> None:
    """A server that refuses eight times must not make the ninth look free."""
    purse = BudgetState(Budget(usd=5.0), 0.0)
    for _ in range(60):
        purse.settle(costing(1.0), purse.reserve(costing(1.0)), Cost(0.0))
    assert purse.fits(costing(1.0))
    assert not purse.fits(costing(5.1))
    for _ in range(4):
        purse.reserve(costing(1.0))
    assert not purse.fits(costing(1.1))


def test_one_models_short_answers_say_nothing_of_anothers() -> None:
    works = [Work(index=i, needs=("model:short",), cost_usd=1.0) for i in range(20)]
    works += [Work(index=20 + i, needs=("model:long",), cost_usd=1.0) for i in range(20)]
    machine = scheduler(works, usd=6.0, parallel=10)
    trace = simulate(
        machine,
        lambda index, _: SimulatedEnd(
            duration_s=0.1 if index < 20 else 5.0, cost_usd=0.004 if index < 20 else 1.0
        ),
    )
    assert machine._purse is not None
    assert machine._purse.spent_usd <= 6.0
    assert len(trace.concluded) + len(trace.skipped) == 40


def test_what_programs_cost_is_learned_where_nobody_said_it() -> None:
    """The first ones start on trust; then the rest reserve what such cost."""
    works = [Work(index=index, cost_usd=None) for index in range(40)]
    machine = scheduler(works, usd=5.0, parallel=2)
    trace = simulate(machine, lambda _index, _number: SimulatedEnd(duration_s=1.0, cost_usd=1.0))
    assert machine._purse is not None
    assert machine._purse.spent_usd <= 5.0
    assert len(trace.skipped) == 35


def test_what_is_in_flight_counts_before_it_is_billed() -> None:
    machine = scheduler(trials(10), usd=2.5)
    assert started(machine.handle(Begin(at=0))) == [0, 1]


def test_what_does_not_fit_waits_for_what_runs_and_starts_when_that_was_cheaper() -> None:
    machine = scheduler(trials(4), usd=2.5)
    machine.handle(Begin(at=0))
    answer = machine.handle(ended(1, 0, 0.25))
    assert answer == [Conclude(index=0), StartAttempt(index=2)]


def test_the_rest_is_skipped_when_nothing_runs_that_could_turn_out_cheaper() -> None:
    machine = scheduler(trials(5), usd=2.5)
    machine.handle(Begin(at=0))
    assert skipped(machine.handle(ended(1, 0, 1.0))) == []
    answer = machine.handle(ended(2, 1, 1.0))
    reason = "budget of $2.50 reached"
    assert answer == [
        Conclude(index=1),
        *(Skip(index=index, reason=reason) for index in (2, 3, 4)),
        Over(),
    ]


def test_trials_that_cost_nothing_go_on() -> None:
    works = [Work(index=i, cost_usd=1.0 if i % 2 == 0 else 0.0) for i in range(10)]
    trace = simulate(
        scheduler(works, usd=1.5, parallel=1),
        lambda index, _: SimulatedEnd(duration_s=1, cost_usd=works[index].cost_usd),
    )
    assert sorted(trace.concluded) == [0, 1, 3, 5, 7, 9]
    assert sorted(skip.index for skip in trace.skipped) == [2, 4, 6, 8]


def test_a_dear_trial_that_never_fits_does_not_keep_cheap_ones_from_running() -> None:
    works = [Work(index=0, cost_usd=9.0, expected_s=9.0), *trials(3)[1:]]
    trace = simulate(scheduler(works, usd=5.0), lambda *_: SimulatedEnd(duration_s=1, cost_usd=1.0))
    assert trace.concluded == [1, 2]
    assert [skip.index for skip in trace.skipped] == [0]


def test_a_budget_that_was_spent_before_a_resume_lets_nothing_start() -> None:
    answer = scheduler(trials(3), usd=5.0, spent_usd=4.98).handle(Begin(at=0))
    assert skipped(answer) == [0, 1, 2]
    assert answer[-1] == Over()
    assert answer[0] == Skip(index=0, reason="budget of $5.00 reached")


def test_an_unknown_cost_is_taken_to_be_what_was_reserved() -> None:
    trace = simulate(scheduler(trials(10), usd=3.0), lambda *_: SimulatedEnd(duration_s=1))
    assert len(trace.concluded) == 3


def test_what_was_called_off_may_have_been_billed() -> None:
    machine = scheduler(trials(3), usd=1.0, parallel=1)
    machine.handle(Begin(at=0))
    assert skipped(machine.handle(Abandoned(at=1, index=0))) == [1, 2]


def test_each_attempt_is_paid_for_also_one_that_decides_nothing() -> None:
    broken = SimulatedEnd(duration_s=1, outcome=Outcome.INFRA_ERROR, cost_usd=1.0)
    trace = simulate(scheduler(trials(1), usd=2.0), lambda *_: broken)
    assert len(trace.spans) == 2
    assert [skip.index for skip in trace.skipped] == [0]


def test_estimates_are_corrected_by_what_attempts_really_cost() -> None:
    """Thought to cost a dollar, they cost a tenth: after five, ten times as many fit."""
    trace = simulate(
        scheduler(trials(200), usd=10.0, parallel=50),
        lambda *_: SimulatedEnd(duration_s=1, cost_usd=0.1),
    )
    assert 98 <= len(trace.concluded) <= 100


def test_estimates_that_are_too_low_are_corrected_upwards() -> None:
    """Thought to cost a cent, they cost a dollar."""
    trace = simulate(
        scheduler(trials(200, cost_usd=0.01), usd=20.0, parallel=5),
        lambda *_: SimulatedEnd(duration_s=1, cost_usd=1.0),
    )
    assert len(trace.concluded) == 20


def test_a_budget_is_used_to_its_last_cent() -> None:
    """Ten times 0.1 is not quite 1 in floats."""
    trace = simulate(
        scheduler(trials(10, cost_usd=0.1), usd=1.0),
        lambda *_: SimulatedEnd(duration_s=1, cost_usd=0.1),
    )
    assert len(trace.concluded) == 10


@pytest.mark.parametrize("told", [float("nan"), float("inf"), -1.0])
def test_a_senseless_cost_is_an_unknown_one(told: float) -> None:
    purse = BudgetState(Budget(usd=5.0), 0.0)
    purse.settle(costing(2.0), purse.reserve(costing(2.0)), Cost(told))
    assert purse.spent_usd == 2.0


def test_what_is_known_of_an_unknown_cost_counts() -> None:
    """Agents that told $0.40 and were then ended at their timeout have spent at least that."""
    trace = simulate(
        scheduler(trials(6, cost_usd=None), usd=1.0, parallel=1),
        lambda *_: SimulatedEnd(duration_s=1, cost_usd=None, at_least_usd=0.4),
    )
    assert len(trace.concluded) == 2
    assert len(trace.skipped) == 4


# ---- what must hold always


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 4)), max_size=60),
    st.floats(0.01, 20),
    st.integers(1, 12),
    st.integers(0),
)
@settings(max_examples=200, deadline=None)
def test_a_budget_is_passed_by_no_more_than_the_error_of_what_was_in_flight(
    costs: list[tuple[float, float]], usd: float, parallel: int, seed: int
) -> None:
    """(thought, really) for each trial; those that are thought to be free are."""
    chance = random.Random(seed)
    works = [Work(index=i, cost_usd=thought) for i, (thought, _) in enumerate(costs)]
    machine = scheduler(works, usd, parallel=parallel)
    purse = machine._purse
    assert purse is not None
    reserved: dict[int, float] = {}

    def imagine(index: int, _: int) -> SimulatedEnd:
        thought, really = costs[index]
        if thought > 0:
            assert purse.spent_usd + purse.reserved_usd <= usd + 1e-6
            reserved[index] = purse._expected_usd(works[index])
        return SimulatedEnd(
            duration_s=chance.choice([0.0, 1.0, 2.5]), cost_usd=really if thought > 0 else 0.0
        )

    trace = simulate(machine, imagine)
    assert len(trace.concluded) + len(trace.skipped) == len(works)
    assert trace.over_at is not None
    paid = [span for span in trace.spans if span.index in reserved]
    last = max((span.start for span in paid), default=0.0)
    errors = (costs[span.index][1] - reserved[span.index] for span in paid if span.end >= last)
    assert purse.spent_usd <= usd + sum(max(0.0, error) for error in errors) + 1e-6
