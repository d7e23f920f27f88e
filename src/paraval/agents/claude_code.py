"""Claude Code: how to start it. What it prints is read by `claude_code_stream`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from paraval.agents.claude_code_stream import read_stream
from paraval.agents.mcp_config import mcp_config, mcp_config_path
from paraval.agents.program import Endpoint, Job, Launch, Login, Reading, Transcript
from paraval.records import Provider

RETRIES = "4"
"""Of its own, some 8 s in all. Waiting for a rate limit is the scheduler's, which knows of the
other attempts; but a session that is given up is paid for again from its start, and an overload of
a few seconds is common. Its own default, 10, holds a slot for minutes."""


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
    takes = frozenset({"system", "max_turns", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g @anthropic-ai/claude-code"

    def launch(self, job: Job) -> Launch:
        config = mcp_config_path(job.temp)
        # Strict, with servers or without: those of the user or of the repository would otherwise
        # be there in one mode and in the other.
        argv = [*job.program, "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--dangerously-skip-permissions", "--strict-mcp-config"]
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
            # On stdin it may be of any length, and begin with a dash.
            stdin=job.prompt,
            files={config: mcp_config(job.mcp)} if job.mcp else {},
        )

    def result_files(self, job: Job) -> tuple[str, ...]:  # noqa: ARG002 - none for any job
        return ()

    def read(self, job: Job, transcript: Transcript, files: Mapping[str, str]) -> Reading:  # noqa: ARG002 - it needs no files
        return read_stream(transcript, job.mcp)


def _environment(job: Job) -> dict[str, str]:
    env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_RETRIES": RETRIES,
        # Else it begins before its servers are there, and the first calls of their tools fail.
        "MCP_CONNECTION_NONBLOCKING": "0",
        # Its own patience is 30 s; several that start at once on a busy machine may take longer.
        "MCP_TIMEOUT": "90000",
    }
    if os.geteuid() == 0:
        # It refuses to work unattended as root unless it is told that this is a sandbox.
        env["IS_SANDBOX"] = "1"
    if job.home is not None:
        env["CLAUDE_CONFIG_DIR"] = f"{job.home}/.claude"
    if job.endpoint is not None:
        env |= _way_to(job.endpoint)
    return env


def _way_to(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": endpoint.api_key,
        # What it does beside the conversation, it would ask a model for that may not be there.
        "ANTHROPIC_SMALL_FAST_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.model,
    }
