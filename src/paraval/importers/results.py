"""Results of other programs as runs in the store, which every command reads like its own.

An imported run has the date of its source. It has answers, so it can be regraded, but no target, so
it cannot be resumed. It pairs with a run of the imported suite by case ids and axis values.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

from paraval.codec import to_data
from paraval.dataclass import dataclass
from paraval.errors import RequestError, StoreError
from paraval.records import (
    Activity,
    Attempt,
    AttemptResult,
    Case,
    Change,
    Exchange,
    Failure,
    Grade,
    Limits,
    Outcome,
    Output,
    Plan,
    RunInfo,
    Scalar,
    Spend,
    StoredTarget,
    Trial,
    Variant,
)
from paraval.settings import IMPORTED, default_store
from paraval.store.encoding import to_json
from paraval.store.store import Store

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrial:
    """One result of another program: a case in a variant, once."""

    case: Case
    """The same as in the imported suite: id, input and expectation."""
    variant: Variant = field(default_factory=dict)
    """Axis -> value, as in the imported suite."""
    repeat: int | None = None
    """From 1; None: by its place among the results of the same case and variant."""
    outcome: Outcome
    score: float | None = None
    """From 0 to 1; None: the mean of the grades, or 1 or 0 by the outcome."""
    grades: tuple[Grade, ...] = ()
    """With the names of the suite's graders, so that their scores are compared."""
    output: str | None = None
    error: str | None = None
    """Why there is no verdict; only for outcomes that are errors or skipped."""
    cost_usd: float | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens, as in `Spend.usage`."""
    duration_s: float = 0.0
    started_at: float | None = None
    """Seconds since the epoch; None: unknown."""
    exchanges: tuple[Exchange, ...] = ()
    """What was sent, with an agent's steps."""
    activity: Activity | None = None
    change: Change | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is known of the answer."""
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> AttemptResult:
        judged = self.outcome.is_judged
        score = self.score
        if judged and score is None:
            scores = [grade.score for grade in self.grades]
            score = fmean(scores) if scores else float(self.outcome is Outcome.PASSED)
        is_priced = self.cost_usd is not None or self.usage
        answered = self.output is not None or judged
        return AttemptResult(
            outcome=self.outcome,
            output=Output(text=self.output or "", metadata=self.metadata) if answered else None,
            grades=self.grades,
            score=score,
            error=None if judged else Failure(kind=self.outcome, message=self.error or ""),
            duration_s=self.duration_s,
            target_s=self.duration_s,
            notes=self.notes,
            spend=Spend(cost_usd=self.cost_usd, usage=self.usage) if is_priced else None,
            activity=self.activity,
            change=self.change,
            exchanges=self.exchanges,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImport:
    """Where imported results are."""

    run: RunInfo
    is_new: bool
    """False: the same results had been imported before."""


def store_run(
    trials: Sequence[ImportedTrial],
    *,
    name: str,
    source: str,
    when: float | None = None,
    store: Path | None = None,
) -> StoredImport:
    """Store results as a run of the suite `name`, unless the same ones are there already.

    `source` names the program and the file, for people; `when` is the time of the run, in seconds
    since the epoch (default: that of its first trial, or now).
    """
    if not trials:
        raise RequestError(f"{source} has no results")
    opened = Store(store or default_store())
    digest = _digest([name, [to_data(trial) for trial in trials]])
    for run in opened.runs():
        if run.suite == name and run.source is None and _digest_of(opened, run) == digest:
            return StoredImport(run=run, is_new=False)
    starts = [trial.started_at for trial in trials if trial.started_at is not None]
    began = when if when is not None else min(starts, default=None)
    plan = _plan(trials, name, {"source": source, "digest": digest})
    ledger = opened.create_run(plan, seed=0, began=began)
    failures: list[StoreError] = []
    with ledger:
        ledger.open(deliver=lambda _durable: None, on_failure=failures.append)
        clock = ledger.run.started_at
        for trial, planned in zip(trials, plan.trials, strict=True):
            at = clock if trial.started_at is None else trial.started_at
            clock = max(clock, at + trial.duration_s)
            folder = ledger.attempt_folder(planned, 1)
            ledger.record_end(
                Attempt(trial=planned, number=1, folder=folder),
                trial.result,
                final=True,
                queued_s=None,
                on_durable=lambda: None,
                at=at + trial.duration_s,
            )
        ledger.close(interrupted=False, ended=clock)
    if failures:
        raise failures[0]
    return StoredImport(run=ledger.run, is_new=True)


def _digest_of(store: Store, run: RunInfo) -> str | None:
    """Of the results that a stored run was imported from; None: it was not imported."""
    try:
        about = store.selection(run).get(IMPORTED)
    except StoreError:
        return None
    return about.get("digest") if isinstance(about, Mapping) else None


def _plan(trials: Sequence[ImportedTrial], name: str, about: Mapping[str, str]) -> Plan:
    variants: dict[str, Variant] = {}
    cases: dict[str, Case] = {}
    axes: dict[str, dict[Scalar, None]] = {}
    taken: set[tuple[str, str, int]] = set()
    seen: Counter[tuple[str, str]] = Counter()
    planned: list[Trial] = []
    for index, trial in enumerate(trials):
        words = to_json(dict(trial.variant))
        cell = (trial.case.id, words)
        if trial.repeat is not None:
            repeat = trial.repeat
        else:
            repeat = next(n for n in count(seen[cell] + 1) if (*cell, n) not in taken)
            seen[cell] = repeat
        if (*cell, repeat) in taken:
            raise RequestError(
                f"{about['source']}: two results of case '{trial.case.id}' in the same variant have"
                f" the number {repeat}"
            )
        taken.add((*cell, repeat))
        for axis, value in trial.variant.items():
            axes.setdefault(axis, {})[value] = None
        planned.append(
            Trial(
                index=index,
                key=_digest([about["digest"], *cell, repeat]),
                case=cases.setdefault(trial.case.id, replace(trial.case, graders=())),
                variant=variants.setdefault(words, trial.variant),
                repeat=repeat,
                target=StoredTarget(),
            )
        )
    return Plan(
        name=name,
        source=None,
        axes={axis: tuple(values) for axis, values in axes.items()},
        variants=tuple(variants.values()),
        trials=tuple(planned),
        limits=Limits(parallel=1),
        selection={IMPORTED: dict(about)},
        notices=(f"Imported from {about['source']}.",),
    )


def _digest(words: Any) -> str:
    return hashlib.blake2b(to_json(words).encode(), digest_size=_DIGEST_BYTES).hexdigest()
