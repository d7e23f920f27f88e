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
from dataclasses import dataclass
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
    withdraw,
)
from paraval.pytest_plugin.timeouts.stacks import Hung, TestTimedOut, look_at

MOMENT_S = 0.005
MOST_MOMENTS = 40
AGAIN_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a test has after its deadline."""

    to_hear_s: float = 2.0
    """To take notice: a poll every second does, a socket that stays silent doesn't."""
    to_end_s: float = 5.0
    """To clean up, once it knows."""


class Watch:
    """One test and its time. The test's own thread opens and closes it, the watcher's looks."""

    def __init__(
        self,
        turn: Turn,
        seconds: float,
        on_given_up: Callable[[Hung], None],
        *,
        patience: Patience,
        call_only: bool,
    ) -> None:
        """`call_only`: what the setup takes is not counted."""
        self.turn = turn
        self._seconds = seconds
        self._on_given_up = on_given_up
        self._patience = patience
        self._call_only = call_only
        # A plain lock, and no Condition: an exception may be raised in the thread that holds it.
        self._lock = threading.Lock()
        """Guards all below. Exceptions are raised with it held, and only while it is open."""
        self.is_open = False
        self._pauses = 0
        self._paused_at = 0.0
        self._phase: Phase = "setup"
        self._deadline = time.monotonic() + seconds
        self._course: Iterator[float] | None = None
        self._next_at = self._deadline
        self._is_heard = False
        self._hung: Hung | None = None
        self._is_given_up = False

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
        while self.is_open:
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
            if phase != "call" or self._call_only:
                self._deadline = time.monotonic() + self._seconds
            self._phase = phase
            self._next_at = self._deadline
            self._course = self._hung = None
            self.is_open = True

    def _close(self) -> None:
        with self._lock:
            if self._course is not None and self.turn.thread is not None:
                withdraw(self.turn.thread)
            self.is_open = False

    def pause(self) -> None:
        with self._lock:
            self._pauses += 1
            if self._pauses == 1:
                self._paused_at = time.monotonic()

    def go_on(self) -> None:
        with self._lock:
            self._pauses -= 1
            if self._pauses == 0:
                self._deadline += time.monotonic() - self._paused_at
                self._next_at = max(self._next_at, self._deadline)

    # ---- in the watcher's thread

    def look(self, now: float) -> float:
        """Do what is due; when to look again. Infinity: never."""
        with self._lock:
            if self._is_given_up:
                return float("inf")
            if now < self._next_at:
                return self._next_at
            if not self.is_open or self._pauses:
                return now + AGAIN_S
            if self._course is None:
                if self._phase == "setup" and self._call_only:
                    self._next_at = now + self._seconds
                    return self._next_at
                if waits_for_others(frame_of(self.turn.thread)):
                    # Nobody said since when, so it has all of its time again.
                    self._deadline = self._next_at = now + self._seconds
                    return self._next_at
                self._course = self._end()
                self.turn.check = "none"  # It would only hang once more.
            wait_s = next(self._course, None)
            if wait_s is not None:
                self._next_at = time.monotonic() + wait_s
                return self._next_at
            self._is_given_up = True
            self._hung = hung = self._where().left_behind(self.turn)
        self._on_given_up(hung)
        return float("inf")

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
                yield self._patience.to_end_s
        # What waits in C hears nothing; and there is code that catches all there is.
        yield from self._raise(hung)
        if self._is_heard:
            yield self._patience.to_end_s
            yield from self._raise(hung)
            yield self._patience.to_hear_s

    def _raise(self, hung: Hung) -> Iterator[float]:
        for _ in range(MOST_MOMENTS):
            if is_good_moment(thread_at(self.turn)):
                break
            yield MOMENT_S
        self._hung, self._is_heard = hung, False
        thread = thread_at(self.turn)
        if thread is not None:
            raise_in(thread, self._error(hung))
        yield from self._until_heard()

    def _until_heard(self) -> Iterator[float]:
        until = time.monotonic() + self._patience.to_hear_s
        while not self._is_heard and time.monotonic() < until:
            yield AGAIN_S

    def _where(self) -> Hung:
        if self._hung is not None:
            return self._hung
        turn = self.turn
        return look_at(
            turn.item, turn.thread or 0, phase=self._phase, seconds=self._seconds, turn=turn
        )

    def _hear(self) -> None:
        self._is_heard = True

    def _error(self, hung: Hung) -> type[TestTimedOut]:
        """A class that Python can make the exception of by itself, and that tells when it does."""
        hear = self._hear

        class Raised(TestTimedOut):
            def __init__(self) -> None:
                hear()
                super().__init__(hung)

        Raised.__name__, Raised.__qualname__ = TestTimedOut.__name__, TestTimedOut.__qualname__
        Raised.__module__ = TestTimedOut.__module__
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
        signal.setitimer(signal.ITIMER_REAL, TO_END_S if is_first else RING_AGAIN_S)
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
