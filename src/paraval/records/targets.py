"""What is evaluated: commands, functions, chat models and agents, as a plan specifies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from paraval.dataclass import dataclass
from paraval.records.outcomes import Outcome, ToolCall

# ---- resource limits


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """Resources that one attempt may use; None: unspecified."""

    cpu: float | None = None
    """Cores that it keeps busy: reserved, not enforced."""
    memory_bytes: int | None = None
    """Bytes for its whole process tree: reserved, and enforced where cgroups allow."""
    processes: int | None = None
    """Concurrent processes; enforced where cgroups allow."""
    open_files: int | None = None
    """Address space of one process."""
    file_bytes: int | None = None
    """The largest file that it may write."""


# ---- agents


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A tool server for an agent. Strings are templates."""

    name: str
    command: tuple[str, ...] = ()
    """Started by the agent, which talks to it over stdio; empty: reached by `url`."""
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None


class Home(StrEnum):
    """Which home folder a target sees."""

    OWN = "own"
    """A fresh one for each attempt."""
    MINE = "mine"
    """The user's, with its logins."""


Scalar = str | int | float | bool
Variant = Mapping[str, Scalar]


def value_text(value: Scalar) -> str:
    """An axis value as suites write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def choice_label(axis: str, value: Scalar) -> str:
    """An axis value as reports show it: `small`, but `temp=0.7`, since a number or a boolean says
    nothing by itself."""
    return value if isinstance(value, str) else f"{axis}={value_text(value)}"


def account_need(account: str) -> str:
    """The name of an account among a trial's needs."""
    return f"account:{account}"


def call_need(model: Model) -> str:
    """The name of the limits of a model's calls: most providers limit each model of an account."""
    return f"{account_need(model.account)} model:{model.model}"


def agent_need(target: AgentTarget) -> str:
    """The name of the limits of an agent's attempts."""
    return f"{account_need(target.account)} agent:{target.agent}"


def account_above(need: str) -> str | None:
    """The account that a model's calls, or an agent's attempts, are part of; None: another need."""
    account, _, part = need.rpartition(" ")
    return account if account and part.startswith(("model:", "agent:")) else None


def model_need(model: str) -> str:
    """The name of a model among a trial's needs."""
    return f"model:{model}"


class OutputForm(StrEnum):
    """Where a command's answer is read from."""

    STDOUT = "stdout"
    JSON = "json"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """A program to run. Strings are templates, filled in for each attempt."""

    command: tuple[str, ...]
    """The arguments; with `shell`, a single script for /bin/sh."""
    shell: bool = False
    folder: str = ""
    """With `shell`, the value of `{suite}`: the suite's folder."""
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    cwd: str
    """An absolute folder; with a workspace, relative to where attempts start in it."""
    stdin: str | None = None
    output: OutputForm = OutputForm.STDOUT
    output_file: str | None = None
    timeout: float | None = None
    grace: float = 5.0
    any_exit_code: bool = False
    """True if a grader judges the exit code, so that a nonzero one is not a crash."""
    home: Home = Home.OWN
    limits: TargetLimits = field(default_factory=TargetLimits)
    fails_on: tuple[Outcome, ...] = ()
    """Errors that count as failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """A Python function, by name."""

    reference: str
    """`module:function`."""
    folder: str
    """Where modules are searched first: the suite's folder."""
    isolate: bool = False
    """True: each attempt runs in its own worker process."""
    env: Mapping[str, str] = field(default_factory=dict)
    """For isolated ones only."""
    pass_env: tuple[str, ...] = ()
    timeout: float | None = None
    grace: float = 5.0
    fails_on: tuple[Outcome, ...] = ()
    """Errors that count as failures."""


class Provider(StrEnum):
    """A model's protocol."""

    OPENAI = "openai"
    """`/chat/completions`, of OpenAI and compatible servers."""
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    LOOPBACK = "loopback"
    """A simulated model that the run starts itself; it speaks `/chat/completions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    input_per_million: float
    output_per_million: float
    cached_input_per_million: float | None = None
    """None: the same as other input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """A provider's limits for an account or a model of it; None: unknown, discovered during the
    run."""

    concurrent: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    paced: bool = True
    """False: an attempt is many requests, so how often attempts start says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLimit:
    """The limit that a run found for a model or an account: where the next run starts."""

    requests_per_minute: float
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An entry of a suite's model registry. It names the key's variable, never the key."""

    name: str
    """Its name in the registry."""
    provider: Provider
    model: str
    """The provider's name for it."""
    base_url: str
    """Without a trailing slash; empty for a loopback model, whose address the run assigns."""
    api_key_env: str | None = None
    """None: no key is sent."""
    account: str
    """The account whose limits it shares."""
    timeout: float = 600.0
    """Maximum seconds for a call."""
    idle_timeout: float = 120.0
    """Maximum seconds without data on a connection."""
    price: Price | None = None
    """None: from the price table, if it lists the model."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sent unchanged with each request."""
    scenario: str | None = None
    """For a loopback model: the name of a bundled scenario, or the absolute path of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in a message."""

    source: str
    """A URL, or the absolute path of a file."""
    media_type: str = ""
    """Of a file: `image/png`."""
    digest: str = ""
    """Of a file's content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user, assistant, or tool for the result of a call."""
    content: str
    """All its text."""
    parts: tuple[str | Image, ...] = ()
    """Texts and images in order, if there are images."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant."""
    result_of: ToolCall | None = None
    """With the role tool: the call that returned this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """A JSON Schema of its arguments."""
    python: str | None = None
    """`module:function` to run; None: the call is the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Parameters of a chat request; unset ones are not sent."""

    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: str | None = None
    response_format: Mapping[str, Any] | None = None
    """A JSON Schema."""
    tools: tuple[Tool, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sent unchanged; they override the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTarget:
    """A model that is called once per attempt, or until it calls no more tools. The messages are
    templates; a message that is just `{input}` stands for all messages of such an input."""

    model: Model
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    settings: ChatSettings = field(default_factory=ChatSettings)
    max_turns: int = 10
    """Maximum number of calls per attempt, if it runs tools."""
    folder: str = ""
    """Where images and tool functions are looked up: the suite's folder."""
    timeout: float | None = None
    """None: the model's own."""

    @property
    def runs_tools(self) -> bool:
        tools = self.settings.tools
        return bool(tools) and any(tool.python is not None for tool in tools)


class Reads(StrEnum):
    """How a custom agent's stdout is parsed."""

    TEXT = "text"
    JSON = "json"
    """One object: if there are several, the last line that is one."""
    JSONL = "jsonl"
    """One object per line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomAgent:
    """A user's own agent: how to start it and how to parse its output."""

    command: tuple[str, ...]
    """Arguments; templates with the usual fields and {prompt}, {workspace}, {model}, {mcp_config}
    and {max_turns}."""
    stdin: str | None = None
    """A template; None: nothing."""
    like: str | None = None
    """The name of a known agent whose output format it prints; `reads` and `paths` are ignored
    then."""
    reads: Reads = Reads.TEXT
    paths: Mapping[str, str] = field(default_factory=dict)
    """answer, turns, cost_usd, input_tokens, output_tokens, tools, error -> a dotted path in the
    object (for jsonl, of the last line that has it)."""
    rate_limited: str | None = None
    """A regular expression that matches its output (stdout or stderr) when a rate limit refused it
    and it did not succeed."""
    refused: str | None = None
    """The same for a refused key or a missing login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRetries:
    """What an agent does about model calls that fail; None: paraval's default for that agent."""

    before_first: int | None = None
    """The agent's own retries of a call."""
    after: int | None = None
    """How often a session with an answer is resumed; or, if the agent cannot resume one, its own
    retries of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTarget:
    """An agent program, started once per attempt. Strings are templates."""

    agent: str
    """One of `paraval.agents.catalog`: claude-code, codex, ..., custom."""
    prompt: str
    system: str | None = None
    """Added to the agent's own instructions, if it supports that."""
    model: Model | None = None
    """From the registry: where the agent sends its requests, the model's name, and the key."""
    model_name: str | None = None
    """Passed unchanged if `model` is None; None: the agent's own choice."""
    account: str
    """The account whose limits it shares: the registry model's, else the agent's name."""
    max_turns: int | None = None
    retries: AgentRetries = field(default_factory=AgentRetries)
    mcp: tuple[McpServer, ...] = ()
    arguments: tuple[str, ...] = ()
    """Extra command-line arguments."""
    program: tuple[str, ...] = ()
    """Program to start instead of the agent's usual one."""
    custom: CustomAgent | None = None
    """For `custom` only."""
    home: Home = Home.OWN
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    timeout: float | None = None
    grace: float = 5.0
    limits: TargetLimits = field(default_factory=TargetLimits)
    fails_on: tuple[Outcome, ...] = ()
    """Errors that count as failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTarget:
    """Answers that another run has stored: nothing runs but graders."""

    limits: TargetLimits = field(default_factory=TargetLimits)
    """Of the target that answered, which apply to graders' programs too."""
    timeout: float | None = None
    fails_on: tuple[Outcome, ...] = ()


SuiteTarget = CommandTarget | FunctionTarget | ChatTarget | AgentTarget
"""What a suite evaluates."""
Target = SuiteTarget | StoredTarget
