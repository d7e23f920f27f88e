"""The plan of a run: its cases, its trials, and its rules."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import starmap
from typing import Any

from paraval.dataclass import dataclass, quick_init
from paraval.records.outcomes import Outcome
from paraval.records.targets import AccountLimits, Model, Scalar, Target, Variant, choice_label

WORKSPACE_NEED = "workspace"
"""What every trial of a plan with workspaces needs: without any workspace, none can run."""


def lock_need(name: str) -> str:
    """The name of a lock among a trial's needs."""
    return f"lock:{name}"


# ---- where


class WorkspaceKind(StrEnum):
    NONE = "none"
    """Attempts run where their target specifies."""
    FOLDER = "folder"
    """A fresh folder for each attempt, empty or a copy of a template."""
    GIT = "git"
    """A worktree for each attempt, from a pool."""
    IMAGE = "image"
    """The files of a container's image, where the image starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The container that an attempt and its graders run in."""

    image: str = ""
    """Its name; empty: it is built from `build`."""
    build: str | None = None
    """Absolute: a folder with a Dockerfile."""
    tree: str | None = None
    """The hash of its contents, when the plan was made."""
    engine: str = "auto"
    """docker, podman or apptainer; auto: the first that works here."""
    network: bool = True
    """True: this machine's network; False: none."""
    cpus: float | None = None
    memory: int | None = None
    """In bytes."""
    path: str | None = None
    """Where the workspace is mounted; None: at its own path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenFiles:
    """Files that no attempt can read, put into its workspace before it is graded."""

    source: str
    """Absolute: a file or a folder. A `.patch` or `.diff` is applied instead of copied."""
    to: str
    """Where it is put, relative to where attempts start; unused for a patch, whose paths are
    relative to the top."""
    digest: str = ""
    """Of its contents, when the plan was made."""

    @property
    def is_patch(self) -> bool:
        return self.source.endswith((".patch", ".diff"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where attempts run, as the suite specifies."""

    kind: WorkspaceKind = WorkspaceKind.NONE
    source: str | None = None
    """Absolute: the template's folder, or the top of the repository's working tree (of a bare
    repository, itself). None: an empty folder."""
    start: str = "."
    """Where attempts start, relative to the top: the suite may name a subfolder."""
    ref: str = "HEAD"
    commit: str | None = None
    """The commit that `ref` resolved to when the plan was made."""
    uncommitted: bool = False
    """True: the working tree as it is, without ignored files."""
    tree: str | None = None
    """The hash of the tree that attempts start from; for a template folder, of its contents."""
    setup: tuple[str, ...] = ()
    """A command that runs once in each worktree. Ignored files that it leaves are kept."""
    setup_timeout: float = 600.0
    sandbox: bool = False
    readable: tuple[str, ...] = ()
    """Absolute paths readable in a sandbox, besides those that commands name."""
    container: Container | None = None
    hidden: tuple[HiddenFiles, ...] = ()


EARLY_STOP = "early stop"
"""Prefix of the skip reason for trials that an early stop made unnecessary."""
CANCELED = "canceled"
"""The skip reason for trials that a user canceled: no resume runs them."""


# ---- what is evaluated


@quick_init
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input with its expectation."""

    id: str
    input: Any = None
    """Text or a mapping; None means no input, which differs from empty text."""
    expect: Any = None
    """Anything the graders use."""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locks: tuple[str, ...] = ()
    """Names: no two cases that share one run concurrently."""
    exclusive: bool = False
    """True: nothing else runs while it does."""
    graders: Any = ()
    """Its own graders, as in a suite: a list, in addition to the suite's, or `{"replace": [...]}`.
    A plan has them in its `grading`."""
    description: str | None = None
    """For readers; not part of a trial's key."""
    workspace: Mapping[str, Any] | None = None
    """Keys of the suite's workspace that differ for this case. A plan has them in its trials."""
    timeout: float | None = None
    """In seconds, instead of its target's."""
    hidden: Any = ()
    """Its own hidden files, as in a suite, in addition to the suite's. A plan has them in its
    workspaces."""


LabelKey = tuple[str, str, str]
"""Grader, case and digest of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A person's verdict on an answer, to check a grader by."""

    grader: str
    case_id: str
    answer: str
    """What the person saw: see `answer_digest`."""
    passed: bool | None
    """None: taken back."""

    @property
    def key(self) -> LabelKey:
        return (self.grader, self.case_id, self.answer)


def answer_digest(case: Case, answer: Any) -> str:
    """A hash of what a person judges: the case's input and expectation, and the answer."""
    seen = json.dumps([case.input, case.expect, answer], sort_keys=True, default=repr)
    return hashlib.blake2b(seen.encode(), digest_size=16).hexdigest()


class CacheUse(StrEnum):
    """Whether stored answers are reused."""

    REUSE = "reuse"
    REFRESH = "refresh"
    """Call again, and store the new answers."""
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A run's spending limit."""

    usd: float
    per_attempt_usd: float | None = None
    """Assumed cost of an attempt when nothing better is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When a comparison of variants may end before its plan is complete."""

    confidence: float = 0.95
    """Confidence that a decision needs, valid however often it is checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a run is compared with."""

    name: str
    """A run's id, or the absolute path of a report or of a run's folder."""
    max_drop: float | None = None
    """How far the pass rate may drop, as a share; None: not checked."""
    max_regressed: int | None = None
    """How many cases that passed there may fail now; None: not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesRun:
    """How many of a suite's cases run, if only a part was selected."""

    selected: int
    offered: int
    by: str
    """The options that selected them."""

    @property
    def share(self) -> str:
        return f"{self.selected:,} of {self.offered:,} cases"

    @property
    def sentence(self) -> str:
        """`10 of 200 cases: --limit 10`."""
        return f"{self.share}: {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsRun:
    """Which models of a registry run, if it has more and nobody chose."""

    names: tuple[str, ...]
    offered: int
    """How many `--models all` would run."""

    @property
    def sentence(self) -> str:
        """`1 of 4 models: small; --models all runs all`."""
        names = ", ".join(self.names)
        return f"{len(self.names):,} of {self.offered:,} models: {names}; --models all runs all"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderSpec:
    """A grader as the suite specifies it."""

    name: str
    """Shown in reports; unique in a suite."""
    kind: str
    """contains, json, python, command, judge and so on; not, any and all combine other graders."""
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float | None = None
    folder: str = "."
    """The suite's folder: where commands run and modules are imported from."""
    model: Model | None = None
    """For a judge, or for embeddings: the model that is called."""
    parts: tuple[GraderSpec, ...] = ()
    """For `not`, `any` and `all`: the graders that it combines."""
    key_name: str = ""
    """Its name in trial keys, if that differs: old keys must survive a better default name."""

    def flat(self) -> Iterator[GraderSpec]:
        """The grader and all parts of it."""
        yield self
        for part in self.parts:
            yield from part.flat()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """How an output is judged: all graders must pass, or their weighted mean must reach
    `pass_at`."""

    graders: tuple[GraderSpec, ...] = ()
    pass_at: float = 0.5
    by_case: Mapping[str, tuple[GraderSpec, ...]] = field(default_factory=dict)
    """Case id -> all graders of a case that has its own."""

    def of(self, case_id: str) -> tuple[GraderSpec, ...]:
        """The graders of a case."""
        return self.by_case.get(case_id, self.graders) if self.by_case else self.graders

    @property
    def every(self) -> tuple[GraderSpec, ...]:
        """All graders and their parts, each once."""
        tops = (self.graders, *self.by_case.values())
        return tuple({id(one): one for top in tops for spec in top for one in spec.flat()}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One case in one variant, once: the unit of a plan."""

    index: int
    key: str
    """A hash of everything that determines its result."""
    case: Case
    variant: Variant
    repeat: int
    """From 1."""
    target: Target
    needs: tuple[str, ...] = ()
    """The named limits of which it takes one each, besides the run's own; sorted. They include the
    account of every model that it calls, the model, and each of its locks: `account:team-a`,
    `model:haiku`, `lock:db`."""
    exclusive: bool = False
    """True: it runs while no other trial does."""
    workspace: Workspace | None = None
    """Its own; None: the plan's."""

    @property
    def label(self) -> str:
        """`hello · small · with-tool · #2`; the repeat only from the second on."""
        parts = [self.case.id, *starmap(choice_label, self.variant.items())]
        if self.repeat > 1:
            parts.append(f"#{self.repeat}")
        return " · ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Which outcomes are retried, and how often. Rate limits don't count as attempts."""

    attempts: int = 3
    on: frozenset[Outcome] = frozenset({Outcome.INFRA_ERROR, Outcome.RATE_LIMITED})
    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0
    refusals: int = 20
    """Rate-limit refusals of one trial before it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Capacities that attempts share."""

    parallel: int = 4
    auto: bool = False
    """True: as many as the machine can handle, up to `parallel`."""
    named: Mapping[str, int] = field(default_factory=dict)
    """`mode=with-tool` -> 2, `lock:db` -> 1."""
    accounts: Mapping[str, AccountLimits] = field(default_factory=dict)
    """`account:team-a` -> its known limits; includes every account that trials need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will run, in order, and the rules."""

    name: str
    source: str | None
    """The suite's file; None for a suite made in Python."""
    axes: Mapping[str, tuple[Scalar, ...]]
    variants: tuple[Variant, ...]
    """The cases that have trials, in plan order."""
    trials: tuple[Trial, ...]
    grading: Grading = field(default_factory=Grading)
    limits: Limits = field(default_factory=Limits)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    fail_under: float | None = None
    """None: no pass rate is required."""
    budget: Budget | None = None
    cache: CacheUse = CacheUse.REUSE
    cache_bytes: int = 2_000_000_000
    """How large the cache of answers may become."""
    workspace: Workspace = field(default_factory=Workspace)
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The filters and overrides it was made with, so that a resume plans the same."""
    stop: StopRule | None = None
    """None: every trial runs."""
    holdout: float | None = None
    """The share of cases that are kept to measure the best variant; None: none."""
    max_drop: float | None = None
    """How far the pass rate may drop below a baseline's; None: not checked."""
    max_regressed: int | None = None
    """How many cases that passed in a baseline may fail now; None: not checked."""
    recheck: int = 0
    """How often what got worse than the baseline runs again before it counts."""
    baseline: Baseline | None = None
    """The baseline; set when a run begins."""
    cases: CasesRun | None = None
    """None: all cases of the suite run."""
    models: ModelsRun | None = None
    """None: all models run, or those that were chosen."""
    send: tuple[str, ...] = ()
    """Paths and globs, relative to the suite's folder, of files that the nodes of a cluster get;
    empty: all that git does not ignore."""
    regraded_from: str | None = None
    """The run whose stored answers are graded again; None: targets are called."""
    notices: tuple[str, ...] = ()
    """Sentences that its report repeats: what to know about the answers of a regrade."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Part (cases, target, graders, ...) -> digest: shows what changed between two runs of a
    suite."""
