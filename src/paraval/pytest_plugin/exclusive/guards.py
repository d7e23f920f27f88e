"""Guards beside the scan: a test that changes the whole process asks for the lock as it does so.

What is caught: the process's folder and its forks, by an audit hook; the patches of `unittest.mock`
and of `pytest.MonkeyPatch`; click's test runner. Always before the change; and only the test's own
thread waits. Who waits for whom is left to `lock`.

A change is taken to last until the test's end. In the setup of a session's fixture, until the setup
ends, since everybody is to see it. One that is made in the setup of a fixture of a class, module or
package outlives the test that happens to need it first: it is told in the lock's
`by_shared_fixtures`, and all tests that use the fixture have it as a reason in its `reasons`. The
environment is each test's own (`environment`), and not caught.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest

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
"""Of Python's audit events: why a test that causes one must run alone; None: it may, by that, have
asked a model."""
_SENDERS = (
    ("httpx", "HTTPTransport", "handle_request"),
    ("httpx", "AsyncHTTPTransport", "handle_async_request"),
    ("httpx2", "HTTPTransport", "handle_request"),
    ("httpx2", "AsyncHTTPTransport", "handle_async_request"),
    ("aiohttp", "ClientSession", "_request"),
)
"""What sends requests over connections that may be open already."""
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
    """Until the block ends. Modules that are not loaded by then go without."""
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
    """A fixture's setup, while it runs."""

    fixture: pytest.FixtureDef[Any]
    releases: list[Release] = field(default_factory=list)


class _ThreadSetups(threading.local):
    """The setups that one thread is at, the innermost last."""

    def __init__(self) -> None:
        self.setups: list[_FixtureSetup] = []


class ProcessGuard:
    """Asks, and keeps what was asked for until it ends; a plugin, too, to know of setups."""

    NAME = "paraval-guards"

    def __init__(self, exclusive_lock: ExclusiveLock, items: Iterable[pytest.Item]) -> None:
        self._exclusive_lock = exclusive_lock
        self._items = items
        self._here = _ThreadSetups()
        self.changes_alone = 0
        """How often the tests that run alone changed the process."""

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

    # ---- asking

    def ask(self, reason: str) -> None:
        test = current_test()
        if test is None:
            self.changes_alone += owning_test() is None
            return
        if is_importing():
            # And whoever waits there holds the module's lock: others that import it would wait.
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
        """Of an audit event, before what it tells of is done."""
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
            # What a test's closure holds has no public name.
            info = getattr(item, "_fixtureinfo", None)
            found = () if info is None else info.name2fixturedefs.get(name, ())
            if any(one.func is fixture.func for one in found):
                self._exclusive_lock.reasons[item.nodeid] = why

    # ---- patches

    def beginning(self, reason: str, *, is_undone: bool = True) -> Callable[[Any], Any]:
        """Around a method that patches; `is_undone`: by another method, so that it can be seen
        whether it is."""

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
    """Around a method that undoes a patch."""

    @wraps(method)
    def undo(thing: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(thing, *arguments, **named)
        finally:
            test = current_test()
            if test is not None:
                test.open_patches.discard(id(thing))

    return undo


# ---- where the guards stand


def _under_mock(guard: ProcessGuard, mock: Any, stack: ExitStack) -> None:
    reason = "calls unittest.mock.patch"
    # mock's classes have no public names. `start`, `stop`, `with` and decorators all come by here.
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


# ---- what is heard


class _AuditHook:
    """An audit hook stays for the life of the process: added once, and deaf without a listener."""

    is_added = False
    listener: Callable[[str], None] | None = None


def _hook(event: str, _arguments: tuple[Any, ...]) -> None:
    # Called for everything that Python audits, each import and each file that is opened.
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
    """Whether it is `os.environ` that a `MonkeyPatch` method or a `patch.dict` changes."""
    target = arguments[0] if arguments else getattr(patch, "in_dict", None)
    return target is os.environ or (type(target) is str and target == "os.environ")
