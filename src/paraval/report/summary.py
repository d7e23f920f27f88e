"""From results to counts and rates, in one pass, for the whole run and for each variant.

Errors are kept apart from wrong answers: rates are over what was judged, and beside them stand
the rates that the errors could hide. What is asked of a rate is the gate's business.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from paraval.records import Outcome, RunInfo, TrialResult, Variant
from paraval.statistics import wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How a set of trials ended."""

    trials: int
    passed: int
    failed: int
    errors: int
    skipped: int
    errors_by_kind: Mapping[str, int]
    cases: int
    """Distinct cases with a judged trial: what the interval is over."""
    pass_rate: float | None
    """Over the judged; None where none was."""
    pass_rate_interval: tuple[float, float] | None
    rate_if_errors_failed: float | None
    """The worst that the errors could hide."""
    rate_if_errors_passed: float | None
    """The best that the errors could hide."""
    serial_s: float
    """The sum of all attempts' durations."""
    median_s: float | None
    """Of a trial that was not skipped, all its attempts together."""
    cost_usd: float | None
    """Of the trials that told one; None where none did."""
    trials_without_cost: int
    """Of those that ran to an end."""
    usage: Mapping[str, float]

    @property
    def judged(self) -> int:
        return self.passed + self.failed

    @property
    def ended(self) -> int:
        """Trials that ran to an end, good or bad."""
        return self.judged + self.errors


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSummary(Tally):
    """How the trials of one variant ended."""

    variant: Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Tally):
    """How a run ended."""

    planned: int
    """Trials of the plan; more than `trials` where some have no result."""
    wall_s: float
    speedup: float | None
    variants: tuple[VariantSummary, ...]
    """In plan order; without a matrix, one without axes."""


def variant_key(variant: Variant) -> str:
    """What tells variants apart; not the mapping itself, for which 1, 1.0 and True are the same."""
    return repr(tuple(variant.items()))


def finite(value: object) -> float | None:
    """A number that can be added and written; None for NaN, infinity, and what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return None


def summarise(results: Iterable[TrialResult], info: RunInfo) -> Summary:
    """Counts and rates of a run. Results come in plan order and are not kept."""
    whole = _Count()
    variants: dict[str, tuple[Variant, _Count]] = {}
    case_numbers: dict[str, int] = {}
    for result in results:
        case = case_numbers.setdefault(result.case_id, len(case_numbers))
        key = variant_key(result.variant)
        if key not in variants:
            variants[key] = (dict(result.variant), _Count())
        whole.add(result, case)
        variants[key][1].add(result, case)
    return Summary(
        **whole.figures(),
        planned=max(info.trials, whole.trials),
        wall_s=info.wall_s,
        speedup=whole.serial_s / info.wall_s if info.wall_s > 0 else None,
        variants=tuple(
            VariantSummary(variant=variant, **count.figures())
            for variant, count in variants.values()
        ),
    )


class _Count:
    """What is added up while results pass by. A trial leaves a few numbers behind, not itself."""

    def __init__(self) -> None:
        self.trials = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.cases: set[int] = set()
        self.durations = array("d")
        self.serial_s = 0.0
        self.costs = 0
        self.cost_usd = 0.0
        self.usage: dict[str, float] = {}

    def add(self, result: TrialResult, case: int) -> None:
        self.trials += 1
        self.outcomes[result.outcome] += 1
        if result.outcome.is_judged:
            self.cases.add(case)
        spent = finite(result.total_s) or 0.0
        self.serial_s += spent
        if result.outcome is not Outcome.SKIPPED:
            self.durations.append(spent)
        self._add_output(result)

    def _add_output(self, result: TrialResult) -> None:
        output = result.result.output
        if output is None:
            return
        cost = finite(output.cost_usd)
        if cost is not None:
            self.costs += 1
            self.cost_usd += cost
        for name, told in output.usage.items():
            amount = finite(told)
            if amount is not None:
                self.usage[name] = self.usage.get(name, 0) + amount

    def figures(self) -> dict[str, Any]:
        """The fields of a Tally."""
        passed, failed = self.outcomes[Outcome.PASSED], self.outcomes[Outcome.FAILED]
        by_kind = {kind.value: self.outcomes[kind] for kind in Outcome if kind.is_error}
        errors = sum(by_kind.values())
        rate, cases = _share(passed, passed + failed), len(self.cases)
        return {
            "trials": self.trials,
            "passed": passed,
            "failed": failed,
            "errors": errors,
            "skipped": self.outcomes[Outcome.SKIPPED],
            "errors_by_kind": {kind: number for kind, number in by_kind.items() if number},
            "cases": cases,
            "pass_rate": rate,
            "pass_rate_interval": None if rate is None else wilson(rate * cases, cases),
            "rate_if_errors_failed": _share(passed, passed + failed + errors),
            "rate_if_errors_passed": _share(passed + errors, passed + failed + errors),
            "serial_s": self.serial_s,
            "median_s": median(self.durations) if self.durations else None,
            "cost_usd": self.cost_usd if self.costs else None,
            "trials_without_cost": passed + failed + errors - self.costs,
            "usage": self.usage,
        }


def _share(part: int, of: int) -> float | None:
    return part / of if of else None
