"""The tests that run at once, and the lock for those that must run alone after all.

A test that changes the whole process (its folder, a patched name) is best found before it starts,
and then never comes here. One that is found out only as it does so asks for the lock: nobody new
starts, and it waits until every other test has left or waits as well. While a test waits, it
changes nothing and sees no change; so those that ask at the same time have the lock one after
another. Where all others sit in a lock, it may be one that the asker holds: it goes on beside them.
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
"""With nobody leaving for so long, a test that wants the lock goes on beside the others, whatever
they do: what it holds (a slot of a shared client, say) may be what they wait for."""
LOOK_S = 0.3
"""How often it is looked at what the others do."""
STALLED_AFTER = 4
"""So many looks in which all of them sat in a lock, and did nothing else between."""


class AbandonedTestError(BaseException):
    """Raised in a test that nobody listens to any more, before it would change the process.

    Not an Exception: a test that catches those is not to go on.
    """


class ExclusiveLock:
    """Knows the tests that run at this moment, and which of them must be the only one."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        """Guards all below."""
        self._present: set[RunningTest] = set()
        """Came, and have not left."""
        self._active: set[RunningTest] = set()
        """Of these, the ones that do not wait."""
        self._asking: deque[RunningTest] = deque()
        self._owner: RunningTest | None = None
        self._held: dict[RunningTest, dict[object, str]] = {}
        """By the test that has the lock, or lends it: for what. It ends with the last of these."""
        self._folders: dict[RunningTest, Path] = {}
        """By such a test: the process's folder before. Without it, none is put back if the test is
        given up."""
        self._impatient: set[RunningTest] = set()
        """Went on beside others; they do not wait again for each further change."""
        self._left_at = time.monotonic()
        self.reasons: dict[str, str] = {}
        """By node id: why a test had to run alone, although nothing told before."""
        self.shared: dict[str, str] = {}
        """By node id: what a test changed beside others, since they did not leave in time; or left
        changed, since it was given up."""
        self.by_shared_fixtures: dict[str, str] = {}
        """By name and scope: what the setup of a fixture changed for longer than one test. The
        tests that use it are told in `reasons`, too."""

    # ---- coming and going

    def enter(self, test: RunningTest) -> None:
        """Waits while someone has the lock, lends it, or wants it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held and not self._asking)
            self._present.add(test)
            self._active.add(test)

    def leave(self, test: RunningTest) -> None:
        """From any thread, and as often as one likes: a test that hangs is taken off by others."""
        with self._changed:
            self._present.discard(test)
            self._active.discard(test)
            self._impatient.discard(test)
            held, folder = self._held.pop(test, None), self._folders.pop(test, None)
            if held and not test.is_own_thread:
                self._tidy_up(test, next(iter(held.values())), folder)
            elif held and (test.open_patches or _is_elsewhere(folder)):
                # Done once for everybody, by whoever comes first: it is no test's own.
                self.reasons.pop(test.item.nodeid, None)
            if test in self._asking:
                self._asking.remove(test)
            if self._owner is test:
                self._owner = None
            self._left_at = time.monotonic()
            self._changed.notify_all()

    def _tidy_up(self, test: RunningTest, reason: str, folder: Path | None) -> None:
        """With the lock held, so that nobody comes on before, after a test that was given up."""
        why = f"{reason}; it was abandoned before it could undo that"
        self.shared.setdefault(test.item.nodeid, why)
        if folder is not None:
            with suppress(OSError):  # It may be gone.
                os.chdir(folder)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block only waits, as for a shared fixture: others need not wait for it."""
        test = current_test()
        if test is None or not test.is_own_thread or test not in self._active:
            yield
            return
        with self._changed:
            # Whoever it waits for must be able to go on: even a test that has the lock lends it,
            # but to those who are here, not to anyone new.
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
        """With the lock held. Raises nothing: what was waited for may have to be given back."""
        if self._held.get(test):
            self._take(test, is_lender=True)
            return
        self._held.pop(test, None)
        self._wait_patiently(lambda: self._owner is None or test not in self._present)
        if test in self._present:
            self._active.add(test)
        self._changed.notify_all()

    # ---- having it alone

    def ask(self, reason: str, *, is_tests_own: bool = True) -> Callable[[], None]:
        """Waits until nothing else runs; what ends that is returned, and so does the test's end.

        What is not the test's own (the next time another test may set up the session's fixture) is
        no reason to run this test alone. Whoever asks again while it has the lock keeps it until
        the last of these ends. Only a test's own thread waits: others, as that of a loop which
        tests share, may be what another test waits for.
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
        """What the test here changes is not its own: it stays, if the test is given up."""
        test = current_test()
        if test is not None:
            with self._changed:
                self._folders.pop(test, None)

    def _take(self, test: RunningTest, *, is_lender: bool = False) -> bool:
        """With `_changed` held; False: it goes on beside others, since they did not leave in time,
        or it was given up meanwhile."""
        self._active.discard(test)
        # Who lent the lock has changed the process already, and is the next to have it back.
        (self._asking.appendleft if is_lender else self._asking.append)(test)
        self._changed.notify_all()
        try:
            is_alone = self._wait_patiently(
                lambda: test not in self._present or self._is_free_for(test)
            )
        finally:
            # Also if the wait is interrupted: nobody may wait for one who does not ask any more.
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
        """Until it is so, or nobody has left for too long; with the lock held."""
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
    """By thread: what it has used of a processor, where all threads of these tests sit in a lock;
    None: some do not, or it cannot be told here."""
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
    """Whether the process has another folder than this one, which a test has found."""
    try:
        return folder is not None and Path.cwd() != folder
    except OSError:  # It was deleted.
        return False


def _nothing() -> None: ...
