"""Calls the hooks of a race: generate, repair and refine, each a program or a Python function.

Their proposals join the race while they run. The course decides for which candidates they are
called, and how often.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RateLimitedError, TransientError
from paraval.functions import is_async
from paraval.models.requests import ModelAnswer, Request
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.candidates.reply import proposal_from
from paraval.racing.course.steps import Step
from paraval.racing.findings import Origin, Proposal
from paraval.racing.hooks.hook_messages import (
    Ask,
    HookOutput,
    ask_of,
    document_of,
    no_standings,
    stdin_of,
)
from paraval.racing.hooks.hook_program import failure_of_hook, run_listening
from paraval.racing.report.standings import Standings
from paraval.racing.step_performer import RaceContext, broke, found, step_command
from paraval.records import (
    Attempt,
    AttemptResult,
    ChatTarget,
    CommandTarget,
    Failure,
    Message,
    Outcome,
)
from paraval.targets.answer import seconds
from paraval.targets.chat import ChatAnswerer
from paraval.targets.function import failure_of
from paraval.targets.function_logs import Logs, captured, routed_streams
from paraval.targets.process_ends import artifacts_of, notes_of
from paraval.text.suggest import suggestion
from paraval.threads import FunctionExit, Threads, await_safely

# A Python function as a hook: passes on what it returns or yields, one by one.

TakeItem = Callable[[Any], Awaitable[bool]]
"""Takes an item; returns whether more are read."""

GRACE_S = 5.0
"""How long an async function may take to end after it is cancelled."""
_NO_MORE = object()


async def call_hook(
    function: Callable[..., Any], ask: Ask, take: TakeItem, threads: Threads
) -> None:
    """Call it and pass on its items; raises what it raises."""
    if _runs_in_the_loop(function):
        given = await await_safely(_called, (function, ask))
    else:
        given = await threads.call(lambda: function(ask))
        if inspect.isawaitable(given):
            given = await await_safely(_awaited, (given,))
    async with contextlib.aclosing(_items(given, threads)) as items:
        async for item in items:
            if not await take(item):
                return


async def within(work: Awaitable[None], timeout_s: float | None) -> bool:
    """Await the work; False if it timed out. Raises what it raises."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await _let_go(task)
        raise
    if task.done():
        task.result()
        return True
    await _let_go(task)
    return False


async def _let_go(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_S)
    if not task.done():
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
    elif not task.cancelled():
        task.exception()


def _runs_in_the_loop(function: Callable[..., Any]) -> bool:
    return is_async(function) or any(
        inspect.isasyncgenfunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004 - the method itself
    )


async def _called(function: Callable[..., Any], ask: Ask) -> Any:
    given = function(ask)
    return await given if inspect.isawaitable(given) else given


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


async def _items(given: Any, threads: Threads) -> AsyncGenerator[Any, None]:
    """The items of a return value: itself, or what it yields."""
    if given is None:
        return
    if hasattr(given, "__aiter__"):
        async with _closed_at_the_end(given.__aiter__()) as iterator:
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    yield await await_safely(iterator.__anext__, ())
    elif _is_one(given):
        yield given
    else:
        # Each step of a generator is user code, and may be slow.
        steps = iter(given)
        while (item := await threads.call(lambda: next(steps, _NO_MORE))) is not _NO_MORE:
            yield item


@contextlib.asynccontextmanager
async def _closed_at_the_end(iterator: Any) -> AsyncIterator[Any]:
    try:
        yield iterator
    finally:
        if hasattr(iterator, "aclose"):
            await await_safely(iterator.aclose, ())


def _is_one(given: Any) -> bool:
    return isinstance(given, str | Mapping | Proposal) or not isinstance(given, Iterable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallOutcome:
    """How a call ended, apart from its proposals."""

    failure: Failure | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the attempt's result."""


class HookRunner:
    """Performs generate, repair and refine; a StepPerformer."""

    def __init__(self, room: RaceContext, standings: Callable[[], Standings] | None = None) -> None:
        """`standings`: returns the current standings, for functions that want them."""
        self._room = room
        self._standings = no_standings
        if standings is not None:
            self._standings = lambda: standings().candidates
        self._threads = Threads()
        self._chats = ChatAnswerer(room.models)
        self._outputs: dict[int, HookOutput] = {}
        """Outputs by trial index, so that another attempt does not repeat proposals."""

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        began = time.perf_counter()
        index = attempt.trial.index
        output = self._outputs.setdefault(index, HookOutput(self._room, step))
        output.begin_attempt()
        try:
            called = await self._ask(attempt, step, output)
        finally:
            output.end_attempt()
        more = {"duration_s": time.perf_counter() - began, "spend": output.spend, **called.more}
        if called.failure is None:
            del self._outputs[index]
            return found(output.finding, **more)
        failure = called.failure
        result = broke(failure.kind, failure.message, finding=output.finding, **more)
        return replace(result, error=failure)

    async def close(self) -> None:
        self._threads.close()

    async def _ask(self, attempt: Attempt, step: Step, output: HookOutput) -> _CallOutcome:
        target = attempt.trial.target
        if isinstance(target, ChatTarget):
            return await self._ask_model(attempt, step, output)
        assert isinstance(target, CommandTarget)
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        document = document_of(step, self._room)
        if target.command:
            return await self._ask_program(attempt, stdin_of(document), output)
        kind = step.kind.value
        function = self._room.functions.get(kind)
        if function is None:
            return _CallOutcome(failure=_no_function(kind))
        ask = ask_of(document, attempt.own_folder, self._standings)
        if self._room.request.models:
            ask = replace(ask, model=partial(self._call_model, output))
        logs = Logs(attempt.folder)
        with routed_streams(), captured(logs):
            work = call_hook(function, ask, output.take_item, self._threads)
            failure = await self._failure_of(work, target, logs)
        return _CallOutcome(failure=failure, more={"artifacts": logs.close()})

    # ---- models

    async def _ask_model(self, attempt: Attempt, step: Step, output: HookOutput) -> _CallOutcome:
        answer = await self._chats.answer(attempt)
        more = {
            "notes": answer.notes,
            "spend": answer.spend,
            "uses": answer.uses,
            "exchanges": () if answer.exchange is None else (answer.exchange,),
        }
        hook = self._room.request.generate
        if answer.output is not None and hook is not None and hook.asks is not None:
            reply = answer.output
            proposal = proposal_from(
                reply.text,
                hook.asks.files,
                name=hook.asks.name(step.number),
                cut=reply.metadata.get("finish_reason") == "length",
            )
            await output.take_proposal(replace(proposal, origin=Origin.GENERATE))
        return _CallOutcome(failure=answer.failure, more=more)

    async def _call_model(
        self, output: HookOutput, name: str, prompt: str, *, repeat: int = 1
    ) -> str:
        """Call a model for a function. A failed call ends the function, which is called again if
        the failure may pass."""
        models = self._room.request.models
        if name not in models:
            raise ParavalError(f"unknown model '{name}'{suggestion(name, models)}")
        assert self._room.models is not None, "the race has a function, so its models are open"
        message = Message(role="user", content=prompt)
        request = Request(model=models[name], messages=(message,), repeat=repeat)
        answer = await self._room.models.ask(request)
        if isinstance(answer, ModelAnswer):
            output.pay(answer.spend)
            return answer.text
        if answer.spend is not None:
            output.pay(answer.spend)
        failure = answer.failure
        if failure.kind is Outcome.RATE_LIMITED:
            raise RateLimitedError(failure.message)
        passing = failure.kind in (Outcome.INFRA_ERROR, Outcome.TIMEOUT) and not failure.lasting
        raise (TransientError if passing else ParavalError)(failure.message)

    # ---- programs

    async def _ask_program(
        self, attempt: Attempt, stdin: bytes, output: HookOutput
    ) -> _CallOutcome:
        processes = self._room.processes
        async with processes.home() as own:
            # It is the user's own program, so it is not sandboxed.
            command = step_command(processes, attempt, own, stdin=stdin, sandbox=None)
            return _end_of(command, await run_listening(processes.warden, command, output.take))

    # ---- functions

    async def _failure_of(self, work: Any, target: CommandTarget, logs: Logs) -> Failure | None:
        """Why a function's call failed; None if it succeeded."""
        try:
            in_time = await within(work, target.timeout)
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - whatever it raised is its result
            if not isinstance(error, ParavalError | FunctionExit):
                logs.write_traceback(error)
            return failure_of(error)
        if in_time:
            return None
        assert target.timeout is not None
        return Failure(
            kind=Outcome.TIMEOUT, message=f"timed out after {seconds(target.timeout)}; abandoned"
        )


def _end_of(command: Command, ended: ProcessEnd) -> _CallOutcome:
    more = {
        "exit_code": ended.exit_code,
        "artifacts": artifacts_of(command, ended),
        "notes": notes_of(ended),
        "cpu_s": ended.cpu_s,
        "memory_bytes": ended.memory_bytes,
    }
    return _CallOutcome(failure=failure_of_hook(ended, command), more=more)


def _no_function(kind: str) -> Failure:
    return Failure(
        kind=Outcome.CRASHED,
        message=f"the race's `{kind}` hook is a Python function, which is not available here;"
        " resume the race from the program that started it",
        lasting=True,
    )
