"""How much a command yields to others, and which CPUs it may run on.

Where the kernel groups processes by session (autogroup), niceness counts among the processes of a
session alone, and the session has one of its own: both are set. A session that a command starts for
itself is a new group; `Warden.loads` sees to those that last.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable


# The CPUs that a command may run on: those of the process that starts it, which it inherits.

MOST_CPUS = 8192
"""As many as Linux can be built for: a larger number is none of a CPU's."""


class Pin:
    """The CPUs of this process while it starts a command; a context manager."""

    __slots__ = ("_before", "_cpus", "holds")

    def __init__(self, cpus: Iterable[int]) -> None:
        self._cpus = set(cpus)
        self._before: set[int] | None = None
        self.holds = False
        """What was started runs on these CPUs alone; False: none were asked for, or the system
        knows no such thing, or refused."""

    def __enter__(self) -> Pin:
        if self._cpus:
            try:
                self._before = os.sched_getaffinity(0)
                os.sched_setaffinity(0, self._cpus)
                self.holds = True
            except (AttributeError, OSError, ValueError, OverflowError):
                self.holds = False
        return self

    def __exit__(self, *_: object) -> None:
        if not self.holds or self._before is None:
            return
        try:
            os.sched_setaffinity(0, self._before)
        except OSError:
            # None of those is there any more: any that this process may have is as good, and
            # what it serves next must not be held to this command's.
            os.sched_setaffinity(0, range(os.cpu_count() or 1))


MOST_NICE = 19


def be_nice(session: int, nice: int) -> bool:
    """Have the session that this process leads yield; False: ask again in a while."""
    try:
        # The group, too: it may have started others already.
        os.setpriority(os.PRIO_PGRP, session, nice)
    except OSError:
        # It is gone, or became another user.
        return True
    return sys.platform != "linux" or _be_nice_as_group(session, nice)


def _be_nice_as_group(session: int, nice: int) -> bool:
    try:
        file = os.open(f"/proc/{session}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        os.write(file, b"%d" % nice)
    except BlockingIOError:
        # From all who are not root, the kernel hears this ten times a second, and no more often.
        return False
    except OSError:
        return True
    finally:
        os.close(file)
    return True
