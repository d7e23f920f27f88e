"""A bound for work that nothing else can interrupt: matching a pattern, above all.

The `re` module holds the interpreter's lock while it matches, so a catastrophic pattern stops every
thread, and with them the engine. It does look for signals now and then, but only in the main
thread: there a timer over the process's own CPU time ends it. Elsewhere nothing can, so that only
short texts are let through; and even a short one can keep a bad pattern busy for ever. That is a
known limitation of a loop outside the main thread.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from paraval.grade.grader import CannotGrade

T = TypeVar("T")

LONGEST_UNTIMED_TEXT = 10_000
"""Characters that are matched where no timer can end it: in a loop outside the main thread."""


class _TooSlow(BaseException):
    """Raised by the timer, through whatever runs; no `except Exception` on the way may stop it."""


def within_cpu_time(work: Callable[[], T], *, seconds: float, characters: int) -> T:
    """What `work` returns; CannotGrade if it needs more CPU than `seconds`."""
    if threading.current_thread() is not threading.main_thread():
        if characters > LONGEST_UNTIMED_TEXT:
            raise CannotGrade(
                f"a text of {characters} characters is not matched outside the main thread, where "
                f"nothing could end it; at most {LONGEST_UNTIMED_TEXT} are"
            )
        return work()
    try:
        return _TIMER.run(work, seconds)
    except _TooSlow:
        raise CannotGrade(
            f"it took more than {seconds:g} s of CPU on {characters} characters and was ended; "
            "a repeat inside a repeat, such as (a+)+, is the usual cause"
        ) from None


class _CpuTimer:
    """Rings once, in the main thread, when the process has used so much CPU."""

    # SIGVTALRM counts CPU, not wall time: a busy machine cannot make a quick pattern look slow, and
    # SIGALRM is left to others.

    def __init__(self) -> None:
        self._armed = False

    def run(self, work: Callable[[], T], seconds: float) -> T:
        # Never put back: a signal on its way would meet the default, which ends the process.
        if signal.getsignal(signal.SIGVTALRM) != self._ring:
            signal.signal(signal.SIGVTALRM, self._ring)
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            return work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _ring(self, _number: int, _frame: object) -> None:
        if self._armed:
            raise _TooSlow


_TIMER = _CpuTimer()
