"""MCP servers as a file in the form that most agents take: `{"mcpServers": {name: {...}}}`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from paraval.isolation import McpServer


def mcp_config(servers: Iterable[McpServer]) -> str:
    return json.dumps({"mcpServers": {server.name: _entry(server) for server in servers}}, indent=1)


def mcp_config_path(temp: str) -> str:
    """Where it is written for an attempt."""
    return f"{temp}/mcp.json"


def _entry(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        old_style = server.url.split("?", maxsplit=1)[0].rstrip("/").endswith("/sse")
        return {"type": "sse" if old_style else "http", "url": server.url}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}
