"""The keys of the JSON report: its schema is generated from these classes, and it is read back with
them.

Fields that a report must have have no default. The classes are minimal, since every command that
reports loads them. `summary`, `compare` and `gate` define how the figures are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Annotated, Any, ClassVar

from paraval.codec import Bounds, Digits
from paraval.dataclass import dataclass
from paraval.records import (
    Activity,
    CasesRun,
    Change,
    Exchange,
    ModelsRun,
    Outcome,
    RunNotice,
    Step,
    StopRule,
    Variant,
)
from paraval.report.compare.best_variant import BestVariant
from paraval.report.compare.comparison import Comparison
from paraval.report.gate import DropVerdict, Gate, RegressionVerdict
from paraval.report.judge_agreement import GraderAgreement
from paraval.report.pairwise import PairwiseReport
from paraval.report.summary.tally import (
    Costs,
    Count,
    Dollars,
    GroupTally,
    Seconds,
    Summary,
    Usage,
    VariantSummary,
)

SCHEMA = 1
_DUST = 1e-9
"""Rounding errors of weighted means."""

Share = Annotated[float, Bounds(-_DUST, 1 + _DUST)]


@dataclass(kw_only=True, repr=False, eq=False)
class BaselineEntry:
    """The run's baseline."""

    name: str
    """A run's id, or a path."""
    max_drop: Share | None = None
    max_regressed: Count | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class RunEntry:
    """The run."""

    id: str
    suite: str
    started_at: str | None = None
    """UTC: `2026-01-31T12:00:00.000Z`."""
    ended_at: str | None = None
    wall_s: Seconds | None = None
    parallel: Count = 0
    resumed: Count = 0
    interrupted: bool = False
    held_back: bool = False
    """Trials were postponed on purpose."""
    running: bool = False
    """The run was in progress when this was written, so the gate is not decided yet."""
    planned: Count = 0
    seed: int | None = None
    fail_under: float | None = None
    dropped_cost_usd: Annotated[float, Digits(9)] | None = None
    """Spending, judges included, on trials that changed or left the suite since: it counts against
    the budget, but not in the summary."""
    dropped_cost_unknown: bool = False
    stop: StopRule | None = None
    """It may stop early, and only anytime-valid claims are made about it."""
    holdout: float | None = None
    """The share of cases that are kept to measure the best variant."""
    baseline: BaselineEntry | None = None
    cases: CasesRun | None = None
    """Only some cases of the suite were selected."""
    models: ModelsRun | None = None
    """Only these models of the registry ran, because none was chosen."""
    regraded_from: str | None = None
    """The run whose answers it graded again, with other graders."""
    notices: tuple[RunNotice, ...] = ()
    """What to know about the run, and what held it back: `waited_s` is for how long."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Part of the suite -> digest: shows what changed between two runs of a suite."""


# ---- trials


@dataclass(kw_only=True, repr=False, eq=False)
class SpendEntry:
    """Usage and cost of model calls over all attempts, in US dollars."""

    usage: Usage = field(default_factory=dict)
    """Of cached answers, too."""
    cost_usd: Dollars | None = None
    """The known cost, with cached answers at what they cost when first requested; null if
    unknown."""
    spent_usd: Dollars | None = None
    """What this run itself is known to have spent: without cached answers."""
    calls: Count | None = 0
    """Null if an agent does not report them."""
    cached: Count = 0
    """Answers that came from the cache."""
    cached_s: Seconds | None = None
    """How long these took when first requested; null if unknown."""
    cost_unknown: bool = False
    """`cost_usd` is a lower bound: a call's model has no price, reported no tokens, or never
    ended."""


@dataclass(kw_only=True, repr=False, eq=False)
class GradeEntry:
    """A grader's verdict."""

    grader: str = ""
    score: float | None = None
    passed: bool = False
    reason: str = ""
    agreement: float | None = None
    """For a judge with several votes: the share of votes that agree with the verdict."""
    judge: str | None = None
    """For a judge: its model's name in the registry."""


@dataclass(kw_only=True, repr=False, eq=False)
class ErrorEntry:
    """Why an attempt has no verdict."""

    kind: Outcome
    message: str = ""
    lasting: bool = False
    """Another attempt would end the same way."""
    lost: bool = False
    """The node that it ran on was lost: it does not count against the trial."""


@dataclass(kw_only=True, repr=False, eq=False)
class DeedsEntry:
    """What the deciding attempt did."""

    activity: Activity | None = None
    """For agents."""
    change: Change | None = None
    """For attempts with a workspace. If `unknown` gives a reason, the numbers are lower bounds."""
    cpu_s: Seconds | None = None
    memory_bytes: int | None = None
    node: str | None = None
    """The node of a cluster that it ran on; null: the machine of the run."""


@dataclass(kw_only=True, repr=False, eq=False)
class TrialEntry:
    """One case in one variant, once; its spending is its target's."""

    index: Count
    case: str
    variant: Variant
    repeat: Count
    outcome: Outcome
    tags: tuple[str, ...] = ()
    """Of its case; so are `input`, `expect` and `metadata`. Empty or null if the cases were not
    kept."""
    input: Any = None
    expect: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    passed: bool | None = None
    """Null for a trial without a verdict."""
    score: Share | None = None
    """The mean over the graders that judged: comparable only with a score by the same graders. One
    that was skipped, such as a judge after a failure, is missing and not 0."""
    grades: tuple[GradeEntry, ...] = ()
    reason: str = ""
    """Why it did not pass; empty if it did."""
    attempts: Count = 1
    total_s: Annotated[float, Digits(6), Bounds()] | None = None
    """Of all its attempts, graders included, so that trials add up to `serial_s`."""
    target_s: Annotated[float, Digits(6), Bounds()] | None = None
    """The target's part of `total_s`, without graders; null if unknown: `total_s` counts then.
    Medians and comparisons are of this and `cached_s` together."""
    queued_s: Seconds | None = None
    usage: Usage = field(default_factory=dict)
    tokens: float | None = None
    """Input and output tokens together; null if unknown."""
    cost_usd: Dollars | None = None
    """This and what follows: as in `judging`."""
    spent_usd: Dollars | None = None
    calls: Count | None = 0
    cached: Count = 0
    cached_s: Seconds | None = None
    cost_unknown: bool = False
    judging: SpendEntry | None = None
    """Spending on judges."""
    retries: Mapping[Outcome, Count] = field(default_factory=dict)
    """Retried attempts, by outcome."""
    retry_errors: tuple[ErrorEntry, ...] = ()
    unended: Count = 0
    """Attempts whose engine was stopped."""
    output: str | None = None
    steps: tuple[Step, ...] = ()
    """A model's tool calls, with their results if paraval ran the tools; empty without any."""
    exchanges: tuple[Exchange, ...] = ()
    """What the target, and then judges, were sent and replied, in the deciding attempt. Only with
    `--full`; otherwise empty."""
    error: ErrorEntry | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder."""
    exit_code: int | None = None
    notes: tuple[str, ...] = ()
    activity: Activity | None = None
    """For agents."""
    change: Change | None = None
    """For attempts with a workspace. If `unknown` gives a reason, the numbers are lower bounds."""
    cpu_s: Seconds | None = None
    memory_bytes: int | None = None
    node: str | None = None
    """The node of a cluster that the deciding attempt ran on; null: the machine of the run."""


# ---- conclusions


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEntry(Comparison):
    """One value of an axis against another, the other axes equal: subject minus reference, in
    shares (0.12: twelve points), over cases that were judged on both sides."""

    sentence: str


@dataclass(kw_only=True, repr=False, eq=False)
class ReportDocument:
    """The JSON report of a run. A number that JSON cannot represent (NaN, infinity) is null."""

    __pydantic_config__: ClassVar[Any] = {
        "use_attribute_docstrings": True,
        "json_schema_serialization_defaults_required": True,
    }
    schema: Count
    """The version of this schema."""
    run: RunEntry
    summary: Summary
    comparisons: tuple[ComparisonEntry, ...]
    """Comparisons of the run's own variants."""
    best_variant: BestVariant | None
    """Null for fewer than three variants or ten cases, and for runs that may stop early."""
    pairwise: tuple[PairwiseReport, ...]
    """Which of two variants' answers judges prefer; empty if none was asked."""
    judges: tuple[GraderAgreement, ...]
    """How far graders agree with people's labels; only graders with labels."""
    gate: Gate
    trials: tuple[TrialEntry, ...]
    """In plan order."""


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the report; a line of .jsonl is one of its `trials`."""
    # Slow to load, and only used here.
    from pydantic import TypeAdapter  # noqa: PLC0415 - see above
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - see above

    class Generator(GenerateJsonSchema):
        def float_schema(self, schema: Any) -> dict[str, Any]:
            return super().float_schema(schema) | {"type": ["number", "null"]}

        def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ARG002 - its signature
            return not field.get("serialization_exclude", False)

    adapter = TypeAdapter(ReportDocument)
    made = adapter.json_schema(mode="serialization", schema_generator=Generator)
    verdicts = (Gate, DropVerdict, RegressionVerdict)
    for kind in (ComparisonEntry, Costs, *verdicts, GroupTally, Summary, VariantSummary):
        entry = made["$defs"][kind.__name__]
        for name in [one.name for one in fields(kind) if not one.metadata.get("told", True)]:
            del entry["properties"][name]
            if name in entry["required"]:
                entry["required"].remove(name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
