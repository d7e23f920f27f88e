"""Runs jobs in the main thread, in order, while the engine runs in another thread.

Reporters and signals work only in the main thread, and exclusive tests run there.
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
"""Jobs that are not urgent run within this time."""


class MainThread:
    """Jobs for the main thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | BaseException | None] = SimpleQueue()
        self._later: deque[Job] = deque()

    def post(self, job: Job) -> None:
        """Add a job, from any thread; `serve` raises what it raises."""
        self._jobs.put(job)

    def post_later(self, job: Job) -> None:
        """Add a job to run within a moment, in order: waking the main thread for each of thousands
        of small jobs would cost more than the jobs."""
        self._later.append(job)

    def end(self, error: BaseException) -> None:
        """Make `serve` raise the error after all earlier jobs; from any thread."""
        self._jobs.put(error)

    def close(self) -> None:
        """Make `serve` return after all earlier jobs."""
        self._jobs.put(None)

    def serve(self, tick: Job, every_s: float) -> None:
        """Run jobs as they come, until `close`; call `tick` periodically."""
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
        """Run the remaining jobs without waiting for more; `serve` has ended."""
        self._do_later()
        with contextlib.suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                if callable(job):
                    job()

    async def call(self, function: Callable[[], T]) -> T:
        """Run the function there. An Exception goes to the caller, others to `serve`."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            if result.cancelled():
                return  # The caller was cancelled before its turn.
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - passed on to the caller
                _settle(loop, result, error=error)
            except BaseException as error:
                _settle(loop, result, error=asyncio.CancelledError(type(error).__name__))
                raise
            else:
                _settle(loop, result, value=value)

        self.post(job)
        return await result


def _settle(
    loop: asyncio.AbstractEventLoop,
    result: asyncio.Future[T],
    *,
    value: T | None = None,
    error: BaseException | None = None,
) -> None:
    def settle() -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)  # type: ignore[arg-type]  # the function's own value
        elif isinstance(error, asyncio.CancelledError):
            result.cancel()
        else:
            result.set_exception(error)

    # A loop that has ended has no caller left.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
