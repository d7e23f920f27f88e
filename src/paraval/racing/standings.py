"""The standings of a race: what the table, the JSON and the Python report show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any

from paraval.dataclass import dataclass
from paraval.racing.findings import ProfiledFunction, RunDifference, Speedup, TestCounts


class Status(StrEnum):
    """How a candidate ended."""

    WON = "won"
    ACCEPTED = "accepted"
    """Shown to be faster, but another candidate won."""
    SLOWER = "slower"
    NOT_SHOWN = "not_shown"
    """Passed, but not shown to be as much faster as required."""
    MEASURED = "measured"
    """Passed, and measured in its round: the finals are still to come."""
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
    round: int | None = None
    """The round in which it was proposed; None: it was given."""
    note: str = ""
    """The author's comment."""
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
    profile: tuple[ProfiledFunction, ...] = ()
    profile_problem: str | None = None
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
    rounds: int = 0
    """How many have begun."""
    finalists: int = 0
    """How many candidates were measured again, on fresh blocks."""
    cost_usd: float = 0.0
    """What proposals cost."""
    unpriced_calls: int = 0
    """Calls of `propose` whose cost is unknown."""
    nodes: tuple[str, ...] = ()
    """The nodes of a cluster that ran tests ..."""
    measured_on: tuple[str, ...] = ()
    """... and the machines that measured then; several if it was resumed elsewhere."""
    over: bool = True
    """False if it was interrupted and can be resumed."""


# ---- as JSON data


def proposer_data(standings: Standings, number: int, rounds: int) -> dict[str, Any]:
    """What `propose` gets of a race, without patches."""
    return {
        "round": number + 1,
        "rounds": rounds,
        "baseline": baseline_data(standings.baseline),
        "candidates": [candidate_data(one) for one in standings.candidates],
    }


def baseline_data(baseline: BaselineStanding) -> dict[str, Any]:
    data = asdict(baseline)
    data["profile"] = {"functions": data["profile"], "problem": data.pop("profile_problem")}
    return {**data, "tests": tests_data(baseline.tests), "seconds": dict(baseline.seconds)}


def candidate_data(one: CandidateStanding) -> dict[str, Any]:
    data = asdict(one)
    blocks = 0 if one.speedup is None else one.speedup.blocks
    return {
        **data,
        "status": one.status.value,
        "tests": tests_data(one.tests),
        "speedup": speedup_data(one.speedup),
        "cases": {name: speedup_data(case) for name, case in one.cases.items()},
        "seconds": dict(one.seconds),
        "round": None if one.round is None else one.round + 1,
        "blocks": blocks,
    }


def tests_data(counts: TestCounts | None) -> dict[str, int] | None:
    return None if counts is None else asdict(counts)


def speedup_data(speedup: Speedup | None) -> dict[str, float] | None:
    """None without an interval: a single block has none, and JSON no infinity."""
    if speedup is None or not is_bounded(speedup):
        return None
    return {"estimate": speedup.estimate, "low": speedup.low, "high": speedup.high}


def is_bounded(speedup: Speedup) -> bool:
    """Whether it has an interval."""
    return speedup.low > 0 and math.isfinite(speedup.high) and math.isfinite(speedup.estimate)
