"""Codex: started headless in a home of its own, and read by what it really prints."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.agents.catalog import keys_for
from paraval.agents.codex import Codex
from paraval.agents.program import AgentEnd, AgentEndpoint, AgentJob, Transcript, TranscriptReading
from paraval.codec import to_data
from paraval.processes.quick import run_quickly
from paraval.records import Activity, McpServer, McpState, Provider
from tests.agent_streams import hostile_streams

OUTPUTS = Path(__file__).parent / "agent_outputs"
SERVER = McpServer(name="fakectx", command=("python", "server.py"), env={"A": 'q"\\\x7f'})
ENDPOINT = AgentEndpoint(
    provider=Provider.OPENAI_RESPONSES, base_url="http://h/v1", model="gpt", api_key="sk-1"
)
CODEX = Codex()


def job_with(**changes: Any) -> AgentJob:
    known: dict[str, Any] = {
        "prompt": "do it",
        "workspace": "/w",
        "home": "/h",
        "temp": "/t",
        "program": ("codex",),
    }
    return AgentJob(**{**known, **changes})


def read(
    stdout: str, *, exit_code: int | None = 0, stderr: str = "", **job: Any
) -> TranscriptReading:
    transcript = Transcript(stdout=stdout, stderr=stderr, exit_code=exit_code)
    return CODEX.read(job_with(**job), transcript, {})


def read_file(name: str, **options: Any) -> TranscriptReading:
    return read((OUTPUTS / name).read_text(), **options)


def failed(words: str, **options: Any) -> TranscriptReading:
    event = {"type": "turn.failed", "error": {"message": words}}
    return read(json.dumps(event), exit_code=1, **options)


def settings(job: AgentJob) -> dict[str, Any]:
    """What its `-c` arguments say, as it reads them."""
    argv = CODEX.launch(job).argv
    told = [argv[at + 1] for at, argument in enumerate(argv) if argument == "-c"]
    pairs = [one.split("=", maxsplit=1) for one in told]
    return {name: _value(text) for name, text in pairs}


def configuration(job: AgentJob) -> Any:
    """The servers that the file in its home tells it."""
    return tomllib.loads(CODEX.launch(job).files["/h/.codex/config.toml"])["mcp_servers"]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ---- starting


def test_it_is_started_headless_with_the_prompt_on_stdin() -> None:
    launch = CODEX.launch(job_with(prompt="-x", model="gpt-5.5", arguments=("--color", "never")))
    assert launch.stdin == "-x"
    assert launch.argv[-1] == "-"
    line = " ".join(launch.argv)
    assert line.startswith("codex exec --json --skip-git-repo-check")
    assert "-C /w --dangerously-bypass-approvals-and-sandbox" in line
    assert "--disable unbounded_connection_retries" in line
    assert "-m gpt-5.5" in line
    assert launch.env == {"CODEX_HOME": "/h/.codex"}
    assert list(launch.files) == ["/h/.codex/config.toml"], "its home must be there"


def test_a_session_in_its_own_home_can_be_resumed() -> None:
    earlier = TranscriptReading(end=AgentEnd.OVERLOADED, activity=Activity(session="t-1"))
    launch = CODEX.launch(job_with(earlier=earlier, arguments=("--color", "never")))
    assert launch.can_resume
    assert launch.argv[-5:] == ("--color", "never", "resume", "t-1", "-")
    assert not CODEX.launch(job_with(home=None)).can_resume


def test_in_the_users_home_nothing_is_written_and_only_the_login_is_used() -> None:
    """His own servers would be there with and without those of the suite."""
    launch = CODEX.launch(job_with(home=None))
    assert "--ignore-user-config" in launch.argv
    assert "--ignore-user-config" not in CODEX.launch(job_with()).argv
    assert launch.env == {}
    assert launch.files == {}


def test_servers_are_required() -> None:
    told = configuration(job_with(mcp=(SERVER, McpServer(name="far", url="http://x/mcp"))))
    assert told == {
        "fakectx": {
            "command": "python",
            "args": ["server.py"],
            "env": {"A": 'q"\\\x7f'},
            "required": True,
            "startup_timeout_sec": 60,
        },
        "far": {"url": "http://x/mcp", "required": True, "startup_timeout_sec": 60},
    }
    assert configuration(job_with()) == {}


def test_what_servers_are_told_is_not_on_the_command_line() -> None:
    """Everyone on the machine may read it there."""
    server = McpServer(name="s", command=("serve", "a b"), env={"TOKEN": "sk-2 'x'\n$HOME"})
    assert "sk-2" not in " ".join(CODEX.launch(job_with(mcp=(server,))).argv)
    launch = CODEX.launch(job_with(mcp=(server,), home=None))
    assert "sk-2" not in " ".join(launch.argv)
    assert list(launch.files) == ["/t/codex-server-0.env"]


def test_in_the_users_home_a_server_has_its_variables_all_the_same(tmp_path: Path) -> None:
    """Whatever is in them; the shell that reads them becomes the server."""
    show = "import json, os, sys; print(json.dumps([os.environ['TOKEN'], sys.argv[1:]]))"
    server = McpServer(
        name="s", command=(sys.executable, "-c", show, "a b"), env={"TOKEN": "sk-2 'x'\n$HOME é"}
    )
    job = job_with(mcp=(server,), home=None, temp=str(tmp_path))
    for path, text in CODEX.launch(job).files.items():
        Path(path).write_text(text)
    told = settings(job)["mcp_servers"]["s"]
    ended = run_quickly([told["command"], *told["args"]], env={"TOKEN": "other"})
    assert json.loads(ended.stdout) == ["sk-2 'x'\n$HOME é", ["a b"]]


def test_an_endpoint_is_a_provider_whose_key_is_in_a_variable() -> None:
    job = job_with(endpoint=ENDPOINT, model="gpt")
    told = settings(job)
    provider = told["model_providers.paraval"]
    assert (provider["base_url"], provider["wire_api"]) == ("http://h/v1", "responses")
    assert provider["request_max_retries"] == 1
    launch = CODEX.launch(job)
    assert launch.env[provider["env_key"]] == "sk-1"
    assert "sk-1" not in " ".join(launch.argv)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_is_told_as_it_is(text: str) -> None:
    assert settings(job_with(system=f"x{text}"))["developer_instructions"] == f"x{text}"


def test_the_key_that_most_users_have_is_handed_over_under_its_name() -> None:
    assert keys_for(CODEX, {"OPENAI_API_KEY": "a"}) == {"OPENAI_API_KEY": "a", "CODEX_API_KEY": "a"}
    both = {"OPENAI_API_KEY": "a", "CODEX_API_KEY": "b"}
    assert keys_for(CODEX, both) == both
    assert keys_for(CODEX, {"OPENAI_API_KEY": " "}) == {}


# ---- reading what it really prints


def test_a_plain_answer_with_its_tools() -> None:
    reading = read_file("codex-ok.jsonl")
    assert (reading.answer, reading.end) == ("all done", None)
    assert reading.usage == {"input_tokens": 3000, "output_tokens": 150}
    assert reading.cost_usd is None
    assert [(tool.name, tool.calls) for tool in reading.activity.tools] == [
        ("command_execution", 1),
        ("file_change", 1),
    ]


def test_with_mcp_the_calls_and_failures_of_its_tools_are_counted() -> None:
    reading = read_file("codex-mcp.jsonl", mcp=(SERVER,))
    assert reading.activity.mcp == {"fakectx": McpState.CONNECTED}
    assert reading.activity.calls_of("fakectx") == 1
    assert [(tool.name, tool.failed) for tool in reading.activity.tools] == [
        ("codebase_lookup", 0),
        ("fail", 1),
    ]


def test_a_429_that_it_could_not_get_past_is_a_rate_limit() -> None:
    reading = read_file("codex-429.jsonl", exit_code=1)
    assert reading.end is AgentEnd.RATE_LIMITED
    assert reading.refusals == 1


# ---- made up, from what it was seen to say


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("unexpected status 401 Unauthorized: Missing bearer or basic", AgentEnd.NO_LOGIN),
        ("unexpected status 401 Unauthorized: Incorrect API key", AgentEnd.REFUSED_KEY),
        ("unexpected status 403 Forbidden: no", AgentEnd.REFUSED_KEY),
        ("unexpected status 404 Not Found: x", AgentEnd.NO_SUCH_MODEL),
        ("unexpected status 529 <unknown status code>: x", AgentEnd.RATE_LIMITED),
        ("Quota exceeded. Check your plan and billing details.", AgentEnd.NO_CREDIT),
        ("You've hit your usage limit. Try again later.", AgentEnd.RATE_LIMITED),
        ("We\u2019re currently experiencing high demand, which may", AgentEnd.OVERLOADED),
        ("stream disconnected before completion: x", AgentEnd.DROPPED),
        (
            "stream disconnected before completion: error sending request for url (http://x/v1)",
            AgentEnd.UNREACHABLE,
        ),
        ("error sending request for url (http://127.0.0.1:1/v1)", AgentEnd.UNREACHABLE),
        ('{"error":{"type":"x","message":"bad tools"}}', AgentEnd.BAD_REQUEST),
        ('{"error":{"code":"insufficient_quota","message":"pay"}}', AgentEnd.NO_CREDIT),
        ("something else", AgentEnd.BROKEN),
    ],
)
def test_an_error_is_told_by_its_words(words: str, end: AgentEnd) -> None:
    assert failed(words).end is end


def test_the_body_of_an_error_is_told_in_its_own_words() -> None:
    assert failed('{"error":{"type":"x","message":"bad tools"}}').message == "bad tools"


def test_a_limit_says_when_to_come_back() -> None:
    words = "Rate limit reached for gpt in organization org. Please try again in 11.054s."
    assert failed(words).retry_after == pytest.approx(11.054)


def test_exit_code_0_without_a_completed_turn_is_no_result() -> None:
    assert read("").end is AgentEnd.NO_RESULT
    started = '{"type":"thread.started","thread_id":"t"}\n{"type":"turn.started"}'
    assert read(started).end is AgentEnd.NO_RESULT
    assert read("", exit_code=1, stderr="Error: x").end is AgentEnd.BROKEN


def test_a_server_that_did_not_start_is_no_outage_of_the_provider_and_the_cause_comes_first() -> (
    None
):
    """Its connection was closed: that of the server."""
    stderr = (OUTPUTS / "codex-mcp-failed.stderr").read_text()
    server = McpServer(name="repo-search", command=("python3", "server.py"))
    reading = read("", exit_code=1, stderr=stderr, mcp=(server,))
    assert reading.end is AgentEnd.NO_SERVER
    assert reading.activity.mcp == {"repo-search": McpState.FAILED}
    assert reading.message.startswith("repo-search: handshaking with MCP server failed")


def test_a_session_that_could_not_begin_names_the_cause_without_what_wraps_it() -> None:
    stderr = (
        "Error: thread/start: thread/start failed: error creating thread: Fatal error: Failed to"
        " initialize session: no space left (code -32603)"
    )
    reading = read("", exit_code=1, stderr=stderr)
    assert (reading.end, reading.message) == (AgentEnd.BROKEN, "no space left (code -32603)")


def test_a_stream_that_was_dropped_broke_off() -> None:
    stdout = (OUTPUTS / "codex-dropped.jsonl").read_text()
    assert read(stdout, exit_code=1).end is AgentEnd.DROPPED


def test_a_call_without_an_end_counts_as_failed() -> None:
    item = {"id": "1", "type": "mcp_tool_call", "server": "fakectx", "tool": "look"}
    reading = read(json.dumps({"type": "item.started", "item": item}), mcp=(SERVER,))
    assert reading.activity.calls_of("fakectx") == 0
    assert reading.activity.tools[0].calls == 1


def test_that_it_does_not_know_a_model_is_no_news_where_it_was_sent_to_it() -> None:
    item = {"id": "0", "type": "error", "message": "Model metadata for `x` not found."}
    line = json.dumps({"type": "item.completed", "item": item})
    assert read(line).notes == ("Model metadata for `x` not found.",)
    assert read(line, endpoint=ENDPOINT).notes == ()


@given(
    hostile_streams(
        types=("thread.started", "item.started", "item.completed", "turn.completed",
               "turn.failed", "error"),
        words=("agent_message", "mcp_tool_call", "command_execution", "failed"),
        keys=("item", "id", "text", "usage", "input_tokens", "message", "error", "status",
              "server", "tool", "thread_id", "arguments", "result", "content", "exit_code",
              "aggregated_output"),
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
