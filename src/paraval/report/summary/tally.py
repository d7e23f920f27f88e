"""How trials ended: the figures of a run and of each variant. JSON reports have the same keys.

Errors are separate from failures: rates are over judged trials, case by case, with the rates that
errors could hide beside them. Whether a rate is good enough is decided by the gate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from paraval.codec import Bounds, Digits
from paraval.dataclass import dataclass
from paraval.records import Variant
from paraval.text.words import UNKNOWN, counted, money

Interval = tuple[float, float]
Count = Annotated[int, Bounds()]
Seconds = Annotated[float, Digits(6)]
Dollars = Annotated[float, Digits(9), Bounds()]
Usage = Mapping[str, float | None]
"""Tokens, and anything else a target counts; null for a number that JSON cannot represent."""
NOT_REPORTED = {"told": False}
"""Metadata of a field that is in no report."""
NO_PRICE = "unknown"
_DUST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What trials cost over all attempts, in US dollars. An unknown cost is never zero."""

    cost_usd: Dollars | None
    """The known cost, with cached answers at what they cost when first requested; null if
    unknown."""
    spent_usd: Dollars | None
    """What this run itself is known to have spent: without cached answers."""
    trials_of_unknown_cost: Count
    """Above 0, `cost_usd` is a lower bound."""
    calls: Count | None
    """Answers that were requested; null if not all of them are known."""
    cached: Count
    """Answers that came from the cache."""
    usage: Usage
    spent_unknown: bool = field(default=False, metadata=NOT_REPORTED)
    """True: `spent_usd` is not all."""
    answers: int = field(default=0, metadata=NOT_REPORTED)
    """Requested or cached, as far as known."""
    priced: int = field(default=0, metadata=NOT_REPORTED)
    """Trials whose cost is known."""

    @property
    def is_told(self) -> bool:
        return self.priced + self.trials_of_unknown_cost > 0

    @property
    def is_paid(self) -> bool:
        """Whether anything was spent, as far as known."""
        return self.is_told and (self.cost_usd != 0 or self.is_partly_unknown)

    @property
    def is_partly_unknown(self) -> bool:
        return self.trials_of_unknown_cost > 0

    @property
    def cost(self) -> str:
        """`$0.42`; `unknown`; `$0.12+` if some of it is unknown; `-` if nothing was reported."""
        if self.cost_usd is None:
            return NO_PRICE if self.trials_of_unknown_cost else UNKNOWN
        return money(self.cost_usd) + "+" * self.is_partly_unknown

    def cost_in_words(self, *, in_full: bool = True) -> str:
        """`$0.42`, `unknown`, `at least $0.12 (3 trials of unknown cost)`; the last part only
        `in_full`."""
        if self.cost_usd is None or not self.is_partly_unknown:
            return self.cost
        trials = counted(self.trials_of_unknown_cost, "trial")
        return f"at least {money(self.cost_usd)}" + f" ({trials} of unknown cost)" * in_full


@dataclass(slots=True, kw_only=True)
class ServerUse:
    """What trials did with one MCP server."""

    handed: int = 0
    """Trials that were given it and reported what they did; 0 if it was called without that."""
    telling: int = 0
    """Those of them whose agent reports its tool calls."""
    connected: int = 0
    """Those of them that connected; the rest failed, or did not report it."""
    failed: int = 0
    called: int = 0
    """Trials in which one of its tools was called without an error."""
    calls: int = 0
    """Calls without an error."""
    errors: int = 0
    """Calls with an error."""
    never_called: bool = False
    """It was available but never called, as far as agents report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTotals:
    """What agents did, in their deciding attempts."""

    trials: Count
    """Trials whose agent reported what it did."""
    trials_telling_tools: Count
    """Those of them whose agent reports its tool calls."""
    median_turns: float | None
    other_calls: Count
    """Calls of tools of no given server, mostly the agent's own."""
    mcp: Mapping[str, ServerUse]
    """By server; one that was `handed` to no trial was called nevertheless."""

    @property
    def handed(self) -> dict[str, ServerUse]:
        """The servers that were given to agents."""
        return {name: use for name, use in self.mcp.items() if use.handed}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTotals:
    """What trials changed in their workspaces."""

    trials: int
    """Trials that had a workspace."""
    changed: int
    """Those of them known to have changed a file."""
    unknown: int
    """Those of them with incomplete information; they are in no median."""
    median_files: float | None
    """None if nothing is known."""
    median_lines_added: float | None
    median_lines_deleted: float | None
    tampered: int
    tampering: Mapping[str, int]
    """What was done to `.git` -> number of trials."""
    flagged: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)
    """What was done to files of the grading -> number of trials."""


@dataclass(slots=True, kw_only=True)
class GroupTally:
    """The judged trials of one grader or one tag."""

    judged: int = 0
    """A grader that was skipped did not judge."""
    passed: int = 0
    sum_score: float = field(default=0.0, metadata=NOT_REPORTED)
    score: float | None = None
    """The mean score; None if nothing was judged."""
    pass_rate_interval: Interval | None = None
    """Of a tag, at 95%, with the case as unit; not adjusted for the number of tags."""
    skipped: int = 0
    """Judged trials in which the grader was skipped ..."""
    skip_reason: str = ""
    """... and why, the first time."""
    only_score: float | None = None
    """The score of all of them, if it is always the same."""
    only_reason: str = ""
    """The reason of all of them, likewise."""
    is_judge: bool = False

    @property
    def pass_rate(self) -> float | None:
        return self.passed / self.judged if self.judged else None


Groups = Mapping[str, GroupTally]
"""By the name of the grader, or the tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(Costs):
    """How a set of trials ended. Its costs are those of its targets."""

    trials: Count
    passed: Count
    failed: Count
    errors: Count
    skipped: Count
    left_out: int = field(metadata=NOT_REPORTED)
    """Skipped trials that skipped themselves, as tests can: a resume would not run them."""
    errors_by_kind: Mapping[str, Count]
    errors_failed: Mapping[str, Count]
    """Errors that are among `failed`, because the suite counts them so; by kind."""
    skipped_by_reason: Mapping[str, Count]
    retries_by_kind: Mapping[str, Count]
    """Attempts that were retried, by how they ended ..."""
    retries_lost: int = field(metadata=NOT_REPORTED)
    """... and how many of them were lost with a node of a cluster."""
    cases: Count
    """Distinct cases with a judged trial: what the interval is over."""
    pass_rate: float | None
    """The mean, over cases and variants, of the pass rate of the judged repeats. It equals the
    share of judged trials that passed if all have as many repeats; null if nothing was judged."""
    pass_rate_interval: Interval | None
    """At 95%, with the case as unit: repeats of a case carry less information than as many
    cases."""
    rate_if_errors_failed: float | None
    """The worst that the errors could hide: the same mean, with errors as failed."""
    rate_if_errors_passed: float | None
    """The best that the errors could hide: the same mean, with errors as passed."""
    score: float | None
    """The mean of the cases' mean scores; null if there is no score."""
    score_interval: Interval | None
    """Null if the cases don't vary: only one, or all the same."""
    is_scored: bool = field(metadata=NOT_REPORTED)
    """Whether some score differs from 1 for passed and 0 for failed."""
    by_grader: Groups
    """Judged trials, in the order in which graders first judged. One that was skipped did not
    judge: it is in `skipped`."""
    by_tag: Groups
    """Judged trials by tag of their case; empty if the cases have no tags, or are not known."""
    serial_s: Seconds
    """The sum of all attempts' durations."""
    median_s: Seconds | None
    """The target's time over judged trials, each with all its attempts, cached answers as when
    first requested; without graders."""
    p95_s: Seconds | None
    """95% of the same trials took no longer."""
    timeouts: Count
    """Timeouts, which are in neither of these times ..."""
    timeout_s: Seconds | None
    """... and how long the first of them ran."""
    answers_cut: Count
    """Cut off at max_tokens."""
    answers_cut_off: Mapping[str, Count]
    """Cut off elsewhere: `at max_turns`, ..."""
    answers_empty: Count
    """Answers of models and agents with neither text nor tool calls."""
    hung: int = field(metadata=NOT_REPORTED)
    """Attempts of programs that timed out or crashed, and count as errors."""
    setup_undone: tuple[str, ...] = field(metadata=NOT_REPORTED)
    """Notes on what `setup` did in workspaces and attempts did not see."""
    grader_error: str = field(metadata=NOT_REPORTED)
    """Why no trial has a verdict, if it is the same grader's error in all of them; else empty."""
    trials_without_cost: Count
    """Trials that ended, without a fully known cost."""
    tokens: float | None
    """The target's input plus output; null if none were reported."""
    judging: Costs
    total_cost_usd: Dollars | None
    """The known cost of targets and judges; null if nothing is known."""
    agents: AgentTotals | None
    tool_calls: Count | None
    """Including calls with an error; null if no agent reports them."""
    changes: ChangeTotals | None
    cpu_s: Seconds | None
    most_memory_bytes: int | None
    """The most that one attempt used."""

    @property
    def target(self) -> Costs:
        return self

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
        telling = 0 if self.agents is None else self.agents.trials_telling_tools
        return self.tool_calls / telling if telling and self.tool_calls is not None else None

    @property
    def judged(self) -> int:
        return self.passed + self.failed

    @property
    def ended(self) -> int:
        """Trials that passed, failed or ended in an error."""
        return self.judged + self.errors

    @property
    def spent(self) -> float:
        """What this run is known to have paid, judges included."""
        return (self.spent_usd or 0.0) + (self.judging.spent_usd or 0.0)

    @property
    def total_cost(self) -> str:
        """Judges included: `$0.42`; `unknown`; `$0.12+` if some of it is unknown; `-`."""
        unknown = self.is_partly_unknown or self.judging.is_partly_unknown
        if self.total_cost_usd is None:
            return NO_PRICE if unknown else UNKNOWN
        return money(self.total_cost_usd) + "+" * unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSummary(Tally):
    """How the trials of one variant ended."""

    variant: Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Tally):
    """How a run ended."""

    planned: int = field(metadata=NOT_REPORTED)
    """Trials of the plan; more than `trials` if some have no result."""
    wall_s: float = field(metadata=NOT_REPORTED)
    speedup: Annotated[float, Digits(6)] | None
    nodes: Mapping[str, Count] = field(default_factory=dict)
    """Trials by the node of a cluster that they ran on; empty for a run on one machine."""
    variants: tuple[VariantSummary, ...]
    """In plan order; without a matrix, one variant without axes."""
    has_same_graders: bool = field(metadata=NOT_REPORTED)
    """Whether each case was judged by the same graders in all its trials; otherwise its scores
    are not comparable, and neither are the means."""
