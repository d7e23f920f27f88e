"""The standings of a race: what the table, the JSON and the Python report show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from paraval.dataclass import dataclass
from paraval.racing.findings import Origin, ProfiledFunction, RunDifference, Speedup, TestCounts


class Status(StrEnum):
    """How a candidate ended."""

    WON = "won"
    ACCEPTED = "accepted"
    """Shown to be faster, but another candidate won."""
    SLOWER = "slower"
    NOT_SHOWN = "not_shown"
    """Passed, but not shown to be as much faster as required."""
    FAILED = "failed"
    INVALID = "invalid"
    """It does not apply, or it changes protected files."""
    DUPLICATE = "duplicate"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    INFRA_ERROR = "infra_error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStanding:
    """One candidate and its result."""

    name: str
    status: Status
    reason: str = ""
    """Why it did not win; for the winner, why it did."""
    tests: TestCounts | None = None
    differences: tuple[RunDifference, ...] = ()
    more_differences: int = 0
    speedup: Speedup | None = None
    cases: Mapping[str, Speedup] = field(default_factory=dict)
    """By benchmark case, if the benchmark reports cases."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The median of its measurements, by benchmark case."""
    noisy: bool = False
    parent: str | None = None
    origin: Origin = Origin.GIVEN
    note: str = ""
    """The proposer's comment."""
    duplicate_of: str | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    """What to check before using it, though it passed and is faster."""
    tree: str | None = None
    """The git tree; None if it never applied."""
    patch: str | None = None
    """The path of its patch, relative to the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineStanding:
    """The unmodified repository and its result."""

    commit: str | None = None
    tree: str = ""
    uncommitted: bool = False
    tests: TestCounts | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The median of its measurements, by benchmark case."""
    failing: tuple[str, ...] = ()
    differences: tuple[RunDifference, ...] = ()
    """How the first failing tests failed."""
    reason: str | None = None
    """Why the race did not start; None if it did."""
    unstable: tuple[str, ...] = ()
    """Differed between two runs of its tests, so it is not compared."""
    noisy: bool = False
    unseen: bool = False
    """Its benchmark prints nothing that is the same in each process, so that nothing shows whether
    a candidate's does the same work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The state of a race, with candidates in order of arrival."""

    baseline: BaselineStanding
    candidates: tuple[CandidateStanding, ...] = ()
    winner: str | None = None
    profile: tuple[ProfiledFunction, ...] = ()
    profile_problem: str | None = None
    notes: tuple[str, ...] = ()
    """Notes on the whole race: time ran out, hook lines were skipped."""
    finalists: int = 0
    """How many candidates were measured again, on fresh blocks."""
    cost_usd: float = 0.0
    """The total cost that generate, repair and refine reported."""
    unpriced_calls: int = 0
    """Hook calls that reported no cost."""
    nodes: tuple[str, ...] = ()
    """The nodes of a cluster that ran tests ..."""
    measured_on: tuple[str, ...] = ()
    """... and the machines that measured then; several if it was resumed elsewhere."""
    over: bool = True
    """False if it was interrupted and can be resumed."""
