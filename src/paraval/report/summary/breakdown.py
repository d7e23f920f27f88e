"""Grades by grader and by tag: of a run, and of each variant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from paraval.codec import finite
from paraval.dataclass import dataclass
from paraval.records import AttemptResult, Outcome, SkippedGrader

MOST_GROUPS = 1_000
"""Most graders, and most tags, that are counted: a tag for each case says nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTally:
    """The judged trials of one grader or one tag."""

    judged: int
    """A grader that was skipped did not judge."""
    passed: int
    score: float | None
    """The mean score; None if nothing was judged."""
    pass_rate_interval: tuple[float, float] | None = None
    """Of a tag, at 95%, with the case as unit; not adjusted for the number of tags."""
    skipped: int = 0
    """Judged trials in which the grader was skipped ..."""
    skip_reason: str = ""
    """... and why, the first time."""
    only_score: float | None = None
    """The score of all of them, if it is always the same."""
    only_reason: str = ""
    """The reason of all of them, likewise."""
    is_judge: bool = False

    @property
    def pass_rate(self) -> float | None:
        return self.passed / self.judged if self.judged else None


Groups = Mapping[str, GroupTally]
"""By the name of the grader, or the tag."""


class BreakdownCount:
    """Adds up trials by grader and by tag."""

    def __init__(self) -> None:
        self._graders: dict[str, list[float]] = {}
        """For each: judged, passed, and the sum of the scores."""
        self._only: dict[str, tuple[float | None, str, bool]] = {}
        """Of each grader: the score and the reason that all of its grades have, and whether it is a
        judge."""
        self._skipped: dict[str, tuple[int, str]] = {}
        """How often a grader was skipped, and why the first time."""
        self._tags: dict[str, list[float]] = {}
        self._places: dict[str, int] = {}
        """Of each tag among its case's tags: those from one column of a dataset have the same."""

    def add(self, result: AttemptResult, tags: Iterable[str]) -> None:
        if not result.outcome.is_judged:
            return
        for grade in result.grades:
            _add(self._graders, grade.grader, grade.passed, finite(grade.score) or 0.0)
            if grade.grader in self._graders:
                score, why, _ = self._only.get(grade.grader, (grade.score, grade.reason, False))
                self._only[grade.grader] = (
                    score if score == grade.score else None,
                    why if why == grade.reason else "",
                    grade.judge is not None,
                )
        for note in result.notes:
            if (skip := SkippedGrader.from_note(note)) is not None:
                _sums(self._graders, skip.grader)
                number, why = self._skipped.get(skip.grader, (0, skip.reason))
                if number or len(self._skipped) < MOST_GROUPS:
                    self._skipped[skip.grader] = (number + 1, why)
        for place, tag in enumerate(tags):
            passed = result.outcome is Outcome.PASSED
            _add(self._tags, tag, passed, finite(result.score) or 0.0)
            if tag in self._tags:
                self._places.setdefault(tag, place)

    @property
    def graders(self) -> dict[str, GroupTally]:
        tallies = dict(_tallies(self._graders, self._skipped))
        for name, (score, why, is_judge) in self._only.items():
            tallies[name] = replace(
                tallies[name], only_score=score, only_reason=why, is_judge=is_judge
            )
        return tallies

    @property
    def tags(self) -> dict[str, GroupTally]:
        ordered = {tag: self._tags[tag] for tag in sorted(self._tags, key=self._places.__getitem__)}
        return dict(_tallies(ordered, {}))


def _add(groups: dict[str, list[float]], name: str, passed: bool, score: float) -> None:
    sums = _sums(groups, name)
    sums[0] += 1
    sums[1] += passed
    sums[2] += score


def _sums(groups: dict[str, list[float]], name: str) -> list[float]:
    sums = groups.get(name, [0, 0, 0.0])
    if len(groups) < MOST_GROUPS:
        groups[name] = sums
    return sums


def _tallies(
    groups: Mapping[str, list[float]], skipped: Mapping[str, tuple[int, str]]
) -> Iterator[tuple[str, GroupTally]]:
    for name, (judged, passed, total) in groups.items():
        number, why = skipped.get(name, (0, ""))
        yield (
            name,
            GroupTally(
                judged=int(judged),
                passed=int(passed),
                score=total / judged if judged else None,
                skipped=number,
                skip_reason=why,
            ),
        )
