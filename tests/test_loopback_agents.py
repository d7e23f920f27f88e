"""Scripts for agents: the right rule and step for each of several at once, whatever they add to
what their users said."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, strategies as st

from paraval.errors import ScenarioError
from paraval.loopback.anthropic_api import AnthropicApi
from paraval.loopback.exchange import Dialect, Reply
from paraval.loopback.openai_chat_api import OpenAIChatApi
from paraval.loopback.openai_responses_api import OpenAIResponsesApi
from paraval.loopback.scenario import Scenario
from paraval.loopback.scenario_forms import Headers
from paraval.loopback.simulated_models import ServedRequest, SimulatedModels
from paraval.testing import loopback
from tests.conftest import WriteSuite

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "simulate-models.md"
LEFT = "<system-reminder>\n900 tokens left\n</system-reminder>"
CODEX_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "exec_command", "parameters": {}},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
]
NOTES_FOR_CODEX = {
    "type": "tool_search",
    "description": "Tools of:\n- Agents: spawn\n- notes\nSome",
}


@pytest.fixture
def scenario(write: WriteSuite) -> Scenario:
    """The one of the page."""
    section = PAGE.read_text().partition("## Simulate a model for an agent")[2]
    return Scenario.load(write("a.yaml", section.partition("```yaml\n")[2].partition("```")[0]))


def reply(scenario: Scenario, dialect: Dialect, body: dict[str, Any]) -> Reply:
    question = dialect.question({"model": "m", "max_tokens": 1000, **body})
    met = SimulatedModels(scenario).meet(question, "key", Headers.OPENAI, 0.0)
    assert isinstance(met, ServedRequest)
    return met.reply


def claude_asks(prompt: str, folder: str, *results: str, deferred: str = "") -> dict[str, Any]:
    """A request as Claude Code sends it, as far as it matters here."""
    parts = [
        f"<system-reminder>\n - Primary working directory: {folder}\n</system-reminder>",
        f"<system-reminder>\nDeferred tools:\nCronList\n{deferred}\n</system-reminder>\n",
        prompt,
    ]
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": part} for part in parts]}
    ]
    for result in results:
        block = {"type": "tool_result", "content": f"{result}\n\n{LEFT}"}
        messages += [{"role": "assistant", "content": []}, {"role": "user", "content": [block]}]
    messages.append({"role": "user", "content": LEFT})
    return {"messages": messages, "tools": [{"name": "Write"}, {"name": "Bash"}]}


def codex_asks(prompt: str, folder: str, *results: str, mcp: bool = False) -> dict[str, Any]:
    surroundings = f"<environment_context>\n  <cwd>{folder}</cwd>\n</environment_context>"
    messages = [
        {"role": "user", "content": [{"type": "input_text", "text": text}]}
        for text in (surroundings, prompt)
    ]
    kinds = ("custom_tool_call_output", "function_call_output")
    given = [{"type": kinds[place % 2], "output": one} for place, one in enumerate(results)]
    tools = [*CODEX_TOOLS, NOTES_FOR_CODEX] if mcp else CODEX_TOOLS
    return {"input": [*messages, *given], "tools": tools}


# ---- what is asked, and by whom


def test_each_of_several_claudes_is_led_to_its_own_file_in_its_own_folder(
    scenario: Scenario,
) -> None:
    for number in range(8):
        prompt, folder = f"Put word{number} into note{number}.txt.", f"/work trees/{number}"
        (call,) = reply(scenario, AnthropicApi(), claude_asks(prompt, folder)).calls
        assert (call.name, json.loads(call.arguments)) == (
            "Write",
            {"file_path": f"{folder}/note{number}.txt", "content": f"word{number}"},
        )
        (call,) = reply(scenario, AnthropicApi(), claude_asks(prompt, folder, "done")).calls
        assert (call.name, json.loads(call.arguments)["command"]) == (
            "Bash",
            f"cat note{number}.txt",
        )
        last = reply(scenario, AnthropicApi(), claude_asks(prompt, folder, "done", "word"))
        assert (last.calls, last.text) == ((), "Done.")


def test_codex_gets_its_own_tools_and_the_patch_as_text(scenario: Scenario) -> None:
    prompt = "Put a into b."
    (call,) = reply(scenario, OpenAIResponsesApi(), codex_asks(prompt, "/w")).calls
    assert call.text == "*** Begin Patch\n*** Add File: b\n+a\n*** End Patch\n"
    (call,) = reply(scenario, OpenAIResponsesApi(), codex_asks(prompt, "/w", "ok")).calls
    assert (call.name, call.text, json.loads(call.arguments)) == (
        "exec_command",
        None,
        {"cmd": "cat b"},
    )
    last = reply(scenario, OpenAIResponsesApi(), codex_asks(prompt, "/w", "ok", "a"))
    assert last.text == "Done."


def test_an_mcp_tool_is_called_only_where_its_server_was_handed_over(scenario: Scenario) -> None:
    name, prompt = "mcp__notes__look_up", "What is foo?"
    without = reply(scenario, AnthropicApi(), claude_asks(prompt, "/w", deferred="x" + name))
    assert (without.calls, without.text) == ((), "I do not know.")
    (call,) = reply(scenario, AnthropicApi(), claude_asks(prompt, "/w", deferred=name)).calls
    assert (call.name, call.namespace, json.loads(call.arguments)) == (name, None, {"name": "foo"})
    said = reply(scenario, AnthropicApi(), claude_asks(prompt, "/w", "42", deferred=name))
    assert said.text == "My notes say: 42"


def test_codex_calls_mcp_tools_by_their_namespace(scenario: Scenario) -> None:
    without = reply(scenario, OpenAIResponsesApi(), codex_asks("What is foo?", "/w"))
    assert (without.calls, without.text) == ((), "I do not know.")
    (call,) = reply(
        scenario, OpenAIResponsesApi(), codex_asks("What is foo?", "/w", mcp=True)
    ).calls
    assert (call.namespace, call.name) == ("mcp__notes", "look_up")


def test_a_tool_that_is_offered_by_its_whole_name_is_called_by_it(scenario: Scenario) -> None:
    function = {"name": "mcp__notes__look_up", "parameters": {}}
    for dialect, body in (
        (
            OpenAIResponsesApi(),
            {"input": "What is foo?", "tools": [{"type": "function", **function}]},
        ),
        (
            OpenAIChatApi(),
            {
                "messages": [{"role": "user", "content": "What is foo?"}],
                "tools": [{"type": "function", "function": function}],
            },
        ),
    ):
        (call,) = reply(scenario, dialect, body).calls
        assert (call.namespace, call.name) == (None, "mcp__notes__look_up")


def test_openais_client_gets_calls_of_tools_that_take_text_and_of_those_in_namespaces() -> None:
    steps = [{"call": "apply_patch", "input": "*** a patch"}, {"call": "mcp__notes__look_up"}]
    asked: Any = codex_asks("go", "/w", mcp=True)
    with (
        loopback(answers={"script": steps}) as server,
        openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):
        whole = client.responses.create(model="m", **asked).output[0]
        asked["input"].append({"type": "custom_tool_call_output", "call_id": "1", "output": "ok"})
        with client.responses.create(model="m", stream=True, **asked) as stream:
            events = list(stream)
    assert (whole.type, getattr(whole, "input", None)) == ("custom_tool_call", "*** a patch")
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.type, getattr(item, "namespace", None)) for item in items] == [
        ("function_call", "mcp__notes")
    ]


def test_a_stream_brings_the_text_for_a_tool_in_pieces() -> None:
    patch = "*** Begin Patch\n" + "+line\n" * 20
    with (
        loopback(answers={"script": [{"call": "apply_patch", "input": patch}]}) as server,
        openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):
        asked: Any = codex_asks("go", "/w")
        with client.responses.create(model="m", stream=True, **asked) as stream:
            events = list(stream)
    kind = "response.custom_tool_call_input"
    pieces = [event.delta for event in events if event.type == f"{kind}.delta"]
    assert len(pieces) > 1
    assert "".join(pieces) == patch
    assert [event.input for event in events if event.type == f"{kind}.done"] == [patch]


# ---- what stands for what


def test_groups_stand_in_arguments_however_deep_and_a_rule_may_go_without_a_match() -> None:
    arguments = {"a": [r"\1", {"b": r"<\g<cwd>|\g<word>>"}], "n": 1, "plain": r"\d"}
    scenario = Scenario.load(
        {
            "answers": [
                {"match": r"(?P<word>\w+) two", "script": [{"call": "t", "arguments": arguments}]},
                {"script": [{"call": "t", "arguments": {"a": r"\1 \g<cwd> \g<other>"}}]},
            ]
        }
    )
    offered: dict[str, Any] = {"tools": [{"name": "t"}]}
    for prompt, made in (
        ("one two", {"a": ["one", {"b": "<.|one>"}], "n": 1, "plain": r"\d"}),
        ("three", {"a": r"\1 . \g<other>"}),
    ):
        body = {"messages": [{"role": "user", "content": prompt}], **offered}
        (call,) = reply(scenario, AnthropicApi(), body).calls
        assert json.loads(call.arguments) == made


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (
            {"match": "a", "script": [{"call": "t", "arguments": {"x": [r"\1"]}}]},
            "script: match has no group '1'",
        ),
        (
            {"match": "a", "script": [{"call": "t", "input": r"\g<who>"}]},
            "script: match has no group 'who'",
        ),
        ({"script": [{"text": "a", "input": "b"}]}, "arguments and input need call"),
        (
            {"script": [{"call": "t", "input": "b", "arguments": {"a": 1}}]},
            "takes either arguments or input, not both",
        ),
    ],
)
def test_a_script_that_cannot_work_is_told(rule: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        Scenario.load({"answers": [rule]})


def test_reminders_alone_are_a_prompt_where_there_is_no_other() -> None:
    body = {"messages": [{"role": "user", "content": LEFT}]}
    assert reply(Scenario.load(), AnthropicApi(), body).text == LEFT


@given(
    content=st.recursive(
        st.none() | st.text() | st.sampled_from([LEFT, "<cwd>/a", "mcp__a__b", "- notes"]),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["text", "type", "name", "description"]), inner)
        ),
    ),
    kind=st.sampled_from(["namespace", "tool_search", "custom", "function"]),
)
def test_no_request_is_too_odd_to_be_answered(content: Any, kind: str) -> None:
    rule = {"offers": "mcp__a__b", "script": [{"call": "mcp__a__b", "input": r"\g<cwd>\g<result>"}]}
    scenario = Scenario.load({"answers": rule})
    user = {"role": "user", "content": content}
    tools = [{"type": kind, "name": content, "description": content}, {"function": content}]
    for dialect, body in (
        (AnthropicApi(), {"messages": [user, {"role": "tool", "content": content}]}),
        (OpenAIChatApi(), {"messages": [user, {"role": "tool", "content": content}]}),
        (
            OpenAIResponsesApi(),
            {"input": [user, {"type": "function_call_output", "output": content}]},
        ),
    ):
        assert reply(scenario, dialect, {**body, "tools": tools}).model == "m"


def test_megabytes_of_what_looks_like_reminders_and_folders_are_read_in_no_time() -> None:
    hostile = ("<system-reminder></system-reminder>\n<cwd>/a working directory: /\n- x\n") * 20_000
    rule = {"offers": "mcp__x__y", "script": [{"call": "mcp__x__y", "input": r"\g<cwd>"}]}
    begun = time.monotonic()
    reply(
        Scenario.load({"answers": rule}),
        AnthropicApi(),
        {"messages": [{"role": "user", "content": hostile}], "tools": [{"name": "a"}]},
    )
    assert time.monotonic() - begun < 2
