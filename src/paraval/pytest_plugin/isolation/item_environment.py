"""`os.environ` for each test: the process's environment, overlaid with the test's changes.

This lets tests run concurrently that set variables with `monkeypatch.setenv`,
`patch.dict(os.environ)`, `load_dotenv()` or `os.environ[...] =`. Changes by class, module or
package fixtures are a layer in between, for the tests below that node. Child processes get what
their test sees. Session fixtures, modules being imported, and exclusive tests change the process's
own environment; for an exclusive test, the layers are written into it until the test ends. C code
that reads the environment directly sees the process's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from paraval.pytest_plugin.pytest_internals import Node
from paraval.pytest_plugin.running.current_test import ALONE, owning_test

Changes = dict[bytes, bytes | None]
"""By name; None: the variable was removed."""
_PLAIN: Any = type(os.environ)
_UNCHANGED = object()
_PATCHERS = frozenset({"_pytest", "unittest", "mock", "pytest_mock"})
"""Packages that restore what they set."""
_HELPERS = frozenset({"os", "collections", "contextlib", "dotenv"})
"""Packages that set variables on behalf of their caller."""
_TESTS = frozenset({"test", "tests"})
"""Folders that may contain test helpers."""
_IMPORTING = "<frozen importlib._bootstrap>"


@contextmanager
def environment_by_test(items: Iterable[pytest.Item]) -> Iterator[None]:
    """Install the overlay until the block ends; `items`: all tests that may run."""
    if isinstance(os.environ, _EnvironByTest):  # A session inside a test of another session.
        yield
        return
    files = {str(item.path) for item in items}

    def is_test_code(file: str) -> bool:
        *folders, name = Path(file).parts
        return file in files or name == "conftest.py" or not _TESTS.isdisjoint(folders[-3:])

    own = {"is_test_code": staticmethod(is_test_code), "layers": {}, "covered": {}}
    by_test = type("_Environ", (_EnvironByTest,), own)
    views: tuple[Any, ...] = (os.environ, os.environb)
    for view in views:
        view.__class__ = by_test
    try:
        yield
    finally:
        views[0].uncover()
        for view in views:
            view.__class__ = _PLAIN


@contextmanager
def environment_alone(item: pytest.Item) -> Iterator[None]:
    """While an exclusive test runs, write what the fixtures of its class, module and package set
    into the process's environment, so that C code sees it too."""
    environ: Any = os.environ
    if not isinstance(environ, _EnvironByTest):
        yield
        return
    for changes in reversed(environ.layers_of(item)):
        for name, value in changes.items():
            environ.cover(name, value)
    try:
        yield
    finally:
        environ.uncover()


def is_importing() -> bool:
    """Whether a module is being imported: its changes happen once, for all tests."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return False


class _EnvironByTest(_PLAIN):  # type: ignore[misc]  # a private class of `os`
    """The str and bytes views share one dict of bytes, `_data`."""

    is_test_code: ClassVar[Callable[[str], bool]]
    layers: ClassVar[dict[Node, Changes]]
    """By class, module or package: what shared fixtures changed."""
    covered: ClassVar[Changes]
    """The original values of variables that are written into the process for an exclusive test."""

    def layers_of(self, node: Node) -> list[Changes]:
        """The node's layers, the innermost first."""
        if not self.layers:
            return []
        return [self.layers[one] for one in reversed(node.listchain()) if one in self.layers]

    def put(self, name: bytes, value: bytes | None) -> None:
        """Set or remove a variable in the process's own environment."""
        if value is None:
            os.unsetenv(name)
            vars(self)["_data"].pop(name, None)
        else:
            os.putenv(name, value)
            vars(self)["_data"][name] = value

    def cover(self, name: bytes, value: bytes | None) -> None:
        self.covered.setdefault(name, vars(self)["_data"].get(name))
        self.put(name, value)

    def uncover(self) -> None:
        for name, value in self.covered.items():
            self.put(name, value)
        self.covered.clear()

    def _seen(self) -> list[Changes]:
        """The layers over the process's own environment for the calling code, the topmost first."""
        test = owning_test()
        node = (test or ALONE).sets_up_for
        if node is not None:
            return self.layers_of(node)
        return [] if test is None else [test.environment, *self.layers_of(test.item)]

    @property
    def _data(self) -> dict[bytes, bytes]:
        """The merged environment, for operations on the whole mapping."""
        real, seen = vars(self)["_data"], self._seen()
        if not any(seen):
            return real  # type: ignore[no-any-return]  # the class has no type hints
        whole = {name: value for one in (real, *reversed(seen)) for name, value in one.items()}
        return {name: value for name, value in whole.items() if value is not None}

    def __getitem__(self, key: Any) -> Any:
        name = self.encodekey(key)
        value = next((one[name] for one in self._seen() if name in one), _UNCHANGED)
        value = vars(self)["_data"].get(name) if value is _UNCHANGED else value
        if value is None:
            raise KeyError(key)
        return self.decodevalue(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write(self.encodekey(key), self.encodevalue(value))

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._write(self.encodekey(key), None)

    def _write(self, name: bytes, value: bytes | None) -> None:
        test = owning_test()
        node = (test or ALONE).sets_up_for
        if node is not None and node.parent is not None and not is_importing():
            self.layers.setdefault(node, {})[name] = value
            if test is None:
                self.cover(name, value)
            return
        whose = _whose_write(type(self).is_test_code) if test is not None and node is None else ""
        if test is not None and whose:
            test.environment[name] = value
            # A variable that the code under test adds, when it creates its only client for
            # instance, must be visible to other tests too.
            if whose == "app's" and value is not None and name not in vars(self)["_data"]:
                test.added_variables.add(name)
            if name not in test.added_variables:
                return
        self.put(name, value)


def _whose_write(is_test_code: Callable[[str], bool]) -> str:
    """Whether test code or the app sets the variable; empty: an import does, for all tests."""
    frame = sys._getframe(3)
    while (back := frame.f_back) is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _PATCHERS:
            return "test's"
        if package not in _HELPERS:
            break
        frame = back
    if is_importing():
        return ""
    return "test's" if is_test_code(frame.f_code.co_filename) else "app's"
