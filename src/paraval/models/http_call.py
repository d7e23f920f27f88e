"""One call of a model over HTTP, and the connection pool.

Makes the call, reads the answer up to its limits, and turns every other end into a failure. The
scheduler retries; the client on top of this caches and prices. Keys are redacted from everything
that leaves here.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from paraval.dataclass import dataclass
from paraval.models import broken_calls, call_errors, rate_limits as rates
from paraval.models.endpoints import KeyProblemError, ModelEndpoint, ProxyProblemError, endpoint_of
from paraval.models.requests import FailedCall, Request
from paraval.models.response_reader import (
    AnswerReading,
    ReadingError,
    UnreadableError,
    short,
    unbelievable,
)
from paraval.models.response_stream import AnswerBytes
from paraval.models.secrets import Redactor, strings_in
from paraval.records import AccountUse, Model, RateTold, call_need

# The connection pool: connections are kept for the next call, and closed in time.

FILES_FOR_THE_REST = 200
FEWEST_CONNECTIONS = 16
MOST_CONNECTIONS = 100_000


@dataclass(slots=True, eq=False)
class ConnectionUse:
    """A call's use of its connection: what it asks for, and what it got."""

    wants_new: bool = False
    is_kept: bool = False
    """The connection had been used before."""
    connection: Connection | None = None
    content: aiohttp.StreamReader | None = None
    """The stream being read; its reader learns that the connection is gone."""

    @property
    def is_over(self) -> bool:
        """Whether its connection is idle. A new one that has not been used yet is not."""
        return self.connection is not None and self.connection.closed

    def end(self) -> None:
        """Wake the reader: aiohttp closes the connection at a malformed chunk and forgets who is
        waiting."""
        content = self.content
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection is gone"))


TRIP: ContextVar[ConnectionUse | None] = ContextVar("trip", default=None)
"""The current call's use of a connection: aiohttp passes nothing through to its pool."""


def most_connections(*, per_call: int = 1) -> int:
    """How many calls the open-file limit allows; `per_call`: 2 if the servers are in this process
    too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    files = (soft - FILES_FOR_THE_REST) // per_call
    return min(max(FEWEST_CONNECTIONS, files), MOST_CONNECTIONS)


class Connections(aiohttp.TCPConnector):
    """A pool that closes idle connections to other hosts before there are too many."""

    def __init__(self, most: int) -> None:
        """`most`: in use at the same time. From half of that on, idle ones are closed to make
        room."""
        super().__init__(limit=most)
        self._comfortable = most // 2
        self._opening = 0
        self._trips: dict[ResponseHandler, ConnectionUse] = {}
        """The last use of each open connection, oldest first."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own method
    ) -> Connection:
        trip = TRIP.get() or ConnectionUse()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None, "it has just been taken"
            before = self._trips.pop(protocol, None)
            if before is None:  # Already closed again.
                return connection
            trip.is_kept = before.connection is not None
            trip.connection = connection
            self._trips[protocol] = trip
            if not (trip.is_kept and trip.wants_new):
                return connection
            # Other idle connections next to a broken one are probably just as stale.
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
            self._trips[made] = ConnectionUse()
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
            # Retrieve the exception, or asyncio complains that nobody did.
            closed.exception()


COMPLAINT_LIMIT_BYTES = 64 * 1024
COMPLAINT_S = 5.0
"""How long a server may take to send the reason for a refusal."""
CLOSING_S = 0.5
"""How long a finished stream may take to close, so that its connection can be reused."""
CHARACTERS_PER_TOKEN = 4
REDACTED = "the answer contained a key, which was removed"

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """An answer without a price."""

    text: str
    usage: Mapping[str, float] | None
    """Tokens as in `records.Spend`; None: not reported, or implausible."""
    use: AccountUse
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """model, finish_reason, request_id, first_token_s, tool_calls, as far as known."""
    notes: tuple[str, ...] = ()


class HttpCaller:
    """Calls models, all through one session."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        addresses: Mapping[str, str],
        redactor: Redactor | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`environment`: where keys and proxies are looked up. `addresses`: the base URLs of a
        run's loopback models, by name. `redactor`: the run's own, which learns the keys that are
        used. `now`: for dates in headers of servers that do not send their own time."""
        self._environment = environment
        self._addresses = addresses
        self._clock = now
        self._clock_was_ahead_by = now() - time.monotonic()
        self._redactor = Redactor() if redactor is None else redactor
        self._endpoints: dict[tuple[str, bool], ModelEndpoint] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # Simulated servers run in this process: each call has both its ends here.
            connector=Connections(most_connections(per_call=2 if self._addresses else 1)),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compressed data cannot be bounded before it is decompressed, so don't accept any.
            headers={
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": "paraval",
            },
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, request: Request) -> CallResult | FailedCall:
        """Make one call. Never raises for failures of the server or the network."""
        call = self._begun(request)
        if isinstance(call, FailedCall):
            return self._redacted(call)
        trip = ConnectionUse()
        while True:
            try:
                return self._redacted(await self._made(call, trip))
            except ReadingError as error:
                return self._redacted(call.broken_off(error.cleaned(self._redactor.text)))
            except (
                aiohttp.ClientError,
                OSError,
                ValueError,
            ) as error:  # TimeoutError is an OSError
                if not _was_not_heard(trip, error):
                    return self._redacted(call.broken_off(error))
            trip = ConnectionUse(wants_new=True)

    def _begun(self, request: Request) -> _HttpCall | FailedCall:
        model = request.model
        try:
            endpoint = self._endpoint(model, embeds=request.embeds)
        except KeyProblemError as error:
            return call_errors.no_key(model, str(error))
        except ProxyProblemError as error:
            return broken_calls.no_proxy(model, error)
        except ValueError:
            return broken_calls.no_address(model)
        try:
            return _HttpCall(request, endpoint)
        except (ValueError, TypeError, RecursionError) as error:
            return call_errors.unsendable(model, str(error))

    def _endpoint(self, model: Model, *, embeds: bool) -> ModelEndpoint:
        known = self._endpoints.get((model.name, embeds))
        if known is not None and (known.model is model or known.model == model):
            return known
        made = endpoint_of(
            model, environment=self._environment, addresses=self._addresses, embeds=embeds
        )
        for secret in made.secrets:
            self._redactor.add(secret)
        self._endpoints[model.name, embeds] = made
        return made

    def _now(self) -> float:
        """Time that never goes backward: resetting the clock must not turn a second's wait into a
        day's."""
        return max(self._clock(), self._clock_was_ahead_by + time.monotonic())

    async def _made(self, call: _HttpCall, trip: ConnectionUse) -> CallResult | FailedCall:
        assert self._session is not None, "a wire is used inside `async with`"
        TRIP.set(trip)
        endpoint = call.endpoint
        async with self._session.post(
            endpoint.url,
            data=call.body,
            headers=endpoint.headers,
            # Only a second try has less time than the first.
            timeout=endpoint.timeout(call.time_left() if trip.wants_new else call.timeout),
            # A redirect would send the key along.
            allow_redirects=False,
            proxy=None if endpoint.proxy is None else endpoint.proxy.url,
        ) as response:
            trip.content = response.content
            call.rate_limits = rates.limits_in(response.headers, self._now())
            if not 200 <= response.status < 300:
                return call.with_rate_limits(await self._refused(call, response))
            reading = await call.read(response)
            return call.called(reading, response)

    async def _refused(self, call: _HttpCall, response: aiohttp.ClientResponse) -> FailedCall:
        body = await _complaint(response)
        clean = self._redactor.text
        return call_errors.refused(
            call.request.model,
            call_errors.ProviderRefusal(
                status=response.status,
                complaint=call_errors.complaint_in(body).cleaned(clean),
                retry_after=rates.retry_after(response.headers, self._now()),
                location=clean(response.headers.get("Location", "")),
                html=call_errors.is_html(body),
                proxy=call.endpoint.proxy_variable,
            ),
        )

    def _redacted(self, ended: CallResult | FailedCall) -> CallResult | FailedCall:
        clean = self._redactor
        if isinstance(ended, FailedCall):
            failure = replace(ended.failure, message=clean.text(ended.failure.message))
            return replace(ended, failure=failure, notes=clean.data(ended.notes))
        if not clean.is_in((ended.text, *ended.notes, *strings_in(ended.metadata))):
            return ended
        return replace(
            ended,
            text=clean.text(ended.text),
            metadata=clean.data(ended.metadata),
            notes=(*clean.data(ended.notes), REDACTED),
        )


class _HttpCall:
    """One call in progress."""

    def __init__(self, request: Request, endpoint: ModelEndpoint) -> None:
        """Raises ValueError, TypeError or RecursionError if the model's options cannot be sent as
        JSON."""
        self.request = request
        self.endpoint = endpoint
        self.rate_limits: RateTold | None = None
        own = request.timeout
        self.timeout = request.model.timeout if own is None else own
        self._started = time.monotonic()
        self._first_token_s: float | None = None
        self._answer = AnswerBytes(endpoint.adapter)
        body = endpoint.adapter.body(request, stream=endpoint.streams)
        body.update(request.model.options)
        body.update(request.settings.options)
        self.body = _encode(body).encode()

    def time_left(self) -> float:
        return self.timeout - (time.monotonic() - self._started)

    async def read(self, response: aiohttp.ClientResponse) -> AnswerReading:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnreadableError("it is compressed, which was not requested")
        answer, content = self._answer, response.content
        while chunk := await content.readany():
            if self._first_token_s is None:
                self._first_token_s = time.monotonic() - self._started
            answer.feed(chunk)
            if answer.done:
                if not content.at_eof():
                    await _closed(content)
                break
        return answer.finish()

    def called(self, reading: AnswerReading, response: aiohttp.ClientResponse) -> CallResult:
        headers = response.headers
        metadata = reading.metadata
        if request_id := short(headers.get("x-request-id") or headers.get("request-id")):
            metadata["request_id"] = request_id
        if self.endpoint.streams and self._first_token_s is not None:
            metadata["first_token_s"] = round(self._first_token_s, 4)
        usage, notes = reading.usage, reading.notes
        if usage is not None and (note := unbelievable(usage, self.request, len(self.body))):
            usage, notes = None, (*notes, note)
        tokens = self._tokens(usage, len(reading.text))
        use = AccountUse(
            account=call_need(self.request.model),
            requests=1,
            tokens=tokens,
            told=rates.fitting(self.rate_limits, tokens),
        )
        return CallResult(
            text=reading.text,
            usage=usage,
            use=use,
            metadata=metadata,
            notes=notes,
        )

    def broken_off(self, error: Exception) -> FailedCall:
        return self.with_rate_limits(
            broken_calls.broken_off(
                self.endpoint, error, timeout=self.timeout, has_text=self._answer.has_text
            )
        )

    def with_rate_limits(self, ended: FailedCall) -> FailedCall:
        """Rate limits from the headers are valid even if the response is not."""
        limits = rates.fitting(self.rate_limits, self._tokens(None, 0))
        return replace(ended, use=replace(ended.use, told=limits))

    def _tokens(self, usage: Mapping[str, float] | None, written: int) -> float:
        """Tokens for the account's pacing. If not reported, a guess is better than nothing."""
        if usage is not None:
            return usage["input_tokens"] + usage["output_tokens"]
        asked = sum(len(message.content) for message in self.request.messages)
        return (asked + written) / CHARACTERS_PER_TOKEN


def _was_not_heard(trip: ConnectionUse, error: Exception) -> bool:
    """The server may have closed a kept connection just before it was used. Then the request was
    not received, unless an answer had begun: aiohttp delivers what it has of a header."""
    if not trip.is_kept or trip.wants_new or trip.content is not None:
        return False
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)
    return isinstance(error, aiohttp.ClientOSError | aiohttp.ClientConnectionResetError)


async def _closed(content: aiohttp.StreamReader) -> None:
    """Wait briefly for the end of a stream whose answer is complete."""
    try:
        async with asyncio.timeout(CLOSING_S):
            while await content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        # The answer is complete; only the connection cannot be reused.
        pass


async def _complaint(response: aiohttp.ClientResponse) -> str:
    """The error message in the body, as far as it arrives."""
    body = bytearray()
    try:
        async with asyncio.timeout(COMPLAINT_S):
            while len(body) < COMPLAINT_LIMIT_BYTES and (chunk := await response.content.readany()):
                body += chunk
    except (aiohttp.ClientError, OSError):
        # The status is enough.
        pass
    return body[:COMPLAINT_LIMIT_BYTES].decode(errors="replace")
