"""How the candidates of a race stand: what the table, the JSON and the Python report show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paraval.racing.findings import Origin, ProfiledFunction, RunDifference, Speedup, TestCounts


class Status(StrEnum):
    """What became of a candidate."""

    WON = "won"
    ACCEPTED = "accepted"
    """Shown to be faster, and another one more so."""
    SLOWER = "slower"
    NOT_SHOWN = "not_shown"
    """Right, and not shown to be faster by as much as was asked for: within the noise."""
    FAILED = "failed"
    INVALID = "invalid"
    """It does not apply, or it changes what judges it."""
    DUPLICATE = "duplicate"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    INFRA_ERROR = "infra_error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStanding:
    """One candidate."""

    name: str
    status: Status
    reason: str = ""
    """Why it is not the winner; of the winner, what speaks for it."""
    tests: TestCounts | None = None
    differences: tuple[RunDifference, ...] = ()
    more_differences: int = 0
    speedup: Speedup | None = None
    cases: Mapping[str, Speedup] = field(default_factory=dict)
    """By benchmark case, where the benchmark tells of them."""
    noisy: bool = False
    parent: str | None = None
    origin: Origin = Origin.GIVEN
    note: str = ""
    """What whoever proposed it says of it."""
    duplicate_of: str | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    """What to look at before it is used, though it was shown to be right and faster."""
    tree: str | None = None
    """None: it never became one."""
    patch: str | None = None
    """Where it is, as a patch, relative to the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineStanding:
    """The repository as it is."""

    commit: str | None = None
    tree: str = ""
    uncommitted: bool = False
    tests: TestCounts | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The median of its measurements, by benchmark case."""
    failing: tuple[str, ...] = ()
    differences: tuple[RunDifference, ...] = ()
    """Of the first tests that failed: how."""
    reason: str | None = None
    """Why the race did not start; None: it did."""
    unstable: tuple[str, ...] = ()
    """What differed between two runs of its own tests, and so is not compared."""
    noisy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """A race as it stands, in the order in which its candidates came."""

    baseline: BaselineStanding
    candidates: tuple[CandidateStanding, ...] = ()
    winner: str | None = None
    profile: tuple[ProfiledFunction, ...] = ()
    profile_problem: str | None = None
    notes: tuple[str, ...] = ()
    """What a reader should know of the whole: the time ran out, lines of hooks left out."""
    finalists: int = 0
    """Who was measured once more, on fresh blocks."""
    cost_usd: float = 0.0
    """What generate, repair and refine told that they cost, together."""
    unpriced_calls: int = 0
    """Calls of theirs that told no cost."""
    over: bool = True
    """False: it was interrupted, and can be resumed."""
