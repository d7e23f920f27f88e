"""What an agent program is to us: how to start it for an attempt, and how to read how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from paraval.records import Activity, CustomAgent, McpServer, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEndpoint:
    """Where an agent is to send its requests, in the place of where it would."""

    provider: Provider
    """LOOPBACK speaks every protocol: OpenAI's two under `base_url`, Anthropic's too."""
    base_url: str
    """With its `/v1`, without a slash at the end, as the registry has it."""
    model: str
    """As the provider calls it."""
    api_key: str = field(repr=False)
    """Something, also where none is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJob:
    """One attempt as an agent is to do it; every template is filled in."""

    prompt: str
    system: str | None = None
    workspace: str
    """Absolute: the folder it works in."""
    home: str | None
    """Absolute: a fresh folder that is its home; None: it works in the user's own."""
    temp: str
    """Absolute: a fresh folder for temporary files, and for those of `Launch.files`."""
    model: str | None = None
    """As the agent calls it; None: its own choice. With an endpoint, the endpoint's."""
    endpoint: AgentEndpoint | None = None
    max_turns: int | None = None
    mcp: tuple[McpServer, ...] = ()
    arguments: tuple[str, ...] = ()
    program: tuple[str, ...]
    """The beginning of the command line: the agent's program, found or told."""
    timeout: float | None = None
    """What the runner's clock allows; for those that want to be told."""
    custom: CustomAgent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start an agent."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Beside what every child gets; HOME and TMPDIR are seen to."""
    stdin: str = ""
    """Empty: /dev/null."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path, in the home or the temp folder -> what to write there first (mode 0600)."""
    litter: tuple[str, ...] = ()
    """Patterns of names: what it makes for itself at the top of the repository it works in, which
    is none of its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What an agent left, however it ended: of one that was ended from outside, what it had told
    until then."""

    stdout: str
    """The first part and the end, where it is very long."""
    stderr: str
    exit_code: int | None
    signal: int | None = None


CUT_OFF = "cut off "
"""Begins every note on an agent that did not come to its own end."""
STOPS = {
    "max_turns": "at max_turns",
    "budget": "at its own budget",
    "time": "at its own time limit",
    "format_errors": "after repeated answers in the wrong format",
    "loop": "in a loop",
}


def stop_note(stopped_at: str, max_turns: int | None) -> str:
    """`cut off at max_turns (20)`."""
    limit = f" ({max_turns})" if stopped_at == "max_turns" and max_turns is not None else ""
    return f"{CUT_OFF}{STOPS[stopped_at]}{limit}"


class AgentEnd(Enum):
    """The ends of an agent that are no answer."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptReading:
    """What a transcript says."""

    answer: str | None = None
    """What it said last; None: it gave no answer, and `end` tells why."""
    end: AgentEnd | None = None
    """Exactly one of `answer` and `end` is None."""
    message: str = ""
    """With `end`: in the agent's own words, bounded."""
    retry_after: float | None = None
    activity: Activity = field(default_factory=Activity)
    usage: Mapping[str, float] = field(default_factory=dict)
    """input_tokens (cached ones included), output_tokens, cached_tokens, reasoning_tokens."""
    cost_usd: float | None = None
    """As the agent reckons it itself; None: it doesn't."""
    is_settled: bool = False
    """`usage` and `cost_usd` are its own last word on the whole attempt. Else, without an answer,
    they are what it had told until it broke off."""
    has_worked: bool | None = None
    """Whether the model was seen to answer (a message, a call of a tool, a turn), which somebody
    pays for; None: this agent would not show it."""
    requests: int | None = None
    """Calls of the model; None: unknown."""
    refusals: int = 0
    """Rate limits that it met on the way and waited for."""
    stopped_at: str | None = None
    """It was cut off by a limit of its own (one of `STOPS`), and what it had said until then is the
    answer."""
    refused: bool = False
    """The model would not do it: an answer, and most likely a wrong one."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a person may be logged in, for `doctor` and for advice."""

    key_variables: tuple[str, ...]
    """Any of them is a key that works in a home of its own; passed on where it is set."""
    files: tuple[str, ...] = ()
    """Relative to the user's home: where the agent's own login leaves its traces."""
    command: str = ""
    """How to log in: `claude /login`."""


class AgentProgram(Protocol):
    """One kind of agent. Pure: no file is read or written, nothing is started."""

    name: str
    """As suites write it."""
    programs: tuple[str, ...]
    """Names on PATH, the first that is there is taken."""
    version_arguments: tuple[str, ...]
    """`--version`."""
    login: Login
    speaks: frozenset[Provider]
    """The protocols of an endpoint that it can be sent to; LOOPBACK where it can be that."""
    takes: frozenset[str]
    """Of `system`, `max_turns`, `mcp`, `model`: what it can be told; anything else that a suite
    says is an error of the suite."""
    takes_in_own_home: frozenset[str]
    """Of `takes`: what it can be told in a home of its own alone; with `home: mine` a suite that
    says it is wrong."""
    install: str
    """How to get it: `npm install -g @openai/codex`."""

    def launch(self, job: AgentJob) -> Launch: ...

    def result_files(self, job: AgentJob) -> tuple[str, ...]:
        """Files in the home or temp folder that `read` wants beside stdout; read with bounds, no
        links followed. Mostly none."""
        ...

    def read(
        self, job: AgentJob, transcript: Transcript, files: Mapping[str, str]
    ) -> TranscriptReading:
        """What the transcript says; `files` are those of `result_files` that were there.

        Never raises, whatever is in it. Exit code 0 without a result is NO_RESULT.
        """
        ...
