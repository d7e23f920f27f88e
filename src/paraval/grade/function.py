"""The grader that calls a Python function.

It is called as `function(output, case)` or `function(output, case, variant)`, with the Output and
the Case as records. A parameter named `workspace` gets the attempt's workspace, or None; one named
`steps` gets the steps of an agent or of a model that called tools. It returns True or False, a
score from 0 to 1, `(score, reason)`, a mapping with `score`, `passed` and `reason`, or a Grade. A
score passes at `pass_at`, 1.0 by default.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from paraval.errors import ParavalError
from paraval.functions import (
    GRADER_PARAMETERS,
    Functions,
    is_async,
    load_function,
    positional_arguments,
)
from paraval.grade.grader import CannotGrade, Subject, quoted
from paraval.records import Grade, GraderSpec
from paraval.threads import FunctionExit, Threads, await_in_a_task

LONGEST_WAIT_S = 600.0
"""Default timeout in seconds: a grader that hangs must not block a run forever."""


class FunctionGrader:
    """A grader written in Python."""

    may_block = True

    def __init__(self, spec: GraderSpec, *, functions: Functions, threads: Threads) -> None:
        self.name = spec.name
        self._threads = threads
        self._pass_at = float(spec.options.get("pass_at", 1.0))
        self._timeout = float(spec.options.get("timeout") or LONGEST_WAIT_S)
        reference = spec.options["function"]
        handed_over = functions.get(reference)
        self._function = (
            load_function(reference, spec.folder) if handed_over is None else handed_over
        )
        self._is_async = is_async(self._function)
        self._by_name = _parameters_by_name(self._function)
        self.wants_workspace = "workspace" in self._by_name
        before = (positional_arguments(self._function), *self._by_name.values())
        self._arguments = min(3, *before)
        if self._arguments == 0:
            raise ParavalError(
                f"grader '{spec.name}': {reference} takes no arguments",
                hint="it is called as function(output, case) or function(output, case, variant)",
            )

    async def grade(self, subject: Subject) -> Grade:
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                answer = await self._ask(subject)
        except TimeoutError:
            # A TimeoutError that the function raised itself is not our timeout.
            if deadline.expired():
                raise CannotGrade(f"it timed out after {self._timeout:g} s") from None
            raise
        return read_answer(answer, grader=self.name, pass_at=self._pass_at)

    async def _ask(self, subject: Subject) -> Any:
        everything = (subject.output, subject.case, subject.variant)
        arguments = everything[: self._arguments]
        by_name = {name: getattr(subject, name) for name in self._by_name}
        function = functools.partial(self._function, **by_name) if by_name else self._function
        try:
            return await self._answer(function, arguments)
        except GeneratorExit as error:
            raise FunctionExit.of(error) from error

    async def _answer(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._is_async:
            return await await_in_a_task(function, arguments)
        answer = await self._threads.call(lambda: function(*arguments))
        # A plain function may return a coroutine.
        if not inspect.isawaitable(answer):
            return answer
        return await await_in_a_task(lambda: answer, ())


def _parameters_by_name(function: Callable[..., Any]) -> dict[str, int]:
    """The parameters that are recognized by their names, with their positions."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: position
        for position, (name, one) in enumerate(parameters.items())
        if name in GRADER_PARAMETERS and one.kind in by_name
    }


def read_answer(answer: Any, *, grader: str, pass_at: float) -> Grade:
    """Convert a function's result to a Grade; CannotGrade if it is not valid."""
    passed: Any = None
    reason: Any = ""
    score: Any = answer
    if isinstance(answer, Grade):
        score, passed, reason = answer.score, answer.passed, answer.reason
    elif isinstance(answer, Mapping):
        score, passed, reason = _from_mapping(answer)
    elif isinstance(answer, tuple):
        if len(answer) != 2:
            raise CannotGrade(f"it returned a tuple of {len(answer)}, not (score, reason)")
        score, reason = answer
    number = _score(score)
    if passed is None:
        passed = number >= pass_at
    elif not isinstance(passed, bool):
        raise CannotGrade(f"it returned passed={quoted(passed)}, not True or False")
    return Grade(score=number, passed=passed, reason=str(reason or ""), grader=grader)


def _from_mapping(answer: Mapping[Any, Any]) -> tuple[Any, Any, Any]:
    score, passed = answer.get("score"), answer.get("passed")
    if score is None and isinstance(passed, bool):
        score = passed
    if score is None:
        raise CannotGrade(f"it returned {quoted(answer)}, with neither 'score' nor 'passed' in it")
    return score, passed, answer.get("reason")


def _score(value: Any) -> float:
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if not isinstance(value, Real):
        raise CannotGrade(
            f"it returned {quoted(value)} ({type(value).__name__}); "
            "return True or False, a score from 0 to 1, (score, reason), a mapping or a Grade"
        )
    score = float(value)
    if not 0.0 <= score <= 1.0:
        raise CannotGrade(f"it returned the score {score:g}, which is not between 0 and 1")
    return score
