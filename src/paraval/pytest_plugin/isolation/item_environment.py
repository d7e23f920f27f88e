"""`os.environ` for each test: the process's environment, with what the test changed laid over it.

So tests that set variables, by `monkeypatch.setenv`, `patch.dict(os.environ)`, `load_dotenv()` or
`os.environ[...] =`, run side by side. What a fixture of a class, module or package sets lies
between the two, for the tests below that node. Child processes get what their test sees. The
process's own environment is changed by code that runs for everybody: session fixtures, modules as
they are imported, and tests that run alone, for which what lies over it is written into it until
they end. C code that reads the environment by itself sees that one.
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
"""By name; None: a variable that was taken away."""
_PLAIN: Any = type(os.environ)
_UNCHANGED = object()
_PATCHERS = frozenset({"_pytest", "unittest", "mock", "pytest_mock"})
"""Packages that put back what they set."""
_HELPERS = frozenset({"os", "collections", "contextlib", "dotenv"})
"""Packages that set variables for whoever calls them."""
_TESTS = frozenset({"test", "tests"})
"""Folders in which helpers of tests stand, too."""
_IMPORTING = "<frozen importlib._bootstrap>"


@contextmanager
def environment_by_test(items: Iterable[pytest.Item]) -> Iterator[None]:
    """Until the block ends; `items`: all tests that may run."""
    if isinstance(os.environ, _EnvironByTest):  # A session within a test of another.
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
    """While a test runs alone: what fixtures of its class, module and package set is there for
    everybody, C code too, and gone when the block ends."""
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
    """What a module does as it is loaded is done once, for everybody."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return False


class _EnvironByTest(_PLAIN):  # type: ignore[misc]  # a class of `os` without a public name
    """Both views, of texts and of bytes, share one dict of bytes: `_data`."""

    is_test_code: ClassVar[Callable[[str], bool]]
    layers: ClassVar[dict[Node, Changes]]
    """By class, module or package: what fixtures that its tests share have changed."""
    covered: ClassVar[Changes]
    """What the variables were, that are written into the process for a test that runs alone."""

    def layers_of(self, node: Node) -> list[Changes]:
        """The innermost first."""
        if not self.layers:
            return []
        return [self.layers[one] for one in reversed(node.listchain()) if one in self.layers]

    def put(self, name: bytes, value: bytes | None) -> None:
        """Into the process's own environment."""
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
        """What lies over the process's own, for the code that asks; the uppermost first."""
        test = owning_test()
        node = (test or ALONE).sets_up_for
        if node is not None:
            return self.layers_of(node)
        return [] if test is None else [test.environment, *self.layers_of(test.item)]

    @property
    def _data(self) -> dict[bytes, bytes]:
        """For all that goes over the whole."""
        real, seen = vars(self)["_data"], self._seen()
        if not any(seen):
            return real  # type: ignore[no-any-return]  # of a class without types
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
            # What code under test adds, as it makes its client once, tests beside are to see, too.
            if whose == "app's" and value is not None and name not in vars(self)["_data"]:
                test.added_variables.add(name)
            if name not in test.added_variables:
                return
        self.put(name, value)


def _whose_write(is_test_code: Callable[[str], bool]) -> str:
    """The test's own, or the app's under test, by who sets the variable; empty: a module that is
    being imported does, for everybody."""
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
