"""What happens in a run, as observers are told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paraval.records.plan import Baseline, StopRule, Trial
from paraval.records.results import Attempt, AttemptResult, TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run in the store."""

    id: str
    suite: str
    source: str | None
    folder: str
    """Absolute."""
    trials: int
    parallel: int
    seed: int
    started_at: float
    ended_at: float | None
    """None: it has not come to an end (yet)."""
    wall_s: float
    """The time an engine worked on it, over all resumes."""
    resumed: int
    """How often."""
    interrupted: bool
    """True: the last engine stopped before every trial had a result, and not on purpose."""
    held_back: bool = False
    """True: the last engine left trials for later on purpose (budget spent, an account stopped)."""
    fail_under: float | None
    done: int = 0
    """Trials that have a result."""
    dropped_usd: float = 0.0
    """What was spent, judges included, on trials that changed or left the suite since: as far as
    it is known ..."""
    dropped_unknown: bool = False
    """... and whether some of it is not."""
    running: bool = False
    """True: an engine works on it at this moment."""
    stop: StopRule | None = None
    baseline: Baseline | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    """As in its plan."""


# ---- what an observer is told meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    run: RunInfo
    total: int
    already_done: int
    budget_usd: float | None = None
    spent_usd: float = 0.0
    """By earlier engines of the same run, as far as it is known ..."""
    spent_unknown: bool = False
    """... and whether some of it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt that decided nothing: it is tried again after `retry_in_s`."""

    attempt: Attempt
    result: AttemptResult
    retry_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A trial whose result is on disk."""

    trial: Trial
    result: TrialResult
    done: int
    total: int
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSkipped:
    """A trial that will not run now. A resume may run it, unless it was left out for good, as by an
    early stop: the reason tells."""

    trial: Trial
    reason: str
    last: AttemptResult | None = None
    """Of an attempt that just ended and decided nothing; None: it had not started now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should read now."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the machine lets run at once has changed; told where `limits.auto` is set."""

    at_once: int
    """How many may run now."""
    wanted: int
    """How many would run if nothing held them back."""
    held_by: str | None
    """memory, cpu, disk; None: nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    run: RunInfo


Happening = (
    RunStarted
    | AttemptStarted
    | AttemptEnded
    | TrialEnded
    | TrialSkipped
    | Notice
    | Capacity
    | RunEnded
)
