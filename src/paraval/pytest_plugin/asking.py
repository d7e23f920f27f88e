"""Asks the models of the registry for tests: one client for all of them, in a thread of its own.

Tests are sync or async, in any thread and any loop; the client belongs to one loop. It starts with
the first question, brings up a server for each simulated model, and ends with pytest's session.
Nothing is kept for a second question, and nothing is tried again: that is the engine's.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import AsyncExitStack

import pytest

from paraval.loopback.scenario import Scenario
from paraval.loopback.server import LoopbackServer
from paraval.models.client import Models
from paraval.models.conversation import Answered, Request, Unanswered
from paraval.models.prices import Prices
from paraval.models.wire import Wire
from paraval.pytest_plugin.turns import CURRENT
from paraval.records import CacheUse, Model, Provider

STARTING_S = 60.0
LOOKING_S = 0.2
"""How often one that waits looks up, so that a timeout or Ctrl-C can end it."""


class Asking:
    """The client, from any thread."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._simulated = [one for one in models if one.provider is Provider.LOOPBACK]
        self._addresses: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._started: Future[Models] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="paraval-models", daemon=True
        )
        # It is nobody's, whichever test comes first: what it prints or logs is not that test's.
        token = CURRENT.set(None)
        try:
            self._thread.start()
        finally:
            CURRENT.reset(token)
        self._models = self._started.result(STARTING_S)

    def address_of(self, model: Model) -> str:
        """Where a model answers, simulated ones too."""
        return self._addresses.get(model.name, model.base_url)

    def ask(self, request: Request) -> Answered | Unanswered:
        asked = self._asked(request)
        try:
            while not asked.done():
                try:
                    asked.result(LOOKING_S)
                except TimeoutError:
                    continue
            return asked.result()
        finally:
            asked.cancel()

    async def ask_async(self, request: Request) -> Answered | Unanswered:
        return await asyncio.wrap_future(self._asked(request))

    def close(self) -> None:
        if self._loop is not None and self._ended is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(STARTING_S)

    def _asked(self, request: Request) -> Future[Answered | Unanswered]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._models.ask(request), self._loop)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                for model in self._simulated:
                    server = LoopbackServer(Scenario.load(model.scenario))
                    await stack.enter_async_context(server)
                    self._addresses[model.name] = server.base_url
                wire = Wire(environment=os.environ, addresses=self._addresses)
                self._started.set_result(
                    Models(
                        wire=await stack.enter_async_context(wire),
                        cache=None,
                        use=CacheUse.OFF,
                        prices=Prices(),
                        identities={},
                    )
                )
                await self._ended.wait()
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


ASKING = pytest.StashKey[Asking]()
_STARTING = threading.Lock()
"""Guards that there is one for a session."""


def asking_in(config: pytest.Config, models: Iterable[Model]) -> Asking:
    """The session's own, started when it is first wanted."""
    with _STARTING:
        found = config.stash.get(ASKING, None)
        if found is None:
            found = config.stash[ASKING] = Asking(models)
            config.add_cleanup(found.close)
        return found
