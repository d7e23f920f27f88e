"""How an answer goes over the wire: in one go, or as a fault spoils it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import NoReturn

from aiohttp import web

from paraval.loopback.exchange import Dialect, Question, Refusal, Reply, encode
from paraval.loopback.faults import broken
from paraval.loopback.forms import Fault, FaultKind

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
SIMULATED = {"x-paraval-loopback": "simulated"}
FILLER = "All work and no play makes a long answer. " * 1000
PAGE = (
    "<!DOCTYPE html><html><head><title>Sign in</title></head>"
    "<body><h1>Sign in to the network</h1><p>Simulated proxy page.</p></body></html>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """An answer ready to be sent."""

    dialect: Dialect
    question: Question
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


def whole(letter: Letter) -> web.Response:
    return _response(letter, letter.parts)


def _response(letter: Letter, parts: list[str]) -> web.Response:
    body = "".join(parts).encode()
    response = web.Response(body=body, headers=letter.all_headers)
    if letter.question.stream:
        response.enable_chunked_encoding()
    return response


def error(dialect: Dialect, refusal: Refusal) -> web.Response:
    status, body = dialect.refusal(refusal)
    headers = {**SIMULATED, **refusal.headers, "Content-Type": JSON}
    return web.Response(status=status, body=encode(body).encode(), headers=headers)


async def spoilt(request: web.BaseRequest, letter: Letter, fault: Fault) -> web.StreamResponse:
    """Sends an answer as the fault says; some of them never come to an end."""
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
    """Until the client goes away, or the server stops: both cancel."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def _begin(
    request: web.BaseRequest, letter: Letter, length: int | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers=letter.all_headers)
    if not letter.question.stream:
        response.content_length = length
    await response.prepare(request)
    return response


async def _send_half(request: web.BaseRequest, letter: Letter) -> web.StreamResponse:
    body = "".join(letter.parts).encode()
    response = await _begin(request, letter, len(body))
    await response.write(body[: len(body) // 2])
    return response


async def _drip(request: web.BaseRequest, letter: Letter, every_s: float) -> web.StreamResponse:
    body = "".join(letter.parts).encode()
    response = await _begin(request, letter, len(body))
    for place in range(len(body)):
        await response.write(body[place : place + 1])
        await asyncio.sleep(every_s)
    await response.write_eof()
    return response


async def _send_much(request: web.BaseRequest, letter: Letter, size: int) -> web.StreamResponse:
    """The same filler again and again, so that a huge answer takes no memory here."""
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
    """What comes before the part that is repeated, that part, and what comes after it."""
    place = next(place for place, part in enumerate(parts) if FILLER in part)
    if stream:
        before, repeated, after = parts[:place], parts[place], parts[place + 1 :]
        return "".join(before).encode(), repeated.encode(), "".join(after).encode()
    head, _, tail = parts[0].partition(FILLER)
    return head.encode(), FILLER.encode(), tail.encode()
