"""All graders of a suite, and their combined verdict.

An error of a grader is a value here, never a failed answer: a subject that one grader could not
judge has no verdict, whatever the others return.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, TracebackType
from typing import Any

from paraval.errors import ParavalError
from paraval.functions import Functions
from paraval.grade.command import CommandContext, CommandGrader, ExitCodeGrader
from paraval.grade.diff import DiffGrader
from paraval.grade.function import FunctionGrader
from paraval.grade.grader import CannotGrade, Grader, GraderProblem, Subject
from paraval.grade.judge import JudgeAsker, Judged, JudgeGrader
from paraval.grade.mentions import MentionsGrader
from paraval.grade.text import ContainsGrader, EqualsGrader, JsonGrader, NumberGrader, RegexGrader
from paraval.grade.tool_calls import ToolCallGrader
from paraval.models.requests import merged_uses
from paraval.processes.children import Warden
from paraval.records import AccountUse, Failure, Grade, GraderSpec, Grading, Outcome, Spend
from paraval.threads import FunctionExit, Threads

LONGEST_MESSAGE = 1000
NO_GRADES: Mapping[int, Grade] = MappingProxyType({})
FLOAT_DUST = 1e-9
"""0.1 + 0.2 + 0.6 must reach a `pass_at` of 0.9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelVerdict:
    """The combined verdict of all graders on a subject."""

    outcome: Outcome
    """PASSED, FAILED or GRADER_ERROR; if a judge could not be reached, the kind of that failure."""
    score: float | None
    """Over all graders, skipped ones counted as 0; None without a verdict."""
    grades: tuple[Grade, ...] = ()
    """In the suite's order; without graders that could not judge."""
    error: Failure | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, in the folder passed to `judge`."""
    judging: Spend | None = None
    """Usage of judges, including failed calls; None if there is no judge."""
    uses: tuple[AccountUse, ...] = ()
    """Use of the judges' accounts."""
    marks: Mapping[int, Grade] = field(default_factory=dict)
    """If a judge could not be reached: the other grades, by position, so that they need not be
    repeated."""


class Panel:
    """The graders of a suite, ready to judge several subjects concurrently."""

    def __init__(
        self,
        grading: Grading,
        *,
        functions: Functions,
        threads: Threads,
        warden: Warden,
        room: CommandContext | None = None,
        models: JudgeAsker | None = None,
    ) -> None:
        """`room`: what grader commands get from the run; `models`: the client for judges."""
        room = room or CommandContext()
        makers = _GraderContext(functions=functions, threads=threads, warden=warden, room=room)
        self._grading = grading
        self._graders: dict[int, Grader] = {}
        self._judges: dict[int, JudgeGrader] = {}
        for position, spec in enumerate(grading.graders, start=1):
            if spec.kind == "judge":
                self._judges[position] = JudgeGrader(spec, models=models)
            else:
                self._graders[position] = makers.make(spec, position)
        self._commands = [one for one in self._graders.values() if isinstance(one, CommandGrader)]
        self._at_once = sum(grader.may_block for grader in self._graders.values()) > 1

    async def judge(
        self, subject: Subject, folder: str, earlier: Mapping[int, Grade] = NO_GRADES
    ) -> PanelVerdict:
        """Return the verdict on a subject. Exceptions of graders become part of it; cancellation
        propagates.

        `earlier`: the grades of a verdict on the same answer that lacked a judge.
        """
        if self._commands:
            subject = replace(subject, folder=folder)
        marks: dict[int, Grade | GraderProblem] = {**earlier}
        marks.update(await self._ask_graders(subject, set(earlier)))
        marks = {position: marks[position] for position in sorted(marks)}
        artifacts: dict[str, str] = {}
        for command in self._commands:
            artifacts.update(command.artifacts(folder))
        if not self._judges or self._is_decided(marks.values()):
            return weigh(self._grading, list(marks.values()), artifacts)
        return await self._with_judges(subject, marks, artifacts)

    async def _ask_graders(
        self, subject: Subject, done: Collection[int]
    ) -> dict[int, Grade | GraderProblem]:
        asked = {number: one for number, one in self._graders.items() if number not in done}
        if not self._at_once:
            return {number: await _ask(one, subject) for number, one in asked.items()}
        # In one workspace they could disturb each other: run them one after the other.
        waiting = asyncio.Lock()
        shares = subject.workspace is not None
        # A task group waits for all, also when cancelled: no grader's program outlives it.
        async with asyncio.TaskGroup() as group:
            tasks = {
                number: group.create_task(
                    _ask_in_turn(one, subject, waiting)
                    if shares and _works_in_workspace(one)
                    else _ask(one, subject)
                )
                for number, one in asked.items()
            }
        return {number: task.result() for number, task in tasks.items()}

    def _is_decided(self, marks: Iterable[Grade | GraderProblem]) -> bool:
        """Whether a judge could not change the verdict: a grader had an error, or all must pass and
        one failed. Then it is not called: that saves money, and a bad reply cannot hide a failed
        answer."""
        weighted = any(spec.weight is not None for spec in self._grading.graders)
        return any(
            isinstance(mark, GraderProblem) or not (weighted or mark.passed) for mark in marks
        )

    async def _with_judges(
        self, subject: Subject, marks: dict[int, Grade | GraderProblem], artifacts: dict[str, str]
    ) -> PanelVerdict:
        """Run the judges last, one after the other, until one cannot be reached."""
        heard: list[Judged] = []
        failure: Failure | None = None
        for position, judge in self._judges.items():
            if position in marks:
                continue
            judged = await judge.judge(subject)
            heard.append(judged)
            if isinstance(judged.mark, Failure):
                failure = judged.mark
                break
            marks[position] = judged.mark
        marks = {position: marks[position] for position in sorted(marks)}
        return replace(
            _unjudged(failure, marks, artifacts)
            if failure is not None
            else weigh(self._grading, list(marks.values()), artifacts),
            judging=sum((one.spend for one in heard), Spend()),
            uses=merged_uses(use for one in heard for use in one.uses),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraderContext:
    """What is needed to create graders."""

    functions: Functions
    threads: Threads
    warden: Warden
    room: CommandContext

    def make(self, spec: GraderSpec, position: int) -> Grader:
        match spec.kind:
            case "equals":
                return EqualsGrader(spec)
            case "contains":
                return ContainsGrader(spec)
            case "regex":
                return RegexGrader(spec)
            case "json":
                return JsonGrader(spec, threads=self.threads)
            case "number":
                return NumberGrader(spec)
            case "exit_code":
                return ExitCodeGrader(spec)
            case "python":
                return FunctionGrader(spec, functions=self.functions, threads=self.threads)
            case "command":
                return CommandGrader(spec, position=position, warden=self.warden, room=self.room)
            case "mentions":
                return MentionsGrader(spec, threads=self.threads)
            case "diff":
                return DiffGrader(spec)
            case "tool_call":
                return ToolCallGrader(spec)
        raise ParavalError(f"grader '{spec.name}': unknown kind '{spec.kind}'")


def _unjudged(
    failure: Failure, marks: Mapping[int, Grade | GraderProblem], artifacts: Mapping[str, str]
) -> PanelVerdict:
    """Return a verdict for a judge that failed: another attempt may get one, whatever else went
    wrong."""
    grades = {number: mark for number, mark in marks.items() if isinstance(mark, Grade)}
    return PanelVerdict(
        outcome=failure.kind,
        score=None,
        grades=tuple(grades.values()),
        error=failure,
        artifacts=artifacts,
        marks=grades,
    )


def weigh(
    grading: Grading,
    marks: Sequence[Grade | GraderProblem],
    artifacts: Mapping[str, str] | None = None,
) -> PanelVerdict:
    """Combine all grades: all must pass, or with weights their mean must reach `pass_at`."""
    grades = tuple(mark for mark in marks if isinstance(mark, Grade))
    if len(grades) < len(marks):
        problems = [str(mark) for mark in marks if isinstance(mark, GraderProblem)]
        error = Failure(kind=Outcome.GRADER_ERROR, message="; ".join(problems))
        return PanelVerdict(
            outcome=error.kind, score=None, grades=grades, error=error, artifacts=artifacts or {}
        )
    score, passed = _score(grading, grades)
    return PanelVerdict(
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        score=score,
        grades=grades,
        artifacts=artifacts or {},
    )


def _score(grading: Grading, grades: tuple[Grade, ...]) -> tuple[float, bool]:
    if not grades:
        return 1.0, True
    if all(spec.weight is None for spec in grading.graders):
        # A judge that was skipped because the answer had already failed counts as 0: otherwise a
        # failed answer would be scored over fewer graders than another, and could even gain.
        mean = math.fsum(grade.score for grade in grades) / len(grading.graders)
        return mean, all(grade.passed for grade in grades)
    weights = [1.0 if spec.weight is None else spec.weight for spec in grading.graders]
    weighted = (weight * grade.score for weight, grade in zip(weights, grades, strict=True))
    mean = math.fsum(weighted) / math.fsum(weights)
    return min(mean, 1.0), mean >= grading.pass_at - FLOAT_DUST


def _works_in_workspace(grader: Grader) -> bool:
    return isinstance(grader, CommandGrader) or (
        isinstance(grader, FunctionGrader) and grader.wants_workspace
    )


async def _ask_in_turn(
    grader: Grader, subject: Subject, turn: asyncio.Lock
) -> Grade | GraderProblem:
    async with turn:
        return await _ask(grader, subject)


async def _ask(grader: Grader, subject: Subject) -> Grade | GraderProblem:
    try:
        return await grader.grade(subject)
    except CannotGrade as error:
        return GraderProblem(grader=grader.name, message=_cut(str(error)))
    except Exception as error:  # noqa: BLE001 - a user's grader may raise anything
        return GraderProblem(grader=grader.name, message=_cut(_described(error)))


def _described(error: Exception) -> str:
    """`ValueError: no such thing (judge.py, line 12, in check)`."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's exception may fail to tell its own message
        message = "(its message cannot be shown)"
    name = type(error).__name__
    text = f"{name}: {message}" if message else name
    # We wrapped an exit: its origin is in what it wraps.
    wrapped = error.__cause__ if isinstance(error, FunctionExit) else None
    place = _place(wrapped or error)
    return f"{_cut(text)} ({place})" if place else text


def _place(error: BaseException) -> str:
    """Return where it was raised: the last step of its traceback."""
    step: TracebackType | None = error.__traceback__
    if step is None:
        return ""
    while step.tb_next is not None:
        step = step.tb_next
    code: Any = step.tb_frame.f_code
    file = code.co_filename.rpartition("/")[2]
    return f"{file}, line {step.tb_lineno}, in {code.co_name}"


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
