"""Claude Code: started headless in a home of its own, and read by what it really prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.agents.claude_code import ClaudeCode
from paraval.agents.program import AgentEnd, AgentEndpoint, AgentJob, Transcript, TranscriptReading
from paraval.codec import to_data
from paraval.records import Activity, AgentRetries, McpServer, McpState, Provider
from tests.agent_streams import hostile_streams

OUTPUTS = Path(__file__).parent / "agent_outputs"
SERVER = McpServer(name="fakectx", command=("python", "server.py"), env={"A": "b"})
JOB = AgentJob(prompt="do it", workspace="/w", home="/h", temp="/t", program=("claude",))
CLAUDE = ClaudeCode()


def read(
    stdout: str, *, exit_code: int | None = 0, stderr: str = "", **job: Any
) -> TranscriptReading:
    transcript = Transcript(stdout=stdout, stderr=stderr, exit_code=exit_code)
    return CLAUDE.read(job_with(**job), transcript, {})


def read_file(name: str, **options: Any) -> TranscriptReading:
    return read((OUTPUTS / name).read_text(), **options)


def job_with(**changes: Any) -> AgentJob:
    known = {name: getattr(JOB, name) for name in JOB.__slots__}
    return AgentJob(**{**known, **changes})


def result(**fields: Any) -> str:
    return json.dumps({"type": "result", "subtype": "success", "is_error": False, **fields})


# ---- starting


def test_it_is_started_headless_with_the_prompt_on_stdin() -> None:
    launch = CLAUDE.launch(job_with(prompt="--version", max_turns=3, model="haiku", system="Be."))
    assert launch.stdin == "--version"
    assert "--version" not in launch.argv
    line = " ".join(launch.argv)
    assert line.startswith("claude -p --output-format stream-json --verbose")
    assert "--dangerously-skip-permissions --strict-mcp-config" in line
    assert "--model haiku --max-turns 3 --append-system-prompt Be." in line
    assert launch.env["CLAUDE_CONFIG_DIR"] == "/h/.claude"
    assert launch.env["DISABLE_AUTOUPDATER"] == "1"
    assert launch.files == {}


def test_a_session_is_resumed_with_as_few_retries_as_the_suite_says() -> None:
    earlier = TranscriptReading(end=AgentEnd.OVERLOADED, activity=Activity(session="s-1"))
    job = job_with(earlier=earlier, retries=AgentRetries(before_first=1))
    launch = CLAUDE.launch(job)
    assert launch.can_resume
    assert launch.argv[launch.argv.index("--resume") + 1] == "s-1"
    assert launch.env["CLAUDE_CODE_MAX_RETRIES"] == "1"


@pytest.mark.parametrize("includes_earlier", [False, True])
def test_the_cost_of_a_resumed_session_is_counted_once_whatever_its_version_reports(
    includes_earlier: bool,
) -> None:
    """2.1.197 reports what it spent since it was resumed, 2.1.325 all of the session."""
    earlier = TranscriptReading(
        end=AgentEnd.RATE_LIMITED,
        usage={"input_tokens": 9000, "output_tokens": 90},
        cost_usd=0.9,
        has_worked=True,
    )
    message = {"id": "m", "content": [], "usage": {"input_tokens": 1000, "output_tokens": 1}}
    spent = {"inputTokens": 1000, "outputTokens": 10}
    if includes_earlier:
        spent = {"inputTokens": 10_000, "outputTokens": 100}
    lines = (
        json.dumps({"type": "assistant", "message": message}),
        result(
            result="ok", total_cost_usd=1.0 if includes_earlier else 0.1, modelUsage={"m": spent}
        ),
    )
    given = read("\n".join(lines), earlier=earlier)
    assert given.usage == {"input_tokens": 1000, "output_tokens": 10}
    assert given.cost_usd == pytest.approx(0.1)


def test_in_the_users_home_no_config_folder_is_set() -> None:
    assert "CLAUDE_CONFIG_DIR" not in CLAUDE.launch(job_with(home=None)).env


def test_is_sandbox_is_said_as_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert CLAUDE.launch(JOB).env["IS_SANDBOX"] == "1"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "IS_SANDBOX" not in CLAUDE.launch(JOB).env


def test_servers_are_handed_over_in_a_file() -> None:
    remote = McpServer(name="far", url="https://x.example/mcp")
    old = McpServer(name="old", url="https://x.example/sse")
    launch = CLAUDE.launch(job_with(mcp=(SERVER, remote, old)))
    assert "--mcp-config /t/mcp.json" in " ".join(launch.argv)
    told = json.loads(launch.files["/t/mcp.json"])["mcpServers"]
    assert told["fakectx"] == {
        "type": "stdio",
        "command": "python",
        "args": ["server.py"],
        "env": {"A": "b"},
    }
    assert told["far"] == {"type": "http", "url": "https://x.example/mcp"}
    assert told["old"]["type"] == "sse"


def test_an_endpoint_is_told_without_its_version() -> None:
    endpoint = AgentEndpoint(
        provider=Provider.ANTHROPIC, base_url="http://h/v1", model="haiku", api_key="sk-1"
    )
    env = CLAUDE.launch(job_with(endpoint=endpoint, model="haiku")).env
    assert env["ANTHROPIC_BASE_URL"] == "http://h"
    assert env["ANTHROPIC_API_KEY"] == "sk-1"
    assert env["ANTHROPIC_SMALL_FAST_MODEL"] == "haiku"


# ---- reading what it really prints


@pytest.mark.parametrize("name", ["claude-2.1.197.json", "claude-2.1.325.json"])
def test_a_plain_answer(name: str) -> None:
    reading = read_file(name)
    assert (reading.answer, reading.end) == ("hello from fake", None)
    assert reading.usage == {"input_tokens": 1000, "output_tokens": 50}
    assert reading.cost_usd in (0.00625, 0.005)
    assert reading.activity.turns == 1
    assert not reading.activity.tells_tools, "this form has the result alone"


def test_with_mcp_the_calls_and_failures_of_its_tools_are_counted() -> None:
    reading = read_file("claude-2.1.325-mcp.stream.jsonl", mcp=(SERVER,))
    assert reading.answer == "done"
    assert reading.activity.mcp == {"fakectx": McpState.CONNECTED}
    used = {(tool.server, tool.name): (tool.calls, tool.failed) for tool in reading.activity.tools}
    assert used == {("fakectx", "codebase_lookup"): (1, 0), ("fakectx", "fail"): (1, 1)}
    assert reading.activity.calls_of("fakectx") == 1
    assert reading.activity.version == "2.1.325"
    assert reading.requests == 3


def test_without_mcp_a_call_of_its_tool_is_a_failure() -> None:
    reading = read_file("claude-2.1.325-nomcp.stream.jsonl")
    assert reading.answer == "done"
    assert reading.activity.calls_of("fakectx") == 0
    assert reading.activity.mcp == {}


def test_a_server_that_was_handed_over_and_is_not_there_failed() -> None:
    reading = read_file("claude-2.1.325-nomcp.stream.jsonl", mcp=(SERVER,))
    assert reading.activity.mcp == {"fakectx": McpState.FAILED}
    assert reading.notes == ("MCP server 'fakectx' did not connect (missing)",)


def test_a_server_that_was_still_connecting_is_unknown_and_its_calls_failed() -> None:
    reading = read_file("claude-2.1.197-mcp-still-connecting.stream.jsonl", mcp=(SERVER,))
    assert reading.answer == "done"
    assert reading.activity.mcp == {"fakectx": McpState.UNKNOWN}
    assert reading.activity.calls_of("fakectx") == 0


def test_a_429_that_it_could_not_get_past_is_a_rate_limit() -> None:
    reading = read_file("claude-2.1.197-429.json", exit_code=1)
    assert (reading.answer, reading.end) == (None, AgentEnd.RATE_LIMITED)
    assert "429" in reading.message


def test_a_rate_limit_lasts_as_long_as_it_was_waited_for() -> None:
    """It tells no Retry-After, but for how long it waits, which is that where there is one."""
    retry = {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": 7000}
    refused = result(result="API Error: 429", is_error=True, api_error_status=429)
    reading = read(f"{json.dumps(retry)}\n{refused}", exit_code=1)
    assert (reading.end, reading.retry_after) == (AgentEnd.RATE_LIMITED, 7.0)
    passed = read(f"{json.dumps(retry)}\n{result(result='done')}")
    assert (passed.answer, passed.refusals, passed.retry_after) == ("done", 1, None)


def test_tools_that_were_not_permitted_are_a_note() -> None:
    reading = read_file("claude-2.1.197-permission-denied.json")
    assert reading.answer == "all done"
    assert reading.notes == ("2 tool calls were not permitted: Bash, Write",)


def test_cut_off_at_its_turns_it_has_answered() -> None:
    reading = read_file("claude-max-turns.json", exit_code=1)
    assert (reading.stopped_at, reading.end) == ("max_turns", None)
    assert reading.answer == ""


def test_an_interrupt_is_no_answer() -> None:
    reading = read_file("claude-2.1.325-sigint.stream.jsonl")
    assert (reading.answer, reading.end) == (None, AgentEnd.BROKEN)
    assert reading.cost_usd == 0.005
    assert [tool.failed for tool in reading.activity.tools] == [1]


def test_killed_while_it_asked_again_it_was_the_provider() -> None:
    reading = read_file("claude-2.1.325-api-retry-killed.stream.jsonl", exit_code=None)
    assert reading.end is AgentEnd.OVERLOADED


# ---- made up


@pytest.mark.parametrize("odd", [{"a": 1}, ["done"], 7, True])
def test_a_result_that_is_not_text_is_no_answer(odd: object) -> None:
    reading = read(result(result=odd))
    assert (reading.answer, reading.end) == (None, AgentEnd.UNREADABLE)


@pytest.mark.parametrize("odd", [10**400, 1e16, -5, "many"])
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cache_read_input_tokens"])
def test_a_token_count_that_cannot_be_right_makes_the_usage_unknown(name: str, odd: object) -> None:
    usage = {"input_tokens": 5, "output_tokens": 6, name: odd}
    assert read(result(result="x", usage=usage)).usage == {}


def test_exit_code_0_without_a_result_is_no_result() -> None:
    assert read("").end is AgentEnd.NO_RESULT
    assert read("", exit_code=1, stderr="panic: no").end is AgentEnd.BROKEN


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("Not logged in · Please run /login", AgentEnd.NO_LOGIN),
        ("OAuth token has expired · Please run /login", AgentEnd.NO_LOGIN),
        ("Invalid API key · Fix external API key", AgentEnd.REFUSED_KEY),
        ("Credit balance is too low", AgentEnd.NO_CREDIT),
        ("API Error: Request rejected (429) · slow down", AgentEnd.RATE_LIMITED),
        ("You've hit your limit · resets 3pm", AgentEnd.RATE_LIMITED),
        ("API Error: 529 Overloaded", AgentEnd.RATE_LIMITED),
        ("API Error: 500 x. This is a server-side issue", AgentEnd.OVERLOADED),
        ("API Error: Unable to connect to API (ConnectionRefused)", AgentEnd.UNREACHABLE),
        ("API Error: Connection error.", AgentEnd.UNREACHABLE),
        ("There's an issue with the selected model (x). It may not exist", AgentEnd.NO_SUCH_MODEL),
        ("Prompt is too long", AgentEnd.BAD_REQUEST),
        ("something else", AgentEnd.BROKEN),
    ],
)
def test_an_error_is_told_by_its_words(words: str, end: AgentEnd) -> None:
    reading = read(result(is_error=True, result=words), exit_code=1)
    assert (reading.end, reading.message) == (end, words)


def test_a_usage_limit_says_when_to_come_back() -> None:
    words = "You've hit your usage limit, try again in 2 hours 3 minutes."
    assert read(result(is_error=True, result=words)).retry_after == 2 * 3600 + 180


def test_an_error_that_is_an_answers_own_words_is_none() -> None:
    """Only what is said to be an error is one."""
    reading = read(result(result="API Error: 429 is what the function returns"))
    assert reading.end is None


def test_a_refusal_is_an_answer_and_said_to_be_one() -> None:
    reading = read(result(result="I can't.", stop_reason="refusal"))
    assert (reading.answer, reading.refused) == ("I can't.", True)


def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    def said(text: str, parent: str | None) -> str:
        part = {"type": "text", "text": text}
        message = {"id": text, "content": [part]}
        return json.dumps({"type": "assistant", "message": message, "parent_tool_use_id": parent})

    lines = [said("mine", None), said("theirs", "toolu_1")]
    lines.append(result(subtype="error_max_turns", is_error=True))
    reading = read("\n".join(lines))
    assert reading.answer == "mine"
    assert reading.requests == 2


def test_a_cost_that_it_guessed_is_unknown() -> None:
    usage = {"sim": {"inputTokens": 5, "outputTokens": 1, "costBasis": "unknown"}}
    assert read(result(result="x", total_cost_usd=0.5, modelUsage=usage)).cost_usd is None


def test_garbage_between_its_lines_and_a_cut_middle_are_passed_over() -> None:
    lines = ["warning: x", '{"type":"res', "\ufffd\x00", "[... 17 bytes left out ...]", "nul"]
    reading = read("\n".join([*lines, result(result="ok"), "} trailing"]))
    assert reading.answer == "ok"


def test_a_result_after_which_it_failed_is_noted() -> None:
    reading = read(result(result="ok"), exit_code=3)
    assert reading.answer == "ok"
    assert reading.notes == ("it ended with exit code 3 after reporting its result",)


@given(
    hostile_streams(
        types=("system", "assistant", "user", "result"),
        words=("init", "api_retry", "success", "error_max_turns", "tool_use", "tool_result"),
        keys=(
            "subtype", "message", "content", "id", "usage", "modelUsage", "is_error", "result",
            "errors", "mcp_servers", "name", "status", "permission_denials", "tool_name",
            "num_turns", "total_cost_usd", "input_tokens", "inputTokens", "error_status",
            "api_error_status", "tool_use_id", "input", "thinking", "text", "model",
            "session_id", "parent_tool_use_id",
        ),
    ),
    st.text(max_size=200),
    st.sampled_from([0, 1, None]),
)  # fmt: skip
def test_whatever_it_prints_there_is_one_reading(
    stdout: str, stderr: str, exit_code: int | None
) -> None:
    reading = read(stdout, stderr=stderr, exit_code=exit_code, mcp=(SERVER,))
    assert (reading.answer is None) != (reading.end is None)
    steps = [to_data(step) for step in reading.steps]
    json.dumps([reading.answer, reading.usage, reading.notes, steps], allow_nan=False).encode()
