"""Calls blocking functions from asyncio, each in a thread that can be abandoned.

A thread cannot be stopped from outside. A call whose caller gives up (a timeout, a cancel) abandons
its thread: it is counted, another takes its place, and its result is dropped. The threads are
daemons, so that a hung one cannot block the exit of the process, and there are as many as
concurrent calls. Callers decide what to call and what a failure means.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from paraval.errors import TransientError

T = TypeVar("T")


class FunctionExit(RuntimeError):  # noqa: N818 - an exit, by the function's own will
    """A function tried to end the program: sys.exit, KeyboardInterrupt and the like."""

    def __init__(self, message: str, *, code: object = None) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, error: BaseException) -> FunctionExit:
        """The replacement for a BaseException that must not reach the event loop."""
        if isinstance(error, SystemExit):
            return cls(f"the function called sys.exit({error.code!r})", code=error.code)
        return cls(f"the function raised {type(error).__name__}")


async def await_safely(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Await an async function; nothing that it raises can end or cancel the engine."""
    try:
        return await function(*arguments)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise FunctionExit.of(error) from error
    except (Exception, GeneratorExit):
        # A discarded coroutine also receives GeneratorExit, which must pass through.
        raise
    except BaseException as error:
        raise FunctionExit.of(error) from error


async def await_in_a_task(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Like `await_safely`, but context variables that the function sets are not seen by others."""

    async def awaited() -> Any:
        try:
            return await await_safely(function, arguments)
        except GeneratorExit as error:
            # Thrown into the awaiting coroutine, it would close that.
            raise FunctionExit.of(error) from error

    return await asyncio.create_task(awaited())


class _CallState(Enum):
    HANDED_OVER = auto()
    RUNNING = auto()
    ENDED = auto()
    WITHDRAWN = auto()  # its caller gave up before it began
    LEFT_BEHIND = auto()  # its caller gave up while it ran


class _ThreadCall(Generic[T]):
    """One call on its way through a thread and back to the loop that awaits it."""

    __slots__ = ("context", "error", "function", "future", "loop", "result", "state")

    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.state = _CallState.HANDED_OVER
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.context.run(self.function)
        except Exception as error:  # noqa: BLE001 - whatever the function raises is its caller's
            self.error = error
        except BaseException as error:  # noqa: BLE001 - it would end this thread, or the engine
            self.error = FunctionExit.of(error)
            self.error.__cause__ = error

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Threads:
    """Threads created on demand and reused when idle; at most `limit` at a time, if given."""

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of threads must be 1 or more, not {limit}")
        self.left_behind = 0
        """Number of threads ever abandoned by their caller while the function ran."""
        self._limit = limit
        self._calls: SimpleQueue[_ThreadCall[Any] | None] = SimpleQueue()
        # Guards everything below, and the state of every call.
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._waiting = 0
        self._closed = False
        self._returned: dict[asyncio.AbstractEventLoop, list[_ThreadCall[Any]]] = {}
        """Ended calls by the loop that will be notified."""

    async def call(self, function: Callable[[], T]) -> T:
        """The function's result or exception; a canceled caller abandons its thread."""
        call = _ThreadCall(function)
        self._hand_over(call)
        try:
            await call.future
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        try:
            if call.error is not None:
                raise call.error
            result: T = call.result  # type: ignore[assignment]  # set, where there is no error
            return result
        finally:
            del call  # A raised error's traceback holds this frame, which would create a cycle.

    def close(self) -> None:
        """Stop idle threads; busy ones stop when their function ends. No call may follow."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._calls.put(None)
            self._threads -= self._idle
            self._idle = 0

    def _hand_over(self, call: _ThreadCall[Any]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads are closed")
            if self._idle:
                self._idle -= 1
            elif self._limit is None or self._threads < self._limit:
                self._start_thread()
            else:
                self._waiting += 1
            self._calls.put(call)

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="paraval-call", daemon=True).start()
        except RuntimeError as error:
            raise TransientError("the machine cannot start another thread") from error
        self._threads += 1

    def _give_up(self, call: _ThreadCall[Any]) -> None:
        with self._lock:
            if call.state is _CallState.HANDED_OVER:
                call.state = _CallState.WITHDRAWN
            elif call.state is _CallState.RUNNING:
                call.state = _CallState.LEFT_BEHIND
                self.left_behind += 1
                self._threads -= 1
                self._replace_thread()

    def _replace_thread(self) -> None:
        if self._waiting:
            # The machine may refuse another thread: then the next one that ends takes the call.
            with contextlib.suppress(TransientError):
                self._start_thread()
                self._waiting -= 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._begins(call):
                call.run()
            goes_on = self._goes_on_after(call)
            # An idle thread must not keep the last call's result alive.
            del call
            if not goes_on:
                return

    def _begins(self, call: _ThreadCall[Any]) -> bool:
        with self._lock:
            if call.state is _CallState.WITHDRAWN:
                return False
            call.state = _CallState.RUNNING
            return True

    def _goes_on_after(self, call: _ThreadCall[Any]) -> bool:
        """Record the end of a call and notify its loop; returns whether this thread takes another
        call."""
        with self._lock:
            if call.state is _CallState.LEFT_BEHIND:
                return False
            wakes = False
            if call.state is _CallState.RUNNING:
                call.state = _CallState.ENDED
                returned = self._returned.setdefault(call.loop, [])
                wakes = not returned
                returned.append(call)
            goes_on = self._stays_in_the_pool()
        if wakes:
            self._wake(call.loop)
        return goes_on

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notify once for all calls that end until the loop reacts: waking a loop costs more than
        most calls."""
        try:
            loop.call_soon_threadsafe(self._tell, loop)
        except RuntimeError:
            # The loop is closed: there is no one to notify.
            self._tell(loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            returned = self._returned.pop(loop, [])
        if not loop.is_closed():
            for call in returned:
                call.wake()

    def _stays_in_the_pool(self) -> bool:
        if self._waiting:
            self._waiting -= 1
        elif self._closed:
            self._threads -= 1
            return False
        else:
            self._idle += 1
        return True
