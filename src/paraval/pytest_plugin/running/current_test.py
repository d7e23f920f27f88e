"""The current test: whose the code is that asks, in whatever thread.

A turn is one test while it runs in a thread beside others. It travels in a context variable, so
that asyncio's tasks belong to the test that made them, and into the threads and pools that its code
uses. Code in an empty context belongs to the test of its thread. Code of nobody (pytest itself, a
test that runs alone in the main thread, a thread that is older than all tests) has no turn.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest
from _pytest.nodes import Node

if TYPE_CHECKING:
    from paraval.pytest_plugin.isolation.capture import Captured
    from paraval.pytest_plugin.isolation.exceptions import Unhandled
    from paraval.pytest_plugin.isolation.test_logs import TurnLogs
    from paraval.pytest_plugin.isolation.test_warnings import WarningsHeld
    from paraval.pytest_plugin.running.protocol import PhaseEnd

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
    added_variables: set[bytes] = field(default_factory=set)
    """Of these, what code under test added for all."""
    open_patches: set[int] = field(default_factory=set)
    """Identities of patches that it has begun, and not undone."""
    warned: list[warnings.WarningMessage] = field(default_factory=list)
    warnings_held: WarningsHeld | None = None
    """What the module `warnings` holds for it, once it was asked."""
    unhandled: list[Unhandled] | None = field(default_factory=list)
    """Exceptions of its threads and finalizers, until the phase ends; None: its last has ended."""
    ended: list[PhaseEnd] = field(default_factory=list)
    """How its phases came out, each as it ends: of one that hangs, too."""
    sets_up_for: Node | None = None
    """All tests below this node share the fixture that it sets up, or tears down, just now: what
    that starts and sets is not this test's."""
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


class _Alone:
    """In the place of a turn, for the test that runs alone in the main thread."""

    sets_up_for: Node | None = None


ALONE = _Alone()


@contextmanager
def setting_up_for(node: Node) -> Iterator[None]:
    """A fixture that all tests below the node share is set up, or torn down, until the block ends;
    one may need another."""
    who: Turn | _Alone = current() or ALONE
    before, who.sets_up_for = who.sets_up_for, node
    try:
        yield
    finally:
        who.sets_up_for = before


def note_call() -> None:
    """The test that this code belongs to, if any, may have asked a model."""
    turn = turn_here()
    if turn is not None:
        turn.has_called = True


# ---- threads and pools


@contextmanager
def carrying() -> Iterator[None]:
    """While the block runs. Threads that began in it may outlive it."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_carrying(thread: threading.Thread) -> None:
        turn = _carried()
        if turn is None or thread.ident is not None:
            start(thread)
            return
        _carry_into(thread, turn)
        try:
            start(thread)
        except BaseException:
            # It never ran, and may be started again.
            vars(thread).pop("run", None)
            raise

    def submit_carrying(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **named: Any
    ) -> Any:
        if type(pool).__name__ == "InterpreterPoolExecutor":
            # Another interpreter has streams of its own, and a turn cannot be sent to it.
            return submit(pool, function, *args, **named)
        # Also for nobody: the pool's threads may be those of a test that came before.
        return submit(pool, partial(_call_in, _carried(), function), *args, **named)

    threading.Thread.start = start_carrying  # type: ignore[method-assign,assignment]  # put back below
    ThreadPoolExecutor.submit = submit_carrying  # type: ignore[method-assign,assignment]  # put back below
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]  # as it was
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]  # as it was


def start_for_nobody(thread: threading.Thread) -> None:
    """It belongs to no test, although one starts it."""
    token = CURRENT.set(None)
    try:
        thread.start()
    finally:
        CURRENT.reset(token)


def _carried() -> Turn | None:
    """Nobody, where a shared fixture is set up: what it starts works for all who use it."""
    turn = turn_here()
    return None if turn is None or turn.sets_up_for is not None else turn


def _carry_into(thread: threading.Thread, turn: Turn) -> None:
    """The thread's own `run` is covered until it is called, and is then as it was.

    It is `run` that runs inside of the thread's context; and each class may have its own.
    """
    own = vars(thread).get("run")

    def run() -> None:
        __tracebackhide__ = True
        if own is None:
            vars(thread).pop("run", None)
        else:
            vars(thread)["run"] = own
        # For good: what nobody catches here is handled after the block, and is the test's.
        CURRENT.set(turn)
        with turn.owning_thread():
            thread.run()

    vars(thread)["run"] = run


def _call_in(turn: Turn | None, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    __tracebackhide__ = True
    if turn is not None:
        with turn.owning_thread():
            return function(*args, **named)
    token = CURRENT.set(None)
    try:
        return function(*args, **named)
    finally:
        CURRENT.reset(token)
