"""A candidate in the course of a race: what is known of it so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median

from paraval.racing.course.verdicts import MeasuredSpeed, RaceVerdict, log_ratio_of, speedup_of
from paraval.racing.findings import (
    Block,
    Canary,
    Proposal,
    RunDifference,
    Speedup,
    StagedCandidate,
    TestCounts,
)
from paraval.racing.report.standings import CandidateStanding, Status
from paraval.records import Outcome

MOST_NOTES = 10
"""Of one candidate."""
MOST_NAMED = 5
"""In a caution."""
_STATUS = {
    Outcome.FAILED: Status.FAILED,
    Outcome.TIMEOUT: Status.TIMEOUT,
    Outcome.CRASHED: Status.CRASHED,
    Outcome.INVALID_OUTPUT: Status.FAILED,
    Outcome.SKIPPED: Status.SKIPPED,
}


def status_of(outcome: Outcome) -> Status:
    """What becomes of a candidate whose test or benchmark ended so; the rest is no fault of its."""
    return _STATUS.get(outcome, Status.INFRA_ERROR)


@dataclass(slots=True, kw_only=True, eq=False)
class Candidate:
    """One candidate."""

    proposal: Proposal
    told: str
    """The name that it came with."""
    order: tuple[int, ...]
    """By which candidates are sorted, whatever came first: given, generated, then by parent."""
    status: Status | None = None
    """None: it is still in the race, or only its measurements tell."""
    reason: str = ""
    is_recorded: bool = False
    """An earlier engine staged it."""
    is_staging: bool = False
    """True: staging it is named, and has not ended."""
    staged: StagedCandidate | None = None
    patch: str | None = None
    is_on: bool = False
    """It is an original, and goes on to its tests."""
    passed: bool = False
    tests: TestCounts | None = None
    differences: tuple[RunDifference, ...] = ()
    more_differences: int = 0
    duplicate_of: str | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_refinable: bool = True
    """A hook may be told of it, and was not yet."""
    screening: dict[int, Block] = field(default_factory=dict)
    screens_named: int = 0
    final: dict[int, Block] = field(default_factory=dict)
    is_in: bool = False
    """It has come as far as any in the rounds of measurements."""
    held: str = ""
    """Why it cannot win, whatever is measured."""
    is_late: bool = False
    """The time limit came before it had all that it was to have."""
    is_checked: bool = False
    """Whether its tests notice that it is broken is asked, or is not to be."""
    cautions: tuple[str, ...] = ()
    is_left: bool = False
    """A step of it was left for later, which is all that speaks against it."""

    @property
    def name(self) -> str:
        return self.proposal.name

    @property
    def tree(self) -> str | None:
        return None if self.staged is None else self.staged.tree

    @property
    def awaits_decision(self) -> bool:
        """Staged, and not known to be an original or a duplicate."""
        return self.status is None and self.staged is not None and not self.is_on

    @property
    def is_measurable(self) -> bool:
        return self.passed and self.status is None

    @property
    def is_measured(self) -> bool:
        return self.is_measurable and bool(self.screening or self.final)

    def python_files(self) -> tuple[str, ...]:
        """Those that it has changed or added."""
        files = () if self.staged is None else self.staged.files
        return tuple(
            one.path for one in files if one.path.endswith(".py") and one.status != "deleted"
        )

    def call(self, name: str) -> None:
        self.proposal = replace(self.proposal, name=name)

    def take_out(self, status: Status, reason: str) -> None:
        """The first reason stays, but for one that tells nothing of the candidate."""
        if self.status is None or self.is_left:
            self.status, self.reason = status, reason
            self.is_in = self.is_left = False

    def leave(self, reason: str) -> None:
        """For a resume."""
        if self.status is None:
            self.take_out(Status.SKIPPED, reason)
            self.is_left = True

    def note(self, notes: Iterable[str]) -> None:
        known = dict.fromkeys((*self.notes, *notes))
        self.notes = tuple(known)[:MOST_NOTES]

    def flag(self, flags: Iterable[str]) -> None:
        self.flags = tuple(dict.fromkeys((*self.flags, *flags)))

    def take_block(self, number: int, block: Block, *, is_final: bool) -> None:
        """What can not be measured with takes it out."""
        try:
            log_ratio_of(block)
        except ValueError as error:
            self.take_out(Status.FAILED, f"its benchmark cannot be measured with: {error}")
            return
        (self.final if is_final else self.screening)[number] = block
        if block.flags:
            self.flag(block.flags)
            self.is_in = False
            self.held = f"{block.flags[0]}: so its measurements may not be those of its code"

    def screened(self, confidence: float) -> Speedup | None:
        return speedup_of(_in_order(self.screening), confidence)

    def rank(self) -> tuple[float, tuple[int, ...]]:
        """The fastest first, by the rounds so far."""
        if not self.screening:
            return (math.inf, self.order)
        return (-sum(map(log_ratio_of, self.screening.values())) / len(self.screening), self.order)

    def measured(self) -> MeasuredSpeed:
        return MeasuredSpeed(
            name=self.name,
            screening=_in_order(self.screening),
            final=_in_order(self.final),
            held=self.held,
        )

    def standing(self, verdict: RaceVerdict) -> CandidateStanding:
        blocks = (*self.screening.values(), *self.final.values())
        return CandidateStanding(
            name=self.name,
            status=verdict.status,
            reason=verdict.reason,
            tests=self.tests,
            differences=self.differences,
            more_differences=self.more_differences,
            speedup=verdict.speedup,
            cases=verdict.cases,
            noisy=any(block.noisy for block in blocks),
            parent=self.proposal.parent,
            origin=self.proposal.origin,
            note=self.proposal.note,
            duplicate_of=self.duplicate_of,
            flags=self.flags,
            notes=self.notes,
            cautions=self.cautions,
            tree=self.tree,
            patch=self.patch,
        )


def cautions_of(canary: Canary | None) -> tuple[str, ...]:
    """What a candidate that may win is to be looked at for."""
    if canary is None:
        return ()
    found = []
    if canary.broken and canary.passed:
        found.append(
            f"no test runs the code that it changes ({_some(canary.broken)}): that it is correct"
            " is not shown"
        )
    if canary.state:
        found.append(
            f"it keeps state between calls ({_some(canary.state)}): look whether results stay"
            " correct when inputs change, and whether the benchmark only repeats its inputs"
        )
    return tuple(found)


def _some(several: tuple[str, ...]) -> str:
    more = len(several) - MOST_NAMED
    return "; ".join((*several[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])))


def baseline_medians(
    entries: Iterable[Candidate], more: Iterable[dict[str, float]]
) -> dict[str, float]:
    """Of the baseline's measurements, by benchmark case: those of all blocks, and `more`."""
    by_case: dict[str, list[float]] = {}
    blocks = [block for one in entries for block in (*one.screening.values(), *one.final.values())]
    for sample in (*more, *(sample for block in blocks for sample in block.baseline)):
        for case, seconds in sample.items():
            by_case.setdefault(case, []).append(seconds)
    return {case: median(values) for case, values in by_case.items()}


def _in_order(blocks: dict[int, Block]) -> tuple[Block, ...]:
    return tuple(blocks[number] for number in sorted(blocks))
