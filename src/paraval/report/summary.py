"""From results to counts and rates, in one pass, for the whole run and for each variant.

Errors are kept apart from wrong answers: rates are over what was judged, case by case, and beside
them stand the rates that the errors could hide. What is asked of a rate is the gate's business.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from paraval.models.reading import CUT
from paraval.records import Outcome, RunInfo, TrialResult, Variant
from paraval.report.clusters import Book, Clusters, clusters_of
from paraval.report.costs import (
    CostCount,
    Costs,
    finite,
    is_from_cache,
    is_known,
    is_timeout,
    seconds_to_verdict,
    spend_of,
    usage_of,
)
from paraval.report.deeds import DeedCount, Deeds
from paraval.report.wording import reason
from paraval.statistics.means import quantile

MOST_REASONS = 20
"""Why trials were skipped is said in so many ways at most; each may name sums of its own."""
OTHER_REASONS = "for other reasons"
SLOW = 0.95
"""The share of trials that are quicker than the time told beside the median."""
_TOKENS = ("input_tokens", "output_tokens")
"""Cached ones and those of reasoning are among them."""
_DUST = 1e-9


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
    """Of a case with a variant, over its judged repeats; of several, the mean of theirs. So it is
    the share of the judged that passed where all have as many; None where nothing was judged."""
    pass_rate_interval: tuple[float, float] | None
    """With the case as unit: repeats of a case tell less than as many cases would."""
    rate_if_errors_failed: float | None
    """The worst that the errors could hide: the same mean, with errors as failed."""
    rate_if_errors_passed: float | None
    """The best that the errors could hide: the same mean, with errors as passed."""
    score: float | None
    """The mean of the cases' mean scores; None where nothing has one."""
    score_interval: tuple[float, float] | None
    """None where the cases don't tell how much they vary: one alone, or all the same."""
    is_scored: bool
    """True: some score says more than passed and failed do."""
    serial_s: float
    """The sum of all attempts' durations."""
    median_s: float | None
    """Of judged trials that were not answered from the cache alone, all attempts of each together;
    None where there was none."""
    p95_s: float | None
    """Of the same: 95 % of them took no longer."""
    timeouts: int
    """Trials that are not in those times, since they would have taken longer than they may ..."""
    timeout_s: float | None
    """... and after how long the first of them was ended; None where there was none."""
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
    tool_calls: int | None
    """Those with an error included; None where no agent tells them."""

    @property
    def is_by_case(self) -> bool:
        """Whether the pass rate is another than the share of the judged that passed: some cases
        have fewer judged repeats than others."""
        if self.pass_rate is None:
            return False
        return not math.isclose(self.pass_rate, self.passed / self.judged, abs_tol=_DUST)

    @property
    def calls_a_trial(self) -> float | None:
        """Calls of tools, over the trials whose agents tell them."""
        telling = self.deeds.telling
        return self.tool_calls / telling if telling and self.tool_calls is not None else None

    @property
    def tokens(self) -> float | None:
        """In and out, of targets alone; None where none were told."""
        return tokens_in(self.usage)

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


def tokens_in(usage: Mapping[str, float]) -> float | None:
    """In and out together; None where neither was told."""
    told = [amount for name in _TOKENS if (amount := finite(usage.get(name))) is not None]
    return sum(told) if told else None


def summarise(results: Iterable[TrialResult], info: RunInfo, book: Book) -> Summary:
    """Counts and rates of a run. Results come in plan order and are not kept.

    `book` has what each case came to when the last result has passed by: whoever hands over the
    results writes it.
    """
    whole = _Count()
    variants: dict[str, tuple[Variant, _Count]] = {}
    for result in results:
        key = variant_key(result.variant)
        if key not in variants:
            variants[key] = (dict(result.variant), _Count())
        whole.add(result)
        variants[key][1].add(result)
    all_cases, by_variant = clusters_of(book)
    paid = Paid(target=whole.target.is_told, judging=whole.judging.is_told)
    # Answers from the cache alone saved money; what time they saved is not known.
    is_timed = info.wall_s > 0 and (whole.ran > 0 or not whole.cached)
    return Summary(
        **whole.figures(paid, all_cases),
        planned=max(info.trials, whole.trials),
        wall_s=info.wall_s,
        speedup=whole.serial_s / info.wall_s if is_timed else None,
        variants=tuple(
            VariantSummary(variant=variant, **count.figures(paid, by_variant[key]))
            for key, (variant, count) in variants.items()
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
        self.is_scored = False
        self.durations = array("d")
        self.timeouts = array("d")
        self.ran = 0
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
        self.tool_calls: int | None = None

    def add(self, result: TrialResult) -> None:
        self.trials += 1
        self.outcomes[result.outcome] += 1
        self.is_scored = self.is_scored or _says_more_than_its_verdict(result)
        self.serial_s += finite(result.total_s) or 0.0
        if result.outcome is Outcome.SKIPPED:
            error = result.result.error
            self.left_out += error is not None and error.lasting
            self._add_reason(reason(result.result))
        elif is_from_cache(result):
            self.cached += 1
        else:
            self.ran += 1
        self._add_times(result)
        self.answers_cut += CUT in result.result.notes
        if result.retries:
            self.retries.update(result.retries)
        self._add_costs(result)
        self.deeds.add(result.result)
        activity = result.result.activity
        if activity is not None and activity.tells_tools:
            calls = sum(tool.calls for tool in activity.tools)
            self.tool_calls = (self.tool_calls or 0) + calls

    def _add_reason(self, why: str) -> None:
        known = why in self.reasons or len(self.reasons) < MOST_REASONS
        self.reasons[why if known else OTHER_REASONS] += 1

    def _add_times(self, result: TrialResult) -> None:
        taken = seconds_to_verdict(result)
        if taken is not None:
            self.durations.append(taken)
        if is_timeout(result):
            self.timeouts.append(finite(result.result.duration_s) or 0.0)

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

    def figures(self, paid: Paid, cases: Clusters) -> dict[str, Any]:
        """The fields of a Tally."""
        passed, failed = self.outcomes[Outcome.PASSED], self.outcomes[Outcome.FAILED]
        by_kind = {kind.value: self.outcomes[kind] for kind in Outcome if kind.is_error}
        errors = sum(by_kind.values())
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
            "cases": len(cases),
            "pass_rate": cases.rate(),
            "pass_rate_interval": cases.rate_interval(),
            "rate_if_errors_failed": cases.rate_if_errors_failed(),
            "rate_if_errors_passed": cases.rate_if_errors_passed(),
            "score": cases.score(),
            "score_interval": cases.score_interval(),
            "is_scored": self.is_scored,
            "serial_s": self.serial_s,
            "median_s": median(self.durations) if self.durations else None,
            "p95_s": quantile(self.durations, SLOW) if self.durations else None,
            "timeouts": len(self.timeouts),
            "timeout_s": min(self.timeouts, default=None),
            "from_cache": self.cached,
            "answers_cut": self.answers_cut,
            "target": self.target.costs(is_paid=paid.target),
            "judging": self.judging.costs(is_paid=paid.judging),
            "trials_without_cost": self.without_cost,
            "deeds": self.deeds.deeds(),
            "tool_calls": self.tool_calls,
        }


def _says_more_than_its_verdict(result: TrialResult) -> bool:
    if not result.outcome.is_judged:
        return False
    score = finite(result.result.score)
    return score is not None and score != (result.outcome is Outcome.PASSED)
