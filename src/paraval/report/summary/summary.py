"""Counts, rates and scores of results, in one pass, with the case as unit: for the run and for each
variant.

Errors are separate from failures: rates are over judged trials, case by case, with the rates that
errors could hide beside them. Whether a rate is good enough is decided by the gate.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from paraval.codec import finite
from paraval.dataclass import dataclass
from paraval.models.response_reader import CUT
from paraval.records import (
    CUT_OFF,
    SETUP_REMOVED,
    SETUP_UNDONE,
    Outcome,
    RunInfo,
    TrialResult,
    Variant,
)
from paraval.report.compare.case_results import CaseBook, Cell, variant_key
from paraval.report.reasons import EMPTY_ANSWER, reason, without_text
from paraval.report.summary.breakdown import MOST_GROUPS, BreakdownCount, Groups
from paraval.report.summary.costs import (
    CostCount,
    Costs,
    is_from_cache,
    is_known,
    is_timeout,
    seconds_to_verdict,
    spend_of,
    usage_of,
)
from paraval.report.summary.tool_activity import ActivityCount, ToolActivity
from paraval.statistics.rates import clustered_rate_interval, quantile, score_interval

NO_TAGS: Mapping[str, tuple[str, ...]] = MappingProxyType({})

# Rates and scores with the case as unit: the repeats of a case are a cluster.


Counts = tuple[tuple[int, tuple[int, int]], ...]
"""For a case: number of judged repeats -> how many passed in cells with that many, and how many
such cells there are."""


class Clusters:
    """Cases with a verdict: how often each passed, and its mean score."""

    def __init__(self) -> None:
        # There are many cases but few kinds of them: each kind is held once.
        self._cells: Counter[tuple[int, int, int]] = Counter()
        """Number of cells by passed, judged and errors."""
        self._cases: list[Counts] = []
        self._known: dict[Counts, Counts] = {}
        self._scores = array("d")
        self._tags: dict[str, Counter[tuple[int, int]]] = {}
        """For each tag: number of cases by trials that passed and trials that were judged."""

    def add(self, cells: Iterable[Cell], tags: Iterable[str] = ()) -> None:
        """Add a case by its cells."""
        counts: dict[int, tuple[int, int]] = {}
        scored, sum_score = 0, 0.0
        for cell in cells:
            passed, judged = cell.passed, cell.judged
            self._cells[passed, judged, cell.errors] += 1
            scored += cell.scored
            sum_score += cell.sum_score
            if judged:
                before, number = counts.get(judged, (0, 0))
                counts[judged] = (before + passed, number + 1)
        if counts:
            case = tuple(sorted(counts.items()))
            self._cases.append(self._known.setdefault(case, case))
            kind = (
                sum(one for one, _ in counts.values()),
                sum(n * m for n, (_, m) in counts.items()),
            )
            for tag in tags:
                if tag in self._tags or len(self._tags) < MOST_GROUPS:
                    self._tags.setdefault(tag, Counter())[kind] += 1
        if scored:
            self._scores.append(sum_score / scored)

    def __len__(self) -> int:
        """The number of cases with a verdict."""
        return len(self._cases)

    def rate(self) -> float | None:
        """The pass rate; None if nothing was judged."""
        kinds = self._cells.items()
        return _mean_rate((passed, judged, number) for (passed, judged, _), number in kinds)

    def rate_if_errors_failed(self) -> float | None:
        """The lowest possible rate, over cells with only errors too; None if no trial ended."""
        kinds = self._cells.items()
        return _mean_rate((passed, judged + errors, n) for (passed, judged, errors), n in kinds)

    def rate_if_errors_passed(self) -> float | None:
        """The highest possible rate, over the same cells."""
        kinds = self._cells.items()
        return _mean_rate(
            (passed + errors, judged + errors, n) for (passed, judged, errors), n in kinds
        )

    def rate_interval(self) -> tuple[float, float] | None:
        if not self._cases:
            return None
        repeats = self._usual_repeats()
        scaled = {case: _cluster(case, repeats) for case in self._known}
        return clustered_rate_interval([scaled[case] for case in self._cases])

    def tag_interval(self, tag: str) -> tuple[float, float] | None:
        kinds = self._tags.get(tag)
        return None if kinds is None else clustered_rate_interval(list(kinds.elements()))

    def _usual_repeats(self) -> Fraction:
        """The number of judged repeats per cell with the same information: the harmonic mean,
        since the variance of a mean of rates is proportional to the mean of 1 / n."""
        judged: Counter[int] = Counter()
        for (_, repeats, _), number in self._cells.items():
            if repeats:
                judged[repeats] += number
        inverse = sum((Fraction(number, n) for n, number in judged.items()), Fraction(0))
        return judged.total() / inverse

    def score(self) -> float | None:
        return fmean(self._scores) if self._scores else None

    def score_interval(self) -> tuple[float, float] | None:
        return score_interval(self._scores)[1:] if self._scores else None


def clusters_of(
    book: CaseBook, tags: Mapping[str, tuple[str, ...]] = NO_TAGS
) -> tuple[Clusters, dict[str, Clusters]]:
    """Clusters of the whole run, with all variants of a case together; and by variant key."""
    whole = Clusters()
    by_variant = {key: Clusters() for key in book.variants}
    if len(by_variant) == 1:
        by_variant = dict.fromkeys(by_variant, whole)
    for case, cells in book.rows():
        own = tags.get(case, ())
        if len(book.variants) > 1:
            for key, cell in cells.items():
                by_variant[key].add([cell], own)
        whole.add(cells.values(), own)
    return whole, by_variant


def _mean_rate(cells: Iterable[tuple[int, int, int]]) -> float | None:
    """The exact mean rate, from (passed, of how many, in how many cells); None without cells."""
    passed_of: Counter[int] = Counter()
    all_cells = 0
    for passed, of, number in cells:
        if of:
            passed_of[of] += passed * number
            all_cells += number
    if not all_cells:
        return None
    return float(sum(Fraction(passed, of) for of, passed in passed_of.items()) / all_cells)


def _cluster(case: Counts, repeats: Fraction) -> tuple[float, float]:
    """Passed and judged, scaled to the given number of repeats per cell."""
    rates = sum(Fraction(passed, judged) for judged, (passed, _) in case)
    cells = sum(number for _, (_, number) in case)
    return (float(rates * repeats), float(cells * repeats))


MOST_REASONS = 20
"""Most distinct reasons for skips that are kept; each may name its own amounts."""
OTHER_REASONS = "for other reasons"
SLOW = 0.95
"""The quantile shown beside the median."""
_TOKENS = ("input_tokens", "output_tokens")
"""These include cached and reasoning tokens."""
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
    """Skipped trials that skipped themselves, as tests can: a resume would not run them."""
    errors_by_kind: Mapping[str, int]
    skipped_by_reason: Mapping[str, int]
    retries_by_kind: Mapping[str, int]
    """Attempts that were retried, by how they ended ..."""
    retries_lost: int
    """... and how many of them were lost with a node of a cluster."""
    cases: int
    """Distinct cases with a judged trial: the sample size of the interval."""
    pass_rate: float | None
    """The mean, over cases and variants, of the pass rate of the judged repeats. It equals the
    share of judged trials that passed if all have as many repeats; None if nothing was judged."""
    pass_rate_interval: tuple[float, float] | None
    """With the case as unit: repeats of a case carry less information than as many cases."""
    rate_if_errors_failed: float | None
    """The worst that the errors could hide: the same mean, with errors as failed."""
    rate_if_errors_passed: float | None
    """The best that the errors could hide: the same mean, with errors as passed."""
    score: float | None
    """The mean of the cases' mean scores; None if there is no score."""
    score_interval: tuple[float, float] | None
    """None if the cases don't vary: only one, or all the same."""
    is_scored: bool
    """Whether some score differs from 1 for passed and 0 for failed."""
    by_grader: Groups
    """In the order in which they first judged, or were skipped."""
    by_tag: Groups
    """Over judged trials; empty if the cases have no tags, or are not known."""
    serial_s: float
    """The sum of all attempts' durations."""
    median_s: float | None
    """Median time of judged trials' targets, over all attempts, with cached answers as when they
    were requested; None if no such time is known."""
    p95_s: float | None
    """95% of the same trials took no longer."""
    timeouts: int
    """Trials that timed out and are not in those times ..."""
    timeout_s: float | None
    """... and the shortest time after which one was stopped; None if there were none."""
    errors_failed: Mapping[str, int]
    """Errors that count as failures, as the suite says: kind -> number."""
    answers_cut: int
    """Answers that were cut off at max_tokens ..."""
    answers_cut_off: Mapping[str, int]
    """... and elsewhere: `at max_turns` -> number."""
    answers_empty: int
    """Judged answers of models and agents that have neither text nor tool calls."""
    hung: int
    """Attempts of programs that timed out or crashed, and count as errors."""
    setup_undone: tuple[str, ...]
    """Notes on what `setup` did in workspaces and attempts did not see."""
    grader_error: str
    """Why no trial has a verdict, if it is the same grader's error in all of them; else empty."""
    target: Costs
    judging: Costs
    trials_without_cost: int
    """Trials that ended, without a fully known cost."""
    deeds: ToolActivity
    """Tool calls, file changes, CPU and memory."""
    tool_calls: int | None
    """Including calls with an error; None if no agent reports them."""

    @property
    def is_by_case(self) -> bool:
        """Whether the pass rate differs from the share of judged trials that passed, because some
        cases have fewer judged repeats than others."""
        if self.pass_rate is None:
            return False
        return not math.isclose(self.pass_rate, self.passed / self.judged, abs_tol=_DUST)

    @property
    def calls_a_trial(self) -> float | None:
        """Tool calls per trial, over the trials whose agents report them."""
        telling = self.deeds.telling
        return self.tool_calls / telling if telling and self.tool_calls is not None else None

    @property
    def tokens(self) -> float | None:
        """Input and output tokens of targets; None if none were reported."""
        return tokens_in(self.usage)

    @property
    def cost_usd(self) -> float | None:
        """The known cost of targets; None if nothing is known."""
        return self.target.usd

    @property
    def usage(self) -> Mapping[str, float]:
        return self.target.usage

    @property
    def total_cost_usd(self) -> float | None:
        """The known cost of targets and judges; None if nothing is known."""
        known = [costs.usd for costs in (self.target, self.judging) if costs.usd is not None]
        return sum(known) if known else None

    @property
    def judged(self) -> int:
        return self.passed + self.failed

    @property
    def ended(self) -> int:
        """Trials that passed, failed or ended in an error."""
        return self.judged + self.errors


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSummary(Tally):
    """How the trials of one variant ended."""

    variant: Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Tally):
    """How a run ended."""

    planned: int
    """Trials of the plan; more than `trials` if some have no result."""
    wall_s: float
    speedup: float | None
    nodes: Mapping[str, int]
    """Trials by the node of a cluster that decided them; empty for a run on one machine."""
    variants: tuple[VariantSummary, ...]
    """In plan order; without a matrix, one variant without axes."""
    has_same_graders: bool
    """Whether each case was judged by the same graders in all its trials; otherwise its scores
    are not comparable, and neither are the means."""


def tokens_in(usage: Mapping[str, float]) -> float | None:
    """Input plus output tokens; None if neither was reported."""
    known = [amount for name in _TOKENS if (amount := finite(usage.get(name))) is not None]
    return sum(known) if known else None


def summarize(
    results: Iterable[TrialResult],
    info: RunInfo,
    book: CaseBook,
    tags: Mapping[str, tuple[str, ...]] = NO_TAGS,
) -> Summary:
    """Counts and rates of a run. Results come in plan order and are not kept. `tags`: of cases, by
    their ids.

    The caller must fill `book` while `results` is consumed.
    """
    whole = _Count()
    variants: dict[str, tuple[Variant, _Count]] = {}
    for result in results:
        key = variant_key(result.variant)
        if key not in variants:
            if len(variants) == 1:
                # Up to here, the counts of the only variant were those of the whole, too.
                whole = deepcopy(whole)
            variants[key] = (dict(result.variant), _Count() if variants else whole)
        own, count = tags.get(result.case_id, ()), variants[key][1]
        count.add(result, own)
        if count is not whole:
            whole.add(result, own)
    all_cases, by_variant = clusters_of(book, tags)
    # What a run of nothing but cached answers did in parallel says nothing.
    worked = whole.ran > 0 or not whole.cached or info.regraded_from is not None
    is_timed = info.wall_s > 0 and worked
    return Summary(
        **whole.figures(all_cases, whole),
        planned=max(info.trials, whole.trials),
        wall_s=info.wall_s,
        speedup=whole.serial_s / info.wall_s if is_timed else None,
        nodes=dict(sorted(whole.nodes.items())),
        variants=tuple(
            VariantSummary(variant=variant, **count.figures(by_variant[key], whole))
            for key, (variant, count) in variants.items()
        ),
        has_same_graders=book.grader_sets <= 1
        or all(
            len({graders for cell in cells.values() for graders in cell.scores}) <= 1
            for _, cells in book.rows()
        ),
    )


class _Count:
    """Adds up results one by one; keeps a few numbers per trial, not the trial."""

    def __init__(self) -> None:
        self.trials = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.is_scored = False
        self.durations = array("d")
        self.timeouts = array("d")
        self.ran = 0
        self.serial_s = 0.0
        self.cached = 0
        self.errors_failed: Counter[str] = Counter()
        self.answers_cut = 0
        self.answers_cut_off: Counter[str] = Counter()
        self.answers_empty = 0
        self.hung = 0
        self.setup_undone: dict[str, None] = {}
        self.grader_errors: set[str] = set()
        self.left_out = 0
        self.reasons: Counter[str] = Counter()
        self.retries: Counter[Outcome] = Counter()
        self.retries_lost = 0
        self.target = CostCount()
        self.judging = CostCount()
        self.without_cost = 0
        self.deeds = ActivityCount()
        self.nodes: Counter[str] = Counter()
        self.tool_calls: int | None = None
        self.breakdown = BreakdownCount()

    def add(self, result: TrialResult, tags: Iterable[str]) -> None:
        self.trials += 1
        self.breakdown.add(result.result, tags)
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
        error = result.result.error
        if result.outcome is Outcome.FAILED and error is not None:
            self.errors_failed[error.kind.value] += 1
        self._add_endings(result)
        if result.retries:
            self.retries.update(result.retries)
            self.retries_lost += sum(error.lost for error in result.retry_errors)
        self._add_costs(result)
        self.deeds.add(result.result)
        if result.result.node is not None:
            self.nodes[result.result.node] += 1
        activity = result.result.activity
        if activity is not None and activity.tells_tools:
            calls = sum(tool.calls for tool in activity.tools)
            self.tool_calls = (self.tool_calls or 0) + calls

    def _grader_error(self, ended: int) -> str:
        if len(self.grader_errors) != 1 or self.outcomes[Outcome.GRADER_ERROR] != ended:
            return ""
        return next(iter(self.grader_errors)) if ended > 1 else ""

    def _add_endings(self, result: TrialResult) -> None:
        # Only programs of this machine have a CPU time.
        is_program = result.result.cpu_s is not None
        self.hung += is_program and result.outcome in (Outcome.TIMEOUT, Outcome.CRASHED)
        if result.outcome is Outcome.GRADER_ERROR and len(self.grader_errors) < 2:
            self.grader_errors.add(reason(result.result))
        for note in result.result.notes:
            if note.startswith((SETUP_UNDONE, SETUP_REMOVED)) and len(self.setup_undone) < 3:
                self.setup_undone[note] = None
            self.answers_cut += note == CUT
            if note.startswith(CUT_OFF):
                self.answers_cut_off[note.removeprefix(CUT_OFF).partition(" (")[0]] += 1
        if result.outcome.is_judged:
            self.answers_empty += without_text(result.result) == EMPTY_ANSWER

    def _add_reason(self, why: str) -> None:
        known = why in self.reasons or len(self.reasons) < MOST_REASONS
        self.reasons[why if known else OTHER_REASONS] += 1

    def _add_times(self, result: TrialResult) -> None:
        taken = seconds_to_verdict(result)
        if taken is not None:
            self.durations.append(taken)
        if is_timeout(result):
            self.timeouts.append(finite(result.result.time_s) or 0.0)

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

    def figures(self, cases: Clusters, run: _Count) -> dict[str, Any]:
        """The fields of a Tally; `run`: the sums over all trials of the run."""
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
            "retries_lost": self.retries_lost,
            "cases": len(cases),
            "pass_rate": cases.rate(),
            "pass_rate_interval": cases.rate_interval(),
            "rate_if_errors_failed": cases.rate_if_errors_failed(),
            "rate_if_errors_passed": cases.rate_if_errors_passed(),
            "score": cases.score(),
            "score_interval": cases.score_interval(),
            "is_scored": self.is_scored,
            "by_grader": self.breakdown.graders,
            "by_tag": {
                tag: replace(tally, pass_rate_interval=cases.tag_interval(tag))
                for tag, tally in self.breakdown.tags.items()
            },
            "serial_s": self.serial_s,
            "median_s": median(self.durations) if self.durations else None,
            "p95_s": quantile(self.durations, SLOW) if self.durations else None,
            "timeouts": len(self.timeouts),
            "timeout_s": min(self.timeouts, default=None),
            "errors_failed": dict(self.errors_failed.most_common()),
            "answers_cut": self.answers_cut,
            "answers_cut_off": dict(self.answers_cut_off.most_common()),
            "answers_empty": self.answers_empty,
            "hung": self.hung,
            "setup_undone": tuple(self.setup_undone),
            "grader_error": self._grader_error(passed + failed + errors),
            "target": self.target.costs(is_paid=run.target.is_told),
            "judging": self.judging.costs(is_paid=run.judging.is_told),
            "trials_without_cost": self.without_cost,
            "deeds": self.deeds.deeds(),
            "tool_calls": self.tool_calls,
        }


def _says_more_than_its_verdict(result: TrialResult) -> bool:
    if not result.outcome.is_judged:
        return False
    score = finite(result.result.score)
    return score is not None and score != (result.outcome is Outcome.PASSED)
