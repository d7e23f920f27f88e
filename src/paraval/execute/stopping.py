"""What can stop a run from outside: the signals that a terminal, a supervisor or a person sends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from paraval.execute.driver import Driver

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
