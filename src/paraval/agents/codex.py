"""Codex: how to start it, and how to read its output."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paraval.agents.json_output import (
    amounts_in,
    in_words,
    last_line,
    mapping_in,
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
from paraval.agents.tools import as_written
from paraval.dataclass import dataclass
from paraval.records import Activity, McpServer, McpState, Provider

# MCP servers in Codex's format, with their variables kept off the command line.

SERVER_START_S = 60
"""Time limit for an MCP server to start; the default of 10 s is short when many start at once."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BECOME = 'set -a; . "$0"; set +a; exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexServers:
    setting: str
    """A line of its configuration, or a value of `-c`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path -> content."""


def codex_servers(servers: Iterable[McpServer], temp: str | None) -> CodexServers:
    """`temp`: the folder for files with variables; None: the setting itself is in a file."""
    tables, files = {}, {}
    for number, server in enumerate(servers):
        path = f"{temp}/codex-server-{number}.env"
        hidden = temp is not None and bool(server.env) and server.url is None
        if hidden:
            files[path] = _as_shell(server.env)
        tables[server.name] = _server(server, path if hidden else None)
    return CodexServers(setting=f"mcp_servers={table(tables)}", files=files)


def _server(server: McpServer, variables: str | None) -> str:
    # Required: otherwise it silently continues without a server that did not start.
    fields = {"required": "true", "startup_timeout_sec": str(SERVER_START_S)}
    if server.url is not None:
        return table({"url": quoted(server.url), **fields})
    command, env = server.command, server.env
    if variables is not None:
        command = ("/bin/sh", "-c", _BECOME, variables, *command)
        # Names that a shell does not accept stay in Codex's own setting.
        env = {name: value for name, value in env.items() if not _NAME.fullmatch(name)}
    program, *arguments = command
    listed = ",".join(quoted(argument) for argument in arguments)
    env_table = table({name: quoted(value) for name, value in env.items()})
    return table({"command": quoted(program), "args": f"[{listed}]", "env": env_table, **fields})


def _as_shell(env: Mapping[str, str]) -> str:
    named = ((name, value) for name, value in env.items() if _NAME.fullmatch(name))
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in named)


def table(fields: Mapping[str, str]) -> str:
    """Return a TOML inline table."""
    return "{" + ",".join(f"{quoted(name)}={value}" for name, value in fields.items()) + "}"


def quoted(text: str) -> str:
    """Return a TOML string: JSON's form, except for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# Reading `codex exec --json`: one event per line.

_SERVERS_FAILED = "required MCP servers failed to initialize: "
_WRAPPING = re.compile(
    r"^Error: thread/start: thread/start failed: (?:error creating thread: )?(?:Fatal error: )?"
    r"(?:Failed to initialize session: )?"
)
"""The text before the cause of a session that could not start."""
_NOT_FINAL = "Reconnecting..."
_NO_TOOLS = frozenset({"agent_message", "reasoning", "error", "todo_list", "plan", ""})
"""Items that are not tool calls."""
_NO_ARGUMENTS = frozenset(
    {"id", "type", "status", "aggregated_output", "exit_code", "result", "error"}
)
"""The parts of a tool call's item that are not its arguments."""
_MOST_NOTES = 5
_USAGE = {
    "input_tokens": ("input_tokens",),
    "cached_tokens": ("cached_input_tokens",),
    "output_tokens": ("output_tokens",),
    "reasoning_tokens": ("reasoning_output_tokens",),
}

Event = Mapping[str, Any]


def read_stream(transcript: Transcript, servers: Sequence[McpServer]) -> TranscriptReading:
    events = _CodexEvents(names={as_written(server.name): server.name for server in servers})
    for event in objects_in(transcript.stdout):
        events.take(event)
    common: dict[str, Any] = {
        "activity": events.activity(servers, _state(events, transcript)),
        "steps": events.log.steps(),
        "usage": events.usage(),
        "has_worked": events.has_worked(),
        "refusals": sum(end_in(one) is AgentEnd.RATE_LIMITED for one in events.reconnects),
        "notes": events.notes(),
    }
    if events.completed is not None and events.failed is None:
        return TranscriptReading(answer=events.answer(), **common)
    words = events.failed or (events.errors[-1] if events.errors else "")
    words = words or last_line(transcript.stderr)
    if events.session is None and _SERVERS_FAILED in words:
        # Before any request. A server's connection error is not about the provider.
        why = words.partition(_SERVERS_FAILED)[2]
        return TranscriptReading(end=AgentEnd.NO_SERVER, message=in_words(why), **common)
    end = end_in(words) if words else None
    if words.startswith("{"):
        # The body of a 400, as sent by the provider.
        end, words = end or AgentEnd.BAD_REQUEST, _message_in(words)
    if end is None:
        silent = events.failed is None and transcript.exit_code == 0
        end = AgentEnd.NO_RESULT if silent else AgentEnd.BROKEN
    words = _WRAPPING.sub("", words)
    wait = wait_in(words) if end is AgentEnd.RATE_LIMITED else None
    return TranscriptReading(end=end, message=in_words(words), retry_after=wait, **common)


def _state(events: _CodexEvents, transcript: Transcript) -> McpState:
    """Return the state of every server: it does not start without one of them."""
    if events.session is not None:
        return McpState.CONNECTED
    return McpState.FAILED if _SERVERS_FAILED in transcript.stderr else McpState.UNKNOWN


def _message_in(body: str) -> str:
    parsed = objects_in(body)
    return (text_in(parsed[0], "error", "message") or body) if parsed else body


@dataclass(slots=True, kw_only=True)
class _CodexEvents:
    """The events by their kind."""

    names: Mapping[str, str]
    """Of the MCP servers: as written by Codex -> as in the suite."""
    session: str | None = None
    items: dict[str, Event] = field(default_factory=dict)
    """By id, latest version: an item is reported when it starts, and again when it is done."""
    log: StepLog = field(default_factory=StepLog)
    completed: Event | None = None
    failed: str | None = None
    """Why the last turn failed; None: it did not fail."""
    errors: list[str] = field(default_factory=list)
    reconnects: list[str] = field(default_factory=list)
    """Errors after which it retried."""

    def take(self, event: Event) -> None:
        match value_in(event, "type"):
            case "thread.started":
                self.session = text_in(event, "thread_id") or None
            case "item.started" | "item.updated" | "item.completed" as kind:
                item = mapping_in(event, "item")
                name = text_in(item, "id") or f"without id {len(self.items)}"
                self._log(name, item, is_done=kind == "item.completed")
                self.items[name] = item
            case "turn.completed":
                self.completed, self.failed = event, None
            case "turn.failed":
                self.failed = text_in(event, "error", "message") or "its turn failed"
            case "error":
                message = text_in(event, "message")
                is_final = not message.startswith(_NOT_FINAL)
                (self.errors if is_final else self.reconnects).append(message)

    def _log(self, name: str, item: Event, *, is_done: bool) -> None:
        kind = text_in(item, "type")
        if kind not in _NO_TOOLS:
            if name not in self.items:
                self._log_call(name, kind, item)
            if is_done:
                self.log.result(name, _result(item), failed=_failed(item))
        elif is_done and kind == "agent_message":
            self.log.text(text_in(item, "text"))
        elif is_done and kind == "reasoning":
            self.log.thought(text_in(item, "text"))

    def _log_call(self, name: str, kind: str, item: Event) -> None:
        if kind == "mcp_tool_call":
            server = text_in(item, "server")
            known = self.names.get(as_written(server), server) or None
            self.log.call(name, text_in(item, "tool"), value_in(item, "arguments"), server=known)
        else:
            arguments = {key: value for key, value in item.items() if key not in _NO_ARGUMENTS}
            self.log.call(name, kind, arguments)

    def answer(self) -> str:
        messages = [
            item for item in self.items.values() if value_in(item, "type") == "agent_message"
        ]
        return text_in(messages[-1], "text") if messages else ""

    def has_worked(self) -> bool:
        """An error is an item too, but not work."""
        return any(text_in(item, "type") != "error" for item in self.items.values())

    def usage(self) -> dict[str, float]:
        amounts = amounts_in(mapping_in(self.completed or {}, "usage"), _USAGE) or {}
        always = ("input_tokens", "output_tokens")
        return {name: amount for name, amount in amounts.items() if amount or name in always}

    def activity(self, servers: Sequence[McpServer], state: McpState) -> Activity:
        return Activity(
            tools=self.log.tools(),
            mcp={server.name: state for server in servers},
            # Without a start, missing calls mean nothing.
            tells_tools=self.session is not None or bool(self.items),
            session=self.session,
        )

    def notes(self) -> tuple[str, ...]:
        """Return warnings after which it continued."""
        errors = [item for item in self.items.values() if value_in(item, "type") == "error"]
        words = dict.fromkeys(in_words(text_in(item, "message")) for item in errors)
        return tuple(word for word in words if word)[:_MOST_NOTES]


def _result(item: Event) -> Any:
    """Return what a tool returned: a command's output, with its exit code unless it is 0."""
    output = value_in(item, "aggregated_output")
    if isinstance(output, str):
        code = value_in(item, "exit_code")
        return output if code in (0, None) else f"{output}\n[exit code {code}]".strip()
    content = value_in(item, "result", "content")
    return text_in(item, "error", "message") if content is None else content


def _failed(item: Event) -> bool:
    if value_in(item, "status") in ("failed", "declined"):
        return True
    return value_in(item, "error") is not None


KEY_VARIABLE = "CODEX_API_KEY"
"""The variable it reads a key from; it ignores OPENAI_API_KEY (see `catalog.keys_for`)."""
ENDPOINT_KEY_VARIABLE = "PARAVAL_MODEL_KEY"
RETRIES = 1
"""Its own retries of a request, and of a stream, each with these. The scheduler waits for rate
limits, since it knows the other attempts."""
_UNKNOWN_MODEL = "Model metadata for"


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
    takes = frozenset({"system", "retries", "before_first", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g @openai/codex"

    def launch(self, job: AgentJob) -> Launch:
        argv = [*job.program, "exec", "--json", "--skip-git-repo-check"]
        argv += ["-C", job.workspace, "--dangerously-bypass-approvals-and-sandbox"]
        if job.home is None:
            # The user's login is wanted, but their servers would be there in both modes, and
            # command-line settings only add to them.
            argv.append("--ignore-user-config")
            # The user's home gets no session, so that none can be resumed.
            argv.append("--ephemeral")
        # Each of these would access the network, or wait forever without one.
        for feature in ("plugins", "apps", "unbounded_connection_retries"):
            argv += ["--disable", feature]
        for setting in _settings(job):
            argv += ["-c", setting]
        if job.model is not None:
            argv += ["-m", job.model]
        env = {"CODEX_HOME": _home(job.home)} if job.home is not None else {}
        servers = codex_servers(job.mcp, None if job.home is not None else job.temp)
        if job.home is None:
            argv += ["-c", servers.setting]
        if job.endpoint is not None:
            env[ENDPOINT_KEY_VARIABLE] = job.endpoint.api_key
        return Launch(
            # `-`: the prompt is on stdin, where it may have any length and start with a dash.
            argv=(*argv, *job.arguments, *(("resume", job.session) if job.session else ()), "-"),
            env=env,
            stdin=job.prompt,
            files=(
                servers.files
                if job.home is None
                # Its home must exist; this file creates it.
                else {f"{_home(job.home)}/config.toml": f"{servers.setting}\n"}
            ),
            can_resume=job.home is not None,
        )

    def result_files(self, job: AgentJob) -> tuple[str, ...]:  # noqa: ARG002 - none for any job
        return ()

    def read(
        self,
        job: AgentJob,
        transcript: Transcript,
        files: Mapping[str, str],  # noqa: ARG002 - it needs no files
    ) -> TranscriptReading:
        reading = read_stream(transcript, job.mcp)
        if job.endpoint is None:
            return reading
        # It is no news that it does not know a model that we configured.
        kept = tuple(note for note in reading.notes if not note.startswith(_UNKNOWN_MODEL))
        return replace(reading, notes=kept)


def _home(home: str) -> str:
    return f"{home}/.codex"


def _settings(job: AgentJob) -> list[str]:
    settings = [
        "check_for_update_on_startup=false",
        "analytics.enabled=false",
        'otel.exporter="none"',
    ]
    if job.endpoint is not None:
        settings += [
            "model_provider=paraval",
            f"model_providers.paraval={_provider(job, job.endpoint)}",
        ]
    if job.system:
        settings.append(f"developer_instructions={quoted(job.system)}")
    return settings


def _provider(job: AgentJob, endpoint: AgentEndpoint) -> str:
    retries = str(job.own_retries(RETRIES))
    return table(
        {
            "name": quoted("paraval"),
            "base_url": quoted(endpoint.base_url),
            "env_key": quoted(ENDPOINT_KEY_VARIABLE),
            "wire_api": quoted("responses"),
            "request_max_retries": retries,
            "stream_max_retries": retries,
        }
    )
