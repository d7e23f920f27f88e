"""A model server that sends exact bytes, and the same answer in each of the protocols."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from paraval.models.endpoints import ADAPTERS
from paraval.models.http_call import CallResult, HttpCaller
from paraval.models.requests import FailedCall, Request
from paraval.models.response_reader import AnswerReading
from paraval.models.response_stream import AnswerBytes
from paraval.records import Message, Model, Provider, call_need

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
) -> CallResult | FailedCall:
    async with HttpCaller(environment=environment, addresses={}) as wire:
        return await wire.call(request_of(model, **fields))


def ended(
    reply: bytes | Play, provider: Provider = OPENAI, **fields: Any
) -> tuple[CallResult | FailedCall, Server]:
    """How a call of a server with this reply ends."""

    async def go() -> tuple[CallResult | FailedCall, Server]:
        async with Server(reply) as server:
            return await call(model_of(server, provider, **fields)), server

    return asyncio.run(go())


def answered(reply: bytes | Play, provider: Provider = OPENAI, **fields: Any) -> CallResult:
    end = ended(reply, provider, **fields)[0]
    assert isinstance(end, CallResult), end
    return end


def unanswered(reply: bytes | Play, provider: Provider = OPENAI, **fields: Any) -> FailedCall:
    end = ended(reply, provider, **fields)[0]
    assert isinstance(end, FailedCall), end
    assert "model 'haiku'" in end.failure.message
    assert end.use.account == call_need(model_of(None, provider, **fields))
    assert end.failure.account in ("account:team-a", end.use.account)
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


ENDING = (chat_chunk(finish_reason="stop"), "[DONE]")
"""How a stream of chunks ends."""
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


def reading(provider: Provider, *chunks: bytes) -> AnswerReading:
    answer = AnswerBytes(ADAPTERS[provider])
    for chunk in chunks:
        answer.feed(chunk)
    return answer.finish()


def complaint(message: str, kind: str = "", code: Any = None) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}})


ACCOUNT, MODEL = "account:team-a", "model:haiku"
