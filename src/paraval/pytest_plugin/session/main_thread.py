"""The main thread, while the engine runs in another: what only it may do is done here, in order.

Reporters and signals know the main thread alone, and so do tests that must run by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Job = Callable[[], None]
MOMENT_S = 0.02
"""What is not in a hurry is done within so long."""


class MainThread:
    """Jobs for the main thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | BaseException | None] = SimpleQueue()
        self._later: deque[Job] = deque()

    def post(self, job: Job) -> None:
        """From any thread; what it raises comes out of `serve`."""
        self._jobs.put(job)

    def post_later(self, job: Job) -> None:
        """The same within a moment, in its order: to wake the main thread for each of thousands of
        small jobs would cost more than they do."""
        self._later.append(job)

    def end(self, error: BaseException) -> None:
        """From any thread: `serve` raises it, after all that was posted before."""
        self._jobs.put(error)

    def close(self) -> None:
        """`serve` returns after all that was posted before."""
        self._jobs.put(None)

    def serve(self, tick: Job, every_s: float) -> None:
        """Does the jobs as they come, until `close`; meanwhile, now and then, `tick`."""
        next_tick = time.monotonic()
        while True:
            if (now := time.monotonic()) >= next_tick:
                tick()
                next_tick = now + every_s
            try:
                job = self._jobs.get(timeout=MOMENT_S)
            except Empty:
                self._do_later()
                continue
            self._do_later()
            if job is None:
                return
            if isinstance(job, BaseException):
                raise job
            job()

    def _do_later(self) -> None:
        while self._later:
            self._later.popleft()()

    def do_what_is_left(self) -> None:
        """The jobs that were posted, without waiting for more; it has ended already."""
        self._do_later()
        with contextlib.suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                if callable(job):
                    job()

    async def call(self, function: Callable[[], T]) -> T:
        """What the function returns; an Exception is the caller's, others come out of `serve`."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            if result.cancelled():
                return  # Whoever asked for it was ended before it came to this.
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - it is handed on to whoever awaits it
                _tell(loop, result, error=error)
            except BaseException as error:
                _tell(loop, result, error=asyncio.CancelledError(type(error).__name__))
                raise
            else:
                _tell(loop, result, value=value)

        self.post(job)
        return await result


def _tell(
    loop: asyncio.AbstractEventLoop,
    result: asyncio.Future[T],
    *,
    value: T | None = None,
    error: BaseException | None = None,
) -> None:
    def tell() -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)  # type: ignore[arg-type]  # a function's own value
        elif isinstance(error, asyncio.CancelledError):
            result.cancel()
        else:
            result.set_exception(error)

    # A loop that has ended has nobody left to be told.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)
