"""A turn: one test while it runs in a thread beside others; and whose turn the code here is.

The turn travels in a context variable, so that asyncio's tasks belong to the test that made them;
`carrying` sees to threads and pools. Code in an empty context belongs to the test of its thread.
Code of nobody (pytest itself, a test that runs alone in the main thread, a thread that is older
than all tests) has none.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from paraval.pytest_plugin.captured import Captured
    from paraval.pytest_plugin.logs import TurnLogs
    from paraval.pytest_plugin.protocol import PhaseEnd
    from paraval.pytest_plugin.unhandled import Unhandled

Phase = Literal["setup", "call", "teardown"]
Check = Literal["none", "all but callers", "all"]
"""Which tests that fail beside others are run once more, alone. A second answer of a model would
flatter the first: those that may have asked one are run again only where a user says so."""

CURRENT: ContextVar[Turn | None] = ContextVar("paraval_turn")
"""None: nobody's, whatever thread it is. Without a value, the thread tells: see `turn_here`."""
_BY_THREAD: dict[int, Turn] = {}
"""The turns that run, by the identity of each thread that is theirs."""


@dataclass(slots=True, kw_only=True, eq=False)
class Turn:
    """One test, once, in a thread of its own."""

    item: pytest.Item
    captured: Captured
    """What it prints."""
    logs: TurnLogs
    """What it logs."""
    phase: Phase = "setup"
    thread: int | None = None
    """The identity of its own thread, once that runs; others may belong to it, too."""
    threads: set[int] = field(default_factory=set)
    """All that are its own just now, as the system numbers them."""
    loop_threads: set[int] = field(default_factory=set)
    """Those of loops that it shares with other tests, while it waits for what runs there."""
    environment: dict[bytes, bytes | None] = field(default_factory=dict)
    """What it changed in `os.environ`; None: a variable that it took away."""
    warned: list[warnings.WarningMessage] = field(default_factory=list)
    unhandled: list[Unhandled] | None = field(default_factory=list)
    """Exceptions of its threads and finalizers, until the phase ends; None: its last has ended."""
    ended: list[PhaseEnd] = field(default_factory=list)
    """How its phases came out, each as it ends: of one that hangs, too."""
    sets_up_shared: bool = False
    """Or tears down, a fixture that others use, too: what it starts and sets is not this test's."""
    inner: Callable[[], None] | None = None
    """The test's own phases, where other plugins wrap something around them."""
    check: Check = "none"
    has_called: bool = False
    """It may have asked a model: it sent something over a network, or started a program."""
    is_over: bool = False
    """True: whatever still runs of it is left behind, and nobody listens to it."""

    @property
    def is_to_be_checked(self) -> bool:
        """Whether it is run once more, alone, if it has failed."""
        return self.check == "all" or (self.check == "all but callers" and not self.has_called)

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that the test itself runs in."""
        return threading.get_ident() == self.thread

    @contextmanager
    def setting_up_for_all(self) -> Iterator[None]:
        """It sets up or tears down a shared fixture until the block ends; one may need another."""
        before, self.sets_up_shared = self.sets_up_shared, True
        try:
            yield
        finally:
            self.sets_up_shared = before

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The test runs here, in this thread, until the block ends."""
        self.thread = threading.get_ident()
        try:
            with self.owning_thread():
                yield
        finally:
            self.is_over = True

    @contextmanager
    def owning_thread(self) -> Iterator[None]:
        """What this thread does until the block ends is the test's."""
        thread, native = threading.get_ident(), threading.get_native_id()
        before, token = _BY_THREAD.get(thread), CURRENT.set(self)
        _BY_THREAD[thread] = self
        self.threads.add(native)
        try:
            yield
        finally:
            self.threads.discard(native)
            if before is None:
                del _BY_THREAD[thread]
            else:
                _BY_THREAD[thread] = before
            CURRENT.reset(token)


def turn_here() -> Turn | None:
    """Whose turn the code that asks belongs to, though that may be over; None: nobody's."""
    try:
        return CURRENT.get()
    except LookupError:
        return _BY_THREAD.get(threading.get_ident())


def current() -> Turn | None:
    """The same of turns that are not over."""
    turn = turn_here()
    return None if turn is None or turn.is_over else turn


def note_call() -> None:
    """The test that this code belongs to, if any, may have asked a model."""
    turn = turn_here()
    if turn is not None:
        turn.has_called = True
