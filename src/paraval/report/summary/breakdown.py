"""Grades by grader and by tag: of a run, and of each variant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paraval.codec import finite
from paraval.records import AttemptResult, Outcome

MOST_GROUPS = 1_000
"""Most graders, and most tags, that are counted: a tag for each case says nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTally:
    """The judged trials of one grader or one tag."""

    judged: int
    """A grader that was skipped did not judge."""
    passed: int
    score: float | None
    """The mean score."""

    @property
    def pass_rate(self) -> float:
        return self.passed / self.judged


Groups = Mapping[str, GroupTally]
"""By the name of the grader, or the tag."""


class BreakdownCount:
    """Adds up trials by grader and by tag."""

    def __init__(self) -> None:
        self._graders: dict[str, list[float]] = {}
        """For each: judged, passed, and the sum of the scores."""
        self._tags: dict[str, list[float]] = {}

    def add(self, result: AttemptResult, tags: Iterable[str]) -> None:
        if not result.outcome.is_judged:
            return
        for grade in result.grades:
            _add(self._graders, grade.grader, grade.passed, finite(grade.score) or 0.0)
        for tag in tags:
            passed = result.outcome is Outcome.PASSED
            _add(self._tags, tag, passed, finite(result.score) or 0.0)

    @property
    def graders(self) -> dict[str, GroupTally]:
        return dict(_tallies(self._graders))

    @property
    def tags(self) -> dict[str, GroupTally]:
        return dict(_tallies(self._tags))


def _add(groups: dict[str, list[float]], name: str, passed: bool, score: float) -> None:
    sums = groups.get(name)
    if sums is None:
        if len(groups) >= MOST_GROUPS:
            return
        sums = groups[name] = [0, 0, 0.0]
    sums[0] += 1
    sums[1] += passed
    sums[2] += score


def _tallies(groups: Mapping[str, list[float]]) -> Iterator[tuple[str, GroupTally]]:
    for name, (judged, passed, total) in groups.items():
        yield name, GroupTally(judged=int(judged), passed=int(passed), score=total / judged)
