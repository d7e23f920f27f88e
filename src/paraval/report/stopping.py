"""Which runs may have stopped early, and what drew the order of their cases: one rule for all who
hold runs against each other.

What may then be claimed is said in `comparing`.
"""

from __future__ import annotations

from collections.abc import Iterable

from paraval.records import EARLY_STOP, RunInfo
from paraval.report.summary import Summary, Tally


def may_have_stopped(run: RunInfo, summary: Summary) -> bool:
    """Then how many cases there are depends on how they ended.

    A file of trials alone does not tell the run's rule, but the reasons of what was left out.
    """
    return run.stop is not None or early_stops(summary) > 0


def early_stops(tally: Tally) -> int:
    """Trials that an early stop left out."""
    reasons = tally.skipped_by_reason.items()
    return sum(number for why, number in reasons if why.startswith(EARLY_STOP))


def order_seed_of(stopped: Iterable[RunInfo]) -> int | None:
    """What drew the order of cases in runs that may have stopped; None where nobody knows it, or
    where it is not the same for all."""
    seeds = {run.seed if run.stop is not None else None for run in stopped}
    return seeds.pop() if len(seeds) == 1 else None
