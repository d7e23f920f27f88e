"""Runs whose trials are added while they run, with a real store, real kills and stops.

Run as a program, this file is the child that is killed: `python -m tests.test_race_engine STORE
KILL_AT`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from paraval.errors import RequestError, RunBrokenOffError, RunBusyError
from paraval.execute.driver import Driver, Performer
from paraval.execute.event_loop import Stopping
from paraval.execute.trial_source import TrialSource
from paraval.models.prices import Prices
from paraval.records import (
    Attempt,
    AttemptResult,
    Budget,
    Case,
    CommandTarget,
    Failure,
    Happening,
    Limits,
    Notice,
    Outcome,
    Output,
    Plan,
    RetryPolicy,
    RunEnded,
    RunInfo,
    RunStarted,
    Spend,
    Trial,
    TrialEnded,
    TrialResult,
    TrialSkipped,
)
from paraval.runner.forecast import Forecaster, ModelKnowledge
from paraval.runner.resume import Owner, run_of
from paraval.runner.session import NullObserver, Observer, OpenEndedRun, RunContext, conduct
from paraval.settings import Options
from paraval.store.store import Store

DEPTH = 4
IN_ALL = 2 ** (DEPTH + 1) - 1


class Tree:
    """Every trial that ended names two more, down to a depth. Its trials are known by their path,
    whatever index they get."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self.heard: Counter[str] = Counter()
        self.skips: list[str] = []
        self._next = 0

    def begin(self) -> Sequence[Trial]:
        return [self.trial("r")]

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        assert (result.index, result.case_id) == (trial.index, trial.case.id)
        assert result.result.output is not None
        assert result.result.output.text == path_of(trial)
        self.heard[path_of(trial)] += 1
        return self.children(trial)

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        self.skips.append(path_of(trial))
        return []

    def children(self, trial: Trial) -> list[Trial]:
        path = path_of(trial)
        return [self.trial(path + turn) for turn in "ab"] if len(path) <= self.depth else []

    def trial(self, path: str) -> Trial:
        index, self._next = self._next, self._next + 1
        return Trial(
            index=index,
            key=f"key-{path}",
            case=Case(id=f"level-{len(path)}", input=path),
            variant={"step": "leaf" if len(path) > self.depth else "branch"},
            repeat=1,
            target=CommandTarget(command=("true",), cwd="."),
            exclusive=path.endswith("bb"),
        )


def path_of(trial: Trial) -> str:
    return str(trial.case.input)


Perform = Callable[[Attempt], AttemptResult]


def passed(attempt: Attempt) -> AttemptResult:
    path = path_of(attempt.trial)
    return AttemptResult(outcome=Outcome.PASSED, output=Output(text=path), duration_s=0.001)


class Doing:
    """Performs attempts by a function, and remembers them."""

    def __init__(self, perform: Perform = passed, wait_s: float = 0.0) -> None:
        self.performed: list[tuple[str, int]] = []
        self.running: set[str] = set()
        self._perform = perform
        self._wait_s = wait_s

    async def perform(self, attempt: Attempt) -> AttemptResult:
        path = path_of(attempt.trial)
        assert not (self.running and attempt.trial.exclusive)
        self.running.add(path)
        try:
            await asyncio.sleep(self._wait_s)
        finally:
            self.running.discard(path)
        self.performed.append((path, attempt.number))
        return self._perform(attempt)

    def forget(self, index: int) -> None: ...

    def kill(self) -> None: ...


class Listening:
    """An observer that remembers events."""

    def __init__(self) -> None:
        self.events: list[Happening] = []

    def __call__(self, event: Happening) -> None:
        self.events.append(event)

    def tick(self, now: float) -> None: ...

    def ended(self) -> list[TrialEnded]:
        return [event for event in self.events if isinstance(event, TrialEnded)]

    def notices(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]


PLAN = Plan(
    name="tree",
    source=None,
    axes={"step": ("branch", "leaf")},
    variants=(),
    trials=(),
    limits=Limits(parallel=4),
    retry=RetryPolicy(first_delay_s=0.01),
)


def open_run(
    source: TrialSource, performer: Performer, plan: Plan = PLAN, resumed: RunInfo | None = None
) -> OpenEndedRun:
    @contextlib.asynccontextmanager
    async def opening(_: RunContext) -> AsyncIterator[tuple[TrialSource, Performer]]:
        yield source, performer

    return OpenEndedRun(plan=plan, opening=opening, resumed=resumed)


def go(
    what: OpenEndedRun,
    store: Store,
    observer: Observer | None = None,
    stopping: Stopping = contextlib.nullcontext,
) -> RunInfo:
    return asyncio.run(conduct(what, store, observer or NullObserver(), stopping))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def results_of(store: Store, run: RunInfo) -> list[TrialResult]:
    with store.reader(run) as reader:
        return list(reader.results())


OWNER = Owner(kind="race", name="tree", source=None, grows=True)


# ---- to the end


def test_trials_that_an_end_adds_are_run_and_recorded_and_the_totals_grow(store: Store) -> None:
    tree, doing, listening = Tree(), Doing(), Listening()
    run = go(open_run(tree, doing), store, listening)
    assert (run.trials, run.done, run.interrupted, run.held_back) == (IN_ALL, IN_ALL, False, False)
    assert set(tree.heard.values()) == {1}
    assert len(tree.heard) == len(doing.performed) == IN_ALL
    ended = listening.ended()
    assert [event.done for event in ended] == list(range(1, IN_ALL + 1))
    assert ended[0].total == 3
    assert ended[-1].total == IN_ALL
    assert isinstance(listening.events[0], RunStarted)
    assert listening.events[-1] == RunEnded(run=run)
    found = results_of(store, run)
    assert [result.index for result in found] == list(range(IN_ALL))
    assert {result.case_id for result in found} == {f"level-{i}" for i in range(1, DEPTH + 2)}
    assert {result.outcome for result in found} == {Outcome.PASSED}
    assert store.runs() == [run]
    rows = store.history("tree").rows
    assert {(row.case_id, row.variant["step"]) for row in rows} >= {("level-1", "branch")}


def test_a_source_without_trials_ends_the_run(store: Store) -> None:
    class Silent(Tree):
        def begin(self) -> Sequence[Trial]:
            return []

    run = go(open_run(Silent(), Doing()), store)
    assert (run.trials, run.done, run.interrupted) == (0, 0, False)
    assert results_of(store, run) == []
    assert store.runs() == [run]
    assert store.known_results(run) == {}


def test_retries_and_their_spend_are_known_by_key(store: Store) -> None:
    def perform(attempt: Attempt) -> AttemptResult:
        spend = Spend(cost_usd=0.25)
        if attempt.number == 1:
            error = Failure(kind=Outcome.INFRA_ERROR, message="no")
            return AttemptResult(outcome=Outcome.INFRA_ERROR, error=error, spend=spend)
        return replace(passed(attempt), spend=spend)

    run = go(open_run(Tree(depth=0), Doing(perform)), store)
    (known,) = store.known_results(run).values()
    assert (known.outcome, known.attempts) == (Outcome.PASSED, 2)
    assert known.spend is not None
    assert known.spend.cost_usd == 0.5


def test_names_and_inputs_of_any_kind_are_recorded(store: Store) -> None:
    class Hostile(Tree):
        def trial(self, path: str) -> Trial:
            trial = super().trial(path)
            return replace(trial, case=replace(trial.case, id="\ud800\0'; DROP TABLE trial;--"))

    run = go(open_run(Hostile(depth=1), Doing()), store)
    assert (run.done, len(results_of(store, run))) == (3, 3)


def test_alike_trials_share_a_kind_however_many_targets_there_are() -> None:
    plan = replace(PLAN, limits=Limits(parallel=4, auto=True))
    expected = Forecaster(plan, (), ModelKnowledge(prices=Prices()))
    tree = Tree()
    works = [expected.work(trial, []) for trial in map(tree.trial, ["a", "b", "deeper", "deepes"])]
    assert [work.kind for work in works] == [0, 0, 1, 1]


def test_the_machine_may_decide_how_many_run_in_parallel(store: Store) -> None:
    plan = replace(PLAN, limits=Limits(parallel=16, auto=True))
    run = go(open_run(Tree(), Doing(wait_s=0.005), plan), store)
    assert (run.done, run.interrupted) == (IN_ALL, False)


def test_ten_thousand_trials_are_added_and_run_in_seconds(store: Store) -> None:
    class Many(Tree):
        def children(self, trial: Trial) -> list[Trial]:
            """A hundred at first; then each names the next."""
            if path_of(trial) == "r":
                return [self.trial(f"{n}.0") for n in range(100)]
            chain, _, place = path_of(trial).partition(".")
            return [self.trial(f"{chain}.{int(place) + 1}")] if int(place) < 99 else []

        def trial(self, path: str) -> Trial:
            return replace(super().trial(path), exclusive=False)

    plan = replace(PLAN, limits=Limits(parallel=100))
    began = time.monotonic()
    run = go(open_run(Many(), Doing(), plan), store)
    assert run.done == 10_001
    assert time.monotonic() - began < 60
    again = Many()
    began = time.monotonic()
    same = go(open_run(again, Doing(), plan, resumed=run), store)
    assert (same.done, same.trials, len(again.heard)) == (10_001, 10_001, 10_001)
    assert time.monotonic() - began < 30


# ---- stops and resumes


def stopping_after(done: int) -> tuple[Listening, Stopping]:
    """Stops the driver when so many trials have ended."""
    drivers: list[Driver] = []

    class StopAt(Listening):
        def __call__(self, event: Happening) -> None:
            super().__call__(event)
            if isinstance(event, TrialEnded) and event.done == done:
                drivers[0].stop("Interrupted")

    @contextlib.contextmanager
    def stopping(driver: Driver) -> Iterator[None]:
        drivers.append(driver)
        yield

    return StopAt(), stopping


def test_a_stopped_run_is_interrupted_and_a_resume_runs_only_the_rest(store: Store) -> None:
    observer, stopping = stopping_after(9)
    first = Doing()
    stopped = go(open_run(Tree(), first), store, observer, stopping)
    assert stopped.interrupted
    assert 9 <= stopped.done < IN_ALL
    assert run_of(store, OWNER, Options(resume="")) == stopped
    tree, second, listening = Tree(), Doing(), Listening()
    run = go(open_run(tree, second, resumed=stopped), store, listening)
    assert (run.id, run.done, run.interrupted, run.resumed) == (stopped.id, IN_ALL, False, 1)
    assert set(tree.heard.values()) == {1}
    assert len(tree.heard) == IN_ALL
    assert not {path for path, _ in first.performed} & {path for path, _ in second.performed}
    started = listening.events[0]
    assert isinstance(started, RunStarted)
    assert started.already_done == stopped.done
    assert listening.notices() == [f"Resuming run {run.id}: {stopped.done} results so far."]
    assert listening.ended()[-1].done == listening.ended()[-1].total == IN_ALL
    assert (run.dropped_usd, run.dropped_unknown) == (0.0, False)
    with pytest.raises(RequestError, match="race 'tree' has no unfinished run"):
        run_of(store, OWNER, Options(resume=""))
    assert run_of(store, OWNER, Options(resume="last")) == run


def test_a_run_that_died_after_all_known_trials_is_not_finished(
    store: Store,
) -> None:
    """Only the source knows that there is more to do."""
    store.create_run(PLAN, seed=0).close(interrupted=True)
    (run,) = store.runs()
    assert (run.trials, run.done, run.interrupted) == (0, 0, True)
    assert run_of(store, OWNER, Options(resume="")) == run
    assert go(open_run(Tree(), Doing(), resumed=run), store).done == IN_ALL


def test_trials_added_after_a_stop_are_recorded_and_left_for_a_resume(store: Store) -> None:
    observer, stopping = stopping_after(1)
    stopped = go(open_run(Tree(), Doing()), store, observer, stopping)
    assert (stopped.done, stopped.interrupted) == (1, True)
    with contextlib.closing(store.reader(stopped)) as reader:
        outcomes = [result.outcome for result in reader.results()]
    assert outcomes == [Outcome.PASSED, Outcome.SKIPPED, Outcome.SKIPPED]


def test_a_resume_continues_to_count_attempts(store: Store) -> None:
    """So that no folder is used twice."""

    def fail(attempt: Attempt) -> AttemptResult:
        raise asyncio.CancelledError

    stopped = go(open_run(Tree(depth=0), Doing(fail)), store)
    assert stopped.interrupted
    doing = Doing()
    run = go(open_run(Tree(depth=0), doing, resumed=stopped), store)
    assert doing.performed == [("r", 2)]
    assert (run.done, run.interrupted) == (1, False)


def test_errors_are_run_again_where_requested(store: Store) -> None:
    def crash(attempt: Attempt) -> AttemptResult:
        outcome = Outcome.CRASHED if path_of(attempt.trial).endswith("b") else Outcome.PASSED
        return replace(passed(attempt), outcome=outcome)

    first = go(open_run(Tree(), Doing(crash)), store)
    doing = Doing()
    again = replace(open_run(Tree(), doing, resumed=first), retry_errors=True)
    assert go(again, store).done == IN_ALL
    assert {path[-1] for path, _ in doing.performed} == {"b"}


def test_a_run_of_a_suite_is_not_resumed_as_one_that_grows(store: Store) -> None:
    plain = replace(PLAN, trials=(Tree().trial("r"),))
    store.create_run(plain, seed=0).close(interrupted=True)
    (run,) = store.runs()
    with pytest.raises(RequestError, match=r"belongs to suite 'tree' .* not to race 'tree'"):
        run_of(store, OWNER, Options(resume=run.id))
    with pytest.raises(RequestError, match="race 'tree' has no unfinished run"):
        run_of(store, OWNER, Options(resume=""))


def test_a_run_with_a_running_engine_is_refused(store: Store) -> None:
    with store.create_run(PLAN, seed=0) as ledger, pytest.raises(RunBusyError):
        go(open_run(Tree(), Doing(), resumed=ledger.run), store)


# ---- money


def test_a_spent_budget_skips_what_costs_and_the_source_learns_of_it(store: Store) -> None:
    def perform(attempt: Attempt) -> AttemptResult:
        return replace(passed(attempt), spend=Spend(cost_usd=1.0))

    plan = replace(PLAN, budget=Budget(usd=3.0, per_attempt_usd=1.0))
    tree, listening = Tree(), Listening()
    what = open_run(tree, Doing(perform), plan)
    run = go(what, store, listening)
    assert len(tree.heard) == 3
    assert len(tree.skips) == 4
    assert sum(isinstance(event, TrialSkipped) for event in listening.events) == 4
    assert (run.held_back, run.interrupted) == (True, False)
    free = replace(what, plan=plan, resumed=run, is_free=lambda _: True)
    assert go(replace(free, opening=open_run(Tree(), Doing()).opening), store).done == IN_ALL


def test_what_a_killed_attempt_may_have_cost_counts_in_a_resume(
    store: Store,
) -> None:
    """As much as the most expensive of its kind; nothing if none of its kind reported a cost."""
    tree = Tree(depth=1)
    plan = replace(PLAN, budget=Budget(usd=2.0))
    ledger = store.create_run(plan, seed=0)
    ledger.open(deliver=lambda calls: None, on_failure=lambda error: None)
    ended, killed, leaf = tree.trial("r"), tree.trial("x"), tree.trial("xa")
    ledger.add([ended, killed, leaf])
    for trial in (ended, killed, leaf):
        attempt = Attempt(trial=trial, number=1, folder=ledger.attempt_folder(trial, 1))
        ledger.record_start(attempt, 1.0, lambda: None)
        if trial is ended:
            result = replace(passed(attempt), spend=Spend(cost_usd=1.0))
            ledger.record_end(attempt, result, final=True, queued_s=None, on_durable=lambda: None)
    ledger.close(interrupted=True)
    doing = Doing()
    what = open_run(Tree(depth=1), doing, plan, resumed=ledger.run)
    run = go(what, store)
    assert doing.performed == []
    assert run.held_back
    larger = replace(what, plan=replace(plan, budget=Budget(usd=2.1)), resumed=run)
    assert go(replace(larger, opening=open_run(Tree(depth=1), doing).opening), store).done == 3


# ---- what goes wrong


@pytest.mark.parametrize("where", ["begin", "ended"])
def test_a_source_that_raises_ends_the_run_which_can_be_resumed(store: Store, where: str) -> None:
    class Broken(Tree):
        def begin(self) -> Sequence[Trial]:
            return 1 // 0 if where == "begin" else super().begin()  # type: ignore[return-value]  # raises

        def children(self, trial: Trial) -> list[Trial]:
            return super().children(trial) if len(self.heard) < 5 else [] + 1 // 0  # type: ignore[operator]  # raises

    with pytest.raises(ZeroDivisionError):
        go(open_run(Broken(), Doing()), store)
    (run,) = store.runs()
    assert run.interrupted
    assert go(open_run(Tree(), Doing(), resumed=run), store).done == IN_ALL


def test_a_duplicate_trial_ends_the_run(store: Store) -> None:
    class Forgetful(Tree):
        def children(self, trial: Trial) -> list[Trial]:
            return [replace(trial, index=trial.index + 1)]

    with pytest.raises(ValueError, match="was named twice"):
        go(open_run(Forgetful(), Doing()), store)


def test_a_store_that_fails_aborts_the_run_with_a_hint_how_to_resume(store: Store) -> None:
    def perform(attempt: Attempt) -> AttemptResult:
        if len(doing.performed) == 5:
            (database,) = store.runs_folder.glob("*/run.db")
            spoil(database)
        return passed(attempt)

    doing = Doing(perform)
    with pytest.raises(RunBrokenOffError, match="was aborted") as failure:
        go(open_run(Tree(), doing), store)
    assert "paraval resume" in (failure.value.hint or "")
    (database,) = store.runs_folder.glob("*/run.db")
    repair(database)
    (run,) = store.runs()
    assert run.interrupted
    tree, second = Tree(), Doing()
    assert go(open_run(tree, second, resumed=run), store).done == IN_ALL
    assert set(tree.heard.values()) == {1}


def spoil(database: Path) -> None:
    """No more results can be written, as on a full disk."""
    _change(
        database, "CREATE TRIGGER full BEFORE INSERT ON result BEGIN SELECT RAISE(ABORT, 'x'); END"
    )


def repair(database: Path) -> None:
    _change(database, "DROP TRIGGER full")


def _change(database: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.execute(sql)


# ---- kills


def log_of(root: Path) -> Path:
    return root / "performed.jsonl"


def run_child(root: Path, kill_at: int) -> dict[str, int]:
    """Resume and die at a statement; 0: never."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.test_race_engine", str(root), str(kill_at)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode in (0, 9), ended.stderr
    return {} if ended.returncode else dict(json.loads(ended.stdout))


def test_kills_at_random_statements_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    whole = run_child(tmp_path / "whole", 0)
    draw = random.Random(5)
    root = tmp_path / "killed"
    finished: dict[str, int] = {}
    kills = 0
    for _ in range(8):
        before = done_in(root)
        finished = run_child(root, draw.randrange(15, whole["statements"] // 2))
        assert before <= done_in(root)
        if finished:
            break
        kills += 1
    assert kills >= 3
    finished = finished or run_child(root, 0)
    assert (finished["done"], finished["trials"]) == (IN_ALL, IN_ALL)
    assert finished["interrupted"] == 0
    performed = [json.loads(line) for line in log_of(root).read_text().splitlines()]
    assert [entry for entry in performed if entry["had_result"]] == []
    attempts = Counter((entry["path"], entry["number"]) for entry in performed)
    assert set(attempts.values()) == {1}
    assert {entry["path"] for entry in performed} == paths(DEPTH)


def done_in(root: Path) -> set[str]:
    store = Store(root)
    return {key for run in store.runs() for key in store.known_results(run)}


def paths(depth: int) -> set[str]:
    found = level = {"r"}
    for _ in range(depth):
        level = {path + turn for path in level for turn in "ab"}
        found = found | level
    return found


def main(root: Path, kill_at: int) -> None:
    """Also records for each attempt whether its trial had a result before this engine began."""
    statements = 0

    def trace(_: str) -> None:
        nonlocal statements
        statements += 1
        if statements == kill_at:
            os._exit(9)

    store = Store(root, trace=trace)
    runs = store.runs()
    had = done_in(root)
    root.mkdir(parents=True, exist_ok=True)
    with log_of(root).open("a") as log:

        def perform(attempt: Attempt) -> AttemptResult:
            entry = {
                "path": path_of(attempt.trial),
                "number": attempt.number,
                "had_result": attempt.trial.key in had,
            }
            log.write(json.dumps(entry) + "\n")
            log.flush()
            return passed(attempt)

        run = go(open_run(Tree(), Doing(perform), resumed=runs[0] if runs else None), store)
    totals = {"done": run.done, "trials": run.trials, "interrupted": int(run.interrupted)}
    print(json.dumps({**totals, "statements": statements}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
