"""The recorded steps of a race, its running steps, and its time limit. Pure.

Live, some decisions depend on what happened first: who is repaired while calls are left, which of
two equal candidates is the duplicate, which of two with the same name keeps it. A replay gets the
same step ends in a different order. It reaches the same standings because recorded steps are
decided as they were, and other steps wait until all recorded ones have been handled.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from paraval.racing.course.candidate import Candidate
from paraval.racing.course.steps import BASELINE, SIGNATURE, STEP, Step, StepKind
from paraval.racing.report.standings import Status
from paraval.records import TrialResult
from paraval.text.words import duration

# How much time a race has left. Pure: the caller provides the elapsed time.

PREPARED = "it was prepared"
TESTED = "it was tested"
ITS_TURN = "its turn"
"""What the time limit cut off when a step was about to start."""


class RaceTime:
    """The time limit of a race, and the time elapsed."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._elapsed_s = 0.0

    def advance(self, elapsed_s: float) -> None:
        """Advance to a time. A replay gets ends in a different order: the latest counts."""
        self._elapsed_s = max(self._elapsed_s, elapsed_s)

    def run_out(self) -> None:
        """Mark the time as up, because a step was too late to start."""
        self.advance(self._limit_s)

    @property
    def left_s(self) -> float:
        return self._limit_s - self._elapsed_s

    @property
    def is_up(self) -> bool:
        return self.left_s <= 0

    @property
    def why_skipped(self) -> str:
        """The reason of a step that was too late to start."""
        return self.came_before(ITS_TURN)

    def end(self, entry: Candidate, before: str) -> None:
        """Take a candidate out for lack of time."""
        entry.take_out(Status.SKIPPED, self.came_before(before))
        entry.is_late = True

    def came_before(self, what: str) -> str:
        """The reason why something was not done."""
        seconds = self._limit_s
        words = f"{seconds:g} s" if seconds < 60 else duration(seconds)
        return f"the time limit of {words} was reached before {what}"


StepId = tuple[StepKind, str, int]
"""Kind, candidate, number."""
LONGEST_NUMBER = 10
"""Most digits of the number suffix of a name."""


def id_of(step: Step) -> StepId:
    return (step.kind, step.candidate, step.number)


class RecordedSteps:
    """The steps that have a result in the store."""

    def __init__(
        self,
        steps: Iterable[StepId] = (),
        keys: Iterable[str] = (),
        came: Iterable[str] = (),
    ) -> None:
        """`keys`: of their trials, to distinguish steps with the same name. `came`: candidates in
        order of arrival; empty if unknown."""
        self._steps = frozenset(steps)
        self.keys = frozenset(keys)
        self.came = tuple(came)
        candidates: dict[StepKind, set[str]] = defaultdict(set)
        for kind, name, _ in self._steps:
            candidates[kind].add(name)
        self._candidates = {kind: frozenset(names) for kind, names in candidates.items()}
        self._numbered = _numbered(self.candidates(StepKind.STAGE))

    def __contains__(self, step: StepId) -> bool:
        return step in self._steps

    def has(self, kind: StepKind, candidate: str, number: int = 1) -> bool:
        return (kind, candidate, number) in self._steps

    def candidates(self, kind: StepKind) -> frozenset[str]:
        """The candidates that had a step of this kind."""
        return self._candidates.get(kind, frozenset())

    def numbered(self, name: str) -> Sequence[str]:
        """Names staged as this name with a number suffix, by number."""
        return self._numbered.get(name, ())


def _numbered(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        stem, _, number = name.rpartition("-")
        # Python refuses to parse thousands of digits; no candidate needs that many.
        if stem and number.isdecimal() and len(number) < LONGEST_NUMBER:
            found[stem].append((int(number), name))
    return {stem: [name for _, name in sorted(each)] for stem, each in found.items()}


def recorded_in(known: Mapping[str, TrialResult]) -> RecordedSteps:
    """The recorded steps, from a race's stored results by trial key."""
    steps = {_id_in(result): result.index for result in known.values()}
    named = sorted((index, step) for step, index in steps.items() if index >= 0)
    came = [name for _, (kind, name, _) in named if kind is StepKind.STAGE]
    return RecordedSteps(steps, known, came)


def _id_in(result: TrialResult) -> StepId:
    kind = StepKind(str(result.variant[STEP]))
    name = BASELINE if kind is StepKind.GENERATE else result.case_id
    return (kind, name, result.repeat)


def with_their_steps(known: Mapping[str, TrialResult]) -> dict[str, TrialResult]:
    """The signed results with their case, variant and number restored, by key in stored order."""
    return {
        key: replace(
            result,
            case_id=signature["case"],
            variant={STEP: signature["kind"]},
            repeat=signature["number"],
        )
        for key, result in known.items()
        if (output := result.result.output) is not None
        and (signature := output.metadata.get(SIGNATURE)) is not None
    }


class RunningSteps:
    """The steps that were issued and have not ended."""

    def __init__(self, recorded: RecordedSteps) -> None:
        self._recorded = recorded
        self._named: set[StepId] = set()
        self._out: dict[StepId, Step] = {}
        self._kinds: Counter[StepKind] = Counter()
        """Kinds of running steps."""
        self._awaited: set[StepId] = set()
        """The recorded ones among them, whose ends come immediately."""

    def __bool__(self) -> bool:
        return bool(self._out)

    def __contains__(self, step: StepId) -> bool:
        return step in self._out

    @property
    def has_begun(self) -> bool:
        return bool(self._named)

    @property
    def kinds(self) -> frozenset[StepKind]:
        return frozenset(+self._kinds)

    @property
    def is_catching_up(self) -> bool:
        """Whether recorded steps are still to be handled; unrecorded ones wait."""
        return bool(self._awaited)

    def name(self, steps: Iterable[Step]) -> list[Step]:
        steps = [*steps]
        for step in steps:
            one = id_of(step)
            assert one not in self._named, f"issued twice: {one}"
            self._named.add(one)
            self._out[one] = step
            self._kinds[step.kind] += 1
            if one in self._recorded:
                self._awaited.add(one)
        return steps

    def end(self, step: Step) -> bool:
        """Remove a running step; False if it was not running."""
        one = id_of(step)
        self._awaited.discard(one)
        if self._out.pop(one, None) is None:
            return False
        self._kinds[step.kind] -= 1
        return True
