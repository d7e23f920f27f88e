"""What the scheduler is told, and what it answers: the whole of its contract with the world.

Every event carries the time it happened at, in seconds of any steady clock; the scheduler has none
of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from paraval.records import AccountUse, MachineReading, Outcome


class Draw(NamedTuple):
    """What an attempt is thought to take of an account."""

    account: str
    """As among the trial's needs: `account:team-a`."""
    requests: int = 1
    tokens: float = 0.0


class Work(NamedTuple):
    """A trial as the scheduler sees it. A tuple, since there may be very many."""

    index: int  # type: ignore[assignment]  # a tuple's own `index` is of no use here
    """In the plan; decides between equals."""
    needs: tuple[str, ...] = ()
    """Named limits of which it takes one each while it runs."""
    expected_s: float = 1.0
    """How long it is thought to take; equal for all where nothing is known."""
    draws: tuple[Draw, ...] = ()
    """An account among the needs that has none here is drawn on by one request."""
    cost_usd: float | None = 0.0
    """What an attempt is thought to cost at most; 0 for free ones, None where nobody knows."""
    exclusive: bool = False
    """True: it runs with nothing else."""
    kind: Hashable = None
    """Attempts of one kind take alike of the machine."""
    memory_bytes: int | None = None
    """What an attempt holds at most, as the suite says or earlier runs tell; None: unknown."""
    cpu: float | None = None
    """Cores that are reserved for it; None: none are."""
    cores: float | None = None
    """Cores that it kept busy in earlier runs; None: unknown."""
    block: int = 0
    """Whatever the expectations, one of a smaller number goes first."""


def is_account(need: str) -> bool:
    return need.startswith("account:")


def draws_of(work: Work) -> tuple[Draw, ...]:
    """One for each account among its needs, in their order."""
    accounts = [need for need in work.needs if is_account(need)]
    if len(accounts) == len(work.draws) == 1 and work.draws[0].account == accounts[0]:
        return work.draws
    told = {draw.account: draw for draw in work.draws}
    return tuple(told.get(account) or Draw(account) for account in accounts)


# ---- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    at: float
    called_off: str | None = None
    """Why none of it need run, where that is known by now: it is as if CallOff came at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """More trials, after Begin. To a run that was over they give new life; a stopped one takes no
    more. Either way `Over` is told again."""

    at: float
    works: tuple[Work, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOver:
    """The attempt of a trial ended by itself."""

    at: float
    index: int
    outcome: Outcome
    retry_after: float | None = None
    account: str | None = None
    """Which account a refusal came from; None where a target spoke of none."""
    lasting: bool = False
    """True: another try would end the same way."""
    stops: str | None = None
    """A need that nothing more can be done with in this run."""
    reason: str = ""
    """Why it failed, for those that are skipped for it."""
    uses: tuple[AccountUse, ...] = ()
    cost_usd: float | None = None
    """None: unknown, and taken to be what was reserved for it ..."""
    at_least_usd: float = 0.0
    """... but never less than what is known of it."""
    memory_bytes: int | None = None
    """The most that it held at once; None: nobody saw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The attempt of a trial was called off; the trial stays without a result.

    It may have been billed, so what was reserved for it counts as spent.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOff:
    """What has not started need not run any more: it is skipped, for good. What runs may end."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMeasured:
    """The machine was looked at. Of use where limits are `auto`."""

    at: float
    reading: MachineReading | None
    """None: it cannot be, and nobody should wait for it."""


Event = Begin | Added | AttemptOver | Abandoned | Tick | StopAsked | CallOff | MachineMeasured


# ---- instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
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
class Skip:
    """A trial that will not run now: one that waited, or the one whose attempt just ended.

    For the latter it stands in the place of Conclude and RetryLater.
    """

    index: int
    reason: str
    final: bool = False
    """True: nor will it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountHeld:
    """An account refused, and is left alone for a while. For observers; once for each hold."""

    account: str
    until: float
    refusals: int
    """In a row, without an answer between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedStopped:
    """Nothing more can be done with a need in this run. Once for each need."""

    need: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    """The machine carries another number at once than before. For observers."""

    at_once: int
    wanted: int
    """How many would run if nothing held them back."""
    held_by: str | None
    """memory, cpu, disk; None: nothing does, or their number still grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Nothing runs and nothing will, unless more is added."""


Instruction = (
    StartAttempt
    | Conclude
    | RetryLater
    | Skip
    | AccountHeld
    | NeedStopped
    | CapacityChanged
    | WakeAt
    | Over
)
