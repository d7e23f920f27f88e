"""Tracks the running tests, and gives those that change the process exclusive access to it.

A test that changes the whole process (its working directory, a patched name) is best detected
before it starts, and then never comes here. One that is detected at run time asks for the lock: no
new test starts, and it waits until every other test has left or is waiting too. A waiting test
changes nothing and sees no change, so tests that ask at the same time get the lock one after
another. If all other tests are blocked on a lock, the asking test may hold it: it continues.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from paraval.pytest_plugin.running.current_test import RunningTest, current_test

PATIENCE_S = 300.0
"""If no test leaves for this long, a test that wants the lock continues without it: it may hold
what the others wait for (a slot of a shared client, for example)."""
LOOK_S = 0.3
"""How often to check what the other tests are doing."""
STALLED_AFTER = 4
"""The number of consecutive checks that must find all of them blocked on a lock, unchanged."""


class AbandonedTestError(BaseException):
    """Raised in an abandoned test before it would change the process.

    Not an Exception: a test that catches those must not continue.
    """


class ExclusiveLock:
    """Tracks the running tests, and which of them runs exclusively."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        """Guards all attributes below."""
        self._present: set[RunningTest] = set()
        """Tests that have entered and not left."""
        self._active: set[RunningTest] = set()
        """Those of them that are not waiting."""
        self._asking: deque[RunningTest] = deque()
        self._owner: RunningTest | None = None
        self._held: dict[RunningTest, dict[object, str]] = {}
        """By test that has or lends the lock: the reasons. Without any left, it is released."""
        self._folders: dict[RunningTest, Path] = {}
        """By such a test: the working directory to restore if the test is abandoned."""
        self._impatient: set[RunningTest] = set()
        """Tests that continued without the lock; they do not wait again for further changes."""
        self._left_at = time.monotonic()
        self.reasons: dict[str, str] = {}
        """By node id: why a test had to run exclusively, found only at run time."""
        self.shared: dict[str, str] = {}
        """By node id: what a test changed while others ran, because they did not leave in time, or
        left changed because it was abandoned."""
        self.by_shared_fixtures: dict[str, str] = {}
        """By name and scope: what a fixture's setup changed for longer than one test. The tests
        that use it are also in `reasons`."""

    # ---- entering and leaving

    def enter(self, test: RunningTest) -> None:
        """Wait while a test has, lends or wants the lock."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held and not self._asking)
            self._present.add(test)
            self._active.add(test)

    def leave(self, test: RunningTest) -> None:
        """Remove the test; repeatable, from any thread: the watcher removes a hung test."""
        with self._changed:
            self._present.discard(test)
            self._active.discard(test)
            self._impatient.discard(test)
            held, folder = self._held.pop(test, None), self._folders.pop(test, None)
            if held and not test.is_own_thread:
                self._tidy_up(test, next(iter(held.values())), folder)
            elif held and (test.open_patches or _is_elsewhere(folder)):
                # A one-time change by whichever test came first: not a property of this test.
                self.reasons.pop(test.item.nodeid, None)
            if test in self._asking:
                self._asking.remove(test)
            if self._owner is test:
                self._owner = None
            self._left_at = time.monotonic()
            self._changed.notify_all()

    def _tidy_up(self, test: RunningTest, reason: str, folder: Path | None) -> None:
        """Clean up after an abandoned test, with the lock held, so that no test starts before."""
        why = f"{reason}; it was abandoned before it could undo that"
        self.shared.setdefault(test.item.nodeid, why)
        if folder is not None:
            with suppress(OSError):  # It may be gone.
                os.chdir(folder)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within the block the test only waits (for a shared fixture), so others ignore it."""
        test = current_test()
        if test is None or not test.is_own_thread or test not in self._active:
            yield
            return
        with self._changed:
            # The test it waits for must be able to continue: even a test that has the lock lends
            # it, but only to tests that are already running.
            if self._owner is test:
                self._owner = None
            self._active.discard(test)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._go_on(test)

    def _go_on(self, test: RunningTest) -> None:
        """Continue after a wait; call with the lock held. Never raises: callers must clean up."""
        if self._held.get(test):
            self._take(test, is_lender=True)
            return
        self._held.pop(test, None)
        self._wait_patiently(lambda: self._owner is None or test not in self._present)
        if test in self._present:
            self._active.add(test)
        self._changed.notify_all()

    # ---- exclusive access

    def ask(self, reason: str, *, is_tests_own: bool = True) -> Callable[[], None]:
        """Wait until no other test runs; return a function that releases the lock.

        The end of the test releases it too. A change that is not the test's own (next time, another
        test may set up the session fixture) is no reason to run this test exclusively. A test that
        asks again while it has the lock keeps it until the last release. Only a test's own thread
        waits: other tests may be waiting for its other threads, such as that of a shared loop.
        """
        test = current_test()
        if test is None:
            return _nothing
        with self._changed:
            if not test.is_own_thread:
                if test in self._present and self._owner is not test:
                    self.reasons.setdefault(test.item.nodeid, reason)
                    self.shared.setdefault(test.item.nodeid, reason)
                return _nothing
            if test not in self._present or test in self._impatient:
                return _nothing
            if self._owner is not test:
                if is_tests_own:
                    self.reasons.setdefault(test.item.nodeid, reason)
                if not self._take(test):
                    if test not in self._present:
                        raise AbandonedTestError(
                            f"{test.item.nodeid} was abandoned as it waited to run exclusively"
                            f" ({reason})"
                        )
                    self.shared.setdefault(test.item.nodeid, reason)
                    return _nothing
            hold = object()
            self._held[test][hold] = reason
        return lambda: self._give_back(test, hold)

    def forget_folder(self) -> None:
        """Keep a new working directory even if the test is abandoned: it is not the test's own."""
        test = current_test()
        if test is not None:
            with self._changed:
                self._folders.pop(test, None)

    def _take(self, test: RunningTest, *, is_lender: bool = False) -> bool:
        """Wait for the lock; call with `_changed` held. False: the others did not leave in time, so
        the test continues without it, or the test was abandoned."""
        self._active.discard(test)
        # The lender has already changed the process, so it is the next to get the lock back.
        (self._asking.appendleft if is_lender else self._asking.append)(test)
        self._changed.notify_all()
        try:
            is_alone = self._wait_patiently(
                lambda: test not in self._present or self._is_free_for(test)
            )
        finally:
            # Also if the wait is interrupted: no test may wait for one that no longer asks.
            if test in self._asking:
                self._asking.remove(test)
            if test in self._present:
                self._active.add(test)
            self._changed.notify_all()
        if test not in self._present:
            return False
        if is_alone:
            self._owner = test
            self._held.setdefault(test, {})
            if not is_lender:
                with suppress(OSError):  # It was deleted.
                    self._folders[test] = Path.cwd()
        else:
            self._impatient.add(test)
            self._held.pop(test, None)
        return is_alone

    def _is_free_for(self, test: RunningTest) -> bool:
        return self._owner is None and not self._active and self._asking[0] is test

    def _wait_patiently(self, is_so: Callable[[], bool]) -> bool:
        """Wait for the condition; False: no test has left for too long. Call with the lock held."""
        began = looked_at = time.monotonic()
        stalled = 0
        doing: Sequence[tuple[int, str]] | None = None
        while not is_so():
            now = time.monotonic()
            waited_s = now - max(began, self._left_at)
            if waited_s >= self._patience_s:
                return False
            if now - looked_at >= LOOK_S:
                looked_at, before, doing = now, doing, processor_time_of(self._active)
                stalled = stalled + 1 if doing is not None and doing == before else 0
                if stalled >= STALLED_AFTER:
                    return False
            self._changed.wait(min(LOOK_S, self._patience_s - waited_s))
        return True

    def _give_back(self, test: RunningTest, hold: object) -> None:
        with self._changed:
            held = self._held.get(test, {})
            held.pop(hold, None)
            if not held and self._owner is test:
                self._owner = None
                del self._held[test]
                self._folders.pop(test, None)
                self._left_at = time.monotonic()
                self._changed.notify_all()


def processor_time_of(tests: Iterable[RunningTest]) -> Sequence[tuple[int, str]] | None:
    """By thread: its processor time, if all threads of these tests are blocked on a lock; None:
    some are not, or it is unknown on this system."""
    found = []
    for thread in sorted({one for test in tests for one in (*test.threads, *test.loop_threads)}):
        task = Path(f"/proc/self/task/{thread}")
        try:
            if not (task / "wchan").read_text().startswith("futex"):
                return None
            found.append((thread, (task / "schedstat").read_text().partition(" ")[0]))
        except OSError:
            return None
    return found or None


def _is_elsewhere(folder: Path | None) -> bool:
    """Whether the process's working directory is no longer this one."""
    try:
        return folder is not None and Path.cwd() != folder
    except OSError:  # It was deleted.
        return False


def _nothing() -> None: ...
