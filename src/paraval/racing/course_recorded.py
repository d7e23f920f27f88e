"""What an earlier engine did in the same race: a course that is gone once more prefers it.

Live, some decisions hang on what happened first: who is repaired while calls are left, who of two
equals is the duplicate, who of two with one name keeps it. A replay hears of the same ends in
another order. It comes to the same standings because what is recorded is decided as it was, and
what is not waits until all that is recorded has been heard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from paraval.racing.steps import BASELINE, STEP, Step, StepKind
from paraval.records import TrialResult

StepId = tuple[StepKind, str, int]
"""Kind, candidate, number."""


def id_of(step: Step) -> StepId:
    return (step.kind, step.candidate, step.number)


class Recorded:
    """The steps that have a result in the store."""

    def __init__(self, steps: Iterable[StepId] = (), keys: Iterable[str] = ()) -> None:
        """`keys`: of their trials; they tell apart what has the same name."""
        self._steps = frozenset(steps)
        self.keys = frozenset(keys)
        self._candidates: dict[StepKind, set[str]] = defaultdict(set)
        for kind, name, _ in self._steps:
            self._candidates[kind].add(name)

    def __contains__(self, step: StepId) -> bool:
        return step in self._steps

    def has(self, kind: StepKind, candidate: str, number: int = 1) -> bool:
        return (kind, candidate, number) in self._steps

    def candidates(self, kind: StepKind) -> frozenset[str]:
        """Those that have come to such a step."""
        return frozenset(self._candidates.get(kind, ()))


def recorded_in(known: Mapping[str, TrialResult]) -> Recorded:
    """`known`: the results in a race's store, by the keys of their trials."""
    return Recorded(map(_id_in, known.values()), known)


def _id_in(result: TrialResult) -> StepId:
    kind = StepKind(str(result.variant[STEP]))
    name = BASELINE if kind is StepKind.GENERATE else result.case_id
    return (kind, name, result.repeat)


class Underway:
    """The steps that were named and have not ended."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._named: set[StepId] = set()
        self._out: dict[StepId, Step] = {}
        self._awaited: set[StepId] = set()
        """Of those, the ones that are recorded: their ends come at once."""

    def __bool__(self) -> bool:
        return bool(self._out)

    def __contains__(self, step: StepId) -> bool:
        return step in self._out

    @property
    def named(self) -> frozenset[StepId]:
        """All that ever were."""
        return frozenset(self._named)

    @property
    def kinds(self) -> frozenset[StepKind]:
        return frozenset(kind for kind, _, _ in self._out)

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
            if one in self._recorded:
                self._awaited.add(one)
        return steps

    def end(self, step: Step) -> bool:
        """Whether it was under way."""
        self._awaited.discard(id_of(step))
        return self._out.pop(id_of(step), None) is not None
