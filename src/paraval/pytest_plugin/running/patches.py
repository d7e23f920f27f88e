"""Installs and removes the isolation of parallel tests as a whole.

An exclusive test sees pytest as it always is: none of this is installed then.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any

import pytest

IsolationParts = Sequence[Callable[[], AbstractContextManager[Any]]]


class Isolation:
    """The isolation, installed or not. Only the main thread changes that, while no test runs."""

    def __init__(self, parts: IsolationParts) -> None:
        self._parts = parts
        self._installed: ExitStack | None = None

    @property
    def is_installed(self) -> bool:
        return self._installed is not None

    def install(self) -> None:
        if self._installed is None:
            with ExitStack() as stack:
                for part in self._parts:
                    stack.enter_context(part())
                self._installed = stack.pop_all()

    def remove(self) -> None:
        if self._installed is not None:
            standing, self._installed = self._installed, None
            standing.close()


# ---- what is not thread-safe


def serialize_parsing() -> AbstractContextManager[None]:
    """Until the block ends, only one thread at a time runs `ast.parse`."""
    return nullcontext() if sys.version_info >= (3, 12) else _one_at_a_time(ast, "parse")


def serialize_temporary_folders() -> AbstractContextManager[None]:
    """Until the block ends, only one thread at a time creates a temporary folder."""
    return _one_at_a_time(pytest.TempPathFactory, "getbasetemp", "mktemp")


@contextmanager
def _one_at_a_time(owner: object, *names: str) -> Iterator[None]:
    """Serialize calls of these functions; one may call another in the same thread."""
    plain = {name: vars(owner)[name] for name in names}
    lock = threading.RLock()
    for name, function in plain.items():
        setattr(owner, name, _locked(lock, function))
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(owner, name, function)


def _locked(lock: AbstractContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with lock:
            return function(*arguments, **named)

    return call


# ---- tracebacks


_PACKAGE = "paraval.pytest_plugin"
_BETWEEN = ("_pytest", "pluggy", _PACKAGE)
"""Packages whose frames are not users' code."""


def hide_own_frames() -> None:
    """Hide the frames of all loaded modules of this package."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(f"{_PACKAGE}."):
            # pytest's marker for a function to hide; in a module, it applies to all functions.
            vars(module)["__tracebackhide__"] = _is_in_the_way


def _is_in_the_way(failure: pytest.ExceptionInfo[BaseException] | None) -> bool:
    """Show our frames if no user frame is left: pytest would report that all are hidden."""
    if failure is None:
        return True
    names = (str(entry.frame.f_globals.get("__name__", "")) for entry in failure.traceback)
    return not all(name.startswith(_BETWEEN) for name in names)
