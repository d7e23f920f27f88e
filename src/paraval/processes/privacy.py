"""The engine's own environment, kept from what it starts: keys are in it that commands never see.
(A warden and its keepers are never readable.)

A process of the same user may read another's environment and memory. One that is not dumpable is
spared; programs that it starts are dumpable again. Nothing helps against a command that is root.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from paraval.processes.tree import PR_SET_DUMPABLE

_PR_GET_DUMPABLE = 3


class _Privacy:
    """How many want it now; what was before comes back when the last one has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the count and the former value: engines may run in several threads."""
        self._wanted_by = 0
        self._former = 1

    def begin(self) -> None:
        with self._lock:
            if not self._wanted_by:
                self._former = _prctl(_PR_GET_DUMPABLE, 0)
                _prctl(PR_SET_DUMPABLE, 0)
            self._wanted_by += 1

    def end(self) -> None:
        with self._lock:
            self._wanted_by -= 1
            # 2 (readable by root alone) cannot be set, and never was anybody's wish but the
            # kernel's: to stay private is the nearest.
            if not self._wanted_by and self._former == 1:
                _prctl(PR_SET_DUMPABLE, 1)


_privacy = _Privacy()


@contextmanager
def unreadable_environment() -> Iterator[None]:
    """While it lasts, no other process of this user can read this one's; Linux only.

    It makes no core dump either, and cannot be traced.
    """
    if sys.platform != "linux":
        yield
        return
    _privacy.begin()
    try:
        yield
    finally:
        _privacy.end()


def _prctl(option: int, value: int) -> int:
    """-1 where it is refused: there is nothing that could be done about it."""
    return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0))
