"""The nouns that cross from stage to stage: frozen, keyword-only, without live handles.

Each can be pickled, stored, and sent to another machine. What they mean is told in the order of a
run: what is asked (Case, Target, Trial, Plan), what happened (AttemptResult, TrialResult, RunInfo),
and what an onlooker is told meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paraval.isolation import Activity, Change, Home, McpServer, TargetLimits, Workspace

Scalar = str | int | float | bool
Variant = Mapping[str, Scalar]


def value_text(value: Scalar) -> str:
    """An axis value as suites write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def account_need(account: str) -> str:
    """What an account is called among a trial's needs."""
    return f"account:{account}"


def model_need(model: str) -> str:
    """What a model of the registry is called among a trial's needs."""
    return f"model:{model}"


EARLY_STOP = "early stop"
"""How the reason of a trial begins that was left out since all was decided."""


class Outcome(StrEnum):
    """How a trial ended. An error is never a wrong answer: only PASSED and FAILED are judged."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    CRASHED = "crashed"
    INVALID_OUTPUT = "invalid_output"
    GRADER_ERROR = "grader_error"
    INFRA_ERROR = "infra_error"
    SKIPPED = "skipped"

    @property
    def is_judged(self) -> bool:
        return self is Outcome.PASSED or self is Outcome.FAILED

    @property
    def is_error(self) -> bool:
        return not self.is_judged and self is not Outcome.SKIPPED


# ---- what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input with what is expected of it."""

    id: str
    input: Any = None
    """Text, or a mapping; None where there is none, which is not the same as an empty text."""
    expect: Any = None
    """Whatever the graders use."""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locks: tuple[str, ...] = ()
    """Names: no two cases with the same one run at once."""
    exclusive: bool = False
    """True: while it runs, nothing else does."""


class OutputForm(StrEnum):
    """Where a command's answer is read from."""

    STDOUT = "stdout"
    JSON = "json"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """A program to start. Strings hold templates, filled in for each attempt."""

    command: tuple[str, ...]
    """The arguments; with `shell`, a single script for /bin/sh."""
    shell: bool = False
    folder: str = ""
    """With `shell`, what `{suite}` stands for: the suite's own folder."""
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    cwd: str
    """An absolute folder; with a workspace, relative to where attempts begin in it."""
    stdin: str | None = None
    output: OutputForm = OutputForm.STDOUT
    output_file: str | None = None
    timeout: float | None = None
    grace: float = 5.0
    any_exit_code: bool = False
    """True where a grader judges the exit code, so that another one than 0 is no crash."""
    home: Home = Home.OWN
    limits: TargetLimits = field(default_factory=TargetLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """A Python function, by name."""

    reference: str
    """`module:function`."""
    folder: str
    """Where modules are looked for first: the suite's own folder."""
    isolate: bool = False
    """True: each attempt in a worker process of its own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """For isolated ones only."""
    pass_env: tuple[str, ...] = ()
    timeout: float | None = None
    grace: float = 5.0


class Provider(StrEnum):
    """Which protocol a model is spoken to in."""

    OPENAI = "openai"
    """`/chat/completions`, of OpenAI and of every server that is compatible with it."""
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    LOOPBACK = "loopback"
    """A simulated model that a run starts for itself; it speaks `/chat/completions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    input_per_million: float
    output_per_million: float
    cached_input_per_million: float | None = None
    """None: as much as other input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """What a provider lets one account do; None: unknown, to be found out."""

    concurrent: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An entry of a suite's registry of models. It names the key's variable, never the key."""

    name: str
    """As the registry calls it."""
    provider: Provider
    model: str
    """As the provider calls it."""
    base_url: str
    """Without a slash at its end; empty for a loopback model, whose address a run makes."""
    api_key_env: str | None = None
    """None: no key is sent."""
    account: str
    """What shares a limit."""
    timeout: float = 600.0
    """The longest that a call may take."""
    idle_timeout: float = 120.0
    """The longest that a connection may be silent."""
    price: Price | None = None
    """None: as the price table says, if it knows the model."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sent as they are, beside the request's own."""
    scenario: str | None = None
    """Of a loopback model: the name of a bundled one, or the absolute path of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user or assistant."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTarget:
    """A model that is asked once for each attempt. The messages hold templates."""

    model: Model
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    """None: the model's own."""


class Reads(StrEnum):
    """How a custom agent's stdout is read."""

    TEXT = "text"
    JSON = "json"
    """One object: the last line that is one, where there are several."""
    JSONL = "jsonl"
    """An object a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomAgent:
    """A user's own agent: how to start it and how to read what it prints."""

    command: tuple[str, ...]
    """Arguments; templates over the usual fields and {prompt}, {workspace}, {model}, {mcp_config}
    and {max_turns}."""
    stdin: str | None = None
    """A template; None: nothing."""
    like: str | None = None
    """The name of a known agent whose output it prints; then `reads` and `paths` say nothing."""
    reads: Reads = Reads.TEXT
    paths: Mapping[str, str] = field(default_factory=dict)
    """answer, turns, cost_usd, input_tokens, output_tokens, tools, error -> a dotted path in the
    object (of the last line that has it, for jsonl)."""
    rate_limited: str | None = None
    """A regular expression: what it prints (stdout or stderr) when it was refused by a rate limit
    and did not end well."""
    refused: str | None = None
    """The same for a key that was refused, or no login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTarget:
    """An agent program, started once for each attempt. Strings hold templates."""

    agent: str
    """One of `paraval.agents.catalogue`: claude-code, codex, ..., custom."""
    prompt: str
    system: str | None = None
    """What is added to the agent's own instructions, where it takes that."""
    model: Model | None = None
    """Of the registry: where the agent sends its requests, by which name, with which key."""
    model_name: str | None = None
    """Handed over as it is, where `model` is None; None: the agent's own choice."""
    account: str
    """What shares a limit: the registry model's, else the agent's own name."""
    max_turns: int | None = None
    mcp: tuple[McpServer, ...] = ()
    arguments: tuple[str, ...] = ()
    """Added to its command line."""
    program: tuple[str, ...] = ()
    """What is started in the place of the agent's usual program."""
    custom: CustomAgent | None = None
    """For `custom` alone."""
    home: Home = Home.OWN
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    timeout: float | None = None
    grace: float = 5.0
    limits: TargetLimits = field(default_factory=TargetLimits)


Target = CommandTarget | FunctionTarget | ChatTarget | AgentTarget


class CacheUse(StrEnum):
    """Whether answers that are in the store are used again."""

    REUSE = "reuse"
    REFRESH = "refresh"
    """Ask again, and keep the new answers."""
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may spend."""

    usd: float
    per_attempt_usd: float | None = None
    """What an attempt is thought to cost where nothing else tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When a comparison of variants is over before its plan is."""

    confidence: float = 0.95
    """How sure a decision must be, however often it is looked at meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a run is held against."""

    name: str
    """A run's id, or the absolute path of a report or of a run's folder."""
    max_drop: float
    """By how much the pass rate may be lower, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderSpec:
    """A grader as the suite asks for it."""

    name: str
    """Shown in reports; unique in a suite."""
    kind: str
    """equals, contains, regex, json, number, exit_code, python, command, judge, mentions, diff."""
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float | None = None
    folder: str = "."
    """The suite's folder: where commands run and modules are looked for."""
    model: Model | None = None
    """Of a judge: who judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """How an output is judged: all graders must pass, or, weighted, their mean reach `pass_at`."""

    graders: tuple[GraderSpec, ...] = ()
    pass_at: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A case in a variant, once: the unit of a plan."""

    index: int
    key: str
    """A hash of all that decides its result."""
    case: Case
    variant: Variant
    repeat: int
    """From 1."""
    target: Target
    needs: tuple[str, ...] = ()
    """The named limits it takes one of each, beyond the run's own; sorted. The account of every
    model that it calls is one of them, and so is the model: `account:team-a`, `model:haiku`; and
    each of its locks: `lock:db`."""
    exclusive: bool = False
    """True: it runs with nothing else on the machine, as far as that is ours."""

    @property
    def label(self) -> str:
        """`hello · small · with-tool · #2`; the repeat only from the second on."""
        parts = [self.case.id, *map(value_text, self.variant.values())]
        if self.repeat > 1:
            parts.append(f"#{self.repeat}")
        return " · ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Which ends are tried again, and how often. Rate limits don't count as attempts."""

    attempts: int = 3
    on: frozenset[Outcome] = frozenset({Outcome.INFRA_ERROR, Outcome.RATE_LIMITED})
    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0
    refusals: int = 20
    """Rate-limit refusals of one trial before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Capacities that attempts share."""

    parallel: int = 4
    auto: bool = False
    """True: as many as the machine can carry, up to `parallel`."""
    named: Mapping[str, int] = field(default_factory=dict)
    """`mode=with-tool` -> 2, `lock:db` -> 1."""
    accounts: Mapping[str, AccountLimits] = field(default_factory=dict)
    """`account:team-a` -> what is known of it; every account that trials need is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will run, in order, and by which rules."""

    name: str
    source: str | None
    """The suite's file; None for a suite made in Python."""
    axes: Mapping[str, tuple[Scalar, ...]]
    variants: tuple[Variant, ...]
    """Those that have trials, in plan order."""
    trials: tuple[Trial, ...]
    grading: Grading = field(default_factory=Grading)
    limits: Limits = field(default_factory=Limits)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    fail_under: float | None = None
    """None: every trial must pass."""
    budget: Budget | None = None
    cache: CacheUse = CacheUse.REUSE
    workspace: Workspace = field(default_factory=Workspace)
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The filters and overrides it was made with, so that a resume plans the same."""
    stop: StopRule | None = None
    """None: every trial runs."""
    max_drop: float | None = None
    """How far the pass rate may fall below a baseline's, where there is one; None: not asked."""
    baseline: Baseline | None = None
    """What it is held against: set when a run begins."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What it is made of (cases, target, graders, ...) -> a digest: tells what changed between two
    runs of a suite."""


# ---- what happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a target answered."""

    text: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What calls of models took. Answers from the cache cost nothing and are counted apart."""

    calls: int = 0
    calls_unknown: bool = False
    """An agent made some and does not report how many: `calls` is a lower bound."""
    cached: int = 0
    cost_usd: float | None = 0.0
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
class Grade:
    """A grader's verdict."""

    score: float
    """From 0 to 1."""
    passed: bool
    reason: str = ""
    grader: str = ""
    agreement: float | None = None
    """Of a judge with several votes: the share of votes that say as the verdict does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial has no verdict."""

    kind: Outcome
    message: str
    retry_after: float | None = None
    account: str | None = None
    """Which account it came from, as in a trial's needs."""
    lasting: bool = False
    """True: another try would end the same way."""
    stops: str | None = None
    """A need (`account:team-a`, `model:haiku`) that nothing can be done with for the rest of the
    run: quota exhausted, key refused, no such model. The trial is skipped, to be resumed."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run in the store."""

    id: str
    suite: str
    source: str | None
    folder: str
    """Absolute."""
    trials: int
    parallel: int
    seed: int
    started_at: float
    ended_at: float | None
    """None: it has not come to an end (yet)."""
    wall_s: float
    """The time an engine worked on it, over all resumes."""
    resumed: int
    """How often."""
    interrupted: bool
    """True: the last engine stopped before every trial had a result, and not on purpose."""
    held_back: bool = False
    """True: the last engine left trials for later on purpose (budget spent, an account stopped)."""
    fail_under: float | None
    done: int = 0
    """Trials that have a result."""
    dropped_usd: float = 0.0
    """What was spent, judges included, on trials that changed or left the suite since: as far as
    it is known ..."""
    dropped_unknown: bool = False
    """... and whether some of it is not."""
    running: bool = False
    """True: an engine works on it at this moment."""
    stop: StopRule | None = None
    baseline: Baseline | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    """As in its plan."""


# ---- what an onlooker is told meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    run: RunInfo
    total: int
    already_done: int
    budget_usd: float | None = None
    spent_usd: float = 0.0
    """By earlier engines of the same run, as far as it is known ..."""
    spent_unknown: bool = False
    """... and whether some of it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt that decided nothing: it is tried again after `retry_in_s`."""

    attempt: Attempt
    result: AttemptResult
    retry_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A trial whose result is on disk."""

    trial: Trial
    result: TrialResult
    done: int
    total: int
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSkipped:
    """A trial that will not run now. A resume may run it, unless it was left out for good, as by an
    early stop: the reason tells."""

    trial: Trial
    reason: str
    last: AttemptResult | None = None
    """Of an attempt that just ended and decided nothing; None: it had not started now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should read now."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the machine lets run at once has changed; told where `limits.auto` is set."""

    at_once: int
    """How many may run now."""
    wanted: int
    """How many would run if nothing held them back."""
    held_by: str | None
    """memory, cpu, disk; None: nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    run: RunInfo


Happening = (
    RunStarted
    | AttemptStarted
    | AttemptEnded
    | TrialEnded
    | TrialSkipped
    | Notice
    | Capacity
    | RunEnded
)
