"""What a user's own agent printed, read as the suite says: text, an object, or lines of objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paraval.agents.json_lines import as_amount, clean, in_words, last_line, objects_in
from paraval.agents.program import AgentEnd, Reading, Transcript
from paraval.agents.tool_names import ToolTally, split_name
from paraval.isolation import Activity, McpServer, McpState, ToolUse
from paraval.records import CustomAgent, Reads

Servers = tuple[McpServer, ...]


def read_text(transcript: Transcript, servers: Servers) -> Reading:
    activity = Activity(tells_tools=False, mcp={one.name: McpState.UNKNOWN for one in servers})
    if transcript.exit_code != 0:
        return Reading(end=AgentEnd.BROKEN, message=_last_words(transcript), activity=activity)
    if not transcript.stdout.strip():
        message = "it printed nothing on stdout; the answer is what it prints"
        return Reading(end=AgentEnd.NO_RESULT, message=message, activity=activity)
    return Reading(answer=clean(transcript.stdout), activity=activity)


def read_objects(custom: CustomAgent, transcript: Transcript, servers: Servers) -> Reading:
    told = objects_in(transcript.stdout)
    if custom.reads is Reads.JSON:
        told = told[-1:]
    found = {name: _last_at(told, path) for name, path in custom.paths.items() if name != "tools"}
    tools = _Calls(servers)
    if "tools" in custom.paths:
        tools.take_all(_at(one, custom.paths["tools"].split(".")) for one in told)
    return replace(
        _ended(found, transcript),
        activity=_activity(found, tools, servers),
        usage=_usage(found),
        cost_usd=as_amount(found.get("cost_usd")),
        # A line among others may be followed by what was never told.
        is_settled=custom.reads is Reads.JSON and bool(told),
    )


def _ended(found: Mapping[str, Any], transcript: Transcript) -> Reading:
    if found.get("error"):
        return Reading(end=AgentEnd.BROKEN, message=in_words(_as_text(found["error"])))
    if transcript.exit_code != 0:
        return Reading(end=AgentEnd.BROKEN, message=_last_words(transcript))
    if found.get("answer") is None:
        return Reading(end=AgentEnd.NO_RESULT, message=last_line(transcript.stderr))
    return Reading(answer=_as_text(found["answer"]))


def _last_words(transcript: Transcript) -> str:
    return last_line(transcript.stderr) or last_line(transcript.stdout)


def _last_at(told: list[dict[str, Any]], path: str) -> Any:
    """What the last object that has the path has there."""
    found = (_at(one, path.split(".")) for one in reversed(told))
    return next((value for value in found if value is not None), None)


def _at(value: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdecimal() and len(part) < 9:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _as_text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    if isinstance(value, str):
        return clean(value)
    try:
        return clean(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return "nested too deeply"


def _usage(found: Mapping[str, Any]) -> dict[str, float]:
    amounts = {name: as_amount(found.get(name)) for name in ("input_tokens", "output_tokens")}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _activity(found: Mapping[str, Any], calls: _Calls, servers: Servers) -> Activity:
    turns = as_amount(found.get("turns"))
    tools = calls.tools()
    worked = {tool.server for tool in tools if tool.calls > tool.failed}
    return Activity(
        turns=None if turns is None else int(turns),
        tools=tools,
        mcp={
            one.name: McpState.CONNECTED if one.name in worked else McpState.UNKNOWN
            for one in servers
        },
        tells_tools=calls.are_told,
    )


class _Calls:
    """Calls of tools as an agent tells them: in a list, one by one, or as counts by name.

    Lists and single calls are added up over all lines. Counts by name are a sum already, of which
    the last counts.
    """

    def __init__(self, servers: Servers) -> None:
        self.are_told = False
        """Something was there that could be read, be it an empty list."""
        self._servers = servers
        self._tally = ToolTally()
        self._counts: dict[str, int] = {}

    def take_all(self, told: Iterable[Any]) -> None:
        for one in told:
            self.are_told = self._take(one) or self.are_told

    def tools(self) -> tuple[ToolUse, ...]:
        for name, calls in self._counts.items():
            server, tool = split_name(name, self._servers)
            self._tally.count(tool, server, calls=calls)
        self._counts = {}
        return self._tally.tools()

    def _take(self, told: Any) -> bool:
        """Whether it could be read."""
        if isinstance(told, list):
            taken = [self._take_call(one) for one in told]
            return any(taken) or not told
        return self._take_call(told) or self._take_counts(told)

    def _take_call(self, told: Any) -> bool:
        call = {"name": told} if isinstance(told, str) else told
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            return False
        if not call["name"]:
            return False
        server, tool = split_name(call["name"], self._servers)
        named = call.get("server")
        failed = bool(call.get("failed") or call.get("error") or call.get("is_error"))
        self._tally.count(tool, named if isinstance(named, str) else server, failed=failed)
        return True

    def _take_counts(self, told: Any) -> bool:
        if not isinstance(told, Mapping):
            return False
        amounts = {str(name): as_amount(calls) for name, calls in told.items()}
        counts = {name: int(amount) for name, amount in amounts.items() if amount is not None}
        if told and not counts:
            return False
        self._counts = counts
        return True
