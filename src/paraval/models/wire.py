"""One call of a model over HTTP, in good and bad weather.

Makes the call, reads the answer as far as it may be read, and tells every other end as a failure.
Retries are the scheduler's; caches and prices are the client's, which stands on top. Everything
that leaves here has the keys taken out of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import aiohttp

from paraval.models import breaks, rates, weather
from paraval.models.answer_bytes import AnswerBytes
from paraval.models.connections import TRIP, Connections, Trip, most_connections
from paraval.models.conversation import Request, Unanswered
from paraval.models.endpoints import Endpoint, KeyProblemError, ProxyProblemError, endpoint_of
from paraval.models.reading import Reading, ReadingError, UnreadableError, short
from paraval.models.secrets import Redactor, strings_in
from paraval.models.usage import unbelievable
from paraval.records import AccountUse, Model, RateTold, account_need

COMPLAINT_LIMIT_BYTES = 64 * 1024
COMPLAINT_S = 5.0
"""How long a server may take to say why it refuses."""
CLOSING_S = 0.5
"""How long a stream that told its end may take to close, for its connection to be used again."""
CHARACTERS_PER_TOKEN = 4
REDACTED = "the answer held a key; it was taken out"

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """An answer, before anyone has priced it."""

    text: str
    usage: Mapping[str, float] | None
    """Tokens as in `records.Spend`; None: not told, or senseless."""
    use: AccountUse
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """model, finish_reason, request_id, first_token_s, tool_calls: those that are known."""
    notes: tuple[str, ...] = ()


class Wire:
    """Calls models, all over one session."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        addresses: Mapping[str, str],
        redactor: Redactor | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`environment`: where keys and proxies are looked up. `addresses`: the base URLs that a
        run made for its loopback models, by name. `redactor`: the run's own, which learns the keys
        that are used. `now`: for dates in headers of servers that do not tell their own time."""
        self._environment = environment
        self._addresses = addresses
        self._clock = now
        self._clock_was_ahead_by = now() - time.monotonic()
        self._redactor = Redactor() if redactor is None else redactor
        self._endpoints: dict[str, Endpoint] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # The servers of simulated models are in this process: each call has both its ends here.
            connector=Connections(most_connections(per_call=2 if self._addresses else 1)),
            cookie_jar=aiohttp.DummyCookieJar(),
            # What is packed cannot be bounded before it is unpacked: it is not asked for.
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

    async def call(self, request: Request) -> Called | Unanswered:
        """One call; never raises for what the server, or the way to it, does."""
        call = self._begun(request)
        if isinstance(call, Unanswered):
            return self._redacted(call)
        trip = Trip()
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
            trip = Trip(wants_new=True)

    def _begun(self, request: Request) -> _Call | Unanswered:
        model = request.model
        try:
            endpoint = self._endpoint(model)
        except KeyProblemError as error:
            return weather.no_key(model, str(error))
        except ProxyProblemError as error:
            return breaks.no_proxy(model, error)
        except ValueError:
            return breaks.no_address(model)
        try:
            return _Call(request, endpoint)
        except (ValueError, TypeError, RecursionError) as error:
            return weather.unsendable(model, str(error))

    def _endpoint(self, model: Model) -> Endpoint:
        known = self._endpoints.get(model.name)
        if known is not None and (known.model is model or known.model == model):
            return known
        made = endpoint_of(model, environment=self._environment, addresses=self._addresses)
        for secret in made.secrets:
            self._redactor.add(secret)
        self._endpoints[model.name] = made
        return made

    def _now(self) -> float:
        """A clock that is set back while we run must not make of a second's wait a day's."""
        return max(self._clock(), self._clock_was_ahead_by + time.monotonic())

    async def _made(self, call: _Call, trip: Trip) -> Called | Unanswered:
        assert self._session is not None, "a wire is used inside `async with`"
        TRIP.set(trip)
        endpoint = call.endpoint
        async with self._session.post(
            endpoint.url,
            data=call.body,
            headers=endpoint.headers,
            timeout=endpoint.timeout(call.time_left()),
            # The key would go along.
            allow_redirects=False,
            proxy=None if endpoint.proxy is None else endpoint.proxy.url,
        ) as response:
            trip.content = response.content
            call.told = rates.told(response.headers, self._now())
            if not 200 <= response.status < 300:
                return call.with_told(await self._refused(call, response))
            reading = await call.read(response)
            return call.called(reading, response)

    async def _refused(self, call: _Call, response: aiohttp.ClientResponse) -> Unanswered:
        said = await _complaint(response)
        clean = self._redactor.text
        return weather.refused(
            call.request.model,
            weather.Refusal(
                status=response.status,
                complaint=weather.complaint_in(said).cleaned(clean),
                retry_after=rates.retry_after(response.headers, self._now()),
                location=clean(response.headers.get("Location", "")),
                html=weather.is_html(said),
                proxy=call.endpoint.proxy_variable,
            ),
        )

    def _redacted(self, ended: Called | Unanswered) -> Called | Unanswered:
        clean = self._redactor
        if isinstance(ended, Unanswered):
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


class _Call:
    """One call while it is made."""

    def __init__(self, request: Request, endpoint: Endpoint) -> None:
        """ValueError, TypeError or RecursionError where the model's options are no JSON."""
        self.request = request
        self.endpoint = endpoint
        self.told: RateTold | None = None
        own = request.timeout
        self.timeout = request.model.timeout if own is None else own
        self._started = time.monotonic()
        self._first_token_s: float | None = None
        self._answer = AnswerBytes(endpoint.adapter)
        body = endpoint.adapter.body(request, stream=endpoint.streams)
        body.update(request.model.options)
        self.body = _encode(body).encode()

    def time_left(self) -> float:
        """0 would be for ever, to aiohttp."""
        return max(0.001, self.timeout - (time.monotonic() - self._started))

    async def read(self, response: aiohttp.ClientResponse) -> Reading:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnreadableError("it is packed, which was not asked for")
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

    def called(self, reading: Reading, response: aiohttp.ClientResponse) -> Called:
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
            account=account_need(self.request.model.account),
            requests=1,
            tokens=tokens,
            told=rates.fitting(self.told, tokens),
        )
        return Called(
            text=reading.text,
            usage=usage,
            use=use,
            metadata=metadata,
            notes=notes,
        )

    def broken_off(self, error: Exception) -> Unanswered:
        return self.with_told(
            breaks.broken_off(
                self.endpoint, error, timeout=self.timeout, has_text=self._answer.has_text
            )
        )

    def with_told(self, ended: Unanswered) -> Unanswered:
        """What the headers told holds also where the answer is none."""
        told = rates.fitting(self.told, self._tokens(None, 0))
        return replace(ended, use=replace(ended.use, told=told))

    def _tokens(self, usage: Mapping[str, float] | None, written: int) -> float:
        """For the account's pace. Where they are not told, a guess holds better than nothing."""
        if usage is not None:
            return usage["input_tokens"] + usage["output_tokens"]
        asked = sum(len(message.content) for message in self.request.messages)
        return (asked + written) / CHARACTERS_PER_TOKEN


def _was_not_heard(trip: Trip, error: Exception) -> bool:
    """A kept connection may have been closed by the server just before it was used. What was sent
    over it was not heard, unless an answer had begun: aiohttp hands over what it has of a head."""
    if not trip.is_kept or trip.wants_new or trip.content is not None:
        return False
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)
    return isinstance(error, aiohttp.ClientOSError | aiohttp.ClientConnectionResetError)


async def _closed(content: aiohttp.StreamReader) -> None:
    """Waits, not for long, for the end of a stream whose answer is there."""
    try:
        async with asyncio.timeout(CLOSING_S):
            while await content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        # The answer is whole; only the connection is of no more use.
        pass


async def _complaint(response: aiohttp.ClientResponse) -> str:
    """What an error's body says, as far as it comes."""
    said = bytearray()
    try:
        async with asyncio.timeout(COMPLAINT_S):
            while len(said) < COMPLAINT_LIMIT_BYTES and (chunk := await response.content.readany()):
                said += chunk
    except (aiohttp.ClientError, OSError):
        # The status is what counts.
        pass
    return said[:COMPLAINT_LIMIT_BYTES].decode(errors="replace")
