"""Before `max_regressed` fails a gate, what got worse than the baseline runs again: with answers
that vary, some cases fail by chance in any run. A case counts only if it fails each time.

The runs are in a store of their own, since second tries of chosen cases belong in no pass rate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from paraval.errors import ParavalError
from paraval.plan.suite import Suite
from paraval.records import Notice, Plan, Trial
from paraval.report.compare.case_results import variant_key
from paraval.report.gate import GateVerdict
from paraval.report.report import Report
from paraval.runner.session import Observer
from paraval.runner.stored_runs import recheck_store, rechecks_named, report_of
from paraval.settings import Selection
from paraval.store.store import Store
from paraval.text.words import counted, money

FIRST_TRIES = 3
"""Most cases that only varied pass one of these; the other tries are for those that did not."""
MOST_RECHECKED = 10
"""Beyond the allowed number: if all of so many fail again, the others need not run."""

RunAgain = Callable[[Suite, Selection, Path, Callable[[Trial], bool]], Awaitable[Report]]
"""Runs a part of a suite with a store at a path."""


async def recheck(
    suite: Suite, plan: Plan, report: Report, store: Store, observer: Observer, run: RunAgain
) -> Report:
    """The report with what the tries show."""
    spent = report.summary.spent
    on_tries = 0.0
    while cells := _cells_to_try(plan, report):
        found = report.gate.regressions
        assert found is not None, "there are cells to try"
        budget = None if plan.budget is None else plan.budget.usd
        left = None if budget is None else budget - spent - on_tries
        if left is not None and left <= 0:
            observer(Notice(message="What got worse does not run again: the budget is spent."))
            break
        tries = _tries(plan, found.cells[next(iter(cells))].done)
        observer(Notice(message=_told(len(found.cells), len(cells), tries)))
        try:
            again = await run(
                _derived(suite, report),
                _selection(plan, cells, tries, left),
                recheck_store(store).root,
                partial(_is_among, cells),
            )
        except ParavalError as error:
            # The run itself is complete, and paid for.
            observer(Notice(message=f"What got worse could not run again: {error.message}"))
            break
        on_tries += again.summary.spent
        report = report_of(store, report.run)
        if again.run.interrupted:
            # Not all that was asked for ran: a resume does it.
            report.run = replace(report.run, interrupted=True)
            break
    if on_tries:
        observer(Notice(message=f"Running them again cost {money(on_tries)} on top of the run."))
    return report


Cells = frozenset[tuple[str, str]]
"""Ids of cases, and keys of variants."""


def _cells_to_try(plan: Plan, report: Report) -> Cells:
    """What runs again now: of the first ones, those that ran the least; none if it is clear."""
    found = report.gate.regressions
    if found is None or found.verdict is not GateVerdict.MISSED or found.is_beyond_chance:
        return frozenset()
    if report.run.interrupted or plan.regraded_from is not None:
        return frozenset()
    first = dict(islice(found.cells.items(), found.max_regressed + MOST_RECHECKED))
    least = min(tries.done for tries in first.values())
    return frozenset(cell for cell, tries in first.items() if tries.done == least < plan.recheck)


def _tries(plan: Plan, done: int) -> int:
    left = plan.recheck - done
    return left if done else min(left, FIRST_TRIES)


def _told(worse: int, cells: int, tries: int) -> str:
    """`3 results got worse than the baseline: they run 3 more times.`"""
    who = f"{cells:,} of them run"
    if cells == worse:
        who = "it runs" if cells == 1 else "they run"
    results = f"{counted(worse, 'result')} got worse than the baseline"
    return f"{results}: {who} {counted(tries, 'more time')}."


def _is_among(cells: Cells, trial: Trial) -> bool:
    return (trial.case.id, variant_key(trial.variant)) in cells


def _selection(plan: Plan, cells: Cells, tries: int, budget: float | None) -> Selection:
    return replace(
        Selection.from_mapping(plan.selection),
        only=tuple(sorted({case for case, _ in cells})),
        cases=(),
        tags=(),
        sample=None,
        limit=None,
        repeats=tries,
        fail_under=None,
        baseline="",
        max_drop=None,
        max_regressed=None,
        cache="off",
        budget_usd=budget,
    )


def _derived(suite: Suite, report: Report) -> Suite:
    """The suite without gates, under the name that finds its runs."""
    derived = Suite.__new__(Suite)
    derived.functions = suite.functions
    derived.definition = replace(
        suite.definition,
        name=rechecks_named(report.run),
        fail_under=None,
        max_drop=None,
        max_regressed=None,
        stop=None,
        holdout=None,
        pairwise=None,
    )
    return derived
