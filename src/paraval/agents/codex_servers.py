"""MCP servers in the form that Codex takes, with what they are told kept off its command line.

Everyone on the machine may read a command line, and a server's variables are often keys. In a home
of its own Codex reads its servers from a file. In the user's own home there is the command line
alone: there, a shell reads a server's variables from a file that only the user may read, and then
becomes the server.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paraval.isolation import McpServer

SERVER_START_S = 60
"""What an MCP server may take to start; its own 10 s are short where many start at once."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BECOME = 'set -a; . "$0"; set +a; exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexServers:
    setting: str
    """A line of its configuration, or a value of `-c`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path -> what belongs there."""


def codex_servers(servers: Iterable[McpServer], temp: str | None) -> CodexServers:
    """`temp`: the folder for files that hold variables; None: the setting itself is in a file."""
    told, files = {}, {}
    for number, server in enumerate(servers):
        path = f"{temp}/codex-server-{number}.env"
        hidden = temp is not None and bool(server.env) and server.url is None
        if hidden:
            files[path] = _as_shell(server.env)
        told[server.name] = _server(server, path if hidden else None)
    return CodexServers(setting=f"mcp_servers={table(told)}", files=files)


def _server(server: McpServer, variables: str | None) -> str:
    # Required: else it goes on in silence without a server that did not start.
    fields = {"required": "true", "startup_timeout_sec": str(SERVER_START_S)}
    if server.url is not None:
        return table({"url": quoted(server.url), **fields})
    command, env = server.command, server.env
    if variables is not None:
        command = ("/bin/sh", "-c", _BECOME, variables, *command)
        # What a shell takes for no name is handed over as it can be.
        env = {name: value for name, value in env.items() if not _NAME.fullmatch(name)}
    program, *arguments = command
    listed = ",".join(quoted(argument) for argument in arguments)
    told = table({name: quoted(value) for name, value in env.items()})
    return table({"command": quoted(program), "args": f"[{listed}]", "env": told, **fields})


def _as_shell(env: Mapping[str, str]) -> str:
    named = ((name, value) for name, value in env.items() if _NAME.fullmatch(name))
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in named)


def table(fields: Mapping[str, str]) -> str:
    """An inline table of TOML."""
    return "{" + ",".join(f"{quoted(name)}={value}" for name, value in fields.items()) + "}"


def quoted(text: str) -> str:
    """A string of TOML: JSON's form, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
