"""The model server: HTTP on 127.0.0.1, in the caller's event loop. Sends answers whole, or spoiled
by a fault.

The simulation decides the answers; the server sends them. Uses aiohttp's low-level server without
its router: there are only a few paths.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.loopback.anthropic_api import AnthropicApi
from paraval.loopback.exchange import (
    Dialect,
    ErrorReply,
    MalformedError,
    ModelRequest,
    RefusalKind,
    Reply,
    encode,
)
from paraval.loopback.faults import broken
from paraval.loopback.openai_chat_api import OpenAIChatApi, OpenAIEmbeddingsApi
from paraval.loopback.openai_responses_api import OpenAIResponsesApi
from paraval.loopback.scenario import Scenario
from paraval.loopback.scenario_forms import Fault, FaultKind, Headers
from paraval.loopback.simulated_models import ServedRequest, SimulatedModels
from paraval.loopback.stats import Stats

# How an answer is sent: in one go, or spoiled by a fault.

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
SIMULATED = {"x-paraval-loopback": "simulated"}
FILLER = "All work and no play makes a long answer. " * 1000
PAGE = (
    "<!DOCTYPE html><html><head><title>Sign in</title></head>"
    "<body><h1>Sign in to the network</h1><p>Simulated proxy page.</p></body></html>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An answer ready to be sent."""

    dialect: Dialect
    question: ModelRequest
    reply: Reply
    headers: dict[str, str]

    @property
    def parts(self) -> list[str]:
        """The events of a stream, or one whole body."""
        if self.question.stream:
            return self.dialect.events(self.reply, self.question)
        return [encode(self.dialect.whole(self.reply))]

    @property
    def all_headers(self) -> dict[str, str]:
        kind = EVENT_STREAM if self.question.stream else JSON
        return {**SIMULATED, **self.headers, "Content-Type": kind}


def whole(letter: HttpReply) -> web.Response:
    return _response(letter, letter.parts)


def _response(letter: HttpReply, parts: list[str]) -> web.Response:
    body = "".join(parts).encode()
    response = web.Response(body=body, headers=letter.all_headers)
    if letter.question.stream:
        response.enable_chunked_encoding()
    return response


def error(dialect: Dialect, refusal: ErrorReply) -> web.Response:
    status, body = dialect.refusal(refusal)
    headers = {**SIMULATED, **refusal.headers, "Content-Type": JSON}
    return web.Response(status=status, body=encode(body).encode(), headers=headers)


async def spoiled(request: web.BaseRequest, letter: HttpReply, fault: Fault) -> web.StreamResponse:
    """Send an answer spoiled by a fault; some of them never end."""
    match fault.kind:
        case FaultKind.HTML:
            headers = {**SIMULATED, "Content-Type": "text/html"}
            return web.Response(status=fault.status or 200, text=PAGE, headers=headers)
        case FaultKind.REDIRECT:
            headers = {**SIMULATED, "Location": fault.location}
            return web.Response(status=fault.status or 307, headers=headers)
        case FaultKind.INVALID_JSON:
            parts = letter.parts
            middle = len(parts) // 2
            parts[middle] = broken(parts[middle])
            return _response(letter, parts)
        case FaultKind.HALF_OPEN:
            await _for_ever()
        case FaultKind.HANG:
            await _send_half(request, letter)
            await _for_ever()
        case FaultKind.DISCONNECT:
            response = await _send_half(request, letter)
            if request.transport is not None:
                request.transport.close()
            return response
        case FaultKind.DRIP:
            return await _drip(request, letter, fault.every_s)
        case FaultKind.HUGE:
            return await _send_much(request, letter, int(fault.megabytes * 1_000_000))
    return whole(letter)


async def _for_ever() -> NoReturn:
    """Wait until the client disconnects or the server stops: both cancel."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def _begin(
    request: web.BaseRequest, letter: HttpReply, length: int | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers=letter.all_headers)
    if not letter.question.stream:
        response.content_length = length
    await response.prepare(request)
    return response


async def _send_half(request: web.BaseRequest, letter: HttpReply) -> web.StreamResponse:
    body = "".join(letter.parts).encode()
    response = await _begin(request, letter, len(body))
    await response.write(body[: len(body) // 2])
    return response


async def _drip(request: web.BaseRequest, letter: HttpReply, every_s: float) -> web.StreamResponse:
    body = "".join(letter.parts).encode()
    response = await _begin(request, letter, len(body))
    for place in range(len(body)):
        await response.write(body[place : place + 1])
        await asyncio.sleep(every_s)
    await response.write_eof()
    return response


async def _send_much(request: web.BaseRequest, letter: HttpReply, size: int) -> web.StreamResponse:
    """Send the same filler again and again, so that a huge answer takes no memory here."""
    letter = replace(letter, reply=replace(letter.reply, pieces=(FILLER,), calls=()))
    before, repeated, after = _around_filler(letter.parts, stream=letter.question.stream)
    times = max(1, -(-size // len(FILLER)))
    response = await _begin(request, letter, len(before) + times * len(repeated) + len(after))
    await response.write(before)
    for _ in range(times):
        await response.write(repeated)
    await response.write(after)
    await response.write_eof()
    return response


def _around_filler(parts: list[str], *, stream: bool) -> tuple[bytes, bytes, bytes]:
    """The parts before, within and after the repetition."""
    place = next(place for place, part in enumerate(parts) if FILLER in part)
    if stream:
        before, repeated, after = parts[:place], parts[place], parts[place + 1 :]
        return "".join(before).encode(), repeated.encode(), "".join(after).encode()
    head, _, tail = parts[0].partition(FILLER)
    return head.encode(), FILLER.encode(), tail.encode()


HOST = "127.0.0.1"
BODY_LIMIT_BYTES = 32 << 20
BACKLOG = 4096
"""Connections waiting to be accepted: a run opens hundreds at a time, and with asyncio's default of
100 the kernel would retry some of them a second later."""
STOPPING_S = 0.3


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether to log a traceback. Invalid HTTP, or a body that cannot be decompressed, is the
    client's fault and gets a 400."""
    raised = record.exc_info[1] if record.exc_info else None
    return not isinstance(raised, HttpProcessingError | RequestPayloadError)


LOG = logging.getLogger(__name__)
LOG.addFilter(_is_our_fault)


class ApiPath(NamedTuple):
    """An API path: its protocol and its headers."""

    dialect: Dialect
    headers: Headers


OPENAI = ApiPath(OpenAIChatApi(), Headers.OPENAI)
ANTHROPIC = ApiPath(AnthropicApi(), Headers.ANTHROPIC)
DOORS = {
    "/chat/completions": OPENAI,
    "/embeddings": ApiPath(OpenAIEmbeddingsApi(), Headers.OPENAI),
    "/responses": ApiPath(OpenAIResponsesApi(), Headers.OPENAI),
    "/messages": ANTHROPIC,
}


class LoopbackServer:
    """`async with LoopbackServer(Scenario.load("fast")) as server: ... server.base_url`."""

    def __init__(self, scenario: Scenario, port: int = 0) -> None:
        """Port 0: chosen by the system."""
        self.scenario = scenario
        self._port = port
        self._simulation = SimulatedModels(scenario)
        self._handlers: set[asyncio.Task[Any]] = set()
        self._server: web.Server
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._listening is not None, "the server is not running"
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    @property
    def root_url(self) -> str:
        """The base URL as defined by Anthropic's client library."""
        return f"http://{HOST}:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"

    def stats(self) -> Stats:
        return self._simulation.stats()

    def reset(self) -> None:
        """Reset all counts, used limits and past faults; requests in progress end uncounted."""
        self._simulation = SimulatedModels(self.scenario)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = web.Server(
            self._handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            logger=LOG,
        )
        try:
            self._listening = await loop.create_server(
                self._server, HOST, self._port, backlog=BACKLOG
            )
        except (OSError, OverflowError) as failed:
            raise _cannot_listen(self._port, failed) from failed
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listening is not None
        self._listening.close()
        handlers = tuple(self._handlers)
        for handler in handlers:
            handler.cancel()
        if handlers:
            await asyncio.wait(handlers, timeout=STOPPING_S)
        await self._server.shutdown(STOPPING_S)

    # ---- one request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            path = request.path.rstrip("/").removeprefix("/v1")
            door = DOORS.get(path)
            if door is not None and request.method == "POST":
                return await self._ask(request, door)
            return self._look(request, path)
        except ConnectionError:
            # The client disconnected in the middle; no one will read this.
            return web.Response()
        finally:
            self._handlers.discard(task)

    async def _ask(self, request: web.BaseRequest, door: ApiPath) -> web.StreamResponse:
        key = _key(request)
        question = await _question(request, door.dialect)
        if isinstance(question, ErrorReply):
            self._simulation.reject(key)
            return error(door.dialect, question)
        now = asyncio.get_running_loop().time()
        met = self._simulation.meet(question, key, door.headers, now)
        if isinstance(met, ErrorReply):
            return error(door.dialect, met)
        try:
            return await self._serve(request, door.dialect, question, met)
        finally:
            # Has no effect if it ended well.
            met.end("abandoned" if met.fault is None else "faults")

    async def _serve(
        self,
        request: web.BaseRequest,
        dialect: Dialect,
        question: ModelRequest,
        served: ServedRequest,
    ) -> web.StreamResponse:
        if served.wait_s > 0:
            await asyncio.sleep(served.wait_s)
        if served.refusal is not None:
            return error(dialect, served.refusal)
        letter = HttpReply(
            dialect=dialect, question=question, reply=served.reply, headers=served.headers
        )
        if served.fault is not None:
            return await spoiled(request, letter, served.fault)
        # Freed before the last byte leaves: the client may send its next request quickly.
        served.end("answered")
        if isinstance(dialect, OpenAIEmbeddingsApi):
            return _json(dialect.embeddings(question, served.reply))
        return whole(letter)

    def _look(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        match request.method, path:
            case "GET", "/stats":
                return _json(self.stats().as_mapping())
            case "POST", "/reset":
                self.reset()
                return _json({"reset": True})
            case "GET", "/models":
                return _json(_models(self.scenario, request.headers))
        known = path in DOORS or path in ("/stats", "/reset", "/models")
        status, what = (405, "Not allowed to") if known else (404, "Unknown request URL:")
        message = f"{what} {request.method} {request.path[:200]}. This server simulates models."
        door = ANTHROPIC if "anthropic-version" in request.headers else OPENAI
        return error(
            door.dialect, ErrorReply(kind=RefusalKind.NO_PATH, status=status, message=message)
        )


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=BODY_LIMIT_BYTES
    )


def _key(request: web.BaseRequest) -> str | None:
    key = request.headers.get("x-api-key")
    if key is None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
    return key.strip() or None


async def _question(request: web.BaseRequest, dialect: Dialect) -> ModelRequest | ErrorReply:
    kind, status = RefusalKind.MALFORMED, 400
    try:
        body = json.loads(await request.read())
        if isinstance(body, dict):
            return dialect.question(body)
        message = "The body must be a JSON object."
    except web.HTTPRequestEntityTooLarge:
        kind, status = RefusalKind.TOO_LARGE, 413
        message = f"The body is larger than {BODY_LIMIT_BYTES >> 20} MiB."
    except MalformedError as wrong:
        message = str(wrong)
    except (ValueError, RecursionError):
        message = "We could not parse the JSON body of your request."
    except web.RequestPayloadError:
        message = "The body is damaged."
    return ErrorReply(kind=kind, status=status, message=message)


def _json(body: Any) -> web.Response:
    headers = {**SIMULATED, "Content-Type": JSON}
    return web.Response(body=encode(body).encode(), headers=headers)


def _models(scenario: Scenario, headers: Mapping[str, str]) -> dict[str, Any]:
    names = list(scenario.models) or ["simulated"]
    if "anthropic-version" not in headers:
        made = {"object": "model", "created": 0, "owned_by": "paraval-loopback"}
        return {"object": "list", "data": [{"id": name, **made} for name in names]}
    made = {"type": "model", "created_at": "1970-01-01T00:00:00Z"}
    data = [{"id": name, "display_name": f"{name} (simulated)", **made} for name in names]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def _cannot_listen(port: int, failed: Exception) -> RequestError:
    if isinstance(failed, OSError) and failed.errno == errno.EADDRINUSE:
        return RequestError(
            f"port {port} on {HOST} is already in use",
            hint="choose another port, or 0 for any free one",
        )
    return RequestError(f"cannot listen on {HOST}:{port}: {failed}")
