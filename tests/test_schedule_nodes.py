"""The nodes of a cluster in virtual time: which node takes a trial, what happens when one is lost,
and that no limit is exceeded on any of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings, strategies as st

from paraval.records import AccountLimits, AttemptLoad, Limits, MachineReading, Outcome, RetryPolicy
from paraval.schedule.messages import (
    Abandoned,
    AttemptOver,
    Begin,
    CapacityChanged,
    Conclude,
    Event,
    MachineMeasured,
    NodeJoined,
    NodeLeft,
    Over,
    RetryLater,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
    Work,
)
from paraval.schedule.scheduler import LOST_AT_MOST, Scheduler

GB = 1 << 30


ONE = Work(index=0)


def on_nodes(count: int, like: Work = ONE) -> list[Work]:
    return [like._replace(index=i, on_node=True) for i in range(count)]


def scheduler(works: Sequence[Work], limits: Limits | None = None) -> Scheduler:
    limits = limits or Limits(parallel=2)
    return Scheduler(works, limits=limits, retry=RetryPolicy(attempts=2), seed=0)


@dataclass
class Cluster:
    """Performs what the scheduler says, on nodes that come, leave and are lost."""

    works: Sequence[Work]
    limits: Limits = field(default_factory=lambda: Limits(parallel=2))
    lasts_s: Callable[[int], float] = lambda _: 1.0
    slots: dict[str, int] = field(default_factory=dict)
    """Of the nodes that have joined."""
    running: dict[int, tuple[str | None, int]] = field(default_factory=dict)
    """Trial -> its node, and the number of its attempt."""
    started: list[tuple[int, str | None]] = field(default_factory=list)
    concluded: list[int] = field(default_factory=list)
    most: Counter[str | None] = field(default_factory=Counter)
    over_at: float | None = None
    now: float = 0.0
    _agenda: list[tuple[float, int, Event, int]] = field(default_factory=list)
    _attempts: Counter[int] = field(default_factory=Counter)
    _sequence: int = 0

    def play(self, *events: Event) -> None:
        """`NodeLeft` loses the node with everything on it."""
        machine = scheduler(self.works, self.limits)
        self._expect(Begin(at=0.0))
        for event in events:
            self._expect(event)
        while self._agenda:
            self.now, _, event, number = heapq.heappop(self._agenda)
            if isinstance(event, AttemptOver):
                if self.running.get(event.index, (None, 0))[1] != number:
                    continue  # it was lost before
                del self.running[event.index]
            self._happen(machine, event)
            if isinstance(event, NodeLeft):
                self._lose(machine, event.node)

    def _happen(self, machine: Scheduler, event: Event) -> None:
        if isinstance(event, NodeJoined):
            self.slots[event.node] = event.slots
        elif isinstance(event, NodeLeft):
            self.slots.pop(event.node, None)
        for told in machine.handle(event):
            match told:
                case StartAttempt(index=index, node=node):
                    self._start(index, node)
                case WakeAt(at=at):
                    self._expect(Tick(at=at))
                case Conclude(index=index):
                    self.concluded.append(index)
                case Over():
                    self.over_at = self.now
                case _:
                    pass

    def _start(self, index: int, node: str | None) -> None:
        assert index not in self.running
        assert (node is not None) == self.works[index].on_node
        if node is not None:
            assert node in self.slots, "a node that has left takes no more"
        self._attempts[index] += 1
        self.running[index] = node, self._attempts[index]
        self.started.append((index, node))
        self.most[node] = max(self.most[node], self._on(node))
        assert self._on(node) <= (self.limits.parallel if node is None else self.slots[node])
        end = AttemptOver(at=self.now + self.lasts_s(index), index=index, outcome=Outcome.PASSED)
        self._expect(end, self._attempts[index])

    def _lose(self, machine: Scheduler, node: str) -> None:
        for index in [index for index, (on, _) in self.running.items() if on == node]:
            del self.running[index]
            self._happen(
                machine,
                AttemptOver(at=self.now, index=index, outcome=Outcome.INFRA_ERROR, is_lost=True),
            )

    def _on(self, node: str | None) -> int:
        return sum(on == node for on, _ in self.running.values())

    def _expect(self, event: Event, number: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._agenda, (event.at, self._sequence, event, number))


# ---- where


def test_trials_for_nodes_wait_until_one_joins() -> None:
    cluster = Cluster(on_nodes(3))
    cluster.play(NodeJoined(at=10.0, node="a", slots=1))
    assert cluster.started == [(0, "a"), (1, "a"), (2, "a")]
    assert cluster.over_at == 13.0


def test_a_node_that_joins_before_the_run_begins_takes_trials_when_it_does() -> None:
    machine = scheduler(on_nodes(2))
    assert machine.handle(NodeJoined(at=0.0, node="a", slots=1)) == []
    assert machine.handle(Begin(at=1.0)) == [StartAttempt(index=0, node="a")]


def test_trials_are_spread_over_the_nodes_the_roomiest_first() -> None:
    cluster = Cluster(on_nodes(6))
    joined = [NodeJoined(at=0.0, node=node, slots=slots) for node, slots in (("b", 2), ("a", 4))]
    machine = scheduler(on_nodes(6))
    for event in joined:
        machine.handle(event)
    told = machine.handle(Begin(at=0.0))
    assert [one.node for one in told if isinstance(one, StartAttempt)] == [*"aa", *"baba"]
    cluster.play(*joined)
    assert cluster.over_at == 1.0


def test_nodes_take_nothing_of_this_machines_slots_nor_the_other_way_round() -> None:
    works = [Work(index=i, on_node=i % 2 == 0) for i in range(40)]
    cluster = Cluster(works)
    cluster.play(*[NodeJoined(at=0.0, node=node, slots=3) for node in "abc"])
    assert cluster.most == {None: 2, "a": 3, "b": 3, "c": 3}
    assert cluster.over_at == 10.0


def test_named_limits_and_accounts_count_over_all_nodes() -> None:
    works = on_nodes(60, ONE._replace(needs=("mode=x",)))
    cluster = Cluster(works, Limits(parallel=2, named={"mode=x": 4}))
    cluster.play(*[NodeJoined(at=0.0, node=node, slots=10) for node in "abc"])
    assert cluster.over_at == 15.0
    works = on_nodes(60, ONE._replace(needs=("account:x",)))
    known = AccountLimits(concurrent=20)
    cluster = Cluster(works, Limits(parallel=2, accounts={"account:x": known}))
    cluster.play(*[NodeJoined(at=0.0, node=node, slots=10) for node in "abc"])
    assert cluster.over_at == 3.0


def test_an_account_of_unknown_limits_may_use_all_nodes() -> None:
    works = on_nodes(60, ONE._replace(needs=("account:x",)))
    cluster = Cluster(works, Limits(parallel=1))
    cluster.play(*[NodeJoined(at=0.0, node=node, slots=10) for node in "ab"])
    # The first of them don't start at the same moment.
    assert cluster.over_at is not None
    assert 3.0 <= cluster.over_at <= 3.1


def test_an_exclusive_trial_on_a_node_runs_beside_nothing_anywhere() -> None:
    works = [*on_nodes(4), *(Work(index=i) for i in range(4, 6))]
    works[0] = works[0]._replace(exclusive=True)
    machine = scheduler(works)
    machine.handle(NodeJoined(at=0.0, node="a", slots=2))
    machine.handle(NodeJoined(at=0.0, node="b", slots=2))
    first = [one.index for one in machine.handle(Begin(at=0.0)) if isinstance(one, StartAttempt)]
    assert sorted(first) == [1, 2, 3, 4, 5]
    told = [
        machine.handle(AttemptOver(at=1.0, index=index, outcome=Outcome.PASSED)) for index in first
    ]
    assert not any(isinstance(one, StartAttempt) for each in told[:-1] for one in each)
    assert StartAttempt(index=0, node="a") in told[-1]


def test_the_remaining_time_counts_the_slots_of_all_nodes() -> None:
    machine = scheduler(on_nodes(40, ONE._replace(expected_s=10.0)))
    machine.handle(Begin(at=0.0))
    for node in "ab":
        machine.handle(NodeJoined(at=0.0, node=node, slots=5))
    assert machine.remaining_s(0.0) == 40.0
    machine.handle(NodeLeft(at=0.0, node="a"))
    assert machine.remaining_s(0.0) == 80.0


# ---- nodes that are lost


def test_a_lost_attempt_is_given_out_again_and_does_not_count() -> None:
    cluster = Cluster(on_nodes(8), lasts_s=lambda _: 10.0)
    cluster.play(
        NodeJoined(at=0.0, node="a", slots=4),
        NodeJoined(at=0.0, node="b", slots=4),
        NodeLeft(at=5.0, node="a"),
    )
    assert sorted(cluster.concluded) == list(range(8))
    assert Counter(node for _, node in cluster.started) == {"a": 4, "b": 8}


def test_a_trial_that_keeps_losing_its_node_is_an_error_in_the_end() -> None:
    machine = scheduler(on_nodes(1))
    machine.handle(NodeJoined(at=0.0, node="a", slots=1))
    machine.handle(Begin(at=0.0))
    ends: list[type[object]] = []
    for number in range(1, 9):
        at = 10.0 * number
        lost = AttemptOver(at=at, index=0, outcome=Outcome.INFRA_ERROR, is_lost=True)
        ends += [
            type(one) for one in machine.handle(lost) if isinstance(one, RetryLater | Conclude)
        ]
        machine.handle(Tick(at=at + 5.0))
        if Conclude in ends:
            break
    # Two attempts are allowed; one of them is the first that counts.
    assert ends == [RetryLater] * (LOST_AT_MOST + 1) + [Conclude]


def test_a_node_that_comes_back_under_its_name_first_ends_what_it_had() -> None:
    machine = scheduler(on_nodes(4))
    machine.handle(NodeJoined(at=0.0, node="a", slots=2))
    machine.handle(Begin(at=0.0))
    assert machine.handle(NodeLeft(at=1.0, node="a")) == []
    assert machine.handle(NodeJoined(at=2.0, node="a", slots=3)) == [
        StartAttempt(index=2, node="a")
    ]
    assert machine.handle(Abandoned(at=3.0, index=0)) == [StartAttempt(index=3, node="a")]
    machine.handle(NodeLeft(at=4.0, node="a"))
    for index in (1, 2, 3):
        assert machine.handle(AttemptOver(at=5.0, index=index, outcome=Outcome.PASSED))
    machine.handle(NodeJoined(at=6.0, node="a", slots=1))


def test_after_a_stop_a_lost_attempt_is_left_for_a_resume() -> None:
    machine = scheduler(on_nodes(1))
    machine.handle(NodeJoined(at=0.0, node="a", slots=1))
    machine.handle(Begin(at=0.0))
    machine.handle(StopAsked(at=1.0))
    lost = AttemptOver(at=2.0, index=0, outcome=Outcome.INFRA_ERROR, is_lost=True)
    assert [type(one) for one in machine.handle(lost)] == [RetryLater, Over]


# ---- the machine of each node, with limits `auto`


def reading(busy_cpus: float, indices: Sequence[int], cpus: float = 4.0) -> MachineReading:
    return MachineReading(
        cpus=cpus,
        busy_cpus=busy_cpus,
        memory_bytes=64 * GB,
        memory_available=60 * GB,
        attempts={index: AttemptLoad(cpus=1.0, memory_bytes=1 << 20) for index in indices},
    )


def test_each_node_has_a_gate_of_its_own() -> None:
    """One is busy with other people's work and takes one at a time; the other takes what fits."""
    machine = scheduler(on_nodes(30, ONE._replace(kind="k")), Limits(parallel=10, auto=True))
    on: dict[int, str | None] = {}
    news: list[CapacityChanged] = []

    def happen(event: Event) -> None:
        for told in machine.handle(event):
            if isinstance(told, StartAttempt):
                on[told.index] = told.node
            elif isinstance(told, CapacityChanged):
                news.append(told)

    for node in ("busy", "idle"):
        happen(NodeJoined(at=0.0, node=node, slots=10))
    happen(Begin(at=0.0))
    for step in range(1, 30):
        at = 0.1 * step
        for node, others in (("busy", 4.0), ("idle", 0.0)):
            mine = [index for index, its in on.items() if its == node]
            happen(
                MachineMeasured(
                    at=at, reading=reading(min(4.0, others + len(mine)), mine), node=node
                )
            )
    assert Counter(on.values()) == {"busy": 1, "idle": 4}
    last = {one.node: one for one in news}
    assert last["busy"] == CapacityChanged(at_once=1, wanted=10, held_by="cpu", node="busy")
    assert last["idle"] == CapacityChanged(at_once=4, wanted=10, held_by="cpu", node="idle")


def test_readings_of_a_node_that_has_left_count_for_nothing() -> None:
    machine = scheduler(on_nodes(2), Limits(parallel=4, auto=True))
    machine.handle(Begin(at=0.0))
    assert machine.handle(MachineMeasured(at=1.0, reading=None, node="gone")) == []


# ---- what must hold always


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Work], Limits, list[Event]]:
    works = [
        Work(
            index=index,
            needs=draw(st.sampled_from([(), ("mode=x",), ("account:a",), ("account:a", "mode=x")])),
            expected_s=draw(st.sampled_from([0.5, 1.0, 4.0])),
            exclusive=draw(st.integers(0, 9)) == 0,
            on_node=draw(st.booleans()),
        )
        for index in range(draw(st.integers(0, 30)))
    ]
    limits = Limits(
        parallel=draw(st.integers(1, 4)),
        auto=draw(st.booleans()),
        named={"mode=x": 2},
        accounts={"account:a": AccountLimits(concurrent=3)},
    )
    moments = st.sampled_from([0.0, 0.5, 1.0, 2.5, 4.0, 7.0, 9.5])
    events: list[Event] = []
    for node in "abc":
        for _ in range(draw(st.integers(0, 3))):
            slots = draw(st.integers(1, 3))
            events.append(NodeJoined(at=draw(moments), node=node, slots=slots))
            events.append(NodeLeft(at=draw(moments), node=node))
            events.append(MachineMeasured(at=draw(moments), reading=None, node=node))
    # One that stays, so that the run can end.
    events.append(NodeJoined(at=10.0, node="last", slots=2))
    return works, limits, events


@given(clusters())
@settings(max_examples=200, deadline=None)
def test_whatever_joins_and_is_lost_every_trial_ends_once_and_no_limit_is_exceeded(
    plan: tuple[list[Work], Limits, list[Event]],
) -> None:
    works, limits, events = plan

    class Watched(Cluster):
        def _start(self, index: int, node: str | None) -> None:
            super()._start(index, node)
            for need, most in (("mode=x", 2), ("account:a", 3)):
                assert sum(need in works[i].needs for i in self.running) <= most
            if any(works[i].exclusive for i in self.running):
                assert len(self.running) == 1

    cluster = Watched(works, limits, lambda index: works[index].expected_s)
    cluster.play(*events)
    assert sorted(cluster.concluded) == [work.index for work in works]
    assert cluster.over_at is not None
    assert not cluster.running


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_equal_nodes_get_equal_numbers(nodes: int, slots: int, trials: int) -> None:
    cluster = Cluster(on_nodes(trials))
    cluster.play(*[NodeJoined(at=-1.0, node=f"n{i}", slots=slots) for i in range(nodes)])
    taken = [sum(on == f"n{i}" for _, on in cluster.started) for i in range(nodes)]
    first = cluster.started[: nodes * slots]
    at_first = Counter(on for _, on in first)
    assert sum(taken) == trials
    assert max(at_first.values()) - min(at_first.get(f"n{i}", 0) for i in range(nodes)) <= 1
