"""An event loop for one run, which ends although something in it will not; and the signals that
stop a run.

`asyncio.run` waits for every task that is left and for every thread of its executor: a user's
function that ignores its cancel would keep a finished run from being reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from paraval.execute.driver import Driver

# What can stop a run from outside: the signals that a terminal, a supervisor or a person sends.

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Stopping = Callable[[Driver], contextlib.AbstractContextManager[object]]
"""What can stop a driver from outside while this lasts."""


@contextlib.contextmanager
def stopping_on_signals(driver: Driver) -> Iterator[None]:
    """A signal asks the driver to stop; only the main thread can be told of one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # One that is ignored stays so: that is what nohup is for.
    before = {
        number: handler
        for number in STOPPING_SIGNALS
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    for number in before:
        reason = "Interrupted" if number is signal.SIGINT else f"Got {number.name}"
        loop.add_signal_handler(number, driver.stop, reason)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


T = TypeVar("T")
LEFTOVERS_S = 1.0
"""How long tasks that are left may take to end when they are cancelled."""


def run_in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """What it returns; what it leaves running is cancelled, and after a while left behind."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return _run_to_its_end(loop, coroutine)
    finally:
        _end_leftovers(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _run_to_its_end(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except (KeyboardInterrupt, SystemExit):
        # Raised in the midst of it, before or after signals are listened to: let it clean up.
        task.cancel()
        loop.run_until_complete(asyncio.wait({task}))
        raise


def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=LEFTOVERS_S))
    for task in tasks:
        if not task.done():
            # Told already, as an attempt's note: asyncio need not complain as well.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    loop.run_until_complete(loop.shutdown_asyncgens())
