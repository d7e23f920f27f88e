"""The current test: whose the code is that asks, in whatever thread.

A running test (one that runs in a thread beside others) travels in a context variable, so
that asyncio's tasks belong to the test that made them, and into the threads and pools that its code
uses. Code in an empty context belongs to the test of its thread. Code of nobody (pytest itself, a
test that runs alone in the main thread, a thread that is older than all tests) has none.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

import pytest

from paraval.pytest_plugin.pytest_internals import Node

Phase = Literal["setup", "call", "teardown"]
Check = Literal["none", "all but callers", "all"]
"""Which tests that fail beside others are run once more, alone. A second answer of a model would
flatter the first: those that may have asked one are run again only where a user says so."""

CURRENT: ContextVar[RunningTest | None] = ContextVar("paraval_test")
"""None: nobody's, whatever thread it is. Without a value, the thread tells: see `owning_test`."""
_BY_THREAD: dict[int, RunningTest] = {}
"""The tests that run, by the identity of each thread that is theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnd:
    """How one phase of a test ended."""

    report: pytest.TestReport
    error: BaseException | None = None
    """What was raised in it; None: nothing, or nobody knows any more."""
    interacts: Callable[[], None] | None = None
    """Tells plugins of the exception; for the main thread. None: there is nothing to be told."""


class TestOutput(Protocol):
    """What a test prints, and what it has put in the place of the streams; see `capture`."""

    mode: str
    own_streams: dict[Any, Any]
    outputs: dict[Any, Any]
    fixture: Any

    def take(self) -> list[tuple[str, str]]: ...

    def close(self) -> None: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def suspended(self) -> AbstractContextManager[None]: ...


class TestLogs(Protocol):
    """What a test logs, and the levels that it asked for; see `logs`."""

    levels: dict[logging.Logger, int]

    def begin(self, phase: Phase) -> None: ...

    def end(self, phase: Phase) -> None: ...

    def take(self, record: logging.LogRecord) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class RunningTest:
    """One test, once, in a thread of its own."""

    item: pytest.Item
    captured: TestOutput
    """What it prints."""
    logs: TestLogs
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
    warnings_state: Any = None
    """What the module `warnings` holds for it, once it was asked."""
    unhandled: list[Any] | None = field(default_factory=list)
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
    def is_own_thread(self) -> bool:
        """Whether this is the thread that the test itself runs in."""
        return threading.get_ident() == self.thread

    @contextmanager
    def running_here(self) -> Iterator[None]:
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


def owning_test() -> RunningTest | None:
    """Whose the code is that asks, though that test may be over; None: nobody's."""
    try:
        return CURRENT.get()
    except LookupError:
        return _BY_THREAD.get(threading.get_ident())


def current_test() -> RunningTest | None:
    """The same of tests that are not over."""
    test = owning_test()
    return None if test is None or test.is_over else test


class _AloneTest:
    """In the place of a running test, for the one that runs alone in the main thread."""

    sets_up_for: Node | None = None


ALONE = _AloneTest()


@contextmanager
def setting_up_for(node: Node) -> Iterator[None]:
    """A fixture that all tests below the node share is set up, or torn down, until the block ends;
    one may need another."""
    who: RunningTest | _AloneTest = current_test() or ALONE
    before, who.sets_up_for = who.sets_up_for, node
    try:
        yield
    finally:
        who.sets_up_for = before


def note_call() -> None:
    """The test that this code belongs to, if any, may have asked a model."""
    test = owning_test()
    if test is not None:
        test.has_called = True


# ---- threads and pools


@contextmanager
def propagate_to_threads() -> Iterator[None]:
    """While the block runs. Threads that began in it may outlive it."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_with_test(thread: threading.Thread) -> None:
        test = _inherited_test()
        if test is None or thread.ident is not None:
            start(thread)
            return
        _set_test_of(thread, test)
        try:
            start(thread)
        except BaseException:
            # It never ran, and may be started again.
            vars(thread).pop("run", None)
            raise

    def submit_with_test(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **named: Any
    ) -> Any:
        if type(pool).__name__ == "InterpreterPoolExecutor":
            # Another interpreter has streams of its own, and a test cannot be sent to it.
            return submit(pool, function, *args, **named)
        # Also for nobody: the pool's threads may be those of a test that came before.
        return submit(pool, partial(_call_in, _inherited_test(), function), *args, **named)

    threading.Thread.start = start_with_test  # type: ignore[method-assign,assignment]  # put back below
    ThreadPoolExecutor.submit = submit_with_test  # type: ignore[method-assign,assignment]  # put back below
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]  # as it was
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]  # as it was


def start_unowned(thread: threading.Thread) -> None:
    """It belongs to no test, although one starts it."""
    token = CURRENT.set(None)
    try:
        thread.start()
    finally:
        CURRENT.reset(token)


def _inherited_test() -> RunningTest | None:
    """Nobody, where a shared fixture is set up: what it starts works for all who use it."""
    test = owning_test()
    return None if test is None or test.sets_up_for is not None else test


def _set_test_of(thread: threading.Thread, test: RunningTest) -> None:
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
        CURRENT.set(test)
        with test.owning_thread():
            thread.run()

    vars(thread)["run"] = run


def _call_in(
    test: RunningTest | None, function: Callable[..., Any], /, *args: Any, **named: Any
) -> Any:
    __tracebackhide__ = True
    if test is not None:
        with test.owning_thread():
            return function(*args, **named)
    token = CURRENT.set(None)
    try:
        return function(*args, **named)
    finally:
        CURRENT.reset(token)
