"""The CPUs that a command may run on: those of the process that starts it, which it inherits.

A keeper takes on the command's CPUs for the moment of its start. So nothing is forked for it, the
first instruction runs where it should, and all that the command starts stays there, a sandbox
between them or not. It is a habit and no wall: a program may choose other CPUs for itself.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # without `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

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
