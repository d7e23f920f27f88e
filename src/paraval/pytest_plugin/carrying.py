"""A turn travels into the threads and pools that its code uses: what they do is the test's, too.

asyncio's tasks carry context variables by themselves, and so do `asyncio.to_thread` and the worker
threads of anyio and trio. Threads begin with none, which stays so for all variables but ours, and
for those that the setup of a shared fixture starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from paraval.pytest_plugin.turns import CURRENT, Turn, turn_here


@contextmanager
def carrying() -> Iterator[None]:
    """While the block runs. Threads that began in it may outlive it."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_carrying(thread: threading.Thread) -> None:
        turn = _carried()
        if turn is None or thread.ident is not None:
            start(thread)
            return
        _carry_into(thread, turn)
        try:
            start(thread)
        except BaseException:
            # It never ran, and may be started again.
            vars(thread).pop("run", None)
            raise

    def submit_carrying(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **named: Any
    ) -> Any:
        if type(pool).__name__ == "InterpreterPoolExecutor":
            # Another interpreter has streams of its own, and a turn cannot be sent to it.
            return submit(pool, function, *args, **named)
        # Also for nobody: the pool's threads may be those of a test that came before.
        return submit(pool, partial(_call_in, _carried(), function), *args, **named)

    threading.Thread.start = start_carrying  # type: ignore[method-assign,assignment]  # put back below
    ThreadPoolExecutor.submit = submit_carrying  # type: ignore[method-assign,assignment]  # put back below
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]  # as it was
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]  # as it was


def _carried() -> Turn | None:
    """Nobody, where a shared fixture is set up: what it starts works for all who use it."""
    turn = turn_here()
    return None if turn is None or turn.sets_up_shared else turn


def _carry_into(thread: threading.Thread, turn: Turn) -> None:
    """The thread's own `run` is covered until it is called, and is then as it was.

    It is `run` that runs inside of the thread's context; and each class may have its own.
    """
    own = vars(thread).get("run")

    def run() -> None:
        __tracebackhide__ = True
        if own is None:
            vars(thread).pop("run", None)
        else:
            vars(thread)["run"] = own
        # For good: what nobody catches here is handled after the block, and is the test's.
        CURRENT.set(turn)
        with turn.owning_thread():
            thread.run()

    vars(thread)["run"] = run


def _call_in(turn: Turn | None, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    __tracebackhide__ = True
    if turn is not None:
        with turn.owning_thread():
            return function(*args, **named)
    token = CURRENT.set(None)
    try:
        return function(*args, **named)
    finally:
        CURRENT.reset(token)
