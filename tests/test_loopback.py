"""The model server: official clients talk to it, limits and faults are as told, nothing brings it
down."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from paraval.errors import RequestError, ScenarioError
from paraval.loopback.scenario import Scenario, bundled_names
from paraval.loopback.server import BODY_LIMIT_BYTES, LoopbackServer
from paraval.loopback.simulated_models import account_name
from paraval.testing import Loopback, loopback
from tests.conftest import Paraval

ASK = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"
AGENT = {
    "match": "^agent",
    "script": [
        {"call": "read", "arguments": {"path": "notes.txt"}},
        {"text": "Now both.", "calls": [{"name": "read"}, {"name": "list"}]},
        {"text": "Done."},
    ],
}


def openai_client(server: Loopback, key: str = "key-a") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.base_url, api_key=key, max_retries=0)


def anthropic_client(server: Loopback, key: str = "key-a") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.anthropic_base_url, api_key=key, max_retries=0)


# ---- official clients


def test_openais_client_gets_an_answer_with_its_usage() -> None:
    with loopback() as server, openai_client(server) as client:
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hello there"}]
        )
    assert answer.choices[0].message.content == "hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 3)


def test_openais_async_client_gets_a_stream_with_its_usage() -> None:
    said = "wörds with ümlauts, \u2028 separators, \U0001f600 and more than one piece of text"

    async def ask(base_url: str) -> tuple[str, int | None]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": said}],
                stream=True,
                stream_options={"include_usage": True},
            )
            text, tokens = "", None
            async for chunk in stream:
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
                tokens = chunk.usage.completion_tokens if chunk.usage else tokens
            return text, tokens

    with loopback(tokens=77) as server:
        assert asyncio.run(ask(server.base_url)) == (said, 77)


def test_openais_client_is_told_which_tools_to_call_step_by_step() -> None:
    tools: Any = [{"type": "function", "function": {"name": "read", "parameters": {}}}]
    messages: list[Any] = [{"role": "user", "content": "agent, go"}]
    seen = []
    with loopback(answers=AGENT) as server, openai_client(server) as client:
        for _ in range(3):
            message = (
                client.chat.completions.create(model="m", messages=messages, tools=tools)
                .choices[0]
                .message
            )
            calls: list[Any] = message.tool_calls or []
            seen.append((message.content, [(c.function.name, c.function.arguments) for c in calls]))
            messages.append(message.model_dump(exclude_none=True))
            messages += [{"role": "tool", "tool_call_id": c.id, "content": "text"} for c in calls]
    assert seen == [
        (None, [("read", '{"path":"notes.txt"}')]),
        ("Now both.", [("read", "{}"), ("list", "{}")]),
        ("Done.", []),
    ]


def test_a_stream_brings_tool_calls_to_openais_client_in_pieces() -> None:
    tools: Any = [{"type": "function", "function": {"name": "read", "parameters": {}}}]
    with loopback(answers=AGENT) as server, openai_client(server) as client:
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "agent"}], tools=tools, stream=True
        )
        chunks = [chunk.choices[0] for chunk in stream]
    parts = [part for one in chunks for part in one.delta.tool_calls or []]
    assert [part.function.name for part in parts if part.function and part.function.name] == [
        "read"
    ]
    arguments = "".join(part.function.arguments or "" for part in parts if part.function)
    assert arguments == '{"path":"notes.txt"}'
    assert chunks[-1].finish_reason == "tool_calls"


def test_a_model_calls_no_tools_that_it_was_not_offered() -> None:
    with loopback(answers=AGENT) as server, openai_client(server) as client:
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "agent: a title, please"}]
        )
    assert answer.choices[0].message.content == "agent: a title, please"


def test_openais_responses_are_answered_whole_and_streamed() -> None:
    tools: Any = [{"type": "function", "name": "read", "parameters": {}, "strict": False}]
    with loopback(answers=AGENT) as server, openai_client(server) as client:
        whole = client.responses.create(model="m", input="hello there", instructions="Be kind.")
        with client.responses.stream(model="m", input="hello again, in several pieces") as stream:
            events = list(stream)
            streamed = stream.get_final_response()
        with client.responses.stream(model="m", input="agent", tools=tools) as stream:
            called: Any = stream.get_final_response().output[0]
    assert whole.output_text == "hello there"
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (5, 3)
    assert streamed.output_text == "hello again, in several pieces"
    assert streamed.usage is not None
    assert [getattr(event, "sequence_number", None) for event in events] == list(range(10))
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert (called.type, called.name, called.arguments) == (
        "function_call",
        "read",
        '{"path":"notes.txt"}',
    )


def test_openais_responses_go_on_after_a_tools_result() -> None:
    tools: Any = [{"type": "function", "name": "read", "parameters": {}, "strict": False}]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "text"}
    given: Any = [{"role": "user", "content": "agent"}, result, result, result]
    with loopback(answers=AGENT) as server, openai_client(server) as client:
        assert client.responses.create(model="m", input=given, tools=tools).output_text == "Done."


def test_anthropics_client_gets_answers_whole_and_streamed() -> None:
    with (
        loopback(tokens={"input": 100, "cached": 40}) as server,
        anthropic_client(server) as client,
    ):
        whole = client.messages.create(
            model="m", max_tokens=50, messages=[{"role": "user", "content": "hello"}]
        )
        with client.messages.stream(
            model="m",
            max_tokens=50,
            messages=[{"role": "user", "content": "hello again, in several pieces"}],
        ) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert whole.content[0].text == "hello"
    assert (whole.stop_reason, whole.usage.output_tokens) == ("end_turn", 2)
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (60, 40)
    assert text == "hello again, in several pieces"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (60, 8)


def test_anthropics_async_client_is_told_which_tools_to_call() -> None:
    tools: Any = [{"name": "read", "input_schema": {"type": "object"}}]
    messages: list[Any] = [{"role": "user", "content": "agent, go"}]

    async def converse(base_url: str) -> list[Any]:
        seen = []
        async with anthropic.AsyncAnthropic(
            base_url=base_url, api_key="k", max_retries=0
        ) as client:
            for _ in range(3):
                async with client.messages.stream(
                    model="m", max_tokens=100, messages=messages, tools=tools
                ) as stream:
                    message = await stream.get_final_message()
                messages.append({"role": "assistant", "content": message.content})
                calls = [block for block in message.content if block.type == "tool_use"]
                results = [
                    {"type": "tool_result", "tool_use_id": call.id, "content": "text"}
                    for call in calls
                ]
                # Agents put reminders beside the results: no new prompt.
                messages.append(
                    {"role": "user", "content": [*results, {"type": "text", "text": "be quick"}]}
                )
                seen.append((message.stop_reason, [(call.name, call.input) for call in calls]))
        return seen

    with loopback(answers=AGENT) as server:
        assert asyncio.run(converse(server.anthropic_base_url)) == [
            ("tool_use", [("read", {"path": "notes.txt"})]),
            ("tool_use", [("read", {}), ("list", {})]),
            ("end_turn", []),
        ]


def test_answers_longer_than_allowed_are_cut_and_say_so() -> None:
    long = "word " * 100
    with loopback() as server, openai_client(server) as one, anthropic_client(server) as other:
        chat = one.chat.completions.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": long}]
        )
        message = other.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": long}]
        )
        response = one.responses.create(model="m", input=long, max_output_tokens=5)
    assert chat.choices[0].finish_reason == "length"
    assert chat.choices[0].message.content == "word word word word "
    assert chat.usage is not None
    assert chat.usage.completion_tokens == 5
    assert message.stop_reason == "max_tokens"
    assert response.status == "incomplete"


def test_the_official_clients_know_the_errors_by_their_classes() -> None:
    hello: Any = [{"role": "user", "content": "hello"}]
    scenario = {
        "keys": ["good"],
        "accounts": {"poor": {"quota": 0}, "busy": {"storm": {"for_s": 1000}}},
        "models": {"m": {}, "broken": {"faults": [{"kind": "status", "status": 500}]}},
        "models_only": True,
    }
    # (key, model, what each library raises, and the status)
    expected: list[tuple[str, str, str, str]] = [
        ("bad", "m", "AuthenticationError", "AuthenticationError"),
        ("good", "other", "NotFoundError", "NotFoundError"),
        ("busy", "m", "RateLimitError", "RateLimitError"),
        ("poor", "m", "RateLimitError", "BadRequestError"),
        ("good", "broken", "InternalServerError", "InternalServerError"),
    ]
    with loopback(scenario) as server:
        for key, model, of_openai, of_anthropic in expected:
            with openai_client(server, key) as one, pytest.raises(openai.APIStatusError) as raised:
                one.chat.completions.create(model=model, messages=hello)
            assert type(raised.value).__name__ == of_openai
            assert raised.value.message
            with (
                anthropic_client(server, key) as other,
                pytest.raises(anthropic.APIStatusError) as told,
            ):
                other.messages.create(model=model, max_tokens=5, messages=hello, stream=True)
            assert type(told.value).__name__ == of_anthropic
        stats = server.stats()
    assert (stats.total.rejected, stats.total.refused, stats.total.faults) == (4, 4, 2)
    assert stats.accounts["poor"].refused == 2


def test_exhausted_quota_is_told_in_each_providers_own_words() -> None:
    hello: Any = [{"role": "user", "content": "hello"}]
    with loopback(quota=1) as server, openai_client(server) as one:
        one.chat.completions.create(model="m", messages=hello)
        with pytest.raises(openai.RateLimitError) as raised:
            one.chat.completions.create(model="m", messages=hello)
        with anthropic_client(server) as other, pytest.raises(anthropic.BadRequestError) as told:
            other.messages.create(model="m", max_tokens=5, messages=hello)
    assert raised.value.code == "insufficient_quota"
    assert "credit balance is too low" in told.value.message


def test_both_clients_can_list_the_models() -> None:
    with loopback(models={"small": {}, "large": {}}) as server:
        with openai_client(server) as client:
            assert [model.id for model in client.models.list()] == ["small", "large"]
        with anthropic_client(server) as other:
            assert [model.id for model in other.models.list()] == ["small", "large"]


# ---- the exact bytes


@contextlib.asynccontextmanager
async def session_with(
    **scenario: Any,
) -> AsyncIterator[tuple[LoopbackServer, aiohttp.ClientSession]]:
    """A server in this loop, and a bare client."""
    async with (
        LoopbackServer(Scenario.load(scenario)) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        yield server, session


def chat(prompt: str = "hello", **further: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **further}


async def post(
    server: LoopbackServer, session: aiohttp.ClientSession, body: Any, **options: Any
) -> tuple[int, str, dict[str, str]]:
    url = f"{server.base_url}/chat/completions"
    options.setdefault("headers", {"Authorization": "Bearer key-a"})
    async with session.post(url, json=body, allow_redirects=False, **options) as response:
        text = await response.text()
        return response.status, text, {k.lower(): v for k, v in response.headers.items()}


async def nobody_is_served(server: LoopbackServer) -> None:
    async with asyncio.timeout(20):
        while server.stats().total.at_once:  # noqa: ASYNC110 - the far end of a closed connection
            await asyncio.sleep(0.01)


def data_of(stream: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_chat_stream_has_usage_only_where_it_was_asked_for() -> None:
    async def streams() -> tuple[str, str]:
        async with session_with() as (server, session):
            _, bare, headers = await post(server, session, chat(stream=True))
            assert headers["content-type"].startswith("text/event-stream")
            assert headers["x-paraval-loopback"] == "simulated"
            options = {"include_usage": True}
            body = chat(stream=True, stream_options=options)
            return bare, (await post(server, session, body))[1]

    bare, full = asyncio.run(streams())
    chunks = data_of(bare)
    assert chunks[-1] == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:-1]] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "hello"},
        {},
    ]
    assert all("usage" not in chunk for chunk in chunks[:-1])
    *first, last, done = data_of(full)
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in first)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 4


def test_an_anthropic_stream_has_the_events_of_the_real_one() -> None:
    async def stream() -> str:
        async with session_with() as (server, session):
            body = chat(stream=True, max_tokens=10)
            async with session.post(f"{server.root_url}/messages", json=body) as response:
                return await response.text()

    text = asyncio.run(stream())
    kinds = [line.removeprefix("event: ") for line in text.splitlines() if line[:5] == "event"]
    assert kinds == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


# ---- counts


def test_what_it_saw_is_counted_by_account_and_by_model() -> None:
    async def ask_many() -> None:
        async with session_with(latency=0.02, limits={"concurrent": 20}) as (server, session):
            places = asyncio.Semaphore(25)

            async def ask(number: int) -> int:
                async with places:
                    body = chat(f"question {number}", stream=True)
                    return (await post(server, session, body))[0]

            statuses = await asyncio.gather(*(ask(number) for number in range(300)))
            async with session.get(f"{server.root_url}/stats") as response:
                told = await response.json()
            total = server.stats().total
            assert told["total"]["answered"] == total.answered == statuses.count(200)
            assert told["models"]["m"]["refused"] == total.refused == statuses.count(429) > 0
            assert total.requests == 300
            assert told["accounts"][account_name("key-a")]["most_at_once"] == 20
            assert total.at_once == 0
            assert total.first_at is not None
            assert total.last_at is not None
            assert total.last_at > total.first_at
            assert total.output_tokens >= 3 * total.answered
            async with session.post(f"{server.root_url}/reset") as response:
                assert response.status == 200
            assert server.stats().total.requests == 0

    asyncio.run(ask_many())


def test_no_client_that_keeps_to_twenty_at_once_is_counted_as_more() -> None:
    async def ask_many() -> int:
        async with session_with() as (server, session):
            places = asyncio.Semaphore(20)

            async def ask(number: int) -> None:
                async with places:
                    await post(server, session, chat(f"{number}", stream=number % 2 == 0))

            await asyncio.gather(*(ask(number) for number in range(400)))
            assert server.stats().total.answered == 400
            return server.stats().total.most_at_once

    assert asyncio.run(ask_many()) <= 20


# ---- faults


@contextlib.asynccontextmanager
async def faulty(
    **fault: Any,
) -> AsyncIterator[tuple[LoopbackServer, aiohttp.ClientSession]]:
    async with session_with(faults=[fault]) as pair:
        yield pair


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_leaves_half_an_answer(stream: bool) -> None:
    async def ask() -> None:
        async with faulty(kind="disconnect") as (server, session):
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(server, session, chat(stream=stream))
            assert server.stats().total.faults == 1

    asyncio.run(ask())


@pytest.mark.parametrize("kind", ["hang", "half_open"])
def test_silence_lasts_until_the_client_goes_away(kind: str) -> None:
    async def ask() -> None:
        async with faulty(kind=kind) as (server, session):
            timeout = aiohttp.ClientTimeout(sock_read=0.1)
            url = f"{server.base_url}/chat/completions"
            began = b""

            async def listen() -> None:
                nonlocal began
                async with session.post(url, json=chat(stream=True), timeout=timeout) as response:
                    began = await response.content.readany()
                    await response.content.readany()

            with pytest.raises(aiohttp.SocketTimeoutError):
                await listen()
            # Of half an answer the beginning comes; of a half-open connection, nothing.
            assert began.startswith(b"data: ") == (kind == "hang")
            await nobody_is_served(server)
            assert server.stats().total.faults == 1

    asyncio.run(ask())


def test_a_drip_comes_byte_by_byte() -> None:
    async def ask() -> None:
        async with faulty(kind="drip", every_s=0.001) as (server, session):
            url = f"{server.base_url}/chat/completions"
            async with session.post(url, json=chat()) as response:
                sizes = [len(piece) async for piece in response.content.iter_any()]
            assert sum(sizes) > 100
            assert len(sizes) > 20
            assert max(sizes) < 50

    asyncio.run(ask())


def test_invalid_json_is_none_whole_or_streamed() -> None:
    async def ask() -> None:
        async with faulty(kind="invalid_json") as (server, session):
            for stream in (False, True):
                status, text, _ = await post(server, session, chat(stream=stream))
                assert status == 200
                with pytest.raises(ValueError, match="Expecting"):
                    data_of(text)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("negative", -7), ("huge", 10**30), ("text", "many"), ("missing", None)],
)
def test_usage_is_wrong_as_the_fault_says(wrong: str, told: object) -> None:
    async def ask() -> None:
        async with faulty(kind="wrong_usage", usage=wrong) as (server, session):
            _, text, _ = await post(server, session, chat())
            usage = json.loads(text).get("usage")
            assert told == (None if usage is None else usage["completion_tokens"])
            for path in ("responses", "messages"):
                body = chat(input="hello", max_tokens=5, stream=True)
                async with session.post(f"{server.base_url}/{path}", json=body) as response:
                    assert response.status == 200
                    assert "hello" in await response.text()

    asyncio.run(ask())


def test_a_proxys_page_and_a_redirect_come_instead_of_answers() -> None:
    async def ask() -> None:
        faults = [
            {"kind": "html", "match": "^page"},
            {"kind": "redirect", "match": "^away", "location": "http://127.0.0.1:9/v1"},
        ]
        async with session_with(faults=faults) as (server, session):
            status, text, headers = await post(server, session, chat("page"))
            assert (status, headers["content-type"].split(";")[0]) == (200, "text/html")
            assert "<html>" in text
            status, _, headers = await post(server, session, chat("away"))
            assert (status, headers["location"]) == (307, "http://127.0.0.1:9/v1")

    asyncio.run(ask())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_a_huge_answer_is_as_long_as_told_and_well_formed(path: str, stream: bool) -> None:
    async def ask() -> None:
        async with faulty(kind="huge", megabytes=2) as (server, session):
            body = chat(input="hello", max_tokens=10, stream=stream)
            async with session.post(f"{server.base_url}/{path}", json=body) as response:
                text = await response.text()
            assert 2_000_000 <= len(text) < 4_000_000
            lines = [line for line in text.splitlines() if line.startswith("data: {")]
            for line in lines if stream else [text]:
                json.loads(line.removeprefix("data: "))

    asyncio.run(ask())


def test_the_key_can_be_given_away_plainly_split_and_in_base64() -> None:
    key = "sk-canary-0123456789"

    async def ask() -> None:
        faults = [
            {"kind": "echo_key", "form": "plain", "match": "plain"},
            {"kind": "echo_key", "form": "base64", "match": "base64"},
            {"kind": "echo_key", "status": 400, "form": "plain", "match": "error"},
            {"kind": "echo_key"},
        ]
        headers = {"Authorization": f"Bearer {key}"}
        async with session_with(faults=faults) as (server, session):
            _, plain, _ = await post(server, session, chat("plain"), headers=headers)
            assert key in plain
            _, coded, _ = await post(server, session, chat("base64"), headers=headers)
            assert base64.b64encode(key.encode()).decode() in coded
            status, error, _ = await post(server, session, chat("error"), headers=headers)
            assert (status, key in error) == (400, True)
            _, split, _ = await post(server, session, chat(stream=True), headers=headers)
            assert key not in split
            pieces = [
                chunk["choices"][0]["delta"].get("content", "")
                for chunk in data_of(split)
                if chunk != "[DONE]"
            ]
            assert key in "".join(pieces)
            assert key not in json.dumps(server.stats().as_mapping())

    asyncio.run(ask())


def test_a_client_that_leaves_frees_its_place() -> None:
    async def ask() -> None:
        async with session_with(latency=60, limits={"concurrent": 1}) as (server, session):
            timeout = aiohttp.ClientTimeout(total=0.1)
            with pytest.raises(TimeoutError):
                await post(server, session, chat(), timeout=timeout)
            await nobody_is_served(server)
            assert server.stats().total.abandoned == 1
            with pytest.raises(TimeoutError):
                await post(server, session, chat(), timeout=timeout)
            assert server.stats().total.refused == 0

    asyncio.run(ask())


# ---- hostile clients


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"model": 1, "messages": [{}]}',
        b'{"model": "m"}',
        b'{"model": "m", "messages": []}',
        b'{"model": "m", "messages": ["text"]}',
        b'{"model": "m", "messages": {"a": 1}, "input": 3, "max_tokens": 1}',
        b'{"model": "m", "messages": [{"role": "user"}], "max_tokens": -1}',
        b'{"model": "m", "messages": [{"role": "user"}], "max_tokens": "x", "input": [1]}',
    ],
)
def test_a_body_that_makes_no_sense_is_refused_in_the_providers_shape(body: bytes) -> None:
    async def ask() -> None:
        async with session_with() as (server, session):
            for path in ("chat/completions", "messages"):
                url = f"{server.base_url}/{path}"
                async with session.post(url, data=body) as response:
                    assert response.status == 400
                    assert (await response.json())["error"]["type"] == "invalid_request_error"
            assert server.stats().total.rejected == 2

    asyncio.run(ask())


def test_odd_bodies_that_do_make_sense_are_answered() -> None:
    odd: list[Any] = [
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "image_url"}, 3, {"text": 4}]}],
        [{"role": "assistant", "content": "only"}],
        [{"role": "user", "content": "half a pair: \ud800 and \0"}],
        [{"role": ["user"], "content": {"deep": []}}],
    ]

    async def ask() -> None:
        async with session_with() as (server, session):
            for messages in odd:
                for path in ("chat/completions", "messages"):
                    for stream in (False, True):
                        body = {"model": "m", "messages": messages, "max_tokens": 9}
                        url = f"{server.base_url}/{path}"
                        sent = {**body, "stream": stream}
                        async with session.post(url, json=sent) as response:
                            assert response.status == 200
                            await response.read()

    asyncio.run(ask())


def test_too_large_a_body_is_refused() -> None:
    async def ask() -> None:
        async with session_with() as (server, session):
            url = f"{server.base_url}/chat/completions"

            async def much() -> AsyncIterator[bytes]:
                for _ in range(BODY_LIMIT_BYTES // (1 << 20) + 1):
                    yield b" " * (1 << 20)

            async with session.post(url, data=much()) as response:
                assert response.status == 413

    asyncio.run(ask())


def test_clients_that_leave_in_the_middle_of_an_answer_are_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = json.dumps(chat(stream=True, max_tokens=9)).encode()
    with loopback(faults=[{"kind": "huge"}]) as server:
        port = int(server.anthropic_base_url.rpartition(":")[2])
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                client.recv(100)
        deadline = time.monotonic() + 20
        while server.stats().total.faults < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.stats().total.faults == 20
    assert caplog.messages == []


def test_unknown_paths_and_methods_are_refused() -> None:
    async def ask() -> None:
        async with session_with() as (server, session):
            for method, path, status in (
                ("GET", "/", 404),
                ("POST", "/v1/completions", 404),
                ("GET", "/v1/chat/completions", 405),
                ("POST", "/stats", 405),
            ):
                async with session.request(method, server.root_url + path) as response:
                    assert response.status == status
                    assert "error" in await response.json()

    asyncio.run(ask())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00 a TLS hello",
        b"GET\r\n\r\n",
        ASK + b"Content-Length: -5\r\n\r\n",
        ASK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ASK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
        ASK + b"Content-Length: 100\r\n\r\n{",
        b"GET /stats HTTP/1.1\r\n" + b"A: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
def test_garbage_does_not_bring_the_server_down(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def send() -> None:
        async with session_with() as (server, session):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(garbage)
            writer.write_eof()
            # An error, or nothing at all; then the end.
            assert (await reader.read())[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.0 400")
            writer.close()
            assert (await post(server, session, chat()))[0] == 200

    asyncio.run(send())
    assert caplog.messages == []


def test_a_body_that_cannot_be_unpacked_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Of a client that stays: the rest of its body is read after it was answered."""
    packed = ASK + b"Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\n\x1f\x8b\x08garbage"

    async def send() -> None:
        async with session_with() as (server, session):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(packed)
            assert (await reader.read())[:12] == b"HTTP/1.1 400"
            writer.close()
            assert (await post(server, session, chat()))[0] == 200

    asyncio.run(send())
    assert caplog.messages == []


# ---- starting and stopping


def test_stopping_does_not_wait_for_open_streams() -> None:
    async def stop() -> float:
        async with aiohttp.ClientSession() as session:
            async with LoopbackServer(Scenario.load(faults=[{"kind": "hang"}])) as server:
                url = f"{server.base_url}/chat/completions"
                for _ in range(20):
                    response = await session.post(url, json=chat(stream=True))
                    await response.content.readany()
                waiting = [
                    asyncio.create_task(post(server, session, chat("half", stream=True)))
                    for _ in range(5)
                ]
                await asyncio.sleep(0)
                started = time.monotonic()
            took = time.monotonic() - started
            await asyncio.gather(*waiting, return_exceptions=True)
            return took

    assert asyncio.run(stop()) < 3


def test_a_port_that_is_taken_is_told() -> None:
    async def start() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(RequestError, match=f"port {port} on 127.0.0.1 is already in use"):
                async with LoopbackServer(Scenario.load(), port):
                    pass

    asyncio.run(start())


def test_the_testing_kit_works_inside_a_running_loop_and_forgets_on_reset() -> None:
    async def ask() -> None:
        with loopback("fast", latency=0) as server:
            async with openai.AsyncOpenAI(
                base_url=server.base_url, api_key="k", max_retries=0
            ) as client:
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hello"}]
                )
            assert server.stats().total.answered == 1
            server.reset()
            assert server.stats().total.requests == 0

    asyncio.run(ask())


def test_a_wrong_scenario_is_told_before_anything_starts() -> None:
    with pytest.raises(ScenarioError, match="latency"), loopback(latency=-1):
        pass


# ---- the command


def test_the_command_prints_its_address_serves_and_stops_cleanly(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "paraval", "loopback"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().strip()
        with openai.OpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
            answer = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}]
            )
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert answer.choices[0].message.content == "hello"
    assert process.returncode == 0
    assert stdout == ""
    assert "no answer here comes from a real model" in stderr
    assert f"export OPENAI_BASE_URL={base_url} OPENAI_API_KEY=loopback" in stderr
    assert "1 answered, 0 refused" in stderr


def test_the_command_lists_scenarios_and_tells_what_is_wrong(paraval: Paraval) -> None:
    listed = paraval("loopback", "--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(bundled_names())
    unknown = paraval("loopback", "--scenario", "fsat")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "unknown scenario 'fsat'" in unknown.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = paraval("loopback", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 2
    assert "is already in use\nhint: choose another with --port" in refused.stderr


def test_help_does_not_load_the_http_library(folder: Path) -> None:
    script = (
        "import sys\n"
        "from paraval.cli.main import paraval\n"
        "paraval.main(['--help'], standalone_mode=False)\n"
        "assert 'loopback' in paraval.list_commands(None)\n"
        "sys.exit('aiohttp' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == 0
