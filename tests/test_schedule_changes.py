"""The scheduler in virtual time, while users change its limits, its budget and its trials."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings, strategies as st

from paraval.records import Budget, Limits, Outcome, RetryPolicy
from paraval.schedule.messages import (
    BUDGET,
    RETRY,
    SLOT,
    AttemptOver,
    Begin,
    BudgetChanged,
    Canceled,
    Conclude,
    Event,
    Instruction,
    MachineMeasured,
    NodeJoined,
    NodeLeft,
    Over,
    ParallelChanged,
    RetryLater,
    Skip,
    StartAttempt,
    Tick,
    WakeAt,
    Work,
)
from paraval.schedule.scheduler import Scheduler

ON_NODE = 5
"""Slots that a node joins with."""


def scheduler(works: list[Work], parallel: int = 2, usd: float | None = None) -> Scheduler:
    return Scheduler(
        works,
        limits=Limits(parallel=parallel, named={"m=a": 2}),
        retry=RetryPolicy(),
        seed=0,
        budget=None if usd is None else Budget(usd=usd),
    )


def starts(instructions: list[Instruction]) -> list[int]:
    return [one.index for one in instructions if isinstance(one, StartAttempt)]


def passed(at: float, index: int, cost_usd: float = 0.0) -> AttemptOver:
    return AttemptOver(at=at, index=index, outcome=Outcome.PASSED, cost_usd=cost_usd)


def test_a_higher_number_starts_more_and_a_lower_one_lets_the_running_ones_finish() -> None:
    machine = scheduler([Work(index=index) for index in range(8)])
    assert starts(machine.handle(Begin(at=0))) == [0, 1]
    assert machine.standing(0).waiting == {SLOT: 6}
    assert starts(machine.handle(ParallelChanged(at=1, parallel=4, auto=False))) == [2, 3]
    assert machine.handle(ParallelChanged(at=2, parallel=1, auto=False)) == []
    assert machine.standing(2).allowed == 1
    for index in range(3):
        assert starts(machine.handle(passed(3, index))) == []
    assert starts(machine.handle(passed(4, 3))) == [4]


def test_a_trial_that_waits_rests_or_runs_is_canceled_once_and_for_good() -> None:
    machine = scheduler([Work(index=index) for index in range(4)])
    machine.handle(Begin(at=0))
    (skip,) = machine.handle(Canceled(at=1, index=3, reason="canceled"))
    assert skip == Skip(index=3, reason="canceled", final=True)
    assert machine.handle(Canceled(at=1, index=3, reason="canceled")) == []
    retried = AttemptOver(at=2, index=0, outcome=Outcome.INFRA_ERROR, retry_after=9.0)
    assert any(isinstance(one, RetryLater) for one in machine.handle(retried))
    assert machine.standing(2).waiting == {RETRY: 1}
    skips = machine.handle(Canceled(at=3, index=0, reason="canceled"))
    assert skips == [Skip(index=0, reason="canceled", final=True)]
    machine.handle(passed(4, 1))
    skipped, over = machine.handle(Canceled(at=5, index=2, reason="canceled"))
    assert skipped == Skip(index=2, reason="canceled", final=True)
    assert over == Over()


def test_a_higher_budget_starts_what_waits_for_it_and_a_lower_one_skips_the_rest() -> None:
    machine = scheduler([Work(index=index, cost_usd=1.0) for index in range(6)], 4, usd=2.0)
    assert starts(machine.handle(Begin(at=0))) == [0, 1]
    assert machine.standing(0).waiting == {BUDGET: 4}
    assert starts(machine.handle(BudgetChanged(at=1, usd=3.5, spent_usd=0.0))) == [2]
    assert machine.handle(BudgetChanged(at=1, usd=1.0, spent_usd=0.0)) == []
    for index in range(2):
        assert machine.handle(passed(2, index, 1.0)) == [Conclude(index=index)]
    skips = machine.handle(passed(3, 2, 1.0))
    reasons = [one.reason for one in skips if isinstance(one, Skip)]
    assert reasons == ["budget of $1.00 reached"] * 3


def test_a_run_without_a_budget_gets_one_and_keeps_it() -> None:
    machine = scheduler([Work(index=index) for index in range(6)])
    machine.handle(Begin(at=0))
    machine.handle(BudgetChanged(at=1, usd=5.0, spent_usd=1.0))
    assert starts(machine.handle(passed(2, 0, 2.0))) == [2]
    # 3 of 5 are spent, and each may cost 2, as the last one did.
    assert starts(machine.handle(passed(3, 1, 2.0))) == []
    skips = [one for one in machine.handle(passed(4, 2, 2.0)) if isinstance(one, Skip)]
    assert [one.index for one in skips] == [3, 4, 5]


def test_a_machine_that_begins_to_be_measured_knows_what_runs_on_it() -> None:
    machine = scheduler([Work(index=index) for index in range(12)])
    machine.handle(Begin(at=0))
    assert starts(machine.handle(ParallelChanged(at=1, parallel=10, auto=True))) == []
    # It cannot be measured: 4 in parallel, those that run included.
    assert starts(machine.handle(MachineMeasured(at=2, reading=None))) == [2, 3]
    assert starts(machine.handle(ParallelChanged(at=3, parallel=5, auto=False))) == [4]


# ---- what must hold always


@dataclass
class Play:
    """A run in virtual time, which checks every start."""

    machine: Scheduler
    works: list[Work]
    seconds: list[float]
    usd: float | None
    parallel: int
    on_node: int = ON_NODE
    agenda: list[tuple[float, int, int, Event]] = field(default_factory=list)
    running: dict[int, str | None] = field(default_factory=dict)
    numbers: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)
    spent_usd: float = 0.0
    is_over: bool = False

    expected: int = 0

    def expect(self, event: Event, number: int = 0) -> None:
        self.expected += 1
        heapq.heappush(self.agenda, (event.at, self.expected, number, event))

    def to_its_end(self) -> None:
        while self.agenda:
            _, _, number, event = heapq.heappop(self.agenda)
            match event:
                case AttemptOver() if number != self.numbers[event.index]:
                    continue  # It was canceled.
                case AttemptOver():
                    self._end(event.index)
                case Canceled() if event.index in self.running:
                    self._end(event.index)
                    self.numbers[event.index] += 1
                case ParallelChanged():
                    self.parallel = event.parallel
                    self.on_node = min(event.parallel, ON_NODE)
                case BudgetChanged():
                    self.usd = event.usd
            for instruction in self.machine.handle(event):
                self._perform(instruction, event.at)

    def _perform(self, instruction: Instruction, now: float) -> None:
        match instruction:
            case StartAttempt(index=index, node=node):
                self._start(index, node, now)
            case Conclude(index=index) | Skip(index=index):
                self.ended[index] += 1
            case WakeAt(at=at):
                self.expect(Tick(at=at))
            case Over():
                self.is_over = True

    def _end(self, index: int) -> None:
        del self.running[index]
        self.spent_usd += self.works[index].cost_usd or 0.0

    def _start(self, index: int, node: str | None, now: float) -> None:
        beside = sum(where == node for where in self.running.values())
        assert beside < (self.parallel if node is None else self.on_node)
        assert (node is not None) is self.works[index].on_node
        assert self.ended[index] == 0
        self.running[index] = node
        self.numbers[index] += 1
        if self.usd is not None and self.works[index].cost_usd:
            reserved = sum(self.works[one].cost_usd or 0.0 for one in self.running)
            assert self.spent_usd + reserved <= self.usd + 1e-9
        number = self.numbers[index]
        again = number == 1 and index % 5 == 4
        self.expect(
            AttemptOver(
                at=now + self.seconds[index],
                index=index,
                outcome=Outcome.INFRA_ERROR if again else Outcome.PASSED,
                cost_usd=self.works[index].cost_usd,
            ),
            number,
        )


@st.composite
def plays(draw: st.DrawFn) -> Play:
    count = draw(st.integers(1, 25))
    has_budget = draw(st.booleans())
    works = [
        Work(
            index=index,
            needs=draw(st.sampled_from([(), ("m=a",)])),
            cost_usd=draw(st.sampled_from([0.0, 1.0])) if has_budget else 0.0,
            exclusive=draw(st.integers(0, 9)) == 0,
            on_node=draw(st.booleans()),
        )
        for index in range(count)
    ]
    usd = float(draw(st.integers(0, 12))) if has_budget else None
    parallel = draw(st.integers(1, 6))
    seconds = [draw(st.floats(0.0, 10.0)) for _ in works]
    play = Play(scheduler(works, parallel, usd), works, seconds, usd, parallel)
    play.expect(Begin(at=0))
    for node in ("a", "b"):
        play.expect(NodeJoined(at=draw(st.floats(0.0, 5.0)), node=node, slots=ON_NODE))
    when, numbers = st.floats(0.0, 40.0), st.integers(1, 9)
    for _ in range(draw(st.integers(0, 5))):
        at, auto = draw(when), draw(st.booleans())
        play.expect(ParallelChanged(at=at, parallel=draw(numbers), auto=auto))
        play.expect(MachineMeasured(at=at + 0.1, reading=None))
    for index in draw(st.lists(st.integers(0, count - 1), max_size=5)):
        play.expect(Canceled(at=draw(when), index=index, reason="canceled"))
    if has_budget:
        for usd in draw(st.lists(st.integers(0, 20), max_size=3)):
            play.expect(BudgetChanged(at=draw(when), usd=float(usd), spent_usd=0.0))
    if draw(st.booleans()):
        play.expect(NodeLeft(at=draw(when), node="b"))
    return play


@given(plays())
@settings(max_examples=300, deadline=None)
def test_the_limits_of_the_moment_hold_and_every_trial_ends_once_whatever_is_changed(
    play: Play,
) -> None:
    play.to_its_end()
    assert play.is_over
    assert play.ended == Counter(work.index for work in play.works)
    assert not play.running
