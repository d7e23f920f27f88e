"""An event loop for one run that ends even if something in it does not; and the signals that stop a
run.

`asyncio.run` waits for every remaining task and every thread of its executor: a user's function
that ignores cancellation would keep a finished run from being reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from paraval.execute.driver import Driver

# Stopping a run from outside: signals from a terminal, a supervisor or a person.

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Stopping = Callable[[Driver], contextlib.AbstractContextManager[object]]
"""Lets a driver be stopped from outside while this lasts."""


@contextlib.contextmanager
def stopping_on_signals(driver: Driver) -> Iterator[None]:
    """Let signals stop the driver; only the main thread can receive them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # Leave ignored signals ignored: that is what nohup is for.
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


MOST_EVENTS = 4


class FewEvents(selectors.DefaultSelector):
    """Gives the loop a few events at a time, and the others in the next rounds.

    When a hundred answers arrive together, the loop would read all of them, then grade all of them,
    then start a hundred trials: the first would start after the last was graded. And they would
    again be answered together. With a few at a time, each trial starts when its slot is free.
    """

    _turn = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(timeout)
        count = len(events)
        if count <= MOST_EVENTS:
            return events
        # An eighth at least: listing all events takes time, too. In turns, so that none starves.
        most = max(MOST_EVENTS, count // 8)
        first = self._turn % count
        self._turn += most
        return (events[first:] + events[:first])[:most]


T = TypeVar("T")
LEFTOVERS_S = 1.0
"""How long remaining tasks may take to end when they are canceled."""


def run_in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine and return its result. Tasks it leaves are canceled and, after a while,
    abandoned."""
    loop = asyncio.SelectorEventLoop(FewEvents())
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
        # Raised in the middle of it, before or after signal handlers are active: let it clean up.
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
            # Already reported as an attempt's note: asyncio need not complain as well.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    loop.run_until_complete(loop.shutdown_asyncgens())
