"""Who is on the floor: the turns that run, and those that must have it for themselves.

A test that changes the whole process (its folder, a patched name) is best found before it starts,
and then never comes here. One that is found out only as it does so asks for the floor: nobody new
comes on, and it waits until every other turn has left or waits as well. While a turn waits, it
changes nothing and sees no change; so those that ask at the same time have the floor one after
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

from paraval.pytest_plugin.running.current_test import Turn, current

PATIENCE_S = 300.0
"""With nobody leaving for so long, a turn that wants the floor goes on beside the others, whatever
they do: what it holds (a slot of a shared client, say) may be what they wait for."""
LOOK_S = 0.3
"""How often it is looked at what the others do."""
STALLED_AFTER = 4
"""So many looks in which all of them sat in a lock, and did nothing else between."""


class LeftBehindError(BaseException):
    """Raised in a test that nobody listens to any more, before it would change the process.

    Not an Exception: a test that catches those is not to go on.
    """


class Floor:
    """The turns that run at this moment."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        """Guards all below."""
        self._present: set[Turn] = set()
        """Came, and have not left."""
        self._active: set[Turn] = set()
        """Of these, the ones that do not wait."""
        self._asking: deque[Turn] = deque()
        self._owner: Turn | None = None
        self._held: dict[Turn, dict[object, str]] = {}
        """By the turn that has the floor, or lends it: for what. It ends with the last of these."""
        self._folders: dict[Turn, Path] = {}
        """By such a turn: the process's folder before. Without it, none is put back if the turn is
        given up."""
        self._impatient: set[Turn] = set()
        """Went on beside others; they do not wait again for each further change."""
        self._left_at = time.monotonic()
        self.reasons: dict[str, str] = {}
        """By node id: why a test had to have the floor for itself, although nothing told before."""
        self.shared: dict[str, str] = {}
        """By node id: what a test changed beside others, since they did not leave in time; or left
        changed, since it was given up."""
        self.by_shared_fixtures: dict[str, str] = {}
        """By name and scope: what the setup of a fixture changed for longer than one test. The
        tests that use it are told in `reasons`, too."""

    # ---- coming and going

    def enter(self, turn: Turn) -> None:
        """Waits while someone has the floor, lends it, or wants it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held and not self._asking)
            self._present.add(turn)
            self._active.add(turn)

    def leave(self, turn: Turn) -> None:
        """From any thread, and as often as one likes: a test that hangs is taken off by others."""
        with self._changed:
            self._present.discard(turn)
            self._active.discard(turn)
            self._impatient.discard(turn)
            held, folder = self._held.pop(turn, None), self._folders.pop(turn, None)
            if held and not turn.is_here:
                self._tidy_up(turn, next(iter(held.values())), folder)
            elif held and (turn.open_patches or _is_elsewhere(folder)):
                # Done once for everybody, by whoever comes first: it is no test's own.
                self.reasons.pop(turn.item.nodeid, None)
            if turn in self._asking:
                self._asking.remove(turn)
            if self._owner is turn:
                self._owner = None
            self._left_at = time.monotonic()
            self._changed.notify_all()

    def _tidy_up(self, turn: Turn, reason: str, folder: Path | None) -> None:
        """With the lock held, so that nobody comes on before, after a test that was given up."""
        why = f"{reason}; it was given up before it could put that back"
        self.shared.setdefault(turn.item.nodeid, why)
        if folder is not None:
            with suppress(OSError):  # It may be gone.
                os.chdir(folder)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block only waits, as for a shared fixture: others need not wait for it."""
        turn = current()
        if turn is None or not turn.is_here or turn not in self._active:
            yield
            return
        with self._changed:
            # Whoever it waits for must be able to go on: even a turn that has the floor lends it,
            # but to those who are here, not to anyone new.
            if self._owner is turn:
                self._owner = None
            self._active.discard(turn)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._go_on(turn)

    def _go_on(self, turn: Turn) -> None:
        """With the lock held. Raises nothing: what was waited for may have to be given back."""
        if self._held.get(turn):
            self._take(turn, is_lender=True)
            return
        self._held.pop(turn, None)
        self._wait_patiently(lambda: self._owner is None or turn not in self._present)
        if turn in self._present:
            self._active.add(turn)
        self._changed.notify_all()

    # ---- having it alone

    def ask(self, reason: str, *, is_tests_own: bool = True) -> Callable[[], None]:
        """Waits until nothing else runs; what ends that is returned, and so does the turn's end.

        What is not the test's own (the next time another test may set up the session's fixture) is
        no reason to run this test alone. Whoever asks again while it has the floor keeps it until
        the last of these ends. Only a test's own thread waits: others, as that of a loop which
        tests share, may be what another test waits for.
        """
        turn = current()
        if turn is None:
            return _nothing
        with self._changed:
            if not turn.is_here:
                if turn in self._present and self._owner is not turn:
                    self.reasons.setdefault(turn.item.nodeid, reason)
                    self.shared.setdefault(turn.item.nodeid, reason)
                return _nothing
            if turn not in self._present or turn in self._impatient:
                return _nothing
            if self._owner is not turn:
                if is_tests_own:
                    self.reasons.setdefault(turn.item.nodeid, reason)
                if not self._take(turn):
                    if turn not in self._present:
                        raise LeftBehindError(
                            f"{turn.item.nodeid} was given up as it waited to run alone ({reason})"
                        )
                    self.shared.setdefault(turn.item.nodeid, reason)
                    return _nothing
            hold = object()
            self._held[turn][hold] = reason
        return lambda: self._give_back(turn, hold)

    def outlives(self) -> None:
        """What the turn here changes is not its own: it stays, if the test is given up."""
        turn = current()
        if turn is not None:
            with self._changed:
                self._folders.pop(turn, None)

    def _take(self, turn: Turn, *, is_lender: bool = False) -> bool:
        """With the lock held; False: it goes on beside others, since they did not leave in time, or
        it was taken off the floor meanwhile."""
        self._active.discard(turn)
        # Who lent the floor has changed the process already, and is the next to have it back.
        (self._asking.appendleft if is_lender else self._asking.append)(turn)
        self._changed.notify_all()
        try:
            is_alone = self._wait_patiently(
                lambda: turn not in self._present or self._is_free_for(turn)
            )
        finally:
            # Also if the wait is interrupted: nobody may wait for one who does not ask any more.
            if turn in self._asking:
                self._asking.remove(turn)
            if turn in self._present:
                self._active.add(turn)
            self._changed.notify_all()
        if turn not in self._present:
            return False
        if is_alone:
            self._owner = turn
            self._held.setdefault(turn, {})
            if not is_lender:
                with suppress(OSError):  # It was deleted.
                    self._folders[turn] = Path.cwd()
        else:
            self._impatient.add(turn)
            self._held.pop(turn, None)
        return is_alone

    def _is_free_for(self, turn: Turn) -> bool:
        return self._owner is None and not self._active and self._asking[0] is turn

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
                looked_at, before, doing = now, doing, what_they_do(self._active)
                stalled = stalled + 1 if doing is not None and doing == before else 0
                if stalled >= STALLED_AFTER:
                    return False
            self._changed.wait(min(LOOK_S, self._patience_s - waited_s))
        return True

    def _give_back(self, turn: Turn, hold: object) -> None:
        with self._changed:
            held = self._held.get(turn, {})
            held.pop(hold, None)
            if not held and self._owner is turn:
                self._owner = None
                del self._held[turn]
                self._folders.pop(turn, None)
                self._left_at = time.monotonic()
                self._changed.notify_all()


def what_they_do(turns: Iterable[Turn]) -> Sequence[tuple[int, str]] | None:
    """By thread: what it has used of a processor, where all threads of these turns sit in a lock;
    None: some do not, or it cannot be told here."""
    found = []
    for thread in sorted({one for turn in turns for one in (*turn.threads, *turn.loop_threads)}):
        task = Path(f"/proc/self/task/{thread}")
        try:
            if not (task / "wchan").read_text().startswith("futex"):
                return None
            found.append((thread, (task / "schedstat").read_text().partition(" ")[0]))
        except OSError:
            return None
    return found or None


def _is_elsewhere(folder: Path | None) -> bool:
    """Whether the process has another folder than this one, which a turn has found."""
    try:
        return folder is not None and Path.cwd() != folder
    except OSError:  # It was deleted.
        return False


def _nothing() -> None: ...
