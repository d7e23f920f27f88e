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


@dataclass(slots=True, eq=False)
class Trip:
    """A call's way over its connection: what it wants of one, and what it got."""

    wants_new: bool = False
    is_kept: bool = False
    """Others had used the connection before."""
    connection: Connection | None = None
    content: aiohttp.StreamReader | None = None
    """What is read: whoever waits for more of it hears of a connection that is gone."""

    @property
    def is_over(self) -> bool:
        """Its connection rests; a new one, over which nothing went yet, does not."""
        return self.connection is not None and self.connection.closed

    def end(self) -> None:
        """aiohttp closes the connection at a chunk that is no chunk, and forgets who waits."""
        content = self.content
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection is gone"))


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
        self._opening = 0
        self._trips: dict[ResponseHandler, Trip] = {}
        """The last one over each open connection; the one that began first comes first."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own method
    ) -> Connection:
        trip = TRIP.get() or Trip()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None, "it has just been taken"
            before = self._trips.pop(protocol, None)
            if before is None:  # It is closed again already.
                return connection
            trip.is_kept = before.connection is not None
            trip.connection = connection
            self._trips[protocol] = trip
            if not (trip.is_kept and trip.wants_new):
                return connection
            # The others that rest beside one that broke are likely to be as old.
            connection.close()

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own method
    ) -> ResponseHandler:
        self._make_room()
        self._opening += 1
        try:
            made = await super()._create_connection(req, traces, timeout)
        finally:
            self._opening -= 1
        if made.closed is not None:
            self._trips[made] = Trip()
            made.closed.add_done_callback(partial(self._forget, made))
        return made

    def _make_room(self) -> None:
        if self._opening + len(self._trips) < self._comfortable:
            return
        oldest = next((one for one, trip in self._trips.items() if trip.is_over), None)
        if oldest is not None:
            self._trips.pop(oldest)
            oldest.close()

    def _forget(self, protocol: ResponseHandler, closed: asyncio.Future[None]) -> None:
        if trip := self._trips.pop(protocol, None):
            trip.end()
        if not closed.cancelled():
            # To be heard is enough: an exception that nobody asks for is complained of by asyncio.
            closed.exception()
