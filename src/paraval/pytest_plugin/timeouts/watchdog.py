"""One test and its time.

At the deadline a test is asked to end, in the gentlest way that it can hear; what hears of nothing
is given up: reported as it is, its thread left behind. How a thread is told is for `ending`, where
a test hung for `stacks`. In the main thread, the alarm that a process has does it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from paraval.pytest_plugin.running.current_test import Phase, Turn
from paraval.pytest_plugin.timeouts.ending import (
    cancel,
    frame_of,
    is_debugged,
    is_good_moment,
    loop_in,
    raise_in,
    thread_at,
    waits_for_others,
)
from paraval.pytest_plugin.timeouts.stacks import Hung, TestTimedOut, look_at

LOOK_S = 0.02
MOST_MOMENTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a test has after its deadline."""

    to_hear_s: float = 2.0
    """To take notice: a poll every second does, a socket that stays silent doesn't."""
    to_end_s: float = 5.0
    """To clean up, once it knows."""


@dataclass(slots=True, kw_only=True, eq=False)
class Watch:
    """One test and its time. The test's own thread opens and closes it, the watcher's looks."""

    turn: Turn
    seconds: float
    on_given_up: Callable[[Hung], None]
    patience: Patience
    call_only: bool
    """True: what the setup takes is not counted."""
    # A plain lock, and no Condition: an exception may be raised in the thread that holds it.
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Guards all below. Exceptions are raised with it held, and only while it is open."""
    _is_open: bool = field(default=False, init=False)
    _phase: Phase = field(default="setup", init=False)
    _next_at: float = field(default=0.0, init=False)
    """When there is something to be done: at first, the end of its time. 0: it has not begun."""
    _course: Iterator[float] | None = field(default=None, init=False)
    _is_heard: bool = field(default=False, init=False)
    _hung: Hung | None = field(default=None, init=False)
    _is_given_up: bool = field(default=False, init=False)

    # ---- in the test's thread

    def during(self, phase: Phase) -> Generator[None, Any, Any]:
        """Around one phase of the test, for a hook that wraps it."""
        failure: BaseException | None = None
        result = None
        self._open(phase)
        try:
            result = yield
        except BaseException as error:  # noqa: BLE001 - raised again below, or told as a timeout
            failure = error
        while self._is_open:
            try:
                self._close()
            except TestTimedOut as late:  # It came up just here.
                failure = late
        try:
            if self._hung is not None and not _ends_the_run(failure):
                raise TestTimedOut(_noting(self._hung, failure)) from None
            if failure is not None:
                raise failure
            return result
        finally:
            del failure  # Its traceback holds this frame, and so would hold itself.

    def _open(self, phase: Phase) -> None:
        with self._lock:
            if self._is_given_up and self._hung is not None:
                # It came back after all, but it is reported already and has nothing any more.
                raise TestTimedOut(self._hung)
            # A test may be set up once more, to run again.
            if phase != "call" or self.call_only or not self._next_at:
                self._next_at = time.monotonic() + self.seconds
            self._phase = phase
            self._course = self._hung = None
            self._is_open = True

    def _close(self) -> None:
        with self._lock:
            if self._course is not None and self.turn.thread is not None:
                raise_in(self.turn.thread, None)
            self._is_open = False

    # ---- in the watcher's thread

    def look(self, now: float) -> None:
        """Do what is due."""
        with self._lock:
            if self._is_given_up or not self._is_open or now < self._next_at:
                return
            if self._course is None:
                is_uncounted = self._phase == "setup" and self.call_only
                if is_uncounted or waits_for_others(self.turn.thread):
                    # Nobody knows since when it waits, so it has all of its time again.
                    self._next_at = now + self.seconds
                    return
                self._course = self._end()
                self.turn.check = "none"  # It would only hang once more.
            wait_s = next(self._course, None)
            if wait_s is not None:
                self._next_at = time.monotonic() + wait_s
                return
            self._is_given_up = True
            self._hung = hung = self._where().left_behind(self.turn)
        self.on_given_up(hung)

    def _end(self) -> Iterator[float]:
        """What is tried to end the test, one after another; how long each has to take effect."""
        while is_debugged(frame_of(self.turn.thread)):
            yield 1.0
        hung = self._where()
        running = loop_in(frame_of(self.turn.thread))
        if running is not None:
            self._hung = hung
            cancel(running, TestTimedOut(hung), self._hear)
            yield from self._until_heard()
            if self._is_heard:
                yield self.patience.to_end_s
        # What waits in C hears nothing; and there is code that catches all there is.
        yield from self._raise(hung)
        if self._is_heard:
            yield self.patience.to_end_s
            yield from self._raise(hung)
            yield self.patience.to_hear_s

    def _raise(self, hung: Hung) -> Iterator[float]:
        for _ in range(MOST_MOMENTS):
            if is_good_moment(thread_at(self.turn)):
                break
            yield LOOK_S
        self._hung, self._is_heard = hung, False
        thread = thread_at(self.turn)
        if thread is not None:
            raise_in(thread, self._error(hung))
        yield from self._until_heard()

    def _until_heard(self) -> Iterator[float]:
        until = time.monotonic() + self.patience.to_hear_s
        while not self._is_heard and time.monotonic() < until:
            yield LOOK_S

    def _where(self) -> Hung:
        if self._hung is not None:
            return self._hung
        turn = self.turn
        return look_at(
            turn.item, turn.thread or 0, phase=self._phase, seconds=self.seconds, turn=turn
        )

    def _hear(self) -> None:
        self._is_heard = True

    def _error(self, hung: Hung) -> type[TestTimedOut]:
        """A class that Python can make the exception of by itself, and that tells when it does."""
        hear = self._hear

        class Raised(TestTimedOut):
            # What ends the setup of a shared fixture is told to all who use it.
            __module__, __qualname__ = TestTimedOut.__module__, TestTimedOut.__qualname__

            def __init__(self) -> None:
                hear()
                super().__init__(hung)

        return Raised


def _ends_the_run(failure: BaseException | None) -> bool:
    return isinstance(failure, KeyboardInterrupt | pytest.exit.Exception)


def _noting(hung: Hung, failure: BaseException | None) -> Hung:
    if failure is None:
        return hung.noting("it then came to its end, but too late")
    if isinstance(failure, asyncio.CancelledError | TestTimedOut):
        return hung
    return hung.noting(f"when it was ended, it raised {type(failure).__name__}: {failure}")


# ---- in the main thread


TO_END_S = 5.0
"""To clean up; then it is raised once more."""
RING_AGAIN_S = 1.0
"""And so on: a loop that catches all there is may have an end."""
SOON_S = 0.001
_SPENT = pytest.StashKey[float]()
"""What the phases before have used of a test's time."""


@contextmanager
def alarm(item: pytest.Item, seconds: float, phase: Phase) -> Iterator[None]:
    """A phase of a test; setup and call have the time together, the teardown has it once more."""
    began = time.monotonic()
    spent = item.stash.get(_SPENT, 0.0) if phase == "call" else 0.0
    left_s = max(seconds - spent, SOON_S)
    try:
        if _may_be_set(left_s):
            with _ringing(item, seconds, phase, left_s):
                yield
        else:
            yield
    finally:
        item.stash[_SPENT] = spent + time.monotonic() - began


@contextmanager
def _ringing(item: pytest.Item, seconds: float, phase: Phase, left_s: float) -> Iterator[None]:
    hung: Hung | None = None
    is_over = False

    def ring(_number: int, frame: FrameType | None) -> None:
        nonlocal hung
        if is_over:
            return
        is_first = hung is None
        signal.setitimer(signal.ITIMER_REAL, TO_END_S if is_first else RING_AGAIN_S)
        if is_debugged(frame):
            return
        if hung is None:
            thread = threading.get_ident()
            hung = look_at(item, thread, phase=phase, seconds=seconds, frame=frame)
        running = loop_in(frame)
        if running is None or not is_first:
            raise TestTimedOut(hung)
        cancel(running, TestTimedOut(hung), lambda: None)

    others_s, others_interval_s = signal.getitimer(signal.ITIMER_REAL)
    before, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, left_s)
        yield
    except asyncio.CancelledError:
        if hung is None:
            raise
        raise TestTimedOut(hung) from None
    finally:
        is_over = True  # First, so that nothing is raised from here on.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if others_s:
            remaining_s = others_s - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(remaining_s, SOON_S), others_interval_s)


def _may_be_set(left_s: float) -> bool:
    """In the main thread only; not where another alarm rings first, or its handler has no time."""
    if threading.current_thread() is not threading.main_thread():
        return False
    others_s, _ = signal.getitimer(signal.ITIMER_REAL)
    is_free = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    return others_s > left_s if others_s else is_free
