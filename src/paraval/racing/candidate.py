"""The state of a candidate during a race."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from statistics import median

from paraval.dataclass import dataclass
from paraval.racing.findings import (
    Block,
    Canary,
    Proposal,
    RunDifference,
    Speedup,
    StagedCandidate,
    TestCounts,
)
from paraval.racing.integrity.benchmark_checks import PRINTS_ELSE
from paraval.racing.standings import CandidateStanding, Status
from paraval.racing.verdicts import MeasuredSpeed, RaceVerdict, log_ratio_of, speedup_of
from paraval.records import Outcome
from paraval.text.words import counted

MOST_NOTES = 10
"""Notes kept per candidate."""
LEAST_RUN = 0.5
"""The share of added lines that the tests must run: less is a caution."""
MOST_NAMED = 5
"""Names listed in a caution."""
_STATUS = {
    Outcome.FAILED: Status.FAILED,
    Outcome.TIMEOUT: Status.TIMEOUT,
    Outcome.CRASHED: Status.CRASHED,
    Outcome.INVALID_OUTPUT: Status.FAILED,
    Outcome.SKIPPED: Status.SKIPPED,
}


def status_of(outcome: Outcome) -> Status:
    """The status for the outcome of a test or benchmark; others are not the candidate's fault."""
    return _STATUS.get(outcome, Status.INFRA_ERROR)


@dataclass(slots=True, kw_only=True, eq=False)
class Candidate:
    """The state of one candidate."""

    proposal: Proposal
    place: int
    """In order of arrival."""
    status: Status | None = None
    """None while it is in the race, or if its measurements decide."""
    reason: str = ""
    staged: StagedCandidate | None = None
    patch: str | None = None
    passed: bool = False
    tests: TestCounts | None = None
    differences: tuple[RunDifference, ...] = ()
    more_differences: int = 0
    duplicate_of: str | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    screening: dict[int, Block] = field(default_factory=dict)
    final: dict[int, Block] = field(default_factory=dict)
    held: str = ""
    """Why it cannot win, regardless of measurements."""
    cautions: tuple[str, ...] = ()
    is_left: bool = False
    """Whether it is out only because a step was left for a resume."""

    @property
    def name(self) -> str:
        return self.proposal.name

    @property
    def tree(self) -> str | None:
        return None if self.staged is None else self.staged.tree

    @property
    def is_measurable(self) -> bool:
        return self.passed and self.status is None and not self.held

    @property
    def is_measured(self) -> bool:
        return self.passed and self.status is None and bool(self.screening or self.final)

    def python_files(self) -> tuple[str, ...]:
        """The Python files that it changes or adds."""
        files = () if self.staged is None else self.staged.files
        return tuple(
            one.path for one in files if one.path.endswith(".py") and one.status != "deleted"
        )

    def take_out(self, status: Status, reason: str) -> None:
        """Take it out of the race. The first reason stays, unless a step was left for later."""
        if self.status is None or self.is_left:
            self.status, self.reason = status, reason
            self.is_left = False

    def leave(self, reason: str) -> None:
        """Take it out until a resume."""
        if self.status is None:
            self.take_out(Status.SKIPPED, reason)
            self.is_left = True

    def hold(self, reason: str) -> None:
        """It stays in the race, but cannot win."""
        self.held = self.held or reason

    def note(self, notes: Iterable[str]) -> None:
        known = dict.fromkeys((*self.notes, *notes))
        self.notes = tuple(known)[:MOST_NOTES]

    def flag(self, flags: Iterable[str]) -> None:
        self.flags = tuple(dict.fromkeys((*self.flags, *flags)))

    def take_block(self, number: int, block: Block, *, is_final: bool) -> None:
        """Record a block; an unusable one takes the candidate out."""
        try:
            log_ratio_of(block)
        except ValueError as error:
            self.take_out(Status.FAILED, f"its benchmark gave no usable result: {error}")
            return
        (self.final if is_final else self.screening)[number] = block
        if other := [flag for flag in block.flags if flag.startswith(PRINTS_ELSE)]:
            # What it computes is not what the baseline computes, or it did not compute it.
            self.take_out(Status.FAILED, other[0])
        elif block.flags:
            self.flag(block.flags)
            self.hold(f"{block.flags[0]}, so its measurements may not reflect its code")

    def take_canary(self, canary: Canary | None, *, allows_state: bool) -> None:
        """Record what the tests ran of it, and what it keeps between calls."""
        if canary is not None and canary.state and not allows_state:
            self.hold(
                f"it keeps state between calls ({_some(canary.state)}); --accept-caches lets it win"
            )
            canary = replace(canary, state=())
        self.cautions = cautions_of(canary)

    def screened(self, confidence: float) -> Speedup | None:
        return speedup_of(_in_order(self.screening), confidence)

    def rank(self) -> tuple[bool, float, int]:
        """Sort key of those that may win: without cautions first, then the fastest."""
        ratios = [*map(log_ratio_of, self.screening.values())]
        return (bool(self.cautions), -sum(ratios) / len(ratios) if ratios else math.inf, self.place)

    def measured(self) -> MeasuredSpeed:
        return MeasuredSpeed(
            name=self.name,
            screening=_in_order(self.screening),
            final=_in_order(self.final),
            held=self.held,
            has_cautions=bool(self.cautions),
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
            seconds=_medians(sample for block in blocks for sample in block.candidate),
            noisy=any(block.noisy for block in blocks),
            parent=self.proposal.parent,
            round=self.proposal.round,
            note=self.proposal.note,
            duplicate_of=self.duplicate_of,
            flags=self.flags,
            notes=self.notes,
            cautions=self.cautions,
            tree=self.tree,
            patch=self.patch,
        )


def cautions_of(canary: Canary | None) -> tuple[str, ...]:
    """What to check in a candidate that may win."""
    if canary is None:
        return ()
    found = []
    if canary.broken and canary.passed:
        found.append(
            f"no test runs the code that it changes ({_some(canary.broken)}), so nothing shows that"
            " it is correct"
        )
    elif canary.lines_run < LEAST_RUN * canary.lines:
        found.append(
            f"the tests ran {canary.lines_run:,} of {counted(canary.lines, 'added line')}: nothing"
            " shows that the others are correct"
        )
    if canary.state:
        found.append(
            f"it keeps state between calls ({_some(canary.state)}): check that results stay correct"
            " when inputs change, and that the benchmark does not just repeat its inputs"
        )
    return tuple(found)


def _some(several: tuple[str, ...]) -> str:
    more = len(several) - MOST_NAMED
    return "; ".join((*several[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])))


def baseline_medians(
    entries: Iterable[Candidate], more: Iterable[dict[str, float]]
) -> dict[str, float]:
    """The baseline's median by benchmark case, over all blocks and `more`."""
    blocks = [block for one in entries for block in (*one.screening.values(), *one.final.values())]
    return _medians((*more, *(sample for block in blocks for sample in block.baseline)))


def _medians(samples: Iterable[Mapping[str, float]]) -> dict[str, float]:
    by_case: dict[str, list[float]] = {}
    for sample in samples:
        for case, seconds in sample.items():
            by_case.setdefault(case, []).append(seconds)
    return {case: median(values) for case, values in by_case.items()}


def _in_order(blocks: dict[int, Block]) -> tuple[Block, ...]:
    return tuple(blocks[number] for number in sorted(blocks))
