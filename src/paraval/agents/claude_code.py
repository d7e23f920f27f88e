"""Claude Code: how to start it, and how to read its output."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from paraval.agents.json_output import (
    amount_in,
    amounts_in,
    count_in,
    in_words,
    last_line,
    mapping_in,
    mappings_in,
    objects_in,
    text_in,
    value_in,
)
from paraval.agents.program import (
    AgentEnd,
    AgentEndpoint,
    AgentJob,
    Launch,
    Login,
    Transcript,
    TranscriptReading,
)
from paraval.agents.provider_errors import end_in, wait_in
from paraval.agents.steps import StepLog
from paraval.agents.tools import as_written, mcp_config, mcp_config_path, split_name
from paraval.dataclass import dataclass
from paraval.records import Activity, McpServer, McpState, Provider

# Reading Claude Code's output: `stream-json` lines, or the one object of `json`.

STOPPED_AT = {"error_max_turns": "max_turns", "error_max_budget_usd": "budget"}
_STATES = {"connected": McpState.CONNECTED, "pending": McpState.UNKNOWN}
_POLICY = "violate our Usage Policy"
_NAMED_DENIALS = 5

Event = Mapping[str, Any]


def read_stream(
    transcript: Transcript,
    servers: Sequence[McpServer],
    earlier: TranscriptReading | None = None,
) -> TranscriptReading:
    """`earlier`: what the session did before it was resumed."""
    events = _ClaudeEvents.of(objects_in(transcript.stdout), servers)
    result = events.result
    common: dict[str, Any] = {
        "activity": events.activity(servers),
        "steps": events.log.steps(),
        **events.spent(earlier),
        "is_settled": bool(result),
        "has_worked": events.has_worked(),
        "requests": events.requests(),
        "refusals": len(events.refusals),
        "is_waiting": events.is_waiting,
        "notes": events.notes(servers),
    }
    if not result:
        return _without_result(events, transcript, common)
    stopped_at = STOPPED_AT.get(text_in(result, "subtype"))
    if stopped_at is not None:
        return TranscriptReading(answer=events.last_text(), stopped_at=stopped_at, **common)
    words = _complaint(result)
    if _is_refusal(result, words):
        return TranscriptReading(answer=words or events.last_text(), refused=True, **common)
    if value_in(result, "is_error") is True or text_in(result, "subtype").startswith("error"):
        end = end_in(words, count_in(result, "api_error_status")) or AgentEnd.BROKEN
        return _ended(end, words or text_in(result, "subtype"), events, common)
    if transcript.exit_code != 0:
        how = f"exit code {transcript.exit_code}"
        how = how if transcript.signal is None else f"signal {transcript.signal}"
        common["notes"] = (*common["notes"], f"it ended with {how} after reporting its result")
    answer = value_in(result, "result")
    if answer is not None and not isinstance(answer, str):
        return TranscriptReading(end=AgentEnd.UNREADABLE, **common)
    return TranscriptReading(answer=text_in(result, "result") or events.last_text(), **common)


def _without_result(
    events: _ClaudeEvents, transcript: Transcript, common: Mapping[str, Any]
) -> TranscriptReading:
    words = last_line(transcript.stderr) or _plain_words(transcript.stdout)
    end = end_in(words) if words else None
    if end is None and events.retries and transcript.exit_code != 0:
        status = events.retries[-1]
        end, words = end_in(words, status), words or f"it was retrying after status {status}"
    if end is None:
        end = AgentEnd.NO_RESULT if transcript.exit_code == 0 else AgentEnd.BROKEN
    return _ended(end, words, events, common)


def _ended(
    end: AgentEnd, words: str, events: _ClaudeEvents, common: Mapping[str, Any]
) -> TranscriptReading:
    wait: float | None = None
    if end is AgentEnd.RATE_LIMITED:
        # Otherwise its own wait, which follows the provider's request, if any.
        wait = wait_in(words) or next(iter(events.refusals[-1:]), None)
    return TranscriptReading(end=end, message=in_words(words), retry_after=wait, **common)


def _complaint(result: Event) -> str:
    errors = value_in(result, "errors")
    texts = [one for one in errors if isinstance(one, str)] if isinstance(errors, list) else []
    return "; ".join([text for text in (text_in(result, "result"), *texts) if text])


def _is_refusal(result: Event, words: str) -> bool:
    return text_in(result, "stop_reason") == "refusal" or _POLICY in words


def _plain_words(stdout: str) -> str:
    """Return what it printed instead of JSON, if anything."""
    line = last_line(stdout)
    return "" if line.startswith(("{", "[")) else line


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaudeEvents:
    """The lines by their kind."""

    init: Event = field(default_factory=dict)
    result: Event = field(default_factory=dict)
    """The last result; empty if there is none."""
    messages: list[Event] = field(default_factory=list)
    """The model's messages, including those of sub-agents."""
    log: StepLog = field(default_factory=StepLog)
    retries: list[int] = field(default_factory=list)
    """HTTP statuses after which it retried; 0: unknown."""
    refusals: list[float] = field(default_factory=list)
    """For the rate limits among them: how many seconds it waited."""
    is_waiting: bool = False
    """The last line is of such a retry."""

    @classmethod
    def of(cls, events: Iterable[Event], servers: Sequence[McpServer]) -> _ClaudeEvents:
        init: Event = {}
        result: Event = {}
        made = cls()
        is_waiting = False
        for event in events:
            is_waiting = value_in(event, "subtype") == "api_retry"
            match value_in(event, "type"), value_in(event, "subtype"):
                case "system", "init":
                    init = init or event
                case "system", "api_retry":
                    made.retries.append(count_in(event, "error_status") or 0)
                    if made.retries[-1] in (429, 529):
                        made.refusals.append((amount_in(event, "retry_delay_ms") or 0.0) / 1000)
                case "assistant", _:
                    made.messages.append(event)
                    _log_message(made.log, event, servers)
                case "user", _:
                    for part in mappings_in(event, "message", "content"):
                        if value_in(part, "type") == "tool_result":
                            failed = value_in(part, "is_error") is True
                            call = text_in(part, "tool_use_id")
                            made.log.result(call, value_in(part, "content"), failed=failed)
                case "result", _:
                    result = event
        return cls(
            init=init,
            result=result,
            messages=made.messages,
            log=made.log,
            retries=made.retries,
            refusals=made.refusals,
            is_waiting=is_waiting,
        )

    def last_text(self) -> str:
        """Return the agent's own last text; sub-agents report to it, not to us."""
        for event in reversed(self.messages):
            if value_in(event, "parent_tool_use_id") is None:
                parts = mappings_in(event, "message", "content")
                text = "\n".join(filter(None, (text_in(part, "text") for part in parts)))
                if text:
                    return text
        return ""

    def requests(self) -> int | None:
        answered = {text_in(event, "message", "id") for event in self._real_messages()} - {""}
        if not answered:
            turns = count_in(self.result, "num_turns")
            return None if turns is None else turns + len(self.retries)
        return len(answered) + len(self.retries)

    def _real_messages(self) -> Iterable[Event]:
        """Yield the model's messages, without those it makes up to show an error."""
        return (
            event for event in self.messages if text_in(event, "message", "model") != "<synthetic>"
        )

    def has_worked(self) -> bool | None:
        if not self.init and not self.messages:
            # The `json` form has only the result.
            return None if self.result else False
        return any(True for _ in self._real_messages())

    def cost_usd(self) -> float | None:
        """Return the cost by its own price table, which would be a guess for unknown models."""
        if any(text_in(one, "costBasis") == "unknown" for one in self._by_model()):
            return None
        return amount_in(self.result, "total_cost_usd")

    def _by_model(self) -> list[Event]:
        usages = mapping_in(self.result, "modelUsage").values()
        return [one for one in usages if isinstance(one, Mapping)]

    def usage(self) -> dict[str, float]:
        by_model = self._by_model()
        if by_model:
            return _sum(by_model, _BY_MODEL)
        usage = mapping_in(self.result, "usage")
        if usage:
            return _sum([usage], _BY_API)
        return self._usage_of_messages()

    def _usage_of_messages(self) -> dict[str, float]:
        """Add up the last report of each answer."""
        last = {text_in(one, "message", "id"): one for one in self._real_messages()}
        return _sum((mapping_in(one, "message", "usage") for one in last.values()), _BY_API)

    def spent(self, earlier: TranscriptReading | None) -> dict[str, Any]:
        """Return the usage and the cost since the session was resumed. Newer versions include the
        earlier part in those of the result."""
        usage, cost = self.usage(), self.cost_usd()
        before = 0.0 if earlier is None else earlier.usage.get("input_tokens", 0.0)
        own = self._usage_of_messages().get("input_tokens", 0)
        if earlier is not None and 0 < before <= usage.get("input_tokens", 0) - own:
            usage = {
                name: max(0.0, amount - earlier.usage.get(name, 0))
                for name, amount in usage.items()
            }
            if cost is not None and earlier.cost_usd is not None:
                cost = max(0.0, cost - earlier.cost_usd)
        return {"usage": usage, "cost_usd": cost}

    def activity(self, servers: Sequence[McpServer]) -> Activity:
        tools = self.log.tools()
        worked = {tool.server for tool in tools if tool.calls > tool.failed}
        return Activity(
            turns=count_in(self.result, "num_turns"),
            tools=tools,
            mcp={server.name: self._state(server, worked) for server in servers},
            # The `json` form has only the result.
            tells_tools=bool(self.init or self.messages),
            session=text_in(self.result or self.init, "session_id") or None,
            version=text_in(self.init, "claude_code_version") or None,
            model=text_in(self.init, "model") or None,
        )

    def _state(self, server: McpServer, worked: Container[str | None]) -> McpState:
        if server.name in worked:
            return McpState.CONNECTED
        status = self._status(server)
        if status is None:
            return McpState.UNKNOWN
        return _STATES.get(status, McpState.FAILED)

    def _status(self, server: McpServer) -> str | None:
        """Return a server's state from the first line; None without such a line."""
        if not self.init:
            return None
        for one in mappings_in(self.init, "mcp_servers"):
            if as_written(text_in(one, "name")) == as_written(server.name):
                return text_in(one, "status") or "failed"
        return "missing"

    def notes(self, servers: Sequence[McpServer]) -> tuple[str, ...]:
        notes = [
            f"MCP server '{server.name}' did not connect ({in_words(status)})"
            for server in servers
            if (status := self._status(server)) is not None and status not in _STATES
        ]
        denied = [
            text_in(one, "tool_name") for one in mappings_in(self.result, "permission_denials")
        ]
        if denied:
            names = ", ".join(in_words(name) for name in sorted(set(denied))[:_NAMED_DENIALS])
            calls = "1 tool call was" if len(denied) == 1 else f"{len(denied)} tool calls were"
            notes.append(f"{calls} not permitted: {names}")
        return tuple(notes)


def _log_message(log: StepLog, event: Event, servers: Sequence[McpServer]) -> None:
    """Each line has a part of a message; lines of sub-agents come between those of the agent."""
    message = text_in(event, "message", "id")
    if value_in(event, "parent_tool_use_id") is not None:
        log.text("[sub-agent]", message=message)
    for part in mappings_in(event, "message", "content"):
        match value_in(part, "type"):
            case "text":
                log.text(text_in(part, "text"), message=message)
            case "thinking":
                log.thought(text_in(part, "thinking"), message=message)
            case "tool_use":
                server, tool = split_name(text_in(part, "name"), servers)
                arguments = value_in(part, "input")
                log.call(text_in(part, "id"), tool, arguments, server=server, message=message)


_BY_API = {
    "input_tokens": ("input_tokens",),
    "cached_tokens": ("cache_read_input_tokens",),
    "written": ("cache_creation_input_tokens",),
    "output_tokens": ("output_tokens",),
    "reasoning_tokens": ("output_tokens_details", "thinking_tokens"),
}
_BY_MODEL = {
    "input_tokens": ("inputTokens",),
    "cached_tokens": ("cacheReadInputTokens",),
    "written": ("cacheCreationInputTokens",),
    "output_tokens": ("outputTokens",),
    "reasoning_tokens": ("thinkingTokens",),
}


def _sum(usages: Iterable[Event], paths: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Return usage by our names: Anthropic counts cached tokens apart from the input, and we
    don't."""
    total: dict[str, float] = {}
    for usage in usages:
        amounts = amounts_in(usage, paths)
        if amounts is None:
            return {}
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    if not total:
        return {}
    cached = total.get("cached_tokens", 0)
    summed = {
        "input_tokens": total.get("input_tokens", 0) + cached + total.get("written", 0),
        "output_tokens": total.get("output_tokens", 0),
        "cached_tokens": cached,
        "reasoning_tokens": total.get("reasoning_tokens", 0),
    }
    always = ("input_tokens", "output_tokens")
    return {name: amount for name, amount in summed.items() if amount or name in always}


RETRIES = 4
"""Its own retries, about 8 s in total: overloads of a few seconds are common. The default, 10,
blocks a slot for minutes."""


class ClaudeCode:
    name = "claude-code"
    programs: tuple[str, ...] = ("claude",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        files=(".claude/.credentials.json",),
        command="claude /login",
    )
    speaks = frozenset({Provider.ANTHROPIC, Provider.LOOPBACK})
    takes = frozenset({"system", "max_turns", "retries", "before_first", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g @anthropic-ai/claude-code"

    def launch(self, job: AgentJob) -> Launch:
        config = mcp_config_path(job.temp)
        # Strict, with or without servers: otherwise the user's or the repository's servers would be
        # there in both modes.
        argv = [*job.program, "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--dangerously-skip-permissions", "--strict-mcp-config"]
        if job.session is not None:
            argv += ["--resume", job.session]
        if job.mcp:
            argv += ["--mcp-config", config]
        if job.model is not None:
            argv += ["--model", job.model]
        if job.max_turns is not None:
            argv += ["--max-turns", str(job.max_turns)]
        if job.system:
            argv += ["--append-system-prompt", job.system]
        return Launch(
            argv=(*argv, *job.arguments),
            env=_environment(job),
            # On stdin it may have any length, and start with a dash.
            stdin=job.prompt,
            files={config: mcp_config(job.mcp)} if job.mcp else {},
            can_resume=True,
        )

    def result_files(self, job: AgentJob) -> tuple[str, ...]:  # noqa: ARG002 - none for any job
        return ()

    def read(
        self,
        job: AgentJob,
        transcript: Transcript,
        files: Mapping[str, str],  # noqa: ARG002 - it needs no files
    ) -> TranscriptReading:
        return read_stream(transcript, job.mcp, job.earlier)


def _environment(job: AgentJob) -> dict[str, str]:
    env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(job.own_retries(RETRIES)),
        # Otherwise it starts before its servers are ready, and the first tool calls fail.
        "MCP_CONNECTION_NONBLOCKING": "0",
        # Its default is 30 s; several that start at once on a busy machine may take longer.
        "MCP_TIMEOUT": "90000",
    }
    if os.geteuid() == 0:
        # As root it refuses to work unattended unless this says that it is in a sandbox.
        env["IS_SANDBOX"] = "1"
    if job.home is not None:
        env["CLAUDE_CONFIG_DIR"] = f"{job.home}/.claude"
    if job.endpoint is not None:
        env |= _way_to(job.endpoint)
    return env


def _way_to(endpoint: AgentEndpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": endpoint.api_key,
        # Its background tasks would ask for a model that may not exist there.
        "ANTHROPIC_SMALL_FAST_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.model,
    }
