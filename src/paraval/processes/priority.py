"""The niceness of a command, and the CPUs it may run on.

If the kernel groups processes by session (autogroup), niceness counts only within a session, and
the session has a niceness of its own: both are set. A session started by a command is a new group;
`Warden.loads` handles those that last.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable


# The CPUs that a command may run on: inherited from the process that starts it.

MOST_CPUS = 8192
"""The most that Linux can be built for."""


class Pin:
    """Sets the CPUs of this process while it starts a command; a context manager."""

    __slots__ = ("_before", "_cpus", "holds")

    def __init__(self, cpus: Iterable[int]) -> None:
        self._cpus = set(cpus)
        self._before: set[int] | None = None
        self.holds = False
        """The command runs only on these CPUs; False: none were requested, or the system does not
        support it, or refused."""

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
            # None of those is there any more: use any, since the next command must not inherit this
            # one's CPUs.
            os.sched_setaffinity(0, range(os.cpu_count() or 1))


MOST_NICE = 19


def be_nice(session: int, nice: int) -> bool:
    """Set the niceness of the session that this process leads; False: try again in a while."""
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
        # Except for root, the kernel accepts this only ten times a second.
        return False
    except OSError:
        return True
    finally:
        os.close(file)
    return True
