"""Graders of how long an answer took and what it cost. What is unknown is skipped, never passed."""

from __future__ import annotations

from paraval.grade.grader import SkipGrader, Subject
from paraval.records import Grade, GraderSpec
from paraval.text.words import dollars, duration


class LatencyGrader:
    """The target answered in time."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._max = float(spec.options["max"])

    async def grade(self, subject: Subject) -> Grade:
        taken = subject.answer_s
        if taken is None:
            raise SkipGrader("the answer is cached, and the time of its first call is unknown")
        if taken <= self._max:
            return Grade(score=1.0, passed=True, grader=self.name)
        reason = f"took {duration(taken)}, allowed {duration(self._max)}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)


class CostGrader:
    """The answer was cheap enough."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._max = float(spec.options["max_usd"])

    async def grade(self, subject: Subject) -> Grade:
        cost = subject.cost_usd
        if cost is None:
            raise SkipGrader("the cost of the answer is unknown")
        if cost <= self._max:
            return Grade(score=1.0, passed=True, grader=self.name)
        reason = f"cost {dollars(cost)}, allowed {dollars(self._max)}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)
