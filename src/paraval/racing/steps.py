"""The steps of a race, and how they become trials of the engine and back.

A step's trial has the candidate's name as its case, and the kind of the step as its variant. Its
key contains everything that affects the result, so a resume finds each result in the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.racing.findings import Proposal, StepFinding
from paraval.racing.request import BASELINE_TIMEOUT_S, RaceRequest
from paraval.records import (
    AttemptResult,
    Case,
    ChatTarget,
    CommandTarget,
    Home,
    Message,
    Model,
    Outcome,
    Trial,
    TrialResult,
    account_need,
)
from paraval.templates.template import TemplateFields, fill

BASELINE = "baseline"
"""The unmodified repository's name among the candidates; reserved."""
TIME_NEED = "limit:time"
"""Needed by all steps: none starts after the time limit."""
ROUNDS_NEED = "limit:rounds"
"""Needed by measurements of a round, which must leave time for the finals."""
TESTS = "limit:tests"
"""Limited to the requested number of parallel tests ..."""
PROPOSALS = "limit:proposals"
"""... and for calls of `propose`, which wait for models and take no test's place."""
STEP = "step"
"""The variant axis of a race's plan."""
FINDING = "race"
"""Key in an output's metadata for the finding ..."""
ELAPSED = "elapsed_s"
"""... for the race time elapsed ..."""
MEASURED_ON = "measured_on"
"""... and for the machine that measured, in a race with a cluster."""


class StepKind(StrEnum):
    """The kinds of steps, in the order in which a candidate gets to them."""

    PROPOSE = "propose"
    STAGE = "stage"
    """Turn a proposal into a git tree, or find that it does not apply."""
    TEST = "test"
    CANARY = "canary"
    """Run the tests with deliberately broken code: the baseline's before candidates are tested.
    For a candidate that may win: with code that reports which added lines run."""
    CALIBRATE = "calibrate"
    """Run the baseline's benchmark to see that it works and how long it takes."""
    SCREEN = "screen"
    """Measure a block of a round."""
    FINAL = "final"
    """Measure a block of the finals."""
    PROFILE = "profile"

    @property
    def is_measurement(self) -> bool:
        return self in (StepKind.CALIBRATE, StepKind.SCREEN, StepKind.FINAL, StepKind.PROFILE)

    @property
    def is_test(self) -> bool:
        return self in (StepKind.TEST, StepKind.CANARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The state of the repository that every candidate changes."""

    tree: str
    start: str = "."
    """The folder in it where commands run."""
    commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One unit of work in a race."""

    kind: StepKind
    candidate: str = BASELINE
    number: int = 1
    """Counts steps of one kind for one candidate from 1: blocks, the baseline's test runs, the
    calls of a round's `propose`."""
    round: int = 0
    """Of propose."""
    tree: str | None = None
    """The candidate's tree; None for the baseline, and for stage and propose."""
    proposal: Proposal | None = None
    """Only for stage."""
    files: tuple[str, ...] = ()
    """For canary: the files that may be broken; for profile: those whose functions are timed."""
    details: Mapping[str, Any] | None = None
    """For propose: the standings, as JSON data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """How a step ended."""

    step: Step
    outcome: Outcome
    finding: StepFinding
    reason: str = ""
    """Why it found nothing, if so."""
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    cost_usd: float = 0.0
    """What a call of `propose` cost."""
    is_priced: bool = True
    """Whether that is its whole cost."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder."""
    elapsed_s: float = 0.0
    """Race time by then, over all engines."""


def trial_of(step: Step, index: int, request: RaceRequest, base: Base) -> Trial:
    """The step as a trial of a plan."""
    target = _target_of(step, request)
    tree = None if step.tree is None else {"tree": step.tree}
    is_asked = isinstance(target, ChatTarget)
    return Trial(
        index=index,
        key=_key(step, target, request, base),
        case=Case(
            id=step.candidate,
            input=_prompt(step, request) if is_asked else tree,
            metadata={} if step.proposal is None else {"note": step.proposal.note[:1000]},
        ),
        variant={STEP: step.kind.value},
        repeat=step.number,
        target=target,
        needs=tuple(_needs_of(step, request)),
        exclusive=step.kind.is_measurement,
    )


def _needs_of(step: Step, request: RaceRequest) -> list[str]:
    """Sorted, as the scheduler wants them."""
    needs = [TIME_NEED]
    if step.kind is StepKind.PROPOSE:
        needs.append(PROPOSALS)
        if (model := model_of(step, request)) is not None:
            needs.append(account_need(model.account))
    elif step.kind.is_test:
        needs.append(TESTS)
    elif step.kind is StepKind.SCREEN:
        needs.append(ROUNDS_NEED)
    return sorted(needs)


# ---- models that propose


def model_of(step: Step, request: RaceRequest) -> Model | None:
    """The model that a step calls; None: it calls none."""
    models = request.proposing_models()
    if step.kind is not StepKind.PROPOSE or request.propose is None or not models:
        return None
    return models[(step.number - 1) // request.propose.n]


def calls_of(request: RaceRequest) -> dict[int, str]:
    """The calls of a round, by number, and their names among the candidates."""
    models, spec = request.proposing_models(), request.propose
    if spec is None or not models:
        return {1: StepKind.PROPOSE.value}
    return {
        place * spec.n + attempt: f"{model.name}-{attempt}"
        for place, model in enumerate(models)
        for attempt in range(1, spec.n + 1)
    }


def _prompt(step: Step, request: RaceRequest) -> str:
    assert request.propose is not None
    attempt = (step.number - 1) % request.propose.n + 1
    extra = {"attempt": str(attempt + step.round * request.propose.n)}
    fields = TemplateFields(input=None, case_id="", repeat=step.number, folder="", extra=extra)
    return fill(request.prompt, fields)


# ---- results


def end_of(step: Step, result: TrialResult) -> StepEnd:
    """The end of a step, from its trial's result."""
    return StepEnd(
        step=step,
        outcome=result.outcome,
        finding=finding_of(result.result),
        reason="" if result.result.error is None else result.result.error.message,
        duration_s=result.result.duration_s,
        notes=result.result.notes,
        cost_usd=0.0 if result.spend is None else result.spend.known_usd,
        is_priced=result.spend is not None and result.spend.cost_usd is not None,
        artifacts=result.result.artifacts,
        elapsed_s=_elapsed_s(result.result),
    )


def finding_of(result: AttemptResult) -> StepFinding:
    if result.output is None or FINDING not in result.output.metadata:
        return StepFinding()
    try:
        return from_data(StepFinding, result.output.metadata[FINDING])
    except (TypeError, ValueError) as error:
        raise StoreError(f"the recorded finding of a race step is damaged: {error}") from error


def _elapsed_s(result: AttemptResult) -> float:
    elapsed = 0.0 if result.output is None else result.output.metadata.get(ELAPSED, 0.0)
    if not isinstance(elapsed, int | float):
        raise StoreError(f"the recorded time of a race step is damaged: {elapsed!r:.60}")
    return float(elapsed)


def _target_of(step: Step, request: RaceRequest) -> CommandTarget | ChatTarget:
    """The command that the step runs, empty if it runs none; or the model that it calls."""
    spec = request.propose
    if step.kind is StepKind.PROPOSE and spec is not None:
        if (model := model_of(step, request)) is not None:
            return ChatTarget(
                model=model,
                messages=(Message(role="user", content="{input}"),),
                temperature=spec.temperature,
                max_tokens=spec.max_tokens,
            )
        return CommandTarget(
            command=spec.command or (),
            cwd=request.folder,
            timeout=spec.timeout,
            pass_env=request.keys.pass_env,
            home=Home.MINE,
        )
    runs = request.test if step.kind.is_test else request.bench
    return CommandTarget(
        command=() if step.kind is StepKind.STAGE else runs.command,
        cwd=".",
        timeout=BASELINE_TIMEOUT_S if runs.timeout is None else runs.timeout,
        env=request.keys.env,
        pass_env=request.keys.pass_env,
        any_exit_code=True,
    )


def _key(step: Step, target: CommandTarget | ChatTarget, request: RaceRequest, base: Base) -> str:
    keys, proposal = request.keys, step.proposal
    parts: dict[str, Any] = {
        "kind": step.kind,
        "name": step.candidate,
        "base": base.tree,
        "start": base.start,
        "tree": step.tree,
        "number": step.number,
        "round": step.round,
        "content": None if proposal is None else proposal.content,
        "target": to_data(target),
        "prompt": _prompt(step, request) if isinstance(target, ChatTarget) else None,
        "setup": keys.setup,
        "sandbox": keys.sandbox,
    }
    if step.kind is StepKind.STAGE:
        parts |= {"protect": keys.protect}
    elif step.kind.is_test:
        parts |= {"compare": keys.compare}
    elif step.kind.is_measurement:
        parts |= {"metric": keys.bench.metric, "cpus": keys.bench.cpus, "files": step.files}
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
