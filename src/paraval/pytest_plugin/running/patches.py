"""What is kept apart while tests run beside each other, put up and taken down as one.

A test that runs alone has pytest as it always is: nothing of this is in place then.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

Walls = Sequence[Callable[[], AbstractContextManager[Any]]]


class Apart:
    """In place or not. Only the main thread changes that, and while no turn runs."""

    def __init__(self, walls: Walls) -> None:
        self._walls = walls
        self._standing: ExitStack | None = None

    @property
    def is_up(self) -> bool:
        return self._standing is not None

    def put_up(self) -> None:
        if self._standing is None:
            with ExitStack() as stack:
                for wall in self._walls:
                    stack.enter_context(wall())
                self._standing = stack.pop_all()

    def take_down(self) -> None:
        if self._standing is not None:
            standing, self._standing = self._standing, None
            standing.close()


# ---- syntax trees


@contextmanager
def parsing_one_by_one() -> Iterator[None]:
    """Until the block ends, `ast.parse` waits for the one that runs in another thread."""
    if sys.version_info >= (3, 12):
        yield
        return
    plain = ast.parse
    # A finalizer may parse in the middle of it, in the same thread.
    building = threading.RLock()
    """Guards the count."""

    def parse(*arguments: Any, **named: Any) -> Any:
        with building:
            return plain(*arguments, **named)

    ast.parse = parse
    try:
        yield
    finally:
        ast.parse = plain


# ---- temporary folders


@contextmanager
def folders_one_by_one() -> Iterator[None]:
    """Until the block ends, who asks for a folder waits for the one that is being made."""
    basetemp, mktemp = pytest.TempPathFactory.getbasetemp, pytest.TempPathFactory.mktemp
    # The one asks for the other, in the same thread.
    making = threading.RLock()
    """Guards the folder of the session, and the numbers of those in it."""

    def get_basetemp(factory: pytest.TempPathFactory) -> Path:
        with making:
            return basetemp(factory)

    def make_temp(factory: pytest.TempPathFactory, basename: str, numbered: bool = True) -> Path:
        with making:
            return mktemp(factory, basename, numbered)

    _set("getbasetemp", get_basetemp)
    _set("mktemp", make_temp)
    try:
        yield
    finally:
        _set("getbasetemp", basetemp)
        _set("mktemp", mktemp)


def _set(name: str, function: object) -> None:
    setattr(pytest.TempPathFactory, name, function)


# ---- tracebacks


_PACKAGE = "paraval.pytest_plugin"
_BETWEEN = ("_pytest", "pluggy", _PACKAGE)
"""Packages whose frames are no user's."""


def hide_own_frames() -> None:
    """In all modules of the package that are loaded by now."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(f"{_PACKAGE}."):
            # pytest's own word for a function that is not to be shown; in a module, for all of it.
            vars(module)["__tracebackhide__"] = _is_in_the_way


def _is_in_the_way(failure: pytest.ExceptionInfo[BaseException] | None) -> bool:
    """Where nothing of the user's is left, as of a test that hung, pytest would tell that all is
    hidden."""
    if failure is None:
        return True
    names = (str(entry.frame.f_globals.get("__name__", "")) for entry in failure.traceback)
    return not all(name.startswith(_BETWEEN) for name in names)
