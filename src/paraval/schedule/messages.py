"""What the scheduler is told, and what it answers: the whole of its contract with the world.

Every event carries the time it happened at, in seconds of any steady clock; the scheduler has none
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from paraval.records import Outcome


class Work(NamedTuple):
    """A trial as the scheduler sees it. A tuple, since there may be very many."""

    index: int  # type: ignore[assignment]  # a tuple's own `index` is of no use here
    """In the plan; decides between equals."""
    needs: tuple[str, ...] = ()
    """Named limits of which it takes one each while it runs."""
    expected_s: float = 1.0
    """How long it is thought to take; equal for all where nothing is known."""


# ---- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt of a trial ended by itself."""

    at: float
    index: int
    outcome: Outcome
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The attempt of a trial was called off; the trial stays without a result."""

    at: float
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has come that was asked for by `WakeAt`."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Nothing new may start."""

    at: float


Event = Begin | Ended | Abandoned | Tick | StopAsked


# ---- instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """The attempt that just ended decides its trial."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """The attempt that just ended decides nothing; another will start in about this time."""

    index: int
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Nothing runs and nothing will."""


Instruction = Start | Conclude | RetryLater | WakeAt | Over
