"""Holds a test in the main thread to its time, by the alarm that a process has.

There is one alarm for all: where somebody else uses it, it is left to them.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from paraval.pytest_plugin.ending import cancel, is_debugged, loop_in
from paraval.pytest_plugin.hung import Hung, TestTimedOut, look_at
from paraval.pytest_plugin.turns import Phase

TO_END_S = 5.0
"""To clean up; then it is raised once more."""
AGAIN_S = 1.0
"""And so on: a loop that catches all there is may have an end."""
SOON_S = 0.001
_SPENT = pytest.StashKey[float]()
"""What the phases before have used of a test's time."""


@contextmanager
def alarm(item: pytest.Item, seconds: float, phase: Phase) -> Iterator[None]:
    """A phase of a test; setup and call have the time together, the teardown has it once more."""
    if phase == "setup":
        item.stash[_SPENT] = 0.0
    spent = item.stash.get(_SPENT, 0.0) if phase == "call" else 0.0
    began = time.monotonic()
    try:
        left_s = max(seconds - spent, SOON_S)
        with _Alarm(item, seconds, phase).set_for(left_s):
            yield
    finally:
        item.stash[_SPENT] = spent + time.monotonic() - began


class _Alarm:
    def __init__(self, item: pytest.Item, seconds: float, phase: Phase) -> None:
        self._item = item
        self._seconds = seconds
        self._phase = phase
        self._hung: Hung | None = None
        self._is_over = False

    @contextmanager
    def set_for(self, left_s: float) -> Iterator[None]:
        if not _may_be_set(left_s):
            yield
            return
        before = signal.getsignal(signal.SIGALRM)
        others_s, others_interval_s = signal.getitimer(signal.ITIMER_REAL)
        began = time.monotonic()
        try:
            signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, left_s)
            yield
        except asyncio.CancelledError:
            if self._hung is None:
                raise
            raise TestTimedOut(self._hung) from None
        finally:
            self._is_over = True  # First, so that nothing is raised from here on.
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if others_s:
                remaining_s = others_s - (time.monotonic() - began)
                signal.setitimer(signal.ITIMER_REAL, max(remaining_s, SOON_S), others_interval_s)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        if self._is_over:
            return
        is_first = self._hung is None
        signal.setitimer(signal.ITIMER_REAL, TO_END_S if is_first else AGAIN_S)
        if is_debugged(frame):
            return
        if self._hung is None:
            self._hung = look_at(
                self._item,
                threading.get_ident(),
                phase=self._phase,
                seconds=self._seconds,
                frame=frame,
            )
        running = loop_in(frame)
        if running is None or not is_first:
            raise TestTimedOut(self._hung)
        cancel(running, TestTimedOut(self._hung), lambda: None)


def _may_be_set(left_s: float) -> bool:
    """In the main thread only; not where another alarm rings first, or its handler has no time."""
    if threading.current_thread() is not threading.main_thread():
        return False
    others_s, _ = signal.getitimer(signal.ITIMER_REAL)
    is_free = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    return others_s > left_s if others_s else is_free
