"""The connections that calls are made over: kept for the next call, and closed in time.

aiohttp's pool is left to do what it does. Added is what it leaves open: how many may be open at
once, idle ones included; whether a call got a connection that others had used before it; and that
whoever still reads hears of a connection that is gone.
"""

from __future__ import annotations

import asyncio
import resource
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

FILES_FOR_THE_REST = 200
FEWEST_CONNECTIONS = 16
MOST_CONNECTIONS = 100_000


@dataclass(slots=True)
class Trip:
    """What a call wants to know of its connection, and to say of it."""

    wants_new: bool = False
    is_kept: bool = False
    """Others had used it before."""


TRIP: ContextVar[Trip | None] = ContextVar("trip", default=None)
"""Of the call that is being made in this context: aiohttp hands nothing through to its pool."""


def most_connections(*, per_call: int = 1) -> int:
    """As many calls as there may be open files for; `per_call`: 2 where the other ends are in this
    process too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    files = (soft - FILES_FOR_THE_REST) // per_call
    return min(max(FEWEST_CONNECTIONS, files), MOST_CONNECTIONS)


class Connections(aiohttp.TCPConnector):
    """A pool that closes the idle connections of other hosts before there are too many."""

    def __init__(self, most: int) -> None:
        """`most`: in use at once. From half of it on, idle ones make room for new ones."""
        super().__init__(limit=most)
        self._comfortable = most // 2
        self._open = 0
        self._resting: dict[ResponseHandler, None] = {}
        """The idle ones, the oldest first."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own method
    ) -> Connection:
        trip = TRIP.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None, "it has just been taken"
            is_kept = protocol in self._resting
            if is_kept:
                del self._resting[protocol]
                if trip is not None and trip.wants_new:
                    # The others that rest beside one that broke are likely to be as old.
                    connection.close()
                    continue
            if trip is not None:
                trip.is_kept = is_kept
            connection.add_callback(partial(self._rest, protocol))
            return connection

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own method
    ) -> ResponseHandler:
        self._make_room()
        self._open += 1
        try:
            made = await super()._create_connection(req, traces, timeout)
        except BaseException:
            self._open -= 1
            raise
        closed = made.closed
        if closed is None:
            self._open -= 1
        else:
            closed.add_done_callback(partial(self._forget, made))
        return made

    def _make_room(self) -> None:
        if self._open >= self._comfortable and self._resting:
            oldest = next(iter(self._resting))
            del self._resting[oldest]
            oldest.close()

    def _rest(self, protocol: ResponseHandler) -> None:
        self._resting[protocol] = None

    def _forget(self, protocol: ResponseHandler, closed: asyncio.Future[None]) -> None:
        self._open -= 1
        self._resting.pop(protocol, None)
        if not closed.cancelled():
            # To be heard is enough: an exception that nobody asks for is complained of by asyncio.
            closed.exception()


class Watch:
    """Ends the reading of a response with its connection.

    aiohttp closes the connection at a chunk that is no chunk, and forgets who waits for the rest.
    """

    __slots__ = ("_closed", "_content")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        # There is none any more where all of the response is here.
        connection = response.connection
        protocol = None if connection is None else connection.protocol
        self._closed = None if protocol is None else protocol.closed

    def __enter__(self) -> None:
        if self._closed is not None:
            self._closed.add_done_callback(self._end)

    def __exit__(self, *_: object) -> None:
        if self._closed is not None:
            self._closed.remove_done_callback(self._end)

    def _end(self, _: asyncio.Future[None]) -> None:
        content = self._content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection is gone"))
