"""The grader that looks at how a command ended."""

from __future__ import annotations

from paraval.grade.grader import CannotGrade, Subject
from paraval.records import Grade, GraderSpec


class ExitCodeGrader:
    """The command ended with the wanted code, or one of them; 0 unless the suite says otherwise."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        value = spec.options.get("value", 0)
        self._wanted = tuple(value) if isinstance(value, list | tuple) else (value,)

    async def grade(self, subject: Subject) -> Grade:
        code = subject.exit_code
        if code is None:
            raise CannotGrade("there is no exit code to judge: the target is not a command")
        if code in self._wanted:
            return Grade(score=1.0, passed=True, grader=self.name)
        wanted = " or ".join(str(one) for one in self._wanted)
        reason = f"exit code {code}, expected {wanted}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)
