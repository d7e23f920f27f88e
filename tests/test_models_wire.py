"""One call of a model over HTTP: real sockets, and servers that send exact bytes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import socket
import ssl
import struct
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from paraval.models.answer_bytes import AnswerBytes
from paraval.models.conversation import Request, Unanswered
from paraval.models.endpoints import proxy_for
from paraval.models.protocols import ADAPTERS
from paraval.models.providers import missing_keys
from paraval.models.reading import Reading
from paraval.models.secrets import MARK, Redactor
from paraval.models.wire import REDACTED, Called, Wire
from paraval.records import Message, Model, Outcome, Provider, Spend
from paraval.settings import ANSWER_LIMIT_BYTES

KEY = "sk-canary/4f7e+9c'\"x_Zq-81"
ENVIRONMENT = {"KEY": KEY}

OPENAI, RESPONSES, ANTHROPIC = Provider.OPENAI, Provider.OPENAI_RESPONSES, Provider.ANTHROPIC
PROTOCOLS = (OPENAI, RESPONSES, ANTHROPIC)

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


# ---- a server that sends exact bytes


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *fields = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(line, headers, body)


class Server:
    """Plays one reply for each connection, the last one again and again."""

    def __init__(self, *replies: bytes | Play, tls: ssl.SSLContext | None = None) -> None:
        self._replies = replies
        self._tls = tls
        self.seen: list[Seen] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply = self._replies[min(self.connections, len(self._replies) - 1)]
        self.connections += 1
        try:
            self.seen.append(await read_request(reader))
            if isinstance(reply, bytes):
                writer.write(reply)
                await writer.drain()
            else:
                await reply(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def http(body: bytes | str, status: str = "200 OK", headers: str = "") -> bytes:
    """A reply that ends where the connection does."""
    data = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n"
    return head.encode("latin-1") + data


def events(*data: Any) -> str:
    """A stream; texts as they are, anything else as JSON."""
    return "".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in data)


def model_of(server: Server | None = None, provider: Provider = OPENAI, **fields: Any) -> Model:
    address = f"http://127.0.0.1:{server.port}/v1" if server else "http://127.0.0.1:9/v1"
    made = Model(
        name="haiku",
        provider=provider,
        model="claude-x",
        base_url=address,
        api_key_env="KEY",
        account="team-a",
        timeout=20,
        idle_timeout=20,
    )
    return replace(made, **fields)


def request_of(model: Model, **fields: Any) -> Request:
    made = Request(
        model=model,
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi")),
    )
    return replace(made, **fields)


async def call(
    model: Model, *, environment: dict[str, str] = ENVIRONMENT, **fields: Any
) -> Called | Unanswered:
    async with Wire(environment=environment, addresses={}) as wire:
        return await wire.call(request_of(model, **fields))


def ended(
    reply: bytes | Play, provider: Provider = OPENAI, **fields: Any
) -> tuple[Called | Unanswered, Server]:
    """How a call of a server with this reply ends."""

    async def go() -> tuple[Called | Unanswered, Server]:
        async with Server(reply) as server:
            return await call(model_of(server, provider, **fields)), server

    return asyncio.run(go())


def answered(reply: bytes | Play, provider: Provider = OPENAI, **fields: Any) -> Called:
    end = ended(reply, provider, **fields)[0]
    assert isinstance(end, Called), end
    return end


def unanswered(reply: bytes | Play, provider: Provider = OPENAI, **fields: Any) -> Unanswered:
    end = ended(reply, provider, **fields)[0]
    assert isinstance(end, Unanswered), end
    assert "model 'haiku'" in end.failure.message
    assert end.failure.account == end.use.account == "account:team-a"
    return end


# ---- the same answer in each protocol, in a stream and in one piece


def chat_chunk(content: Any = None, **more: Any) -> dict[str, Any]:
    finish = more.pop("finish_reason", None)
    delta = {} if content is None else {"content": content}
    return {
        "id": "c1",
        "model": "claude-x-1",
        "choices": [{"index": 0, "delta": {**delta, **more}, "finish_reason": finish}],
    }


CHAT_USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
RESPONSES_USAGE = {
    "input_tokens": 11,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens_details": {"reasoning_tokens": 2},
}
USAGE = {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 3, "reasoning_tokens": 2}


def response(**more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": "Good day"}]
    output = [{"type": "reasoning"}, {"type": "message", "content": content}]
    return {
        "status": "completed",
        "error": None,
        "model": "claude-x-1",
        "output": output,
        "usage": RESPONSES_USAGE,
        **more,
    }


STREAMS: dict[Provider, list[Any]] = {
    OPENAI: [
        chat_chunk("", role="assistant"),
        chat_chunk("Good"),
        chat_chunk(" day"),
        chat_chunk(finish_reason="stop"),
        {"model": "claude-x-1", "choices": [], "usage": CHAT_USAGE},
        "[DONE]",
    ],
    RESPONSES: [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "Good"},
        {"type": "response.output_text.delta", "delta": " day"},
        {"type": "response.never_heard_of", "x": [1]},
        {"type": "response.completed", "response": response()},
    ],
    ANTHROPIC: [
        {
            "type": "message_start",
            "message": {
                "model": "claude-x-1",
                "usage": {"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta"}},
        {"type": "ping"},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "text_delta", "text": "Good"},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "text_delta", "text": " day"},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ],
}
WHOLE: dict[Provider, dict[str, Any]] = {
    OPENAI: {
        "model": "claude-x-1",
        "choices": [
            {"index": 0, "message": {"content": "Good day"}, "finish_reason": "stop"},
        ],
        "usage": CHAT_USAGE,
    },
    RESPONSES: response(),
    ANTHROPIC: {
        "model": "claude-x-1",
        "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Good day"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": 7},
    },
}
ENDS = {OPENAI: "stop", RESPONSES: "completed", ANTHROPIC: "end_turn"}


def usage_in(provider: Provider) -> dict[str, int]:
    """Anthropic does not tell reasoning apart."""
    known = dict(USAGE)
    if provider is ANTHROPIC:
        del known["reasoning_tokens"]
    return known


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_stream_is_put_together(provider: Provider) -> None:
    got = answered(http(events(*STREAMS[provider]), headers="X-Request-Id: r-17\r\n"), provider)
    assert got.text == "Good day"
    assert got.usage == usage_in(provider)
    assert got.use.requests == 1
    assert got.use.tokens == 18
    assert got.notes == ()
    first_token_s = got.metadata["first_token_s"]
    assert 0 < first_token_s < 20
    assert got.metadata == {
        "model": "claude-x-1",
        "finish_reason": ENDS[provider],
        "request_id": "r-17",
        "first_token_s": first_token_s,
    }


@pytest.mark.parametrize("options", [{}, {"stream": False}])
@pytest.mark.parametrize("provider", PROTOCOLS)
def test_an_answer_in_one_piece_is_read_whether_it_was_asked_for_or_not(
    provider: Provider, options: dict[str, Any]
) -> None:
    got = answered(http(json.dumps(WHOLE[provider])), provider, options=options)
    assert (got.text, got.usage) == ("Good day", usage_in(provider))
    assert got.metadata["finish_reason"] == ENDS[provider]
    assert ("first_token_s" in got.metadata) == (options == {})


def reading(provider: Provider, *chunks: bytes) -> Reading:
    answer = AnswerBytes(ADAPTERS[provider])
    for chunk in chunks:
        answer.feed(chunk)
    return answer.finish()


@given(
    provider=st.sampled_from(PROTOCOLS),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 2000), max_size=8),
)
def test_it_does_not_matter_where_a_stream_is_cut_into_chunks_nor_how_its_lines_end(
    provider: Provider, line_end: str, cuts: list[int]
) -> None:
    said = f": a comment\n\n{events(*STREAMS[provider])}".replace("\n", line_end).encode()
    places = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    chunks = [said[start:end] for start, end in itertools.pairwise(places)]
    got = reading(provider, *(chunk for chunk in chunks if chunk))
    assert (got.text, got.usage) == ("Good day", usage_in(provider))


def test_data_over_several_lines_names_and_a_missing_last_blank_line_are_read() -> None:
    first, *rest = STREAMS[OPENAI]
    lines = json.dumps(first, indent=1).split("\n")
    said = "event: x\nid: 7\n" + "\n".join(f"data:{line}" for line in lines) + "\n\n"
    said = "\ufeff" + said + events(*rest).rstrip("\n")
    assert reading(OPENAI, said.encode()).text == "Good day"


def test_a_character_split_in_two_halves_over_two_events_is_made_whole() -> None:
    parts = [r'"a\ud83d"', r'"\ude00b"', r'" \ud83d!"']
    chunks = [json.dumps(chat_chunk("?")).replace('"?"', part) for part in parts]
    got = answered(http(events(*chunks, "[DONE]")))
    assert got.text == "a😀b \ufffd!"


# ---- what is sent


def sent(provider: Provider, *, model: dict[str, Any] | None = None, **fields: Any) -> Seen:
    async def go() -> Seen:
        async with Server(http(events(*STREAMS[provider]))) as server:
            await call(model_of(server, provider, **(model or {})), **fields)
            return server.seen[0]

    return asyncio.run(go())


def test_openai_chat_is_asked_in_its_way() -> None:
    seen = sent(OPENAI, temperature=0, max_tokens=500)
    assert seen.line == "POST /v1/chat/completions HTTP/1.1"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["content-type"] == "application/json"
    assert seen.json == {
        "model": "claude-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 500,
    }


def test_openai_itself_gets_max_completion_tokens() -> None:
    model = model_of(base_url="https://api.openai.com/v1")
    body = ADAPTERS[OPENAI].body(request_of(model, max_tokens=5), stream=False)
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body
    assert "stream_options" not in body


def test_responses_are_asked_in_their_way() -> None:
    seen = sent(RESPONSES, temperature=0.5, max_tokens=500)
    assert seen.line == "POST /v1/responses HTTP/1.1"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.json == {
        "model": "claude-x",
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "store": False,
        "temperature": 0.5,
        "max_output_tokens": 500,
    }


def test_anthropic_is_asked_in_its_way() -> None:
    seen = sent(ANTHROPIC)
    assert seen.line == "POST /v1/messages HTTP/1.1"
    assert seen.headers["x-api-key"] == KEY
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in seen.headers
    assert seen.json == {
        "model": "claude-x",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "system": "Be brief.",
    }


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_models_options_are_laid_over_the_request(provider: Provider) -> None:
    options = {"top_p": 0.1, "temperature": 1, "stream": True, "extra": {"deep": [1]}}
    body = sent(provider, model={"options": options}, temperature=0).json
    assert {name: body[name] for name in options} == options


def test_a_query_in_the_base_url_stays_behind_the_path() -> None:
    async def go() -> str:
        async with Server(http(events(*STREAMS[OPENAI]))) as server:
            await call(model_of(base_url=f"http://127.0.0.1:{server.port}/x/?api-version=7"))
            return server.seen[0].line

    assert asyncio.run(go()) == "POST /x/chat/completions?api-version=7 HTTP/1.1"


def test_a_loopback_model_is_called_where_the_run_put_it_without_a_key() -> None:
    async def go() -> tuple[Called | Unanswered, Seen]:
        async with Server(http(events(*STREAMS[OPENAI]))) as server:
            model = model_of(provider=Provider.LOOPBACK, base_url="", api_key_env=None)
            addresses = {"haiku": f"http://127.0.0.1:{server.port}/made"}
            async with Wire(environment={}, addresses=addresses) as wire:
                return await wire.call(request_of(model)), server.seen[0]

    got, seen = asyncio.run(go())
    assert isinstance(got, Called)
    assert seen.line.startswith("POST /made/chat/completions ")
    assert "authorization" not in seen.headers


def test_options_that_are_no_json_stop_the_model_before_a_call() -> None:
    end, server = ended(b"", options={"temperature": float("nan")})
    assert isinstance(end, Unanswered)
    assert end.failure.stops == "model:haiku"
    assert server.seen == []


# ---- odd but good answers


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (OPENAI, [chat_chunk("So"), chat_chunk(finish_reason="length"), "[DONE]"]),
        (
            RESPONSES,
            [
                {"type": "response.output_text.delta", "delta": "So"},
                {
                    "type": "response.incomplete",
                    "response": response(
                        status="incomplete",
                        output=[],
                        incomplete_details={"reason": "max_output_tokens"},
                    ),
                },
            ],
        ),
        (
            ANTHROPIC,
            [
                {"type": "content_block_start", "content_block": {"type": "text", "text": "So"}},
                {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
                {"type": "message_stop"},
            ],
        ),
    ],
)
def test_an_answer_that_was_cut_says_so(provider: Provider, said: list[Any]) -> None:
    got = answered(http(events(*said)), provider)
    assert got.text == "So"
    assert "cut at max_tokens" in got.notes


def test_a_refusal_is_an_answer_with_a_note() -> None:
    got = answered(http(events(chat_chunk(refusal="I'd "), chat_chunk(refusal="not"), "[DONE]")))
    assert got.text == "I'd not"
    assert "the model refused to answer" in got.notes
    content = [{"type": "refusal", "refusal": "No."}]
    whole = response(output=[{"type": "message", "content": content}])
    got = answered(http(json.dumps(whole)), RESPONSES)
    assert (got.text, got.notes) == ("No.", ("the model refused to answer",))
    whole = {**WHOLE[ANTHROPIC], "stop_reason": "refusal"}
    assert "the model refused to answer" in answered(http(json.dumps(whole)), ANTHROPIC).notes


def test_a_content_filter_is_told() -> None:
    got = answered(http(events(chat_chunk("Hm", finish_reason="content_filter"), "[DONE]")))
    assert got.text == "Hm"
    assert got.metadata["finish_reason"] == "content_filter"
    assert "the provider's content filter ended the answer" in got.notes


def test_content_in_parts_is_joined_without_the_thinking() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Good"}]
    said = events(chat_chunk(parts), chat_chunk(" day"), "[DONE]")
    assert answered(http(said)).text == "Good day"


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (
            OPENAI,
            [
                chat_chunk("Look: "),
                chat_chunk(
                    tool_calls=[{"index": 0, "function": {"name": "find", "arguments": ""}}]
                ),
                chat_chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"q":'}}]),
                chat_chunk(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
                "[DONE]",
            ],
        ),
        (
            RESPONSES,
            [
                {
                    "type": "response.completed",
                    "response": response(
                        output=[
                            {
                                "type": "message",
                                "content": [{"type": "output_text", "text": "Look: "}],
                            },
                            {"type": "function_call", "name": "find", "arguments": '{"q":1}'},
                        ]
                    ),
                }
            ],
        ),
        (
            ANTHROPIC,
            [
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "text", "text": "Look: "},
                },
                {
                    "type": "content_block_start",
                    "index": 1,
                    "content_block": {"type": "tool_use", "name": "find", "input": {}},
                },
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"q":1}'},
                },
                {"type": "message_stop"},
            ],
        ),
    ],
)
def test_tool_calls_stand_beside_the_text(provider: Provider, said: list[Any]) -> None:
    got = answered(http(events(*said)), provider)
    assert got.text == "Look: "
    assert got.metadata["tool_calls"] == [{"name": "find", "arguments": '{"q":1}'}]


def test_of_several_answers_the_first_is_taken() -> None:
    choices = [
        {"index": 1, "delta": {"content": "B"}},
        {"index": 0, "delta": {"content": "A"}},
    ]
    got = answered(http(events({"choices": choices}, {"choices": choices}, "[DONE]")))
    assert got.text == "AA"
    assert "several answers came; the first is taken" in got.notes


def test_a_server_that_leaves_the_connection_open_after_the_end_does_not_hold_the_answer_up() -> (
    None
):
    async def open_ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(events(*STREAMS[OPENAI])))
        await reader.read()

    assert answered(open_ended, idle_timeout=15).text == "Good day"


def test_a_connection_is_used_again() -> None:
    said = events(*STREAMS[OPENAI]).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(said), said)
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(reply)
            await read_request(reader)

    async def go() -> int:
        async with Server(keep) as server:
            request = request_of(model_of(server))
            async with Wire(environment=ENVIRONMENT, addresses={}) as wire:
                for _ in range(3):
                    assert isinstance(await wire.call(request), Called)
            return server.connections

    assert asyncio.run(go()) == 1


# ---- usage


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": 1, "completion_tokens": 10**12},
        {"prompt_tokens": 1, "completion_tokens": "2"},
        {"prompt_tokens": True, "completion_tokens": 2},
        {"prompt_tokens": 1, "completion_tokens": 1e999},
        {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 9},
        },
    ],
)
def test_senseless_usage_is_unknown_and_never_nothing(usage: dict[str, Any]) -> None:
    said = events(chat_chunk("x" * 400), {"choices": [], "usage": usage}, "[DONE]")
    got = reading(OPENAI, said.replace("Infinity", "1e999").encode())
    assert got.usage is None
    assert "makes no sense" in got.notes[0]


@pytest.mark.parametrize("provider", PROTOCOLS)
@pytest.mark.parametrize("usage", [None, {}, [], "lots", {"output_tokens": 3}])
def test_usage_that_is_not_told_is_unknown(provider: Provider, usage: Any) -> None:
    got = answered(http(json.dumps({**WHOLE[provider], "usage": usage})), provider)
    assert got.usage is None
    assert got.notes == ("the provider told no usage: its tokens and cost are unknown",)
    assert got.use.tokens > 0, "the account's pace needs a guess"


def test_reasoning_that_a_server_counts_apart_is_output_too() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 34,
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    got = answered(http(json.dumps({**WHOLE[OPENAI], "usage": usage})))
    assert got.usage == {"input_tokens": 10, "output_tokens": 24, "reasoning_tokens": 20}


def test_what_anthropic_writes_to_its_cache_is_input_and_told_apart() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 20, "output_tokens": 2}
    got = answered(http(json.dumps({**WHOLE[ANTHROPIC], "usage": usage})), ANTHROPIC)
    assert got.usage == {
        "input_tokens": 25,
        "output_tokens": 2,
        "cached_tokens": 0,
        "cache_written_tokens": 20,
    }


# ---- statuses


def complaint(message: str, kind: str = "", code: Any = None) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}})


ACCOUNT, MODEL = "account:team-a", "model:haiku"


@pytest.mark.parametrize(
    ("status", "body", "kind", "stops", "words"),
    [
        (401, complaint("bad key"), Outcome.CRASHED, ACCOUNT, "the key in KEY was refused"),
        (402, complaint("pay"), Outcome.RATE_LIMITED, ACCOUNT, "quota or credit is used up"),
        (
            429,
            complaint("You exceeded …", "insufficient_quota", "insufficient_quota"),
            Outcome.RATE_LIMITED,
            ACCOUNT,
            "top up the account",
        ),
        (
            400,
            complaint("Your credit balance is too low to access the Anthropic API.", "x"),
            Outcome.RATE_LIMITED,
            ACCOUNT,
            "credit",
        ),
        (403, complaint("no"), Outcome.CRASHED, MODEL, "this key may not use it (403: no)"),
        (404, complaint("The model `x` does not exist"), Outcome.CRASHED, MODEL, "check model"),
        (404, "<html><title>404</title>", Outcome.CRASHED, MODEL, "and base_url (http://127"),
        (405, "", Outcome.CRASHED, MODEL, "base_url"),
        (400, complaint("x is not a valid model ID"), Outcome.CRASHED, MODEL, "('claude-x')"),
        (400, complaint("?", "", "model_not_found"), Outcome.CRASHED, MODEL, "no such model"),
        (400, complaint("bad temperature"), Outcome.CRASHED, None, "(400: bad temperature)"),
        (413, complaint("too large"), Outcome.CRASHED, None, "prompt's length"),
        (422, '{"detail": "odd"}', Outcome.CRASHED, None, "(422: odd)"),
    ],
)
def test_a_lasting_refusal_is_not_tried_again_and_stops_what_it_concerns(
    status: int, body: str, kind: Outcome, stops: str | None, words: str
) -> None:
    end = unanswered(http(body, f"{status} X"))
    assert (end.failure.kind, end.failure.stops, end.failure.lasting) == (kind, stops, True)
    assert words in end.failure.message
    assert end.use.requests == 1
    assert not end.use.refused
    assert end.spend is None


@pytest.mark.parametrize("status", [429, 529])
def test_a_rate_limit_holds_the_account_back(status: int) -> None:
    headers = "Retry-After: 7\r\nx-ratelimit-limit-requests: 60\r\n"
    end = unanswered(http(complaint("slow down"), f"{status} X", headers))
    assert end.failure.kind is Outcome.RATE_LIMITED
    assert end.failure.stops is None
    assert not end.failure.lasting
    assert end.failure.retry_after == end.use.retry_after == 7
    assert end.use.refused
    assert end.use.told is not None
    assert end.use.told.requests_per_minute == 60
    assert "slow down" in end.failure.message
    assert "come back in 7 s" in end.failure.message


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failing_provider_may_recover(status: int) -> None:
    end = unanswered(http("oh no\nreally", f"{status} X", "Retry-After: 3\r\n"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert not end.failure.lasting
    assert end.failure.retry_after == 3
    assert end.use.overloaded
    assert end.use.reached
    assert f"({status}: oh no really)" in end.failure.message


def test_a_request_timeout_may_pass() -> None:
    end = unanswered(http("", "408 X"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert not end.use.overloaded


@pytest.mark.parametrize("status", ["200 OK", "502 Bad Gateway", "400 Bad Request"])
def test_a_proxys_page_is_not_an_answer_and_not_the_provider(status: str) -> None:
    page = "\n<!DOCTYPE html><html><head><title>Access\ndenied</title></head></html>"
    end = unanswered(http(page, status, "Content-Type: text/html\r\n"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert not end.use.reached
    assert end.use.requests == 0
    assert "a web page: Access denied" in end.failure.message
    assert "check base_url and the proxy" in end.failure.message


def test_a_redirect_is_not_followed() -> None:
    async def go() -> tuple[Called | Unanswered, int]:
        async with Server(b"") as other:
            location = f"Location: http://127.0.0.1:{other.port}/v2\r\n"
            async with Server(http("", "307 Temporary Redirect", location)) as server:
                return await call(model_of(server)), other.connections

    end, connections = asyncio.run(go())
    assert isinstance(end, Unanswered)
    assert connections == 0
    assert end.failure.stops == MODEL
    assert "/v2 (307); not followed, because the key would go along" in end.failure.message


def test_a_long_and_wild_complaint_is_quoted_in_one_short_line() -> None:
    end = unanswered(http("\x1b[31m" + "a\n\0" * 50_000, "500 X"))
    assert len(end.failure.message) < 500
    assert end.failure.message.isprintable()


def test_a_complaint_that_never_ends_does_not_hold_the_refusal_up() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"", "429 X", "Retry-After: 9\r\n"))
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    assert unanswered(babble).failure.retry_after == 9


# ---- errors inside a stream


@pytest.mark.parametrize(
    ("provider", "event", "kind", "stops"),
    [
        (
            ANTHROPIC,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            Outcome.RATE_LIMITED,
            None,
        ),
        (
            ANTHROPIC,
            {"type": "error", "error": {"type": "api_error", "message": "Overloaded"}},
            Outcome.INFRA_ERROR,
            None,
        ),
        (
            ANTHROPIC,
            {"type": "error", "error": {"type": "authentication_error", "message": "?"}},
            Outcome.CRASHED,
            ACCOUNT,
        ),
        (
            OPENAI,
            {"error": {"type": "requests", "code": "rate_limit_exceeded", "message": "?"}},
            Outcome.RATE_LIMITED,
            None,
        ),
        (OPENAI, {"error": {"code": 502, "message": "upstream"}}, Outcome.INFRA_ERROR, None),
        (OPENAI, {"error": "something"}, Outcome.INFRA_ERROR, None),
        (
            OPENAI,
            {"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}},
            Outcome.CRASHED,
            None,
        ),
        (
            RESPONSES,
            {"type": "response.failed", "response": {"error": {"code": "server_error"}}},
            Outcome.INFRA_ERROR,
            None,
        ),
        (
            RESPONSES,
            {"type": "error", "code": "insufficient_quota", "message": "?"},
            Outcome.RATE_LIMITED,
            ACCOUNT,
        ),
    ],
)
def test_an_error_inside_a_stream_ends_by_its_kind(
    provider: Provider, event: dict[str, Any], kind: Outcome, stops: str | None
) -> None:
    end = unanswered(http(events(*STREAMS[provider][:3], event)), provider)
    assert (end.failure.kind, end.failure.stops) == (kind, stops)


def test_what_an_answer_cost_that_broke_off_is_unknown_once_some_of_it_came() -> None:
    begun = http(events(chat_chunk("Some"), {"error": {"code": 500}}))
    assert unanswered(begun).spend == Spend(calls=1, cost_usd=None)
    assert unanswered(http(events({"error": {"code": 500}}))).spend is None
    assert unanswered(http(events(chat_chunk("Some")))).spend == Spend(calls=1, cost_usd=None)


# ---- broken answers


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_stream_without_its_end_is_broken_off(provider: Provider) -> None:
    end = unanswered(http(events(*STREAMS[provider][:-1])), provider)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "broke off before its end" in end.failure.message
    cut = events(*STREAMS[provider]).rstrip("\n")[:-5]
    assert "broke off" in unanswered(http(cut), provider).failure.message


@pytest.mark.parametrize(
    "reply",
    [
        http(""),
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + events(chat_chunk("x")).encode(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\ndata:",
    ],
)
def test_a_body_that_is_shorter_than_said_is_broken_off(reply: bytes) -> None:
    end = unanswered(reply)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "broke off before its end" in end.failure.message


def test_a_reset_in_the_middle_may_pass() -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(events(chat_chunk("Some"))))
        await writer.drain()
        plug = writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    assert unanswered(reset).failure.kind is Outcome.INFRA_ERROR


def test_a_connection_closed_without_a_word_may_pass() -> None:
    end = unanswered(b"")
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "the connection broke: closed by the other side" in end.failure.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (events("{nonsense", "[DONE]"), "not JSON"),
        (events("7", "[DONE]"), "an event is a int"),
        (events("[" * 100_000, "[DONE]"), "not JSON"),
        (events('{"choices": [{"delta": {"content": NaN}}]}', "[DONE]"), "a number in it is none"),
        (events({"choices": 7}, "[DONE]"), "'choices' is a int"),
        (events({"choices": [7]}, "[DONE]"), "'choices' is a int"),
        (events({"choices": [{"delta": [7]}]}, "[DONE]"), "'delta' is a list"),
        (events(chat_chunk(7), "[DONE]"), "content is a int"),
        (events(chat_chunk([{"type": "text", "text": 7}]), "[DONE]"), "is a int"),
        (events(chat_chunk(tool_calls=[{"index": [1]}]), "[DONE]"), "not numbered"),
        (events(chat_chunk(tool_calls="find"), "[DONE]"), "'tool_calls' is a str"),
        (b"data: \xff\xfe\n\ndata: [DONE]\n\n", "not UTF-8"),
        ('{"choices": []}', "'choices' are empty"),
        ('{"model": "x"}', "'choices' is missing"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[1]", "it is a list"),
        ("{" * 50_000, "not JSON"),
        ('{"choices": [{"message": {"content": "x"', "not JSON"),
        ("upstream error", "neither JSON nor events: 'upstream error'"),
    ],
)
def test_an_answer_that_cannot_be_read_may_pass(body: str | bytes, words: str) -> None:
    end = unanswered(http(body))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert not end.failure.lasting
    assert words in end.failure.message


@pytest.mark.parametrize("provider", [RESPONSES, ANTHROPIC])
@pytest.mark.parametrize("wrong", [7, None, "x", [7], [None], {"a": 1}])
def test_wrong_types_where_the_answer_should_be_are_no_answer(
    provider: Provider, wrong: Any
) -> None:
    name = {RESPONSES: "output", ANTHROPIC: "content"}[provider]
    end = unanswered(http(json.dumps({**WHOLE[provider], name: wrong})), provider)
    assert "the answer cannot be read" in end.failure.message


@given(
    provider=st.sampled_from(PROTOCOLS),
    place=st.integers(0, 20),
    change=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["type", "delta", "choices", "usage", "index", "content", "error"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    ),
)
def test_no_event_whatsoever_gets_through_as_an_exception(
    provider: Provider, place: int, change: Any
) -> None:
    said = list(STREAMS[provider])
    known = said[place % len(said)]
    if isinstance(known, dict) and isinstance(change, dict):
        change = {**known, **change}
    said[place % len(said)] = change

    async def go() -> None:
        async with Server(
            http(events(*(json.dumps(one) if one != "[DONE]" else one for one in said)))
        ) as server:
            end = await call(model_of(server, provider))
            if isinstance(end, Called):
                end.text.encode()
                json.dumps(end.metadata)

    asyncio.run(go())


def test_a_packed_answer_is_not_unpacked() -> None:
    end = unanswered(http(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n"))
    assert "packed, which was not asked for" in end.failure.message


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\ndata:",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: y\r\n" * 10_000 + b"\r\n",
    ],
)
def test_what_is_not_http_is_not_the_provider(reply: bytes) -> None:
    end = unanswered(reply)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert not end.use.reached
    assert "what came back is not proper HTTP" in end.failure.message


# ---- too much


def flood(start: str, piece: bytes, end: str = "") -> tuple[Play, list[int]]:
    """A body of 50 MB and more, and how much of it went out."""
    count = [0]

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(start))
        while count[0] < 50_000_000:
            writer.write(piece)
            count[0] += len(piece)
            await writer.drain()
        writer.write(end.encode())
        await writer.drain()

    return play, count


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        ("", events(chat_chunk("x" * 50_000)).encode()),
        ("", events(chat_chunk(tool_calls=[{"function": {"arguments": "x" * 50_000}}])).encode()),
        ('{"choices": [{"message": {"content": "', b"x" * 50_000),
        ("data: ", b"x" * 50_000),
        ("", b" " * 50_000),
    ],
)
def test_an_answer_of_50_mb_is_not_read_to_its_end(start: str, piece: bytes) -> None:
    play, count = flood(start, piece)
    end = unanswered(play)
    assert end.failure.kind is Outcome.INVALID_OUTPUT
    assert end.failure.lasting
    assert "longer than 1,048,576 bytes" in end.failure.message
    assert "set max_tokens" in end.failure.message
    assert count[0] < 30_000_000, "what the sockets hold comes on top of what is read"


def test_the_longest_answer_is_read_and_one_byte_more_is_not() -> None:
    half = "é" * (ANSWER_LIMIT_BYTES // 4)
    said = [chat_chunk(half), chat_chunk(half)]
    got = answered(http(events(*said, "[DONE]")))
    assert len(got.text.encode()) == ANSWER_LIMIT_BYTES
    end = unanswered(http(events(*said, chat_chunk("!"), "[DONE]")))
    assert end.failure.kind is Outcome.INVALID_OUTPUT


# ---- silence


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def test_a_server_that_says_nothing_is_silent() -> None:
    end = unanswered(hang, idle_timeout=0.1)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "silent for 0.1 s (idle_timeout)" in end.failure.message


def test_a_stream_that_falls_silent_in_its_middle_is_silent_too() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(events(chat_chunk("Some"))))
        await reader.read()

    end = unanswered(stall, idle_timeout=0.1)
    assert "silent for 0.1 s" in end.failure.message
    assert end.spend == Spend(calls=1, cost_usd=None)


def test_a_drip_is_not_silent_and_ends_with_the_whole_time() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(""))
        while True:
            writer.write(b":")
            await writer.drain()
            await asyncio.sleep(0.02)

    end = unanswered(drip, timeout=0.4, idle_timeout=0.2)
    assert end.failure.kind is Outcome.TIMEOUT
    assert "not done after 0.4 s" in end.failure.message
    assert end.spend == Spend(calls=1, cost_usd=None)


def test_without_a_stream_only_the_whole_time_counts() -> None:
    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(http(json.dumps(WHOLE[OPENAI])))

    assert answered(slow, idle_timeout=0.1, options={"stream": False}).text == "Good day"


def test_a_requests_own_time_goes_before_the_models() -> None:
    async def go() -> Called | Unanswered:
        async with Server(hang) as server:
            return await call(model_of(server), timeout=0.1)

    end = asyncio.run(go())
    assert isinstance(end, Unanswered)
    assert end.failure.kind is Outcome.TIMEOUT


def test_a_cancelled_call_closes_its_connection() -> None:
    async def go() -> None:
        arrived, closed = asyncio.Event(), asyncio.Event()

        async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(http(events(chat_chunk("Some"))))
            arrived.set()
            await reader.read()
            closed.set()

        async with (
            Server(watch) as server,
            Wire(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            task = asyncio.create_task(wire.call(request_of(model_of(server))))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(10):
                await closed.wait()

    asyncio.run(go())


# ---- no way there


def unreached(model: Model, environment: dict[str, str] = ENVIRONMENT) -> Unanswered:
    end = asyncio.run(call(model, environment=environment))
    assert isinstance(end, Unanswered)
    assert "model 'haiku'" in end.failure.message
    assert not end.use.reached
    assert end.use.requests == 0
    assert end.spend is None
    return end


def test_a_host_that_does_not_exist() -> None:
    end = unreached(model_of(base_url="https://models.invalid/v1"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert end.failure.stops is None
    assert "there is no host 'models.invalid'; check base_url" in end.failure.message


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        end = unreached(model_of(base_url=f"http://127.0.0.1:{port}/v1"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert f"no connection to 127.0.0.1:{port} (" in end.failure.message
    assert "is the server up?" in end.failure.message


@pytest.mark.parametrize("base_url", ["ftp://127.0.0.1/v1", "nonsense", "http://", "http://a..b/"])
def test_a_base_url_that_is_no_address_stops_the_model(base_url: str) -> None:
    end = unreached(model_of(base_url=base_url))
    assert end.failure.stops == MODEL or "there is no host" in end.failure.message


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += " -subj /CN=localhost -keyout key.pem -out cert.pem"
    try:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs the openssl program")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_a_certificate_that_is_not_trusted_stops_the_model(self_signed: ssl.SSLContext) -> None:
    async def go() -> tuple[Called | Unanswered, Server]:
        async with Server(b"", tls=self_signed) as server:
            return await call(model_of(base_url=f"https://127.0.0.1:{server.port}/v1")), server

    end, server = asyncio.run(go())
    assert isinstance(end, Unanswered)
    assert end.failure.stops == MODEL
    assert "certificate is not trusted (self-signed certificate)" in end.failure.message
    assert "SSL_CERT_FILE" in end.failure.message
    assert server.seen == [], "the key was not sent"


def test_a_server_without_tls_where_tls_is_asked_for() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def go() -> Called | Unanswered:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await call(model_of(base_url=f"https://127.0.0.1:{port}/v1"))

    end = asyncio.run(go())
    assert isinstance(end, Unanswered)
    assert not end.use.reached
    assert "no TLS with 127.0.0.1" in end.failure.message


# ---- proxies


def test_a_proxy_of_the_environment_is_used() -> None:
    async def go() -> Seen:
        async with Server(http(events(*STREAMS[OPENAI]))) as proxy:
            environment = {**ENVIRONMENT, "HTTP_PROXY": f"http://127.0.0.1:{proxy.port}"}
            model = model_of(base_url="http://models.invalid/v1")
            assert isinstance(await call(model, environment=environment), Called)
            return proxy.seen[0]

    assert asyncio.run(go()).line == "POST http://models.invalid/v1/chat/completions HTTP/1.1"


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://a.example/v1", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.example/v1", {"HTTPS_PROXY": "p:1"}, "http://p:1"),
        ("https://a.example/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://a.example/v1", {"HTTPS_PROXY": "http://p:1", "https_proxy": ""}, None),
        (
            "https://a.example/v1",
            {"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q:2"},
            "http://q:2",
        ),
        ("https://a.example/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, None),
        ("https://a.example/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("http://127.0.0.1:8/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://localhost:8/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://[::1]:8/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://a.example/v1", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
    ],
)
def test_which_proxy_is_used(url: str, environment: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(URL(url), environment) == (URL(proxy) if proxy else None)


def test_a_proxy_that_wants_a_password_stops_the_model() -> None:
    async def go() -> Called | Unanswered:
        async with Server(http("", "407 Proxy Authentication Required")) as proxy:
            environment = {
                **ENVIRONMENT,
                "https_proxy": f"http://me:pa55-w0rd@127.0.0.1:{proxy.port}",
            }
            return await call(
                model_of(base_url="https://models.invalid/v1"), environment=environment
            )

    end = asyncio.run(go())
    assert isinstance(end, Unanswered)
    assert end.failure.stops == MODEL
    assert "HTTPS_PROXY" in end.failure.message
    assert "pa55-w0rd" not in repr(end)


def test_a_proxy_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {**ENVIRONMENT, "https_proxy": f"127.0.0.1:{free.getsockname()[1]}"}
        end = unreached(model_of(base_url="https://models.invalid/v1"), environment)
    assert "no connection to the proxy 127.0.0.1" in end.failure.message


# ---- keys


def test_keys_that_are_not_there_are_named() -> None:
    models = [
        model_of(name="a", api_key_env="KEY"),
        model_of(name="b", api_key_env="OTHER"),
        model_of(name="c", api_key_env="BLANK"),
        model_of(name="d", api_key_env=None),
    ]
    missing = missing_keys(models, {**ENVIRONMENT, "BLANK": " \n"})
    assert missing == (("b", "OTHER"), ("c", "BLANK"))


@pytest.mark.parametrize("key", ["", " ", "sk-1234\r\nX-Evil: 1", "sk-1234é"])
def test_without_a_key_that_can_be_sent_no_call_is_made(key: str) -> None:
    async def go() -> tuple[Called | Unanswered, int]:
        async with Server(b"") as server:
            return await call(model_of(server), environment={"KEY": key}), server.connections

    end, connections = asyncio.run(go())
    assert isinstance(end, Unanswered)
    assert end.failure.stops == ACCOUNT
    assert end.use.requests == 0
    assert "KEY" in end.failure.message
    assert "1234" not in repr(end)
    assert connections == 0


def test_white_space_around_a_key_is_not_sent() -> None:
    async def go() -> str:
        async with Server(http(events(*STREAMS[OPENAI]))) as server:
            await call(model_of(server), environment={"KEY": f" {KEY}\n"})
            return server.seen[0].headers["authorization"]

    assert asyncio.run(go()) == f"Bearer {KEY}"


def forms(key: str) -> Sequence[str]:
    data = key.encode()
    return [
        key,
        *(base64.b64encode(b"x" * n + data + b"yz").decode() for n in range(3)),
        *(base64.urlsafe_b64encode(b"x" * n + data).decode() for n in range(3)),
        quote(key, safe=""),
        quote(key),
        json.dumps(key)[1:-1],
        data.hex(),
        data.hex().upper(),
    ]


def parts_of(form: str) -> list[str]:
    """What of it tells something of the key, whatever stands around it."""
    return [form[start : start + 12] for start in range(3, len(form) - 15, 6)]


@pytest.mark.parametrize("form", forms(KEY))
def test_a_key_that_is_echoed_is_taken_out_of_an_answer(form: str) -> None:
    letters = [chat_chunk(letter) for letter in f"Your key: {form}!"]
    tool = chat_chunk(tool_calls=[{"function": {"name": form, "arguments": form}}])
    got = answered(http(events(*letters, tool, "[DONE]"), headers=f"X-Request-Id: {form}\r\n"))
    assert got.text.startswith("Your key: ")
    assert got.text.endswith("!")
    assert MARK in got.text
    assert REDACTED in got.notes
    assert all(part not in repr(got) for part in parts_of(form))


@pytest.mark.parametrize("form", forms(KEY))
def test_a_key_that_is_echoed_is_taken_out_of_a_complaint(form: str) -> None:
    refusals = [
        http(complaint(f"Incorrect API key: {form}"), "401 X"),
        http(form, "500 X"),
        http("", "302 X", f"Location: https://else.example/?{form}\r\n"),
        http(f"<html><title>{form}</title>"),
        http(events({"error": form})),
        http(form),
        http("x" * 290 + form, "500 X"),
        http(complaint("x" * 290 + form), "400 X"),
        http("x" * 280 + form),
        http(f"{form}{{", headers="Content-Type: application/json\r\n"),
        http(f'{{"{form}": 1, "{form}": 2}}'),
        http(events({form: 1}, form)),
        http(b"HTTP/1.1 " + form.encode()),
        form.encode() + b"\r\n\r\n",
    ]
    for reply in refusals:
        end = unanswered(reply)
        assert end.failure.message.isprintable()
        assert all(part not in repr(end) for part in parts_of(form))


def test_a_short_key_is_left_so_that_answers_stay_as_they_are() -> None:
    redactor = Redactor(["none"])
    assert redactor.text("none of bm9uZQ== 6e6f6e65") == "none of bm9uZQ== 6e6f6e65"


def test_a_text_without_a_secret_stays_the_same_object() -> None:
    text = "nothing to see"
    assert Redactor([KEY]).text(text) is text
    assert not Redactor([KEY]).is_in([text])


@given(
    secret=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=8),
    around=st.text(),
)
def test_no_secret_survives(secret: str, around: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.text(f"{around}{secret}{around}").replace(MARK, "\0")


def test_the_key_is_not_shown_by_anything_that_a_wire_says_of_itself() -> None:
    async def go() -> str:
        async with (
            Server(http(events(*STREAMS[OPENAI]))) as server,
            Wire(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            got = await wire.call(request_of(model_of(server)))
            return repr(wire) + repr(got)

    assert KEY not in asyncio.run(go())
