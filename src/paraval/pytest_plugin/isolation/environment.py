"""`os.environ` for each test: the process's environment, with what the test changed laid over it.

So tests that set variables, by `monkeypatch.setenv`, `patch.dict(os.environ)`, `load_dotenv()` or
`os.environ[...] =`, run side by side. Child processes get what their test sees. The process's own
environment is changed by code that runs for everybody: fixtures that tests share, modules as they
are imported, and tests that run alone. C code that reads the environment by itself sees that one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from paraval.pytest_plugin.running.current_test import Turn, turn_here

_PLAIN: Any = type(os.environ)
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
    files = {str(item.path) for item in items}

    def is_test_code(file: str) -> bool:
        *folders, name = Path(file).parts
        return file in files or name == "conftest.py" or not _TESTS.isdisjoint(folders[-3:])

    by_test = type("_Environ", (_EnvironByTest,), {"is_test_code": staticmethod(is_test_code)})
    views: tuple[Any, ...] = (os.environ, os.environb)
    for view in views:
        view.__class__ = by_test
    try:
        yield
    finally:
        for view in views:
            view.__class__ = _PLAIN


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

    def __getitem__(self, key: Any) -> Any:
        name, turn = self.encodekey(key), _turn()
        changes = {} if turn is None else turn.environment
        value = changes[name] if name in changes else vars(self)["_data"].get(name)
        if value is None:
            raise KeyError(key)
        return self.decodevalue(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        name, given = self.encodekey(key), self.encodevalue(value)
        real, (turn, is_tests) = vars(self)["_data"], self._writer()
        if turn is not None:
            turn.environment[name] = given
            # What code under test adds, as it makes its client once, tests beside are to see, too.
            if not is_tests and name not in real:
                turn.added_variables.add(name)
            if name not in turn.added_variables:
                return
        os.putenv(name, given)
        real[name] = given

    def __delitem__(self, key: Any) -> None:
        name, real, (turn, _) = self.encodekey(key), vars(self)["_data"], self._writer()
        if turn is not None:
            before = turn.environment.get(name, real.get(name))
            turn.environment[name] = None
            if before is None:
                raise KeyError(key)
            if name not in turn.added_variables:
                return
            turn.added_variables.discard(name)
        elif name not in real:
            raise KeyError(key)
        os.unsetenv(name)
        real.pop(name, None)

    @property
    def _data(self) -> dict[bytes, bytes]:
        """For all that goes over the whole."""
        real, turn = vars(self)["_data"], _turn()
        if turn is None or not turn.environment:
            return real  # type: ignore[no-any-return]  # of a class without types
        whole = {**real, **turn.environment}
        return {name: value for name, value in whole.items() if value is not None}

    def _writer(self) -> tuple[Turn | None, bool]:
        """Whose change this is, and whether its test code makes it, not the code under test. None:
        it is made for everybody."""
        turn = _turn()
        whose = None if turn is None else _whose_write(type(self).is_test_code)
        return (None, False) if whose == "everybody's" else (turn, whose == "test's")


def _turn() -> Turn | None:
    """None: the code belongs to no test, or to a fixture that tests share."""
    turn = turn_here()
    return None if turn is None or turn.sets_up_shared else turn


def _whose_write(is_test_code: Callable[[str], bool]) -> str:
    """The test's own, that of the code under test, or everybody's, by who sets the variable."""
    frame = sys._getframe(3)
    while (back := frame.f_back) is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _PATCHERS:
            return "test's"
        if package not in _HELPERS:
            break
        frame = back
    if is_importing():
        return "everybody's"
    return "test's" if is_test_code(frame.f_code.co_filename) else "app's"
