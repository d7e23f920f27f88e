"""A user's own agent: started by a command of the suite, read as the suite says.

It is told where its model is by the variables that OpenAI's and Anthropic's libraries read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paraval.agents.complaints import wait_told
from paraval.agents.json_lines import as_amount, clean, in_words, last_line, objects_in
from paraval.agents.mcp_config import mcp_config, mcp_config_path
from paraval.agents.program import (
    AgentEnd,
    AgentProgram,
    Endpoint,
    Job,
    Launch,
    Login,
    Reading,
    Transcript,
)
from paraval.agents.tool_names import ToolTally, split_name
from paraval.isolation import Activity, McpServer, McpState
from paraval.records import CustomAgent, Provider, Reads

CUSTOM_FIELDS = ("prompt", "workspace", "model", "mcp_config", "max_turns")
"""What its templates know beside the usual fields."""
SEARCHED_CHARACTERS = 64 << 10
"""Of the end of each stream, for the user's patterns ..."""
LONGEST_SEARCHED_LINE = 2000
"""... which see one line at a time, so that a clumsy one has little to be slow on."""


def custom_fields(job: Job) -> dict[str, str]:
    """The values of CUSTOM_FIELDS; empty text where nothing is said."""
    values = (
        job.prompt,
        job.workspace,
        job.model or "",
        mcp_config_path(job.temp),
        "" if job.max_turns is None else str(job.max_turns),
    )
    return dict(zip(CUSTOM_FIELDS, values, strict=True))


class Custom:
    name = "custom"
    programs: tuple[str, ...] = ()
    version_arguments: tuple[str, ...] = ()
    login = Login(key_variables=())
    speaks = frozenset(Provider)
    takes = frozenset({"system", "max_turns", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = ""

    def __init__(self, known: Mapping[str, AgentProgram]) -> None:
        """`known`: those whose output another may print too."""
        self._known = known

    def launch(self, job: Job) -> Launch:
        assert job.custom is not None
        config = mcp_config_path(job.temp)
        env = {"PARAVAL_SYSTEM": job.system} if job.system else {}
        if job.model is not None:
            env["PARAVAL_MODEL"] = job.model
        if job.endpoint is not None:
            env |= _way_to(job.endpoint)
        return Launch(
            argv=(*job.custom.command, *job.arguments),
            env=env,
            stdin=job.custom.stdin or "",
            files={config: mcp_config(job.mcp)},
        )

    def result_files(self, job: Job) -> tuple[str, ...]:
        like = self._like(job)
        return () if like is None else like.result_files(job)

    def read(self, job: Job, transcript: Transcript, files: Mapping[str, str]) -> Reading:
        assert job.custom is not None
        like = self._like(job)
        if like is not None:
            reading = like.read(job, transcript, files)
        elif job.custom.reads is Reads.TEXT:
            reading = _read_text(transcript, job.mcp)
        else:
            reading = _read_objects(job.custom, transcript, job.mcp)
        return reading if reading.end is None else _by_patterns(reading, job.custom, transcript)

    def _like(self, job: Job) -> AgentProgram | None:
        assert job.custom is not None
        return None if job.custom.like is None else self._known.get(job.custom.like)


def _way_to(endpoint: Endpoint) -> dict[str, str]:
    if endpoint.provider is Provider.ANTHROPIC:
        return _anthropic(endpoint)
    openai = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": endpoint.api_key}
    # A simulated one speaks both.
    simulated = endpoint.provider is Provider.LOOPBACK
    return {**openai, **_anthropic(endpoint)} if simulated else openai


def _anthropic(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": endpoint.api_key,
    }


# ---- reading


def _read_text(transcript: Transcript, servers: tuple[McpServer, ...]) -> Reading:
    activity = Activity(tells_tools=False, mcp={one.name: McpState.UNKNOWN for one in servers})
    if transcript.exit_code != 0:
        return _broken(transcript, activity)
    if not transcript.stdout.strip():
        return _silent(transcript, activity)
    return Reading(answer=clean(transcript.stdout), activity=activity)


def _read_objects(
    custom: CustomAgent, transcript: Transcript, servers: tuple[McpServer, ...]
) -> Reading:
    told = objects_in(transcript.stdout)
    if custom.reads is Reads.JSON:
        told = told[-1:]
    found = {name: _last_at(told, path) for name, path in custom.paths.items()}
    said: dict[str, Any] = {
        "activity": _activity(found, servers, tells_tools="tools" in custom.paths),
        "usage": _usage(found),
        "cost_usd": as_amount(found.get("cost_usd")),
    }
    if found.get("error"):
        words = in_words(_as_text(found["error"]))
        return Reading(end=AgentEnd.BROKEN, message=words, **said)
    if transcript.exit_code != 0:
        return replace(_broken(transcript, said["activity"]), usage=said["usage"])
    if found.get("answer") is None:
        return replace(_silent(transcript, said["activity"]), usage=said["usage"])
    return Reading(answer=_as_text(found["answer"]), **said)


def _broken(transcript: Transcript, activity: Activity) -> Reading:
    words = last_line(transcript.stderr) or last_line(transcript.stdout)
    return Reading(end=AgentEnd.BROKEN, message=words, activity=activity)


def _silent(transcript: Transcript, activity: Activity) -> Reading:
    return Reading(end=AgentEnd.NO_RESULT, message=last_line(transcript.stderr), activity=activity)


def _by_patterns(reading: Reading, custom: CustomAgent, transcript: Transcript) -> Reading:
    """The same end, or the one that the suite's patterns see in what it printed."""
    for pattern, end in (
        (custom.rate_limited, AgentEnd.RATE_LIMITED),
        (custom.refused, AgentEnd.REFUSED_KEY),
    ):
        line = _line_with(pattern, transcript) if pattern is not None else None
        if line is not None:
            wait = wait_told(line) if end is AgentEnd.RATE_LIMITED else None
            return replace(reading, end=end, message=in_words(line), retry_after=wait)
    return reading


def _line_with(pattern: str, transcript: Transcript) -> str | None:
    """The last line that holds the pattern."""
    try:
        compiled = re.compile(pattern)
    except re.error:
        return None
    for stream in (transcript.stderr, transcript.stdout):
        for line in reversed(stream[-SEARCHED_CHARACTERS:].split("\n")):
            if compiled.search(line[:LONGEST_SEARCHED_LINE]):
                return line
    return None


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


def _activity(
    found: Mapping[str, Any], servers: tuple[McpServer, ...], *, tells_tools: bool
) -> Activity:
    turns = as_amount(found.get("turns"))
    tally = _tools(found.get("tools"), servers)
    tools = tally.tools()
    worked = {tool.server for tool in tools if tool.calls > tool.failed}
    return Activity(
        turns=None if turns is None else int(turns),
        tools=tools,
        mcp={
            one.name: McpState.CONNECTED if one.name in worked else McpState.UNKNOWN
            for one in servers
        },
        tells_tools=tells_tools,
    )


def _tools(told: Any, servers: tuple[McpServer, ...]) -> ToolTally:
    """From names, from calls (`{name, server, failed}`), or from counts by name."""
    tally = ToolTally()
    if isinstance(told, Mapping):
        for name, calls in told.items():
            server, tool = split_name(str(name), servers)
            tally.count(tool, server, calls=int(as_amount(calls) or 0))
    for call in told if isinstance(told, list) else ():
        if isinstance(call, str):
            server, tool = split_name(call, servers)
            tally.count(tool, server)
        elif isinstance(call, Mapping) and isinstance(call.get("name"), str):
            server, tool = split_name(call["name"], servers)
            named = call.get("server")
            failed = bool(call.get("failed") or call.get("error") or call.get("is_error"))
            tally.count(tool, named if isinstance(named, str) else server, failed=failed)
    return tally
