"""Ends what a test does in its thread, as far as that can be done from another one.

An asyncio loop is asked to cancel: that is in order, with all that the code does on its way out.
Other Python code has an exception raised where it just is. What waits in C (a socket, a lock, a
sleep) hears of neither until it comes back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
_HOLDS_LOCKS = (
    "threading",
    "logging",
    "queue",
    "importlib._bootstrap",
    "_frozen_importlib",
    _OWN,
)
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
    if thread is None:
        return None
    return sys._current_frames().get(thread)


def loop_in(frame: FrameType | None) -> RunningLoop | None:
    """The innermost asyncio loop that runs in a stack."""
    while frame is not None:
        name = _RUNS_A_LOOP.get(frame.f_code)
        if name is not None:
            main, is_shared = frame.f_locals.get(name), frame.f_code is run_in.__code__
            if isinstance(main, asyncio.Future):
                return RunningLoop(loop=main.get_loop(), main=main, is_shared=is_shared)
        frame = frame.f_back
    return None


def thread_at(turn: Turn) -> int | None:
    """The thread that runs the test's code now: that of a shared loop, while the test has it."""
    running = loop_in(frame_of(turn.thread))
    if running is None or not running.is_shared:
        return turn.thread
    loops: int | None = getattr(running.loop, "_thread_id", None)
    frame = frame_of(loops)
    while frame is not None and frame.f_code is not asyncio.Handle._run.__code__:
        frame = frame.f_back
    # A handle holds the context that its callback runs in.
    is_its = frame is not None and frame.f_locals["self"]._context.get(CURRENT) is turn
    return loops if is_its else turn.thread


def cancel(running: RunningLoop, error: BaseException, heard: Callable[[], None]) -> None:
    """Ask a loop to end its main task; `heard` is called once it takes notice."""

    def act() -> None:
        heard()
        served = _anyios_runner(running.main)
        if served is None or not _throw(served, error):
            running.main.cancel()

    # A closed loop has nothing left to be cancelled.
    with suppress(RuntimeError):
        running.loop.call_soon_threadsafe(act)


def raise_in(thread: int, error: type[BaseException]) -> None:
    """An exception where the thread just is, at its next step in Python."""
    _set_exception(thread, error)


def withdraw(thread: int) -> None:
    """Of what was raised in a thread and has not come up yet."""
    _set_exception(thread, None)


def is_good_moment(thread: int | None) -> bool:
    """False: an exception now might leave a lock held for ever that all tests share."""
    frame = frame_of(thread)
    for _ in range(3):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_HOLDS_LOCKS):
            return False
        frame = frame.f_back
    return True


def _set_exception(thread: int, error: type[BaseException] | None) -> None:
    import ctypes

    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)


def _anyios_runner(main: asyncio.Future[Any]) -> asyncio.Task[Any] | None:
    """The task that anyio runs all of a test's coroutines in: it must outlive them."""
    coroutine: Any = main.get_coro() if isinstance(main, asyncio.Task) else None
    if getattr(coroutine, "__qualname__", "") != _IN_ANYIOS_RUNNER or coroutine.cr_frame is None:
        return None
    task = getattr(coroutine.cr_frame.f_locals.get("self"), "_runner_task", None)
    return task if isinstance(task, asyncio.Task) else None


def _throw(task: asyncio.Task[Any], error: BaseException) -> bool:
    """Let what a task waits for fail. A cancelled runner would be no good to the teardown."""
    waits_for: Any = task
    while isinstance(waits_for, asyncio.Task):
        # Private, but the same in asyncio's Python and C code since the beginning.
        waits_for = getattr(waits_for, "_fut_waiter", None)
    if not isinstance(waits_for, asyncio.Future) or waits_for.done():
        return False
    waits_for.set_exception(error)
    return True


def waits_for_others(frame: FrameType | None) -> bool:
    """Whether a thread waits for its turn at what tests share."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module not in ("threading", "contextlib"):
            return module in _WAITS
        frame = frame.f_back
    return False


def is_debugged(frame: Any) -> bool:
    """Whether a debugger waits for a person in this stack: nobody is hurried then."""
    if "bdb" not in sys.modules and "pydevd" not in sys.modules:
        return False
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in ("bdb", "pdb", "pydevd"):
            return True
        frame = frame.f_back
    return False
