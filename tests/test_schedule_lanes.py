"""Very many lanes: a start costs the same however many there are, nothing that could start waits,
and the order stays good though urgencies are not computed at every start."""

from __future__ import annotations

import heapq
import time
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import AccountLimits, Limits, Outcome, RetryPolicy
from paraval.schedule import capacities
from paraval.schedule.messages import (
    AttemptOver,
    Begin,
    Conclude,
    Event,
    NodeJoined,
    StartAttempt,
    Tick,
    WakeAt,
    Work,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import SimulatedEnd, bounds, simulate

RETRY = RetryPolicy()


def cpu_per_trial(works: list[Work], limits: Limits) -> float:
    """Seconds of the scheduler's own."""
    machine = Scheduler(works, limits=limits, retry=RETRY, seed=0)
    agenda: list[tuple[float, int, Event]] = [(0.0, -1, Begin(at=0.0))]
    cpu_s, done = 0.0, 0
    while agenda:
        now, _, event = heapq.heappop(agenda)
        began = time.thread_time()
        told = machine.handle(event)
        cpu_s += time.thread_time() - began
        for one in told:
            if isinstance(one, StartAttempt):
                at = now + 20.0 + one.index % 17
                end = AttemptOver(at=at, index=one.index, outcome=Outcome.PASSED)
                heapq.heappush(agenda, (at, one.index, end))
            elif isinstance(one, WakeAt):
                heapq.heappush(agenda, (one.at, -1, Tick(at=one.at)))
            else:
                done += isinstance(one, Conclude)
    assert done == len(works)
    return cpu_s / len(works)


@pytest.mark.parametrize("shared", ["", "account:judge", "mode=x"])
def test_a_thousand_accounts_cost_little_more_than_twenty(shared: str) -> None:
    """Each alone, or all with an account or a limit in common that is always full."""

    def figure(accounts: int) -> float:
        also = (shared,) if shared else ()
        works = [
            Work(index=i, expected_s=30.0, needs=(f"account:{i % accounts}", *also))
            for i in range(4000)
        ]
        limits = Limits(
            parallel=400,
            named={"mode=x": 200},
            accounts={"account:judge": AccountLimits(concurrent=200)},
        )
        return cpu_per_trial(works, limits)

    # Looking over all lanes at each start would make it about fifty times as much.
    assert figure(1000) < 4.0 * figure(20)


def test_among_many_lanes_the_narrowest_limits_are_still_kept_busy() -> None:
    works = [
        Work(index=i, expected_s=1.0 + i % 5, needs=(f"m={i % 60}", f"account:{i % 60}"))
        for i in range(3000)
    ]
    limits = Limits(
        parallel=64,
        named={f"m={i}": 1 + i % 4 for i in range(60)},
        accounts={f"account:{i}": AccountLimits(requests_per_minute=30.0) for i in range(60)},
    )
    machine = Scheduler(works, limits=limits, retry=RETRY, seed=0)
    trace = simulate(machine, lambda index, _: SimulatedEnd(duration_s=works[index].expected_s))
    assert len(trace.concluded) == 3000
    assert trace.makespan_s <= 1.1 * bounds(works, limits)[0].seconds


NAMES = [*(f"m={i}" for i in range(4)), *(f"account:{i}" for i in range(4))]
CAPACITY = {name: 1 + place % 3 for place, name in enumerate(NAMES)}


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(NAMES), max_size=3),
            st.sampled_from([0.5, 1.0, 3.0]),
            st.booleans(),
            st.integers(0, 12),
        ),
        max_size=50,
    ),
    st.integers(1, 6),
    st.sampled_from([1, 2, 8]),
)
@settings(max_examples=250, deadline=None)
def test_nothing_waits_that_could_start(
    trials: list[tuple[set[str], float, bool, int]], parallel: int, exact_up_to: int
) -> None:
    """Whatever held it up, and however many others that held up, too."""
    works = [
        Work(index=i, needs=tuple(sorted(needs)), expected_s=seconds, on_node=on_node)
        for i, (needs, seconds, on_node, _) in enumerate(trials)
    ]
    limits = Limits(
        parallel=parallel,
        named={name: CAPACITY[name] for name in NAMES if name.startswith("m=")},
        accounts={
            name: AccountLimits(concurrent=CAPACITY[name])
            for name in NAMES
            if name.startswith("account:")
        },
    )
    slots = {None: parallel, "a": 0, "b": 0}
    waiting, running, agenda = set(range(len(works))), dict[int, str | None](), list[Event]()
    agenda += [NodeJoined(at=0.25, node="a", slots=1), NodeJoined(at=4.0, node="b", slots=2)]
    agenda.append(Begin(at=0.0))

    def could_start(index: int) -> bool:
        taken = [need for one in running for need in works[one].needs]
        nodes = [node for node in slots if (node is not None) == works[index].on_node]
        room = any(slots[node] > list(running.values()).count(node) for node in nodes)
        return room and all(taken.count(need) < CAPACITY[need] for need in works[index].needs)

    with patch.object(capacities, "EXACT_UP_TO", exact_up_to):
        machine = Scheduler(works, limits=limits, retry=RETRY, seed=0)
        while agenda:
            event = min(agenda, key=lambda one: one.at)
            agenda.remove(event)
            if isinstance(event, NodeJoined):
                slots[event.node] = event.slots
            elif isinstance(event, AttemptOver):
                del running[event.index]
            for told in machine.handle(event):
                if isinstance(told, StartAttempt):
                    waiting.remove(told.index)
                    running[told.index] = told.node
                    at = event.at + 1.0 + trials[told.index][3]
                    end = AttemptOver(at=at, index=told.index, outcome=Outcome.PASSED)
                    agenda.append(end)
                elif isinstance(told, WakeAt):
                    agenda.append(Tick(at=told.at))
            assert not any(could_start(index) for index in waiting)
    assert not waiting


def test_all_that_an_account_lets_through_starts_when_a_wake_comes_late() -> None:
    """Thirty lanes with an account of ten requests per second in common."""
    works = [Work(index=i, needs=("account:a", f"case={i}")) for i in range(30)]
    limits = Limits(parallel=100, accounts={"account:a": AccountLimits(requests_per_minute=600.0)})
    machine = Scheduler(works, limits=limits, retry=RETRY, seed=0)

    def started(event: Event) -> int:
        return sum(isinstance(one, StartAttempt) for one in machine.handle(event))

    assert started(Begin(at=0.0)) == 2, "a fifth of a second's worth at a time"
    assert started(Tick(at=1.0)) == 2
    assert started(Tick(at=1.05)) == 0
    assert started(Tick(at=1.15)) == 1
    assert started(Tick(at=1.25)) == 1
