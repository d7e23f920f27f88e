"""Runs async tests concurrently, as far as the plugin that owns them allows.

Tests of pytest-asyncio run in parallel with all others; those that share a loop run in that loop.
Tests that share anyio's runner (through async fixtures with a wider scope) run one after another,
each in its own thread. trio's loops cannot change threads, so tests that share one run exclusively.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import Context
from dataclasses import field
from inspect import isasyncgenfunction, iscoroutinefunction
from queue import SimpleQueue
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.running.current_test import (
    CURRENT,
    RunningTest,
    current_test,
    owning_test,
    start_unowned,
)

# Concurrent asyncio and anyio runners, and asyncio's current loop in a test's thread.

CLOSE_S = 2.0
"""How long a loop has to stop before it is closed, if an abandoned test still uses it."""


class ScopedRunner(asyncio.Runner):  # type: ignore[misc]  # final for type checkers only
    """Replaces `asyncio.Runner` in pytest-asyncio only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        test = current_test()
        self._is_shared = test is None or test.sets_up_for is not None
        self._guard = threading.Lock()
        """Guards the attributes below, and the start and end of the loop's thread."""
        self._users = 0
        self._thread: threading.Thread | None = None

    def run(self, coro: Any, *, context: Context | None = None) -> Any:
        __tracebackhide__ = True
        test = owning_test()
        is_hosted = self._is_shared and (test is not None or self._users > 0)
        # Inside a running loop this is an error, as always.
        if is_hosted and asyncio._get_running_loop() is None:
            with self._running(test) as loop:
                own: Any = self
                return run_in(loop, coro, own._context.copy() if context is None else context, test)
        if context is not None:
            # A fixture is torn down in the context of its setup, possibly for another test.
            context.run(CURRENT.set, test)
        return super().run(coro, context=context)

    def close(self) -> None:
        with self._guard:
            # Only an abandoned test can still be here.
            self._users = 0
            self._stop(CLOSE_S)
        super().close()

    @contextmanager
    def _running(self, test: RunningTest | None) -> Iterator[asyncio.AbstractEventLoop]:
        with self._guard:
            loop = self.get_loop()
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name="paraval-loop", daemon=True
                )
                start_unowned(self._thread)
            host = self._thread.native_id or 0
        try:
            if test is not None:
                test.loop_threads.add(host)
            yield loop
        finally:
            if test is not None:
                test.loop_threads.discard(host)
            with self._guard:
                self._users -= 1
                if self._users == 0:
                    self._stop(None)

    def _stop(self, timeout: float | None) -> None:
        """Stop the loop's thread; call with the guard held."""
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
            except BaseException:  # noqa: BLE001, S112 - a task's KeyboardInterrupt, for instance
                continue  # The task keeps the exception for its test.


def run_in(
    loop: asyncio.AbstractEventLoop, coro: Any, context: Context, test: RunningTest | None
) -> Any:
    """Run a coroutine as a task of a loop that runs in another thread, and wait for it.

    `stacks` finds the task by the name of its variable here.
    """
    __tracebackhide__ = True
    news: SimpleQueue[Any] = SimpleQueue()

    def start() -> None:
        try:
            context.run(CURRENT.set, test)
            started = loop.create_task(coro, context=context)
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
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
def isolate_pytest_asyncio(config: pytest.Config) -> Iterator[None]:
    """Within the block, isolate what pytest-asyncio sets process-wide or for the context."""
    plugin: Any = config.pluginmanager.get_plugin("asyncio")
    with ExitStack() as stack:
        stack.callback(asyncio.set_event_loop_policy, asyncio.get_event_loop_policy())
        for name, stand_in in (
            # Private names: if another version lacks one, there is nothing to replace.
            ("_temporary_event_loop_policy", _policy_stays),
            ("_apply_contextvar_changes", _across_contexts),
            ("MonkeyPatch", lambda _plain: _PrivatePatch),
            ("Runner", lambda _plain: ScopedRunner),
        ):
            plain = getattr(plugin, name, None)
            if plain is not None:
                setattr(plugin, name, stand_in(plain))
                stack.callback(setattr, plugin, name, plain)
        yield


class _PrivatePatch:
    """A patch that only one test sees, for pytest-asyncio.

    It patches the test that it runs, or the fixture definition that it sets up. `guards` would
    mistake that for a patch that other tests see.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    @classmethod
    @contextmanager
    def context(cls) -> Iterator[_PrivatePatch]:
        patch = cls()
        with patch._stack:
            yield patch

    def setattr(self, target: object, name: str, value: object) -> None:
        self._stack.callback(setattr, target, name, getattr(target, name))
        setattr(target, name, value)


def _policy_stays(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keep the event loop policy until the run ends.

    Each runner would set the policy and restore the old one, while other tests still use it.
    Parallel tests all have the same policy.
    """

    @contextmanager
    def temporary_event_loop_policy(policy: Any) -> Iterator[None]:
        if owning_test() is None:
            with plain(policy):
                yield
            return
        if asyncio.get_event_loop_policy() is not policy:
            asyncio.set_event_loop_policy(policy)
        yield

    return temporary_event_loop_policy


def _across_contexts(plain: Callable[[Context], Callable[[], None] | None]) -> Callable[..., Any]:
    """Let a test tear down a shared fixture that another test set up.

    The fixture's variables were set in that test's context, so there is nothing to restore here.
    """

    def apply_contextvar_changes(context: Context) -> Callable[[], None] | None:
        restore = plain(context)
        return None if restore is None else lambda: _restore_here(restore)

    return apply_contextvar_changes


def _restore_here(restore: Callable[[], None]) -> None:
    """Restore what belongs to this context.

    `restore` takes the next variable at each call, and raises if that is from another context.
    """
    while True:
        try:
            return restore()
        except ValueError:
            continue


# ---- anyio


KeyOf = Callable[[pytest.Item], str | None]


class AnyioRunners:
    """Replaces `anyio.pytest_plugin.get_runner`; also a plugin, to see exclusive tests."""

    NAME = "paraval-anyio"

    def __init__(self, plugin: Any, shared_key_of: KeyOf) -> None:
        """`shared_key_of` returns the key of a test's shared runner; None: it has its own."""
        self._plugin = plugin
        self._shared_key_of = shared_key_of
        self._leased: dict[Hashable, _LeasedRunner] = {}
        """No two threads use the same one: tests that share a runner run one at a time."""
        self._alone: pytest.Item | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if owning_test() is None:
            self._alone = item

    @contextmanager
    def get_runner(self, backend_name: str, backend_options: dict[str, Any]) -> Iterator[Any]:
        test = owning_test()
        item: Any = self._alone if test is None else test.item
        key = (self._shared_key_of(item) or item, backend_name)
        leased = self._leased.setdefault(key, _LeasedRunner())
        leased.leases += 1
        try:
            if leased.runner is None:
                backend = self._plugin.get_async_backend(backend_name)
                leased.runner = leased.stack.enter_context(
                    backend.create_test_runner(backend_options or {})
                )
            yield leased.runner
        finally:
            leased.leases -= 1
            if not leased.leases:
                del self._leased[key]
                leased.stack.close()


@dataclass(slots=True)
class _LeasedRunner:
    """A runner that exists as long as a test uses it."""

    leases: int = 0
    stack: ExitStack = field(default_factory=ExitStack)
    runner: Any = None


@contextmanager
def isolate_anyio(config: pytest.Config, shared_key_of: KeyOf) -> Iterator[None]:
    """Replace anyio's runners for the whole run: exclusive tests may share fixtures with others."""
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
"""From this version on, no thread has a loop that it did not set: nothing to emulate."""
_WARNED_OF = (3, 12)
"""From this version on, creating a loop implicitly warns in the main thread."""


@contextmanager
def loops_as_in_main_thread() -> Iterator[None]:
    """Within the block, create current loops in test threads as Python does in the main thread.

    A loop created for a test is closed when the next test in its thread needs one, or, if a shared
    fixture may hold it, when the block ends.
    """
    if sys.version_info >= _NO_LOOPS_MADE:
        yield
        return
    policy: Any = asyncio.events.BaseDefaultEventLoopPolicy
    get_plainly, set_plainly = policy.get_event_loop, policy.set_event_loop
    made: set[asyncio.AbstractEventLoop] = set()
    here = threading.local()
    """`loop`: the one created for the thread's previous test."""

    def set_event_loop(self: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        # The thread may have run other tests before: loops that they set are not this test's.
        self._local.paraval_test = current_test()
        set_plainly(self, loop)

    def get_event_loop(self: Any) -> asyncio.AbstractEventLoop:
        test = current_test()
        has_set = getattr(self._local, "paraval_test", None) is test
        if test is not None and test.is_own_thread and not has_set:
            if sys.version_info >= _WARNED_OF:
                warnings.warn("There is no current event loop", DeprecationWarning, stacklevel=2)
            close(vars(here).pop("loop", None))
            loop = self.new_event_loop()
            made.add(loop)
            if test.sets_up_for is None:
                here.loop = loop
            self.set_event_loop(loop)
        found: asyncio.AbstractEventLoop = get_plainly(self)
        return found

    def close(loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is not None and not loop.is_running():
            made.discard(loop)
            loop.close()

    policy.get_event_loop, policy.set_event_loop = get_event_loop, set_event_loop
    try:
        yield
    finally:
        policy.get_event_loop, policy.set_event_loop = get_plainly, set_plainly
        for loop in tuple(made):
            close(loop)


_SHARED = pytest.StashKey[Mapping[pytest.Item, str]]()
"""In a session's stash: the shared anyio runner of each test that shares one."""


# ---- which tests run one at a time, or exclusively


def group_of(item: pytest.Item) -> str | None:
    """The name of the anyio runner that the test shares; tests of one group run one at a time."""
    session = item.session
    if _SHARED not in session.stash:
        session.stash[_SHARED] = _anyio_sharers(session.items)
    return session.stash[_SHARED].get(item)


def why_alone(item: pytest.Item) -> str | None:
    """Why an async test must run exclusively; None: it need not."""
    by_version = _why_by_version(item)
    if by_version is not None:
        return by_version
    if _uses_asyncio(item) and _has_policy_of_its_own(item):
        return "its fixture event_loop_policy sets asyncio's policy for the whole process"
    if _backend_of(item) == "trio" and group_of(item) is not None:
        return "it shares a trio loop, which cannot change threads"
    return None


@contextmanager
def isolate_async_plugins(session: pytest.Session) -> Iterator[None]:
    """Isolate async plugins for the whole run: exclusive tests may use others' loops."""
    config = session.config
    with ExitStack() as stack:
        stack.enter_context(loops_as_in_main_thread())
        if config.pluginmanager.has_plugin("asyncio"):
            stack.enter_context(isolate_pytest_asyncio(config))
        if any(_backend_of(item) is not None for item in session.items):
            stack.enter_context(isolate_anyio(config, group_of))
        yield


# ---- pytest-asyncio


def _is_asyncio_test(item: pytest.Item) -> bool:
    kind = getattr(_pytest_asyncio(item), "PytestAsyncioFunction", None)
    return kind is not None and isinstance(item, kind)


def _pytest_asyncio(item: pytest.Item) -> Any:
    return item.config.pluginmanager.get_plugin("asyncio")


def _why_by_version(item: pytest.Item) -> str | None:
    """Check for old versions of pytest-asyncio.

    Before 1.0 it had no runners, but a fixture that set the loop for the whole process. Before 1.2
    it ran tests in whatever loop was the thread's current one.
    """
    owner = _pytest_asyncio(item)
    if not _is_asyncio_test(item) or not owner.__name__.startswith("pytest_asyncio"):
        return None
    if not hasattr(owner, "Runner"):
        return "pytest-asyncio is older than 1.0"
    if hasattr(owner, "wrap_in_sync") and _loop_scope(item) != "function":
        return "it shares a loop, and pytest-asyncio is older than 1.2"
    return None


def _loop_scope(item: pytest.Item) -> str:
    mark = item.get_closest_marker("asyncio")
    given = {} if mark is None else mark.kwargs
    scope = given.get("loop_scope") or given.get("scope")
    return str(scope or item.config.getini("asyncio_default_test_loop_scope"))


def _uses_asyncio(item: pytest.Item) -> bool:
    if _pytest_asyncio(item) is None:
        return False
    return _is_asyncio_test(item) or any(map(_is_async, _used_fixtures(item)))


def _has_policy_of_its_own(item: pytest.Item) -> bool:
    """Whether the test has its own policy, not one that all tests of the session share."""
    policies = [one for one in _used_fixtures(item) if one.argname == "event_loop_policy"]
    return any(
        one.func.__module__ != "pytest_asyncio.plugin"
        and (one.scope != "session" or one.params is not None)
        for one in policies
    )


# ---- anyio


def _anyio_sharers(items: list[pytest.Item]) -> dict[pytest.Item, str]:
    """Name the shared runner of each test that has one.

    Each module has a runner for its shared fixtures. If any test uses an async fixture of a wider
    scope than module, one runner serves all.
    """
    scopes = {
        item: {one.scope for one in _used_fixtures(item) if _is_async(one)} - {"function"}
        for item in items
        if _backend_of(item) is not None
    }
    is_one = any(not found <= {"class", "module"} for found in scopes.values())
    return {
        item: f"anyio's loop of {'the session' if is_one else item.nodeid.partition('::')[0]}"
        for item, found in scopes.items()
        if found
    }


def _backend_of(item: pytest.Item) -> str | None:
    """The anyio backend that the test runs on; None: it doesn't use anyio."""
    if "anyio_backend" not in getattr(item, "fixturenames", ()):
        return None
    params = getattr(getattr(item, "callspec", None), "params", {})
    backend = params.get("anyio_backend", "")
    return str(backend[0] if isinstance(backend, tuple) else backend)


# ---- fixtures


def _used_fixtures(item: pytest.Item) -> list[Any]:
    """The fixtures that the test is known to use before it runs."""
    info = getattr(item, "_fixtureinfo", None)
    return [] if info is None else [defs[-1] for defs in info.name2fixturedefs.values() if defs]


def _is_async(fixture: Any) -> bool:
    return iscoroutinefunction(fixture.func) or isasyncgenfunction(fixture.func)
