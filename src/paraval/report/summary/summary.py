"""Counts, rates and scores of results, in one pass, with the case as unit: for the run and for each
variant."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from fractions import Fraction
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from paraval.codec import finite
from paraval.models.response_reader import CUT
from paraval.records import (
    CUT_OFF,
    SETUP_REMOVED,
    SETUP_UNDONE,
    Activity,
    AttemptResult,
    Change,
    McpState,
    Outcome,
    RunInfo,
    SkippedGrader,
    Spend,
    TrialResult,
    Variant,
)
from paraval.report.compare.case_results import CaseBook, Cell, variant_key
from paraval.report.reasons import EMPTY_ANSWER, reason, without_text
from paraval.report.summary.costs import (
    is_from_cache,
    is_known,
    is_timeout,
    seconds_to_verdict,
    spend_of,
    tokens_in,
    usage_of,
)
from paraval.report.summary.tally import (
    AgentTotals,
    ChangeTotals,
    Costs,
    GroupTally,
    ServerUse,
    Summary,
    VariantSummary,
)
from paraval.statistics.rates import clustered_rate_interval, quantile, score_interval

NO_TAGS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
MOST_GROUPS = 1_000
"""Most graders, and most tags, that are counted: a tag for each case says nothing more."""
MOST_REASONS = 20
"""Most distinct reasons for skips that are kept; each may name its own amounts."""
OTHER_REASONS = "for other reasons"
MOST_UNASKED = 20
"""A limit, since names of servers that were not given to an agent are up to the agent."""
MOST_TAMPERING = 20
SLOW = 0.95
"""The quantile shown beside the median."""

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


# ---- the run, and each variant


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
        self.trials = self.ran = self.cached = self.left_out = self.hung = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.is_scored = False
        self.durations, self.timeouts = array("d"), array("d")
        self.serial_s = 0.0
        self.errors_failed: Counter[str] = Counter()
        self.answers_cut = self.answers_empty = self.retries_lost = self.without_cost = 0
        self.answers_cut_off: Counter[str] = Counter()
        self.setup_undone: dict[str, None] = {}
        self.grader_errors: set[str] = set()
        self.reasons: Counter[str] = Counter()
        self.retries: Counter[Outcome] = Counter()
        self.target, self.judging = _CostCount(), _CostCount()
        self.agents, self.changes = _AgentCount(), _ChangeCount()
        self.cpu_s: float | None = None
        self.memory_bytes: int | None = None
        self.nodes: Counter[str] = Counter()
        self.graders: dict[str, GroupTally] = {}
        self.tags: dict[str, tuple[int, GroupTally]] = {}
        """With their place among a case's tags: those from one column of a dataset have the
        same."""

    def add(self, result: TrialResult, tags: Iterable[str]) -> None:
        end, error = result.result, result.result.error
        self.trials += 1
        self.outcomes[result.outcome] += 1
        self.serial_s += finite(result.total_s) or 0.0
        if result.outcome is Outcome.SKIPPED:
            self.left_out += error is not None and error.lasting
            why = reason(end)
            is_kept = why in self.reasons or len(self.reasons) < MOST_REASONS
            self.reasons[why if is_kept else OTHER_REASONS] += 1
        else:
            is_cached = is_from_cache(result)
            self.cached, self.ran = self.cached + is_cached, self.ran + (not is_cached)
        if (taken := seconds_to_verdict(result)) is not None:
            self.durations.append(taken)
        if is_timeout(result):
            self.timeouts.append(finite(end.time_s) or 0.0)
        if result.outcome is Outcome.FAILED and error is not None:
            self.errors_failed[error.kind.value] += 1
        if result.outcome.is_judged:
            self._add_judged(end, tags)
        self._add_endings(end)
        if result.retries:
            self.retries.update(result.retries)
            self.retries_lost += sum(error.lost for error in result.retry_errors)
        self._add_costs(result)
        if end.activity is not None:
            self.agents.add(end.activity)
        if end.change is not None:
            self.changes.add(end.change)
        if (cpu_s := finite(end.cpu_s)) is not None:
            self.cpu_s = (self.cpu_s or 0.0) + cpu_s
        if end.memory_bytes is not None:
            self.memory_bytes = max(self.memory_bytes or 0, end.memory_bytes)
        if end.node is not None:
            self.nodes[end.node] += 1

    def _add_judged(self, end: AttemptResult, tags: Iterable[str]) -> None:
        passed, score = end.outcome is Outcome.PASSED, finite(end.score)
        self.is_scored = self.is_scored or (score is not None and score != passed)
        self.answers_empty += without_text(end) == EMPTY_ANSWER
        for grade in end.grades:
            group = _group(self.graders, grade.grader)
            if not group.judged:
                group.only_score, group.only_reason = grade.score, grade.reason
            if group.only_score != grade.score:
                group.only_score = None
            if group.only_reason != grade.reason:
                group.only_reason = ""
            group.is_judge = grade.judge is not None
            _add(group, finite(grade.score), passed=grade.passed)
        for note in end.notes:
            if (skip := SkippedGrader.from_note(note)) is not None:
                group = _group(self.graders, skip.grader)
                group.skipped += 1
                group.skip_reason = group.skip_reason or skip.reason
        for place, tag in enumerate(tags):
            if tag in self.tags or len(self.tags) < MOST_GROUPS:
                _, group = self.tags.setdefault(tag, (place, GroupTally()))
                _add(group, score, passed=passed)

    def _add_endings(self, end: AttemptResult) -> None:
        # Only programs of this machine have a CPU time.
        self.hung += end.cpu_s is not None and end.outcome in (Outcome.TIMEOUT, Outcome.CRASHED)
        if end.outcome is Outcome.GRADER_ERROR and len(self.grader_errors) < 2:
            self.grader_errors.add(reason(end))
        for note in end.notes:
            if note.startswith((SETUP_UNDONE, SETUP_REMOVED)) and len(self.setup_undone) < 3:
                self.setup_undone[note] = None
            self.answers_cut += note == CUT
            if note.startswith(CUT_OFF):
                self.answers_cut_off[note.removeprefix(CUT_OFF).partition(" (")[0]] += 1

    def _add_costs(self, result: TrialResult) -> None:
        spend = spend_of(result)
        if spend is None:
            self.target.add_usage(usage_of(result))
        self.target.add(spend)
        self.judging.add(result.judging)
        if result.unended:
            self.target.unended += spend is None
            self.judging.unended += result.judging is None
        if result.outcome is not Outcome.SKIPPED:
            self.without_cost += spend is None or not is_known(spend)

    def figures(self, cases: Clusters, run: _Count) -> dict[str, Any]:
        """The fields of a Tally; `run`: the sums over all trials of the run."""
        passed, failed = self.outcomes[Outcome.PASSED], self.outcomes[Outcome.FAILED]
        by_kind = {kind.value: self.outcomes[kind] for kind in Outcome if kind.is_error}
        errors, ended = sum(by_kind.values()), self.trials - self.outcomes[Outcome.SKIPPED]
        one_grader_error = len(self.grader_errors) == 1 and ended > 1
        is_one = one_grader_error and self.outcomes[Outcome.GRADER_ERROR] == ended
        target = self.target.figures(is_paid=run.target.is_told)
        judging = Costs(**self.judging.figures(is_paid=run.judging.is_told))
        known = [usd for usd in (target["cost_usd"], judging.cost_usd) if usd is not None]
        for tag, (_, group) in self.tags.items():
            group.pass_rate_interval = cases.tag_interval(tag)
        return {
            **target,
            "trials": self.trials,
            "passed": passed,
            "failed": failed,
            "errors": errors,
            "skipped": self.outcomes[Outcome.SKIPPED],
            "left_out": self.left_out,
            "errors_by_kind": {kind: number for kind, number in by_kind.items() if number},
            "errors_failed": dict(self.errors_failed.most_common()),
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
            "by_grader": self.graders,
            "by_tag": {tag: one for tag, (_, one) in sorted(self.tags.items(), key=_place)},
            "serial_s": self.serial_s,
            "median_s": _median(self.durations),
            "p95_s": quantile(self.durations, SLOW) if self.durations else None,
            "timeouts": len(self.timeouts),
            "timeout_s": min(self.timeouts, default=None),
            "answers_cut": self.answers_cut,
            "answers_cut_off": dict(self.answers_cut_off.most_common()),
            "answers_empty": self.answers_empty,
            "hung": self.hung,
            "setup_undone": tuple(self.setup_undone),
            "grader_error": next(iter(self.grader_errors)) if is_one else "",
            "trials_without_cost": self.without_cost,
            "tokens": tokens_in(target["usage"]),
            "judging": judging,
            "total_cost_usd": sum(known) if known else None,
            "agents": self.agents.totals(),
            "tool_calls": self.agents.calls,
            "changes": self.changes.totals(),
            "cpu_s": self.cpu_s,
            "most_memory_bytes": self.memory_bytes,
        }


def _group(groups: dict[str, GroupTally], name: str) -> GroupTally:
    """The group of a name; one that is not kept if there are too many."""
    if name in groups or len(groups) >= MOST_GROUPS:
        return groups.get(name) or GroupTally()
    return groups.setdefault(name, GroupTally())


def _add(group: GroupTally, score: float | None, *, passed: bool) -> None:
    group.judged += 1
    group.passed += passed
    group.sum_score += score or 0.0
    group.score = group.sum_score / group.judged


def _place(tag: tuple[str, tuple[int, GroupTally]]) -> int:
    return tag[1][0]


def _median(values: array[float]) -> float | None:
    return median(values) if values else None


class _CostCount:
    """Adds up costs, result by result."""

    def __init__(self) -> None:
        self._usd = self._spent_usd = 0.0
        self._spent_unknown = self._calls_unknown = False
        self._priced = self._unpriced = self._calls = self._cached = 0
        self._usage: dict[str, float] = {}
        self.unended = 0
        """Trials that reported nothing because no attempt ended."""

    @property
    def is_told(self) -> bool:
        return self._priced + self._unpriced > 0

    def add(self, spend: Spend | None) -> None:
        if spend is None:
            return
        is_priced = is_known(spend)
        self._priced, self._unpriced = self._priced + is_priced, self._unpriced + (not is_priced)
        self._usd += finite(spend.original_known_usd) or 0.0
        self._spent_usd += finite(spend.known_usd) or 0.0
        self._spent_unknown |= finite(spend.cost_usd) is None
        self._calls += spend.calls
        self._calls_unknown |= spend.calls_unknown
        self._cached += spend.cached
        self.add_usage(spend.original_usage)

    def add_usage(self, usage: Mapping[str, float]) -> None:
        for name, reported in usage.items():
            if (amount := finite(reported)) is not None:
                self._usage[name] = self._usage.get(name, 0) + amount

    def figures(self, *, is_paid: bool) -> dict[str, Any]:
        """The fields of Costs. `is_paid`: the run has costs, so trials that never ended had some,
        too."""
        unpriced = self._unpriced + (self.unended if is_paid else 0)
        # With an unknown cost and no known one, the sum is unknown, not at least $0.
        is_sum = self._usd > 0 or (self._priced > 0 and not unpriced)
        return {
            "cost_usd": self._usd if is_sum else None,
            "spent_usd": self._spent_usd if self._priced + unpriced else None,
            "spent_unknown": self._spent_unknown or unpriced > self._unpriced,
            "priced": self._priced,
            "trials_of_unknown_cost": unpriced,
            "calls": None if self._calls_unknown else self._calls,
            "cached": self._cached,
            "answers": self._calls + self._cached,
            "usage": self._usage,
        }


class _AgentCount:
    """What agents did. Tool calls are evidence: a variant that was given a tool and never called it
    says nothing about the tool. What an agent does not report is kept apart from what it did not
    do."""

    def __init__(self) -> None:
        self._trials = self._telling = self._other_calls = 0
        self._turns = array("d")
        self._servers: defaultdict[str, ServerUse] = defaultdict(ServerUse)
        self.calls: int | None = None

    def add(self, activity: Activity) -> None:
        self._trials += 1
        self._telling += activity.tells_tools
        if (turns := finite(activity.turns)) is not None:
            self._turns.append(turns)
        for name, state in activity.mcp.items():
            use = self._servers[name]
            use.handed += 1
            use.telling += activity.tells_tools
            use.connected += state is McpState.CONNECTED
            use.failed += state is McpState.FAILED
        if not activity.tells_tools:
            return
        self.calls = (self.calls or 0) + sum(tool.calls for tool in activity.tools)
        self._other_calls += sum(
            tool.calls for tool in activity.tools if tool.server not in activity.mcp
        )
        for name in {tool.server for tool in activity.tools if tool.server is not None}:
            if name in self._servers or len(self._servers) < MOST_UNASKED:
                use, calls = self._servers[name], activity.calls_of(name)
                use.called += calls > 0
                use.calls += calls
                use.errors += sum(tool.failed for tool in activity.tools if tool.server == name)

    def totals(self) -> AgentTotals | None:
        for use in self._servers.values():
            use.never_called = use.telling > 0 and use.called == 0
        return (
            AgentTotals(
                trials=self._trials,
                trials_telling_tools=self._telling,
                median_turns=_median(self._turns),
                other_calls=self._other_calls,
                mcp=self._servers,
            )
            if self._trials
            else None
        )


class _ChangeCount:
    def __init__(self) -> None:
        self._trials = self._changed = self._unknown = self._tampered = self._flagged = 0
        self._files, self._added, self._deleted = array("d"), array("d"), array("d")
        self._tampering: Counter[str] = Counter()
        self._flags: Counter[str] = Counter()

    def add(self, change: Change) -> None:
        self._trials += 1
        self._changed += change.files_in_all > 0
        if change.unknown is None:
            self._files.append(change.files_in_all)
            self._added.append(change.lines_added)
            self._deleted.append(change.lines_deleted)
        self._unknown += change.unknown is not None
        self._tampered += bool(change.tampering)
        self._tampering.update(dict.fromkeys(change.tampering, 1))
        self._flagged += bool(change.flagged)
        self._flags.update(dict.fromkeys(change.flagged, 1))

    def totals(self) -> ChangeTotals | None:
        return (
            ChangeTotals(
                trials=self._trials,
                changed=self._changed,
                unknown=self._unknown,
                median_files=_median(self._files),
                median_lines_added=_median(self._added),
                median_lines_deleted=_median(self._deleted),
                tampered=self._tampered,
                tampering=dict(self._tampering.most_common(MOST_TAMPERING)),
                flagged=self._flagged,
                flags=dict(self._flags.most_common(MOST_TAMPERING)),
            )
            if self._trials
            else None
        )
