"""The steps of a race, and how they become trials of the engine and back.

A step's trial has the candidate's name as its case, and the kind of the step as its variant. Its
key contains everything that affects the result, and the candidate's name only if that matters: so
a resume finds each result, whatever the order of events.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.racing.findings import Proposal, StepFinding
from paraval.racing.request import BASELINE_TIMEOUT_S, ModelCandidates, RaceRequest
from paraval.records import (
    AttemptResult,
    Case,
    ChatTarget,
    CommandTarget,
    Home,
    Message,
    Outcome,
    Trial,
    TrialResult,
    account_need,
)
from paraval.templates.template import TemplateFields, fill

BASELINE = "baseline"
"""The unmodified repository's name among the candidates; reserved."""
TIME_NEED = "limit:time"
"""Needed by steps that must not start after the time limit."""
TESTS = "limit:tests"
"""Limited to the requested number of parallel tests ..."""
HOOKS = "limit:hooks"
"""... and for hooks, which wait for models and take no test's place."""
STEP = "step"
"""The variant axis of a race's plan."""
FINDING = "race"
"""Key in an output's metadata for the finding ..."""
ELAPSED = "elapsed_s"
"""... for the race time elapsed, so that a replay decides as the race did ..."""
SIGNATURE = "step"
"""... for the step's identity ..."""
MEASURED_ON = "measured_on"
"""... and for the machine that measured, in a race with a cluster."""


class StepKind(StrEnum):
    """The kinds of steps, in the order in which a candidate gets to them."""

    GENERATE = "generate"
    STAGE = "stage"
    """Turn a proposal into a git tree, or find that it does not apply."""
    TEST = "test"
    REPAIR = "repair"
    CANARY = "canary"
    """Run the tests with deliberately broken code: the baseline's before candidates are tested, a
    would-be winner's at the end."""
    CALIBRATE = "calibrate"
    """Run the baseline's benchmark to see that it works and how long it takes."""
    SCREEN = "screen"
    """Measure a block of a halving round."""
    REFINE = "refine"
    FINAL = "final"
    """Measure a block of the finals."""
    PROFILE = "profile"

    @property
    def is_exclusive(self) -> bool:
        return self in (StepKind.CALIBRATE, StepKind.SCREEN, StepKind.FINAL, StepKind.PROFILE)

    @property
    def is_test(self) -> bool:
        return self in (StepKind.TEST, StepKind.CANARY)

    @property
    def is_hook(self) -> bool:
        return self in (StepKind.GENERATE, StepKind.REPAIR, StepKind.REFINE)

    @property
    def is_timed(self) -> bool:
        """Whether the time limit is checked at the start: many are issued together and wait for
        their turn. Blocks are only issued if there is time for them."""
        return self not in (StepKind.SCREEN, StepKind.FINAL, StepKind.PROFILE)


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
    """Counts steps of one kind for one candidate from 1: blocks, the baseline's test runs."""
    tree: str | None = None
    """The candidate's tree; None for the baseline, and for stage and generate."""
    proposal: Proposal | None = None
    """Only for stage."""
    files: tuple[str, ...] = ()
    """For canary: the files that may be broken."""
    details: Mapping[str, Any] | None = None
    """For repair and refine: what the hook gets, as JSON data."""


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
    """The cost that a hook reported."""
    is_priced: bool = True
    """Whether that is its whole cost."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder."""
    elapsed_s: float = 0.0
    """Race time by then, over all engines."""


def trial_of(step: Step, index: int, request: RaceRequest, base: Base) -> Trial:
    """The step as a trial of a plan."""
    target = _target_of(step, request)
    asks = _asks_of(step, request)
    tree = {"tree": step.tree} if step.tree is not None else None
    return Trial(
        index=index,
        key=_key(step, target, request, base),
        case=Case(
            id=_case_of(step, asks),
            input=tree if asks is None else _prompt(asks, step.number),
            metadata=_metadata(step),
        ),
        variant={STEP: step.kind.value},
        repeat=step.number,
        target=target,
        needs=_needs_of(step.kind, () if asks is None else _account(asks, step.number)),
        exclusive=step.kind.is_exclusive,
    )


def _needs_of(kind: StepKind, accounts: tuple[str, ...]) -> tuple[str, ...]:
    """The needs of a kind of step, sorted."""
    own = (HOOKS,) if kind.is_hook else (TESTS,) if kind.is_test else ()
    return (*accounts, *own, TIME_NEED) if kind.is_timed else own


# ---- candidates that models write


def _asks_of(step: Step, request: RaceRequest) -> ModelCandidates | None:
    is_generated = step.kind is StepKind.GENERATE and request.generate is not None
    return request.generate.asks if is_generated and request.generate is not None else None


def _case_of(step: Step, asks: ModelCandidates | None) -> str:
    if step.kind is not StepKind.GENERATE:
        return step.candidate
    return "generate" if asks is None else asks.name(step.number)


def _prompt(asks: ModelCandidates, call: int) -> str:
    extra = {"attempt": str(asks.attempt(call))}
    fields = TemplateFields(input=None, case_id="", repeat=call, folder="", extra=extra)
    return fill(asks.prompt, fields)


def _account(asks: ModelCandidates, call: int) -> tuple[str]:
    return (account_need(asks.model(call).account),)


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
    asks = _asks_of(step, request)
    if asks is not None:
        return ChatTarget(
            model=asks.model(step.number),
            messages=(Message(role="user", content="{input}"),),
            temperature=asks.temperature,
            max_tokens=asks.max_tokens,
        )
    hook = request.hook(step.kind.value) if step.kind.is_hook else None
    if hook is not None:
        return CommandTarget(
            command=hook.command,
            cwd=request.folder,
            timeout=hook.timeout,
            pass_env=request.pass_env,
            home=Home.MINE,
        )
    spec = request.test if step.kind.is_test else request.bench
    command = () if step.kind is StepKind.STAGE else spec.command
    return CommandTarget(
        command=command,
        cwd=".",
        timeout=BASELINE_TIMEOUT_S if spec.timeout is None else spec.timeout,
        env=request.env,
        pass_env=request.pass_env,
        any_exit_code=True,
    )


def _key(step: Step, target: CommandTarget | ChatTarget, request: RaceRequest, base: Base) -> str:
    if isinstance(target, ChatTarget):
        asks = _asks_of(step, request)
        assert asks is not None
        chat = {"race": 1, "base": base.tree, "number": step.number, "chat": to_data(target)}
        return _hashed({**chat, "prompt": _prompt(asks, step.number)})
    parts: dict[str, Any] = {
        "race": 1,
        "kind": step.kind,
        "base": base.tree,
        "start": base.start,
        "tree": step.tree,
        "number": step.number,
        "command": target.command,
        "timeout": target.timeout,
        "env": dict(target.env),
        "pass_env": target.pass_env,
        "setup": request.setup,
        "sandbox": request.sandbox,
    }
    match step.kind:
        case StepKind.STAGE:
            assert step.proposal is not None
            parts |= {
                "name": step.candidate,
                # Distinguishes hooks that propose the same under one name.
                "origin": step.proposal.origin,
                "parent": step.proposal.parent,
                "content": step.proposal.content,
                "protect": request.protect,
                "watched": (request.test.command, request.bench.command),
            }
        case StepKind.REPAIR | StepKind.REFINE:
            # A candidate that never applied has no tree, only a name.
            parts |= {"name": step.candidate}
        case StepKind.TEST | StepKind.CANARY:
            parts |= {"junit": request.test.junit, "compare": [asdict(c) for c in request.compare]}
        case StepKind.CALIBRATE | StepKind.SCREEN | StepKind.FINAL:
            bench = request.bench
            parts |= {"metric": bench.metric, "file": bench.file, "cpus": bench.cpus}
        case StepKind.PROFILE:
            parts |= {"profile": asdict(request.profile)}
    return _hashed(parts)


def _hashed(parts: Mapping[str, Any]) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _metadata(step: Step) -> dict[str, Any]:
    if step.proposal is None:
        return {}
    proposal = step.proposal
    return {
        "origin": proposal.origin.value,
        "parent": proposal.parent,
        "note": proposal.note[:1000],
    }
