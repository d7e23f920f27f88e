"""What is sent to a model, and how what comes back is read, in each of the three protocols."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.models.endpoints import ADAPTERS
from paraval.models.http_call import CallResult, HttpCaller
from paraval.models.requests import FailedCall
from paraval.models.response_reader import TooLongError
from paraval.models.response_stream import PIECE_LIMIT_BYTES, AnswerBytes
from paraval.records import Provider
from tests.exact_server import (
    ANTHROPIC,
    ENDING,
    ENDS,
    ENVIRONMENT,
    KEY,
    OPENAI,
    PROTOCOLS,
    RESPONSES,
    STREAMS,
    WHOLE,
    Seen,
    Server,
    answered,
    call,
    chat_chunk,
    ended,
    events,
    http,
    model_of,
    read_request,
    reading,
    request_of,
    response,
    usage_in,
)


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


@settings(deadline=None)
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


@settings(deadline=None)
@given(
    texts=st.lists(st.text('a"\\\n é😀{}:,', max_size=5)),
    ascii_only=st.booleans(),
    of_others=st.sets(st.integers(0, 9)),
)
def test_texts_that_come_in_equal_events_are_put_together_whatever_is_in_them(
    texts: list[str], ascii_only: bool, of_others: set[int]
) -> None:
    chunks = [chat_chunk(text) for text in texts]
    for number in of_others.intersection(range(len(texts))):
        chunks[number]["choices"][0]["index"] = 1
    encode = json.JSONEncoder(ensure_ascii=ascii_only, separators=(",", ":")).encode
    said = events(*map(encode, chunks), *map(encode, ENDING[:1]), ENDING[1])
    expected = "".join(text for number, text in enumerate(texts) if number not in of_others)
    assert reading(OPENAI, said.encode()).text == expected


def test_a_character_split_in_two_halves_over_two_events_is_made_whole() -> None:
    parts = [r'"a\ud83d"', r'"\ude00b"', r'" \ud83d!"']
    chunks = [json.dumps(chat_chunk("?")).replace('"?"', part) for part in parts]
    got = answered(http(events(*chunks, *ENDING)))
    assert got.text == "a😀b \ufffd!"


# ---- ends


def test_a_stream_that_told_its_finish_reason_is_whole_without_its_done() -> None:
    said = events(*STREAMS[OPENAI][:-1])
    chunked = f"{len(said):x}\r\n{said}\r\n0\r\n\r\n".encode()
    got = answered(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
    assert (got.text, got.usage) == ("Good day", usage_in(OPENAI))


def test_an_empty_answer_is_an_answer() -> None:
    assert answered(http(events(*ENDING))).text == ""
    whole = {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}
    assert answered(http(json.dumps(whole))).text == ""


@pytest.mark.parametrize("finish", [{}, {"finish_reason": None}])
def test_in_one_piece_a_text_is_an_answer_without_a_finish_reason(finish: dict[str, None]) -> None:
    whole = {"choices": [{"message": {"content": "So"}, **finish}]}
    got = answered(http(json.dumps(whole)))
    assert got.text == "So"
    assert "finish_reason" not in got.metadata


@pytest.mark.parametrize(
    "said",
    [
        events(*STREAMS[OPENAI]) + ": x",
        events(*STREAMS[OPENAI]).replace("\n", "\r"),
        events(*STREAMS[OPENAI]).replace("\n", "\r\n") + "data",
    ],
)
def test_an_end_is_seen_at_once_whatever_follows_it(said: str) -> None:
    answer = AnswerBytes(ADAPTERS[OPENAI])
    answer.feed(said.encode())
    assert answer.done
    assert answer.finish().text == "Good day"


def test_an_event_of_very_many_lines_is_not_looked_through_again_for_each_of_them() -> None:
    """8 MB in lines of 80 bytes: looked through each time, that would take many minutes."""
    answer = AnswerBytes(ADAPTERS[OPENAI])
    line = b"data: " + b" " * 73 + b"\n"
    for _ in range(PIECE_LIMIT_BYTES // len(line)):
        answer.feed(line)
    with pytest.raises(TooLongError):
        answer.feed(line)


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


def test_a_loopback_model_is_called_where_the_run_put_it_by_the_name_of_its_account() -> None:
    async def go() -> tuple[CallResult | FailedCall, Seen]:
        async with Server(http(events(*STREAMS[OPENAI]))) as server:
            model = model_of(provider=Provider.LOOPBACK, base_url="", api_key_env=None)
            addresses = {"haiku": f"http://127.0.0.1:{server.port}/made"}
            async with HttpCaller(environment={}, addresses=addresses) as wire:
                return await wire.call(request_of(model)), server.seen[0]

    got, seen = asyncio.run(go())
    assert isinstance(got, CallResult)
    assert seen.line.startswith("POST /made/chat/completions ")
    assert seen.headers["authorization"] == f"Bearer {model_of().account}"


def test_options_that_are_no_json_stop_the_model_before_a_call() -> None:
    end, server = ended(b"", options={"temperature": float("nan")})
    assert isinstance(end, FailedCall)
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
    got = answered(http(events(chat_chunk(refusal="I'd "), chat_chunk(refusal="not"), *ENDING)))
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
    said = events(chat_chunk(parts), chat_chunk(" day"), *ENDING)
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
                *ENDING,
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
                *STREAMS[ANTHROPIC][-2:],
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
    got = answered(http(events({"choices": choices}, {"choices": choices}, *ENDING)))
    assert got.text == "AA"
    assert "got several answers; using the first" in got.notes


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
            async with HttpCaller(environment=ENVIRONMENT, addresses={}) as wire:
                for _ in range(3):
                    assert isinstance(await wire.call(request), CallResult)
            return server.connections

    assert asyncio.run(go()) == 1


# ---- usage


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": 1, "completion_tokens": 10**12},
        {"prompt_tokens": 1, "completion_tokens": 10**400},
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
    said = events(chat_chunk("x" * 400), {"choices": [], "usage": usage}, *ENDING)
    got = reading(OPENAI, said.replace("Infinity", "1e999").encode())
    assert got.usage is None
    assert "is implausible" in got.notes[0]


@pytest.mark.parametrize("provider", PROTOCOLS)
@pytest.mark.parametrize("usage", [None, {}, [], "lots", {"output_tokens": 3}])
def test_usage_that_is_not_told_is_unknown(provider: Provider, usage: Any) -> None:
    got = answered(http(json.dumps({**WHOLE[provider], "usage": usage})), provider)
    assert got.usage is None
    assert got.notes == ("the provider reported no usage: tokens and cost are unknown",)
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
