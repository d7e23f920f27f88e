"""Where trials come from that no plan knew of: what runs next is decided by what was found.

A source decides and does nothing else: it is told how trials ended, and answers with new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paraval.records import Trial, TrialResult


class Source(Protocol):
    """Names trials while a run goes on. Quick, never raising, and in the engine's own loop.

    Each trial it names has an index of its own, one after the other from 0, and a key of its own.
    The run is over when nothing runs or waits, and the source has named nothing more.
    """

    def begin(self) -> Sequence[Trial]:
        """What to start with."""
        ...

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        """A trial has its result, and that is on disk; it may be from an earlier engine."""
        ...

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        """A trial will not run now."""
        ...
