"""Detects tests that change the whole process, and makes them take the exclusive lock first.

Guards catch at run time what `scan` missed: changes of the working directory and forks (through an
audit hook), patches by `unittest.mock` and `pytest.MonkeyPatch`, and click's test runner. They act
before the change, and only the test's own thread waits; `lock` decides the order.

A change is assumed to last until the test ends. In the setup of a session fixture it lasts until
the setup ends, since all tests are meant to see it. A change in the setup of a class, module or
package fixture outlives the test that happens to need it first: it is recorded in the lock's
`by_shared_fixtures`, and all tests that use the fixture get it as a reason in `reasons`. The
environment is not guarded: each test has its own (`item_environment`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from functools import wraps
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.exclusive.lock import ExclusiveLock
from paraval.pytest_plugin.isolation.item_environment import is_importing
from paraval.pytest_plugin.running.current_test import current_test, note_call, owning_test

Release = Callable[[], None]

_EVENTS = {
    "os.chdir": "calls os.chdir",
    "os.fork": "calls os.fork",
    "os.forkpty": "calls os.forkpty",
    "socket.connect": None,
    "http.client.send": None,
    "subprocess.Popen": None,
    "os.posix_spawn": None,
}
"""By audit event: why its test must run exclusively; None: the test may have called a model."""
_SENDERS = (
    ("httpx", "HTTPTransport", "handle_request"),
    ("httpx", "AsyncHTTPTransport", "handle_async_request"),
    ("httpx2", "HTTPTransport", "handle_request"),
    ("httpx2", "AsyncHTTPTransport", "handle_async_request"),
    ("aiohttp", "ClientSession", "_request"),
)
"""Methods that send requests over connections that may already be open."""
_MOCKS = ("unittest.mock", "mock.mock")
_MONKEYPATCHES = (
    "setattr",
    "delattr",
    "setitem",
    "delitem",
    "chdir",
    "syspath_prepend",
)


@contextmanager
def install_guards(guard: ProcessGuard, session: pytest.Session) -> Iterator[None]:
    """Install the guards until the block ends. Modules that are not loaded yet are not guarded."""
    manager = session.config.pluginmanager
    with ExitStack() as stack:
        for name in _MOCKS:
            if name in sys.modules:
                _under_mock(guard, sys.modules[name], stack)
        _under_monkeypatch(guard, stack)
        if "click.testing" in sys.modules:
            runner = sys.modules["click.testing"].CliRunner
            _replace(
                stack,
                runner,
                "invoke",
                guard.beginning("uses a click.testing.CliRunner", is_undone=False),
            )
        for module, owner, method in _SENDERS:
            if hasattr(sys.modules.get(module), owner):
                _replace(stack, getattr(sys.modules[module], owner), method, _noting_calls)
        manager.register(guard, ProcessGuard.NAME)
        stack.callback(manager.unregister, guard)
        stack.enter_context(_audited(guard.on_audit_event))
        yield


@dataclass(slots=True, kw_only=True)
class _FixtureSetup:
    """A fixture's setup while it runs."""

    fixture: pytest.FixtureDef[Any]
    releases: list[Release] = field(default_factory=list)


class _ThreadSetups(threading.local):
    """The fixture setups that a thread is running, the innermost last."""

    def __init__(self) -> None:
        self.setups: list[_FixtureSetup] = []


class ProcessGuard:
    """Takes the exclusive lock for changes; also a plugin, to track fixture setups."""

    NAME = "paraval-guards"

    def __init__(self, exclusive_lock: ExclusiveLock, items: Iterable[pytest.Item]) -> None:
        self._exclusive_lock = exclusive_lock
        self._items = items
        self._here = _ThreadSetups()
        self.changes_alone = 0
        """How often exclusive tests changed the process."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if owning_test() is None:
            return (yield)
        setup = _FixtureSetup(fixture=fixturedef)
        self._here.setups.append(setup)
        try:
            return (yield)
        finally:
            self._here.setups.pop()
            for release in setup.releases:
                release()

    # ---- asking for the lock

    def ask(self, reason: str) -> None:
        test = current_test()
        if test is None:
            self.changes_alone += owning_test() is None
            return
        if is_importing():
            # Waiting here would hold the module's import lock, and block other tests that import
            # it.
            return
        setup = self._here.setups[-1] if test.is_own_thread and self._here.setups else None
        if setup is None or setup.fixture.scope == "function":
            self._exclusive_lock.ask(reason)
            return
        if setup.fixture.scope == "session":
            setup.releases.append(self._exclusive_lock.ask(reason, is_tests_own=False))
        else:
            self._exclusive_lock.ask(reason)
            self._note(setup.fixture, reason)
        self._exclusive_lock.forget_folder()

    def on_audit_event(self, event: str) -> None:
        """Handle an audit event before its action happens."""
        reason = _EVENTS[event]
        if reason is None:
            note_call()
        else:
            self.ask(reason)

    def _note(self, fixture: pytest.FixtureDef[Any], reason: str) -> None:
        name = fixture.argname
        self._exclusive_lock.by_shared_fixtures.setdefault(f"{name} ({fixture.scope})", reason)
        why = f"fixture `{name}` ({fixture.scope}) {reason}"
        for item in self._items:
            # A test's fixture definitions have no public name.
            info = getattr(item, "_fixtureinfo", None)
            found = () if info is None else info.name2fixturedefs.get(name, ())
            if any(one.func is fixture.func for one in found):
                self._exclusive_lock.reasons[item.nodeid] = why

    # ---- patches

    def beginning(self, reason: str, *, is_undone: bool = True) -> Callable[[Any], Any]:
        """Wrap a method that patches. `is_undone`: another method undoes it, which is tracked."""

        def around(method: Any) -> Any:
            @wraps(method)
            def patch(thing: Any, *arguments: Any, **named: Any) -> Any:
                if not _is_environment(thing, arguments):
                    self.ask(reason)
                    test = current_test()
                    if is_undone and test is not None:
                        test.open_patches.add(id(thing))
                return method(thing, *arguments, **named)

            return patch

        return around


def _ending(method: Any) -> Any:
    """Wrap a method that undoes a patch."""

    @wraps(method)
    def undo(thing: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(thing, *arguments, **named)
        finally:
            test = current_test()
            if test is not None:
                test.open_patches.discard(id(thing))

    return undo


# ---- guarded methods


def _under_mock(guard: ProcessGuard, mock: Any, stack: ExitStack) -> None:
    reason = "calls unittest.mock.patch"
    # mock's classes are private. `start`, `stop`, `with` and decorators all go through these
    # methods.
    patch, patch_dict = mock._patch, mock._patch_dict
    _replace(stack, patch, "__enter__", guard.beginning(reason))
    _replace(stack, patch, "__exit__", _ending)
    _replace(stack, patch_dict, "_patch_dict", guard.beginning(reason))
    _replace(stack, patch_dict, "_unpatch_dict", _ending)


def _under_monkeypatch(guard: ProcessGuard, stack: ExitStack) -> None:
    for name in _MONKEYPATCHES:
        _replace(stack, pytest.MonkeyPatch, name, guard.beginning("uses a pytest.MonkeyPatch"))
    _replace(stack, pytest.MonkeyPatch, "undo", _ending)


def _noting_calls(method: Any) -> Any:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        note_call()
        return method(*arguments, **named)

    return call


def _replace(stack: ExitStack, owner: type, name: str, around: Callable[[Any], Any]) -> None:
    plain = vars(owner)[name]
    setattr(owner, name, around(plain))
    stack.callback(setattr, owner, name, plain)


# ---- the audit hook


class _AuditHook:
    """The audit hook, added once because it cannot be removed; inactive without a listener."""

    is_added = False
    listener: Callable[[str], None] | None = None


def _hook(event: str, _arguments: tuple[Any, ...]) -> None:
    # Called for every audit event, including each import and each opened file.
    if event in _EVENTS and _AuditHook.listener is not None:
        _AuditHook.listener(event)


@contextmanager
def _audited(listener: Callable[[str], None]) -> Iterator[None]:
    if not _AuditHook.is_added:
        sys.addaudithook(_hook)
        _AuditHook.is_added = True
    _AuditHook.listener = listener
    try:
        yield
    finally:
        _AuditHook.listener = None


def _is_environment(patch: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a `MonkeyPatch` method or a `patch.dict` changes `os.environ`."""
    target = arguments[0] if arguments else getattr(patch, "in_dict", None)
    return target is os.environ or (type(target) is str and target == "os.environ")
