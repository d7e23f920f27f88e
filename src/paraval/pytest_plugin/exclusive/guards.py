"""Nets under the scan: a test that changes the whole process asks for the floor as it does so.

What is caught: the process's folder and its forks, by an audit hook; the patches of `unittest.mock`
and of `pytest.MonkeyPatch`; click's test runner. Always before the change; and only the test's own
thread waits. Who waits for whom is left to `floor`.

Until when a change lasts: a patch until it is undone, the rest until the test's end. In the setup
of a session's fixture, until the setup ends, since everybody is to see it. One that is made in the
setup of a fixture of a class, module or package outlives the test that happens to need it first:
it is told in `Floor.by_shared_fixtures`, and all tests that use the fixture have it as a reason in
`Floor.reasons`. Changes of the environment are each test's own (`environment`), and not caught.
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

from paraval.pytest_plugin.exclusive.lock import Floor
from paraval.pytest_plugin.isolation.environment import is_importing
from paraval.pytest_plugin.running.current_test import Turn, current, note_call, turn_here

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
def nets(net: Net, session: pytest.Session) -> Iterator[None]:
    """Until the block ends. Modules that are not loaded by then go without."""
    manager = session.config.pluginmanager
    with ExitStack() as stack:
        for name in _MOCKS:
            if name in sys.modules:
                _under_mock(net, sys.modules[name], stack)
        _under_monkeypatch(net, stack)
        if "click.testing" in sys.modules:
            runner = sys.modules["click.testing"].CliRunner
            _replace(stack, runner, "invoke", net.during("uses a click.testing.CliRunner"))
        for module, owner, method in _SENDERS:
            if hasattr(sys.modules.get(module), owner):
                _replace(stack, getattr(sys.modules[module], owner), method, _noting_calls)
        manager.register(net, Net.NAME)
        stack.callback(manager.unregister, net)
        stack.enter_context(_audited(net.hear))
        yield


@dataclass(slots=True, kw_only=True)
class _Setup:
    """A fixture's setup, while it runs."""

    fixture: pytest.FixtureDef[Any]
    releases: list[Release] = field(default_factory=list)


class _Here(threading.local):
    """What one thread is at."""

    def __init__(self) -> None:
        self.setups: list[_Setup] = []
        self.patching = 0
        """How deep it is in patches that have the floor already."""


class Net:
    """Asks, and keeps what was asked for until it ends; a plugin, too, to know of setups."""

    NAME = "paraval-nets"

    def __init__(self, floor: Floor, items: Iterable[pytest.Item]) -> None:
        self._floor = floor
        self._items = items
        self._here = _Here()
        self._held: dict[tuple[Turn | None, int], tuple[object, Release]] = {}
        """By turn and patch; the patch itself, too, so that its id stays its own."""
        self.changes_alone = 0
        """How often the tests that run alone changed the process."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if turn_here() is None:
            return (yield)
        setup = _Setup(fixture=fixturedef)
        self._here.setups.append(setup)
        try:
            return (yield)
        finally:
            self._here.setups.pop()
            for release in setup.releases:
                release()

    # ---- asking

    def ask(self, reason: str, *, is_patch: bool = False) -> Release | None:
        """What ends it is returned, where that is for the caller to know."""
        turn = current()
        if turn is None:
            self.changes_alone += turn_here() is None
            return None
        if is_importing():
            # And whoever waits there holds the module's lock: others that import it would wait.
            return None
        setup = self._here.setups[-1] if turn.is_here and self._here.setups else None
        if setup is None or setup.fixture.scope == "function":
            return self._floor.ask(reason, is_patch=is_patch)
        if setup.fixture.scope == "session":
            setup.releases.append(self._floor.ask(reason, is_tests_own=False))
        else:
            self._floor.ask(reason)
            self._note(setup.fixture, reason)
        self._floor.outlives()
        return None

    def hear(self, event: str) -> None:
        """Of an audit event, before what it tells of is done."""
        reason = _EVENTS[event]
        if reason is None:
            note_call()
        elif not self._here.patching:
            self.ask(reason)

    def _note(self, fixture: pytest.FixtureDef[Any], reason: str) -> None:
        name = fixture.argname
        self._floor.by_shared_fixtures.setdefault(f"{name} ({fixture.scope})", reason)
        why = f"fixture `{name}` ({fixture.scope}) {reason}"
        for item in self._items:
            # What a test's closure holds has no public name.
            info = getattr(item, "_fixtureinfo", None)
            found = () if info is None else info.name2fixturedefs.get(name, ())
            if any(one.func is fixture.func for one in found):
                self._floor.reasons[item.nodeid] = why

    # ---- patches

    def begin(self, patch: object, reason: str) -> None:
        key = (turn_here(), id(patch))
        if key not in self._held:
            release = self.ask(reason, is_patch=True)
            if release is not None:
                self._held[key] = (patch, release)

    def end(self, patch: object) -> None:
        _, release = self._held.pop((turn_here(), id(patch)), (None, None))
        if release is not None:
            release()

    @contextmanager
    def patching(self) -> Iterator[None]:
        """`MonkeyPatch.chdir` changes the folder: that is asked for already."""
        self._here.patching += 1
        try:
            yield
        finally:
            self._here.patching -= 1

    def beginning(self, reason: str, *, is_all: bool) -> Callable[[Any], Any]:
        """Around a method that patches; `is_all`: if it fails, nothing is patched."""

        def around(method: Any) -> Any:
            @wraps(method)
            def patch(thing: Any, *arguments: Any, **named: Any) -> Any:
                if _is_environment(thing, arguments):
                    return method(thing, *arguments, **named)
                self.begin(thing, reason)
                try:
                    with self.patching():
                        return method(thing, *arguments, **named)
                except BaseException:
                    if is_all:
                        self.end(thing)
                    raise

            return patch

        return around

    def ending(self, method: Any) -> Any:
        """Around a method that undoes a patch."""

        @wraps(method)
        def undo(thing: Any, *arguments: Any, **named: Any) -> Any:
            try:
                with self.patching():
                    return method(thing, *arguments, **named)
            finally:
                self.end(thing)

        return undo

    def during(self, reason: str) -> Callable[[Any], Any]:
        """Around a method that changes things, and undoes it."""

        def around(method: Any) -> Any:
            return self.ending(self.beginning(reason, is_all=False)(method))

        return around


# ---- where the nets hang


def _under_mock(net: Net, mock: Any, stack: ExitStack) -> None:
    reason = "calls unittest.mock.patch"
    # mock's classes have no public names. `start`, `stop`, `with` and decorators all come by here.
    patch, patch_dict = mock._patch, mock._patch_dict
    _replace(stack, patch, "__enter__", net.beginning(reason, is_all=True))
    _replace(stack, patch, "__exit__", net.ending)
    _replace(stack, patch_dict, "_patch_dict", net.beginning(reason, is_all=True))
    _replace(stack, patch_dict, "_unpatch_dict", net.ending)


def _under_monkeypatch(net: Net, stack: ExitStack) -> None:
    for name in _MONKEYPATCHES:
        around = net.beginning("uses a pytest.MonkeyPatch", is_all=False)
        _replace(stack, pytest.MonkeyPatch, name, around)
    _replace(stack, pytest.MonkeyPatch, "undo", net.ending)


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


class _Audit:
    """An audit hook stays for the life of the process: added once, and deaf without a listener."""

    is_added = False
    listener: Callable[[str], None] | None = None


def _hook(event: str, _arguments: tuple[Any, ...]) -> None:
    # Called for everything that Python audits, each import and each file that is opened.
    if event in _EVENTS and _Audit.listener is not None:
        _Audit.listener(event)


@contextmanager
def _audited(listener: Callable[[str], None]) -> Iterator[None]:
    if not _Audit.is_added:
        sys.addaudithook(_hook)
        _Audit.is_added = True
    _Audit.listener = listener
    try:
        yield
    finally:
        _Audit.listener = None


def _is_environment(patch: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether it is `os.environ` that a `MonkeyPatch` method or a `patch.dict` changes."""
    target = arguments[0] if arguments else getattr(patch, "in_dict", None)
    return target is os.environ or (type(target) is str and target == "os.environ")
