"""Ends tests that exceed their timeout.

An asyncio loop is asked to cancel: an orderly end that runs the code's cleanup. In other Python
code, an exception is raised wherever it is. Code that waits in C (a socket, a lock, a sleep)
notices neither until it returns, and some code catches every exception: such a test is abandoned
and reported, and its thread left behind. In the main thread, the process's alarm signal is used.
`stacks` finds where a test hung.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from types import FrameType
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.running.current_test import Phase, RunningTest, start_unowned
from paraval.pytest_plugin.timeouts.stacks import (
    LEFT_BEHIND,
    HangReport,
    TestTimedOut,
    frame_of,
    look_at,
    module_of,
    outwards,
    task_in,
    thread_at,
)

LOOK_S = 0.02
GRACE_S = 3.0
"""How long a test has to end after it was stopped."""
_WAITS = (
    "paraval.pytest_plugin.exclusive.lock",
    "paraval.pytest_plugin.fixtures.shared_fixture",
    "paraval.pytest_plugin.fixtures.setup_tree",
)
"""Modules in which a test waits for others."""


def cancel(task: asyncio.Future[Any], error: BaseException) -> None:
    """Ask a loop to end its main task."""

    def act() -> None:
        waiter = _anyios_waiter(task)
        if waiter is None or waiter.done():
            task.cancel()
        else:
            waiter.set_exception(error)

    # A closed loop has nothing to cancel.
    with suppress(RuntimeError):
        task.get_loop().call_soon_threadsafe(act)


def _anyios_waiter(task: asyncio.Future[Any]) -> asyncio.Future[Any] | None:
    """What an anyio test waits for.

    anyio runs all of a test's coroutines in one task, which must outlive them: the teardown needs
    it.
    """
    coroutine: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    if getattr(coroutine, "__qualname__", "") != "TestRunner._call_in_runner_task":
        return None
    frame = coroutine.cr_frame
    waits_for = None if frame is None else getattr(frame.f_locals["self"], "_runner_task", None)
    while isinstance(waits_for, asyncio.Task):
        # Private, but always the same in asyncio's Python and C code.
        waits_for = getattr(waits_for, "_fut_waiter", None)
    return waits_for if isinstance(waits_for, asyncio.Future) else None


def raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in the thread at its next step in Python; None withdraws it."""
    import ctypes

    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)


def _waits_for_a_turn(frame: FrameType | None) -> bool:
    """Whether a thread waits for its turn at something that tests share."""
    names = map(module_of, outwards(frame))
    return next((one for one in names if one not in ("threading", "contextlib")), None) in _WAITS


def _is_debugged(frame: FrameType | None) -> bool:
    """Whether a debugger waits for input in this stack: then there is no timeout."""
    packages = {module_of(one).partition(".")[0] for one in outwards(frame)}
    return not packages.isdisjoint(("bdb", "pdb", "pydevd"))


# ---- parallel tests


@dataclass(slots=True, eq=False)
class TimeoutWatch:
    """A test and its timeout. The test's own thread opens and closes it; the watcher checks it."""

    test: RunningTest
    seconds: float
    on_given_up: Callable[[HangReport], None]
    grace_s: float
    call_only: bool
    """True: the setup is not counted."""
    # A plain lock, not a Condition: an exception may be raised in the thread that holds it.
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Guards all below. Exceptions are raised with it held, and only while it is open."""
    _is_open: bool = field(default=False, init=False)
    _phase: Phase = field(default="setup", init=False)
    _next_at: float = field(default=0.0, init=False)
    """When to act next: at first, the deadline. 0: it has not begun."""
    _hung: HangReport | None = field(default=None, init=False)
    _is_raised: bool = field(default=False, init=False)
    _is_given_up: bool = field(default=False, init=False)

    # ---- in the test's thread

    def around_phase(self, phase: Phase) -> Generator[None, Any, Any]:
        """Wrap one phase of the test, for a hook wrapper."""
        failure: BaseException | None = None
        result = None
        self._open(phase)
        try:
            result = yield
        except BaseException as error:  # noqa: BLE001 - raised again below, or reported as a timeout
            failure = error
        while self._is_open:
            try:
                self._close()
            except TestTimedOut as late:  # Raised at this very point.
                failure = late
        try:
            if self._hung is not None and not _ends_the_run(failure):
                raise TestTimedOut(_noting(self._hung, failure)) from None
            if failure is not None:
                raise failure
            return result
        finally:
            del failure  # Its traceback refers to this frame, which would create a cycle.

    def _open(self, phase: Phase) -> None:
        with self._lock:
            if self._is_given_up and self._hung is not None:
                # It returned after all, but it has been reported and may not continue.
                raise TestTimedOut(self._hung)
            # A test may be set up again, to rerun.
            if phase != "call" or self.call_only or not self._next_at:
                self._next_at = time.monotonic() + self.seconds
            self._phase = phase
            self._hung, self._is_raised, self._is_open = None, False, True

    def _close(self) -> None:
        with self._lock:
            if self._is_raised:
                raise_in(self.test.thread or 0, None)
            self._is_open = False

    # ---- in the watcher's thread

    def look(self, now: float) -> None:
        """Do what is due."""
        with self._lock:
            if self._is_given_up or not self._is_open or now < self._next_at:
                return
            test, hung = self.test, self._hung
            frame, self._next_at = frame_of(test.thread), now + self.grace_s
            if hung is None:
                is_uncounted = self._phase == "setup" and self.call_only
                if is_uncounted or _waits_for_a_turn(frame) or _is_debugged(frame):
                    # Unknown how long it has been waiting, so it gets its full time again.
                    self._next_at = now + self.seconds
                    return
                thread, phase, seconds = test.thread or 0, self._phase, self.seconds
                hung = look_at(test.item, thread, phase=phase, seconds=seconds, test=test)
                self._hung, test.check = hung, "none"  # It would only hang again.
                task = task_in(frame)
                if task is not None:
                    cancel(task, TestTimedOut(hung))
                    return
            if not self._is_raised:
                self._is_raised = True
                raise_in(thread_at(test) or 0, TestTimedOut.of(hung))
                return
            self._is_given_up = True
            self._hung = hung = replace(hung.noting(LEFT_BEHIND), ended=tuple(test.ended))
        self.on_given_up(hung)


def _ends_the_run(failure: BaseException | None) -> bool:
    return isinstance(failure, KeyboardInterrupt | pytest.exit.Exception)


def _noting(hung: HangReport, failure: BaseException | None) -> HangReport:
    if failure is None:
        return hung.noting("it then finished, but too late")
    if isinstance(failure, asyncio.CancelledError | TestTimedOut):
        return hung
    return hung.noting(f"when stopped, it raised {type(failure).__name__}: {failure}")


class TimeoutWatcher:
    """Watches all tests that have a timeout."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._watches: dict[RunningTest, TimeoutWatch] = {}
        self._starting = threading.Lock()
        """Guards the thread."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def watching(
        self,
        test: RunningTest,
        seconds: float,
        on_given_up: Callable[[HangReport], None],
        call_only: bool = False,
    ) -> Iterator[TimeoutWatch]:
        """Watch all phases of a test. `on_given_up` is called in the watcher's thread."""
        watch = TimeoutWatch(test, seconds, on_given_up, self._grace_s, call_only)
        with self._starting:
            if self._thread is None:
                name = "paraval-watcher"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                start_unowned(self._thread)
        self._watches[test] = watch
        try:
            yield watch
        finally:
            del self._watches[test]

    def watch_of(self, test: RunningTest) -> TimeoutWatch | None:
        return self._watches.get(test)

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            now = time.monotonic()
            for watch in self._watches.copy().values():
                watch.look(now)


def interrupt(tests: Collection[RunningTest], grace_s: float) -> list[RunningTest]:
    """Interrupt tests as Ctrl-C would, in their threads; return those that don't end in time.

    A running teardown is only waited for: cleaning up is its job. Code in a loop gets
    CancelledError, other code KeyboardInterrupt.
    """
    for test in tests:
        task = task_in(frame_of(test.thread))
        if test.is_over or test.thread is None or test.phase == "teardown":
            continue
        if task is not None:
            cancel(task, KeyboardInterrupt())
        else:
            raise_in(test.thread, KeyboardInterrupt)
    until = time.monotonic() + grace_s
    while (left := [test for test in tests if not test.is_over]) and time.monotonic() < until:
        time.sleep(LOOK_S)
    return left


# ---- in the main thread


RING_AGAIN_S = 5.0
"""Time to clean up; then it is raised again, repeatedly, in case code catches it."""
SOON_S = 0.001
_SPENT = pytest.StashKey[float]()
"""What earlier phases have used of a test's time."""


@contextmanager
def alarm(item: pytest.Item, seconds: float, phase: Phase) -> Iterator[None]:
    """Limit a phase of a test; setup and call share the time, and the teardown has it again."""
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
    hung: HangReport | None = None
    is_over = False

    def ring(_number: int, frame: FrameType | None) -> None:
        nonlocal hung
        if is_over or _is_debugged(frame):
            return
        task = task_in(frame) if hung is None else None
        hung = hung or look_at(item, 0, phase=phase, seconds=seconds, frame=frame)
        if task is None:
            raise TestTimedOut(hung)
        cancel(task, TestTimedOut(hung))

    others_s, others_interval_s = signal.getitimer(signal.ITIMER_REAL)
    before, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, left_s, RING_AGAIN_S)
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
    """Whether we may set the alarm: in the main thread, unless SIGALRM is taken or rings first."""
    if threading.current_thread() is not threading.main_thread():
        return False
    others_s, _ = signal.getitimer(signal.ITIMER_REAL)
    is_free = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    return others_s > left_s if others_s else is_free
