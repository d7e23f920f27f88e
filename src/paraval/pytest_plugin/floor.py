"""Who is on the floor: the turns that run, and those that must have it for themselves.

A test that changes the whole process (its folder, its environment, a patched name) is best found
before it starts, and then never comes here. One that is found out only as it does so asks for the
floor: nobody new comes on, and it waits until every other turn has left or waits as well. While a
turn waits, it changes nothing and sees no change; so those that ask at the same time have the floor
one after another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paraval.pytest_plugin.turns import Turn, current

PATIENCE_S = 300.0
"""With nobody leaving for so long, a turn that wants the floor takes it to be held up by itself:
what it holds (a lock, a slot of a shared client) may be what the others wait for."""


class Floor:
    """The turns that run at this moment."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        """Guards all below."""
        self._active: set[Turn] = set()
        """On the floor, and not waiting."""
        self._asking: deque[Turn] = deque()
        self._owner: Turn | None = None
        self._left_at = time.monotonic()
        self.reasons: dict[str, str] = {}
        """By node id: why a test had to have the floor for itself, although nothing told before."""
        self.shared: dict[str, str] = {}
        """By node id: what a test changed beside others, since they did not leave in time."""

    # ---- coming and going

    def enter(self, turn: Turn) -> None:
        """Waits while someone has the floor, or wants it."""
        with self._changed:
            self._changed.wait_for(lambda: self._owner is None and not self._asking)
            self._active.add(turn)

    def leave(self, turn: Turn) -> None:
        with self._changed:
            self._active.discard(turn)
            if turn in self._asking:
                self._asking.remove(turn)
            if self._owner is turn:
                self._owner = None
            self._left_at = time.monotonic()
            self._changed.notify_all()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The code in the block only waits, as for a shared fixture: others need not wait for it."""
        turn = current()
        if turn is None or not turn.is_here:
            yield
            return
        with self._changed:
            # Whoever it waits for must be able to go on: even a turn that has the floor lends it.
            had_it = self._owner is turn
            if had_it:
                self._owner = None
            self._active.discard(turn)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                if had_it:
                    self._take(turn)
                else:
                    self._changed.wait_for(lambda: self._owner is None)
                    self._active.add(turn)

    # ---- having it alone

    def ask(self, reason: str) -> Callable[[], None]:
        """Waits until nothing else runs; what ends that is returned, and so does the turn's end.

        Only a test's own thread waits: others may be what another test waits for.
        """
        turn = current()
        if turn is None or not turn.is_here or self._owner is turn:
            return _nothing
        with self._changed:
            self.reasons.setdefault(turn.item.nodeid, reason)
            self._active.discard(turn)
            if not self._take(turn):
                self.shared.setdefault(turn.item.nodeid, reason)
        return lambda: self._give_back(turn)

    def _take(self, turn: Turn) -> bool:
        """With the lock held; False: it goes on beside others, since they did not leave in time."""
        self._asking.append(turn)
        self._changed.notify_all()
        is_alone = self._wait_for_it(turn)
        self._asking.remove(turn)
        self._active.add(turn)
        if is_alone:
            self._owner = turn
        else:
            self._changed.notify_all()
        return is_alone

    def _wait_for_it(self, turn: Turn) -> bool:
        def is_free() -> bool:
            return self._owner is None and not self._active and self._asking[0] is turn

        while not is_free():
            patience = self._left_at + self._patience_s - time.monotonic()
            asked_for = self._changed.wait(max(patience, 0.01))
            if not asked_for and time.monotonic() - self._left_at >= self._patience_s:
                return is_free()
        return True

    def _give_back(self, turn: Turn) -> None:
        with self._changed:
            if self._owner is turn:
                self._owner = None
                self._left_at = time.monotonic()
                self._changed.notify_all()


def _nothing() -> None: ...
