"""What an earlier engine did in the same race, and how much of its time is left. Pure.

Live, some decisions hang on what happened first: who is repaired while calls are left, who of two
equals is the duplicate, who of two with one name keeps it. A replay hears of the same ends in
another order. It comes to the same standings because what is recorded is decided as it was, and
what is not waits until all that is recorded has been heard.
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

# How much of its time a race has left. Pure: it is told how much went by.

LOOKED_AT = "it was looked at"
TESTED = "it was tested"
ITS_TURN = "its turn"
"""What the time comes before when a step was to start: of which kind, the course knows."""


class RaceTime:
    """The time limit of a race, and where it stands."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._elapsed_s = 0.0

    def advance(self, elapsed_s: float) -> None:
        """A replay hears of ends in another order: the latest counts."""
        self._elapsed_s = max(self._elapsed_s, elapsed_s)

    def run_out(self) -> None:
        """Something was to start, and it was too late."""
        self.advance(self._limit_s)

    @property
    def left_s(self) -> float:
        return self._limit_s - self._elapsed_s

    @property
    def is_up(self) -> bool:
        return self.left_s <= 0

    @property
    def why_skipped(self) -> str:
        """The words of a step that was to start and was too late."""
        return self.came_before(ITS_TURN)

    def end(self, entry: Candidate, before: str) -> None:
        """There is no time left for a candidate."""
        entry.take_out(Status.SKIPPED, self.came_before(before))
        entry.is_late = True

    def came_before(self, what: str) -> str:
        """Why something was not done."""
        seconds = self._limit_s
        words = f"{seconds:g} s" if seconds < 60 else duration(seconds)
        return f"the time limit of {words} came before {what}"


StepId = tuple[StepKind, str, int]
"""Kind, candidate, number."""
LONGEST_NUMBER = 10
"""Digits, behind a name that was taken."""


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
        """`keys`: of their trials; they tell apart what has the same name. `came`: candidates, in
        the order in which they came; empty: that is not known."""
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
        """Those that have come to such a step."""
        return self._candidates.get(kind, frozenset())

    def numbered(self, name: str) -> Sequence[str]:
        """Who was staged under this name and a number, by the number."""
        return self._numbered.get(name, ())


def _numbered(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        stem, _, number = name.rpartition("-")
        # Python reads no numbers of some thousand digits; no candidate comes that far.
        if stem and number.isdecimal() and len(number) < LONGEST_NUMBER:
            found[stem].append((int(number), name))
    return {stem: [name for _, name in sorted(each)] for stem, each in found.items()}


def recorded_in(known: Mapping[str, TrialResult]) -> RecordedSteps:
    """`known`: the results in a race's store, by the keys of their trials."""
    steps = {_id_in(result): result.index for result in known.values()}
    named = sorted((index, step) for step, index in steps.items() if index >= 0)
    came = [name for _, (kind, name, _) in named if kind is StepKind.STAGE]
    return RecordedSteps(steps, known, came)


def _id_in(result: TrialResult) -> StepId:
    kind = StepKind(str(result.variant[STEP]))
    name = BASELINE if kind is StepKind.GENERATE else result.case_id
    return (kind, name, result.repeat)


def with_their_steps(known: Mapping[str, TrialResult]) -> dict[str, TrialResult]:
    """Those that are signed, with their case, variant and number again; by key, as they came."""
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
    """The steps that were named and have not ended."""

    def __init__(self, recorded: RecordedSteps) -> None:
        self._recorded = recorded
        self._named: set[StepId] = set()
        self._out: dict[StepId, Step] = {}
        self._kinds: Counter[StepKind] = Counter()
        """Of those that are out."""
        self._awaited: set[StepId] = set()
        """Of those, the ones that are recorded: their ends come at once."""

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
        """Something that is recorded has not been heard of yet: what is not recorded waits."""
        return bool(self._awaited)

    def name(self, steps: Iterable[Step]) -> list[Step]:
        steps = [*steps]
        for step in steps:
            one = id_of(step)
            assert one not in self._named, f"named twice: {one}"
            self._named.add(one)
            self._out[one] = step
            self._kinds[step.kind] += 1
            if one in self._recorded:
                self._awaited.add(one)
        return steps

    def end(self, step: Step) -> bool:
        """Whether it was under way."""
        one = id_of(step)
        self._awaited.discard(one)
        if self._out.pop(one, None) is None:
            return False
        self._kinds[step.kind] -= 1
        return True
