"""asyncio's runners beside each other: one test in a loop at a time, one policy for all of them.

pytest-asyncio runs each test and each async fixture by an `asyncio.Runner` of the scope that it was
asked for. Those of single tests are theirs alone. One of a class, a module or the session is met by
many: whoever comes while it runs waits, in whatever thread it is. A loop does not mind that its
next coroutine runs in another thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from paraval.pytest_plugin.floor import Floor
from paraval.pytest_plugin.turns import CURRENT, turn_here


@contextmanager
def runners_one_at_a_time(floor: Floor) -> Iterator[None]:
    """No runner is entered by two threads at once, while the block runs."""
    locks: WeakKeyDictionary[asyncio.Runner, threading.RLock] = WeakKeyDictionary()
    guard = threading.Lock()
    runner: Any = asyncio.Runner
    run_plainly, close_plainly = runner.run, runner.close

    @contextmanager
    def held(one: asyncio.Runner) -> Iterator[None]:
        with guard:
            lock = locks.setdefault(one, threading.RLock())
        if not lock.acquire(blocking=False):
            with floor.waiting():
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @wraps(run_plainly)
    def run(self: asyncio.Runner, coro: Any, *, context: Context | None = None) -> Any:
        __tracebackhide__ = True
        with held(self):
            if context is not None:
                # A fixture is torn down in the context of its setup, maybe for another test.
                context.run(CURRENT.set, turn_here())
            return run_plainly(self, coro, context=context)

    @wraps(close_plainly)
    def close(self: asyncio.Runner) -> None:
        with held(self):
            close_plainly(self)

    runner.run, runner.close = run, close
    try:
        yield
    finally:
        runner.run, runner.close = run_plainly, close_plainly


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
