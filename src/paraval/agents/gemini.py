"""gemini-cli: prompt on stdin, settings in its home, JSON lines as output.

It supports only Google's protocol, so it cannot use a model from the registry. Settings work only
in a home of its own: the other kind of settings file, which overrides the user's, is skipped if a
folder above it is writable by others, as /tmp is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paraval.agents.json_output import (
    amounts_in,
    in_words,
    last_line,
    mapping_in,
    objects_in,
    text_in,
)
from paraval.agents.program import AgentEnd, AgentJob, Launch, Login, Transcript, TranscriptReading
from paraval.agents.provider_errors import end_in, wait_in
from paraval.agents.steps import StepLog
from paraval.agents.tools import ServerPrefixes, states_by_use
from paraval.records import Activity, McpServer, McpState, Provider

TURN_LIMIT_EXIT = 53
_STOPS = {
    "Loop detected, stopping execution": "loop",
    "Maximum session turns exceeded": "max_turns",
}
"""Errors after which it ends as if it had succeeded."""
NO_LOGIN_EXIT = 41
_WORK = frozenset({"init", "message", "tool_use", "tool_result"})
"""Events that it reports once it has started."""
_USAGE = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "cached_tokens": ("cached",),
}
_STATUSES = frozenset({400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 501, 502, 503, 504})
"""HTTP statuses of its provider. Any other exit code is not a status."""


RETRIES = 3
"""Its own retries, over half a minute; by default nine, over minutes without output. Its
sessions are not resumed: 0.61 then sends the result of each tool call twice."""


class Gemini:
    """`gemini -o stream-json`."""

    name = "gemini"
    programs: tuple[str, ...] = ("gemini",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=("GEMINI_API_KEY",), files=(".gemini/oauth_creds.json",), command="gemini"
    )
    speaks: frozenset[Provider] = frozenset()
    takes = frozenset({"max_turns", "retries", "before_first", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset({"max_turns", "retries", "mcp"})
    install = "npm install -g @google/gemini-cli"

    def launch(self, job: AgentJob) -> Launch:
        files = {}
        if job.home is not None:
            files[f"{job.home}/.gemini/settings.json"] = json.dumps(_settings(job))
        return Launch(
            argv=(
                *job.program,
                *("-o", "stream-json", "--approval-mode", "yolo", "--skip-trust"),
                *(("-m", job.model) if job.model else ()),
                *job.arguments,
            ),
            env={
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
                # Otherwise it starts itself a second time, and a kill may reach only one of them.
                "GEMINI_CLI_NO_RELAUNCH": "true",
            },
            stdin=job.prompt,
            files=files,
        )

    def result_files(self, job: AgentJob) -> tuple[str, ...]:  # noqa: ARG002 - it leaves none
        return ()

    def read(
        self,
        job: AgentJob,
        transcript: Transcript,
        files: Mapping[str, str],  # noqa: ARG002 - it leaves none
    ) -> TranscriptReading:
        heard = _GeminiEvents(job.mcp)
        for event in objects_in(transcript.stdout):
            heard.take(event)
        reading = heard.reading(transcript)
        return _unsettled(job, reading) if job.home is None else reading


def _unsettled(job: AgentJob, reading: TranscriptReading) -> TranscriptReading:
    """Notes on keys that are not supported in the user's own home."""
    notes = []
    if job.mcp:
        notes.append("with home: mine, gemini uses only the MCP servers in its own settings")
    if job.max_turns is not None:
        notes.append("with home: mine, gemini does not support max_turns")
    states = dict.fromkeys(reading.activity.mcp, McpState.FAILED)
    activity = replace(reading.activity, mcp=states)
    return replace(reading, activity=activity, notes=(*reading.notes, *notes))


def _settings(job: AgentJob) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "maxAttempts": 1 + job.all_retries(RETRIES),
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        # In a separate home, a key is the only login.
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    if job.max_turns is not None:
        settings["model"] = {"maxSessionTurns": job.max_turns}
    if job.mcp:
        settings["mcpServers"] = {server.name: _server(server) for server in job.mcp}
    return settings


def _server(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"httpUrl": server.url, "trust": True}
    return {
        "command": server.command[0] if server.command else "",
        "args": list(server.command[1:]),
        "env": dict(server.env),
        "trust": True,
    }


class _GeminiEvents:
    """What its events have reported so far."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = servers
        self._names = ServerPrefixes(servers, before="mcp_")
        self._log = StepLog()
        self._activity = Activity()
        self._text: list[str] = []
        """Text since the last tool call."""
        self._text_before = ""
        """Text before that."""
        self._error = ""
        self._result: Mapping[str, Any] = {}
        self._began = False

    def take(self, event: Mapping[str, Any]) -> None:
        self._began = self._began or text_in(event, "type") in _WORK
        match event.get("type"):
            case "init":
                self._activity = Activity(
                    session=text_in(event, "session_id") or None,
                    model=text_in(event, "model") or None,
                )
            case "message" if event.get("role") == "assistant":
                self._text.append(text_in(event, "content"))
            case "tool_use":
                text = "".join(self._text)
                self._log.text(text)
                self._text_before = text.strip() or self._text_before
                self._text = []
                server, tool = self._names.split(text_in(event, "tool_name"))
                call, arguments = text_in(event, "tool_id"), event.get("parameters")
                self._log.call(call, tool, arguments, server=server)
            case "tool_result":
                content = event.get("output") or text_in(event, "error", "message")
                failed = event.get("status") != "success"
                self._log.result(text_in(event, "tool_id"), content, failed=failed)
            case "error":
                self._error = text_in(event, "message") or self._error
            case "result":
                self._result = event

    def reading(self, transcript: Transcript) -> TranscriptReading:
        self._log.text("".join(self._text))
        tools = self._log.tools()
        stats = mapping_in(self._result, "stats")
        amounts = amounts_in(stats, _USAGE)
        return replace(
            self._ended(transcript),
            activity=replace(
                self._activity,
                tools=tools,
                mcp=states_by_use(self._servers, tools),
                tells_tools=self._began,
            ),
            steps=self._log.steps(),
            usage={**dict.fromkeys(_USAGE, 0), **amounts} if stats and amounts is not None else {},
            is_settled=bool(stats),
            has_worked=bool(self._text or self._text_before or tools),
        )

    def _ended(self, transcript: Transcript) -> TranscriptReading:
        answer = "".join(self._text).strip() or self._text_before
        if transcript.exit_code == TURN_LIMIT_EXIT:
            return TranscriptReading(answer=answer, stopped_at="max_turns")
        if transcript.exit_code == 0 and self._result.get("status") == "success":
            return TranscriptReading(answer=answer, stopped_at=_STOPS.get(self._error))
        error = text_in(self._result, "error", "message") or self._error
        if transcript.exit_code == 0 and not error:
            message = "it ended with exit code 0 but no result, as after SIGTERM or SIGINT"
            return TranscriptReading(end=AgentEnd.NO_RESULT, message=message)
        words = in_words(error) or last_line(transcript.stderr)
        return TranscriptReading(
            end=_end(transcript.exit_code, error or words),
            message=words or "it printed nothing",
            retry_after=wait_in(error),
        )


def _end(exit_code: int | None, words: str) -> AgentEnd:
    if exit_code == NO_LOGIN_EXIT:
        return AgentEnd.NO_LOGIN
    return end_in(words, _status(exit_code)) or AgentEnd.BROKEN


def _status(exit_code: int | None) -> int | None:
    """Its exit code is the HTTP status, reduced to the last eight bits."""
    status = 256 + (exit_code or 0)
    return status if status in _STATUSES else None
