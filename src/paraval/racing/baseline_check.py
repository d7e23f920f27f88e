"""Decides from the baseline's own tests and benchmark whether a race can start. Pure."""

from __future__ import annotations

from dataclasses import replace

from paraval.dataclass import dataclass
from paraval.racing.findings import Calibration, Canary, CorrectnessFinding, ProfileFinding
from paraval.racing.request import RaceRequest
from paraval.racing.standings import BaselineStanding
from paraval.racing.steps import Base, Step, StepEnd, StepKind
from paraval.records import Outcome
from paraval.text.words import listed

RUNS = (1, 2)
"""The baseline is tested twice, to detect unstable tests."""
FAILS_ITS_TESTS = "the baseline fails its own tests"
BLIND = (
    "the tests do not run the code that candidates change: they pass even when {files} cannot be"
    " imported. Either no test imports this code, or Python imports another copy of it, such as an"
    " installed one: put the source folder first (`env: {{PYTHONPATH: src}}`), or build and install"
    " the worktree in `setup`. `test: {{canary: false}}` skips this check"
)
_NAMED = 5
"""How many tests or files a reason names."""


@dataclass(slots=True)
class BaselineCheck:
    """The state of the baseline during a race."""

    standing: BaselineStanding
    request: RaceRequest
    ends: dict[int, StepEnd]
    """Of its test runs, by number."""
    calibration: StepEnd | None = None
    has_canary: bool = False
    """Whether its canary step was issued."""
    is_blind: bool = False
    """Its tests do not notice when the code that candidates change is broken."""

    @classmethod
    def of(cls, request: RaceRequest, base: Base) -> BaselineCheck:
        standing = BaselineStanding(
            commit=base.commit, tree=base.tree, uncommitted=request.keys.repo.uncommitted
        )
        return cls(standing=standing, request=request, ends={})

    @property
    def is_fine(self) -> bool:
        return self.standing.reason is None

    @property
    def process_s(self) -> float:
        """The duration of one benchmark process."""
        return 0.0 if self._found is None else max(0.0, self._found.process_s)

    @property
    def samples(self) -> tuple[dict[str, float], ...]:
        return () if self._found is None else tuple(dict(one) for one in self._found.samples)

    @property
    def _found(self) -> Calibration | None:
        return None if self.calibration is None else self.calibration.finding.calibration

    def tests(self) -> list[Step]:
        return [Step(kind=StepKind.TEST, number=number) for number in RUNS]

    def handle(self, end: StepEnd) -> None:
        """Record the end of a baseline step."""
        finding = end.finding
        if end.step.kind is StepKind.CANARY:
            self._take_canary(finding.canary)
        elif end.step.kind is StepKind.PROFILE:
            found = finding.profiled or ProfileFinding(problem=end.reason)
            self.standing = replace(
                self.standing, profile=found.functions, profile_problem=found.problem
            )
        elif end.outcome is Outcome.SKIPPED:
            what = "measured" if end.step.kind is StepKind.CALIBRATE else "tested twice"
            reason = f"the baseline was not {what}: {end.reason}"
            self.standing = replace(self.standing, reason=self.standing.reason or reason)
        elif end.step.kind is StepKind.CALIBRATE:
            self.calibration = end
            self.standing = _calibrated(self.standing, end)
        else:
            self.ends[end.step.number] = end
            if len(self.ends) == len(RUNS):
                ends = [self.ends[number] for number in RUNS]
                self.standing = _tested(self.standing, ends, self.request)

    def _take_canary(self, canary: Canary | None) -> None:
        """Record a canary; one that was skipped or impossible is no evidence against the tests."""
        if canary is not None and canary.passed and canary.broken:
            self.is_blind = True
            reason = BLIND.format(files=_some(canary.broken))
            self.standing = replace(self.standing, reason=reason)


def _calibrated(standing: BaselineStanding, end: StepEnd) -> BaselineStanding:
    found = end.finding.calibration
    if end.outcome is not Outcome.PASSED or found is None:
        why = end.reason or f"it ended as {end.outcome.value}"
        why = why.removeprefix("the baseline's benchmark: ")
        return replace(standing, reason=f"the baseline's benchmark cannot be measured: {why}")
    return replace(standing, noisy=found.noisy, unseen=found.printed is None)


def _tested(
    standing: BaselineStanding, ends: list[StepEnd], request: RaceRequest
) -> BaselineStanding:
    found = [end.finding.tested or CorrectnessFinding() for end in ends]
    failed = [
        tested for end, tested in zip(ends, found, strict=True) if end.outcome is Outcome.FAILED
    ]
    passed = sum(end.outcome is Outcome.PASSED for end in ends)
    failing = tuple(dict.fromkeys(name for tested in failed for name in tested.failing))
    standing = replace(
        standing, tests=next((one.counts for one in found if one.counts is not None), None)
    )
    if passed + len(failed) < len(ends):
        return replace(standing, failing=failing, reason=_no_end(ends))
    if not passed:
        standing = replace(standing, failing=failing, differences=failed[0].differences)
        return replace(standing, reason=_failure(failing, ends))
    if failed and not failing:
        return replace(standing, reason=_BOTH_WAYS)
    # A test that failed once and passed once is not a candidate's fault.
    unstable = dict.fromkeys((*(name for one in found for name in one.unstable), *failing))
    compared = [name for name in request.keys.compare if name in unstable]
    reason = None if not compared else _uncomparable(compared)
    return replace(standing, unstable=tuple(unstable), reason=reason)


_BOTH_WAYS = (
    "the baseline's tests passed once and failed once, and which of them differ is unknown: "
    "make them stable, or have them report individual tests (`{junit}` in the command)"
)


def _no_end(ends: list[StepEnd]) -> str:
    end = next(end for end in ends if not end.outcome.is_judged)
    return f"the baseline's tests gave no result: {end.reason or end.outcome.value}"


def _failure(failing: tuple[str, ...], ends: list[StepEnd]) -> str:
    if not failing:
        why = next((end.reason for end in ends if end.reason), "their exit code is not 0")
        return f"{FAILS_ITS_TESTS}: {why}"
    return f"{FAILS_ITS_TESTS}: {_some(failing)}"


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return listed([*names[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _uncomparable(names: list[str]) -> str:
    return (
        f"{listed(names)} cannot be compared: it differs between two runs of the baseline's tests; "
        "remove it from `compare`, or make the command's output the same each time"
    )
