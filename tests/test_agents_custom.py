"""A user's own agent: what its command is told, and how what it prints is read."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.agents import custom as custom_patterns
from paraval.agents.catalog import AGENTS
from paraval.agents.custom import CUSTOM_FIELDS, custom_fields
from paraval.agents.program import AgentEnd, AgentEndpoint, AgentJob, Transcript, TranscriptReading
from paraval.codec import to_data
from paraval.records import CustomAgent, McpServer, McpState, Provider, Reads, ToolUse
from tests.agent_streams import hostile_streams

CUSTOM = AGENTS["custom"]
SERVER = McpServer(name="search", command=("search", "mcp"))
PATHS = {
    name: name
    for name in ("answer", "turns", "cost_usd", "input_tokens", "output_tokens", "tools", "error")
}


def job_with(custom: CustomAgent, **changes: Any) -> AgentJob:
    known: dict[str, Any] = {
        "prompt": "do it",
        "workspace": "/w",
        "home": "/h",
        "temp": "/t",
        "program": (),
        "custom": custom,
        "mcp": (SERVER,),
    }
    return AgentJob(**{**known, **changes})


def agent(reads: Reads = Reads.TEXT, **fields: Any) -> CustomAgent:
    return CustomAgent(command=("run", "it"), reads=reads, **fields)


def read(
    custom: CustomAgent, stdout: str, *, exit_code: int | None = 0, stderr: str = ""
) -> TranscriptReading:
    transcript = Transcript(stdout=stdout, stderr=stderr, exit_code=exit_code)
    return CUSTOM.read(job_with(custom), transcript, {})


def by_patterns(
    custom: CustomAgent, stdout: str, *, exit_code: int = 0, stderr: str = ""
) -> TranscriptReading:
    transcript = Transcript(stdout=stdout, stderr=stderr, exit_code=exit_code)
    reading = read(custom, stdout, exit_code=exit_code, stderr=stderr)
    return custom_patterns.read_by_patterns(reading, custom, transcript)


def test_its_templates_know_the_job() -> None:
    fields = custom_fields(job_with(agent(), model="m", max_turns=4))
    assert tuple(fields) == CUSTOM_FIELDS
    assert fields == {
        "prompt": "do it",
        "workspace": "/w",
        "model": "m",
        "mcp_config": "/t/mcp.json",
        "max_turns": "4",
    }


def test_its_servers_are_in_a_file_also_where_there_are_none() -> None:
    launch = CUSTOM.launch(job_with(agent(), mcp=(), arguments=("-x",)))
    assert launch.argv == ("run", "it", "-x")
    assert json.loads(launch.files["/t/mcp.json"]) == {"mcpServers": {}}


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        (Provider.OPENAI, {"OPENAI_BASE_URL", "OPENAI_API_KEY"}),
        (Provider.ANTHROPIC, {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"}),
        (
            Provider.LOOPBACK,
            {"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"},
        ),
    ],
)
def test_it_is_told_where_its_model_is(provider: Provider, names: set[str]) -> None:
    endpoint = AgentEndpoint(provider=provider, base_url="http://h/v1", model="m", api_key="k")
    env = CUSTOM.launch(job_with(agent(), endpoint=endpoint, model="m")).env
    assert set(env) == names | {"PARAVAL_MODEL"}


def test_text_is_the_answer_as_it_is() -> None:
    reading = read(agent(), "hello\n")
    assert reading.answer == "hello\n"
    assert not reading.activity.tells_tools
    assert reading.activity.mcp == {"search": McpState.UNKNOWN}


def test_silence_is_an_empty_answer_unless_a_pattern_or_the_exit_code_says_why() -> None:
    silent = read(agent(), "")
    assert (silent.answer, silent.end, silent.steps) == ("", None, ())
    limited = by_patterns(agent(rate_limited="429"), "", stderr="HTTP 429, try later\n")
    assert (limited.answer, limited.end) == (None, AgentEnd.RATE_LIMITED)
    broken = read(agent(), "half", exit_code=2, stderr="warned\nboom\n")
    assert (broken.end, broken.message) == (AgentEnd.BROKEN, "boom")


def test_a_json_object_is_read_by_its_paths() -> None:
    paths = {
        "answer": "result.text",
        "turns": "steps",
        "cost_usd": "cost",
        "input_tokens": "usage.0",
        "tools": "calls",
    }
    calls = ["Bash", {"name": "find", "server": "search"}, "mcp__search__find", {"name": 1}]
    told = {"result": {"text": "yes"}, "steps": 3, "cost": 0.5, "usage": [7], "calls": calls}
    reading = read(agent(Reads.JSON, paths=paths), f"log line\n{json.dumps(told)}\n")
    assert reading.answer == "yes"
    assert reading.activity.turns == 3
    assert reading.cost_usd == 0.5
    assert reading.usage == {"input_tokens": 7}
    assert reading.activity.calls_of("search") == 2
    assert reading.activity.mcp == {"search": McpState.CONNECTED}


def test_of_lines_the_last_that_has_it_counts() -> None:
    lines = '{"answer": "a", "turns": 1}\n{"turns": 2}\nnoise\n'
    reading = read(agent(Reads.JSONL, paths=PATHS), lines)
    assert (reading.answer, reading.activity.turns) == ("a", 2)


def test_tools_may_be_counts_by_name() -> None:
    told = {"answer": "a", "tools": {"mcp__search__find": 4, "Bash": 10**12, "no": "x"}}
    reading = read(agent(Reads.JSON, paths=PATHS), json.dumps(told))
    assert reading.activity.calls_of("search") == 4


def test_calls_that_are_told_line_by_line_are_added_up() -> None:
    lines = [
        {"tools": "Bash"},
        {"tools": {"name": "find", "server": "search"}},
        {"tools": {"name": "find", "server": "search", "error": "no"}},
        {"tools": ["mcp__search__find", {"name": "Bash"}]},
        {"tools": {"Read": 1}},
        {"tools": {"Read": 3}},
        {"answer": "a"},
    ]
    activity = read(agent(Reads.JSONL, paths=PATHS), "\n".join(map(json.dumps, lines))).activity
    assert activity.tools == (
        ToolUse(name="Bash", calls=2),
        ToolUse(name="Read", calls=3),
        ToolUse(name="find", server="search", calls=3, failed=1),
    )
    assert activity.tells_tools


def test_a_single_call_may_stand_for_a_list() -> None:
    told = {"answer": "a", "tools": {"name": "find", "server": "search"}}
    assert read(agent(Reads.JSON, paths=PATHS), json.dumps(told)).activity.calls_of("search") == 1


@pytest.mark.parametrize("reads", [Reads.JSON, Reads.JSONL])
@pytest.mark.parametrize(
    ("told", "tells"),
    [
        ({"answer": "a", "tools": []}, True),
        ({"answer": "a", "tools": {}}, True),
        ({"answer": "a"}, False),
        ({"answer": "a", "tools": None}, False),
        ({"answer": "a", "tools": 3}, False),
        ({"answer": "a", "tools": [1, {"nom": "x"}]}, False),
        ({"answer": "a", "tools": {"Bash": "many"}}, False),
    ],
)
def test_what_cannot_be_read_is_unknown_and_not_never(
    reads: Reads, told: dict[str, Any], tells: bool
) -> None:
    reading = read(agent(reads, paths=PATHS), json.dumps(told))
    assert reading.activity.tells_tools is tells
    assert reading.activity.tools == ()


def test_its_cost_is_told_also_where_it_failed() -> None:
    reading = read(agent(Reads.JSON, paths=PATHS), '{"cost_usd": 0.5}', exit_code=2)
    assert (reading.end, reading.cost_usd, reading.is_settled) == (AgentEnd.BROKEN, 0.5, True)


def test_an_error_that_it_tells_is_no_answer() -> None:
    reading = read(agent(Reads.JSON, paths=PATHS), '{"answer": "x", "error": {"m": 1}}')
    assert (reading.end, reading.message) == (AgentEnd.BROKEN, '{"m": 1}')


def test_its_refusals_are_told_by_the_suites_patterns_where_it_did_not_end_well() -> None:
    custom = agent(rate_limited="slow down", refused="who are you")
    limited = by_patterns(custom, "", exit_code=1, stderr="slow down, retry after 7\nbye\n")
    assert (limited.end, limited.retry_after) == (AgentEnd.RATE_LIMITED, 7.0)
    assert by_patterns(custom, "who are you?", exit_code=1).end is AgentEnd.REFUSED_KEY
    assert by_patterns(custom, "nothing of it", exit_code=1).end is AgentEnd.BROKEN
    assert by_patterns(custom, "he said: slow down").answer == "he said: slow down"


def test_a_pattern_that_would_take_for_ever_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """And holds up nobody else meanwhile: this process goes on."""
    monkeypatch.setattr(custom_patterns, "PATIENCE_S", 1.0)
    began, busy = time.monotonic(), time.process_time()
    reading = by_patterns(agent(rate_limited="(a+)+$"), "a" * 400 + "b", exit_code=1)
    assert time.monotonic() - began < 20
    assert time.process_time() - busy < 0.5
    assert reading.end is AgentEnd.BROKEN
    assert any("(a+)+" in note for note in reading.notes)


def test_it_may_print_what_a_known_agent_does() -> None:
    custom = agent(like="claude-code")
    line = '{"type":"result","subtype":"success","is_error":false,"result":"hi"}'
    assert read(custom, line).answer == "hi"
    assert read(custom, "hi").end is AgentEnd.NO_RESULT


@given(
    hostile_streams(types=("a",), words=("x",), keys=(*PATHS, "name", "arguments", "result")),
    st.sampled_from([Reads.TEXT, Reads.JSON, Reads.JSONL]),
    st.sampled_from([0, 1, None]),
)
def test_whatever_it_prints_there_is_one_reading(
    stdout: str, reads: Reads, exit_code: int | None
) -> None:
    paths = {**PATHS, "answer": "answer.0.text"} if exit_code is None else PATHS
    reading = read(agent(reads, paths=paths), stdout, exit_code=exit_code)
    assert (reading.answer is None) != (reading.end is None)
    steps = [to_data(step) for step in reading.steps]
    json.dumps([reading.answer, reading.usage, steps], allow_nan=False).encode()
