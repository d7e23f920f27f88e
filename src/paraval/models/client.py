"""Asks models: no answer is paid for twice, and each one knows its price.

Adds caching, request sharing and prices to something that makes one call (`wire`). Identical
requests in flight are sent once; the others that wait get the answer as if it came from the cache.
Only the scheduler retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from paraval.dataclass import dataclass
from paraval.models.cache import Cache, CachedAnswer, RequestKeys
from paraval.models.prices import Prices
from paraval.models.requests import FailedCall, ModelAnswer, Request
from paraval.models.response_reader import ending_notes
from paraval.records import AccountUse, CacheUse, Failure, Model, Outcome, Spend, call_need

if TYPE_CHECKING:  # The wire loads aiohttp; computing a request's key does not need it.
    from paraval.models.http_call import CallResult

REFUSALS = frozenset({"content_filter", "refusal"})
"""Finish reasons of a withheld answer, which may differ next time."""
REFUSED = frozenset(ending_notes("stop", refused=True))
"""Notes of an answer that was withheld without such a finish reason."""
_OF_THAT_CALL = frozenset({"first_token_s"})
"""Metadata of one call, which would be wrong for a cached answer, such as timings."""


class Caller(Protocol):
    """Makes one call. `http_call.HttpCaller` implements it."""

    async def call(self, request: Request) -> CallResult | FailedCall: ...


@dataclass(slots=True, eq=False)
class _Flight:
    """A call in flight, and the callers waiting for it."""

    model: Model
    ended: asyncio.Future[ModelAnswer | FailedCall | None] | None = None
    """If someone waits: the result of the call; None: it was given up, and one of the waiting
    callers has to make it."""


class Models:
    """All models of a run, shared by everything in it. For one event loop."""

    def __init__(
        self,
        *,
        wire: Caller,
        cache: Cache | None,
        use: CacheUse,
        prices: Prices,
        identities: Mapping[str, str],
    ) -> None:
        """`identities`: by name of a loopback model, what replaces its address in cache keys."""
        self._wire = wire
        self._cache = cache if use is not CacheUse.OFF else None
        self._use = use
        self._prices = prices
        self.key = RequestKeys(identities).key
        self._flights: dict[str, _Flight] = {}
        self._fresh: set[str] = set()

    async def ask(self, request: Request) -> ModelAnswer | FailedCall:
        if self._use is CacheUse.OFF:
            return await self._call(request)
        key = self.key(request)
        while True:
            kept = self._kept(key)
            if kept is not None:
                return self._as_cached(request, kept)
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(key, request)
            ended = await self._follow(flight, request)
            if ended is not None:
                return ended

    def forget(self, request: Request) -> None:
        """Ask again next time, because the caller could not use the answer."""
        key = self.key(request)
        self._fresh.discard(key)
        if self._cache is not None:
            self._cache.forget(key)

    def _kept(self, key: str) -> CachedAnswer | None:
        if self._cache is None or (self._use is CacheUse.REFRESH and key not in self._fresh):
            return None
        return self._cache.get(key)

    async def _lead(self, key: str, request: Request) -> ModelAnswer | FailedCall:
        flight = self._flights[key] = _Flight(request.model)
        ended: ModelAnswer | FailedCall | None = None
        try:
            ended = await self._call(request)
        finally:
            del self._flights[key]
            if flight.ended is not None:
                flight.ended.set_result(ended)
        return self._keep(key, ended) if isinstance(ended, ModelAnswer) else ended

    async def _call(self, request: Request) -> ModelAnswer | FailedCall:
        began = time.perf_counter()
        called = await self._wire.call(request)
        if isinstance(called, FailedCall):
            return called
        return ModelAnswer(
            text=called.text,
            spend=Spend(
                calls=1,
                cost_usd=self._prices.cost_usd(request.model, called.usage),
                usage=called.usage or {},
            ),
            use=called.use,
            metadata=called.metadata,
            notes=called.notes,
            seconds=time.perf_counter() - began,
        )

    def _keep(self, key: str, answer: ModelAnswer) -> ModelAnswer:
        if self._cache is None or _is_withheld(answer):
            return answer
        self._cache.put(key, _to_keep(answer))
        self._fresh.add(key)
        return answer

    async def _follow(self, flight: _Flight, request: Request) -> ModelAnswer | FailedCall | None:
        """The result of another caller's call, as seen by one that waited; None: make the call
        yourself."""
        model = request.model
        longest = model.timeout if request.timeout is None else request.timeout
        began = time.perf_counter()
        if flight.ended is None:
            flight.ended = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(longest):
                # Shielded: a caller that stops waiting must not cancel the call for the others.
                ended = await asyncio.shield(flight.ended)
        except TimeoutError:
            return _waited_too_long(model, longest)
        if isinstance(ended, ModelAnswer):
            waited_s = time.perf_counter() - began
            return self._as_cached(request, _to_keep(ended), waited_s)
        if ended is None or flight.model.name != model.name:
            return None  # Another entry's key was refused or account held back: not ours.
        # The caller that sent the request has already learned the limits from it.
        use = AccountUse(account=ended.use.account, reached=ended.use.reached)
        return replace(ended, use=use, spend=None)

    def _as_cached(
        self, request: Request, kept: CachedAnswer, waited_s: float = 0.0
    ) -> ModelAnswer:
        """`waited_s`: how much of the call's time the caller has spent waiting for it."""
        return ModelAnswer(
            text=kept.text,
            spend=Spend(
                cached=1,
                cached_usd=self._prices.cost_usd(request.model, kept.usage),
                cached_usage=kept.usage or {},
                cached_s=None if kept.seconds is None else max(0.0, kept.seconds - waited_s),
            ),
            use=AccountUse(account=call_need(request.model)),
            metadata={**kept.metadata, "cached": True},
            notes=kept.notes,
            seconds=kept.seconds,
        )


def _waited_too_long(model: Model, longest: float) -> FailedCall:
    account = call_need(model)
    message = f"model '{model.name}' did not answer an equal request within {longest:g} s"
    return FailedCall(
        failure=Failure(kind=Outcome.TIMEOUT, message=message, account=account),
        use=AccountUse(account=account),
    )


def _is_withheld(answer: ModelAnswer) -> bool:
    return answer.metadata.get("finish_reason") in REFUSALS or not REFUSED.isdisjoint(answer.notes)


def _to_keep(answer: ModelAnswer) -> CachedAnswer:
    metadata = {name: value for name, value in answer.metadata.items() if name not in _OF_THAT_CALL}
    return CachedAnswer(
        text=answer.text,
        usage=answer.spend.usage or None,
        metadata=metadata,
        notes=answer.notes,
        seconds=answer.seconds,
    )
