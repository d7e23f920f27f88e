"""What `codex exec --json` prints, as a reading: an event a line.

The turn's end decides: `turn.completed`, or `turn.failed` with its reason. It tells neither its
turns nor a cost, and no MCP server by itself: those are required to start, so that a run that went
on had them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paraval.agents.complaints import end_told, wait_told
from paraval.agents.json_lines import (
    amounts_in,
    in_words,
    last_line,
    mapping_in,
    objects_in,
    text_in,
    value_in,
)
from paraval.agents.program import AgentEnd, Reading, Transcript
from paraval.agents.tool_names import ToolTally, as_written
from paraval.isolation import Activity, McpServer, McpState

_SERVERS_FAILED = "required MCP servers failed to initialize: "
_WRAPPING = re.compile(
    r"^Error: thread/start: thread/start failed: (?:error creating thread: )?(?:Fatal error: )?"
    r"(?:Failed to initialize session: )?"
)
"""What stands before the cause of a session that could not begin."""
_NOT_FINAL = "Reconnecting..."
_NO_TOOLS = frozenset({"agent_message", "reasoning", "error", "todo_list", "plan", ""})
"""Items that are no call of a tool."""
_MOST_NOTES = 5
_USAGE = {
    "input_tokens": ("input_tokens",),
    "cached_tokens": ("cached_input_tokens",),
    "output_tokens": ("output_tokens",),
    "reasoning_tokens": ("reasoning_output_tokens",),
}

Event = Mapping[str, Any]


def read_stream(transcript: Transcript, servers: Sequence[McpServer]) -> Reading:
    told = _Told.of(objects_in(transcript.stdout))
    said: dict[str, Any] = {
        "activity": told.activity(servers, _state(told, transcript)),
        "usage": told.usage(),
        "has_worked": told.has_worked(),
        "refusals": sum(end_told(one) is AgentEnd.RATE_LIMITED for one in told.reconnects),
        "notes": told.notes(),
    }
    if told.completed is not None and told.failed is None:
        return Reading(answer=told.answer(), **said)
    words = told.failed or (told.errors[-1] if told.errors else "")
    words = words or last_line(transcript.stderr)
    if told.session is None and _SERVERS_FAILED in words:
        # Before any request. What a server says of its connection is not about the provider.
        why = words.partition(_SERVERS_FAILED)[2]
        return Reading(end=AgentEnd.NO_SERVER, message=in_words(why), **said)
    end = end_told(words) if words else None
    if words.startswith("{"):
        # The body of a 400, as the provider sent it.
        end, words = end or AgentEnd.BAD_REQUEST, _message_in(words)
    if end is None:
        silent = told.failed is None and transcript.exit_code == 0
        end = AgentEnd.NO_RESULT if silent else AgentEnd.BROKEN
    words = _WRAPPING.sub("", words)
    wait = wait_told(words) if end is AgentEnd.RATE_LIMITED else None
    return Reading(end=end, message=in_words(words), retry_after=wait, **said)


def _state(told: _Told, transcript: Transcript) -> McpState:
    """Of every server that it was handed: without one of them it does not begin."""
    if told.session is not None:
        return McpState.CONNECTED
    return McpState.FAILED if _SERVERS_FAILED in transcript.stderr else McpState.UNKNOWN


def _message_in(body: str) -> str:
    told = objects_in(body)
    return (text_in(told[0], "error", "message") or body) if told else body


@dataclass(slots=True, kw_only=True)
class _Told:
    """The events by their kind."""

    session: str | None = None
    items: dict[str, Event] = field(default_factory=dict)
    """By id, as last told: an item is told when it starts, and again when it is done."""
    done: set[str] = field(default_factory=set)
    completed: Event | None = None
    failed: str | None = None
    """Why the last turn failed; None: it did not."""
    errors: list[str] = field(default_factory=list)
    reconnects: list[str] = field(default_factory=list)
    """Errors after which it asked again."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> _Told:
        told = cls()
        for event in events:
            told.take(event)
        return told

    def take(self, event: Event) -> None:
        match value_in(event, "type"):
            case "thread.started":
                self.session = text_in(event, "thread_id") or None
            case "item.started" | "item.updated" | "item.completed" as kind:
                item = mapping_in(event, "item")
                name = text_in(item, "id") or f"without id {len(self.items)}"
                self.items[name] = item
                if kind == "item.completed":
                    self.done.add(name)
            case "turn.completed":
                self.completed, self.failed = event, None
            case "turn.failed":
                self.failed = text_in(event, "error", "message") or "its turn failed"
            case "error":
                message = text_in(event, "message")
                is_final = not message.startswith(_NOT_FINAL)
                (self.errors if is_final else self.reconnects).append(message)

    def answer(self) -> str:
        said = [item for item in self.items.values() if value_in(item, "type") == "agent_message"]
        return text_in(said[-1], "text") if said else ""

    def has_worked(self) -> bool:
        """An error is an item too, and no work."""
        return any(text_in(item, "type") != "error" for item in self.items.values())

    def usage(self) -> dict[str, float]:
        amounts = amounts_in(mapping_in(self.completed or {}, "usage"), _USAGE) or {}
        always = ("input_tokens", "output_tokens")
        return {name: amount for name, amount in amounts.items() if amount or name in always}

    def activity(self, servers: Sequence[McpServer], state: McpState) -> Activity:
        tally = ToolTally()
        names = {as_written(server.name): server.name for server in servers}
        for name, item in self.items.items():
            kind = text_in(item, "type")
            if kind in _NO_TOOLS:
                continue
            failed = name not in self.done or _failed(item)
            if kind == "mcp_tool_call":
                server = text_in(item, "server")
                known = names.get(as_written(server), server)
                tally.count(text_in(item, "tool"), known or None, failed=failed)
            else:
                tally.count(kind, failed=failed)
        return Activity(
            tools=tally.tools(),
            mcp={server.name: state for server in servers},
            # One that did not come to begin has not kept from calling anything.
            tells_tools=self.session is not None or bool(self.items),
            session=self.session,
        )

    def notes(self) -> tuple[str, ...]:
        """What it complained about and went on after."""
        said = [item for item in self.items.values() if value_in(item, "type") == "error"]
        words = dict.fromkeys(in_words(text_in(item, "message")) for item in said)
        return tuple(word for word in words if word)[:_MOST_NOTES]


def _failed(item: Event) -> bool:
    if value_in(item, "status") in ("failed", "declined"):
        return True
    return value_in(item, "error") is not None
