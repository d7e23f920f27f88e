"""Tests that both passed and failed on the same code, by the last runs in the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paraval.errors import StoreError
from paraval.pytest_plugin.code_state import tree_in
from paraval.records import FunctionTarget, Outcome, Plan, RunInfo
from paraval.report.wording import counted
from paraval.store.store import Store

MOST_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaky:
    """A test that the same code passes and fails."""

    node_id: str
    passed: int
    failed: int
    runs: int
    """In which it was judged."""

    def __str__(self) -> str:
        times = counted(self.passed + self.failed, "time")
        runs = "this run" if self.runs == 1 else f"last {self.runs} runs"
        return f"flaky: {self.node_id} passed {self.passed} of {times} on this code ({runs})"


def flaky_tests(store: Store, plan: Plan) -> tuple[Flaky, ...]:
    """Of the plan's tests, in plan order. Attempts count, so that a test which passed when it was
    run again in the same session is one of them.

    Where nobody knows which code a run was about, nobody can say that it was the same.
    """
    tree = tree_in(plan.selection)
    if tree is None:
        return ()
    verdicts: dict[str, Counter[Outcome]] = defaultdict(Counter)
    runs: Counter[str] = Counter()
    for judged in _verdicts_of(store, _of_suite(store, plan.name), tree):
        runs.update(judged.keys())
        for key, counts in judged.items():
            verdicts[key].update(counts)
    return tuple(
        Flaky(
            node_id=trial.target.reference,
            passed=verdicts[trial.key][Outcome.PASSED],
            failed=verdicts[trial.key][Outcome.FAILED],
            runs=runs[trial.key],
        )
        for trial in plan.trials
        if isinstance(trial.target, FunctionTarget) and len(verdicts[trial.key]) > 1
    )


def _of_suite(store: Store, suite: str) -> Sequence[RunInfo]:
    return [run for run in store.runs() if run.suite == suite][:MOST_RUNS]


def _verdicts_of(
    store: Store, runs: Sequence[RunInfo], tree: str
) -> Iterator[Mapping[str, Counter[Outcome]]]:
    """Of each run of this very tree, by key."""
    for run in runs:
        try:
            with store.reader(run) as reader:
                if tree_in(reader.selection()) == tree:
                    yield reader.verdicts()
        except StoreError:
            # It went, or broke, since it was listed: the others tell what they can.
            continue
