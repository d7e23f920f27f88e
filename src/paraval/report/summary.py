"""From results to counts and rates, in one pass, for the whole run and for each variant.

Errors are kept apart from wrong answers: rates are over what was judged, and beside them stand
the rates that the errors could hide. What is asked of a rate is the gate's business.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from paraval.models.reading import CUT
from paraval.records import Outcome, RunInfo, TrialResult, Variant
from paraval.report.costs import (
    CostCount,
    Costs,
    finite,
    is_from_cache,
    is_known,
    spend_of,
    usage_of,
)
from paraval.report.deeds import DeedCount, Deeds
from paraval.report.wording import reason
from paraval.statistics.rates import wilson

MOST_REASONS = 20
"""Why trials were skipped is said in so many ways at most; each may name sums of its own."""
OTHER_REASONS = "for other reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How a set of trials ended."""

    trials: int
    passed: int
    failed: int
    errors: int
    skipped: int
    left_out: int
    """Of those skipped: by themselves, as tests do, so that no resume would run them."""
    errors_by_kind: Mapping[str, int]
    skipped_by_reason: Mapping[str, int]
    retries_by_kind: Mapping[str, int]
    """Attempts that decided nothing, by how they ended."""
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
    """Of a trial that was neither skipped nor answered from the cache alone, all its attempts
    together; None where there was none."""
    from_cache: int
    """Trials whose answers, judges' included, were all there already."""
    answers_cut: int
    """Answers that their model ended at max_tokens."""
    target: Costs
    judging: Costs
    trials_without_cost: int
    """Of those that ran to an end."""
    deeds: Deeds
    """What agents called, what was changed, what it took of the machine."""

    @property
    def cost_usd(self) -> float | None:
        """What is known of what targets cost; None where nothing is."""
        return self.target.usd

    @property
    def usage(self) -> Mapping[str, float]:
        return self.target.usage

    @property
    def total_cost_usd(self) -> float | None:
        """What is known of targets and judges together; None where nothing is."""
        known = [costs.usd for costs in (self.target, self.judging) if costs.usd is not None]
        return sum(known) if known else None

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
    paid = Paid(target=whole.target.is_told, judging=whole.judging.is_told)
    # Answers from the cache alone saved money; what time they saved is not known.
    is_timed = info.wall_s > 0 and (bool(whole.durations) or not whole.cached)
    return Summary(
        **whole.figures(paid),
        planned=max(info.trials, whole.trials),
        wall_s=info.wall_s,
        speedup=whole.serial_s / info.wall_s if is_timed else None,
        variants=tuple(
            VariantSummary(variant=variant, **count.figures(paid))
            for variant, count in variants.values()
        ),
    )


class Paid(NamedTuple):
    """Whether the trials of a run tell what they cost: on their targets, and on judges."""

    target: bool
    judging: bool


class _Count:
    """What is added up while results pass by. A trial leaves a few numbers behind, not itself."""

    def __init__(self) -> None:
        self.trials = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.cases: set[int] = set()
        self.durations = array("d")
        self.serial_s = 0.0
        self.cached = 0
        self.answers_cut = 0
        self.left_out = 0
        self.reasons: Counter[str] = Counter()
        self.retries: Counter[Outcome] = Counter()
        self.target = CostCount()
        self.judging = CostCount()
        self.without_cost = 0
        self.deeds = DeedCount()

    def add(self, result: TrialResult, case: int) -> None:
        self.trials += 1
        self.outcomes[result.outcome] += 1
        if result.outcome.is_judged:
            self.cases.add(case)
        spent = finite(result.total_s) or 0.0
        self.serial_s += spent
        if result.outcome is Outcome.SKIPPED:
            error = result.result.error
            self.left_out += error is not None and error.lasting
            self._add_reason(reason(result.result))
        elif is_from_cache(result):
            self.cached += 1
        else:
            self.durations.append(spent)
        self.answers_cut += CUT in result.result.notes
        if result.retries:
            self.retries.update(result.retries)
        self._add_costs(result)
        self.deeds.add(result.result)

    def _add_reason(self, why: str) -> None:
        known = why in self.reasons or len(self.reasons) < MOST_REASONS
        self.reasons[why if known else OTHER_REASONS] += 1

    def _add_costs(self, result: TrialResult) -> None:
        spend = spend_of(result)
        if spend is None:
            self.target.add_usage(usage_of(result))
        self.target.add(spend)
        self.judging.add(result.judging)
        if result.unended:
            self._add_unended(result)
        if result.outcome is not Outcome.SKIPPED:
            self.without_cost += spend is None or not is_known(spend)

    def _add_unended(self, result: TrialResult) -> None:
        if spend_of(result) is None:
            self.target.add_unended()
        if result.judging is None:
            self.judging.add_unended()

    def figures(self, paid: Paid) -> dict[str, Any]:
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
            "left_out": self.left_out,
            "errors_by_kind": {kind: number for kind, number in by_kind.items() if number},
            "skipped_by_reason": dict(self.reasons.most_common()),
            "retries_by_kind": {kind.value: n for kind, n in self.retries.most_common()},
            "cases": cases,
            "pass_rate": rate,
            "pass_rate_interval": None if rate is None else wilson(rate * cases, cases),
            "rate_if_errors_failed": _share(passed, passed + failed + errors),
            "rate_if_errors_passed": _share(passed + errors, passed + failed + errors),
            "serial_s": self.serial_s,
            "median_s": median(self.durations) if self.durations else None,
            "from_cache": self.cached,
            "answers_cut": self.answers_cut,
            "target": self.target.costs(is_paid=paid.target),
            "judging": self.judging.costs(is_paid=paid.judging),
            "trials_without_cost": self.without_cost,
            "deeds": self.deeds.deeds(),
        }


def _share(part: int, of: int) -> float | None:
    return part / of if of else None
