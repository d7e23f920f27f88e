"""Between the course and the engine: steps become trials, results become ends of steps."""

from __future__ import annotations

from collections.abc import Sequence

from paraval.racing.course import Course
from paraval.racing.findings import Proposal
from paraval.racing.performing import Ends
from paraval.racing.request import RaceRequest
from paraval.racing.steps import Base, Step, end_of, trial_of
from paraval.records import Trial, TrialResult


class RaceSource:
    """Names the trials of a race, as its course decides; an execute.source.Source."""

    def __init__(self, course: Course, request: RaceRequest, base: Base, ends: Ends) -> None:
        self._course = course
        self._request = request
        self._base = base
        self._ends = ends
        self.steps: dict[int, Step] = {}
        """By the index of their trials."""

    def begin(self) -> Sequence[Trial]:
        return self._trials(self._course.begin())

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        step = self.steps[trial.index]
        end = end_of(step, result)
        self._ends[step.kind, step.candidate, step.number] = end
        return self._trials(self._course.handle(end, end.elapsed_s))

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        return self._trials(self._course.skipped(self.steps[trial.index], reason))

    def proposed(self, step: Step, proposals: Sequence[Proposal]) -> Sequence[Trial]:
        """By a hook that still runs."""
        return self._trials(self._course.proposed(step, proposals))

    def _trials(self, steps: Sequence[Step]) -> list[Trial]:
        trials = []
        for step in steps:
            index = len(self.steps)
            self.steps[index] = step
            trials.append(trial_of(step, index, self._request, self._base))
        return trials
