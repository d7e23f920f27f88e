"""The interface of agent programs: how to start one for an attempt, and how to read its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Protocol

from paraval.agents.steps import joined_steps
from paraval.agents.tools import ToolTally
from paraval.dataclass import dataclass
from paraval.records import (
    Activity,
    AgentRetries,
    CustomAgent,
    McpServer,
    McpState,
    Provider,
    Step,
)

CONTINUE = "The connection to the model was lost. Continue where you left off."
"""The prompt of a session that is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEndpoint:
    """Where an agent must send its requests, instead of its default."""

    provider: Provider
    """LOOPBACK supports every protocol: OpenAI's two under `base_url`, and Anthropic's."""
    base_url: str
    """With `/v1` and no trailing slash, as in the registry."""
    model: str
    """The provider's name for the model."""
    api_key: str = field(repr=False)
    """Never empty, even if none is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJob:
    """One attempt for an agent; every template is filled in."""

    prompt: str
    system: str | None = None
    workspace: str
    """Absolute: its working folder."""
    home: str | None
    """Absolute: a fresh folder as its home; None: it uses the user's own."""
    temp: str
    """Absolute: a fresh folder for temporary files, and for those of `Launch.files`."""
    model: str | None = None
    """The agent's name for the model; None: its own choice. With an endpoint, the endpoint's."""
    endpoint: AgentEndpoint | None = None
    max_turns: int | None = None
    retries: AgentRetries = field(default_factory=AgentRetries)
    mcp: tuple[McpServer, ...] = ()
    arguments: tuple[str, ...] = ()
    program: tuple[str, ...]
    """The start of the command line: the agent's program, found or configured."""
    timeout: float | None = None
    """The run's timeout, for agents that want to know it."""
    custom: CustomAgent | None = None
    earlier: TranscriptReading | None = None
    """What the session did so far, if it is to be resumed; then `prompt` is `CONTINUE`."""

    @property
    def session(self) -> str | None:
        """The session to resume."""
        return None if self.earlier is None else self.earlier.activity.session

    def own_retries(self, default: int) -> int:
        """The agent's own retries of a call, if it can resume sessions."""
        return default if self.retries.before_first is None else self.retries.before_first

    def all_retries(self, default: int) -> int:
        """The agent's own retries of a call, if it cannot: the same number before its first answer
        and after it."""
        given = [
            number
            for number in (self.retries.before_first, self.retries.after)
            if number is not None
        ]
        return max(given, default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start an agent."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """In addition to what every child gets; HOME and TMPDIR are set elsewhere."""
    stdin: str = ""
    """Empty: /dev/null."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path, in the home or the temp folder -> content to write first (mode 0600)."""
    litter: tuple[str, ...] = ()
    """Name patterns of files that it creates for itself at the top of the repository, which are not
    part of its work."""
    can_resume: bool = False
    """If it fails, its session can be resumed in the same home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """An agent's output, however it ended; if it was stopped from outside, up to then."""

    stdout: str
    """The beginning and the end, if it is very long."""
    stderr: str
    exit_code: int | None
    signal: int | None = None


class AgentEnd(Enum):
    """Ends of an agent without an answer."""

    RATE_LIMITED = "refused by a rate limit"
    NO_LOGIN = "no key and no login"
    REFUSED_KEY = "the key was rejected"
    NO_CREDIT = "the account has no credit left"
    NO_SUCH_MODEL = "no such model"
    OVERLOADED = "the provider failed"
    UNREACHABLE = "the provider could not be reached"
    DROPPED = "the provider's answer was cut off"
    NO_SERVER = "an MCP server did not start"
    BAD_REQUEST = "the provider rejected the request"
    NO_RESULT = "it reported no result"
    UNREADABLE = "its result is not text"
    BROKEN = "the agent failed"


TEMPORARY = frozenset(
    {AgentEnd.RATE_LIMITED, AgentEnd.OVERLOADED, AgentEnd.UNREACHABLE, AgentEnd.DROPPED}
)
"""Ends that are the provider's fault and go away by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptReading:
    """What a transcript contains."""

    answer: str | None = None
    """Its last text; None: it gave no answer, and `end` has the reason."""
    end: AgentEnd | None = None
    """Exactly one of `answer` and `end` is None."""
    message: str = ""
    """With `end`: the agent's own message, bounded."""
    retry_after: float | None = None
    activity: Activity = field(default_factory=Activity)
    steps: tuple[Step, ...] = ()
    """Its conversation as far as it reports it, bounded; see `steps.StepLog`."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """input_tokens (cached ones included), output_tokens, cached_tokens, reasoning_tokens."""
    cost_usd: float | None = None
    """The agent's own figure; None: it reports none."""
    is_settled: bool = False
    """`usage` and `cost_usd` are final for the whole attempt. Otherwise, without an answer, they
    are what it had reported when it was cut off."""
    has_worked: bool | None = None
    """Whether the model was seen to answer (a message, a tool call, a turn), which costs money;
    None: this agent would not show it."""
    requests: int | None = None
    """Number of model calls; None: unknown."""
    refusals: int = 0
    """Rate limits that it met and waited for."""
    is_waiting: bool = False
    """The last thing it did was to wait for the provider after an error."""
    stopped_at: str | None = None
    """It was stopped by a limit of its own (one of `records.outcomes.STOPS`); its text so far is
    the answer."""
    refused: bool = False
    """The model refused: an answer, and most likely a failed one."""
    notes: tuple[str, ...] = ()


def joined(earlier: TranscriptReading, later: TranscriptReading) -> TranscriptReading:
    """Return what a session contains that ended, was resumed, and ended again.

    If it could not be resumed, its first end counts.
    """
    failed = {AgentEnd.BROKEN, AgentEnd.NO_RESULT, AgentEnd.BAD_REQUEST}
    is_lost = later.end in failed and not later.has_worked
    last = earlier if is_lost else later
    known = earlier.requests is not None and later.requests is not None
    why = earlier.message or (earlier.end.value if earlier.end else "")
    interruption = Step(text=f"[resumed after: {why}]")
    return replace(
        last,
        activity=_joined_activity(earlier.activity, later.activity),
        steps=joined_steps(earlier.steps, [interruption], later.steps),
        usage=_summed_usage(earlier, later),
        cost_usd=_summed_cost(earlier, later),
        is_settled=earlier.is_settled and later.is_settled,
        has_worked=earlier.has_worked or later.has_worked,
        requests=(earlier.requests or 0) + (later.requests or 0) if known else None,
        refusals=earlier.refusals + later.refusals + (earlier.end is AgentEnd.RATE_LIMITED),
        notes=tuple(dict.fromkeys((*earlier.notes, *later.notes))),
    )


def _summed_usage(earlier: TranscriptReading, later: TranscriptReading) -> dict[str, float]:
    usage = dict(earlier.usage)
    for name, amount in later.usage.items():
        usage[name] = usage.get(name, 0) + amount
    return usage


def _summed_cost(earlier: TranscriptReading, later: TranscriptReading) -> float | None:
    """A part in which the model never answered costs nothing. If the later part was cut off, the
    sum is what is known."""
    parts = [part.cost_usd for part in (earlier, later) if part.has_worked or part.cost_usd]
    costs = [cost for cost in parts if cost is not None]
    is_cut = later.answer is None and not later.is_settled
    return sum(costs) if costs and (is_cut or len(costs) == len(parts)) else None


def _joined_activity(earlier: Activity, later: Activity) -> Activity:
    tally = ToolTally()
    for tool in (*earlier.tools, *later.tools):
        tally.count(tool.name, tool.server, calls=tool.calls - tool.failed)
        tally.count(tool.name, tool.server, calls=tool.failed, failed=True)
    turns = [part.turns for part in (earlier, later) if part.turns is not None]
    connected = [name for name, state in earlier.mcp.items() if state is McpState.CONNECTED]
    return replace(
        later,
        turns=sum(turns) if turns else None,
        tools=tally.tools(),
        mcp={**later.mcp, **dict.fromkeys(connected, McpState.CONNECTED)},
        tells_tools=earlier.tells_tools or later.tells_tools,
        session=later.session or earlier.session,
        version=later.version or earlier.version,
        model=later.model or earlier.model,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a user can log in, for `doctor` and for advice."""

    key_variables: tuple[str, ...]
    """Variables with a key that works in a separate home; passed on if set."""
    files: tuple[str, ...] = ()
    """Relative to the user's home: files that its login leaves."""
    command: str = ""
    """How to log in: `claude /login`."""


class AgentProgram(Protocol):
    """One kind of agent. Pure: it reads and writes no files, and starts nothing."""

    name: str
    """Its name in suites."""
    programs: tuple[str, ...]
    """Names on PATH; the first one found is used."""
    version_arguments: tuple[str, ...]
    """The arguments that print the version."""
    login: Login
    speaks: frozenset[Provider]
    """The endpoint protocols that it supports, including LOOPBACK if possible."""
    takes: frozenset[str]
    """Which of `system`, `max_turns`, `retries`, `before_first` (of `retries`), `mcp`, `model` it
    supports; the others are errors or notices in a suite."""
    takes_in_own_home: frozenset[str]
    """Keys of `takes` that it supports only in its own home; with `home: mine` they are errors."""
    install: str
    """How to install it: `npm install -g @openai/codex`."""

    def launch(self, job: AgentJob) -> Launch: ...

    def result_files(self, job: AgentJob) -> tuple[str, ...]:
        """Return files in the home or temp folder that `read` needs in addition to stdout; read
        with bounds, following no links. Usually none."""
        ...

    def read(
        self, job: AgentJob, transcript: Transcript, files: Mapping[str, str]
    ) -> TranscriptReading:
        """Read the transcript; `files` are those of `result_files` that exist.

        Never raises, whatever it contains. Exit code 0 without a result is NO_RESULT.
        """
        ...
