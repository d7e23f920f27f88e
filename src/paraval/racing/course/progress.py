"""Where a race is, for whoever watches it: a phase in words, and counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paraval.racing.course.candidate import Candidate
from paraval.racing.course.recorded import RunningSteps
from paraval.racing.course.steps import BASELINE, StepKind

_PHASES = {
    StepKind.TEST: "testing",
    StepKind.CANARY: "checking the tests",
    StepKind.STAGE: "looking at candidates",
    StepKind.SCREEN: "measuring",
    StepKind.FINAL: "finals",
    StepKind.REPAIR: "repairing",
    StepKind.REFINE: "refining",
    StepKind.GENERATE: "generating",
    StepKind.PROFILE: "profiling the winner",
}
"""By what is under way; the first counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    phase: str
    """What is done now: `testing`, `measuring`, `finals`, ..."""
    candidates: int = 0
    staged: int = 0
    tested: int = 0
    passed: int = 0
    measured: int = 0
    """Those that have been measured at all."""
    round: int = 0
    blocks_done: int = 0
    blocks: int = 0
    """Named so far: later rounds are not known yet."""


def progress_of(entries: Iterable[Candidate], underway: RunningSteps, round_: int) -> Progress:
    entries = [*entries]
    blocks = [one for one in underway.named if one[0] in (StepKind.SCREEN, StepKind.FINAL)]
    tests = [one for one in underway.named if one[0] is StepKind.TEST and one[1] != BASELINE]
    return Progress(
        phase=_phase(underway),
        candidates=len(entries),
        staged=sum(one.staged is not None for one in entries),
        tested=sum(one not in underway for one in tests),
        passed=sum(one.passed for one in entries),
        measured=sum(bool(one.screening) for one in entries),
        round=round_,
        blocks_done=sum(one not in underway for one in blocks),
        blocks=len(blocks),
    )


def _phase(underway: RunningSteps) -> str:
    if not underway:
        return "over" if underway.has_begun else "not begun"
    if StepKind.CALIBRATE in underway.kinds:
        return "measuring the baseline"
    if (StepKind.TEST, BASELINE, 1) in underway or (StepKind.TEST, BASELINE, 2) in underway:
        return "testing the baseline"
    return next(words for kind, words in _PHASES.items() if kind in underway.kinds)
