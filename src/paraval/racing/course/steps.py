"""What the engine runs for a race: a step is a trial. Here one becomes the other, and back.

A step's trial has the candidate's name as its case, and the kind of the step as its variant. Its
key holds all that decides the result, and not the candidate's name where that does not matter: so a
resume finds each result again, whatever order things happened in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from paraval.codec import from_data
from paraval.errors import StoreError
from paraval.racing.findings import Proposal, StepFinding
from paraval.racing.request import RaceRequest
from paraval.records import AttemptResult, Case, CommandTarget, Home, Outcome, Trial, TrialResult

BASELINE = "baseline"
"""What the repository as it is is called among the candidates; no candidate may be called so."""
TIME_NEED = "limit:time"
"""What a step needs that may not start past the time limit."""
TESTS = "limit:tests"
"""Of what there are as many as are asked for ..."""
HOOKS = "limit:hooks"
"""... and of what runs beside: it waits for models, and takes no place of a test."""
STEP = "step"
"""The axis of a race's plan."""
FINDING = "race"
"""Where in an output's metadata a finding is ..."""
ELAPSED = "elapsed_s"
"""... and how long the race had taken by then: a replay decides by it as the race did ..."""
SIGNATURE = "step"
"""... and of which step it is."""


class StepKind(StrEnum):
    """In the order in which a candidate comes to them."""

    GENERATE = "generate"
    STAGE = "stage"
    """Make it a tree, or find that it is none."""
    TEST = "test"
    REPAIR = "repair"
    CANARY = "canary"
    """The tests with code that was broken on purpose: of the baseline before candidates are tested,
    of a candidate that is to win in the end."""
    CALIBRATE = "calibrate"
    """The baseline's benchmark, to see that it works and how long it takes."""
    SCREEN = "screen"
    """A block of a round of halving."""
    REFINE = "refine"
    FINAL = "final"
    """A block of the finals."""
    PROFILE = "profile"

    @property
    def is_exclusive(self) -> bool:
        return self in (StepKind.CALIBRATE, StepKind.SCREEN, StepKind.FINAL, StepKind.PROFILE)

    @property
    def is_hook(self) -> bool:
        return self in (StepKind.GENERATE, StepKind.REPAIR, StepKind.REFINE)

    @property
    def is_timed(self) -> bool:
        """Many of them are named at once, and wait for their turn: the time may be up by then.
        Blocks are named as far as there is time for them."""
        return self not in (StepKind.SCREEN, StepKind.FINAL, StepKind.PROFILE)


_TESTING = (StepKind.TEST, StepKind.CANARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What every candidate is a change to."""

    tree: str
    start: str = "."
    """Where in it commands run."""
    commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do."""

    kind: StepKind
    candidate: str = BASELINE
    number: int = 1
    """Of several of its kind for one candidate, from 1: blocks, the baseline's runs of its
    tests."""
    tree: str | None = None
    """The candidate's; None where there is none yet (stage, generate): of the baseline, its own."""
    proposal: Proposal | None = None
    """For stage."""
    files: tuple[str, ...] = ()
    """For canary: those that may be broken."""
    told: Mapping[str, Any] | None = None
    """For repair and refine: what the hook is told, as JSON data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """How a step ended."""

    step: Step
    outcome: Outcome
    finding: StepFinding
    reason: str = ""
    """Where it found nothing: why."""
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    cost_usd: float = 0.0
    """Of a hook, as far as it told."""
    is_priced: bool = True
    """Whether that is all of its cost."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, relative to the run's folder."""
    elapsed_s: float = 0.0
    """How long engines had worked on the race by then."""


def trial_of(step: Step, index: int, request: RaceRequest, base: Base) -> Trial:
    """The step as a trial of a plan."""
    target = _target_of(step, request)
    return Trial(
        index=index,
        key=_key(step, target, request, base),
        case=Case(
            id=step.candidate if step.kind is not StepKind.GENERATE else "generate",
            input={"tree": step.tree} if step.tree is not None else None,
            metadata=_metadata(step),
        ),
        variant={STEP: step.kind.value},
        repeat=step.number,
        target=target,
        needs=_needs_of(step.kind),
        exclusive=step.kind.is_exclusive,
    )


def _needs_of(kind: StepKind) -> tuple[str, ...]:
    """Sorted."""
    own = (HOOKS,) if kind.is_hook else (TESTS,) if kind in _TESTING else ()
    return (*own, TIME_NEED) if kind.is_timed else own


def end_of(step: Step, result: TrialResult) -> StepEnd:
    """What became of a step, from its trial's result."""
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
        raise StoreError(f"what a step of the race found is damaged: {error}") from error


def _elapsed_s(result: AttemptResult) -> float:
    told = 0.0 if result.output is None else result.output.metadata.get(ELAPSED, 0.0)
    if not isinstance(told, int | float):
        raise StoreError(f"when a step of the race ended is damaged: {told!r:.60}")
    return float(told)


def _target_of(step: Step, request: RaceRequest) -> CommandTarget:
    """The command that is run for it; of a step that runs none, an empty one."""
    hook = request.hook(step.kind.value) if step.kind.is_hook else None
    if hook is not None:
        return CommandTarget(
            command=hook.command,
            cwd=request.folder,
            timeout=hook.timeout,
            pass_env=request.pass_env,
            home=Home.MINE,
        )
    spec = request.test if step.kind in _TESTING else request.bench
    command = () if step.kind is StepKind.STAGE else spec.command
    return CommandTarget(
        command=command,
        cwd=".",
        timeout=spec.timeout,
        env=request.env,
        pass_env=request.pass_env,
        any_exit_code=True,
    )


def _key(step: Step, target: CommandTarget, request: RaceRequest, base: Base) -> str:
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
                # Two hooks may propose the same under one name: whose it was is known by this.
                "origin": step.proposal.origin,
                "parent": step.proposal.parent,
                "content": step.proposal.content,
                "protect": request.protect,
                "watched": (request.test.command, request.bench.command),
            }
        case StepKind.REPAIR | StepKind.REFINE:
            # One that never applied has no tree, and is told from others by its name alone.
            parts |= {"name": step.candidate}
        case StepKind.TEST | StepKind.CANARY:
            parts |= {"junit": request.test.junit, "compare": [asdict(c) for c in request.compare]}
        case StepKind.CALIBRATE | StepKind.SCREEN | StepKind.FINAL:
            bench = request.bench
            parts |= {"metric": bench.metric, "file": bench.file, "cpus": bench.cpus}
        case StepKind.PROFILE:
            parts |= {"profile": asdict(request.profile)}
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
