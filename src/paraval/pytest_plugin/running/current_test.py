"""The current test: which test the calling code belongs to, in any thread.

A running test (one that runs in a thread in parallel with others) is stored in a context variable,
so that asyncio's tasks belong to the test that created them. It is passed on to the threads and
pools that its code uses. Code in an empty context belongs to the test of its thread. Other code
(pytest itself, an exclusive test in the main thread, a thread older than all tests) has no test.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from typing import Any, Literal, Protocol

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.pytest_internals import Node

Phase = Literal["setup", "call", "teardown"]
Check = Literal["none", "all but callers", "all"]
"""Which tests that fail in parallel are rerun alone. A second answer of a model would flatter the
results, so tests that may have called one are rerun only if a user asks for it."""

CURRENT: ContextVar[RunningTest | None] = ContextVar("paraval_test")
"""None: the code belongs to no test. Without a value, the thread decides: see `owning_test`."""
_BY_THREAD: dict[int, RunningTest] = {}
"""The running tests, by the id of each of their threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnd:
    """How one phase of a test ended."""

    report: pytest.TestReport
    error: BaseException | None = None
    """The exception raised in it; None: none, or no longer known."""
    interacts: Callable[[], None] | None = None
    """Notifies plugins of the exception, in the main thread; None: nothing to report."""


class TestOutput(Protocol):
    """What a test prints, and the streams that it replaced; see `capture`."""

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
    """What a test logs, and the levels that it set; see `item_logs`."""

    levels: dict[logging.Logger, int]

    def begin(self, phase: Phase) -> None: ...

    def end(self, phase: Phase) -> None: ...

    def take(self, record: logging.LogRecord) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class RunningTest:
    """One execution of a test, in its own thread."""

    item: pytest.Item
    captured: TestOutput
    """What it prints."""
    logs: TestLogs
    """What it logs."""
    phase: Phase = "setup"
    thread: int | None = None
    """The id of its own thread, once that runs; other threads may belong to it too."""
    threads: set[int] = field(default_factory=set)
    """The native ids of all its current threads."""
    loop_threads: set[int] = field(default_factory=set)
    """Threads of loops that it shares with other tests, while it waits for them."""
    environment: dict[bytes, bytes | None] = field(default_factory=dict)
    """Its changes to `os.environ`; None: a variable that it removed."""
    added_variables: set[bytes] = field(default_factory=set)
    """Those of them that the code under test added, for all tests."""
    open_patches: set[int] = field(default_factory=set)
    """Ids of patches that it has begun and not undone."""
    warned: list[warnings.WarningMessage] = field(default_factory=list)
    warnings_state: Any = None
    """Its state of the module `warnings`, once used."""
    unhandled: list[Any] | None = field(default_factory=list)
    """Exceptions of its threads and finalizers in this phase; None: the last phase is over."""
    ended: list[PhaseEnd] = field(default_factory=list)
    """How each finished phase ended, even if the test hangs later."""
    sets_up_for: Node | None = None
    """The node whose tests share the fixture that this test is setting up or tearing down: what the
    fixture starts and sets is not this test's."""
    inner: Callable[[], None] | None = None
    """The test's own phases, if other plugins wrap something around them."""
    check: Check = "none"
    has_called: bool = False
    """It may have called a model: it used the network, or started a program."""
    is_over: bool = False
    """True: whatever of it still runs is abandoned and ignored."""

    @property
    def is_to_be_checked(self) -> bool:
        """Whether to rerun it alone if it fails."""
        return self.check == "all" or (self.check == "all but callers" and not self.has_called)

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread that the test itself runs in."""
        return threading.get_ident() == self.thread

    @contextmanager
    def running_here(self) -> Iterator[None]:
        """Run the test in this thread until the block ends."""
        self.thread = threading.get_ident()
        try:
            with self.owning_thread():
                yield
        finally:
            self.is_over = True

    @contextmanager
    def owning_thread(self) -> Iterator[None]:
        """Assign what this thread does within the block to the test."""
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
    """The test that the calling code belongs to, even a finished one; None: no test."""
    try:
        return CURRENT.get()
    except LookupError:
        return _BY_THREAD.get(threading.get_ident())


def current_test() -> RunningTest | None:
    """Like `owning_test`, but only a test that is not over."""
    test = owning_test()
    return None if test is None or test.is_over else test


class _AloneTest:
    """Stands for the exclusive test that runs in the main thread."""

    sets_up_for: Node | None = None


ALONE = _AloneTest()


@contextmanager
def setting_up_for(node: Node) -> Iterator[None]:
    """Within the block, set up or tear down a fixture shared by all tests below the node."""
    who: RunningTest | _AloneTest = current_test() or ALONE
    before, who.sets_up_for = who.sets_up_for, node
    try:
        yield
    finally:
        who.sets_up_for = before


def note_call() -> None:
    """Note that the test which the calling code belongs to may have called a model."""
    test = owning_test()
    if test is not None:
        test.has_called = True


# ---- threads and pools


@contextmanager
def propagate_to_threads() -> Iterator[None]:
    """Within the block, new threads and pool jobs inherit the test. Threads may outlive it."""
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
            # Another interpreter has its own streams, and a test cannot be sent to it.
            return submit(pool, function, *args, **named)
        # Even without a test: the pool's threads may belong to an earlier test.
        return submit(pool, partial(_call_in, _inherited_test(), function), *args, **named)

    threading.Thread.start = start_with_test  # type: ignore[method-assign,assignment]  # restored below
    ThreadPoolExecutor.submit = submit_with_test  # type: ignore[method-assign,assignment]  # restored below
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]  # the original
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]  # the original


def start_unowned(thread: threading.Thread) -> None:
    """Start a thread that belongs to no test, even if a test starts it."""
    token = CURRENT.set(None)
    try:
        thread.start()
    finally:
        CURRENT.reset(token)


def _inherited_test() -> RunningTest | None:
    """The test that a new thread inherits; none if a shared fixture starts it."""
    test = owning_test()
    return None if test is None or test.sets_up_for is not None else test


def _set_test_of(thread: threading.Thread, test: RunningTest) -> None:
    """Make the thread belong to the test, by replacing its `run` until that is called.

    `run` is what executes inside the thread's context, and each class may have its own.
    """
    own = vars(thread).get("run")

    def run() -> None:
        __tracebackhide__ = True
        if own is None:
            vars(thread).pop("run", None)
        else:
            vars(thread)["run"] = own
        # Not reset: an uncaught exception is handled after the block, and belongs to the test.
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
