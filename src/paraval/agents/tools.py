"""Tools of agents: which were called and how often, and MCP servers in the common format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from paraval.agents.json_output import clean
from paraval.records import McpServer, McpState, ToolUse

# MCP servers as a file in the most common format: `{"mcpServers": {name: {...}}}`.


def mcp_config(servers: Iterable[McpServer]) -> str:
    return json.dumps({"mcpServers": {server.name: _entry(server) for server in servers}}, indent=1)


def mcp_config_path(temp: str) -> str:
    """Return its path for an attempt."""
    return f"{temp}/mcp.json"


def _entry(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        old_style = server.url.split("?", maxsplit=1)[0].rstrip("/").endswith("/sse")
        return {"type": "sse" if old_style else "http", "url": server.url}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}


MOST_TOOLS = 500
"""Maximum number of different tools; a stream that names more is not from an agent."""
LONGEST_NAME = 200
_REPLACED = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that agents replace with `_` in the names of servers and tools."""


class ToolTally:
    """Calls by tool. A call without a result counts as failed."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], int] = {}
        self._failed: dict[tuple[str, str], int] = {}

    def count(
        self, name: str, server: str | None = None, *, failed: bool = False, calls: int = 1
    ) -> None:
        tool = (shown_name(server or ""), shown_name(name))
        if not calls or (tool not in self._calls and len(self._calls) >= MOST_TOOLS):
            return
        self._calls[tool] = self._calls.get(tool, 0) + calls
        self._failed[tool] = self._failed.get(tool, 0) + (calls if failed else 0)

    def tools(self) -> tuple[ToolUse, ...]:
        """By server and name, the agent's own first."""
        return tuple(
            ToolUse(name=tool[1], server=tool[0] or None, calls=calls, failed=self._failed[tool])
            for tool, calls in sorted(self._calls.items())
        )


def split_name(name: str, servers: Iterable[McpServer]) -> tuple[str | None, str]:
    """Split `mcp__server__tool` into (server, tool); the agent's own tools into (None, tool).

    A configured server keeps its name in the suite, whatever characters were replaced.
    """
    if not name.startswith("mcp__"):
        return None, name
    rest = name.removeprefix("mcp__")
    named = sorted(servers, key=lambda server: -len(server.name))
    for server in named:
        written = f"{as_written(server.name)}__"
        if rest.startswith(written):
            return server.name, rest.removeprefix(written)
    server_name, _, tool = rest.partition("__")
    return (server_name, tool) if server_name and tool else (None, name)


def as_written(name: str) -> str:
    """Return a server's name as it appears in the names of its tools."""
    return _REPLACED.sub("_", name)


def shown_name(name: str) -> str:
    return clean(name)[:LONGEST_NAME]


class ServerPrefixes:
    """Splits the names of agents that call MCP tools `server_tool`, possibly with a prefix."""

    def __init__(self, servers: Iterable[McpServer], *, before: str = "") -> None:
        # Longest first: `repo_search_find` belongs to `repo_search`, even if there is `repo` too.
        names = sorted((server.name for server in servers), key=len, reverse=True)
        self._starts = {f"{before}{as_written(name)}_": name for name in names}

    def split(self, called: str) -> tuple[str | None, str]:
        """As `split_name`."""
        start = next((one for one in self._starts if called.startswith(one)), "")
        return self._starts.get(start), called.removeprefix(start)


def states_by_use(servers: Iterable[McpServer], tools: Iterable[ToolUse]) -> Mapping[str, McpState]:
    """For agents that report nothing else about servers: one whose tool answered is connected; the
    state of others is unknown."""
    answered = {tool.server for tool in tools if tool.calls > tool.failed}
    return {
        server.name: McpState.CONNECTED if server.name in answered else McpState.UNKNOWN
        for server in servers
    }
