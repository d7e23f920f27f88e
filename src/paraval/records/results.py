"""What became of attempts and trials: outputs, grades, failures, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paraval.records.outcomes import Failure, Grade, Outcome, Output
from paraval.records.plan import Trial
from paraval.records.targets import Variant

# The nouns of isolation: where attempts run, what they may take of the machine, what they did.

PATCH = "patch"
"""The artifact that holds what an attempt changed in its workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What became of one file."""

    path: str
    status: str
    """added, changed, deleted."""
    lines_added: int | None
    """None for a binary file, and for one that could not be looked into."""
    lines_deleted: int | None
    binary: bool = False
    """False where nobody knows."""

    @property
    def is_unknown(self) -> bool:
        """How many lines were changed is not known."""
        return self.lines_added is None and not self.binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an attempt changed in its workspace. The patch itself is an artifact, `patch`."""

    files_added: int = 0
    files_changed: int = 0
    files_deleted: int = 0
    binary_files: int = 0
    """Of all these."""
    lines_added: int = 0
    lines_deleted: int = 0
    files: tuple[FileChange, ...] = ()
    """By path; the first thousand."""
    tampering: tuple[str, ...] = ()
    """What it did to the worktree's `.git` that no plain use of git does."""
    unknown: str | None = None
    """Why not all of it is known; what is told is a lower bound then. None: this is all."""

    @property
    def files_in_all(self) -> int:
        return self.files_added + self.files_changed + self.files_deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLoad:
    """What a running attempt takes at this moment."""

    memory_bytes: int
    """Of its whole process tree."""
    cpus: float
    """Cores that it kept busy since the reading before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading:
    """The machine at one moment, as far as this process may use it; cgroup limits are in it."""

    cpus: float
    """That may be used."""
    busy_cpus: float
    """Kept busy since the reading before, by anyone."""
    memory_bytes: int
    """In all."""
    memory_available: int
    memory_full: float = 0.0
    """The share of time since the reading before in which all waited for memory (PSI)."""
    memory_some: float = 0.0
    cpu_some: float = 0.0
    io_full: float = 0.0
    attempts: Mapping[int, AttemptLoad] = field(default_factory=dict)
    """By the trial's index."""


class McpState(StrEnum):
    CONNECTED = "connected"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The agent does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """How often an agent called one tool."""

    name: str
    """As the agent calls it, without what it puts before or behind a server's name."""
    server: str | None = None
    """The MCP server that it is of; None: the agent's own."""
    calls: int = 0
    failed: int = 0
    """Of these, those that gave an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What an agent says that it did: the evidence that a tool was used."""

    turns: int | None = None
    tools: tuple[ToolUse, ...] = ()
    """By name."""
    mcp: Mapping[str, McpState] = field(default_factory=dict)
    """Every MCP server that it was handed."""
    tells_tools: bool = True
    """False: this agent does not tell which tools it called; `tools` says nothing then."""
    session: str | None = None
    version: str | None = None
    model: str | None = None
    """As it says itself."""

    def calls_of(self, server: str) -> int:
        """Calls of a server's tools that gave no error."""
        return sum(tool.calls - tool.failed for tool in self.tools if tool.server == server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What calls of models took. Answers from the cache cost nothing and are counted apart."""

    calls: int = 0
    calls_unknown: bool = False
    """An agent made some and does not report how many: `calls` is a lower bound."""
    cached: int = 0
    cost_usd: float | None = field(default=0.0, metadata={"always": True})
    """None: at least one call has an unknown price, or told no usage."""
    part_usd: float = 0.0
    """Where `cost_usd` is None: what is known of it, a lower bound."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens: input_tokens (cached ones included), output_tokens (reasoning ones included),
    cached_tokens, reasoning_tokens."""

    @property
    def known_usd(self) -> float:
        """All that is known of the cost: the whole of it, or a part."""
        return self.part_usd if self.cost_usd is None else self.cost_usd

    def __add__(self, other: Spend) -> Spend:
        unknown = self.cost_usd is None or other.cost_usd is None
        known = self.known_usd + other.known_usd
        usage = dict(self.usage)
        for name, amount in other.usage.items():
            usage[name] = usage.get(name, 0) + amount
        return Spend(
            calls=self.calls + other.calls,
            calls_unknown=self.calls_unknown or other.calls_unknown,
            cached=self.cached + other.cached,
            cost_usd=None if unknown else known,
            part_usd=known if unknown else 0.0,
            usage=usage,
        )


def spent_together(one: Spend | None, other: Spend | None) -> Spend | None:
    """The sum of two spends; None where nothing is known of either."""
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTold:
    """What a provider's headers say of an account's limits, at the moment of an answer."""

    requests_per_minute: float | None = None
    requests_left: float | None = None
    requests_full_in_s: float | None = None
    """When the requests will all be there again."""
    tokens_per_minute: float | None = None
    tokens_left: float | None = None
    tokens_full_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountUse:
    """What an attempt did with one account: the scheduler learns limits from it. Not stored."""

    account: str
    """As in a trial's needs: `account:team-a`."""
    requests: int = 0
    """That reached the provider; 0 where every answer came from the cache."""
    tokens: float = 0.0
    told: RateTold | None = None
    """By the last answer."""
    refused: bool = False
    """By a rate limit."""
    retry_after: float | None = None
    overloaded: bool = False
    """The provider failed (5xx): no reason to do less, but none to do more."""
    reached: bool = True
    """False: no sensible answer at all (no such host, no connection, a proxy's page)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One execution of a trial, about to happen."""

    trial: Trial
    number: int
    """From 1, counted over the whole run, resumes included."""
    folder: str
    """Its own folder, absolute; made when first needed."""
    workspace: str | None = None
    """Where it runs, absolute: set while it has one."""

    @property
    def own_folder(self) -> str:
        """What the target may write to: `{folder}`. Its logs and its patch stand beside it, where
        it cannot lay links in their place."""
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
    exit_code: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder: stdout, stderr, files."""
    notes: tuple[str, ...] = ()
    """What a reader should know: leftover processes ended, output cut, a thread left behind."""
    spend: Spend | None = None
    """What this attempt spent on its target; None where nothing is known of it. For commands and
    functions, what their output told."""
    judging: Spend | None = None
    """What judges spent; None where there was none."""
    uses: tuple[AccountUse, ...] = ()
    """For the scheduler; not stored."""
    activity: Activity | None = None
    """Of an agent."""
    change: Change | None = None
    """Where it had a workspace."""
    cpu_s: float | None = None
    """Of its process tree; None where it had none."""
    memory_bytes: int | None = None
    """The most that its process tree held at once, as far as it was seen."""

    @property
    def told_spend(self) -> Spend | None:
        """What it spent on its target; in runs stored before there was a spend, what its output
        told."""
        output = self.output
        if self.spend is not None or output is None or output.cost_usd is None:
            return self.spend
        return Spend(cost_usd=output.cost_usd, usage=dict(output.usage))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt as the store remembers it."""

    index: int
    case_id: str
    variant: Variant
    repeat: int
    number: int
    started_at: float
    """Seconds since the epoch."""
    folder: str
    """Its own, relative to the run's."""
    result: AttemptResult | None
    """None: it never ended (the engine died, or it still runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How a trial ended, as reports show it."""

    index: int
    case_id: str
    variant: Variant
    repeat: int
    result: AttemptResult
    """Of the attempt that decided."""
    attempts: int
    queued_s: float | None = None
    total_s: float = 0.0
    """The sum of its attempts' durations."""
    spend: Spend | None = None
    """Of all its attempts, on the target; None where none told."""
    judging: Spend | None = None
    """Of all its attempts, on judges."""
    retries: Mapping[Outcome, int] = field(default_factory=dict)
    """Its attempts that decided nothing, by how they ended."""
    retry_errors: tuple[Failure, ...] = ()
    """Why they did not, in their order."""
    unended: int = 0
    """Its attempts that never ended, since their engine was stopped: nobody knows what they cost.
    Where others of them tell a cost, it is a lower bound then."""

    @property
    def outcome(self) -> Outcome:
        return self.result.outcome

    @classmethod
    def decided_by(
        cls,
        result: AttemptResult,
        retries: Sequence[AttemptResult] = (),
        *,
        unended: int = 0,
        **others: Any,
    ) -> TrialResult:
        """By this attempt, after others that decided nothing and such that never ended."""
        spend, judging = result.told_spend, result.judging
        for retry in retries:
            spend = spent_together(spend, retry.told_spend)
            judging = spent_together(judging, retry.judging)
        if unended:
            spend, judging = (told and told + Spend(cost_usd=None) for told in (spend, judging))
        return cls(
            result=result,
            total_s=sum((retry.duration_s for retry in retries), result.duration_s),
            spend=spend,
            judging=judging,
            retries=dict(Counter(retry.outcome for retry in retries)) if retries else {},
            retry_errors=tuple(retry.error for retry in retries if retry.error is not None),
            unended=unended,
            **others,
        )
