"""The nouns that cross from stage to stage: frozen, keyword-only, without live handles.

Each can be pickled, stored, and sent to another machine. What they mean is told in the order of a
run: what is asked (Case, Target, Trial, Plan), what happened (AttemptResult, TrialResult, RunInfo),
and what an onlooker is told meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Scalar = str | int | float | bool
Variant = Mapping[str, Scalar]


def value_text(value: Scalar) -> str:
    """An axis value as suites write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Outcome(StrEnum):
    """How a trial ended. An error is never a wrong answer: only PASSED and FAILED are judged."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    CRASHED = "crashed"
    INVALID_OUTPUT = "invalid_output"
    GRADER_ERROR = "grader_error"
    INFRA_ERROR = "infra_error"
    SKIPPED = "skipped"

    @property
    def is_judged(self) -> bool:
        return self is Outcome.PASSED or self is Outcome.FAILED

    @property
    def is_error(self) -> bool:
        return not self.is_judged and self is not Outcome.SKIPPED


# ---- what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input with what is expected of it."""

    id: str
    input: Any = None
    """Text, or a mapping; None where there is none, which is not the same as an empty text."""
    expect: Any = None
    """Whatever the graders use."""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


class OutputForm(StrEnum):
    """Where a command's answer is read from."""

    STDOUT = "stdout"
    JSON = "json"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """A program to start. Strings hold templates, filled in for each attempt."""

    command: tuple[str, ...]
    """The arguments; with `shell`, a single line for /bin/sh."""
    shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    cwd: str
    """An absolute folder."""
    stdin: str | None = None
    output: OutputForm = OutputForm.STDOUT
    output_file: str | None = None
    timeout: float | None = None
    grace: float = 5.0
    any_exit_code: bool = False
    """True where a grader judges the exit code, so that another one than 0 is no crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """A Python function, by name."""

    reference: str
    """`module:function`."""
    folder: str
    """Where modules are looked for first: the suite's own folder."""
    isolate: bool = False
    """True: each attempt in a worker process of its own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """For isolated ones only."""
    pass_env: tuple[str, ...] = ()
    timeout: float | None = None
    grace: float = 5.0


Target = CommandTarget | FunctionTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderSpec:
    """A grader as the suite asks for it."""

    name: str
    """Shown in reports; unique in a suite."""
    kind: str
    """equals, contains, regex, json, number, exit_code, python, command."""
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float | None = None
    folder: str = "."
    """The suite's folder: where commands run and modules are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """How an output is judged: all graders must pass, or, weighted, their mean reach `pass_at`."""

    graders: tuple[GraderSpec, ...] = ()
    pass_at: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A case in a variant, once: the unit of a plan."""

    index: int
    key: str
    """A hash of all that decides its result."""
    case: Case
    variant: Variant
    repeat: int
    """From 1."""
    target: Target
    needs: tuple[str, ...] = ()
    """The named limits it takes one of each, beyond the run's own; sorted."""

    @property
    def label(self) -> str:
        """`hello · small · with-tool · #2`; the repeat only from the second on."""
        parts = [self.case.id, *map(value_text, self.variant.values())]
        if self.repeat > 1:
            parts.append(f"#{self.repeat}")
        return " · ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Which ends are tried again, and how often. Rate limits don't count as attempts."""

    attempts: int = 3
    on: frozenset[Outcome] = frozenset({Outcome.INFRA_ERROR, Outcome.RATE_LIMITED})
    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0
    refusals: int = 20
    """Rate-limit refusals of one trial before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Capacities that attempts share."""

    parallel: int = 4
    named: Mapping[str, int] = field(default_factory=dict)
    """`mode=with-tool` -> 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will run, in order, and by which rules."""

    name: str
    source: str | None
    """The suite's file; None for a suite made in Python."""
    axes: Mapping[str, tuple[Scalar, ...]]
    variants: tuple[Variant, ...]
    """Those that have trials, in plan order."""
    trials: tuple[Trial, ...]
    grading: Grading = field(default_factory=Grading)
    limits: Limits = field(default_factory=Limits)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    fail_under: float | None = None
    """None: every trial must pass."""
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The filters and overrides it was made with, so that a resume plans the same."""


# ---- what happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a target answered."""

    text: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grader's verdict."""

    score: float
    """From 0 to 1."""
    passed: bool
    reason: str = ""
    grader: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial has no verdict."""

    kind: Outcome
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One execution of a trial, about to happen."""

    trial: Trial
    number: int
    """From 1, counted over the whole run, resumes included."""
    folder: str
    """Its own folder, absolute; made when first needed."""

    @property
    def id(self) -> tuple[int, int]:
        return (self.trial.index, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """How one attempt ended."""

    outcome: Outcome
    output: Output | None = None
    grades: tuple[Grade, ...] = ()
    score: float | None = None
    error: Failure | None = None
    duration_s: float = 0.0
    """Target and graders."""
    exit_code: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder: stdout, stderr, files."""
    notes: tuple[str, ...] = ()
    """What a reader should know: leftover processes ended, output cut, a thread left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt as the store remembers it."""

    index: int
    case_id: str
    variant: Variant
    repeat: int
    number: int
    started_at: float
    """Seconds since the epoch."""
    folder: str
    """Its own, relative to the run's."""
    result: AttemptResult | None
    """None: it never ended (the engine died, or it still runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How a trial ended, as reports show it."""

    index: int
    case_id: str
    variant: Variant
    repeat: int
    result: AttemptResult
    """Of the attempt that decided."""
    attempts: int
    queued_s: float | None = None
    total_s: float = 0.0
    """The sum of its attempts' durations."""

    @property
    def outcome(self) -> Outcome:
        return self.result.outcome


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
    """True: the last engine stopped before every trial had a result."""
    fail_under: float | None
    done: int = 0
    """Trials that have a result."""
    running: bool = False
    """True: an engine works on it at this moment."""


# ---- what an onlooker is told meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    run: RunInfo
    total: int
    already_done: int


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
class Notice:
    """Something a person should read now."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    run: RunInfo


Happening = RunStarted | AttemptStarted | AttemptEnded | TrialEnded | Notice | RunEnded
