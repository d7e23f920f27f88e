"""Attributes unhandled exceptions, and the explanations of failed asserts, to the right test.

pytest's plugins `threadexception` and `unraisableexception` keep exceptions in one process-wide
queue, and the test whose phase ends next warns about them. Here each test keeps its own, and warns
with the same text. Exceptions after a test's end, or outside of tests, are left to pytest.
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.pytest_internals import allocation_of, assertion, assertion_util
from paraval.pytest_plugin.running.current_test import RunningTest, current_test


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhandledException:
    """An exception, formatted when it occurred."""

    category: type[pytest.PytestWarning]
    summary: str
    traceback: str
    source: str
    """Where the object came from."""
    error: BaseException | None

    def warn(self) -> None:
        """Warn; if filters make the warning an error, raise it from the exception."""
        try:
            warnings.warn(
                self.category(f"{self.summary}\n\n{self.traceback}\n{self.source}"), stacklevel=1
            )
        except self.category as warning:
            if self.error is not None:
                warning.args = (f"{self.summary}\n{self.source}",)
                warning.__cause__ = self.error
            raise


@contextmanager
def isolate_unhandled(config: pytest.Config) -> Iterator[None]:
    """Install the hooks until the block ends, for those of pytest's own plugins that are active."""
    manager = config.pluginmanager
    before = (threading.excepthook, sys.unraisablehook)
    ends = _UnhandledPlugin()
    manager.register(ends, _UnhandledPlugin.NAME)
    if manager.has_plugin("threadexception"):
        threading.excepthook = _kept_by_tests(before[0], _in_thread)
    if manager.has_plugin("unraisableexception"):
        sys.unraisablehook = _kept_by_tests(before[1], _unraisable)
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before
        manager.unregister(ends)


class _UnhandledPlugin:
    """A plugin that fails a test's phase for its unhandled exceptions if warnings are errors."""

    NAME = "paraval-unhandled"

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self) -> None:
        _warn_all(_taken(current_test()))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self) -> None:
        _warn_all(_taken(current_test()))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        test = current_test()
        taken = _taken(test)
        if test is not None:
            # No later hook of the test would report what comes now: leave it, and all after it, to
            # pytest.
            test.unhandled = None
        _warn_all(taken)


def _taken(test: RunningTest | None) -> list[UnhandledException]:
    if test is None:
        return []
    # The test's threads may add more meanwhile.
    taken, test.unhandled = test.unhandled, []
    return taken or []


def _warn_all(exceptions: list[UnhandledException]) -> None:
    errors: list[Exception] = []
    for one in exceptions:
        try:
            one.warn()
        except pytest.PytestWarning as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("multiple unhandled exceptions", errors)


def _kept_by_tests(
    plain: Callable[[Any], Any], read: Callable[[Any], UnhandledException]
) -> Callable[[Any], None]:
    def hook(arguments: Any) -> None:
        test = current_test()
        kept = None if test is None else test.unhandled
        if kept is None:
            plain(arguments)
        else:
            kept.append(read(arguments))

    return hook


def _in_thread(arguments: threading.ExceptHookArgs) -> UnhandledException:
    thread = arguments.thread
    return UnhandledException(
        category=pytest.PytestUnhandledThreadExceptionWarning,
        summary=f"Exception in thread {'<unknown>' if thread is None else thread.name}",
        traceback=_traceback(arguments),
        source=allocation_of(thread),
        error=arguments.exc_value,
    )


def _unraisable(arguments: Any) -> UnhandledException:
    message = "Exception ignored in" if arguments.err_msg is None else arguments.err_msg
    return UnhandledException(
        category=pytest.PytestUnraisableExceptionWarning,
        summary=f"{message}: {arguments.object!r}",
        traceback=_traceback(arguments),
        source=allocation_of(arguments.object),
        error=arguments.exc_value,
    )


def _traceback(arguments: Any) -> str:
    return "".join(
        traceback.format_exception(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
    )


# ---- asserts


Explain = Callable[[str, object, object], str | None]


@contextmanager
def isolate_asserts(config: pytest.Config) -> Iterator[None]:
    """Explain each test's asserts with that test's hooks; with `-p no:assertion`, with none."""
    if not config.pluginmanager.has_plugin("assertion"):
        yield
        return
    before = (assertion_util._reprcompare, assertion_util._assertion_pass, assertion_util._config)

    def explain(op: str, left: object, right: object) -> str | None:
        test = current_test()
        ours = before[0] if test is None else _hooks_of(test.item)[0]
        return None if ours is None else ours(op, left, right)

    def passed(lineno: int, original: str, explanation: str) -> None:
        test = current_test()
        ours = before[1] if test is None else _hooks_of(test.item)[1]
        if ours is not None:
            ours(lineno, original, explanation)

    wanted = bool(config.getini("enable_assertion_pass_hook"))
    assertion_util._reprcompare = explain
    assertion_util._assertion_pass = passed if wanted else None
    assertion_util._config = config
    try:
        yield
    finally:
        assertion_util._reprcompare, assertion_util._assertion_pass, assertion_util._config = before


def _hooks_of(item: pytest.Item) -> tuple[Explain | None, Any]:
    """Return the hooks that pytest's own plugin sets up for this item.

    Runs a copy of its function with our own variables, since other tests read the process-wide
    ones.
    """
    own = SimpleNamespace(_reprcompare=None, _assertion_pass=None, _config=None)
    code = assertion.pytest_runtest_protocol.__code__
    wrapper: Any = FunctionType(code, {**vars(assertion), "util": own})(item)
    try:
        next(wrapper)
        return own._reprcompare, own._assertion_pass
    finally:
        wrapper.close()
