"""The store, with real files, real children and real kills.

Run as a program, this file is the children: `python test_store.py COMMAND STORE ...` (see `main`).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import math
import os
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.errors import RequestError, RunBusyError, StoreError
from paraval.records import (
    Attempt,
    AttemptRecord,
    AttemptResult,
    Case,
    Failure,
    FoundLimit,
    FunctionTarget,
    Grade,
    Limits,
    Outcome,
    Output,
    Plan,
    RunInfo,
    Trial,
    TrialResult,
)
from paraval.store.connection import RUN_FILE, Trace, create_file
from paraval.store.encoding import to_json
from paraval.store.folder import NETWORK_FILESYSTEMS, filesystem_type, prepare_folder
from paraval.store.index import INDEX_VERSION, index_version
from paraval.store.ledger import Ledger
from paraval.store.locks import is_worked_on
from paraval.store.plan_rows import ROWS_AT_ONCE
from paraval.store.reader import PAGE_ROWS
from paraval.store.store import Store

TARGET = FunctionTarget(reference="module:function", folder="/")
VARIANTS = ({"model": "small"}, {"model": "large"})


def make_plan(cases: int, *, repeats: int = 1, salt: str = "", name: str = "greetings") -> Plan:
    """Each case with both variants; another salt gives another key to every trial."""
    trials: list[Trial] = []
    for number in range(cases):
        case = Case(id=f"case-{number}", input=f"say {number}", expect="hello", tags=("smoke",))
        for variant in VARIANTS:
            for repeat in range(1, repeats + 1):
                key = f"{number:06x}{variant['model']}{repeat}{salt}"
                trials.append(_trial(len(trials), key, case, variant, repeat))
    return Plan(
        name=name,
        source="/suites/greetings.yaml",
        axes={"model": ("small", "large")},
        variants=VARIANTS,
        trials=tuple(trials),
        limits=Limits(parallel=7),
        fail_under=0.9,
        selection={"cases": ["case-*"]},
    )


def _trial(index: int, key: str, case: Case, variant: dict[str, str], repeat: int) -> Trial:
    return Trial(index=index, key=key, case=case, variant=variant, repeat=repeat, target=TARGET)


def judged(passed: bool = True, *, duration_s: float = 0.5, text: str = "hello") -> AttemptResult:
    return AttemptResult(
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        output=Output(text=text, usage={"tokens": 3}, cost_usd=0.25, metadata={"a": [1]}),
        grades=(Grade(score=float(passed), passed=passed, reason="why", grader="contains"),),
        score=float(passed),
        duration_s=duration_s,
        exit_code=0,
        artifacts={"stdout": "artifacts/x/stdout"},
        notes=("output cut",),
    )


def broken(kind: Outcome, *, duration_s: float = 0.1) -> AttemptResult:
    error = Failure(kind=kind, message="went wrong", retry_after=2.0)
    return AttemptResult(outcome=kind, error=error, duration_s=duration_s)


class Desk:
    """An engine without a loop: records, and waits until what it recorded is on disk."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.failures: list[StoreError] = []
        self.deliveries: list[int] = []
        self.acknowledged: list[tuple[int, int, bool]] = []
        self._changed = threading.Condition()
        self._open = 0
        ledger.open(self._deliver, self._fail)

    def _deliver(self, calls: list[Callable[[], None]]) -> None:
        for call in calls:
            call()
        with self._changed:
            self.deliveries.append(len(calls))
            self._open -= len(calls)
            self._changed.notify_all()

    def _fail(self, error: StoreError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def start(self, index: int, *, at: float = 1000.0) -> Attempt:
        number = self.ledger.attempts_made(index) + 1
        trial = self.ledger.plan.trials[index]
        folder = self.ledger.attempt_folder(trial, number)
        attempt = Attempt(trial=trial, number=number, folder=folder)
        self._open += 1
        self.ledger.record_start(attempt, at, lambda: None)
        return attempt

    def end(
        self,
        attempt: Attempt,
        result: AttemptResult,
        *,
        final: bool = True,
        at: float | None = None,
    ) -> None:
        self._open += 1
        acknowledgment = (attempt.trial.index, attempt.number, final)
        self.ledger.record_end(
            attempt,
            result,
            final=final,
            queued_s=0.125,
            on_durable=lambda: self.acknowledged.append(acknowledgment),
            at=at,
        )

    def wait(self) -> None:
        """Until everything is durable, or a failure was told."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._open == 0 or self.failures, timeout=60)

    def run(self, index: int, result: AttemptResult) -> None:
        self.end(self.start(index), result)
        self.wait()


def finish(ledger: Ledger, results: dict[int, AttemptResult] | None = None) -> RunInfo:
    """Every trial that is not done gets its result; then the ledger is closed."""
    desk = Desk(ledger)
    for trial in ledger.plan.trials:
        if trial.index not in ledger.done:
            desk.end(desk.start(trial.index), (results or {}).get(trial.index, judged()))
    desk.wait()
    ledger.close(interrupted=False)
    return ledger.run


def results_of(store: Store, run: RunInfo) -> list[TrialResult]:
    with store.reader(run) as reader:
        return list(reader.results())


def _query(run: RunInfo, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(Path(run.folder) / RUN_FILE)) as connection:
        return connection.execute(sql).fetchall()


def integrity(run: RunInfo) -> str:
    return str(_query(run, "PRAGMA integrity_check")[0][0])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def memory_path() -> Iterator[Path]:
    """A folder in memory where there is one: a kill leaves unsynced writes alone anyway."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _may_mount() -> bool:
    """Mounts of one's own are for root, and for others where the system allows user namespaces."""
    try:
        asked = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_mounts = pytest.mark.skipif(
    __name__ != "__main__" and not _may_mount(), reason="this system allows no mounts"
)


# ---- what is written is read


def test_a_finished_run_reads_back_in_plan_order_with_everything_that_was_recorded(
    store: Store,
) -> None:
    plan = make_plan(3)
    ledger = store.create_run(plan, seed=42)
    desk = Desk(ledger)
    for index in reversed(range(6)):
        desk.run(index, judged(passed=index % 2 == 0))
    ledger.close(interrupted=False)

    results = results_of(store, store.find("last"))

    assert [result.index for result in results] == list(range(6))
    assert [result.result for result in results] == [judged(index % 2 == 0) for index in range(6)]
    first = results[0]
    assert (first.case_id, first.variant, first.repeat) == ("case-0", {"model": "small"}, 1)
    assert (first.attempts, first.queued_s, first.total_s) == (1, 0.125, 0.5)
    assert store.selection(store.find("last")) == {"cases": ["case-*"]}


def test_the_plan_is_kept_for_those_who_ask_in_sql(store: Store) -> None:
    plan = make_plan(2)
    run = finish(store.create_run(plan, seed=42))

    keys = _query(run, "SELECT key FROM trial ORDER BY idx")
    assert [key for (key,) in keys] == [trial.key for trial in plan.trials]
    ((axes,),) = _query(run, "SELECT axes FROM run")
    assert json.loads(axes) == {"model": ["small", "large"]}
    cases = _query(run, "SELECT id, content FROM case_ ORDER BY number")
    assert [(name, json.loads(content)) for name, content in cases] == [
        ("case-0", {"input": "say 0", "expect": "hello", "tags": ["smoke"]}),
        ("case-1", {"input": "say 1", "expect": "hello", "tags": ["smoke"]}),
    ]


def test_a_plan_with_more_rows_than_one_statement_writes_is_stored_whole(store: Store) -> None:
    plan = make_plan(2 * ROWS_AT_ONCE + 3)
    run = finish(store.create_run(plan, seed=42))

    keys = _query(run, "SELECT key FROM trial ORDER BY idx")
    assert [key for (key,) in keys] == [trial.key for trial in plan.trials]
    names = dict.fromkeys(trial.case.id for trial in plan.trials)
    assert _query(run, "SELECT id FROM case_ ORDER BY number") == [(name,) for name in names]


def test_the_run_tells_about_itself(store: Store) -> None:
    info = finish(store.create_run(make_plan(2), seed=10**30))

    assert info == store.find(info.id)
    assert (info.suite, info.source) == ("greetings", "/suites/greetings.yaml")
    assert (info.trials, info.done, info.parallel, info.seed) == (4, 4, 7, 10**30)
    assert (info.resumed, info.interrupted, info.fail_under) == (0, False, 0.9)
    assert info.ended_at is not None
    assert info.ended_at >= info.started_at
    assert info.wall_s > 0


def test_a_closed_run_is_one_plain_file_beside_its_lock(store: Store) -> None:
    info = finish(store.create_run(make_plan(1), seed=1))

    assert Path(info.folder) == store.runs_folder / info.id
    assert {file.name for file in Path(info.folder).iterdir()} == {"run.db", "engine.lock"}
    assert (store.root / ".gitignore").read_text() == "*\n"


def test_a_start_that_was_taken_back_can_be_recorded_again(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        # All of it is queued before the ledger is opened, and so written in one transaction.
        for index in (0, 1):
            trial = ledger.plan.trials[index]
            for at in (10.0, 20.0):
                number = ledger.attempts_made(index) + 1
                folder = ledger.attempt_folder(trial, number)
                attempt = Attempt(trial=trial, number=number, folder=folder)
                ledger.record_ahead(attempt, at, lambda: None)
                if (index, at) != (0, 20.0):
                    ledger.take_back(attempt)
        Desk(ledger)
    started = _query(store.find("last"), "SELECT key, number FROM attempt")
    assert started == [(ledger.plan.trials[0].key, 1)]


def test_retries_are_kept_beside_the_attempt_that_decided(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        desk.end(desk.start(0, at=10.0), broken(Outcome.INFRA_ERROR), final=False, at=10.1)
        desk.end(desk.start(0, at=20.0), judged(), at=20.5)
        desk.start(1, at=30.0)
        desk.wait()

    run = store.find("last")
    with store.reader(run) as reader:
        attempts = list(reader.attempts())
        only_second = list(reader.attempts(index=1))
        by_glob = list(reader.attempts(case="*-0"))
        of_no_case = list(reader.attempts(case="other*"))
    assert [(a.index, a.number, a.started_at) for a in attempts] == [
        (0, 1, 10.0),
        (0, 2, 20.0),
        (1, 1, 30.0),
    ]
    assert [a.result for a in attempts] == [broken(Outcome.INFRA_ERROR), judged(), None]
    assert [a.index for a in only_second] == [1]
    assert by_glob == attempts
    assert of_no_case == []
    first = results_of(store, run)[0]
    assert (first.attempts, first.outcome) == (2, Outcome.PASSED)
    assert first.total_s == pytest.approx(0.6)


def test_trials_without_a_result_are_skipped_with_the_reason(store: Store) -> None:
    with store.create_run(make_plan(2), seed=1) as ledger:
        desk = Desk(ledger)
        desk.run(0, judged())
        desk.start(1)
        desk.wait()
        live = results_of(store, ledger.run)
        assert store.find("last").ended_at is None
        assert not store.find("last").interrupted

    after = results_of(store, store.find("last"))

    assert [result.outcome for result in live] == [Outcome.PASSED, *[Outcome.SKIPPED] * 3]
    assert [_message(result) for result in live[1:]] == [
        "still running",
        "not run yet: the run is in progress",
        "not run yet: the run is in progress",
    ]
    assert [_message(result) for result in after[1:]] == [
        "interrupted; a resume runs them again",
        "not run: the run was interrupted",
        "not run: the run was interrupted",
    ]
    assert store.find("last").interrupted


def _message(result: TrialResult) -> str:
    assert result.result.error is not None
    return result.result.error.message


def test_a_result_is_written_once_whoever_comes_second(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        first, second = desk.start(0), desk.start(0)
        desk.end(first, judged(passed=True))
        desk.end(first, judged(passed=False))
        desk.end(second, judged(passed=False))
        desk.wait()

    result = results_of(store, store.find("last"))[0]
    assert (result.outcome, result.attempts) == (Outcome.PASSED, 2)


def test_what_is_queued_together_is_committed_and_told_together(store: Store) -> None:
    statements: list[str] = []
    store = Store(store.root, trace=statements.append)
    with store.create_run(make_plan(150), seed=1) as ledger:
        desk = Desk(ledger)
        for index in range(300):
            desk.end(desk.start(index), judged())
        desk.wait()

    assert sum(desk.deliveries) == 600
    commits = sum(statement == "COMMIT" for statement in statements)
    assert commits == len(desk.deliveries) + 1, "one a delivery, and one for the plan"
    assert commits < 100


HOSTILE = [
    "nul \0 inside",
    "lone \ud800 and \udc80 surrogates",
    "a pair in halves \ud83d\ude00",
    "\x1b[31mred\x1b]0;title\x07",
    "'; DROP TABLE result; --",
    "\u2028 \uffff \U0010ffff",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_stored_and_comes_back_as_text_that_can_be_written(
    store: Store, text: str
) -> None:
    result = AttemptResult(
        outcome=Outcome.CRASHED,
        output=Output(text=text, metadata={text: text}),
        error=Failure(kind=Outcome.CRASHED, message=text),
        notes=(text,),
    )
    with store.create_run(make_plan(1), seed=1) as ledger:
        Desk(ledger).run(0, result)

    stored = results_of(store, store.find("last"))[0].result
    assert stored.output is not None
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert stored.output.text == expected
    assert stored.output.metadata == {expected: expected}
    assert stored.notes == (expected,)
    stored.output.text.encode()


def _nest(depth: int) -> Any:
    nest: Any = []
    for _ in range(depth):
        nest = [nest]
    return nest


class _Unspeakable:
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "value",
    [
        2**80,
        10**6000,
        math.inf,
        {(1, 2): "tuple key"},
        {1: {2}},
        _nest(100_000),
        _nest(500),
        b"bytes",
        _Unspeakable(),
        [_Unspeakable()],
    ],
    ids=["big", "huge", "inf", "tuple-key", "set", "nest", "small-nest", "bytes", "str", "in-list"],
)
def test_metadata_that_json_cannot_hold_is_written_as_text(store: Store, value: Any) -> None:
    result = AttemptResult(
        outcome=Outcome.PASSED, output=Output(text="fine", metadata={"value": value})
    )
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        desk.run(0, result)
        assert not desk.failures

    stored = results_of(store, store.find("last"))[0].result
    assert stored.output is not None
    assert stored.output.text == "fine"
    assert "value" in stored.output.metadata


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_what_json_can_hold_is_kept_as_it_is(value: Any) -> None:
    assert json.loads(to_json({"value": value})) == {"value": value}


# ---- resume


def test_a_resume_goes_on_with_what_is_missing_and_counts_attempts_on(store: Store) -> None:
    plan = make_plan(2)
    with store.create_run(plan, seed=42) as ledger:
        desk = Desk(ledger)
        desk.run(0, judged())
        desk.end(desk.start(1), broken(Outcome.INFRA_ERROR), final=False)
        desk.wait()

    ledger = store.resume_run(store.find("last").id, plan)

    assert ledger.done == {0: Outcome.PASSED}
    assert [ledger.attempts_made(index) for index in range(4)] == [1, 1, 0, 0]
    assert ledger.changed == 0
    info = finish(ledger)
    assert (info.resumed, info.done, info.interrupted, info.seed) == (1, 4, False, 42)
    assert [result.attempts for result in results_of(store, info)] == [1, 2, 1, 1]


def test_a_resume_with_a_changed_suite_keeps_the_results_of_unchanged_keys(store: Store) -> None:
    before = make_plan(3)
    run = finish(store.create_run(before, seed=1))
    altered = make_plan(3, salt="altered").trials[2]
    trials = (before.trials[1], before.trials[0], altered, before.trials[3])
    after = _with_trials(before, trials)

    ledger = store.resume_run(run.id, after)

    assert ledger.done.keys() == {0, 1, 3}
    assert ledger.changed == 1, "two trials are gone, which is no change of theirs"
    info = finish(ledger)
    assert (info.trials, info.done) == (4, 4)
    assert [result.variant["model"] for result in results_of(store, info)][:2] == ["large", "small"]


def test_results_count_again_when_the_suite_is_changed_back(store: Store) -> None:
    plan = make_plan(1)
    run = finish(store.create_run(plan, seed=1))
    with store.resume_run(run.id, make_plan(1, salt="altered")) as ledger:
        assert (dict(ledger.done), ledger.changed) == ({}, 2)
    with store.resume_run(run.id, plan) as ledger:
        assert (len(ledger.done), ledger.changed) == (2, 0)


def _with_trials(plan: Plan, trials: Iterable[Trial]) -> Plan:
    renumbered = tuple(
        _trial(index, trial.key, trial.case, dict(trial.variant), trial.repeat)  # type: ignore[arg-type]  # all values here are text
        for index, trial in enumerate(trials)
    )
    return Plan(
        name=plan.name, source=plan.source, axes=plan.axes, variants=VARIANTS, trials=renumbered
    )


def test_errors_can_be_forgotten_and_only_they_run_again(store: Store) -> None:
    plan = make_plan(2)
    ends = {1: broken(Outcome.TIMEOUT), 2: judged(passed=False), 3: broken(Outcome.CRASHED)}
    run = finish(store.create_run(plan, seed=1), ends)

    ledger = store.resume_run(run.id, plan)
    assert ledger.forget_unsuccessful() == 2
    assert ledger.done == {0: Outcome.PASSED, 2: Outcome.FAILED}
    assert ledger.attempts_made(1) == 1
    info = finish(ledger)

    assert [result.attempts for result in results_of(store, info)] == [1, 2, 1, 2]
    assert [result.outcome for result in results_of(store, info)] == [
        Outcome.PASSED,
        Outcome.PASSED,
        Outcome.FAILED,
        Outcome.PASSED,
    ]


_OUTCOMES = st.sampled_from(
    [judged(), judged(passed=False), broken(Outcome.TIMEOUT), broken(Outcome.INFRA_ERROR)]
)
_EVENTS = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 5)),
    st.tuples(st.just("end"), _OUTCOMES, st.booleans()),
    st.tuples(st.just("resume")),
    st.tuples(st.just("forget errors")),
)


@settings(max_examples=25, deadline=None)
@given(events=st.lists(_EVENTS, max_size=25))
def test_any_sequence_of_starts_ends_and_resumes_replays_to_the_same_results(
    memory_path: Path, events: list[tuple[Any, ...]]
) -> None:
    store = Store(Path(tempfile.mkdtemp(dir=memory_path)))
    plan = make_plan(3)
    desk = Desk(store.create_run(plan, seed=1))
    expected: dict[int, Outcome] = {}
    made = dict.fromkeys(range(6), 0)
    running: list[Attempt] = []
    for event, *details in events:
        if event == "start":
            running.append(desk.start(details[0]))
            made[details[0]] += 1
        elif event == "end" and running:
            attempt, (result, final) = running.pop(0), details
            desk.end(attempt, result, final=final)
            if final:
                expected.setdefault(attempt.trial.index, result.outcome)
        elif event in ("resume", "forget errors"):
            desk.ledger.close(interrupted=True)
            ledger = store.resume_run(desk.ledger.run.id, plan)
            if event == "forget errors":
                ledger.forget_unsuccessful()
                expected = {i: outcome for i, outcome in expected.items() if outcome.is_judged}
            running = []
            assert ledger.done == expected
            desk = Desk(ledger)
    desk.ledger.close(interrupted=True)
    with store.resume_run(desk.ledger.run.id, plan) as ledger:
        assert ledger.done == expected
        assert {index: ledger.attempts_made(index) for index in range(6)} == made
    assert desk.ledger.run.done == len(expected)


# ---- kill -9


def test_a_kill_at_every_statement_loses_no_acknowledged_result(memory_path: Path) -> None:
    """Also the resume is killed at every statement; the next one then has to manage."""
    reports = run_children("kills", memory_path)

    assert len(reports) > 60
    assert sum(report["killed"] for report in reports) >= len(reports) - 2
    plan = make_plan(2)
    for report in reports:
        _check_after_kill(Store(Path(report["store"])), plan, report["acknowledged"])


def _check_after_kill(store: Store, plan: Plan, acknowledged: list[list[int]]) -> None:
    runs = store.runs()
    if not runs:
        assert not acknowledged
        return
    (run,) = runs
    assert run.done >= len(acknowledged)
    with store.resume_run(run.id, plan) as ledger:
        assert {index for index, _ in acknowledged} <= ledger.done.keys()
        assert all(ledger.attempts_made(index) >= number for index, number in acknowledged)
        in_flight = sum(ledger.attempts_made(index) for index in range(4)) - len(ledger.done)
    assert in_flight <= 1 + 1 + 1, "a retry that was asked for, and one in flight at each kill"
    assert integrity(run) == "ok"
    info = finish(store.resume_run(run.id, plan))
    results = results_of(store, info)
    assert [result.index for result in results] == list(range(4))
    assert all(result.outcome is Outcome.PASSED for result in results)


def test_a_killed_engine_s_run_is_listed_and_its_lock_taken_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    child = start_child("hold", store.root)
    run = store.find("last")

    with pytest.raises(RunBusyError) as busy:
        store.resume_run(run.id, make_plan(2))
    assert busy.value.pid == child.pid
    assert str(child.pid) in busy.value.message
    assert is_worked_on(Path(run.folder))

    child.kill()
    child.wait()
    dead = store.find("last")
    assert (dead.done, dead.interrupted, dead.ended_at) == (1, True, None)
    with store.resume_run(run.id, make_plan(2)) as ledger:
        assert ledger.done == {0: Outcome.PASSED}


def test_a_child_forked_by_the_engine_does_not_keep_its_lock(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    child = start_child("hold-and-fork", store.root)
    child.kill()
    child.wait()

    assert child.stdout is not None
    with store.resume_run(store.find("last").id, make_plan(2)) as ledger:
        assert ledger.done == {0: Outcome.PASSED}
    child.stdout.close()


def test_a_run_killed_before_its_plan_was_written_is_not_listed_nor_in_the_way(
    store: Store,
) -> None:
    finish(store.create_run(make_plan(1), seed=1))
    empty = store.runs_folder / "20200101-000000-0000"
    empty.mkdir()
    sqlite3.connect(empty / RUN_FILE).close()

    assert len(store.runs()) == 1
    with pytest.raises(StoreError, match="has no plan"):
        store.resume_run(empty.name, make_plan(1))


# ---- the disk


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("full", "recorded results are safe, and the run can be resumed"),
        pytest.param("full-mount", "no space left for results", marks=needs_mounts),
    ],
)
def test_a_full_disk_is_told_once_and_nothing_is_lost_when_space_is_back(
    tmp_path: Path, command: str, message: str
) -> None:
    (report,) = run_children(command, tmp_path)

    assert message in report["failure"]
    assert report["others"] == 0
    assert report["acknowledged_before"] == 1
    assert report["acknowledged_after_close"] == 4
    assert report["done"] == 4


def test_a_disk_still_full_at_close_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    (report,) = run_children("full-to-the-end", tmp_path / "store")

    assert report["failures"] == 1
    store = Store(tmp_path / "store")
    run = store.find("last")
    assert integrity(run) == "ok"
    with store.resume_run(run.id, make_plan(2)) as ledger:
        assert len(ledger.done) == report["acknowledged"] == 1


def test_a_last_write_that_fails_is_told_by_close(tmp_path: Path) -> None:
    (report,) = run_children("full-at-close", tmp_path / "store")

    assert "run can be resumed" in report["raised"]


def test_a_run_whose_end_could_not_be_written_is_not_remembered_as_running(tmp_path: Path) -> None:
    (report,) = run_children("full-for-the-end", tmp_path / "store")

    assert "run can be resumed" in report["raised"]
    run = Store(tmp_path / "store").find("last")
    assert Store(tmp_path / "store").runs() == [run]
    assert (run.running, run.interrupted, run.done) == (False, True, 1)


def test_another_program_s_lock_costs_time_and_no_result(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        with closing(sqlite3.connect(ledger.folder / RUN_FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            desk.end(desk.start(0), judged())
            assert desk.acknowledged == []
            other.execute("ROLLBACK")
        desk.wait()
        assert desk.acknowledged == [(0, 1, True)]


@needs_mounts
def test_too_little_space_is_refused_with_the_numbers(tmp_path: Path) -> None:
    """A disk of 8 MB, in a mount namespace of the child's own."""
    (report,) = run_children("on-a-mount", tmp_path, "size=8m")

    assert "8.4 MB free, at least 20 MB are needed" in report["error"]
    assert report["left"] == []


@needs_mounts
@pytest.mark.parametrize("files", range(1, 9))
def test_a_disk_that_takes_no_more_files_is_told_by_name_and_leaves_no_half_run(
    tmp_path: Path, files: int
) -> None:
    """The disk itself counts as one; a store has three more, and a run that goes on five."""
    (report,) = run_children("on-a-mount", tmp_path, f"size=64m,nr_inodes={files}")

    assert str(tmp_path) in report["error"]
    assert "hint: " in report["error"]
    assert report["left"] == []


@needs_mounts
def test_a_read_only_folder_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (report,) = run_children("on-a-mount", tmp_path, "ro")

    assert "cannot be written: Read-only file system" in report["error"]
    assert "--store DIR" in report["error"]


@needs_mounts
@pytest.mark.parametrize("killed", [False, True], ids=["finished", "killed"])
def test_a_run_in_a_read_only_folder_is_read_all_the_same(tmp_path: Path, killed: bool) -> None:
    """A killed one still has results in its log, which must not be passed over."""
    store = Store(tmp_path / "store")
    if killed:
        child = start_child("hold", store.root)
        child.kill()
        child.wait()
    else:
        finish(store.create_run(make_plan(2), seed=1))
    folder = Path(store.find("last").folder)
    for stale in folder.glob("*-shm"):
        stale.unlink()

    (report,) = run_children("read-only-mount", tmp_path, str(folder))

    assert report["passed"] == (1 if killed else 4)


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    # Root may write there all the same, but not to the kernel's own folder.
    place = Path("/sys") if os.geteuid() == 0 else tmp_path

    with pytest.raises(StoreError, match="cannot be written"):
        Store(place / "store").create_run(make_plan(1), seed=1)


def test_a_file_where_the_store_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="is not a folder"):
        Store(tmp_path / "file").create_run(make_plan(1), seed=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_filesystem_of_a_path_is_that_of_the_innermost_mount() -> None:
    mounts = (
        "/dev/vda / ext4 rw 0 0\n"
        "server:/home /home nfs4 rw 0 0\n"
        "tmpfs /home/me/fast\\040disk tmpfs rw 0 0\n"
        "//nas/x /mnt cifs rw 0 0\n"
        "overlay /mnt overlay rw 0 0\n"
    )
    assert filesystem_type(Path("/srv/x"), mounts) == "ext4"
    assert filesystem_type(Path("/home/me/store"), mounts) == "nfs4"
    assert filesystem_type(Path("/home/me/fast disk/store"), mounts) == "tmpfs"
    assert filesystem_type(Path("/homes/x"), mounts) == "ext4"
    assert filesystem_type(Path("/mnt/x"), mounts) == "overlay"
    assert filesystem_type(Path("/x"), "") is None
    assert {"nfs", "nfs4", "cifs"} <= NETWORK_FILESYSTEMS


# ---- files that are not as they should be


def _damage_header(path: Path) -> None:
    path.write_bytes(b"garbage " * 512 + path.read_bytes()[4096:])


def _damage_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    path.write_bytes(content)


def _make_foreign(path: Path) -> None:
    _execute(path, "PRAGMA application_id = 7")


def _make_newer(path: Path) -> None:
    _execute(path, "PRAGMA user_version = 99")


def _execute(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_damage_header, "is damaged"),
        (_damage_pages, "is damaged"),
        (_make_foreign, "was not created by paraval"),
        (_make_newer, "created by a newer paraval"),
    ],
)
def test_a_file_that_is_not_a_sound_run_is_refused_and_left_as_it_is(
    store: Store, spoil: Callable[[Path], None], message: str
) -> None:
    run = finish(store.create_run(make_plan(20), seed=1))
    path = Path(run.folder) / RUN_FILE
    spoil(path)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=message):
        store.resume_run(run.id, make_plan(20))
    with pytest.raises(StoreError, match=message), store.reader(run) as reader:
        list(reader.results())

    assert path.read_bytes() == before
    assert {file.name for file in path.parent.iterdir()} == {"run.db", "engine.lock"}
    assert not is_worked_on(path.parent)


def test_damage_that_queries_would_not_notice_is_found_by_reports_and_before_a_resume(
    store: Store,
) -> None:
    plan = make_plan(20)
    run = finish(store.create_run(plan, seed=1))
    path = Path(run.folder) / RUN_FILE
    key = plan.trials[7].key.encode()
    before, _, after = path.read_bytes().rpartition(key)
    path.write_bytes(before + key[::-1] + after)

    with pytest.raises(StoreError, match="is damaged"):
        store.resume_run(run.id, plan)
    with pytest.raises(StoreError, match="is damaged"):
        results_of(store, run)


def test_a_run_whose_engine_died_while_it_became_one_file_is_read(
    store: Store, tmp_path: Path
) -> None:
    """Its rollback journal is to be played back, which a reader may not do to the run itself."""
    run = finish(store.create_run(make_plan(300), seed=1))
    with closing(sqlite3.connect(Path(run.folder) / RUN_FILE, isolation_level=None)) as dying:
        dying.execute("PRAGMA cache_size = 1")
        dying.execute("BEGIN")
        dying.execute("UPDATE attempt SET outcome = 'failed', content = content || content")
        shutil.copytree(run.folder, tmp_path / "copy")
    before = (tmp_path / "copy" / RUN_FILE).read_bytes()

    results = results_of(store, store.find(str(tmp_path / "copy")))

    assert (tmp_path / "copy" / f"{RUN_FILE}-journal").stat().st_size > 0
    assert [result.result for result in results] == [judged()] * 600
    assert (tmp_path / "copy" / RUN_FILE).read_bytes() == before


def test_runs_are_found_by_how_far_they_are_before_the_last(store: Store) -> None:
    with pytest.raises(RequestError, match=r"the store .* has no runs yet"):
        store.find("last~1")
    first, last = (finish(store.create_run(make_plan(1), seed=1)) for _ in range(2))
    assert store.find("last~1") == first
    assert store.find("last~0") == last
    with pytest.raises(RequestError, match="there is no last~2: there are only 2 runs") as raised:
        store.find("last~2")
    assert raised.value.hint == "the oldest is last~1; `paraval runs` lists all"
    _damage_header(Path(last.folder) / RUN_FILE)
    with pytest.raises(StoreError, match="is damaged"):
        store.find("last~0")


def test_a_damaged_run_does_not_hide_the_others(store: Store) -> None:
    bad = finish(store.create_run(make_plan(1), seed=1))
    good = finish(store.create_run(make_plan(1), seed=1))
    _damage_header(Path(bad.folder) / RUN_FILE)

    assert [run.id for run in store.runs()] == [good.id]
    with pytest.raises(StoreError, match="is damaged"):
        store.find(bad.id)


def test_whichever_page_is_damaged_only_a_store_error_comes_out(memory_path: Path) -> None:
    store = Store(Path(tempfile.mkdtemp(dir=memory_path)))
    run = _run_with_errors(store)
    for page in range(_size(run) // 4096):
        with _spoilt(run, page * 4096, b"\xff" * 64):
            _ask_everything(store, run)


def test_whichever_text_is_altered_only_a_store_error_comes_out(memory_path: Path) -> None:
    """SQLite cannot notice it: what it gives back is no JSON, no outcome or no number."""
    store = Store(Path(tempfile.mkdtemp(dir=memory_path)))
    run = _run_with_errors(store)
    told = 0
    for place in range(4096, _size(run), 601):
        with _spoilt(run, place, b"\x01"):
            told += _ask_everything(store, run)
    assert told > 0


def _run_with_errors(store: Store) -> RunInfo:
    ends = {1: broken(Outcome.TIMEOUT), 2: broken(Outcome.CRASHED)}
    return finish(store.create_run(make_plan(20), seed=1), ends)


def _size(run: RunInfo) -> int:
    return (Path(run.folder) / RUN_FILE).stat().st_size


@contextmanager
def _spoilt(run: RunInfo, place: int, by: bytes) -> Iterator[None]:
    """The run with some bytes altered, and no index that remembers how it was."""
    path = Path(run.folder) / RUN_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + by + whole[place + len(by) :])
    (path.parents[2] / "index.db").unlink(missing_ok=True)
    try:
        yield
    finally:
        path.write_bytes(whole)


def _ask_everything(store: Store, run: RunInfo) -> int:
    """How much of it is refused. Lists and histories never are: they do without the run."""
    store.history("greetings")
    store.runs()
    asked: list[Callable[[], object]] = [
        lambda: store.find(run.id),
        lambda: store.selection(run),
        lambda: results_of(store, run),
        lambda: _attempts_of(store, run),
        lambda: store.resume_run(run.id, make_plan(20)).close(interrupted=True),
    ]
    return sum(_is_refused(ask, run) for ask in asked)


def _is_refused(ask: Callable[[], object], run: RunInfo) -> bool:
    refusal: StoreError | None = None
    try:
        ask()
    except StoreError as error:
        refusal = error
    if refusal is None:
        return False
    assert str(Path(run.folder) / RUN_FILE) in refusal.message
    assert refusal.hint
    return True


def _attempts_of(store: Store, run: RunInfo) -> list[AttemptRecord]:
    with store.reader(run) as reader:
        return list(reader.attempts())


def test_a_damaged_old_run_and_no_index_take_no_duration_of_the_others(store: Store) -> None:
    bad = finish(store.create_run(make_plan(20), seed=1))
    ((root,),) = _query(bad, "SELECT rootpage FROM sqlite_master WHERE name = 'attempt'")
    finish(store.create_run(make_plan(1), seed=1))
    (store.root / "index.db").unlink()
    with _spoilt(bad, (root - 1) * 4096, b"\xff" * 64):
        assert {row.case_id for row in store.history("greetings").rows} == {"case-0"}
        assert len(store.runs()) == 2
        with closing(sqlite3.connect(store.root / "index.db")) as index:
            assert index.execute("SELECT count(*) FROM run").fetchone() == (2,)


def test_a_run_s_file_that_leads_nowhere_is_told_and_hides_no_other(store: Store) -> None:
    good = finish(store.create_run(make_plan(1), seed=1))
    bad = store.runs_folder / "20200101-000000-0000"
    bad.mkdir()
    (bad / RUN_FILE).symlink_to(RUN_FILE)

    assert store.runs() == [good]
    with pytest.raises(StoreError, match="is not a regular file"):
        store.resume_run(bad.name, make_plan(1))


def test_names_that_no_folder_can_have_are_unknown_runs(store: Store) -> None:
    finish(store.create_run(make_plan(1), seed=1))
    for name in ("x" * 5000, "nul\0inside", "x/" * 5000):
        with pytest.raises(RequestError, match="no run"):
            store.find(name)


def test_a_store_that_may_not_be_read_is_told_and_only_costs_the_history(tmp_path: Path) -> None:
    (report,) = run_children("unreadable", tmp_path)

    assert report["history"] == 0
    for error in (report["runs"], report["find"], report["read"], report["resume"]):
        assert "Permission denied" in error
        assert str(tmp_path) in error
        assert "hint: " in error


def test_a_lock_that_the_system_refuses_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some network disks do."""

    def refuse(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match="No locks available"):
        store.create_run(make_plan(1), seed=1)
    assert list(store.runs_folder.iterdir()) == []


def test_on_a_mac_commits_reach_the_disk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere `synchronous` is enough; there fsync ends in the drive's own memory."""
    asked = ("PRAGMA fullfsync", "PRAGMA checkpoint_fullfsync")
    with closing(create_file(tmp_path / "linux.db", None)) as connection:
        assert [connection.execute(sql).fetchone()[0] for sql in asked] == [0, 0]
    monkeypatch.setattr(sys, "platform", "darwin")
    with closing(create_file(tmp_path / "mac.db", None)) as connection:
        assert [connection.execute(sql).fetchone()[0] for sql in asked] == [1, 1]


# ---- finding


def test_runs_are_found_by_last_id_prefix_and_path(store: Store, tmp_path: Path) -> None:
    first = finish(store.create_run(make_plan(1), seed=1))
    second = finish(store.create_run(make_plan(1), seed=2))

    assert [run.id for run in store.runs()] == [second.id, first.id]
    assert store.find("last") == second
    assert store.find(first.id) == first
    assert store.find(first.folder) == first
    assert store.find(f"{first.folder}/run.db") == first
    with pytest.raises(RequestError, match="several runs start with '20'") as several:
        store.find("20")
    assert first.id in several.value.message
    shutil.rmtree(second.folder)
    assert store.find(first.id[:-1]) == first


def test_an_unknown_run_is_refused_with_the_nearest_ids(store: Store) -> None:
    with pytest.raises(RequestError, match="has no runs yet"):
        store.find("last")
    run = finish(store.create_run(make_plan(1), seed=1))
    for ask in (store.find, lambda name: store.resume_run(name, make_plan(1))):
        with pytest.raises(RequestError) as unknown:
            ask(run.id[:-4] + "zzzz")
        assert run.id in str(unknown.value)


def test_reading_an_absent_store_makes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "absent")
    assert store.runs() == []
    assert store.history("greetings").rows == ()
    assert not store.root.exists()


def test_the_first_run_of_a_store_makes_no_index_before_its_trials(store: Store) -> None:
    ledger = store.create_run(make_plan(2), seed=1)
    assert store.history("greetings").rows == ()
    assert not (store.root / "index.db").exists()
    ledger.close(interrupted=True)


def test_a_copied_folder_reports_where_no_store_is(store: Store, tmp_path: Path) -> None:
    run = finish(store.create_run(make_plan(2), seed=1))
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(run.folder, copy)
    shutil.rmtree(store.root)

    elsewhere = Store(tmp_path / "nothing")
    info = elsewhere.find(str(copy))

    assert (info.id, info.folder, info.done) == (run.id, str(copy), 4)
    assert len(results_of(elsewhere, info)) == 4


# ---- the index


@pytest.mark.parametrize("index_before", [None, b"garbage " * 512], ids=["none", "broken"])
def test_ten_engines_at_once_leave_every_run_and_the_index_right(
    tmp_path: Path, index_before: bytes | None
) -> None:
    if index_before is not None:
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "index.db").write_bytes(index_before)
    reports = run_children("ten", tmp_path / "store")

    store = Store(tmp_path / "store")
    runs = store.runs()
    assert {run.id for run in runs} == {report["id"] for report in reports}
    assert len(runs) == 10
    assert all((run.done, run.trials) == (4, 4) for run in runs)
    assert {integrity(run) for run in runs} == {"ok"}
    with closing(sqlite3.connect(store.root / "index.db")) as index:
        assert index.execute("SELECT count(*) FROM run").fetchone() == (10,)
        assert index.execute("SELECT count(*), sum(n) FROM history").fetchone() == (40, 40)
    assert [row.n for row in store.history("greetings").rows] == [10] * 4


def _remove(path: Path) -> None:
    path.unlink()


def _make_older(path: Path) -> None:
    _execute(path, "PRAGMA user_version = 0")


@pytest.mark.parametrize(
    "spoil", [_remove, _damage_header, _damage_pages, _make_foreign, _make_older]
)
def test_an_index_that_is_missing_broken_foreign_or_older_is_made_anew(
    store: Store, spoil: Callable[[Path], None]
) -> None:
    for _ in range(2):
        finish(store.create_run(make_plan(30), seed=1))
    runs, history = store.runs(), store.history("greetings")
    spoil(store.root / "index.db")

    assert store.runs() == runs
    assert store.history("greetings") == history
    finish(store.create_run(make_plan(1), seed=1))
    assert len(store.runs()) == 3
    set_aside = list(store.root.glob("index-set-aside-*"))
    ours = spoil in (_remove, _make_older)
    assert len(set_aside) == (0 if ours else 1), "it might be another program's"


def test_found_limits_are_kept_for_seven_days_and_anything_senseless_is_ignored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.found_limits(["account:a"]) == {}
    finish(store.create_run(make_plan(1), seed=1))
    store.remember_limits({"account:a": FoundLimit(requests_per_minute=3000.0)})
    found = store.found_limits(["account:a", "account:b"])
    assert found["account:a"].requests_per_minute == 3000.0
    assert 0 <= found["account:a"].age_s < 60
    assert store.found_limits(["account:b"]) == {}
    now = time.time()
    for moment in (now + 8 * 86_400, now - 3600):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        assert store.found_limits(["account:a"]) == {}
    monkeypatch.undo()
    for value in ("-1", "'x'", "9e999", "0"):
        _execute(store.root / "index.db", f"UPDATE found_limit SET per_minute = {value}")
        assert store.found_limits(["account:a"]) == {}
    (store.root / "index.db").write_bytes(b"damaged" * 1000)
    assert store.found_limits(["account:a"]) == {}


@pytest.mark.parametrize(
    "info", ['{"id": "x", "unheard_of": 1}', "{}", "[]", "no JSON", "NULL"], ids=str
)
def test_what_the_index_says_in_words_that_are_not_ours_is_read_from_the_run(
    store: Store, info: str
) -> None:
    run = finish(store.create_run(make_plan(1), seed=1))
    _execute(store.root / "index.db", f"UPDATE run SET info = '{info}'")

    assert store.runs() == [run]
    assert store.find("last") == run
    with closing(sqlite3.connect(store.root / "index.db")) as index:
        ((mended,),) = index.execute("SELECT info FROM run").fetchall()
    assert json.loads(mended)["id"] == run.id


def test_the_index_s_version_changes_with_what_it_remembers_of_a_run() -> None:
    fields_before = [field for field in fields(RunInfo) if field.name != "running"]
    assert index_version(fields(RunInfo)) == INDEX_VERSION
    assert index_version(fields_before) != INDEX_VERSION
    assert 0 < INDEX_VERSION < 2**31, "what SQLite's user_version can hold"


def test_durations_that_the_index_garbled_are_left_out(store: Store) -> None:
    finish(store.create_run(make_plan(1), seed=1))
    _execute(store.root / "index.db", "UPDATE history SET variant = '{' WHERE variant LIKE '%l\"}'")

    assert [row.variant for row in store.history("greetings").rows] == [{"model": "large"}]


def test_the_index_is_never_believed_against_the_run_itself(store: Store) -> None:
    plan = make_plan(1)
    store.create_run(plan, seed=1).close(interrupted=True)
    assert store.find("last").done == 0
    index = (store.root / "index.db").read_bytes()
    info = finish(store.resume_run(store.find("last").id, plan))
    (store.root / "index.db").write_bytes(index)

    assert store.find("last") == info


def test_a_store_whose_index_cannot_be_made_still_runs_and_lists(store: Store) -> None:
    (store.root / "index.db").mkdir(parents=True)
    (store.root / "index.db" / "file").write_text("in the way")
    run = finish(store.create_run(make_plan(1), seed=1))

    assert store.runs() == [run]


def test_history_is_the_mean_logarithm_with_timeouts_as_lower_bounds(store: Store) -> None:
    ends = {
        0: judged(duration_s=2.0),
        1: broken(Outcome.TIMEOUT, duration_s=60.0),
        2: broken(Outcome.INFRA_ERROR, duration_s=99.0),
        3: judged(duration_s=0.0),
    }
    finish(store.create_run(make_plan(2), seed=1), ends)
    finish(store.create_run(make_plan(2), seed=1), {**ends, 0: judged(duration_s=8.0)})
    with store.create_run(make_plan(2), seed=1) as unfinished:
        Desk(unfinished).run(2, judged(duration_s=5.0))

        rows = {(row.case_id, row.variant["model"]): row for row in store.history("greetings").rows}

    assert rows["case-0", "small"].n == 2
    assert rows["case-0", "small"].mean_log == pytest.approx(math.log(4.0))
    assert rows["case-0", "large"].mean_log == pytest.approx(math.log(60.0))
    assert rows["case-1", "small"].n == 1, "only of the run that goes on"
    assert rows["case-1", "small"].mean_log == pytest.approx(math.log(5.0))
    assert math.isfinite(rows["case-1", "large"].mean_log)
    assert store.history("other").rows == ()


def test_history_is_of_the_last_ten_runs_and_a_resume_counts_once(store: Store) -> None:
    plan = make_plan(1)
    for seed in range(12):
        finish(store.create_run(plan, seed=seed), {0: judged(duration_s=1.0 if seed < 2 else 9.0)})
    finish(store.resume_run(store.find("last").id, plan))

    (small,) = (row for row in store.history("greetings").rows if row.variant == {"model": "small"})
    assert small.n == 10
    assert small.mean_log == pytest.approx(math.log(9.0))


# ---- size


def test_a_hundred_thousand_trials_are_planned_quickly_and_read_in_bounded_memory(
    store: Store,
) -> None:
    plan = make_plan(1000, repeats=50)
    cpu_before = _cpu_s()
    ledger = store.create_run(plan, seed=1)
    assert _cpu_s() - cpu_before < 2.0
    desk = Desk(ledger)
    for index in range(3 * PAGE_ROWS):
        desk.end(desk.start(index), judged())
    desk.wait()
    ledger.close(interrupted=True)

    with store.reader(ledger.run) as reader:
        tracemalloc.start()
        outcomes = [result.outcome for result in islice(reader.results(), 10 * PAGE_ROWS)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert ledger.run.trials == 100_000
    assert _query(ledger.run, "SELECT count(*) FROM trial") == [(100_000,)]
    assert outcomes.count(Outcome.PASSED) == 3 * PAGE_ROWS
    assert outcomes.count(Outcome.SKIPPED) == 7 * PAGE_ROWS
    assert peak < 4_000_000


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def test_a_reader_that_takes_its_time_holds_up_no_one(store: Store) -> None:
    with store.create_run(make_plan(PAGE_ROWS), seed=1) as ledger:
        desk = Desk(ledger)
        with store.reader(ledger.run) as reader:
            results = reader.results()
            next(results)
            for index in range(10):
                desk.run(index, judged())
            ledger.close(interrupted=True)
            resumed = store.resume_run(ledger.run.id, ledger.plan)
            assert len(resumed.done) == 10
            assert sum(1 for _ in results) == 2 * PAGE_ROWS - 1
            resumed.close(interrupted=True)


# ---- the children: this file, run as a program


def run_children(command: str, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, __file__, command, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def start_child(command: str, folder: Path) -> subprocess.Popen[str]:
    """A child that has said that it is ready."""
    child = subprocess.Popen(
        [sys.executable, __file__, command, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    if command == "hold":
        child.stdout.close()
    return child


def tell(**report: Any) -> None:
    # In one piece: several children write into the same pipe.
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def kills(folder: Path) -> None:
    """A small run, killed at each of its statements; then a resume of one, at each of its own."""
    first, killed = 0, True
    while killed:
        first += 1
        killed = _killed_at(folder / f"run-{first}", first)
    again, killed = 0, True
    while killed:
        again += 1
        shutil.copytree(folder / f"run-{first // 2}", folder / f"resume-{again}")
        killed = _killed_at(folder / f"resume-{again}", again)


def _killed_at(root: Path, statement: int) -> bool:
    """Whether the run had so many statements. This process has no threads: it may fork."""
    pid = os.fork()
    if pid == 0:
        try:
            _small_run(root, statement)
        except BaseException:  # noqa: BLE001 - a forked child must never return into the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    told = root / "told"
    lines = told.read_text().splitlines() if told.exists() else []
    killed = os.WIFSIGNALED(status)
    tell(killed=killed, store=str(root), acknowledged=[json.loads(line) for line in lines])
    return killed


def _small_run(root: Path, kill_at: int) -> None:
    """Four trials, one with a retry, one at a time; what is acknowledged is written down."""
    store, plan = Store(root, trace=_killer(kill_at)), make_plan(2)
    runs = store.runs()
    ledger = store.resume_run(runs[0].id, plan) if runs else store.create_run(plan, seed=1)
    desk = Desk(ledger)
    for index in range(4):
        if index in ledger.done:
            continue
        if index == 1 and ledger.attempts_made(1) == 0:
            desk.end(desk.start(1), broken(Outcome.INFRA_ERROR), final=False)
        attempt = desk.start(index)
        desk.wait()
        desk.end(attempt, judged())
        desk.wait()
        with (root / "told").open("a") as file:
            file.write(json.dumps([index, attempt.number]) + "\n")
    ledger.close(interrupted=False)


def _killer(kill_at: int) -> Trace:
    seen = 0

    def count(_statement: str) -> None:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


def hold(root: Path) -> None:
    """Works on a run with one result until it is killed."""
    Desk(Store(root).create_run(make_plan(2), seed=1)).run(0, judged())
    print("ready", flush=True)
    signal.pause()


def hold_and_fork(root: Path) -> None:
    """The same, with a child of its own that outlives it until nobody reads its pipe."""
    ledger = Store(root).create_run(make_plan(2), seed=1)
    child_ready, ready = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.write(ready, b"!")
        while True:
            time.sleep(0.1)
            os.write(1, b".")
    os.read(child_ready, 1)
    Desk(ledger).run(0, judged())
    print("ready", flush=True)
    signal.pause()


BIG = judged(text="x" * 600_000)


def full(root: Path) -> None:
    """The size of files is limited, which stands for a full disk where none can be mounted."""
    _run_out_of_space(root, lambda: _limit_files(500_000), lambda: _limit_files(None))


def full_mount(folder: Path) -> None:
    """A real disk of memory, filled to the brim."""
    _mount(folder, "-t", "tmpfs", "-o", "size=24m", "tmpfs")
    filler = folder / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    _run_out_of_space(folder / "store", fill, filler.unlink)


def _run_out_of_space(root: Path, squeeze: Callable[[], None], relieve: Callable[[], None]) -> None:
    with Store(root).create_run(make_plan(2), seed=1) as ledger:
        desk = Desk(ledger)
        desk.run(0, judged())
        squeeze()
        desk.run(1, BIG)
        desk.end(desk.start(2), judged())
        before = len(desk.acknowledged)
        relieve()
        desk.end(desk.start(3), judged())
    failure, *others = desk.failures
    tell(
        failure=str(failure),
        others=len(others),
        acknowledged_before=before,
        acknowledged_after_close=len(desk.acknowledged),
        done=ledger.run.done,
    )


def full_to_the_end(root: Path) -> None:
    ledger = Store(root).create_run(make_plan(2), seed=1)
    desk = Desk(ledger)
    desk.run(0, judged())
    _limit_files(500_000)
    desk.run(1, BIG)
    ledger.close(interrupted=True)
    tell(failures=len(desk.failures), acknowledged=len(desk.acknowledged))


def full_at_close(root: Path) -> None:
    ledger = Store(root).create_run(make_plan(2), seed=1)
    Desk(ledger)
    _limit_files(0)
    try:
        ledger.close(interrupted=True)
    except StoreError as error:
        tell(raised=str(error))


def full_for_the_end(root: Path) -> None:
    """No space for the session's end alone: then the log is folded into the file as ever."""

    def squeeze(statement: str) -> None:
        if statement.startswith("UPDATE session"):
            _limit_files(0)
        elif statement.startswith("PRAGMA wal_checkpoint"):
            _limit_files(None)

    ledger = Store(root, trace=squeeze).create_run(make_plan(2), seed=1)
    Desk(ledger).run(0, judged())
    try:
        ledger.close(interrupted=True)
    except StoreError as error:
        tell(raised=str(error))


def _limit_files(size: int | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def on_a_mount(folder: Path, options: str) -> None:
    """A store on a disk of memory, mounted for this process alone."""
    _mount(folder, "-t", "tmpfs", "-o", options, "tmpfs")
    try:
        Store(folder / "store").create_run(make_plan(1), seed=1)
    except StoreError as error:
        left = [file.name for file in folder.glob("store/runs/*")]
        tell(error=str(error), left=left)


def unreadable(folder: Path) -> None:
    """A store whose runs another user may not look into. Root becomes such a user first."""
    store, locked = Store(folder / "store"), Store(folder / "locked")
    run = finish(store.create_run(make_plan(1), seed=1))
    finish(locked.create_run(make_plan(1), seed=1))
    Path(run.folder).chmod(0)
    locked.runs_folder.chmod(0)
    if os.geteuid() == 0:
        _lose_the_right_to_read_everything()
    tell(
        runs=_refusal(locked.runs),
        find=_refusal(lambda: store.find(run.id)),
        read=_refusal(lambda: results_of(store, run)),
        resume=_refusal(lambda: store.resume_run(run.id, make_plan(1))),
        history=len(locked.history("greetings").rows) + len(store.history("greetings").rows),
    )
    Path(run.folder).chmod(0o700)
    locked.runs_folder.chmod(0o700)


def _lose_the_right_to_read_everything() -> None:
    """Root's files stay root's; only the kernel's exception for root is given up."""
    header = struct.pack("=Ii", 0x20080522, 0)
    no_capabilities = struct.pack("=6I", 0, 0, 0, 0, 0, 0)
    assert ctypes.CDLL(None).capset(header, no_capabilities) == 0


def _refusal(ask: Callable[[], object]) -> str:
    try:
        return f"no error, but {ask()}"
    except StoreError as error:
        return str(error)


def read_only_mount(_tmp: Path, run: str) -> None:
    _mount(Path(run), "--bind", run)
    _mount(Path(run), "-o", "remount,bind,ro")
    store = Store(Path(run).parent)
    results = results_of(store, store.find(run))
    tell(passed=sum(result.outcome is Outcome.PASSED for result in results))


def _mount(place: Path, *arguments: str) -> None:
    if "PARAVAL_TEST_UNSHARED" not in os.environ:
        again = ["unshare", "--mount", "--map-root-user", sys.executable, *sys.argv]
        os.execvpe("unshare", again, {**os.environ, "PARAVAL_TEST_UNSHARED": "1"})
    subprocess.run(["mount", *arguments, str(place)], check=True)


def ten(root: Path) -> None:
    """Ten engines, all let go at the same instant."""
    gate, opened = os.pipe()
    for _ in range(10):
        if os.fork() == 0:
            os.close(opened)
            os.read(gate, 1)
            tell(id=finish(Store(root).create_run(make_plan(2), seed=1)).id)
            os._exit(0)
    os.close(opened)
    for _ in range(10):
        assert os.wait()[1] == 0


def main(command: str, folder: str, *arguments: str) -> None:
    commands: dict[str, Callable[..., None]] = {
        "kills": kills,
        "hold": hold,
        "hold-and-fork": hold_and_fork,
        "full": full,
        "full-mount": full_mount,
        "full-to-the-end": full_to_the_end,
        "full-at-close": full_at_close,
        "full-for-the-end": full_for_the_end,
        "on-a-mount": on_a_mount,
        "read-only-mount": read_only_mount,
        "unreadable": unreadable,
        "ten": ten,
    }
    commands[command](Path(folder), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])


def test_a_new_store_is_for_its_user_only_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    prepare_folder(shared)
    assert shared.stat().st_mode & 0o777 == 0o755
