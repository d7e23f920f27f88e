"""What is evaluated: commands, functions, chat models and agents, as a plan names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# ---- what it may take


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """What one attempt may take of the machine; None: not said."""

    cpu: float | None = None
    """Cores that it keeps busy: reserved for it, not enforced."""
    memory_bytes: int | None = None
    """Of its whole process tree: reserved for it, and enforced where cgroups allow."""
    processes: int | None = None
    """At once; enforced where cgroups allow."""
    open_files: int | None = None
    """Of one process."""
    file_bytes: int | None = None
    """The largest file that it may write."""


# ---- agents


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A tool server that an agent is handed. Strings hold templates."""

    name: str
    command: tuple[str, ...] = ()
    """Started by the agent, spoken to over stdio; empty: reached by `url`."""
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None


class Home(StrEnum):
    """Which home folder a target sees."""

    OWN = "own"
    """A fresh one for each attempt."""
    MINE = "mine"
    """The user's, with all that is logged in there."""


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
    """One of `paraval.agents.catalog`: claude-code, codex, ..., custom."""
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
