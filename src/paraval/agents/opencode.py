"""opencode: prompt on stdin, configuration in its environment, JSON lines as output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paraval.agents.json_output import (
    amount_in,
    amounts_in,
    count_in,
    in_words,
    last_line,
    mapping_in,
    objects_in,
    text_in,
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
from paraval.agents.tools import ServerPrefixes, states_by_use
from paraval.records import Activity, McpServer, Provider

OUR_PROVIDER = "paraval"
"""The name of an endpoint in opencode's configuration."""

_PACKAGES = {
    Provider.OPENAI: "@ai-sdk/openai-compatible",
    Provider.LOOPBACK: "@ai-sdk/openai-compatible",
    Provider.OPENAI_RESPONSES: "@ai-sdk/openai",
    Provider.ANTHROPIC: "@ai-sdk/anthropic",
}
"""All of them are bundled with opencode: nothing is fetched."""

_HOMES = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CACHE_HOME": ".cache",
    "XDG_STATE_HOME": ".local/state",
}

_NAMED_ENDS = {
    "ProviderAuthError": AgentEnd.NO_LOGIN,
    "ProviderModelNotFoundError": AgentEnd.NO_SUCH_MODEL,
    "ModelNotFoundError": AgentEnd.NO_SUCH_MODEL,
    "ContextOverflowError": AgentEnd.BAD_REQUEST,
}

_TOKENS = {
    **{name: (name,) for name in ("input", "output", "reasoning", "total")},
    "read": ("cache", "read"),
    "write": ("cache", "write"),
}
_WORK = frozenset({"step_start", "text", "tool_use", "step_finish"})
"""Events that it reports once it has started."""


class OpenCode:
    """`opencode run --format json`."""

    name = "opencode"
    programs: tuple[str, ...] = ("opencode",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=(
            "OPENCODE_API_KEY",
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "OPENROUTER_API_KEY",
            "GOOGLE_GENERATIVE_AI_API_KEY",
        ),
        files=(".local/share/opencode/auth.json",),
        command="opencode auth login",
    )
    speaks = frozenset(_PACKAGES)
    takes = frozenset({"system", "retries", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g opencode-ai"

    def launch(self, job: AgentJob) -> Launch:
        rules = f"{job.temp}/opencode-system.md"
        env = {
            "OPENCODE_CONFIG_CONTENT": json.dumps(_configuration(job, rules)),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        }
        if job.endpoint is not None:
            # Its list of public models is of no use then.
            env["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
        if job.home is not None:
            env.update((name, f"{job.home}/{folder}") for name, folder in _HOMES.items())
        model = f"{OUR_PROVIDER}/{job.endpoint.model}" if job.endpoint is not None else job.model
        return Launch(
            argv=(
                *job.program,
                *("run", "--format", "json", "--pure", "--auto", "--dir", job.workspace),
                *(("-m", model) if model else ()),
                *(("--session", job.session) if job.session else ()),
                *job.arguments,
            ),
            env=env,
            # As an argument, it would be quoted, and its quotes escaped.
            stdin=job.prompt,
            files={rules: job.system} if job.system else {},
            can_resume=True,
        )

    def result_files(self, job: AgentJob) -> tuple[str, ...]:  # noqa: ARG002 - it leaves none
        return ()

    def read(
        self,
        job: AgentJob,
        transcript: Transcript,
        files: Mapping[str, str],  # noqa: ARG002 - it leaves none
    ) -> TranscriptReading:
        heard = _OpencodeEvents(job.mcp)
        for event in objects_in(transcript.stdout):
            heard.take(event)
        return heard.reading(job, transcript)


def _configuration(job: AgentJob, rules: str) -> dict[str, Any]:
    configuration: dict[str, Any] = {"autoupdate": False, "share": "disabled"}
    if job.system:
        configuration["instructions"] = [rules]
    if job.endpoint is not None:
        configuration["provider"] = {OUR_PROVIDER: _provider(job.endpoint)}
        # It asks a small model for titles, from another provider if it finds a key.
        configuration["small_model"] = f"{OUR_PROVIDER}/{job.endpoint.model}"
        configuration["enabled_providers"] = [OUR_PROVIDER]
    if job.mcp:
        configuration["mcp"] = {server.name: _server(server) for server in job.mcp}
    return configuration


def _provider(endpoint: AgentEndpoint) -> dict[str, Any]:
    return {
        "npm": _PACKAGES[endpoint.provider],
        "name": OUR_PROVIDER,
        "options": {"baseURL": endpoint.base_url, "apiKey": endpoint.api_key},
        "models": {endpoint.model: {"name": endpoint.model, "tool_call": True}},
    }


def _server(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "remote", "url": server.url, "enabled": True}
    return {
        "type": "local",
        "command": list(server.command),
        "environment": dict(server.env),
        "enabled": True,
    }


class _OpencodeEvents:
    """What its events have reported so far."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = servers
        self._names = ServerPrefixes(servers)
        self._log = StepLog()
        self._session: str | None = None
        self._texts: list[str] = []
        """Texts of the last message with text."""
        self._message = ""
        """The id of that message."""
        self._steps = 0
        self._finish = ""
        self._usage: dict[str, float] = {}
        self._usage_unknown = False
        self._cost = 0.0
        self._error: Mapping[str, Any] = {}
        self._began = False
        """A step started, or something in one was reported."""

    def take(self, event: Mapping[str, Any]) -> None:
        self._began = self._began or text_in(event, "type") in _WORK
        self._session = text_in(event, "sessionID") or self._session
        part = mapping_in(event, "part")
        match event.get("type"):
            case "text":
                self._take_text(part)
            case "tool_use":
                self._take_call(part)
            case "step_finish":
                self._take_step(part)
            case "error":
                self._error = mapping_in(event, "error") or {"name": "error"}

    def _take_text(self, part: Mapping[str, Any]) -> None:
        message = text_in(part, "messageID")
        if message != self._message:
            self._texts = []
        self._message = message
        self._texts.append(text_in(part, "text"))
        self._log.text(text_in(part, "text"), message=message)

    def _take_call(self, part: Mapping[str, Any]) -> None:
        server, tool = self._names.split(text_in(part, "tool"))
        call, state = text_in(part, "callID"), mapping_in(part, "state")
        message = text_in(part, "messageID")
        self._log.call(call, tool, state.get("input"), server=server, message=message)
        failed = text_in(state, "status") != "completed"
        self._log.result(call, state.get("output") or text_in(state, "error"), failed=failed)

    def _take_step(self, part: Mapping[str, Any]) -> None:
        self._steps += 1
        self._finish = text_in(part, "reason")
        cost = amount_in(part, "cost") or 0
        self._cost += cost
        amounts = amounts_in(mapping_in(part, "tokens"), _TOKENS)
        if amounts is None:
            self._usage_unknown = True
            return
        tokens = {**dict.fromkeys(_TOKENS, 0), **amounts}
        asked = tokens["input"] + tokens["read"] + tokens["write"]
        usage = {
            "input_tokens": asked,
            # Reasoning tokens are in the output or separate, depending on the provider; the total
            # shows which.
            "output_tokens": max(tokens["output"], tokens["total"] - asked),
            "cached_tokens": tokens["read"],
            "reasoning_tokens": tokens["reasoning"],
        }
        self._log.usage(usage, cost or None, message=text_in(part, "messageID"))
        for name, amount in usage.items():
            self._usage[name] = self._usage.get(name, 0) + amount

    def reading(self, job: AgentJob, transcript: Transcript) -> TranscriptReading:
        tools = self._log.tools()
        activity = Activity(
            turns=self._steps,
            tools=tools,
            mcp=states_by_use(self._servers, tools),
            tells_tools=self._began,
            session=self._session,
        )
        return replace(
            self._ended(job, transcript),
            activity=activity,
            steps=self._log.steps(),
            usage={} if self._usage_unknown else self._usage,
            # It reports 0 for a model with an unknown price, which would be wrong.
            cost_usd=self._cost or None,
            has_worked=bool(self._steps or self._texts or tools),
            # One that failed before its first step made an unknown number of requests.
            requests=self._steps or None,
        )

    def _ended(self, job: AgentJob, transcript: Transcript) -> TranscriptReading:
        if self._error:
            return _error_reading(self._error)
        if transcript.exit_code == 0 and self._steps and self._finish != "tool-calls":
            cut = ("its last step ended at the model's output limit",)
            return TranscriptReading(
                answer="\n".join(self._texts), notes=cut if self._finish == "length" else ()
            )
        if job.home is None and "Failed query: CREATE TABLE" in transcript.stderr:
            advice = (
                "several instances started at once in a home where opencode had never run and"
                " collided in its database; run opencode there once by hand, or remove"
                " 'home: mine'"
            )
            return TranscriptReading(end=AgentEnd.BROKEN, message=advice)
        complaint = last_line(transcript.stderr)
        if transcript.exit_code == 0:
            message = complaint or "it ended with exit code 0 before it was done"
            return TranscriptReading(end=AgentEnd.NO_RESULT, message=message)
        return TranscriptReading(
            end=end_in(complaint) or AgentEnd.BROKEN, message=complaint or "it printed nothing"
        )


def _error_reading(error: Mapping[str, Any]) -> TranscriptReading:
    name = text_in(error, "name")
    message = text_in(error, "data", "message") or text_in(error, "message")
    status = count_in(error, "data", "statusCode")
    words = f"{name}: {message}\n{text_in(error, 'data', 'responseBody')}"
    end = _NAMED_ENDS.get(name) or end_in(words, status) or AgentEnd.BROKEN
    after = text_in(error, "data", "responseHeaders", "retry-after")
    return TranscriptReading(
        end=end,
        message=in_words(f"{name}: {message}" if message else name),
        retry_after=wait_in(f"retry-after: {after}") if after else None,
    )
