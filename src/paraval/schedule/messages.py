"""The scheduler's events and instructions: its whole interface.

Every event carries the time it happened, in seconds of any steady clock; the scheduler has no clock
of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import AccountUse, MachineReading, Outcome


class Draw(NamedTuple):
    """What an attempt is expected to take from an account."""

    account: str
    """As in the trial's needs: `account:team-a`."""
    requests: int = 1
    tokens: float = 0.0


class Work(NamedTuple):
    """A trial as the scheduler sees it. A tuple, since there may be very many."""

    index: int  # type: ignore[assignment]  # a tuple's own `index` is of no use here
    """Index in the plan; breaks ties."""
    needs: tuple[str, ...] = ()
    """Named limits; it takes one unit of each while it runs."""
    expected_s: float = 1.0
    """Expected duration; equal for all if unknown."""
    draws: tuple[Draw, ...] = ()
    """An account in `needs` without a draw here counts as one request."""
    cost_usd: float | None = 0.0
    """Highest expected cost of an attempt; 0: free, None: unknown."""
    exclusive: bool = False
    """True: nothing else runs at the same time."""
    kind: Hashable = None
    """Attempts of one kind use the machine alike."""
    memory_bytes: int | None = None
    """Peak memory, as declared in the suite or measured in earlier runs; None: unknown."""
    cpu: float | None = None
    """Cores reserved for it; None: none."""
    cores: float | None = None
    """Cores that it kept busy in earlier runs; None: unknown."""
    block: int = 0
    """Lower numbers go first, whatever the expected durations."""
    on_node: bool = False
    """True: it runs on a node of the cluster, and not on this machine."""


def is_account(need: str) -> bool:
    return need.startswith("account:")


def draws_of(work: Work) -> tuple[Draw, ...]:
    """One draw for each account in its needs, in order."""
    accounts = [need for need in work.needs if is_account(need)]
    if len(accounts) == len(work.draws) == 1 and work.draws[0].account == accounts[0]:
        return work.draws
    draws = {draw.account: draw for draw in work.draws}
    return tuple(draws.get(account) or Draw(account) for account in accounts)


# ---- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    at: float
    called_off: str | None = None
    """Why none of it need run, if already known: as if CallOff came immediately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Add trials after Begin. They restart a run that was over; a stopped run takes no more. Either
    way `Over` is sent again."""

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
    """The account that refused; None if the target named none."""
    lasting: bool = False
    """True: another try would end the same way."""
    stops: str | None = None
    """A need that has to be given up for this run."""
    reason: str = ""
    """Why it failed, as the reason for trials skipped because of it."""
    uses: tuple[AccountUse, ...] = ()
    cost_usd: float | None = None
    """None: unknown, and counted as what was reserved for it ..."""
    at_least_usd: float = 0.0
    """... but never less than this known part."""
    memory_bytes: int | None = None
    """Peak memory; None: not measured."""
    is_lost: bool = False
    """True: its node was lost, so it does not count against the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The attempt of a trial was canceled; the trial stays without a result.

    It may have been billed, so its reservation counts as spent.
    """

    at: float
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The time requested by `WakeAt` has come."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Start nothing new."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOff:
    """Trials that have not started need not run: skip them for good. Running ones may finish."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceled:
    """A trial must not run: skip it for good. If it was running, its attempt has been canceled, and
    may have been billed."""

    at: float
    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelChanged:
    """Another number of attempts may run on this machine from now on, and on each node at most.
    Running ones finish."""

    at: float
    parallel: int
    auto: bool
    """True: as many of them as the machine can handle. Nodes, only if they are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChanged:
    """Another budget for the whole run. Trials that were skipped already stay skipped."""

    at: float
    usd: float
    spent_usd: float
    """What was spent so far, for a run that had no budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMeasured:
    """A reading of the machine, used if limits are `auto`."""

    at: float
    reading: MachineReading | None
    """None: the machine cannot be measured; don't wait for it."""
    node: str | None = None
    """The node of the cluster that was measured; None: this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined:
    """A node of the cluster takes trials from now on."""

    at: float
    node: str
    slots: int
    """How many attempts may run on it in parallel; with limits `auto`, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft:
    """A node takes no more trials. The ends of its attempts are events of their own."""

    at: float
    node: str


Event = (
    Begin
    | Added
    | AttemptOver
    | Abandoned
    | Tick
    | StopAsked
    | CallOff
    | Canceled
    | ParallelChanged
    | BudgetChanged
    | MachineMeasured
    | NodeJoined
    | NodeLeft
)


# ---- how it stands, for observers

SLOT = "slot"
"""What a trial waits for that nothing else holds up: a machine that takes it."""
RETRY = "retry"
BUDGET = "budget"
MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """A named limit or an account, and how much of it is in use."""

    name: str
    in_flight: int
    limit: int | None
    """None: no such limit is known."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    is_found: bool = False
    """True: refusals revealed the limit or rate; False: it is configured, or from headers."""
    held_until: float | None = None
    """When an account that refused takes requests again; None: it takes them now."""
    next_at: float | None = None
    """When the next trial that waits for it may start; None: when a running attempt ends."""

    @property
    def is_idle(self) -> bool:
        """Whether it limits nothing."""
        rates = (self.limit, self.requests_per_minute, self.tokens_per_minute, self.held_until)
        return all(one is None for one in rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What may run now, and what the others wait for."""

    allowed: int
    """How many attempts the machines take, as far as only their number counts."""
    waiting: Mapping[str, int]
    """Trials by what they wait for: a need, SLOT, RETRY, BUDGET or MACHINE."""
    limits: tuple[LimitUse, ...]
    running: int = 0
    retry_at: float | None = None
    """When the first of those that wait for RETRY may start."""


# ---- instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    index: int
    node: str | None = None
    """The node of the cluster to run it on; None: this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """The attempt that just ended is its trial's result."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """The attempt that just ended does not count; another will start after at least this delay."""

    index: int
    delay_s: float | None
    """None: as soon as the account that refused takes requests again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A trial that will not run now: one that waited, or the one whose attempt just ended.

    For the latter it replaces Conclude and RetryLater.
    """

    index: int
    reason: str
    final: bool = False
    """True: it will not run later either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountHeld:
    """An account refused and is held back for a while. For observers; once for each hold."""

    account: str
    until: float
    refusals: int
    """Consecutive refusals, with no answer between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedStopped:
    """A need has been given up for this run. Once for each need."""

    need: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    """The number of attempts that the machine carries has changed. For observers."""

    at_once: int
    wanted: int
    """How many would run without this limit."""
    held_by: str | None
    """memory, cpu, disk; None: nothing, or the number is still growing."""
    node: str | None = None
    """The node of the cluster that it is about; None: this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Nothing is running and nothing will, unless more is added."""


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
