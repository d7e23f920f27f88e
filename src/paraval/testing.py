"""Helpers for tests: a model server for the duration of a test.

with paraval.testing.loopback(latency=0.1) as server:
    client = openai.OpenAI(base_url=server.base_url, api_key="any")
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from paraval.loopback.scenario import Scenario
from paraval.loopback.server import LoopbackServer
from paraval.loopback.stats import Stats, Tally

__all__ = ["Loopback", "Stats", "Tally", "loopback"]

T = TypeVar("T")
STARTING_S = 30.0


class Loopback:
    """A server that runs in another thread; usable from any thread."""

    def __init__(self, server: LoopbackServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self.base_url = server.base_url
        """For OpenAI's client library and compatible ones."""
        self.anthropic_base_url = server.root_url
        self.stopped = asyncio.Event()

    def stats(self) -> Stats:
        """What it has received so far."""
        return self._there(self._server.stats)

    def reset(self) -> None:
        """Reset counts, used limits and faults."""
        self._there(self._server.reset)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self.stopped.set)

    def _there(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(STARTING_S)


@contextmanager
def loopback(
    scenario: str | os.PathLike[str] | Mapping[str, Any] | None = None, **overrides: Any
) -> Iterator[Loopback]:
    """A model server on 127.0.0.1, on a free port, until the block ends.

    The scenario is a bundled name, a file or a mapping; keyword arguments override its keys.
    Without any, the server echoes prompts immediately.
    """
    server = LoopbackServer(Scenario.load(scenario, **overrides))
    started: Future[Loopback] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve(server, started)), name="paraval-loopback", daemon=True
    )
    thread.start()
    running = started.result(STARTING_S)
    try:
        yield running
    finally:
        running.stop()
        thread.join(STARTING_S)


async def _serve(server: LoopbackServer, started: Future[Loopback]) -> None:
    try:
        async with server:
            running = Loopback(server, asyncio.get_running_loop())
            started.set_result(running)
            await running.stopped.wait()
    except Exception as error:
        if started.done():
            raise
        started.set_exception(error)
