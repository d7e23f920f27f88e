"""The plan of a run: its cases, its trials, and the rules that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paraval.records.outcomes import Outcome
from paraval.records.targets import AccountLimits, Model, Scalar, Target, Variant, value_text

WORKSPACE_NEED = "workspace"
"""What every trial of a plan with workspaces needs: without any, none of them can run."""


def lock_need(name: str) -> str:
    """What a lock is called among a trial's needs."""
    return f"lock:{name}"


# ---- where


class WorkspaceKind(StrEnum):
    NONE = "none"
    """Attempts run where their target says."""
    FOLDER = "folder"
    """A fresh folder each, empty or a copy of a template."""
    GIT = "git"
    """A worktree each, from a pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where the attempts of a plan run, as the suite asks for it."""

    kind: WorkspaceKind = WorkspaceKind.NONE
    source: str | None = None
    """Absolute: the template's folder, or the top of the repository's working tree (of a bare
    repository, itself). None: an empty folder."""
    start: str = "."
    """Where in it attempts begin, relative to its top: the suite may name a folder within."""
    ref: str = "HEAD"
    commit: str | None = None
    """What `ref` stood for when the plan was made."""
    uncommitted: bool = False
    """True: the working tree as it is, what git ignores left out."""
    tree: str | None = None
    """The hash of the tree that attempts begin with; of a folder's template, of its contents."""
    setup: tuple[str, ...] = ()
    """A command, run once in each worktree. What it leaves that git ignores is kept."""
    setup_timeout: float = 600.0
    sandbox: bool = False
    readable: tuple[str, ...] = ()
    """Absolute: what can be read in a sandbox besides what commands name."""


EARLY_STOP = "early stop"
"""How the reason of a trial begins that was left out since all was decided."""


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
    locks: tuple[str, ...] = ()
    """Names: no two cases with the same one run at once."""
    exclusive: bool = False
    """True: while it runs, nothing else does."""


class CacheUse(StrEnum):
    """Whether answers that are in the store are used again."""

    REUSE = "reuse"
    REFRESH = "refresh"
    """Ask again, and keep the new answers."""
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may spend."""

    usd: float
    per_attempt_usd: float | None = None
    """What an attempt is thought to cost where nothing else tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When a comparison of variants is over before its plan is."""

    confidence: float = 0.95
    """How sure a decision must be, however often it is looked at meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a run is held against."""

    name: str
    """A run's id, or the absolute path of a report or of a run's folder."""
    max_drop: float
    """By how much the pass rate may be lower, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderSpec:
    """A grader as the suite asks for it."""

    name: str
    """Shown in reports; unique in a suite."""
    kind: str
    """equals, contains, regex, json, number, exit_code, python, command, judge, mentions, diff."""
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float | None = None
    folder: str = "."
    """The suite's folder: where commands run and modules are looked for."""
    model: Model | None = None
    """Of a judge: who judges."""


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
    """The named limits it takes one of each, beyond the run's own; sorted. The account of every
    model that it calls is one of them, and so is the model: `account:team-a`, `model:haiku`; and
    each of its locks: `lock:db`."""
    exclusive: bool = False
    """True: it runs with nothing else on the machine, as far as that is ours."""

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
    auto: bool = False
    """True: as many as the machine can carry, up to `parallel`."""
    named: Mapping[str, int] = field(default_factory=dict)
    """`mode=with-tool` -> 2, `lock:db` -> 1."""
    accounts: Mapping[str, AccountLimits] = field(default_factory=dict)
    """`account:team-a` -> what is known of it; every account that trials need is there."""


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
    budget: Budget | None = None
    cache: CacheUse = CacheUse.REUSE
    workspace: Workspace = field(default_factory=Workspace)
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The filters and overrides it was made with, so that a resume plans the same."""
    stop: StopRule | None = None
    """None: every trial runs."""
    max_drop: float | None = None
    """How far the pass rate may fall below a baseline's, where there is one; None: not asked."""
    baseline: Baseline | None = None
    """What it is held against: set when a run begins."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What it is made of (cases, target, graders, ...) -> a digest: tells what changed between two
    runs of a suite."""
