"""Python functions as targets, in this process: async ones in the loop, sync ones in threads.

Neither can be stopped by force. A function that exceeds its timeout is recorded as such immediately
and abandoned; use `isolate: process` (isolated.py) for those.
"""

from __future__ import annotations

import asyncio
import copy
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import NoneType
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RateLimitedError, TransientError
from paraval.functions import Functions, is_async, load_function, positional_arguments
from paraval.records import Attempt, Case, Failure, FunctionTarget, Outcome
from paraval.targets.answer import (
    InvalidOutputError,
    TargetAnswer,
    bounded,
    invalid,
    read_output,
    seconds,
)
from paraval.targets.function_logs import Logs, captured
from paraval.threads import FunctionExit, Threads, await_safely


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    function: Callable[..., Any]
    is_async: bool
    takes_variant: bool


def call_arguments(attempt: Attempt, *, takes_variant: bool) -> tuple[Any, ...]:
    trial = attempt.trial
    case = _own_copy(trial.case)
    return (case, dict(trial.variant)) if takes_variant else (case,)


def _own_copy(case: Case) -> Case:
    """Copy the case: an attempt's changes to it must not affect others."""
    if type(case.input) is str and type(case.expect) in (str, NoneType) and not case.metadata:
        return case
    return copy.deepcopy(case)


def failure_of(error: BaseException) -> Failure:
    """Return the failure for an exception of a target."""
    match error:
        case RateLimitedError():
            return Failure(
                kind=Outcome.RATE_LIMITED,
                message=bounded(error.message),
                retry_after=error.retry_after,
            )
        case TransientError():
            return Failure(kind=Outcome.INFRA_ERROR, message=bounded(error.message))
        case InvalidOutputError():
            return invalid(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return Failure(kind=Outcome.CRASHED, message=f"{bounded(_said(error))}{place}")


def _said(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # noqa: BLE001 - a class of the user's, whose __str__ may raise anything
        return f"{name} (its message cannot be shown)"


class FunctionAnswerer:
    """Calls functions in this process."""

    def __init__(self, functions: Functions, threads: Threads) -> None:
        self._functions = functions
        self._threads = threads
        self._loaded: dict[str, _Loaded] = {}

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        logs = Logs(attempt.folder)
        with captured(logs):
            answer = await self._call(attempt, logs)
        artifacts = logs.close()
        return replace(answer, artifacts=artifacts) if artifacts else answer

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def _call(self, attempt: Attempt, logs: Logs) -> TargetAnswer:
        target = attempt.trial.target
        assert isinstance(target, FunctionTarget)
        try:
            loaded = self._load(target)
        except ParavalError as error:
            return TargetAnswer(failure=Failure(kind=Outcome.CRASHED, message=str(error)))
        arguments = call_arguments(attempt, takes_variant=loaded.takes_variant)
        work: Awaitable[Any]
        if loaded.is_async:
            work = await_safely(loaded.function, arguments)
        else:
            work = self._threads.call(lambda: loaded.function(*arguments))
        return await self._bounded(work, target, logs, in_thread=not loaded.is_async)

    async def _bounded(
        self, work: Awaitable[Any], target: FunctionTarget, logs: Logs, *, in_thread: bool
    ) -> TargetAnswer:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task}, timeout=target.timeout)
        except asyncio.CancelledError:
            await let_go(task, target.grace)
            raise
        if not task.done():
            gone = await let_go(task, 0.0 if in_thread else target.grace)
            return _timed_out(target, gone=gone and not in_thread)
        try:
            return TargetAnswer(output=read_output(task.result()))
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - whatever was raised is its result
            if not isinstance(error, InvalidOutputError | ParavalError | FunctionExit):
                logs.write_traceback(error)
            return TargetAnswer(failure=failure_of(error))

    def _load(self, target: FunctionTarget) -> _Loaded:
        loaded = self._loaded.get(target.reference)
        if loaded is None:
            function = self._functions.get(target.reference) or load_function(
                target.reference, target.folder
            )
            loaded = self._loaded[target.reference] = _Loaded(
                function=function,
                is_async=is_async(function),
                takes_variant=positional_arguments(function) >= 2,
            )
        return loaded


async def let_go(task: asyncio.Future[Any], grace: float) -> bool:
    """Cancel the task and wait for its grace period; whether it ended."""
    task.cancel()
    await asyncio.wait({task}, timeout=grace)
    if task.done() and not task.cancelled():
        task.exception()
    elif not task.done():
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
    return task.done()


def _timed_out(target: FunctionTarget, *, gone: bool) -> TargetAnswer:
    assert target.timeout is not None
    message = f"not done after {seconds(target.timeout)}"
    if gone:
        return TargetAnswer(failure=Failure(kind=Outcome.TIMEOUT, message=message))
    note = "the function still runs in this process; `isolate: process` would have stopped it"
    return TargetAnswer(failure=Failure(kind=Outcome.TIMEOUT, message=message), notes=(note,))
