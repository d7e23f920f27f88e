"""A small agent: asks its model, calls the tools that it asks for, until it has an answer.

agent.py PROMPT MODEL MCP_CONFIG, in the folder that it works in. Where the model is, is told by
OPENAI_BASE_URL and OPENAI_API_KEY. Prints one JSON object: the answer, and how it came to be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

MOST_TURNS = 10


class Server:
    """An MCP server that this starts, and speaks to over stdio."""

    def __init__(self, name: str, entry: dict[str, Any]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            env={**os.environ, **entry["env"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        client = {"name": "agent", "version": "1"}
        self._ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = self._ask("tools/list")["tools"]

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        content = self._ask("tools/call", name=tool, arguments=arguments)["content"]
        return "\n".join(part["text"] for part in content)

    def _ask(self, method: str, **given: Any) -> dict[str, Any]:
        self._send({"jsonrpc": "2.0", "id": 1, "method": method, "params": given})
        result: dict[str, Any] = json.loads(self._process.stdout.readline())["result"]
        return result

    def _send(self, message: dict[str, Any]) -> None:
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def function(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    about = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": about}


def ask(model: str, messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps({"model": model, "messages": messages, "tools": tools}).encode(),
        {
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as answer:
        message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
    return message


def main(prompt: str, model: str, mcp_config: str) -> None:
    handed = json.loads(Path(mcp_config).read_text())["mcpServers"]
    servers = [Server(name, entry) for name, entry in handed.items()]
    tools = [function("list_files", "Lists all files.", {"type": "object", "properties": {}})]
    calls = {"list_files": lambda _: "\n".join(map(str, sorted(Path().rglob("*.*"))))}
    for server in servers:
        for tool in server.tools:
            name = f"mcp__{server.name}__{tool['name']}"
            tools.append(function(name, tool["description"], tool["inputSchema"]))
            calls[name] = lambda given, at=server, tool=tool["name"]: at.call(tool, given)
    messages: list[Any] = [{"role": "user", "content": prompt}]
    called = []
    for turn in range(1, MOST_TURNS + 1):
        messages.append(message := ask(model, messages, tools))
        if not message.get("tool_calls"):
            print(json.dumps({"answer": message["content"], "turns": turn, "tools": called}))
            return
        for call in message["tool_calls"]:
            name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
            called.append(name)
            result = {"role": "tool", "tool_call_id": call["id"], "content": calls[name](given)}
            messages.append(result)
    sys.exit(f"no answer after {MOST_TURNS} turns")


if __name__ == "__main__":
    main(*sys.argv[1:])
