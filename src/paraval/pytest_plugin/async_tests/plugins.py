"""Async tests, as the plugin that owns them wants: several at a time where it allows that.

Tests of pytest-asyncio run beside all others, those that share a loop in that loop. Tests that
share anyio's runner (by its async fixtures of a wider scope) run one after another, each in its own
thread; trio's loops cannot change threads, so tests that share one run alone. How loops are kept
apart is for `runners`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import pytest

from paraval.pytest_plugin.async_tests.runners import (
    isolate_anyio,
    isolate_pytest_asyncio,
    loops_as_in_main_thread,
)

_SHARED = pytest.StashKey[Mapping[pytest.Item, str]]()
"""Of a session: whose anyio runner each test shares, of those that share one."""


# ---- which tests run one at a time, or alone


def group_of(item: pytest.Item) -> str | None:
    """The anyio runner that the test shares with others, by a name; one of them runs at a time."""
    session = item.session
    if _SHARED not in session.stash:
        session.stash[_SHARED] = _anyio_sharers(session.items)
    return session.stash[_SHARED].get(item)


def why_alone(item: pytest.Item) -> str | None:
    """Why an async test cannot run beside others."""
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
    """For the whole of a run, tests that run alone included: a loop that tests share may be begun
    beside others, and be used by one that runs alone."""
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
    """Before 1.0 pytest-asyncio had no runners, but a fixture that set the loop of the process;
    before 1.2 it ran tests in whatever loop was the current one of the thread."""
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
    told = given.get("loop_scope") or given.get("scope")
    return str(told or item.config.getini("asyncio_default_test_loop_scope"))


def _uses_asyncio(item: pytest.Item) -> bool:
    if _pytest_asyncio(item) is None:
        return False
    return _is_asyncio_test(item) or any(map(_is_async, _used_fixtures(item)))


def _has_policy_of_its_own(item: pytest.Item) -> bool:
    """A policy that is the same for all of the session's tests is nobody's own."""
    policies = [one for one in _used_fixtures(item) if one.argname == "event_loop_policy"]
    return any(
        one.func.__module__ != "pytest_asyncio.plugin"
        and (one.scope != "session" or one.params is not None)
        for one in policies
    )


# ---- anyio


def _anyio_sharers(items: list[pytest.Item]) -> dict[pytest.Item, str]:
    """Each module has a runner for its shared fixtures; where a test uses a fixture of more than a
    module, there is one for all."""
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
    """The name of anyio's backend that the test runs by; None: by none."""
    if "anyio_backend" not in getattr(item, "fixturenames", ()):
        return None
    params = getattr(getattr(item, "callspec", None), "params", {})
    backend = params.get("anyio_backend", "")
    return str(backend[0] if isinstance(backend, tuple) else backend)


# ---- fixtures


def _used_fixtures(item: pytest.Item) -> list[Any]:
    """Those that the test is known to use, before it runs."""
    info = getattr(item, "_fixtureinfo", None)
    return [] if info is None else [defs[-1] for defs in info.name2fixturedefs.values() if defs]


def _is_async(fixture: Any) -> bool:
    return iscoroutinefunction(fixture.func) or isasyncgenfunction(fixture.func)
