"""A custom agent: started by a command of the suite, and read as the suite defines.

The suite's patterns for refusals may take any time, so `read` skips them. It gets its model's
endpoint in the variables that OpenAI's and Anthropic's libraries read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paraval.agents.json_output import as_amount, as_text, clean, in_words, last_line, objects_in
from paraval.agents.program import (
    AgentEnd,
    AgentEndpoint,
    AgentJob,
    AgentProgram,
    Launch,
    Login,
    Transcript,
    TranscriptReading,
)
from paraval.agents.provider_errors import wait_in
from paraval.agents.steps import StepLog, text_steps
from paraval.agents.tools import ToolTally, mcp_config, mcp_config_path, split_name, states_by_use
from paraval.processes.quick import run_quickly
from paraval.records import Activity, CustomAgent, McpServer, Provider, Reads, ToolUse

# Reading a custom agent's output: text, an object, or lines of objects.

Servers = tuple[McpServer, ...]


def read_text(transcript: Transcript, servers: Servers) -> TranscriptReading:
    return replace(
        _text_end(transcript),
        activity=Activity(tells_tools=False, mcp=states_by_use(servers, ())),
        steps=text_steps([clean(transcript.stdout)]),
    )


def _text_end(transcript: Transcript) -> TranscriptReading:
    if transcript.exit_code != 0:
        return TranscriptReading(end=AgentEnd.BROKEN, message=_last_words(transcript))
    # Its work may be in files: an empty answer is graded, as a command's is.
    return TranscriptReading(answer=clean(transcript.stdout))


def read_objects(
    custom: CustomAgent, transcript: Transcript, servers: Servers
) -> TranscriptReading:
    objects = objects_in(transcript.stdout)
    if custom.reads is Reads.JSON:
        objects = objects[-1:]
    found = {
        name: _last_at(objects, path) for name, path in custom.paths.items() if name != "tools"
    }
    calls = _Calls(servers)
    for one in objects:
        if "tools" in custom.paths:
            calls.take(_at(one, custom.paths["tools"]))
        text = _at(one, custom.paths["answer"]) if "answer" in custom.paths else None
        if text is not None:
            calls.log.text(as_text(text))
    return replace(
        _ended(found, transcript),
        activity=_activity(found, calls, servers),
        steps=calls.log.steps(),
        usage=_usage(found),
        cost_usd=as_amount(found.get("cost_usd")),
        # A line in the middle may be followed by lines that were never printed.
        is_settled=custom.reads is Reads.JSON and bool(objects),
    )


def _ended(found: Mapping[str, Any], transcript: Transcript) -> TranscriptReading:
    if found.get("error"):
        return TranscriptReading(end=AgentEnd.BROKEN, message=in_words(as_text(found["error"])))
    if transcript.exit_code != 0:
        return TranscriptReading(end=AgentEnd.BROKEN, message=_last_words(transcript))
    if found.get("answer") is None:
        return TranscriptReading(end=AgentEnd.NO_RESULT, message=last_line(transcript.stderr))
    return TranscriptReading(answer=as_text(found["answer"]))


def _last_words(transcript: Transcript) -> str:
    return last_line(transcript.stderr) or last_line(transcript.stdout)


def _last_at(objects: list[dict[str, Any]], path: str) -> Any:
    """Return the value at the path in the last object that has it."""
    found = (_at(one, path) for one in reversed(objects))
    return next((value for value in found if value is not None), None)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdecimal() and len(part) < 9:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _usage(found: Mapping[str, Any]) -> dict[str, float]:
    amounts = {name: as_amount(found.get(name)) for name in ("input_tokens", "output_tokens")}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _activity(found: Mapping[str, Any], calls: _Calls, servers: Servers) -> Activity:
    turns = as_amount(found.get("turns"))
    tools = calls.tools()
    return Activity(
        turns=None if turns is None else int(turns),
        tools=tools,
        mcp=states_by_use(servers, tools),
        tells_tools=calls.were_reported,
    )


class _Calls:
    """Tool calls as reported by an agent: in a list, one by one, or as counts by name.

    Lists and single calls are added up over all lines. Counts by name are already a sum, so the
    last one counts.
    """

    def __init__(self, servers: Servers) -> None:
        self.were_reported = False
        """Something readable was there, even an empty list."""
        self.log = StepLog()
        self._servers = servers
        self._counts: dict[str, int] = {}

    def take(self, reported: Any) -> None:
        self.were_reported = self._take(reported) or self.were_reported

    def tools(self) -> tuple[ToolUse, ...]:
        tally = ToolTally()
        for name, calls in self._counts.items():
            server, tool = split_name(name, self._servers)
            tally.count(tool, server, calls=calls)
        return self.log.count_into(tally).tools()

    def _take(self, reported: Any) -> bool:
        """Add reported calls; whether they could be read."""
        if isinstance(reported, list):
            taken = [self._take_call(one) for one in reported]
            return any(taken) or not reported
        return self._take_call(reported) or self._take_counts(reported)

    def _take_call(self, reported: Any) -> bool:
        call = {"name": reported} if isinstance(reported, str) else reported
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            return False
        if not call["name"]:
            return False
        server, tool = split_name(call["name"], self._servers)
        named = call.get("server")
        failed = bool(call.get("failed") or call.get("error") or call.get("is_error"))
        arguments = call.get("arguments", call.get("input"))
        self.log.call(tool, tool, arguments, server=named if isinstance(named, str) else server)
        reported = (call.get(key) for key in ("result", "output", "error"))
        content = next((one for one in reported if one is not None), None)
        self.log.result(tool, content, failed=failed)
        return True

    def _take_counts(self, reported: Any) -> bool:
        if not isinstance(reported, Mapping):
            return False
        amounts = {str(name): as_amount(calls) for name, calls in reported.items()}
        counts = {name: int(amount) for name, amount in amounts.items() if amount is not None}
        if reported and not counts:
            return False
        self._counts = counts
        return True


# The suite's patterns for refusals, searched in a custom agent's output.

MOST_LINES = 200
"""Lines searched at the end of each stream."""
LONGEST_LINE = 500
"""Characters searched in each line."""
PATIENCE_S = 5.0
TOO_SLOW = (
    f"matching output.rate_limited and output.refused took more than {PATIENCE_S:g} s and was"
    " stopped; a nested repeat such as (a+)+ is the usual cause"
)

_SEARCH = """\
import json, re, sys
patterns, lines = json.load(sys.stdin)
for number, pattern in enumerate(patterns):
    for line in lines:
        if re.search(pattern, line):
            sys.exit(print(json.dumps([number, line])))
"""


def has_patterns(custom: CustomAgent | None) -> bool:
    return custom is not None and not (custom.rate_limited is None and custom.refused is None)


def read_by_patterns(
    reading: TranscriptReading, custom: CustomAgent, transcript: Transcript
) -> TranscriptReading:
    """Return the same reading, or the end that the suite's patterns find in its output."""
    wanted = [
        (pattern, end)
        for pattern, end in (
            (custom.rate_limited, AgentEnd.RATE_LIMITED),
            (custom.refused, AgentEnd.REFUSED_KEY),
        )
        if pattern is not None
    ]
    lines = [*_last_first(transcript.stderr), *_last_first(transcript.stdout)]
    if (reading.answer or "").strip() or not wanted or not lines:
        return reading
    order = json.dumps([[pattern for pattern, _ in wanted], lines]).encode()
    ended = run_quickly(
        (sys.executable, "-I", "-S", "-c", _SEARCH), env={}, stdin=order, timeout=PATIENCE_S
    )
    if ended.timed_out:
        return replace(reading, notes=(*reading.notes, TOO_SLOW))
    if not ended.stdout:
        return reading
    number, line = json.loads(ended.stdout)
    end = wanted[number][1]
    wait = wait_in(line) if end is AgentEnd.RATE_LIMITED else None
    return replace(reading, answer=None, end=end, message=in_words(line), retry_after=wait)


def _last_first(stream: str) -> list[str]:
    lines = stream[-MOST_LINES * LONGEST_LINE :].split("\n")
    return [line[:LONGEST_LINE] for line in reversed(lines[-MOST_LINES:]) if line.strip()]


CUSTOM_FIELDS = ("prompt", "workspace", "model", "mcp_config", "max_turns")
"""Fields of its templates, in addition to the usual ones."""


def custom_fields(job: AgentJob) -> dict[str, str]:
    """Return the values of CUSTOM_FIELDS; empty text if not set."""
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
        """`known`: agents whose output format it may use."""
        self._known = known

    def launch(self, job: AgentJob) -> Launch:
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

    def result_files(self, job: AgentJob) -> tuple[str, ...]:
        like = self._like(job)
        return () if like is None else like.result_files(job)

    def read(
        self, job: AgentJob, transcript: Transcript, files: Mapping[str, str]
    ) -> TranscriptReading:
        assert job.custom is not None
        like = self._like(job)
        if like is not None:
            return like.read(job, transcript, files)
        if job.custom.reads is Reads.TEXT:
            return read_text(transcript, job.mcp)
        return read_objects(job.custom, transcript, job.mcp)

    def _like(self, job: AgentJob) -> AgentProgram | None:
        assert job.custom is not None
        return None if job.custom.like is None else self._known.get(job.custom.like)


def _way_to(endpoint: AgentEndpoint) -> dict[str, str]:
    if endpoint.provider is Provider.ANTHROPIC:
        return _anthropic(endpoint)
    openai = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": endpoint.api_key}
    # A simulated model supports both protocols.
    simulated = endpoint.provider is Provider.LOOPBACK
    return {**openai, **_anthropic(endpoint)} if simulated else openai


def _anthropic(endpoint: AgentEndpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": endpoint.api_key,
    }
