"""What agents tell a model beside the prompt: where they work, and which tools they have.

They tell it in the texts of their requests, each in its own words; the words here are those that
Claude Code, Codex, opencode and gemini were seen to use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paraval.loopback.exchange import Question

HERE = "."
"""Where an agent works that does not tell."""
WORKING_FOLDER = re.compile(
    r"(?i:working directory|working in the directory): *(/[^\n<]{0,4096})"
    r"|<cwd>(/[^\n<]{0,4096})</cwd>"
)
DEFERRED_TOOL = re.compile(r"^(mcp__\w{1,200})\r?$", re.MULTILINE)
"""Claude Code names the tools of MCP servers, a line each; what they are is there for a search."""
SOURCE_OF_TOOLS = re.compile(r"^- ([\w-]{1,200})\r?$", re.MULTILINE)
"""Codex names the servers whose tools can be searched for, but not the tools."""


def working_folder(question: Question) -> str:
    """Where the agent works, as it says itself."""
    for text in question.texts:
        found = WORKING_FOLDER.search(text)
        if found is not None:
            return (found.group(1) or found.group(2)).strip()
    return HERE


def offers(question: Question, name: str) -> bool:
    """Whether the request offers a tool of this name, at once or for a search."""
    return (
        name in _names(question)
        or namespace_of(question, name) is not None
        or any(name in DEFERRED_TOOL.findall(text) for text in question.texts)
    )


def namespace_of(question: Question, name: str) -> str | None:
    """The `mcp__server` of `mcp__server__tool`, where the request has its tools in namespaces."""
    if name in _names(question):
        return None
    return next((one for one in _namespaces(question) if name.startswith(f"{one}__")), None)


def is_freeform(question: Question, name: str) -> bool:
    """Whether the tool takes a text instead of arguments."""
    return any(tool.get("type") == "custom" and tool.get("name") == name for tool in question.tools)


def _names(question: Question) -> set[str]:
    return {name for tool in question.tools if (name := _name(tool)) is not None}


def _name(tool: Mapping[str, Any]) -> str | None:
    # Of the chat protocol's tools the name is one level deeper.
    inner = tool.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else tool.get("name")
    return name if isinstance(name, str) and tool.get("type") != "namespace" else None


def _namespaces(question: Question) -> Iterator[str]:
    for tool in question.tools:
        name, description = tool.get("name"), tool.get("description")
        if tool.get("type") == "namespace" and isinstance(name, str):
            yield name
        elif tool.get("type") == "tool_search" and isinstance(description, str):
            yield from (f"mcp__{source}" for source in SOURCE_OF_TOOLS.findall(description))
