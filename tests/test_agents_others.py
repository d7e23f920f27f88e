"""opencode, gemini, auggie, aider, mini-swe-agent: how each is started, and what its words mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.agents.aider import Aider
from paraval.agents.auggie import Auggie
from paraval.agents.gemini import Gemini
from paraval.agents.mini_swe_agent import MiniSweAgent
from paraval.agents.opencode import OpenCode
from paraval.agents.program import (
    AgentEnd,
    AgentEndpoint,
    AgentJob,
    AgentProgram,
    Transcript,
    TranscriptReading,
)
from paraval.agents.provider_errors import end_of_litellm
from paraval.codec import to_data
from paraval.records import Activity, AgentRetries, McpServer, McpState, Provider, ToolUse

OUTPUTS = Path(__file__).parent / "agent_outputs"
AGENTS: tuple[AgentProgram, ...] = (OpenCode(), Gemini(), Auggie(), Aider(), MiniSweAgent())
ENDPOINT = AgentEndpoint(
    provider=Provider.LOOPBACK,
    base_url="http://127.0.0.1:18999/v1",
    model="fake-model",
    api_key="sk-secret",
)
FAKECTX = McpServer(name="fakectx", command=("python", "server.py"), env={"A": "b"})
JOB = AgentJob(
    prompt='Say "hi" to $HOME\n--now',
    workspace="/work",
    home="/home/own",
    temp="/tmp/own",
    program=("agent",),
    mcp=(FAKECTX,),
)


def read(
    agent: AgentProgram,
    stdout: str = "",
    stderr: str = "",
    exit_code: int | None = 0,
    job: AgentJob = JOB,
    files: Mapping[str, str] | None = None,
) -> TranscriptReading:
    transcript = Transcript(stdout=stdout, stderr=stderr, exit_code=exit_code)
    return agent.read(job, transcript, files or {})


def output(name: str) -> str:
    return (OUTPUTS / name).read_text()


# ---- all of them


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_launch_writes_only_into_its_own_folders_and_keeps_the_key_off_the_command_line(
    agent: AgentProgram,
) -> None:
    job = replace(JOB, system="Be nice.", max_turns=3, endpoint=ENDPOINT, arguments=("--more",))
    launch = agent.launch(job)
    assert launch.argv[0] == "agent"
    assert launch.argv[-1] == "--more"
    assert not any("sk-secret" in argument for argument in launch.argv)
    for path in (*launch.files, *agent.result_files(job)):
        assert path.startswith(("/home/own/", "/tmp/own/"))
    handed = [launch.stdin, *launch.files.values(), *launch.argv]
    assert job.prompt in handed


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_in_the_users_home_nothing_is_written_and_nothing_is_moved(agent: AgentProgram) -> None:
    launch = agent.launch(replace(JOB, home=None))
    assert all(path.startswith("/tmp/own/") for path in launch.files)
    assert "/home/own" not in json.dumps([launch.argv, dict(launch.env)])


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
@pytest.mark.parametrize("model", [None, "some/model"])
def test_a_model_is_named_where_the_suite_names_one(agent: AgentProgram, model: str | None) -> None:
    argv = agent.launch(replace(JOB, model=model)).argv
    assert ("some/model" in argv) is (model is not None)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
@pytest.mark.parametrize("exit_code", [0, 1, None])
def test_an_agent_that_said_nothing_has_no_result(
    agent: AgentProgram, exit_code: int | None
) -> None:
    reading = read(agent, exit_code=exit_code)
    expected = AgentEnd.NO_RESULT if exit_code == 0 else AgentEnd.BROKEN
    assert (reading.answer, reading.end) == (None, expected)
    assert reading.message


KEYS = st.sampled_from(
    [
        *("type", "part", "error", "data", "state", "tool", "tool_name", "tool_id", "status"),
        *("tokens", "cache", "cost", "reason", "text", "result", "is_error", "stats", "info"),
        *("exit_status", "messages", "role", "content", "extra", "actions", "usage", "response"),
        *("input", "output", "parameters", "messageID", "callID", "command", "returncode"),
    ]
)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *("text", "tool_use", "tool_result", "step_finish", "error", "result", "init", "message"),
        *("assistant", "exit", "Submitted", "LimitsExceeded", "success", "fakectx_x", "\ud800", ""),
        *(10**400, -1, 1e308, float("nan"), True, None, [], [{}], [{"role": 3}]),
    ]
)
OBJECTS = st.dictionaries(
    KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=6
)
EVENTS = st.lists(OBJECTS, max_size=4).map(lambda events: "\n".join(map(json.dumps, events)))
REAL = [path.read_text() for path in sorted(OUTPUTS.iterdir())]
HALVES = st.tuples(st.sampled_from(REAL), st.integers(0, 4000), st.integers(0, 4000)).map(
    lambda cut: cut[0][: cut[1]] + cut[0][cut[2] :]
)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
@given(
    stdout=EVENTS | HALVES | st.text(max_size=50),
    stderr=st.sampled_from(["", "\ud800", "litellm.Timeout: x", "Failed query: CREATE TABLE"]),
    exit_code=st.none() | st.integers(0, 255),
    trajectory=EVENTS,
    own_home=st.booleans(),
)
@settings(max_examples=60)
def test_whatever_an_agent_prints_is_read_and_ends_in_one_way(
    agent: AgentProgram,
    stdout: str,
    stderr: str,
    exit_code: int | None,
    trajectory: str,
    own_home: bool,
) -> None:
    job = replace(JOB, home="/home/own" if own_home else None, max_turns=1)
    files = dict.fromkeys(agent.result_files(job), trajectory)
    reading = read(agent, stdout, stderr, exit_code, job, files)
    assert (reading.answer is None) is (reading.end is not None)
    assert len(reading.message) < 10_000
    for text in (reading.answer or "", reading.message, *reading.notes):
        text.encode()
    json.dumps([to_data(step) for step in reading.steps], allow_nan=False).encode()
    assert set(reading.activity.mcp) <= {"fakectx"}


# ---- opencode


def test_opencode_is_asked_by_stdin_and_configured_by_its_environment() -> None:
    launch = OpenCode().launch(replace(JOB, endpoint=ENDPOINT, system="Be nice."))
    assert launch.stdin == JOB.prompt
    assert launch.argv == (
        *("agent", "run", "--format", "json", "--pure", "--auto", "--dir", "/work"),
        *("-m", "paraval/fake-model"),
    )
    told = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert told["provider"]["paraval"]["options"] == {
        "baseURL": "http://127.0.0.1:18999/v1",
        "apiKey": "sk-secret",
    }
    assert told["mcp"]["fakectx"]["command"] == ["python", "server.py"]
    assert told["mcp"]["fakectx"]["environment"] == {"A": "b"}
    assert launch.files == {"/tmp/own/opencode-system.md": "Be nice."}
    assert told["instructions"] == ["/tmp/own/opencode-system.md"]
    assert launch.env["XDG_DATA_HOME"] == "/home/own/.local/share"


def test_opencodes_answer_tools_tokens_and_cost_are_summed_over_its_steps() -> None:
    reading = read(OpenCode(), output("opencode-ok.jsonl"))
    assert (reading.answer, reading.end) == ("all done", None)
    assert reading.activity.turns == 3
    assert reading.activity.tools == (ToolUse(name="bash", calls=1), ToolUse(name="write", calls=1))
    assert reading.usage["input_tokens"] == 3000
    assert reading.usage["output_tokens"] == 150
    assert reading.cost_usd == pytest.approx(3 * 0.00625)
    assert reading.activity.session == "ses_e234a958effe03sYJ23byUkiCG"


def test_opencodes_tools_of_a_server_are_told_by_its_name() -> None:
    reading = read(OpenCode(), output("opencode-mcp.jsonl"))
    assert reading.activity.calls_of("fakectx") == 1
    assert reading.activity.tools == (ToolUse(name="codebase_lookup", server="fakectx", calls=1),)
    assert reading.activity.mcp == {"fakectx": McpState.CONNECTED}


def test_a_tools_server_is_the_one_with_the_longest_name_that_fits() -> None:
    servers = (McpServer(name="repo"), McpServer(name="repo_search"), McpServer(name="my.repo"))
    called = ["repo_search_find", "repo_find", "my_repo_find", "report"]
    events = [
        {"type": "tool_use", "part": {"tool": name, "state": {"status": "completed"}}}
        for name in called
    ]
    stdout = "\n".join(map(json.dumps, events))
    tools = read(OpenCode(), stdout, job=replace(JOB, mcp=servers)).activity.tools
    assert {(tool.server, tool.name) for tool in tools} == {
        ("repo_search", "find"),
        ("repo", "find"),
        ("my.repo", "find"),
        (None, "report"),
    }


def test_opencodes_rate_limit_tells_when_to_come_back() -> None:
    reading = read(OpenCode(), output("opencode-429.jsonl"), exit_code=1)
    assert reading.end is AgentEnd.RATE_LIMITED
    assert reading.retry_after == 1
    assert reading.message == "APIError: fake error 429"


def test_opencodes_dropped_stream_broke_off() -> None:
    message = "Cannot connect to API: The socket connection was closed unexpectedly."
    error = {"name": "APIError", "data": {"message": message, "isRetryable": True}}
    stdout = json.dumps({"type": "error", "error": error})
    assert read(OpenCode(), stdout, exit_code=1).end is AgentEnd.DROPPED


@pytest.mark.parametrize("odd", ["1e17", "-1", '"many"'])
def test_a_token_count_that_cannot_be_right_makes_the_usage_unknown(odd: str) -> None:
    steps = output("opencode-ok.jsonl").replace('"input":1000', f'"input":{odd}', 1)
    assert read(OpenCode(), steps).usage == {}
    stats = output("gemini-ok.stream.jsonl").replace('"input_tokens":3000', f'"input_tokens":{odd}')
    assert read(Gemini(), stats).usage == {}
    files = trajectory("Submitted", "done")
    many = {path: text.replace('"prompt_tokens": 100', f'"prompt_tokens": {odd}', 1)
            for path, text in files.items()}  # fmt: skip
    assert read(MiniSweAgent(), files=many).usage == {}


def test_opencode_that_stopped_between_two_steps_has_no_result() -> None:
    first_step = "\n".join(output("opencode-ok.jsonl").split("\n")[:3])
    assert read(OpenCode(), first_step).end is AgentEnd.NO_RESULT


def test_a_cost_of_nothing_is_an_unknown_one() -> None:
    free = output("opencode-ok.jsonl").replace('"cost":0.00625', '"cost":0')
    assert read(OpenCode(), free).cost_usd is None


def test_opencodes_that_meet_in_a_new_home_are_told_what_to_do() -> None:
    clash = "Error: Failed query: CREATE TABLE `workspace`"
    reading = read(OpenCode(), stderr=clash, exit_code=1, job=replace(JOB, home=None))
    assert reading.end is AgentEnd.BROKEN
    assert "remove 'home: mine'" in reading.message


# ---- gemini


def test_gemini_gets_its_settings_in_its_home_and_its_prompt_on_stdin() -> None:
    launch = Gemini().launch(replace(JOB, max_turns=7))
    settings = json.loads(launch.files["/home/own/.gemini/settings.json"])
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert settings["model"] == {"maxSessionTurns": 7}
    assert settings["general"]["maxAttempts"] == 4
    server = settings["mcpServers"]["fakectx"]
    assert (server["command"], server["args"]) == ("python", ["server.py"])
    assert launch.stdin == JOB.prompt


def test_geminis_answer_is_what_it_said_after_its_last_tool() -> None:
    reading = read(Gemini(), output("gemini-ok.stream.jsonl"))
    assert (reading.answer, reading.end) == ("all done", None)
    assert [tool.name for tool in reading.activity.tools] == ["run_shell_command", "write_file"]
    assert reading.usage == {"input_tokens": 3000, "output_tokens": 150, "cached_tokens": 0}
    assert reading.cost_usd is None
    assert reading.activity.model == "gemini-2.5-pro"


def test_geminis_tools_of_a_server_are_told_by_its_name() -> None:
    activity = read(Gemini(), output("gemini-mcp.stream.jsonl")).activity
    assert activity.tools == (ToolUse(name="codebase_lookup", server="fakectx", calls=1),)
    assert activity.mcp == {"fakectx": McpState.CONNECTED}


@pytest.mark.parametrize(
    ("exit_code", "end"),
    [
        (144, AgentEnd.BAD_REQUEST),
        (145, AgentEnd.REFUSED_KEY),
        (148, AgentEnd.NO_SUCH_MODEL),
        (173, AgentEnd.RATE_LIMITED),
        (244, AgentEnd.OVERLOADED),
        (247, AgentEnd.OVERLOADED),
        (41, AgentEnd.NO_LOGIN),
        (1, AgentEnd.BROKEN),
    ],
)
def test_geminis_exit_code_is_the_http_status(exit_code: int, end: AgentEnd) -> None:
    stdout = output("gemini-429.stream.jsonl").split("\n")[0]
    reading = read(Gemini(), stdout, stderr="it failed", exit_code=exit_code)
    assert reading.end is end


def test_geminis_rate_limit_is_one() -> None:
    reading = read(Gemini(), output("gemini-429.stream.jsonl"), exit_code=173)
    assert reading.end is AgentEnd.RATE_LIMITED
    assert reading.message.startswith("[API Error: fake error 429]")


def test_gemini_that_was_ended_says_0_and_nothing() -> None:
    begun = output("gemini-ok.stream.jsonl").split("\n")[0]
    assert read(Gemini(), begun, exit_code=0).end is AgentEnd.NO_RESULT


def test_gemini_at_its_turn_limit_has_an_answer() -> None:
    begun = "\n".join(output("gemini-ok.stream.jsonl").split("\n")[:6])
    reading = read(Gemini(), begun, exit_code=53)
    assert (reading.answer, reading.stopped_at) == ("", "max_turns")
    whole = read(Gemini(), output("gemini-max-turns.stream.jsonl"), exit_code=53)
    assert (whole.answer, whole.stopped_at, whole.end) == ("", "max_turns", None)


def test_gemini_that_stops_itself_in_a_loop_says_so_although_it_ends_with_success() -> None:
    reading = read(Gemini(), output("gemini-loop.stream.jsonl"))
    assert (reading.answer, reading.stopped_at, reading.end) == ("", "loop", None)


def test_geminis_dropped_stream_broke_off() -> None:
    reading = read(Gemini(), output("gemini-dropped.stream.jsonl"), exit_code=1)
    assert (reading.answer, reading.end) == (None, AgentEnd.DROPPED)


def test_gemini_in_the_users_home_says_what_it_could_not_be_told() -> None:
    job = replace(JOB, home=None, max_turns=3)
    assert Gemini().launch(job).files == {}
    reading = read(Gemini(), output("gemini-ok.stream.jsonl"), job=job)
    assert reading.activity.mcp == {"fakectx": McpState.FAILED}
    assert len(reading.notes) == 2


# ---- auggie


def test_auggie_tells_neither_tools_nor_tokens() -> None:
    reading = read(Auggie(), output("auggie-ok.json"))
    assert (reading.answer, reading.end) == ("all done", None)
    assert reading.activity.tells_tools is False
    assert (reading.usage, reading.cost_usd, reading.activity.turns) == ({}, None, None)


def test_auggies_servers_are_in_the_lines_before_its_result() -> None:
    stdout = output("auggie-mcp.stdout")
    assert read(Auggie(), stdout).activity.mcp == {"fakectx": McpState.CONNECTED}
    failed = read(Auggie(), stdout.replace("✅", "❌"))
    assert failed.activity.mcp == {"fakectx": McpState.FAILED}
    assert failed.answer == "done"


def test_auggies_errors_are_on_stderr() -> None:
    none = "❌ No auth provided. Please log in with `auggie login` or set AUGMENT_SESSION_AUTH"
    assert read(Auggie(), stderr=none, exit_code=1).end is AgentEnd.NO_LOGIN
    busy = read(Auggie(), stderr="Error: HTTP error: 429 Too Many Requests", exit_code=1)
    assert busy.end is AgentEnd.RATE_LIMITED
    wrong = '{"type":"result","result":"it broke","is_error":true,"subtype":"error"}'
    assert read(Auggie(), wrong).message == "it broke"


def test_auggie_is_handed_everything_in_files() -> None:
    launch = Auggie().launch(replace(JOB, system="Be nice.", max_turns=4))
    assert launch.files["/tmp/own/auggie-prompt.md"] == JOB.prompt
    assert launch.files["/tmp/own/auggie-rules.md"] == "Be nice."
    servers = json.loads(launch.files["/tmp/own/auggie-mcp.json"])["mcpServers"]
    assert servers["fakectx"]["type"] == "stdio"
    assert launch.argv[launch.argv.index("--max-turns") :][:2] == ("--max-turns", "4")


# ---- aider

AIDER_BANNER = (
    "Aider v0.86.2\nModel: openai/fake-model with diff edit format\nRepo-map: disabled\n\n"
)
TOKENS = "Tokens: 1.8k sent, 17 received.\n"
LIMITED = "litellm.RateLimitError: RateLimitError: OpenAIException - slow down\n"
NO_ACCESS = "Your account does not have access to this resource"
RETRYING = "The API provider has rate limited you.\nRetrying in 0.2 seconds...\n"


def test_aider_is_told_of_a_wide_terminal_so_that_it_breaks_no_line() -> None:
    assert Aider().launch(JOB).env["COLUMNS"] == "10000"


def test_aiders_answer_is_the_models_last_message_as_its_history_has_it() -> None:
    name = "aider-edit-in-a-large-repository"
    history = output(f"{name}.llm-history")
    files = dict.fromkeys(Aider().result_files(JOB), history)
    reading = read(Aider(), output(f"{name}.txt"), files=files)
    assert reading.answer == "42"
    assert reading.cost_usd == 0.0060
    first, _, _ = history.partition("LLM RESPONSE 2026-11-17T15:51:34")
    edit = read(Aider(), output(f"{name}.txt"), files=dict.fromkeys(files, first)).answer or ""
    assert edit.split("\n")[:4] == ["calc.py", "```", "<<<<<<< SEARCH", "    return a - b"]


def test_what_a_model_says_of_aiders_own_lines_stays_in_its_answer() -> None:
    said = "Applied edit to x.py\nlitellm.RateLimitError: is what you asked about"
    lines = "".join(f"ASSISTANT {line}\n" for line in said.split("\n"))
    files = dict.fromkeys(Aider().result_files(JOB), f"LLM RESPONSE 2026-11-17T15:51:34\n{lines}")
    reading = read(Aider(), f"{AIDER_BANNER}{said}\n\n{TOKENS}", files=files)
    assert reading.answer == said


@pytest.mark.parametrize("with_history", [True, False])
def test_a_refusal_that_aider_survived_and_its_scan_are_no_part_of_the_answer(
    with_history: bool,
) -> None:
    history = "LLM RESPONSE 2026-11-17T15:56:18\n\nLLM RESPONSE 2026-11-17T15:56:19\nASSISTANT 42\n"
    files = dict.fromkeys(Aider().result_files(JOB), history) if with_history else {}
    reading = read(Aider(), output("aider-survived-429.txt"), files=files)
    assert (reading.answer, reading.refusals, reading.cost_usd) == ("42", 1, 0.003)


def test_without_a_history_aiders_answer_is_what_it_printed_without_its_own_lines() -> None:
    reading = read(Aider(), output("aider-ok.txt"))
    assert reading.answer is not None
    assert reading.answer.startswith("hello.txt\n```\n<<<<<<< SEARCH")
    assert reading.answer.endswith(">>>>>>> REPLACE\n```")
    assert reading.usage == {"input_tokens": 1800, "output_tokens": 17}
    assert reading.activity.tells_tools is False
    assert reading.activity.version == "0.86.2"


@pytest.mark.parametrize(
    ("line", "end"),
    [
        (LIMITED, AgentEnd.RATE_LIMITED),
        ("litellm.AuthenticationError: OpenAIException - bad key", AgentEnd.REFUSED_KEY),
        ("litellm.BadRequestError: OpenAIException - no", AgentEnd.BAD_REQUEST),
        ("litellm.NotFoundError: no such model", AgentEnd.NO_SUCH_MODEL),
        ("litellm.InternalServerError: oh", AgentEnd.OVERLOADED),
        ("litellm.APIConnectionError: gone", AgentEnd.UNREACHABLE),
        (
            "litellm.APIConnectionError: OpenAIException - Server disconnected without a response",
            AgentEnd.DROPPED,
        ),
        (
            f"litellm.APIError: APIError: OpenAIException - {NO_ACCESS}",
            AgentEnd.REFUSED_KEY,
        ),
        (
            f"litellm.BadRequestError: OpenAIException - {NO_ACCESS}",
            AgentEnd.REFUSED_KEY,
        ),
        ("litellm.APIError: APIError: OpenAIException - it broke", AgentEnd.OVERLOADED),
        ("API Error: 500 Internal Server Error", AgentEnd.OVERLOADED),
        ("No LLM model was specified and no API keys were provided.", AgentEnd.NO_LOGIN),
    ],
)
def test_an_error_of_aider_is_read_from_its_words_since_it_exits_with_0(
    line: str, end: AgentEnd
) -> None:
    reading = read(Aider(), f"{AIDER_BANNER}{line}\n", exit_code=0)
    assert (reading.answer, reading.end) == (None, end)


def test_a_rate_limit_that_aider_waited_for_is_no_end() -> None:
    reading = read(Aider(), f"{AIDER_BANNER}{LIMITED}{RETRYING}all done\n\n{TOKENS}")
    assert reading.end is None
    assert reading.refusals == 1
    later = read(Aider(), f"{AIDER_BANNER}one\n\n{TOKENS}\n{LIMITED}")
    assert later.end is AgentEnd.RATE_LIMITED


def test_aider_without_a_line_of_tokens_has_no_result() -> None:
    assert read(Aider(), f"{AIDER_BANNER}Goodbye.\n").end is AgentEnd.NO_RESULT


def test_aider_leaves_the_repositorys_own_files_alone() -> None:
    argv = Aider().launch(JOB).argv
    assert {"--no-gitignore", "--no-auto-commits", "--no-dirty-commits"} <= set(argv)
    assert "/tmp/own/aider-chat-history" in argv


# ---- mini-swe-agent


def trajectory(status: str, submission: str = "", words: str = "") -> dict[str, str]:
    usage = {"prompt_tokens": 100, "completion_tokens": 5}
    extra: dict[str, Any] = {"actions": [{"command": "ls"}], "response": {"usage": usage}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I looked.", "extra": extra},
        {"role": "tool", "content": "", "extra": {"returncode": 1}},
        {"role": "assistant", "content": None, "extra": extra},
        {"role": "exit", "content": words, "extra": {"exit_status": status}},
    ]
    info = {
        "exit_status": status,
        "submission": submission,
        "model_stats": {"api_calls": 2, "instance_cost": 0.5},
        "mini_version": "2.4.6",
    }
    text = json.dumps({"info": info, "messages": messages})
    return {"/tmp/own/mini-trajectory.json": text}


def test_minis_result_is_in_its_trajectory() -> None:
    reading = read(MiniSweAgent(), files=trajectory("Submitted", "all done\n"))
    assert (reading.answer, reading.end) == ("all done", None)
    assert reading.activity.turns == 2
    assert reading.activity.tools == (ToolUse(name="bash", calls=2),)
    assert reading.usage == {"input_tokens": 200, "output_tokens": 10}
    assert (reading.cost_usd, reading.requests) == (0.5, 2)


def test_a_mini_that_submits_nothing_answers_with_its_last_words() -> None:
    assert read(MiniSweAgent(), files=trajectory("Submitted")).answer == "I looked."


@pytest.mark.parametrize(
    ("status", "words", "end"),
    [
        ("RateLimitError", "litellm.RateLimitError: slow down", AgentEnd.RATE_LIMITED),
        ("RateLimitError", "you have insufficient_quota", AgentEnd.NO_CREDIT),
        ("AuthenticationError", "bad key", AgentEnd.REFUSED_KEY),
        (
            "APIError",
            f"litellm.APIError: APIError: OpenAIException - {NO_ACCESS}",
            AgentEnd.REFUSED_KEY,
        ),
        ("AuthenticationError", "The api_key client option must be set", AgentEnd.NO_LOGIN),
        ("ModuleNotFoundError", "No module named 'mcp'", AgentEnd.BROKEN),
    ],
)
def test_minis_exit_status_tells_how_it_ended(status: str, words: str, end: AgentEnd) -> None:
    reading = read(MiniSweAgent(), exit_code=1, files=trajectory(status, words=words))
    assert reading.end is end
    assert reading.message == f"{status}: {words}"


def test_mini_at_a_limit_of_its_own_has_an_answer() -> None:
    files = trajectory("LimitsExceeded")
    by_turns = read(MiniSweAgent(), job=replace(JOB, max_turns=2), files=files)
    assert (by_turns.answer, by_turns.stopped_at) == ("I looked.", "max_turns")
    assert read(MiniSweAgent(), files=files).stopped_at == "budget"


def test_mini_asks_four_times_not_ten_times_over_five_minutes() -> None:
    assert MiniSweAgent().launch(JOB).env["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] == "4"


def test_agents_that_cannot_resume_a_session_make_as_many_retries_as_the_suite_says_at_most() -> (
    None
):
    job = replace(JOB, retries=AgentRetries(before_first=1, after=7))
    gemini, mini = Gemini().launch(job), MiniSweAgent().launch(job)
    settings = json.loads(gemini.files["/home/own/.gemini/settings.json"])
    assert settings["general"]["maxAttempts"] == 8
    assert mini.env["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] == "8"
    assert not gemini.can_resume
    assert not mini.can_resume


def test_opencode_resumes_its_session() -> None:
    earlier = TranscriptReading(end=AgentEnd.OVERLOADED, activity=Activity(session="ses_1"))
    launch = OpenCode().launch(replace(JOB, earlier=earlier))
    assert launch.can_resume
    assert launch.argv[-2:] == ("--session", "ses_1")


def test_minis_step_limit_goes_with_its_own_configuration() -> None:
    argv = MiniSweAgent().launch(replace(JOB, max_turns=2)).argv
    assert argv[-4:] == ("-c", "mini.yaml", "-c", "agent.step_limit=2")


def test_names_that_are_none_of_litellms_tell_nothing() -> None:
    assert end_of_litellm("ValueError", "429 rate limit") is None
