"""Parameters, messages and images of chat targets: what a suite says, and what is sent."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.models.cache import RequestKeys
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import Plan, Provider
from paraval.settings import Selection
from paraval.targets.chat import request_for
from tests.conftest import Paraval, WriteSuite
from tests.exact_server import ANTHROPIC, OPENAI, PROTOCOLS, RESPONSES, WHOLE

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
request_key = RequestKeys().key
PATHS = {"/chat/completions": OPENAI, "/responses": RESPONSES, "/messages": ANTHROPIC}


class Recorder(ThreadingHTTPServer):
    """Gives the same answer in each protocol, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do_POST(self) -> None:  # http.server's name for it
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(json.loads(body))
        reply = json.dumps(WHOLE[PATHS[self.path]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Print nothing."""


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def suite_of(server: Recorder | None, provider: Provider = OPENAI, **keys: Any) -> str:
    port = 9 if server is None else server.server_port
    model = {"provider": provider, "base_url": f"http://127.0.0.1:{port}", "model": "sim"}
    chat = {"model": "m", **keys.pop("chat", {})}
    cases = keys.pop("cases", [{"id": "a", "input": "hi"}])
    return json.dumps({"models": {"m": model}, "cases": cases, "target": {"chat": chat}, **keys})


def problems_of(**keys: Any) -> list[str]:
    provider = keys.pop("provider", OPENAI)
    Path("suite.json").write_text(suite_of(None, provider, **keys))
    with pytest.raises(SuiteError) as refused:
        Suite.load("suite.json")
    return [f"{problem.key}: {problem.message}" for problem in refused.value.problems]


def plan_of(**keys: Any) -> Plan:
    Path("suite.json").write_text(suite_of(None, **keys))
    return build_plan(Suite.load("suite.json"), Selection())


# ---- parameters


def sent(recorder: Recorder, paraval: Paraval, provider: Provider, **keys: Any) -> dict[str, Any]:
    Path("suite.json").write_text(suite_of(recorder, provider, **keys))
    ended = paraval("run", "suite.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return recorder.bodies[-1]


def test_parameters_are_translated_for_openai_chat(
    recorder: Recorder, paraval: Paraval, folder: Path
) -> None:
    (folder / "answer.json").write_text(json.dumps(SCHEMA))
    chat = {
        "top_p": 0.5,
        "stop": "END",
        "seed": 7,
        "reasoning_effort": "low",
        "response_format": "answer.json",
        "options": {"logprobs": True},
    }
    body = sent(recorder, paraval, OPENAI, chat=chat)
    assert (body["top_p"], body["stop"], body["seed"]) == (0.5, ["END"], 7)
    assert (body["reasoning_effort"], body["logprobs"]) == ("low", True)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
    }


def test_parameters_are_translated_for_openai_responses(
    recorder: Recorder, paraval: Paraval, folder: Path
) -> None:
    chat = {"top_p": 0.5, "reasoning_effort": "low", "response_format": {"type": "object"}}
    body = sent(recorder, paraval, RESPONSES, chat=chat)
    assert (body["top_p"], body["reasoning"]) == (0.5, {"effort": "low"})
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": False}
    assert body["text"] == {"format": {"type": "json_schema", **schema}}


def test_parameters_are_translated_for_anthropic(
    recorder: Recorder, paraval: Paraval, folder: Path
) -> None:
    chat = {"top_p": 0.5, "stop": ["END"], "reasoning_effort": "max", "response_format": SCHEMA}
    body = sent(recorder, paraval, ANTHROPIC, chat=chat)
    assert (body["top_p"], body["stop_sequences"]) == (0.5, ["END"])
    assert body["output_config"] == {
        "effort": "max",
        "format": {"type": "json_schema", "schema": SCHEMA},
    }


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_tools_are_described_to_the_model(
    recorder: Recorder, paraval: Paraval, folder: Path, provider: Provider
) -> None:
    (folder / "tools.yaml").write_text(
        f"- name: get_weather\n  description: The weather.\n  parameters: {json.dumps(SCHEMA)}\n"
    )
    [tool] = sent(recorder, paraval, provider, chat={"tools": "tools.yaml"})["tools"]
    tool = tool.get("function", tool)
    assert (tool["name"], tool["description"]) == ("get_weather", "The weather.")
    assert tool["input_schema" if provider is ANTHROPIC else "parameters"] == SCHEMA


def test_any_parameter_may_be_an_axis(recorder: Recorder, paraval: Paraval, folder: Path) -> None:
    (folder / "suite.json").write_text(
        suite_of(
            recorder,
            matrix={"temp": [0, 0.7], "effort": ["low", "high"]},
            chat={"temperature": "{temp}", "reasoning_effort": "{effort}"},
        )
    )
    ended = paraval("run", "suite.json", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    asked = [(body["temperature"], body["reasoning_effort"]) for body in recorder.bodies]
    assert sorted(asked) == [(0, "high"), (0, "low"), (0.7, "high"), (0.7, "low")]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"provider": ANTHROPIC, "chat": {"seed": 1}},
            "target.chat.seed: anthropic has no 'seed' (model 'm')",
        ),
        (
            {"provider": RESPONSES, "chat": {"stop": "x"}},
            "target.chat.stop: openai-responses has no 'stop'",
        ),
        (
            {"provider": ANTHROPIC, "chat": {"reasoning_effort": "minimal"}},
            "target.chat.reasoning_effort: anthropic has no effort 'minimal'; use low, medium,",
        ),
        ({"chat": {"top_p": 2}}, "target.chat.top_p: must be a number from 0 to 1, or an axis"),
        ({"chat": {"temperature": "{tmp}"}}, "target.chat.temperature: unknown axis 'tmp'"),
        (
            {"chat": {"temperature": "{temp}"}, "matrix": {"temp": ["hot"]}},
            "matrix.temp[0]: must be a number, 0 or more, or an axis such as",
        ),
        ({"chat": {"options": {"messages": []}}}, "target.chat.options.messages: is set by"),
        ({"chat": {"options": {"seed": 1}, "seed": 2}}, "target.chat.seed: 'seed' is also set in"),
        ({"chat": {"response_format": "no.json"}}, "target.chat.response_format: 'no.json'"),
        (
            {"chat": {"response_format": {"type": "json_object"}}},
            "target.chat.response_format: must be the JSON Schema itself",
        ),
        ({"chat": {"response_format": {"type": "strng"}}}, "target.chat.response_format.type: "),
        ({"chat": {"tools": []}}, "target.chat.tools: must be a list of tools"),
        ({"chat": {"tools": [{}]}}, "target.chat.tools[0].name: is missing"),
        ({"chat": {"tools": [{"name": "a b"}]}}, "target.chat.tools[0].name: must be 1 to 64"),
        (
            {"chat": {"tools": [{"name": "a", "parmeters": {}}]}},
            "target.chat.tools[0].parmeters: unknown key 'parmeters', did you mean 'parameters'?",
        ),
        ({"chat": {"tools": ["no_such:tool"]}}, "target.chat.tools[0].python: cannot import"),
        ({"chat": {"max_turns": 3}}, "target.chat.max_turns: needs a tool with a Python function"),
    ],
)
def test_a_wrong_parameter_is_reported_when_the_suite_is_loaded(
    folder: Path, keys: dict[str, Any], problem: str
) -> None:
    [found] = problems_of(**keys)
    assert found.startswith(problem)


def test_keys_of_suites_without_these_parameters_have_not_changed(folder: Path) -> None:
    [trial] = plan_of(chat={"temperature": 0, "max_tokens": 5}).trials
    assert trial.key == "61ddf7d8a9bab485f3b979f605ef51a4"
    assert request_key(request_for(trial)) == "ebba28380a16b24bff3ee899b220e5dd565c0d21"


def test_every_parameter_is_part_of_the_keys(folder: Path) -> None:
    tool = {"name": "find"}
    chats: list[dict[str, Any]] = [
        {},
        {"top_p": 0.5},
        {"stop": "x"},
        {"seed": 1},
        {"reasoning_effort": "low"},
        {"response_format": SCHEMA},
        {"tools": [tool]},
        {"tools": [{**tool, "description": "Finds."}]},
        {"options": {"n": 1}},
    ]
    trials = [plan_of(chat=chat).trials[0] for chat in chats]
    assert len({trial.key for trial in trials}) == len(chats)
    assert len({request_key(request_for(trial)) for trial in trials}) == len(chats)


# ---- messages and images


TURNS = [
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Hello Ada."},
    {"role": "user", "content": "What is my name?"},
]


@pytest.mark.parametrize(
    "chat",
    [
        {"system": "Be brief."},
        {"system": "Be brief.", "messages": "{input}"},
        {"messages": [{"role": "system", "content": "Be brief."}, "{input}"]},
    ],
)
def test_a_list_of_messages_is_sent_as_the_conversation(
    recorder: Recorder, paraval: Paraval, folder: Path, chat: dict[str, Any]
) -> None:
    cases = [{"id": "a", "input": TURNS}]
    body = sent(recorder, paraval, OPENAI, chat=chat, cases=cases)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, *TURNS]


def images(*sources: str) -> list[dict[str, Any]]:
    parts = [{"text": "What is this?"}, *({"image": source} for source in sources)]
    return [{"id": "a", "input": [{"role": "user", "content": parts}]}]


def test_images_are_sent_in_each_protocol(
    recorder: Recorder, paraval: Paraval, folder: Path
) -> None:
    (folder / "cat.png").write_bytes(PNG)
    url, data = "https://example.com/dog.jpg", base64.b64encode(PNG).decode()
    cases = images("cat.png", url)
    [message] = sent(recorder, paraval, OPENAI, cases=cases)["messages"]
    assert message["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    [message] = sent(recorder, paraval, RESPONSES, cases=cases)["input"]
    assert message["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        {"type": "input_image", "image_url": url},
    ]
    [message] = sent(recorder, paraval, ANTHROPIC, cases=cases)["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": data}
    assert message["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": source},
        {"type": "image", "source": {"type": "url", "url": url}},
    ]
    stored = b"".join(path.read_bytes() for path in folder.rglob("*.db"))
    assert data.encode() not in stored


def test_a_changed_image_is_another_question(folder: Path) -> None:
    keys = set()
    for content in (PNG, PNG + b"!"):
        (folder / "cat.png").write_bytes(content)
        [trial] = plan_of(cases=images("cat.png")).trials
        keys |= {trial.key, request_key(request_for(trial))}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ([{"role": "user"}], "cases[0].input: message 1: must be a mapping with role and content"),
        (
            [TURNS[0], {"role": "model", "content": ""}],
            "cases[0].input: message 2: its role must be one of system, user, assistant",
        ),
        (
            [{"role": "user", "content": [{"img": "a.png"}]}],
            "cases[0].input: message 1: a part must be text, {text: ...} or {image: ...}, not",
        ),
        (images("no.png")[0]["input"], "No such file"),
        (images("suite.json")[0]["input"], "it is not a PNG, JPEG, GIF or WebP file"),
        (images("large.png")[0]["input"], "it has 11.0 MB; the limit is 10 MB"),
    ],
)
def test_a_wrong_message_or_image_is_reported_when_the_suite_is_loaded(
    folder: Path, written: Any, problem: str
) -> None:
    (folder / "large.png").write_bytes(PNG + bytes(11 << 20))
    [found] = problems_of(cases=[{"id": "a", "input": written}])
    assert problem in found


def test_messages_inside_a_longer_prompt_are_refused(write: WriteSuite) -> None:
    found = problems_of(cases=[{"id": "a", "input": TURNS}], chat={"prompt": "Answer: {input}"})
    assert "{input} must be a message of its own" in found[0]
