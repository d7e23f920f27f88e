"""Ends what a test does in its thread, as far as that can be done from another one.

An asyncio loop is asked to cancel: that is in order, with all that the code does on its way out.
Other Python code has an exception raised where it just is. What waits in C (a socket, a lock, a
sleep) hears of neither until it comes back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

from paraval.pytest_plugin.async_tests.runners import run_in
from paraval.pytest_plugin.running.current_test import CURRENT, Turn

_RUNS_A_LOOP = {
    asyncio.base_events.BaseEventLoop.run_until_complete.__code__: "future",
    asyncio.Runner.run.__code__: "task",
    run_in.__code__: "task",
}
"""Functions that wait for a task, and its name there. The second one is for loops that are not
written in Python, the third one for a loop that runs in another thread."""
_IN_ANYIOS_RUNNER = "TestRunner._call_in_runner_task"
_OWN = "paraval.pytest_plugin."
_HOLDS_LOCKS = ("threading", "logging", "queue", "importlib._bootstrap", "_frozen_importlib", _OWN)
"""Modules whose locks, held by a function that an exception ends at the wrong line, stay held."""
_WAITS = (f"{_OWN}exclusive.lock", f"{_OWN}fixtures.shared_fixture", f"{_OWN}fixtures.setup_tree")
"""Modules in which a test waits for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLoop:
    """A loop that a thread waits for, and the task in it."""

    loop: asyncio.AbstractEventLoop
    main: asyncio.Future[Any]
    is_shared: bool
    """True: the loop runs in a thread of its own, and other tests use it."""


def frame_of(thread: int | None) -> FrameType | None:
    """What a thread is just at; None: it is gone."""
    return None if thread is None else sys._current_frames().get(thread)


def loop_in(frame: FrameType | None) -> RunningLoop | None:
    """The innermost asyncio loop that runs in a stack."""
    for one in _outwards(frame):
        main = one.f_locals.get(_RUNS_A_LOOP[one.f_code]) if one.f_code in _RUNS_A_LOOP else None
        if isinstance(main, asyncio.Future):
            is_shared = one.f_code is run_in.__code__
            return RunningLoop(loop=main.get_loop(), main=main, is_shared=is_shared)
    return None


def thread_at(turn: Turn) -> int | None:
    """The thread that runs the test's code now: that of a shared loop, while the test has it."""
    running = loop_in(frame_of(turn.thread))
    if running is None or not running.is_shared:
        return turn.thread
    loops: int | None = getattr(running.loop, "_thread_id", None)
    for frame in _outwards(frame_of(loops)):
        if frame.f_code is asyncio.Handle._run.__code__:
            # A handle holds the context that its callback runs in.
            is_its = frame.f_locals["self"]._context.get(CURRENT) is turn
            return loops if is_its else turn.thread
    return turn.thread


def cancel(running: RunningLoop, error: BaseException, heard: Callable[[], None]) -> None:
    """Ask a loop to end its main task; `heard` is called once it takes notice."""

    def act() -> None:
        heard()
        waiter = _anyios_waiter(running.main)
        if waiter is None or waiter.done():
            running.main.cancel()
        else:
            waiter.set_exception(error)

    # A closed loop has nothing left to be cancelled.
    with suppress(RuntimeError):
        running.loop.call_soon_threadsafe(act)


def raise_in(thread: int, error: type[BaseException] | None) -> None:
    """An exception where the thread just is, at its next step in Python; None withdraws it."""
    import ctypes

    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)


def is_good_moment(thread: int | None) -> bool:
    """False: an exception now might leave a lock held for ever that all tests share."""
    return not any(name.startswith(_HOLDS_LOCKS) for name in islice(_modules(thread), 3))


def waits_for_others(thread: int | None) -> bool:
    """Whether a thread waits for its turn at what tests share."""
    others = (name for name in _modules(thread) if name not in ("threading", "contextlib"))
    return next(others, None) in _WAITS


def is_debugged(frame: FrameType | None) -> bool:
    """Whether a debugger waits for a person in this stack: nobody is hurried then."""
    modules = (str(one.f_globals.get("__name__", "")) for one in _outwards(frame))
    return any(name.partition(".")[0] in ("bdb", "pdb", "pydevd") for name in modules)


def _modules(thread: int | None) -> Iterator[str]:
    """Of what a thread is at, by name, the innermost first."""
    return (str(one.f_globals.get("__name__", "")) for one in _outwards(frame_of(thread)))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _anyios_waiter(main: asyncio.Future[Any]) -> asyncio.Future[Any] | None:
    """What a test of anyio's waits for. The task that anyio runs all of a test's coroutines in
    must outlive them: cancelled, it would be no good to the teardown."""
    coroutine: Any = main.get_coro() if isinstance(main, asyncio.Task) else None
    if getattr(coroutine, "__qualname__", "") != _IN_ANYIOS_RUNNER or coroutine.cr_frame is None:
        return None
    waits_for = getattr(coroutine.cr_frame.f_locals.get("self"), "_runner_task", None)
    while isinstance(waits_for, asyncio.Task):
        # Private, but the same in asyncio's Python and C code since the beginning.
        waits_for = getattr(waits_for, "_fut_waiter", None)
    return waits_for if isinstance(waits_for, asyncio.Future) else None
