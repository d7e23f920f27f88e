"""auggie: one JSON object on stdout, errors only on stderr.

It reports neither tokens nor cost nor tool calls, so whether it used an MCP server is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paraval.agents.json_output import in_words, last_line, last_lines, objects_in, text_in
from paraval.agents.program import AgentEnd, AgentJob, Launch, Login, Transcript, TranscriptReading
from paraval.agents.provider_errors import end_in, wait_in
from paraval.agents.steps import text_steps
from paraval.records import Activity, McpServer, McpState, Provider

_MARKS = {"✅": McpState.CONNECTED, "❌": McpState.FAILED}
_STATUS_LINE = re.compile(r"^[ \t]*([✅❌])[ \t]*(.+?)[ \t]*$", re.MULTILINE)
MOST_STATUS_CHARACTERS = 20_000


class Auggie:
    """`auggie --print --output-format json`."""

    name = "auggie"
    programs: tuple[str, ...] = ("auggie",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=("AUGMENT_SESSION_AUTH",),
        files=(".augment/session.json",),
        command="auggie login",
    )
    speaks: frozenset[Provider] = frozenset()
    takes = frozenset({"system", "max_turns", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g @augmentcode/auggie"

    def launch(self, job: AgentJob) -> Launch:
        prompt, rules, servers = (
            f"{job.temp}/auggie-{name}" for name in ("prompt.md", "rules.md", "mcp.json")
        )
        files = {prompt: job.prompt}
        # `-w` also takes a bare word that follows it, so there must be none.
        options = ["-w", job.workspace, "--instruction-file", prompt, "--dont-save-session"]
        if job.home is not None:
            options += ["--augment-cache-dir", f"{job.home}/.augment"]
        if job.model:
            options += ["--model", job.model]
        if job.max_turns is not None:
            options += ["--max-turns", str(job.max_turns)]
        if job.system:
            options += ["--rules", rules]
            files[rules] = job.system
        if job.mcp:
            options += ["--mcp-config", servers]
            listed = {server.name: _server(server) for server in job.mcp}
            files[servers] = json.dumps({"mcpServers": listed})
        return Launch(
            argv=(
                *job.program,
                *("--print", "--output-format", "json", "--no-update-terminal-title"),
                *options,
                *job.arguments,
            ),
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
        results = [one for one in objects_in(transcript.stdout) if one.get("type") == "result"]
        result = results[-1] if results else {}
        activity = Activity(
            tells_tools=False,
            mcp=_states(job.mcp, transcript.stdout),
            session=text_in(result, "session_id") or None,
        )
        steps = text_steps([text_in(result, "result")])
        return replace(_ended(result, transcript), activity=activity, steps=steps)


def _server(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url}
    return {
        "type": "stdio",
        "command": server.command[0] if server.command else "",
        "args": list(server.command[1:]),
        "env": dict(server.env),
    }


def _states(servers: tuple[McpServer, ...], stdout: str) -> Mapping[str, McpState]:
    """Return server states from the lines before its result."""
    marks = _STATUS_LINE.findall(stdout[:MOST_STATUS_CHARACTERS]) if servers else []
    states = {name: _MARKS[mark] for mark, name in marks}
    return {server.name: states.get(server.name, McpState.UNKNOWN) for server in servers}


def _ended(result: Mapping[str, Any], transcript: Transcript) -> TranscriptReading:
    answer = result.get("result")
    if transcript.exit_code == 0 and isinstance(answer, str) and result.get("is_error") is False:
        return TranscriptReading(answer=text_in(result, "result"))
    text = text_in(result, "result") or last_lines(transcript.stderr)
    message = in_words(text_in(result, "result")) or last_line(transcript.stderr)
    if transcript.exit_code == 0 and not result:
        return TranscriptReading(
            end=AgentEnd.NO_RESULT, message=message or "it ended with exit code 0 but no result"
        )
    return TranscriptReading(
        end=end_in(text) or AgentEnd.BROKEN,
        message=message or "it printed nothing",
        retry_after=wait_in(text),
    )
