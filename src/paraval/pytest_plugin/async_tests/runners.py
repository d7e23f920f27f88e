"""asyncio's and anyio's runners beside each other; and asyncio's current loop in a test's thread.

pytest-asyncio runs each test and each async fixture in an `asyncio.Runner` of a scope. The runner
of one test runs in that test's thread. A runner of a class, a module or the session serves many
tests: while any of them runs a coroutine, a thread of the runner runs the loop, and each test's own
thread waits for its task. When no test does, the loop is at rest: any thread may run or close it.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import Context
from queue import SimpleQueue
from typing import Any

import pytest

from paraval.pytest_plugin.running.current_test import (
    CURRENT,
    Turn,
    current,
    start_for_nobody,
    turn_here,
)

CLOSE_S = 2.0
"""How long a loop has to stop before it is closed, where a test that was given up still uses it."""


class ScopedRunner(asyncio.Runner):  # type: ignore[misc]  # final for type checkers only
    """In the place of `asyncio.Runner`, in pytest-asyncio only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        turn = current()
        self._is_shared = turn is None or turn.sets_up_shared
        self._guard = threading.Lock()
        """Guards what follows, and the start and the end of the loop's thread."""
        self._users = 0
        self._thread: threading.Thread | None = None

    def run(self, coro: Any, *, context: Context | None = None) -> Any:
        __tracebackhide__ = True
        turn = turn_here()
        is_hosted = self._is_shared and (turn is not None or self._users > 0)
        # Inside a running loop it is an error, as always.
        if is_hosted and asyncio._get_running_loop() is None:
            with self._running(turn) as loop:
                own: Any = self
                return run_in(loop, coro, own._context.copy() if context is None else context, turn)
        if context is not None:
            # A fixture is torn down in the context of its setup, maybe for another test.
            context.run(CURRENT.set, turn)
        return super().run(coro, context=context)

    def close(self) -> None:
        with self._guard:
            # Only a test that was given up can be here still.
            self._users = 0
            self._stop(CLOSE_S)
        super().close()

    @contextmanager
    def _running(self, turn: Turn | None) -> Iterator[asyncio.AbstractEventLoop]:
        with self._guard:
            loop = self.get_loop()
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name="paraval-loop", daemon=True
                )
                start_for_nobody(self._thread)
            host = self._thread.native_id or 0
        try:
            if turn is not None:
                turn.loop_threads.add(host)
            yield loop
        finally:
            if turn is not None:
                turn.loop_threads.discard(host)
            with self._guard:
                self._users -= 1
                if self._users == 0:
                    self._stop(None)

    def _stop(self, timeout: float | None) -> None:
        """With the guard held."""
        if self._thread is not None:
            loop = self.get_loop()
            with suppress(RuntimeError):  # A test closed it.
                loop.call_soon_threadsafe(loop.stop)
            self._thread.join(timeout)
            self._thread = None

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._users > 0 and not loop.is_closed():
            try:
                loop.run_forever()
            except RuntimeError:
                time.sleep(0.01)  # A test runs the loop itself.
            except BaseException:  # noqa: BLE001, S112 - KeyboardInterrupt of a task, for instance
                continue  # The task has it, and its test.


def run_in(loop: asyncio.AbstractEventLoop, coro: Any, context: Context, turn: Turn | None) -> Any:
    """Run a coroutine as a task of a loop that runs in another thread, and wait for it.

    `ending` finds the task here, by its name.
    """
    __tracebackhide__ = True
    news: SimpleQueue[Any] = SimpleQueue()

    def start() -> None:
        try:
            context.run(CURRENT.set, turn)
            started = loop.create_task(coro, context=context)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            news.put(error)
            return
        started.add_done_callback(news.put)
        news.put(started)

    loop.call_soon_threadsafe(start)
    task = news.get()
    if isinstance(task, BaseException):
        raise task
    news.get()
    return task.result()


@contextmanager
def pytest_asyncio_apart(config: pytest.Config) -> Iterator[None]:
    """What pytest-asyncio sets for the whole process or for the context, while the block runs."""
    plugin: Any = config.pluginmanager.get_plugin("asyncio")
    with ExitStack() as stack:
        for name, stand_in in (
            # Private names, each checked: what is not there in another version needs no stand-in.
            ("_temporary_event_loop_policy", lambda _plain: _policies_together()),
            ("_apply_contextvar_changes", _across_contexts),
            ("MonkeyPatch", lambda _plain: _ItsOwnPatch),
            ("Runner", lambda _plain: ScopedRunner),
        ):
            plain = getattr(plugin, name, None)
            if plain is not None:
                setattr(plugin, name, stand_in(plain))
                stack.callback(setattr, plugin, name, plain)
        yield


class _ItsOwnPatch:
    """pytest-asyncio patches the test that it runs, and the definition of a fixture that it sets
    up: what only that test has. `nets` would take it for a patch that others see."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @classmethod
    @contextmanager
    def context(cls) -> Iterator[_ItsOwnPatch]:
        patch = cls()
        with patch._stack:
            yield patch

    def setattr(self, target: object, name: str, value: object) -> None:
        self._stack.callback(setattr, target, name, getattr(target, name))
        setattr(target, name, value)


def _policies_together() -> Callable[[Any], Any]:
    """Each runner sets the policy and puts the old one back: the first and the last to do so count,
    or else one's end would take the policy from those that still run."""
    guard = threading.Lock()
    """Guards all below, and the policy of the process."""
    counts: dict[int, int] = {}
    before: dict[int, Any] = {}

    @contextmanager
    def temporary_event_loop_policy(policy: Any) -> Iterator[None]:
        key = id(policy)
        with guard:
            if not counts.get(key):
                before[key] = asyncio.get_event_loop_policy()
                asyncio.set_event_loop_policy(policy)
            counts[key] = counts.get(key, 0) + 1
        try:
            yield
        finally:
            with guard:
                counts[key] -= 1
                if not counts[key]:
                    asyncio.set_event_loop_policy(before.pop(key))

    return temporary_event_loop_policy


def _across_contexts(plain: Callable[[Context], Callable[[], None] | None]) -> Callable[..., Any]:
    """A shared fixture's variables are set in the context of the test that set it up. Another may
    be the one that tears it down: it has nothing to put back."""

    def apply_contextvar_changes(context: Context) -> Callable[[], None] | None:
        restore = plain(context)
        return None if restore is None else lambda: _restore_here(restore)

    return apply_contextvar_changes


def _restore_here(restore: Callable[[], None]) -> None:
    """It takes the next variable at each call, and raises where that is of another context."""
    while True:
        try:
            return restore()
        except ValueError:
            continue


# ---- anyio


KeyOf = Callable[[pytest.Item], Hashable]


class AnyioRunners:
    """Stands in for `anyio.pytest_plugin.get_runner`; a plugin, too: it sees for whom that is."""

    NAME = "paraval-anyio"

    def __init__(self, plugin: Any, shared_key_of: KeyOf) -> None:
        """`shared_key_of` a test: whose runner it shares; None: it has its own."""
        self._plugin = plugin
        self._shared_key_of = shared_key_of
        self._guard = threading.Lock()
        """Guards the leases; runners start and end outside of it."""
        self._leased: dict[Hashable, _Leased] = {}
        self._here = threading.local()
        """`item`: whose hooks run in this thread."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, request: Any) -> Generator[None, object, object]:
        with self._for(request._pyfuncitem):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Item) -> Generator[None, object, object]:
        with self._for(pyfuncitem):
            return (yield)

    @contextmanager
    def _for(self, item: pytest.Item) -> Iterator[None]:
        before = getattr(self._here, "item", None)
        self._here.item = item
        try:
            yield
        finally:
            self._here.item = before

    @contextmanager
    def get_runner(self, backend_name: str, backend_options: dict[str, Any]) -> Iterator[Any]:
        key = (self._whose(), backend_name)
        with self._guard:
            leased = self._leased.setdefault(key, _Leased())
            leased.leases += 1
        try:
            if leased.runner is None:
                backend = self._plugin.get_async_backend(backend_name)
                leased.runner = leased.stack.enter_context(
                    backend.create_test_runner(backend_options or {})
                )
            with self._naming(backend_name):
                yield leased.runner
        finally:
            with self._guard:
                leased.leases -= 1
                is_last = leased.leases == 0
                if is_last:
                    del self._leased[key]
            if is_last:
                leased.stack.close()

    def _whose(self) -> Hashable:
        item: pytest.Item = self._here.item
        shared = self._shared_key_of(item)
        return item if shared is None else shared

    @contextmanager
    def _naming(self, backend_name: str) -> Iterator[None]:
        """As in anyio's own: code that asks outside of a coroutine is told the backend, too."""
        plugin = self._plugin
        if not hasattr(plugin, "set_current_async_library") or plugin.current_async_library():
            yield
            return
        token = plugin.set_current_async_library(backend_name)
        try:
            yield
        finally:
            # A shared fixture may end in another context than it began in, with nothing to reset.
            with suppress(ValueError):
                plugin.reset_current_async_library(token)


class _Leased:
    """A runner, as long as someone uses it."""

    def __init__(self) -> None:
        self.leases = 0
        self.stack = ExitStack()
        self.runner: Any = None


@contextmanager
def anyio_apart(config: pytest.Config, shared_key_of: KeyOf) -> Iterator[None]:
    """For a whole run, also while a test runs alone: it may share a fixture with those before."""
    plugin: Any = config.pluginmanager.get_plugin("anyio")
    runners = AnyioRunners(plugin, shared_key_of)
    plain: Callable[..., AbstractContextManager[Any]] = plugin.get_runner
    config.pluginmanager.register(runners, AnyioRunners.NAME)
    plugin.get_runner = runners.get_runner
    try:
        yield
    finally:
        plugin.get_runner = plain
        config.pluginmanager.unregister(runners)


# ---- asyncio's current loop


_NO_LOOPS_MADE = (3, 14)
"""Since then no thread has a loop that it did not set; tests don't differ there."""
_WARNED_OF = (3, 12)
"""Since then the main thread is warned when a loop is made for it."""


class _Spare:
    """The loops that were made for tests, and who has each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the list."""
        self._loops: list[tuple[Turn, asyncio.AbstractEventLoop]] = []

    def take(self, turn: Turn, policy: Any) -> asyncio.AbstractEventLoop:
        with self._lock:
            self._loops = [pair for pair in self._loops if not pair[1].is_closed()]
            for place, (owner, loop) in enumerate(self._loops):
                if owner.is_over and not loop.is_running():
                    self._loops[place] = (turn, loop)
                    return loop
            made: asyncio.AbstractEventLoop = policy.new_event_loop()
            self._loops.append((turn, made))
            return made

    def close(self) -> None:
        for _, loop in self._loops:
            if not loop.is_running():
                loop.close()


@contextmanager
def loops_as_in_main_thread() -> Iterator[None]:
    """While the block runs; loops that it made stay open until the process ends, since a fixture of
    the session may hold one."""
    if sys.version_info >= _NO_LOOPS_MADE:
        yield
        return
    policy: Any = asyncio.events.BaseDefaultEventLoopPolicy
    get_plainly, set_plainly = policy.get_event_loop, policy.set_event_loop
    spare = _Spare()
    atexit.register(spare.close)

    def set_event_loop(self: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        # A thread may have had other tests before: what they set is not this one's.
        self._local.paraval_turn = current()
        set_plainly(self, loop)

    def get_event_loop(self: Any) -> asyncio.AbstractEventLoop:
        turn = current()
        if turn is not None and turn.is_here and not _has_set(self, turn):
            if sys.version_info >= _WARNED_OF:
                warnings.warn("There is no current event loop", DeprecationWarning, stacklevel=2)
            self.set_event_loop(spare.take(turn, self))
        loop: asyncio.AbstractEventLoop = get_plainly(self)
        return loop

    policy.get_event_loop, policy.set_event_loop = get_event_loop, set_event_loop
    try:
        yield
    finally:
        policy.get_event_loop, policy.set_event_loop = get_plainly, set_plainly


def _has_set(policy: Any, turn: Turn) -> bool:
    """Whether the test itself said which loop is the current one, or that none is."""
    local = policy._local
    return getattr(local, "paraval_turn", None) is turn
