"""Calls what proposes candidates, once a round: a program, a Python function, or models.

All get the standings: each candidate's failures and speeds with its patch, and the lines in which
the baseline spends its time. What they propose is stored with the round.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RateLimitedError, TransientError
from paraval.functions import is_async
from paraval.models.requests import ModelAnswer, Request
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.candidates.lines import MOST_LINES, ProposalReader
from paraval.racing.candidates.reply import proposal_from
from paraval.racing.candidates.staging import content_hash
from paraval.racing.context import RaceContext, failed, found, step_command
from paraval.racing.findings import Proposed, StepFinding
from paraval.racing.steps import Step, StepKind
from paraval.records import (
    Attempt,
    AttemptResult,
    ChatTarget,
    Failure,
    Message,
    Outcome,
    Spend,
)
from paraval.settings import LOG_LIMIT_BYTES
from paraval.targets.answer import InvalidOutputError, read_plain_file, seconds
from paraval.targets.chat import ChatAnswerer
from paraval.targets.command import TRY_AGAIN_EXIT_CODE
from paraval.targets.function import failure_of, let_go
from paraval.targets.function_logs import Logs, captured, routed_streams
from paraval.targets.process_ends import artifacts_of, last_words, notes_of, unexpected_end
from paraval.text.suggest import suggestion
from paraval.threads import FunctionExit, Threads, await_safely

GRACE_S = 1.0
"""How long a function may take to end after it is cancelled."""
LARGEST_PATCH_BYTES = 200_000
"""Of a larger patch, only the path is passed on."""
MOST_LINES_OF_A_PROFILE = 10
_MOST_SHOWN = 12
"""Candidates that models are shown; the fastest and the latest."""
_LONGEST_MESSAGE = 600
_LONGEST_PATCH = 4000


class CallModel(Protocol):
    def __call__(self, name: str, prompt: str, *, repeat: int = 1) -> Awaitable[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The argument of a function that proposes candidates."""

    round: int
    """Counts from 1."""
    rounds: int
    repo: str
    """The path of the repository. It is the user's own: read it, but do not change it."""
    folder: str
    """A folder for this call, kept with the run, for folders that it proposes."""
    baseline: Mapping[str, Any]
    """Its `commit`, `tests`, `seconds`, and the `profile` of its lines."""
    candidates: tuple[Mapping[str, Any], ...]
    """All so far: `name`, `parent`, `status`, `reason`, `tests`, `differences` (with the messages
    of failed tests), `speedup`, `cases`, `cautions`, `patch` and `patch_file`."""
    data: Mapping[str, Any]
    """Everything, as a program's JSON input."""
    model: CallModel
    """`await ask.model("haiku", prompt)` returns the answer of a model in `models`: cached, and its
    cost counts as the call's. `repeat=2` asks for another answer to the same prompt. For async
    functions."""


@dataclass(slots=True)
class _Call:
    """What a call has found so far."""

    proposed: Proposed = Proposed()
    failure: Failure | None = None
    spend: Spend | None = None
    fields: Mapping[str, Any] | None = None
    """Other fields of the attempt's result."""

    def pay(self, usd: float | None) -> None:
        if usd is not None:
            before = 0.0 if self.spend is None else self.spend.known_usd
            self.spend = Spend(cost_usd=before + usd)


class Proposer:
    """Performs PROPOSE."""

    def __init__(self, context: RaceContext) -> None:
        self._context = context
        self._threads = Threads()
        self._chats = ChatAnswerer(context.models)

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        began, call = time.perf_counter(), _Call()
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        document = await asyncio.to_thread(self._document, step)
        spec = self._context.request.propose
        if isinstance(attempt.trial.target, ChatTarget):
            await self._ask_model(attempt, step, document, call)
        elif spec is not None and spec.command is not None:
            await self._run_program(attempt, step, document, call)
        else:
            await self._call_function(attempt, step, document, call)
        more: dict[str, Any] = {"duration_s": time.perf_counter() - began, "spend": call.spend}
        more |= call.fields or {}
        finding = StepFinding(proposed=call.proposed)
        if call.failure is None:
            return found(finding, **more)
        result = failed(call.failure.kind, call.failure.message, finding=finding, **more)
        return replace(result, error=call.failure)

    async def close(self) -> None:
        self._threads.close()

    def _reader(self, step: Step) -> ProposalReader:
        request = self._context.request
        called = f"round-{step.round + 1}"
        return ProposalReader(repo=request.repo, folder=Path(request.folder), called=called)

    # ---- the standings

    def _document(self, step: Step) -> dict[str, Any]:
        """The standings with patches, as plain JSON data. Blocks."""
        request, base = self._context.request, self._context.base
        details = dict(step.details or {})
        return {
            **details,
            "repo": request.repo,
            "base": {"tree": base.tree, "commit": base.commit},
            "test": {"command": list(request.test.command)},
            "bench": {"command": list(request.bench.command), "metric": request.bench.metric},
            "accept": request.accept.model_dump(),
            "limits": request.limits.model_dump(),
            "candidates": [self._with_patch(one) for one in details.get("candidates", ())],
        }

    def _with_patch(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        end = self._context.ends.get((StepKind.STAGE, candidate["name"], 1))
        path = None if end is None else self._context.artifact(end, "patch")
        proposal = None if end is None else end.step.proposal
        # Of one that never applied, what was proposed.
        text = "" if proposal is None or path is not None else proposal.patch or ""
        if path is not None:
            with contextlib.suppress(InvalidOutputError):
                text = read_plain_file(str(path), LARGEST_PATCH_BYTES).decode(errors="replace")
        return {**candidate, "patch": text, "patch_file": None if path is None else str(path)}

    # ---- programs

    async def _run_program(
        self, attempt: Attempt, step: Step, document: Mapping[str, Any], call: _Call
    ) -> None:
        # Non-ASCII is escaped, so that the program's locale does not matter.
        stdin = json.dumps(document, default=str).encode() + b"\n"
        processes = self._context.processes
        async with processes.home() as own:
            # It is the user's own program, so it is not sandboxed.
            command = step_command(processes, attempt, own, stdin=stdin, sandbox=None)
            ended = await processes.warden.run(command)
        text = ""
        with contextlib.suppress(InvalidOutputError):
            printed = await asyncio.to_thread(read_plain_file, command.stdout, 2 * LOG_LIMIT_BYTES)
            text = printed.decode(errors="surrogateescape")
        call.proposed, cost = await asyncio.to_thread(self._reader(step).lines, text)
        call.pay(cost)
        call.failure = _failure_of_program(ended, command)
        call.fields = {
            "exit_code": ended.exit_code,
            "artifacts": artifacts_of(command, ended),
            "notes": notes_of(ended),
            "cpu_s": ended.cpu_s,
            "memory_bytes": ended.memory_bytes,
        }

    # ---- functions

    async def _call_function(
        self, attempt: Attempt, step: Step, document: Mapping[str, Any], call: _Call
    ) -> None:
        function, spec = self._context.function, self._context.request.propose
        if function is None or spec is None:
            message = (
                "`propose` is a Python function, which is not available here; resume the race from"
                " the program that started it"
            )
            call.failure = Failure(kind=Outcome.CRASHED, message=message, lasting=True)
            return
        ask = Ask(
            round=step.round + 1,
            rounds=spec.rounds,
            repo=document["repo"],
            folder=attempt.own_folder,
            baseline=document.get("baseline", {}),
            candidates=tuple(document["candidates"]),
            data=document,
            model=partial(self._call_model, call),
        )
        logs = Logs(attempt.folder)
        with routed_streams(), captured(logs):
            items: list[Any] = []
            work = asyncio.ensure_future(_take_items(function, ask, self._threads, items))
            try:
                await asyncio.wait({work}, timeout=spec.timeout)
            except asyncio.CancelledError:
                await let_go(work, GRACE_S)
                raise
            if not work.done():
                await let_go(work, GRACE_S)
                message = f"timed out after {seconds(spec.timeout)}; abandoned"
                call.failure = Failure(kind=Outcome.TIMEOUT, message=message)
            elif (error := work.exception()) is not None:
                if not isinstance(error, ParavalError | FunctionExit):
                    logs.write_traceback(error)
                call.failure = failure_of(error)
        call.fields = {"artifacts": logs.close()}
        # What it has yielded before it failed counts, too.
        call.proposed, cost = await asyncio.to_thread(self._reader(step).items, items)
        call.pay(cost)

    async def _call_model(self, call: _Call, name: str, prompt: str, *, repeat: int = 1) -> str:
        """Call a model for a function. A failed call ends the function, which is called again if
        the failure may pass."""
        models = self._context.request.models
        if name not in models:
            raise ParavalError(f"unknown model '{name}'{suggestion(name, models)}")
        assert self._context.models is not None, "a function may call all models of the race"
        message = Message(role="user", content=prompt)
        request = Request(model=models[name], messages=(message,), repeat=repeat)
        answer = await self._context.models.ask(request)
        if answer.spend is not None:
            call.pay(answer.spend.cost_usd)
        if isinstance(answer, ModelAnswer):
            return answer.text
        failure = answer.failure
        if failure.kind is Outcome.RATE_LIMITED:
            raise RateLimitedError(failure.message)
        passing = failure.kind in (Outcome.INFRA_ERROR, Outcome.TIMEOUT) and not failure.lasting
        raise (TransientError if passing else ParavalError)(failure.message)

    # ---- models

    async def _ask_model(
        self, attempt: Attempt, step: Step, document: Mapping[str, Any], call: _Call
    ) -> None:
        case, request = attempt.trial.case, self._context.request
        prompt = "\n".join((str(case.input), *so_far(document)))
        trial = replace(attempt.trial, case=replace(case, input=prompt))
        answer = await self._chats.answer(replace(attempt, trial=trial))
        call.failure, call.spend = answer.failure, answer.spend
        call.fields = {
            "notes": answer.notes,
            "uses": answer.uses,
            "exchanges": () if answer.exchange is None else (answer.exchange,),
        }
        if answer.output is not None:
            cut = answer.output.metadata.get("finish_reason") == "length"
            proposal = proposal_from(
                answer.output.text, request.files, name=step.candidate, cut=cut
            )
            proposal = replace(proposal, content=content_hash(proposal, request.repo))
            call.proposed = Proposed(proposals=(proposal,))


async def _take_items(
    function: Callable[..., Any], ask: Ask, threads: Threads, items: list[Any]
) -> None:
    """Append what a function returns or yields, whether it is async or not; raises what it
    raises."""
    if is_async(function) or inspect.isasyncgenfunction(function):
        given = await await_safely(_called, (function, ask))
    else:
        given = await threads.call(lambda: function(ask))
        if inspect.isawaitable(given):
            given = await await_safely(_awaited, (given,))
    if given is None:
        return
    if hasattr(given, "__aiter__"):
        await await_safely(_gather, (given, items))
    elif isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        items.append(given)
    else:
        # Each step of a generator is user code, and may be slow. One more is one too many.
        await threads.call(lambda: items.extend(islice(given, MOST_LINES + 1)))


async def _called(function: Callable[..., Any], ask: Ask) -> Any:
    given = function(ask)
    return await given if inspect.isawaitable(given) else given


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


async def _gather(given: AsyncIterator[Any], items: list[Any]) -> None:
    async for item in given:
        items.append(item)
        if len(items) > MOST_LINES:
            return
        await asyncio.sleep(0)  # It may never wait itself.


def _failure_of_program(ended: ProcessEnd, command: Command) -> Failure | None:
    """Why it failed; None if it succeeded."""
    if ended.failure is None and ended.timed_out:
        message = f"timed out after {seconds(command.timeout or 0.0)}"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.failure is None and ended.signal is None and ended.exit_code == TRY_AGAIN_EXIT_CODE:
        message = f"asked for a retry (exit code 75){last_words(command.stderr)}"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    if ended.failure is None and ended.signal is None and ended.exit_code == 0:
        return None
    return unexpected_end(ended, command.stderr)


# ---- what models are told


def so_far(document: Mapping[str, Any]) -> Iterator[str]:
    """The profile of the baseline, and what became of earlier candidates, as text."""
    functions = document.get("baseline", {}).get("profile", {}).get("functions", ())
    lines = [(one["file"], line) for one in functions for line in one["lines"]]
    hottest = sorted(lines, key=lambda each: -each[1]["seconds"])[:MOST_LINES_OF_A_PROFILE]
    if hottest:
        yield "\nThe code spends its time in these lines:"
    for file, line in hottest:
        yield f"{file}:{line['line']}: {line['seconds']:.3g} s: {line['text'].strip()}"
    candidates = document["candidates"]
    if not candidates:
        return
    ranked = sorted(candidates, key=_speed, reverse=True)
    names = {one["name"] for one in (*ranked[: _MOST_SHOWN // 2], *candidates[-_MOST_SHOWN // 2 :])}
    yield f"\nSo far, {len(candidates)} candidates were tried. Improve on them:"
    for one in (one for one in candidates if one["name"] in names):
        speed = f", {_speed(one):.2f} times as fast as the original" if one["speedup"] else ""
        yield f"\n{one['name']}: {one['status']}{speed}. {one['reason']}".rstrip()
        for difference in one["differences"][:2]:
            yield f"{difference['name']}: {difference['message'][:_LONGEST_MESSAGE]}"
        if one["patch"]:
            yield f"```diff\n{one['patch'][:_LONGEST_PATCH]}\n```"


def _speed(candidate: Mapping[str, Any]) -> float:
    return 0.0 if candidate["speedup"] is None else float(candidate["speedup"]["estimate"])
