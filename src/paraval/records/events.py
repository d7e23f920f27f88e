"""Events of a run, as observers receive them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from paraval.dataclass import dataclass
from paraval.records.plan import Baseline, CasesRun, ModelsRun, StopRule, Trial
from paraval.records.results import Attempt, AttemptResult, TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run in the store."""

    id: str
    suite: str
    source: str | None
    folder: str
    """The run's folder; absolute."""
    trials: int
    parallel: int
    seed: int
    started_at: float
    ended_at: float | None
    """None: the run has not ended."""
    wall_s: float
    """Seconds that an engine worked on it, over all resumes."""
    resumed: int
    """How many engines worked on it."""
    interrupted: bool
    """True: the last engine stopped before every trial had a result, and not on purpose."""
    held_back: bool = False
    """True: the last engine postponed trials on purpose (budget spent, an account stopped)."""
    fail_under: float | None
    done: int = 0
    """Number of trials with a result."""
    dropped_usd: float = 0.0
    """Known spending, judges included, on trials that changed or left the suite since ..."""
    dropped_unknown: bool = False
    """... and whether some of it is unknown."""
    running: bool = False
    """True: an engine is working on it."""
    stop: StopRule | None = None
    baseline: Baseline | None = None
    cases: CasesRun | None = None
    models: ModelsRun | None = None
    holdout: float | None = None
    """The share of cases that are kept to measure the best variant; None: none."""
    regraded_from: str | None = None
    """The id of the run whose answers it graded again."""
    notices: tuple[RunNotice, ...] = ()
    """Those of its plan, and what held it back."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """As in its plan."""

    @property
    def state(self) -> str:
        """running, held_back, done, killed or interrupted."""
        if self.running:
            return "running"
        if self.held_back:
            return "held_back"
        # A race adds trials as it goes: it may have a result for each and not be finished.
        if self.done == self.trials and not self.interrupted:
            return "done"
        return "killed" if self.ended_at is None else "interrupted"


# ---- events for observers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    run: RunInfo
    total: int
    already_done: int
    budget_usd: float | None = None
    spent_usd: float = 0.0
    """Known spending by earlier engines of the same run ..."""
    spent_unknown: bool = False
    """... and whether some of it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt without a verdict: it is retried."""

    attempt: Attempt
    result: AttemptResult
    retry_in_s: float | None
    """At the earliest; None: as soon as the account that refused takes requests again."""


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
    """A trial that will not run now. A resume may run it, unless it was skipped for good, as by an
    early stop; see the reason."""

    trial: Trial
    reason: str
    last: AttemptResult | None = None
    """The attempt that just ended without a verdict; None: none had started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message that a person should read now."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Trials that could run, but for a limit, a refusal or the budget."""

    name: str
    """What they wait for: `model mid`, `account team-a`, `retry`."""
    why: str
    """`12 requests/s found (429)`."""
    trials: int
    waited_s: float = 0.0
    """For how long some have."""
    next_s: float | None = None
    """When the next of them may start; None: when a running attempt ends."""

    @property
    def sentence(self) -> str:
        """`model mid: 12 requests/s found (429), 31 trials wait, next in 3 s`."""
        wait = "1 trial waits" if self.trials == 1 else f"{self.trials:,} trials wait"
        sentence = f"{self.name}: {self.why}, {wait}"
        if self.next_s is None or self.next_s < 1.0:
            return sentence
        is_long = self.next_s >= 90.0
        when = f"{self.next_s / 60:.0f} min" if is_long else f"{math.ceil(self.next_s)} s"
        return f"{sentence}, next in {when}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """What holds trials back, if anything, has for some seconds, or nothing runs: the most trials
    first. Sent every second while it lasts, and once when it is over."""

    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNotice:
    """What to know about a run."""

    message: str
    waited_s: float | None = None
    """How long trials were held back by what it is about; None: it is about something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The number of attempts that the machine allows has changed; sent only with `limits.auto`."""

    at_once: int
    """How many attempts may run now."""
    wanted: int
    """How many would run if nothing limited them."""
    held_by: str | None
    """memory, cpu or disk; None: nothing limits them."""
    node: str | None = None
    """The node of the cluster that it is about; None: this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanged:
    """A node of the cluster joined the run, or left it."""

    node: str
    slots: int
    """How many attempts it may run in parallel; 0: it takes no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanged:
    """A user changed the limits of the run."""

    parallel: int
    auto: bool
    """True: `parallel` is the most that the machine is asked to handle."""
    budget_usd: float | None


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
    | HeldBack
    | Capacity
    | NodeChanged
    | RunChanged
    | RunEnded
)
