"""Results of attempts and trials: outputs, grades, failures, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from paraval.dataclass import dataclass
from paraval.records.outcomes import Exchange, Failure, Grade, Outcome, Output
from paraval.records.plan import Trial
from paraval.records.targets import Variant

# Isolation: where attempts run, what they may use of the machine, what they changed.

PATCH = "patch"
"""The artifact with an attempt's changes to its workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change to one file."""

    path: str
    status: str
    """added, changed, deleted."""
    lines_added: int | None
    """None for a binary file, or one that could not be read."""
    lines_deleted: int | None
    binary: bool = False
    """False if unknown."""

    @property
    def is_unknown(self) -> bool:
        """Whether the number of changed lines is unknown."""
        return self.lines_added is None and not self.binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An attempt's changes to its workspace. The patch itself is the artifact `patch`."""

    files_added: int = 0
    files_changed: int = 0
    files_deleted: int = 0
    binary_files: int = 0
    """Number of changed files."""
    lines_added: int = 0
    lines_deleted: int = 0
    files: tuple[FileChange, ...] = ()
    """By path; the first thousand."""
    tampering: tuple[str, ...] = ()
    """What it did to the worktree's `.git` beyond normal use of git."""
    flagged: tuple[str, ...] = ()
    """What it did to files that its grading uses: `changed tests/test_a.py: ...`."""
    unknown: str | None = None
    """Why the list is incomplete, and so a lower bound; None: it is complete."""

    @property
    def files_in_all(self) -> int:
        return self.files_added + self.files_changed + self.files_deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLoad:
    """What a running attempt uses right now."""

    memory_bytes: int
    """Bytes used by its whole process tree."""
    cpus: float
    """Cores kept busy since the previous reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading:
    """The machine at one moment, as far as this process may use it, including cgroup limits."""

    cpus: float
    """Usable cores."""
    busy_cpus: float
    """Cores kept busy since the previous reading, by any process."""
    memory_bytes: int
    """Total bytes."""
    memory_available: int
    memory_full: float = 0.0
    """Share of time since the previous reading in which all tasks waited for memory (PSI)."""
    memory_some: float = 0.0
    cpu_some: float = 0.0
    io_full: float = 0.0
    attempts: Mapping[int, AttemptLoad] = field(default_factory=dict)
    """By the trial's index."""


class McpState(StrEnum):
    CONNECTED = "connected"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The agent does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """How often an agent called one tool."""

    name: str
    """The tool's name, without the prefix or suffix that the agent adds for a server."""
    server: str | None = None
    """The MCP server that provides it; None: built into the agent."""
    calls: int = 0
    failed: int = 0
    """Number of these calls that returned an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What an agent reports that it did: the evidence that a tool was used."""

    turns: int | None = None
    tools: tuple[ToolUse, ...] = ()
    """By name."""
    mcp: Mapping[str, McpState] = field(default_factory=dict)
    """Every MCP server that it was given."""
    tells_tools: bool = True
    """False: this agent does not report its tool calls; `tools` means nothing then."""
    session: str | None = None
    version: str | None = None
    model: str | None = None
    """As it reports it."""

    def calls_of(self, server: str) -> int:
        """Calls of a server's tools that returned no error."""
        return sum(tool.calls - tool.failed for tool in self.tools if tool.server == server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """Usage and cost of model calls: what is spent now, and apart from it what cached answers took
    when they were first requested."""

    calls: int = 0
    calls_unknown: bool = False
    """An agent made calls and does not report how many: `calls` is a lower bound."""
    cached: int = 0
    cost_usd: float | None = field(default=0.0, metadata={"always": True})
    """None: at least one call has an unknown price or reported no usage."""
    part_usd: float = 0.0
    """If `cost_usd` is None: the known part, a lower bound."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens: input_tokens (cached ones included), output_tokens (reasoning ones included),
    cached_tokens, reasoning_tokens."""
    cached_usd: float | None = None
    """What the cached answers cost when they were requested, at the present prices; None if
    unknown, or if there are none."""
    cached_usage: Mapping[str, float] = field(default_factory=dict)
    """Their tokens ..."""
    cached_s: float | None = None
    """... and the seconds that they took; None if unknown, or if there are none."""

    @property
    def known_usd(self) -> float:
        """The known cost: all of it, or a part."""
        return self.part_usd if self.cost_usd is None else self.cost_usd

    @property
    def original_usd(self) -> float | None:
        """The cost of all answers, cached ones at what they cost when requested; None if some of it
        is unknown."""
        if not self.cached:
            return self.cost_usd
        known = self.cost_usd is not None and self.cached_usd is not None
        return self.original_known_usd if known else None

    @property
    def original_known_usd(self) -> float:
        """The known part of that."""
        return self.known_usd + (self.cached_usd or 0.0)

    @property
    def original_usage(self) -> Mapping[str, float]:
        """The tokens of all answers, cached ones included."""
        return _added(self.usage, self.cached_usage) if self.cached_usage else self.usage

    def __add__(self, other: Spend) -> Spend:
        unknown = self.cost_usd is None or other.cost_usd is None
        known = self.known_usd + other.known_usd
        from_cache = [spend for spend in (self, other) if spend.cached]
        return Spend(
            calls=self.calls + other.calls,
            calls_unknown=self.calls_unknown or other.calls_unknown,
            cached=self.cached + other.cached,
            cost_usd=None if unknown else known,
            part_usd=known if unknown else 0.0,
            usage=_added(self.usage, other.usage),
            cached_usd=_sum(spend.cached_usd for spend in from_cache),
            cached_usage=_added(self.cached_usage, other.cached_usage),
            cached_s=_sum(spend.cached_s for spend in from_cache),
        )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


def _sum(amounts: Iterable[float | None]) -> float | None:
    """None if there are none, or if one of them is unknown."""
    known = list(amounts)
    return None if not known or None in known else sum(amount or 0.0 for amount in known)


def spent_together(one: Spend | None, other: Spend | None) -> Spend | None:
    """The sum of two spends; None if both are unknown."""
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTold:
    """An account's limits from a provider's response headers."""

    requests_per_minute: float | None = None
    requests_left: float | None = None
    requests_full_in_s: float | None = None
    """When the request quota will be full again."""
    tokens_per_minute: float | None = None
    tokens_left: float | None = None
    tokens_full_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountUse:
    """An attempt's use of one account, from which the scheduler learns limits. Not stored."""

    account: str
    """As in a trial's needs: `account:team-a`."""
    requests: int = 0
    """Requests that reached the provider; 0 if every answer came from the cache."""
    tokens: float = 0.0
    told: RateTold | None = None
    """From the last answer."""
    refused: bool = False
    """Refused by a rate limit."""
    whole_account: bool = False
    """The refusal names the organization or the key, not the model."""
    retry_after: float | None = None
    overloaded: bool = False
    """The provider failed (5xx): no reason to send less, but none to send more."""
    reached: bool = True
    """False: no usable answer at all (no such host, no connection, a proxy's page)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One execution of a trial, about to start."""

    trial: Trial
    number: int
    """From 1, counted over the whole run, resumes included."""
    folder: str
    """Its own folder, absolute; created when first needed."""
    workspace: str | None = None
    """Where it runs, absolute; set while it has a workspace."""
    node: str | None = None
    """The node of the cluster that it runs on; None: this machine."""

    @property
    def own_folder(self) -> str:
        """The folder that the target may write to: `{folder}`. Logs and patch are beside it, where
        it cannot replace them by links."""
        return f"{self.folder}/files"

    @property
    def id(self) -> tuple[int, int]:
        return (self.trial.index, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """How one attempt ended."""

    outcome: Outcome
    output: Output | None = None
    grades: tuple[Grade, ...] = ()
    score: float | None = None
    error: Failure | None = None
    duration_s: float = 0.0
    """Target and graders."""
    target_s: float | None = None
    """The target's part of `duration_s`; None in runs stored before it was measured, and where
    there is no target."""
    exit_code: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder: stdout, stderr, files."""
    notes: tuple[str, ...] = ()
    """Notes for readers: leftover processes ended, output cut, a thread abandoned."""
    spend: Spend | None = None
    """Spending on the target; None if unknown. For commands and functions, as reported by their
    output."""
    judging: Spend | None = None
    """Spending on judges; None if there were none."""
    uses: tuple[AccountUse, ...] = ()
    """For the scheduler; not stored."""
    activity: Activity | None = None
    """For an agent."""
    change: Change | None = None
    """If it had a workspace."""
    cpu_s: float | None = None
    """CPU seconds of its process tree; None if it had none."""
    memory_bytes: int | None = None
    """Peak memory of its process tree, as far as it was observed."""
    node: str | None = None
    """The node of the cluster that it ran on; None: the machine of the run."""
    exchanges: tuple[Exchange, ...] = ()
    """What the target was sent, then what judges were. Kept apart in the store, so results that
    are read have none: see `RunReader.exchanges`."""

    @property
    def time_s(self) -> float:
        """The target's time; if it is unknown, the whole duration."""
        return self.duration_s if self.target_s is None else self.target_s

    @property
    def told_spend(self) -> Spend | None:
        """Spending on the target; for runs stored before `spend` existed, from its output."""
        output = self.output
        if self.spend is not None or output is None or output.cost_usd is None:
            return self.spend
        return Spend(cost_usd=output.cost_usd, usage=dict(output.usage))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt as stored."""

    index: int
    case_id: str
    variant: Variant
    repeat: int
    number: int
    started_at: float
    """Seconds since the epoch."""
    folder: str
    """Its folder, relative to the run's."""
    result: AttemptResult | None
    """None: it never ended (the engine died, or it is still running)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How a trial ended, as reports show it."""

    index: int
    case_id: str
    variant: Variant
    repeat: int
    result: AttemptResult
    """From the deciding attempt."""
    attempts: int
    queued_s: float | None = None
    total_s: float = 0.0
    """The sum of its attempts' durations."""
    target_s: float | None = None
    """The target's part of `total_s`, without graders; None if unknown."""
    spend: Spend | None = None
    """Spending of all its attempts on the target; None if none reported any."""
    judging: Spend | None = None
    """Spending of all its attempts on judges."""
    retries: Mapping[Outcome, int] = field(default_factory=dict)
    """Its attempts without a verdict, by outcome."""
    retry_errors: tuple[Failure, ...] = ()
    """Their errors, in order."""
    unended: int = 0
    """Number of attempts that never ended because their engine was stopped: their cost is unknown,
    and the total a lower bound if others report a cost."""

    @property
    def outcome(self) -> Outcome:
        return self.result.outcome

    @property
    def time_s(self) -> float:
        """The target's time over all attempts; if it is unknown, their whole durations."""
        return self.total_s if self.target_s is None else self.target_s

    @classmethod
    def decided_by(
        cls,
        result: AttemptResult,
        retries: Sequence[AttemptResult] = (),
        *,
        unended: int = 0,
        **others: Any,
    ) -> TrialResult:
        """The result that this attempt decided, after retried and unfinished ones."""
        spend, judging = result.told_spend, result.judging
        if not retries and not unended:  # Nearly all.
            times: Any = {"total_s": result.duration_s, "target_s": result.target_s}
            return cls(result=result, spend=spend, judging=judging, **times, **others)
        for retry in retries:
            spend = spent_together(spend, retry.told_spend)
            judging = spent_together(judging, retry.judging)
        if unended:
            spend, judging = (told and told + Spend(cost_usd=None) for told in (spend, judging))
        return cls(
            result=result,
            total_s=sum((retry.duration_s for retry in retries), result.duration_s),
            target_s=None
            if result.target_s is None
            else sum((retry.time_s for retry in retries), result.target_s),
            spend=spend,
            judging=judging,
            retries=dict(Counter(retry.outcome for retry in retries)) if retries else {},
            retry_errors=tuple(retry.error for retry in retries if retry.error is not None),
            unended=unended,
            **others,
        )
