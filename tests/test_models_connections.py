"""Connections: kept for the next call, replaced where one has gone, and never too many."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest

from paraval.models.http_call import CallResult, Connections, HttpCaller, most_connections
from paraval.models.requests import FailedCall
from paraval.records import Outcome, Spend
from tests.exact_server import (
    ENVIRONMENT,
    OPENAI,
    STREAMS,
    Play,
    Server,
    chat_chunk,
    events,
    model_of,
    read_request,
    request_of,
    unanswered,
)

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: str) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data.encode()), data.encode())


KEPT = HEAD + chunk(events(*STREAMS[OPENAI])) + b"0\r\n\r\n"
"""An answer after which the connection stays."""


# ---- connections that went while nobody looked


def two_calls(*plays: Play) -> tuple[list[CallResult | FailedCall], Server]:
    """One call after the other over one wire; each connection has its own play."""

    async def go() -> tuple[list[CallResult | FailedCall], Server]:
        async with (
            Server(*plays) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            request = request_of(model_of(server, timeout=10, idle_timeout=5))
            return [await wire.call(request), await wire.call(request)], server

    return asyncio.run(go())


def after_an_answer(then: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> Play:
    """Answers, and does this at the next request."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(KEPT)
        await read_request(reader)
        await then(writer)

    return play


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def begin_and_close(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 20")
    await writer.drain()


async def half_an_answer(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(events(chat_chunk("Some"))))
    await writer.drain()


@pytest.mark.parametrize("end", [close, reset])
def test_a_kept_connection_that_is_gone_is_no_failure(
    end: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> None:
    [first, second], server = two_calls(after_an_answer(end))
    assert isinstance(first, CallResult)
    assert isinstance(second, CallResult)
    assert second.use.requests == 1
    assert server.connections == 2


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_it_is_tried_once_more_and_not_again_and_again() -> None:
    [_, second], server = two_calls(after_an_answer(close), hang_up)
    assert isinstance(second, FailedCall)
    assert second.failure.kind is Outcome.INFRA_ERROR
    assert second.spend == Spend(calls=1, cost_usd=None)
    assert server.connections == 2


@pytest.mark.parametrize("end", [begin_and_close, half_an_answer])
def test_what_a_server_began_to_answer_is_not_sent_again(
    end: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> None:
    [_, second], server = two_calls(after_an_answer(end))
    assert isinstance(second, FailedCall)
    assert second.failure.kind is Outcome.INFRA_ERROR
    assert server.connections == 1


def test_what_breaks_on_a_new_connection_is_not_sent_again() -> None:
    async def go() -> tuple[CallResult | FailedCall, int]:
        async with (
            Server(hang_up) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            return await wire.call(request_of(model_of(server))), server.connections

    end, connections = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert connections == 1


def test_the_second_sending_goes_over_a_new_connection_and_not_over_another_old_one() -> None:
    async def go() -> tuple[list[CallResult | FailedCall], int]:
        async with (
            Server(after_an_answer(close)) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            request = request_of(model_of(server))
            await asyncio.gather(*(wire.call(request) for _ in range(5)))
            return [await wire.call(request)], server.connections

    [end], connections = asyncio.run(go())
    assert isinstance(end, CallResult)
    assert connections == 6


# ---- connections that break in the middle


@pytest.mark.parametrize(
    "rest", [b"zz\r\nxx", b"f" * 20 + b"\r\nabc", b"3\r\nabcXX", b"\0\0\0", KEPT]
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_chunk_that_is_none_ends_the_call_at_once(rest: bytes, stream: bool) -> None:
    """Nothing else would: the silence that follows is the server's, but not one that is timed."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(events(chat_chunk("Some"))))
        await writer.drain()
        # So that it comes by itself, when the reader is at work.
        await asyncio.sleep(0.02)
        writer.write(rest)
        await reader.read()

    end = unanswered(play, timeout=20, idle_timeout=15, options={} if stream else {"stream": False})
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "the answer was cut off" in end.failure.message
    assert end.spend == Spend(calls=1, cost_usd=None)


# ---- how many


def keep_answering(counts: list[int]) -> Play:
    """`counts`: open now, and the most that were."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        counts[0] += 1
        counts[1] = max(counts)
        try:
            while True:
                writer.write(KEPT)
                await read_request(reader)
        finally:
            counts[0] -= 1

    return play


def test_idle_connections_to_other_hosts_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (240, 240))
    assert most_connections() == 40
    counts = [0, 0]

    async def go() -> None:
        async with AsyncExitStack() as stack:
            wire = await stack.enter_async_context(
                HttpCaller(environment=ENVIRONMENT, addresses={})
            )
            for number in range(80):
                server = await stack.enter_async_context(Server(keep_answering(counts)))
                request = request_of(model_of(server, name=f"m{number}"))
                assert isinstance(await wire.call(request), CallResult)

    asyncio.run(go())
    assert counts[1] <= 40


def test_connections_to_one_host_are_kept_as_many_as_there_are() -> None:
    async def go() -> int:
        async with (
            Server(keep_answering([0, 0])) as server,
            aiohttp.ClientSession(connector=Connections(10)) as session,
        ):

            async def ask() -> None:
                async with session.post(f"http://127.0.0.1:{server.port}") as response:
                    await response.read()

            for _ in range(3):
                await asyncio.gather(*(ask() for _ in range(10)))
            return server.connections

    assert asyncio.run(go()) == 10


def test_more_calls_than_may_be_open_wait_for_one_another() -> None:
    counts = [0, 0]

    async def go() -> None:
        async with (
            Server(keep_answering(counts)) as server,
            aiohttp.ClientSession(connector=Connections(4)) as session,
        ):

            async def ask() -> None:
                async with session.post(f"http://127.0.0.1:{server.port}") as response:
                    assert b"Good" in await response.read()

            await asyncio.gather(*(ask() for _ in range(30)))

    asyncio.run(go())
    assert counts[1] <= 4


@pytest.mark.parametrize(
    ("soft", "per_call", "most"),
    [(1024, 1, 824), (1024, 2, 412), (100, 1, 16), (resource.RLIM_INFINITY, 1, 100_000)],
)
def test_as_many_connections_as_files_may_be_open(
    soft: int, per_call: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections(per_call=per_call) == most
