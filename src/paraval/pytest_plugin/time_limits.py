"""The mark `timeout_s`: a test that takes longer fails at the line where it is.

Setup and call share the time, and the teardown has it again. The alarm is raised in the test like
any exception, so that fixtures are torn down. A worker whose test doesn't heed it is killed; see
`session`. pytest-timeout's own marks are that plugin's.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paraval.pytest_plugin.pytest_internals import Failed

__tracebackhide__ = True  # Tracebacks of tests don't show this module.
MARK = "timeout_s"
RING_AGAIN_S = 5.0
"""Time to clean up; then it is raised again, repeatedly, in case code catches it."""
SOON_S = 0.001
_SPENT = pytest.StashKey[float]()
"""What earlier phases have used of a test's time."""


class TestTimedOut(Failed):
    """A test exceeded its time limit."""

    __test__ = False  # Not a test class, wherever it is imported.
    # Look like pytest's own: a summary has room for one short word before the reason.
    __module__, __qualname__ = "builtins", "Failed"


def seconds_of(item: pytest.Item) -> float | None:
    """The value of the mark; None: no limit. Raises UsageError."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    given = (*mark.args, *mark.kwargs.values())
    seconds = given[0] if len(given) == 1 and set(mark.kwargs) <= {"seconds"} else None
    if isinstance(seconds, int | float) and seconds is not True and 0 < seconds < math.inf:
        return float(seconds)
    shown = ", ".join((*map(repr, mark.args), *(f"{k}={v!r}" for k, v in mark.kwargs.items())))
    raise pytest.UsageError(
        f"{item.nodeid}: @pytest.mark.{MARK}({shown}) takes a number of seconds above 0, "
        f"as in @pytest.mark.{MARK}(30)"
    )


class TimeLimits:
    """A plugin that enforces the limits, wherever tests run."""

    NAME = "paraval-time-limits"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with _alarm(item, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with _alarm(item, "call"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with _alarm(item, "teardown"):
            return (yield)


@contextmanager
def _alarm(item: pytest.Item, phase: str) -> Iterator[None]:
    seconds = seconds_of(item)
    if seconds is None:
        yield
        return
    began = time.monotonic()
    spent = item.stash.get(_SPENT, 0.0) if phase == "call" else 0.0
    left_s = max(seconds - spent, SOON_S)
    try:
        # pytest-timeout may have set its own alarm, and a test's code any handler.
        others_s, _ = signal.getitimer(signal.ITIMER_REAL)
        if others_s or signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, signal.SIG_IGN):
            yield
        else:
            with _ringing(f"timed out after {seconds:g} s, in the {phase}", left_s):
                yield
    finally:
        item.stash[_SPENT] = spent + time.monotonic() - began


@contextmanager
def _ringing(message: str, left_s: float) -> Iterator[None]:
    is_over = False

    def ring(*_: object) -> None:
        if not is_over:
            raise TestTimedOut(message)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, left_s, RING_AGAIN_S)
        yield
    finally:
        is_over = True  # First, so that nothing is raised from here on.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
