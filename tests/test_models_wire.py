"""The way to a model: silence, no connection, TLS, proxies, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from yarl import URL

from paraval.models.endpoints import proxy_for
from paraval.models.http_call import CallResult, HttpCaller
from paraval.models.requests import FailedCall
from paraval.records import Model, Outcome, Spend
from tests.exact_server import (
    ENVIRONMENT,
    MODEL,
    OPENAI,
    STREAMS,
    WHOLE,
    Seen,
    Server,
    answered,
    call,
    chat_chunk,
    events,
    http,
    model_of,
    request_of,
    unanswered,
)

# ---- silence


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def test_a_server_that_says_nothing_is_silent() -> None:
    end = unanswered(hang, idle_timeout=0.1)
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert "no data for 0.1 s (idle_timeout)" in end.failure.message


def test_a_stream_that_falls_silent_in_its_middle_is_silent_too() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(events(chat_chunk("Some"))))
        await reader.read()

    end = unanswered(stall, idle_timeout=0.1)
    assert "no data for 0.1 s" in end.failure.message
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
    assert "timed out after 0.4 s" in end.failure.message
    assert end.spend == Spend(calls=1, cost_usd=None)


def test_without_a_stream_only_the_whole_time_counts() -> None:
    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(http(json.dumps(WHOLE[OPENAI])))

    assert answered(slow, idle_timeout=0.1, options={"stream": False}).text == "Good day"


def test_a_requests_own_time_goes_before_the_models() -> None:
    async def go() -> CallResult | FailedCall:
        async with Server(hang) as server:
            return await call(model_of(server), timeout=0.1)

    end = asyncio.run(go())
    assert isinstance(end, FailedCall)
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
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
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


def unreached(model: Model, environment: dict[str, str] = ENVIRONMENT) -> FailedCall:
    end = asyncio.run(call(model, environment=environment))
    assert isinstance(end, FailedCall)
    assert "model 'haiku'" in end.failure.message
    assert not end.use.reached
    assert end.use.requests == 0
    assert end.spend is None
    return end


def test_a_host_that_does_not_exist() -> None:
    end = unreached(model_of(base_url="https://models.invalid/v1"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    assert end.failure.stops is None
    assert "host 'models.invalid' not found; check base_url" in end.failure.message


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        end = unreached(model_of(base_url=f"http://127.0.0.1:{port}/v1"))
    assert end.failure.kind is Outcome.INFRA_ERROR
    words = f"cannot connect to 127.0.0.1:{port} (Connection refused); is the server running?"
    assert words in end.failure.message


@pytest.mark.parametrize("base_url", ["ftp://127.0.0.1/v1", "nonsense", "http://", "http://a..b/"])
def test_a_base_url_that_is_no_address_stops_the_model(base_url: str) -> None:
    end = unreached(model_of(base_url=base_url))
    assert end.failure.stops == MODEL or "not found" in end.failure.message


def test_a_password_in_a_base_url_is_not_shown() -> None:
    for base_url in ("http://me:pw@127.0.0.1/v1", "nonsense://me:pw@x"):
        assert "pw@" not in repr(asyncio.run(call(model_of(base_url=base_url))))


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
    async def go() -> tuple[CallResult | FailedCall, Server]:
        async with Server(b"", tls=self_signed) as server:
            return await call(model_of(base_url=f"https://127.0.0.1:{server.port}/v1")), server

    end, server = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert end.failure.stops == MODEL
    assert "certificate is not trusted (self-signed certificate)" in end.failure.message
    assert "SSL_CERT_FILE" in end.failure.message
    assert server.seen == [], "the key was not sent"


def test_a_server_without_tls_where_tls_is_asked_for() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def go() -> CallResult | FailedCall:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await call(model_of(base_url=f"https://127.0.0.1:{port}/v1"))

    end = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert not end.use.reached
    assert "TLS with 127.0.0.1" in end.failure.message


# ---- proxies


def test_a_proxy_of_the_environment_is_used() -> None:
    async def go() -> Seen:
        async with Server(http(events(*STREAMS[OPENAI]))) as proxy:
            environment = {**ENVIRONMENT, "HTTP_PROXY": f"http://127.0.0.1:{proxy.port}"}
            model = model_of(base_url="http://models.invalid/v1")
            assert isinstance(await call(model, environment=environment), CallResult)
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
    found = proxy_for(URL(url), environment)
    assert (found and found.url) == (URL(proxy) if proxy else None)


def test_a_proxy_that_wants_a_password_stops_the_model() -> None:
    async def go() -> CallResult | FailedCall:
        async with Server(http("", "407 Proxy Authentication Required")) as proxy:
            environment = {
                **ENVIRONMENT,
                "https_proxy": f"http://me:pa55-w0rd@127.0.0.1:{proxy.port}",
            }
            return await call(
                model_of(base_url="https://models.invalid/v1"), environment=environment
            )

    end = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert end.failure.stops == MODEL
    assert "add it to https_proxy" in end.failure.message
    assert "pa55-w0rd" not in repr(end)


def test_a_proxy_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {**ENVIRONMENT, "https_proxy": f"127.0.0.1:{free.getsockname()[1]}"}
        end = unreached(model_of(base_url="https://models.invalid/v1"), environment)
    assert "cannot connect to the proxy 127.0.0.1" in end.failure.message
    assert "check https_proxy" in end.failure.message


def test_a_proxy_is_named_by_the_variable_that_it_is_set_in() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {**ENVIRONMENT, "HTTP_PROXY": f"http://127.0.0.1:{free.getsockname()[1]}"}
        end = unreached(model_of(base_url="http://models.invalid/v1"), environment)
    assert "check HTTP_PROXY" in end.failure.message


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("http://[bad", "http_proxy is not a valid proxy URL"),
        ("http://me:pa55-w0rd@127.0.0.1:notaport", "http_proxy is not a valid proxy URL"),
        ("http://", "http_proxy is not a valid proxy URL"),
        ("socks5://127.0.0.1:1", "http_proxy has an unsupported proxy scheme (socks5)"),
    ],
)
def test_a_proxy_that_is_none_is_not_the_base_urls_fault(proxy: str, words: str) -> None:
    model = model_of(base_url="http://models.invalid/v1")
    end = unreached(model, {**ENVIRONMENT, "http_proxy": proxy})
    assert end.failure.stops == MODEL
    assert words in end.failure.message
    assert "base_url" not in end.failure.message
    assert "pa55-w0rd" not in repr(end)


def test_a_clock_that_is_set_back_does_not_make_a_wait_longer() -> None:
    moments = iter([1_800_000_000.0])
    reply = http("", "429 X", "Retry-After: Fri, 15 Jan 2027 08:00:09 GMT\r\n")

    async def go() -> CallResult | FailedCall:
        def now() -> float:
            return next(moments, 1_700_000_000.0)

        async with (
            Server(reply) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}, now=now) as wire,
        ):
            return await wire.call(request_of(model_of(server)))

    end = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert end.failure.retry_after is not None
    assert 0 < end.failure.retry_after <= 9
