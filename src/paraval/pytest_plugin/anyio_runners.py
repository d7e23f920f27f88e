"""anyio's runners beside each other.

Its plugin has one runner for the whole process, shared by all that hold it at the time. Here a test
has one of its own, unless it uses an async fixture of a class, a module or the session: then it
shares the runner that the fixture lives in, and `asyncs` sees to it that such tests run one after
another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import pytest

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
