"""Refusals, failures and broken answers: each ends in its own way, and says what to do."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.models.http_call import CallResult
from paraval.models.requests import FailedCall
from paraval.records import Outcome, Provider, Spend
from paraval.settings import ANSWER_LIMIT_BYTES
from tests.exact_server import (
    ACCOUNT,
    ANTHROPIC,
    ENDING,
    MODEL,
    OPENAI,
    PROTOCOLS,
    RESPONSES,
    STREAMS,
    WHOLE,
    Play,
    Server,
    answered,
    call,
    chat_chunk,
    complaint,
    events,
    http,
    model_of,
    unanswered,
)

# ---- statuses


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
        (
            403,
            complaint("no"),
            Outcome.CRASHED,
            MODEL,
            "this key is not allowed to use it (403: no)",
        ),
        (404, complaint("The model `x` does not exist"), Outcome.CRASHED, MODEL, "check model"),
        (404, "<html><title>404</title>", Outcome.CRASHED, MODEL, "and base_url (http://127"),
        (405, "", Outcome.CRASHED, MODEL, "base_url"),
        (400, complaint("x is not a valid model ID"), Outcome.CRASHED, MODEL, "('claude-x')"),
        (
            400,
            complaint("?", "", "model_not_found"),
            Outcome.CRASHED,
            MODEL,
            "model or path not found",
        ),
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
    assert "retry after 7 s" in end.failure.message


@pytest.mark.parametrize(
    ("message", "provider", "whole"),
    [
        ("Rate limit reached", OPENAI, False),
        ("Rate limit reached for claude-x in organization org-a on requests", OPENAI, False),
        ("You have exceeded the requests of this model for your account", OPENAI, False),
        ("Rate limit of your organization org-a reached", OPENAI, True),
        ("Too many requests with this API key", OPENAI, True),
        ("This request would exceed your organization's rate limit", Provider.ANTHROPIC, False),
    ],
)
def test_a_refusal_that_names_who_calls_and_no_model_holds_back_the_whole_account(
    message: str, provider: Provider, whole: bool
) -> None:
    end = unanswered(http(complaint(message), "429 X"), provider)
    assert end.use.whole_account is whole
    model = "account:team-a model:claude-x"
    assert end.use.account == model
    assert end.failure.account == ("account:team-a" if whole else model)


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
    assert "got a web page instead of an answer" in end.failure.message
    assert ": Access denied)" in end.failure.message
    assert "check base_url and the proxy" in end.failure.message


def test_a_redirect_is_not_followed() -> None:
    async def go() -> tuple[CallResult | FailedCall, int]:
        async with Server(b"") as other:
            location = f"Location: http://127.0.0.1:{other.port}/v2\r\n"
            async with Server(http("", "307 Temporary Redirect", location)) as server:
                return await call(model_of(server)), other.connections

    end, connections = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert connections == 0
    assert end.failure.stops == MODEL
    assert "/v2 (307); not followed, since the key would be sent there" in end.failure.message


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
    assert unanswered(http(json.dumps({"error": {"code": 500}}))).spend is None
    assert unanswered(http(events(chat_chunk("Some")))).spend == Spend(calls=1, cost_usd=None)


# ---- no answer in what looks like one


def whole_chat(**choice: Any) -> str:
    return json.dumps({"model": "x", "choices": [choice]})


def whole_response(**fields: Any) -> str:
    return json.dumps({**WHOLE[RESPONSES], **fields})


@pytest.mark.parametrize(
    ("provider", "body", "words"),
    [
        (OPENAI, events("[DONE]"), "was cut off"),
        (OPENAI, events({"choices": []}, "[DONE]"), "was cut off"),
        (OPENAI, events(chat_chunk("Some"), "[DONE]"), "was cut off"),
        (OPENAI, events(chat_chunk("Some"), chat_chunk(finish_reason="error")), "is 'error'"),
        (OPENAI, events(chat_chunk("Some", finish_reason="abort"), "[DONE]"), "is 'abort'"),
        (OPENAI, whole_chat(message={"content": "So"}, finish_reason="error"), "is 'error'"),
        (
            OPENAI,
            whole_chat(message={"content": ""}, error={"code": 502, "message": "upstream died"}),
            "the provider failed (502: upstream died)",
        ),
        (OPENAI, whole_chat(), "'message' is missing"),
        (OPENAI, whole_chat(index=0, message=None, finish_reason=None), "'message' is missing"),
        (OPENAI, whole_chat(message={}), "neither text nor a finish reason"),
        (OPENAI, whole_chat(message={"content": None}), "neither text nor a finish reason"),
        (OPENAI, whole_chat(index=1, message={"content": "B"}), "first of its 'choices'"),
        (
            RESPONSES,
            whole_response(status="queued", output=[]),
            "not that of a finished answer",
        ),
        (RESPONSES, whole_response(status="in_progress"), "'in_progress'"),
        (RESPONSES, whole_response(status="cancelled"), "was cancelled"),
        (RESPONSES, whole_response(status="failed"), "failed without a reason"),
        (RESPONSES, whole_response(status=None), "'status' is missing"),
        (ANTHROPIC, events({"type": "message_stop"}), "was cut off"),
        (ANTHROPIC, events(*STREAMS[ANTHROPIC][:-2], {"type": "message_stop"}), "was cut off"),
        (ANTHROPIC, json.dumps({**WHOLE[ANTHROPIC], "stop_reason": None}), "was cut off"),
    ],
)
def test_a_200_that_is_no_answer_is_not_taken_for_one(
    provider: Provider, body: str, words: str
) -> None:
    end = unanswered(http(body), provider)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert not end.failure.lasting
    assert words in end.failure.message


# ---- broken answers


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_stream_without_its_end_is_broken_off(provider: Provider) -> None:
    end = unanswered(http(events(*STREAMS[provider][:3])), provider)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "the answer was cut off" in end.failure.message
    cut = events(*STREAMS[provider]).rstrip("\n")[:-5]
    assert "was cut off" in unanswered(http(cut), provider).failure.message


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
    assert "the answer was cut off" in end.failure.message


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
    assert "connection lost: closed by the server" in end.failure.message
    assert end.spend == Spend(calls=1, cost_usd=None), "it may have worked on it until then"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (events("{nonsense", "[DONE]"), "not JSON"),
        (events("7", "[DONE]"), "an event is a number"),
        (events("[" * 100_000, "[DONE]"), "not JSON"),
        (
            events('{"choices": [{"delta": {"content": NaN}}]}', "[DONE]"),
            "it contains an invalid number",
        ),
        (events({"choices": 7}, "[DONE]"), "'choices' is a number"),
        (events({"choices": [7]}, "[DONE]"), "'choices' is a number"),
        (events({"choices": [{"delta": [7]}]}, "[DONE]"), "'delta' is a list"),
        (events(chat_chunk(7), "[DONE]"), "content is a number"),
        (events(chat_chunk([{"type": "text", "text": 7}]), "[DONE]"), "is a number"),
        (events(chat_chunk(tool_calls=[{"index": [1]}]), "[DONE]"), "invalid indexes"),
        (events(chat_chunk(tool_calls="find"), "[DONE]"), "'tool_calls' is a text"),
        (b"data: \xff\xfe\n\ndata: [DONE]\n\n", "not UTF-8"),
        ('{"choices": []}', "'choices' are empty"),
        ('{"model": "x"}', "'choices' is missing"),
        ('{"a": 1, "a": 2}', "duplicate key"),
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


@settings(max_examples=60, deadline=None)
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
            if isinstance(end, CallResult):
                end.text.encode()
                json.dumps(end.metadata)

    asyncio.run(go())


def test_a_packed_answer_is_not_unpacked() -> None:
    end = unanswered(http(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n"))
    assert "compressed, which was not requested" in end.failure.message


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
    assert "the response is not valid HTTP" in end.failure.message


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
    assert "the limit of 1,048,576 bytes" in end.failure.message
    assert "set max_tokens" in end.failure.message
    assert count[0] < 30_000_000, "what the sockets hold comes on top of what is read"


def test_the_longest_answer_is_read_and_one_byte_more_is_not() -> None:
    half = "é" * (ANSWER_LIMIT_BYTES // 4)
    said = [chat_chunk(half), chat_chunk(half)]
    got = answered(http(events(*said, *ENDING)))
    assert len(got.text.encode()) == ANSWER_LIMIT_BYTES
    end = unanswered(http(events(*said, chat_chunk("!"), *ENDING)))
    assert end.failure.kind is Outcome.INVALID_OUTPUT
