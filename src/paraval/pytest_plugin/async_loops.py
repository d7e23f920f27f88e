"""asyncio's current loop in a test's own thread: as in the main thread, where plain pytest runs it.

`asyncio.get_event_loop()` makes a loop in the main thread, and raises in all others. A test that
calls it beside others has a loop all the same; since tests of a plain run all meet the same one,
a loop is handed on from a test that is over to the next that asks.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paraval.pytest_plugin.turns import Turn, current

_NO_LOOPS_MADE = (3, 14)
"""Since then no thread has a loop that it did not set; tests don't differ there."""
_WARNED_OF = (3, 12)
"""Since then the main thread is warned when a loop is made for it."""


class _Spare:
    """The loops that were made for tests, and who has each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the list."""
        self._loops: list[tuple[Turn, asyncio.AbstractEventLoop]] = []

    def take(self, turn: Turn, policy: Any) -> asyncio.AbstractEventLoop:
        with self._lock:
            self._loops = [pair for pair in self._loops if not pair[1].is_closed()]
            for place, (owner, loop) in enumerate(self._loops):
                if owner.is_over and not loop.is_running():
                    self._loops[place] = (turn, loop)
                    return loop
            made: asyncio.AbstractEventLoop = policy.new_event_loop()
            self._loops.append((turn, made))
            return made

    def close(self) -> None:
        for _, loop in self._loops:
            if not loop.is_running():
                loop.close()


@contextmanager
def loops_as_in_main_thread() -> Iterator[None]:
    """While the block runs; loops that it made stay open until the process ends, since a fixture of
    the session may hold one."""
    if sys.version_info >= _NO_LOOPS_MADE:
        yield
        return
    policy: Any = asyncio.events.BaseDefaultEventLoopPolicy
    get_plainly, set_plainly = policy.get_event_loop, policy.set_event_loop
    spare = _Spare()
    atexit.register(spare.close)

    def set_event_loop(self: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        # A thread may have had other tests before: what they set is not this one's.
        self._local.paraval_turn = current()
        set_plainly(self, loop)

    def get_event_loop(self: Any) -> asyncio.AbstractEventLoop:
        turn = current()
        if turn is not None and turn.is_here and not _has_set(self, turn):
            if sys.version_info >= _WARNED_OF:
                warnings.warn("There is no current event loop", DeprecationWarning, stacklevel=2)
            self.set_event_loop(spare.take(turn, self))
        loop: asyncio.AbstractEventLoop = get_plainly(self)
        return loop

    policy.get_event_loop, policy.set_event_loop = get_event_loop, set_event_loop
    try:
        yield
    finally:
        policy.get_event_loop, policy.set_event_loop = get_plainly, set_plainly


def _has_set(policy: Any, turn: Turn) -> bool:
    """Whether the test itself said which loop is the current one, or that none is."""
    local = policy._local
    return getattr(local, "paraval_turn", None) is turn
