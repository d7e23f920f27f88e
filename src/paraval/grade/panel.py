"""All graders of a suite, and their combined verdict.

An error of a grader is a value here, never a failed answer: a subject that one grader could not
judge has no verdict, whatever the others return.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType, TracebackType
from typing import Any, Final, Literal

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.functions import Functions
from paraval.grade.command import CommandContext, CommandGrader, ExitCodeGrader
from paraval.grade.diff import DiffGrader
from paraval.grade.function import FunctionGrader
from paraval.grade.grader import (
    CannotGrade,
    Grader,
    GraderProblem,
    SkipGrader,
    Subject,
    filled,
    quoted,
)
from paraval.grade.judge import EmbeddingGrader, JudgeAsker, Judged, JudgeGrader, ModelGrader
from paraval.grade.text import (
    ContainsGrader,
    EqualsGrader,
    JsonGrader,
    NumberGrader,
    RegexGrader,
    SimilarityGrader,
    StartsWithGrader,
)
from paraval.grade.time_and_cost import CostGrader, LatencyGrader
from paraval.grade.tool_calls import ToolCallGrader
from paraval.models.requests import merged_uses
from paraval.processes.children import Warden
from paraval.records import (
    AccountUse,
    Exchange,
    Failure,
    Grade,
    GraderSpec,
    Grading,
    Outcome,
    SkippedGrader,
    Spend,
)
from paraval.threads import FunctionExit, Threads

LONGEST_MESSAGE = 1000
Mark = Grade | GraderProblem | SkippedGrader
"""What one grader has to say about a subject."""
NO_MARKS: Mapping[int, Grade | SkippedGrader] = MappingProxyType({})
Elsewhere = Literal["elsewhere"]
ELSEWHERE: Final = "elsewhere"
JUDGED_ELSEWHERE = Failure(kind=Outcome.INFRA_ERROR, message="its judges are asked elsewhere")
FLOAT_DUST = 1e-9
"""0.1 + 0.2 + 0.6 must reach a `pass_at` of 0.9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelVerdict:
    """The combined verdict of all graders on a subject."""

    outcome: Outcome
    """PASSED, FAILED or GRADER_ERROR; if a judge could not be reached, the kind of that failure."""
    score: float | None
    """Over the graders that judged, so it is comparable only with a score of the same graders; None
    without a verdict."""
    grades: tuple[Grade, ...] = ()
    """In the suite's order; without graders that could not judge."""
    error: Failure | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, in the folder passed to `judge`."""
    judging: Spend | None = None
    """Usage of judges, including failed calls; None if there is no judge."""
    uses: tuple[AccountUse, ...] = ()
    """Use of the judges' accounts."""
    marks: Mapping[int, Grade | SkippedGrader] = field(default_factory=dict)
    """If a judge could not be reached: what the others said, by position, so that they need not be
    asked again."""
    notes: tuple[str, ...] = ()
    """Which graders were skipped, and why."""
    exchanges: tuple[Exchange, ...] = ()
    """What judges were asked, and replied."""


class Panel:
    """The graders of a suite and of its cases, ready to judge several subjects concurrently."""

    def __init__(
        self,
        grading: Grading,
        *,
        functions: Functions,
        threads: Threads,
        warden: Warden,
        room: CommandContext | None = None,
        models: JudgeAsker | Elsewhere | None = None,
    ) -> None:
        """`room`: what grader commands get from the run; `models`: the client for judges, or
        ELSEWHERE if they are asked elsewhere, with the marks of the others."""
        room = room or CommandContext()
        makers = _GraderContext(
            functions=functions,
            threads=threads,
            warden=warden,
            room=room,
            models=models,
        )
        self.asks_judges = models != ELSEWHERE
        made: dict[tuple[int, int], Grader | ModelGrader] = {}
        """Cases share the suite's graders."""

        def of(specs: tuple[GraderSpec, ...]) -> _CasePanel:
            graders: dict[int, Grader | ModelGrader] = {}
            for position, spec in enumerate(specs, start=1):
                which = (id(spec), position)
                if which not in made:
                    made[which] = makers.make(spec, str(position))
                graders[position] = made[which]
            grading_of_case = replace(grading, graders=specs, by_case={})
            return _CasePanel(grading_of_case, graders, asks_judges=self.asks_judges)

        self._usual = of(grading.graders)
        self._by_case = {case: of(specs) for case, specs in grading.by_case.items()}

    def commands(self, case_id: str) -> dict[str, tuple[str, ...]]:
        """Return the words of the commands that grade a case, as written, by grader."""
        return self._by_case.get(case_id, self._usual).commands

    def calls_functions(self, case_id: str) -> bool:
        """Whether functions grade a case, which may print."""
        return self._by_case.get(case_id, self._usual).calls_functions

    async def judge(
        self, subject: Subject, folder: str, earlier: Mapping[int, Grade | SkippedGrader] = NO_MARKS
    ) -> PanelVerdict:
        """Return the verdict on a subject. Exceptions of graders become part of it; cancellation
        propagates.

        `earlier`: the marks of a verdict on the same answer that lacked a judge.
        """
        panel = self._by_case.get(subject.case.id, self._usual)
        return await panel.judge(subject, folder, earlier)


class _CasePanel:
    """The graders of one case, or of all cases without their own."""

    def __init__(
        self,
        grading: Grading,
        graders: Mapping[int, Grader | ModelGrader],
        *,
        asks_judges: bool,
    ) -> None:
        self._grading = grading
        self._asks_judges = asks_judges
        self._graders: dict[int, Grader] = {}
        self._judges: dict[int, ModelGrader] = {}
        for position, grader in graders.items():
            if isinstance(grader, ModelGrader):
                self._judges[position] = grader
            else:
                self._graders[position] = grader
        every = [one for grader in graders.values() for one in leaves(grader)]
        self._commands = [one for one in every if isinstance(one, CommandGrader)]
        self.calls_functions = any(isinstance(one, FunctionGrader) for one in every)
        self.commands = {one.name: one.words for one in self._commands}
        self._at_once = sum(grader.may_block for grader in self._graders.values()) > 1

    async def judge(
        self, subject: Subject, folder: str, earlier: Mapping[int, Grade | SkippedGrader]
    ) -> PanelVerdict:
        if self._commands:
            subject = replace(subject, folder=folder)
        marks: dict[int, Mark] = await self._ask_graders(subject, earlier)
        if earlier:
            marks |= earlier
            marks = {position: marks[position] for position in sorted(marks)}
        if not self._judges or self._is_decided(marks.values()):
            verdict = weigh(self._grading, list(marks.values()))
        elif self._asks_judges:
            verdict = await self._with_judges(subject, marks)
        else:
            verdict = _unjudged(JUDGED_ELSEWHERE, marks)
        if self._commands:
            logs = [one for command in self._commands for one in command.artifacts(folder).items()]
            verdict = replace(verdict, artifacts=dict(logs))
        return verdict

    async def _ask_graders(self, subject: Subject, done: Collection[int]) -> dict[int, Mark]:
        asked = [(number, one) for number, one in self._graders.items() if number not in done]
        if not self._at_once:
            return {number: await _ask(one, subject) for number, one in asked}
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
                for number, one in asked
            }
        return {number: task.result() for number, task in tasks.items()}

    def _is_decided(self, marks: Iterable[Mark]) -> bool:
        """Whether a judge could not change the verdict: a grader had an error, or all must pass and
        one failed. Then it is not called: that saves money, and a bad reply cannot hide a failed
        answer."""
        weighted = any(spec.weight is not None for spec in self._grading.graders)
        return any(
            isinstance(mark, GraderProblem)
            or (isinstance(mark, Grade) and not (weighted or mark.passed))
            for mark in marks
        )

    async def _with_judges(self, subject: Subject, marks: dict[int, Mark]) -> PanelVerdict:
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
            _unjudged(failure, marks)
            if failure is not None
            else weigh(self._grading, list(marks.values())),
            judging=sum((one.spend for one in heard), Spend()),
            uses=merged_uses(use for one in heard for use in one.uses),
            exchanges=tuple(exchange for one in heard for exchange in one.exchanges),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraderContext:
    """What is needed to create graders."""

    functions: Functions
    threads: Threads
    warden: Warden
    room: CommandContext
    models: JudgeAsker | Elsewhere | None

    def make(self, spec: GraderSpec, position: str) -> Grader | ModelGrader:
        models = self.models
        if models == ELSEWHERE:
            if spec.model is not None:
                return _JudgeElsewhere(spec.name)
            models = None
        if spec.kind in _FROM_SPEC and spec.model is None:
            return _FROM_SPEC[spec.kind](spec)
        match spec.kind:
            case "not" | "any" | "all":
                return self._combined(spec, position)
            case "judge":
                return JudgeGrader(spec, models=models)
            case "similarity":
                return EmbeddingGrader(spec, models=models)
            case "json":
                return JsonGrader(spec, threads=self.threads)
            case "python":
                return FunctionGrader(spec, functions=self.functions, threads=self.threads)
            case "command":
                return CommandGrader(spec, position=position, warden=self.warden, room=self.room)
            case "mentions":
                from paraval.grade.mentions import MentionsGrader  # noqa: PLC0415 - slow to load

                return MentionsGrader(spec, threads=self.threads)
        raise ParavalError(f"grader '{spec.name}': unknown kind '{spec.kind}'")

    def _combined(self, spec: GraderSpec, position: str) -> Grader | ModelGrader:
        parts = [
            self.make(part, f"{position}-{number}")
            for number, part in enumerate(spec.parts, start=1)
        ]
        asks_models = any(isinstance(part, ModelGrader) for part in parts)
        return (CombinedModelGrader if asks_models else CombinedGrader)(spec, parts)


_FROM_SPEC: Mapping[str, Callable[[GraderSpec], Grader]] = {
    "equals": EqualsGrader,
    "contains": ContainsGrader,
    "starts_with": StartsWithGrader,
    "similarity": SimilarityGrader,
    "regex": RegexGrader,
    "number": NumberGrader,
    "exit_code": ExitCodeGrader,
    "diff": DiffGrader,
    "latency": LatencyGrader,
    "cost": CostGrader,
    "tool_call": ToolCallGrader,
}
"""Graders that need nothing but their options."""


class _JudgeElsewhere:
    """Stands for a judge in a panel that asks none."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def judge(self, _subject: Subject) -> Judged:
        return Judged(mark=JUDGED_ELSEWHERE, spend=Spend(), uses=())


def _unjudged(failure: Failure, marks: Mapping[int, Mark]) -> PanelVerdict:
    """Return a verdict for a judge that failed: another attempt may get one, whatever else went
    wrong."""
    done = {
        number: mark for number, mark in marks.items() if isinstance(mark, Grade | SkippedGrader)
    }
    return PanelVerdict(
        outcome=failure.kind,
        score=None,
        grades=tuple(mark for mark in done.values() if isinstance(mark, Grade)),
        error=failure,
        marks=done,
    )


def weigh(grading: Grading, marks: Sequence[Mark]) -> PanelVerdict:
    """Combine all grades: all must pass, or with weights their mean must reach `pass_at`."""
    grades = tuple([mark for mark in marks if isinstance(mark, Grade)])
    others = [mark for mark in marks if not isinstance(mark, Grade)]
    notes = tuple([str(mark) for mark in others if isinstance(mark, SkippedGrader)])
    problems = [str(mark) for mark in others if isinstance(mark, GraderProblem)]
    if marks and not (grades or problems):
        problems = ["no grader could judge the answer", *notes]
    if problems:
        error = Failure(kind=Outcome.GRADER_ERROR, message="; ".join(problems))
        return PanelVerdict(outcome=error.kind, score=None, grades=grades, error=error, notes=notes)
    score, passed = _score(grading, marks, grades)
    return PanelVerdict(
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        score=score,
        grades=grades,
        notes=notes,
    )


def _score(grading: Grading, marks: Sequence[Mark], grades: Sequence[Grade]) -> tuple[float, bool]:
    """The mean over the graders that judged: others are missing, not zero."""
    if not grades:
        return 1.0, True
    if all(spec.weight is None for spec in grading.graders):
        mean = math.fsum([grade.score for grade in grades]) / len(grades)
        return mean, all(grade.passed for grade in grades)
    weighted = [
        (1.0 if spec.weight is None else spec.weight, mark.score)
        for spec, mark in zip(grading.graders, marks, strict=True)
        if isinstance(mark, Grade)
    ]
    total = math.fsum(weight for weight, _ in weighted)
    mean = math.fsum(weight * score for weight, score in weighted) / total
    return min(mean, 1.0), mean >= grading.pass_at - FLOAT_DUST


def _works_in_workspace(grader: Grader) -> bool:
    return any(
        isinstance(one, CommandGrader) or (isinstance(one, FunctionGrader) and one.wants_workspace)
        for one in leaves(grader)
    )


async def _ask_in_turn(grader: Grader, subject: Subject, turn: asyncio.Lock) -> Mark:
    async with turn:
        return await _ask(grader, subject)


async def _ask(grader: Grader, subject: Subject) -> Mark:
    try:
        return await grader.grade(subject)
    except SkipGrader as skip:
        return SkippedGrader(grader=grader.name, reason=str(skip))
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


# ---- not, any, all


class CombinedGrader:
    """Combines other graders, none of which calls a model."""

    def __init__(self, spec: GraderSpec, parts: Sequence[Grader | ModelGrader]) -> None:
        self.name = spec.name
        self.parts = tuple(parts)
        self._spec = spec
        self._graders = [part for part in parts if not isinstance(part, ModelGrader)]
        self.may_block = any(part.may_block for part in self._graders)

    async def grade(self, subject: Subject) -> Grade:
        marks = [await _ask(part, subject) for part in self._graders]
        match combine(self._spec, marks, subject):
            case GraderProblem(message=message):
                raise CannotGrade(message)
            case SkippedGrader(reason=reason):
                raise SkipGrader(reason)
            case grade:
                return grade


class CombinedModelGrader:
    """The same if some of them call a model: those come last, and only if they can still decide."""

    def __init__(self, spec: GraderSpec, parts: Sequence[Grader | ModelGrader]) -> None:
        self.name = spec.name
        self.parts = tuple(parts)
        self._spec = spec

    async def judge(self, subject: Subject) -> Judged:
        marks: dict[int, Mark] = {}
        judges: dict[int, ModelGrader] = {}
        for number, part in enumerate(self.parts):
            if isinstance(part, ModelGrader):
                judges[number] = part
            else:
                marks[number] = await _ask(part, subject)
        spend = Spend()
        uses: list[AccountUse] = []
        exchanges: list[Exchange] = []

        def judged_as(mark: Mark | Failure) -> Judged:
            return Judged(
                mark=mark, spend=spend, uses=merged_uses(uses), exchanges=tuple(exchanges)
            )

        for number, judge in judges.items():
            if _is_settled(self._spec, marks.values()):
                break
            judged = await judge.judge(subject)
            spend += judged.spend
            uses += judged.uses
            exchanges += judged.exchanges
            if isinstance(judged.mark, Failure):
                return judged_as(judged.mark)
            marks[number] = judged.mark
        in_order = [marks[number] for number in sorted(marks)]
        return judged_as(combine(self._spec, in_order, subject))


def leaves(grader: Grader | ModelGrader) -> Iterator[Grader | ModelGrader]:
    """The graders that a grader combines; or itself."""
    if not isinstance(grader, CombinedGrader | CombinedModelGrader):
        yield grader
        return
    for part in grader.parts:
        yield from leaves(part)


def _is_settled(spec: GraderSpec, marks: Iterable[Mark]) -> bool:
    """Whether the parts that have not been asked can no longer change the verdict."""
    return any(
        isinstance(mark, GraderProblem)
        or (isinstance(mark, Grade) and mark.passed is (spec.kind == "any"))
        for mark in marks
    )


def combine(spec: GraderSpec, marks: Sequence[Mark], subject: Subject) -> Mark:
    """Combine the marks of the parts. An error of a part is an error, whatever the others return;
    a skipped part counts only where the others cannot decide."""
    problems = [mark for mark in marks if isinstance(mark, GraderProblem)]
    if problems:
        message = "; ".join(f"{one.grader}: {one.message}" for one in problems)
        return GraderProblem(grader=spec.name, message=message)
    grades = [mark for mark in marks if isinstance(mark, Grade)]
    skipped = [mark for mark in marks if isinstance(mark, SkippedGrader)]
    passed = [grade for grade in grades if grade.passed]
    failed = [grade for grade in grades if not grade.passed]
    settled = passed if spec.kind == "any" else failed
    if skipped and not settled:
        return SkippedGrader(grader=spec.name, reason="; ".join(one.reason for one in skipped))
    scores = [grade.score for grade in grades]
    reasons = "; ".join(grade.reason or f"'{grade.grader}' failed" for grade in failed)
    match spec.kind:
        case "not":
            verdict, score = bool(failed), float(bool(failed))
            reason = f"expected not to {_claim(spec.parts[0], subject)}"
            got = f"got {quoted(subject.output.text.strip())}"
            notes = [f"score {one.score:.3g}: {one.reason}" for one in passed if one.reason]
            reasons = ", ".join([reason, *notes, got])
        case "any":
            verdict, score = bool(passed), max(grade.score for grade in passed or grades)
            reasons = f"none of {len(grades)} passed: {reasons}"
        case _:
            verdict, score = not failed, math.fsum(scores) / len(scores)
            reasons = f"{len(failed)} of {len(spec.parts)} failed: {reasons}"
    return Grade(score=score, passed=verdict, reason="" if verdict else reasons, grader=spec.name)


_CLAIMS = {"contains": "contain", "equals": "be", "starts_with": "start with", "regex": "match"}


def _claim(spec: GraderSpec, subject: Subject) -> str:
    """What an answer does that passes: `contain "sorry"`."""
    match spec.kind:
        case "not":
            return f"not {_claim(spec.parts[0], subject)}"
        case "any" | "all":
            word = " or " if spec.kind == "any" else " and "
            return word.join(_claim(part, subject) for part in spec.parts)
    options = spec.options
    value = filled(options.get("value"), subject) or options.get("pattern") or subject.case.expect
    verb = _CLAIMS.get(spec.kind)
    return f"pass '{spec.name}'" if verb is None else f"{verb} {quoted(value)}"
