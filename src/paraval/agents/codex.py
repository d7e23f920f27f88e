"""Codex: how to start it. What it prints is read by `codex_stream`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from paraval.agents.codex_stream import read_stream
from paraval.agents.program import Endpoint, Job, Launch, Login, Reading, Transcript
from paraval.isolation import McpServer
from paraval.records import Provider

KEY_VARIABLE = "CODEX_API_KEY"
"""What it reads a key from; OPENAI_API_KEY it does not look at (see `keys`)."""
ENDPOINT_KEY_VARIABLE = "PARAVAL_MODEL_KEY"
RETRIES = 1
"""Of its own: waiting for a rate limit is the scheduler's, which knows of the other attempts."""
_UNKNOWN_MODEL = "Model metadata for"
SERVER_START_S = 60
"""What an MCP server may take to start; its own 10 s are short where many start at once."""


class Codex:
    name = "codex"
    programs: tuple[str, ...] = ("codex",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=(KEY_VARIABLE, "OPENAI_API_KEY"),
        files=(".codex/auth.json",),
        command="codex login",
    )
    speaks = frozenset({Provider.OPENAI_RESPONSES, Provider.LOOPBACK})
    takes = frozenset({"system", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g @openai/codex"

    def launch(self, job: Job) -> Launch:
        argv = [*job.program, "exec", "--json", "--skip-git-repo-check", "--ephemeral"]
        argv += ["-C", job.workspace, "--dangerously-bypass-approvals-and-sandbox"]
        if job.home is None:
            # His login is wanted; his servers would be there in one mode and in the other, and
            # settings on the command line only add to them.
            argv.append("--ignore-user-config")
        # Each of these would reach for the network, or wait for ever where there is none.
        for feature in ("plugins", "apps", "unbounded_connection_retries"):
            argv += ["--disable", feature]
        for setting in _settings(job):
            argv += ["-c", setting]
        if job.model is not None:
            argv += ["-m", job.model]
        env = {"CODEX_HOME": _home(job.home)} if job.home is not None else {}
        if job.endpoint is not None:
            env[ENDPOINT_KEY_VARIABLE] = job.endpoint.api_key
        return Launch(
            # `-`: the prompt is on stdin, where it may be of any length and begin with a dash.
            argv=(*argv, *job.arguments, "-"),
            env=env,
            stdin=job.prompt,
            # Its home must be there, which this makes it be.
            files={f"{_home(job.home)}/config.toml": ""} if job.home is not None else {},
        )

    def result_files(self, job: Job) -> tuple[str, ...]:  # noqa: ARG002 - none for any job
        return ()

    def read(self, job: Job, transcript: Transcript, files: Mapping[str, str]) -> Reading:  # noqa: ARG002 - it needs no files
        reading = read_stream(transcript, job.mcp)
        if job.endpoint is None:
            return reading
        # Of a model that it was sent to on purpose, it is no news that it does not know it.
        kept = tuple(note for note in reading.notes if not note.startswith(_UNKNOWN_MODEL))
        return replace(reading, notes=kept)


def _home(home: str) -> str:
    return f"{home}/.codex"


def _settings(job: Job) -> list[str]:
    settings = [
        "check_for_update_on_startup=false",
        "analytics.enabled=false",
        'otel.exporter="none"',
        f"mcp_servers={_servers(job.mcp)}",
    ]
    if job.endpoint is not None:
        settings += ["model_provider=paraval", f"model_providers.paraval={_provider(job.endpoint)}"]
    if job.system:
        settings.append(f"developer_instructions={_quoted(job.system)}")
    return settings


def _provider(endpoint: Endpoint) -> str:
    return _table(
        {
            "name": _quoted("paraval"),
            "base_url": _quoted(endpoint.base_url),
            "env_key": _quoted(ENDPOINT_KEY_VARIABLE),
            "wire_api": _quoted("responses"),
            "request_max_retries": str(RETRIES),
            "stream_max_retries": str(RETRIES),
        }
    )


def _servers(servers: Iterable[McpServer]) -> str:
    return _table({server.name: _server(server) for server in servers})


def _server(server: McpServer) -> str:
    # Required: else it goes on in silence without a server that did not start.
    fields = {"required": "true", "startup_timeout_sec": str(SERVER_START_S)}
    if server.url is not None:
        return _table({"url": _quoted(server.url), **fields})
    program, *arguments = server.command
    listed = ",".join(_quoted(argument) for argument in arguments)
    env = _table({name: _quoted(value) for name, value in server.env.items()})
    return _table({"command": _quoted(program), "args": f"[{listed}]", "env": env, **fields})


def _table(fields: Mapping[str, str]) -> str:
    """An inline table of TOML."""
    return "{" + ",".join(f"{_quoted(name)}={value}" for name, value in fields.items()) + "}"


def _quoted(text: str) -> str:
    """A string of TOML: JSON's form, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
