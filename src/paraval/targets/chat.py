"""Chat models as targets: a request built from templates, and its answer.

If the model calls tools that are Python functions, they are run and their results sent back, until
it answers without calling any.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.errors import ParavalError
from paraval.functions import Functions, is_async, load_function
from paraval.models.messages import read_messages
from paraval.models.requests import (
    FailedCall,
    ModelAnswer,
    ModelClient,
    Request,
    merged_uses,
    request_data,
)
from paraval.records import (
    Activity,
    Attempt,
    ChatTarget,
    Exchange,
    Failure,
    Message,
    Outcome,
    Output,
    Spend,
    Step,
    ToolCall,
    ToolUse,
    Trial,
    stop_note,
)
from paraval.targets.answer import (
    InvalidOutputError,
    TargetAnswer,
    checked,
    invalid,
    seconds,
)
from paraval.targets.command import template_fields
from paraval.targets.function import failure_of
from paraval.targets.function_logs import Logs, captured
from paraval.templates.template import Field, TemplateFields, fill, parse
from paraval.threads import Threads, await_in_a_task

LONGEST_RESULT = 100_000
"""Characters of a tool's result that the model gets."""
_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
NO_FUNCTIONS: Functions = MappingProxyType({})


class ChatAnswerer:
    """Calls models, and the tools that they ask for."""

    def __init__(
        self,
        models: ModelClient | None,
        *,
        functions: Functions = NO_FUNCTIONS,
        threads: Threads | None = None,
    ) -> None:
        """`models`: None for a run without models. `threads`: where tools run."""
        self._models = models
        self._functions = functions
        self._threads = threads

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        target = attempt.trial.target
        assert isinstance(target, ChatTarget)
        request = request_for(attempt.trial, attempt.folder)
        if not target.runs_tools:
            return await self._answered(_ChatAttempt(target, request))
        logs = Logs(attempt.folder)
        with captured(logs):
            answer = await self._answered(_ChatAttempt(target, request, logs))
        return replace(answer, artifacts=logs.close())

    async def close(self) -> None:
        """Do nothing: the client is shared with judges, and its owner closes it."""

    async def _answered(self, talk: _ChatAttempt) -> TargetAnswer:
        """Call the model until it calls no tools, or one that is only described."""
        assert self._models is not None
        target = talk.target
        described = {tool.name for tool in target.settings.tools if tool.python is None}
        while True:
            answered = await self._models.ask(talk.next_request())
            if isinstance(answered, FailedCall):
                return talk.failed(answered)
            talk.answers.append(answered)
            calls = _calls_of(answered, len(talk.answers))
            if not calls and not talk.steps:
                return talk.ended()
            is_final = not target.runs_tools or any(call.name in described for call in calls)
            is_cut = len(talk.answers) >= target.max_turns
            if not calls or is_final or is_cut:
                talk.steps.append(_step(answered, calls))
                if calls and not is_final:
                    talk.notes.append(stop_note("max_turns", target.max_turns))
                return talk.ended()
            done: list[ToolCall] = []
            for call in calls:
                try:
                    async with asyncio.timeout(talk.time_left()):
                        done.append(await self._run(call, talk))
                except TimeoutError:
                    talk.steps.append(_step(answered, (*done, replace(call, failed=True))))
                    return talk.timed_out(call)
            talk.steps.append(_step(answered, done))

    async def _run(self, call: ToolCall, talk: _ChatAttempt) -> ToolCall:
        """Run a tool. Whatever goes wrong is its result, which the model gets."""
        try:
            result = _as_result(await self._called(call, talk.target))
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - a user's function may raise anything
            if isinstance(error, ParavalError):
                told = error.message
            else:
                error.__traceback__ = _own_frames(error.__traceback__)
                told = failure_of(error).message
                if talk.logs is not None:
                    talk.logs.write_traceback(error)
            return replace(call, result=f"error: {told}", failed=True)
        if len(result) > LONGEST_RESULT:
            talk.notes.append(f"a result of tool '{call.name}' was cut")
            result = f"{result[:LONGEST_RESULT]} [cut]"
        return replace(call, result=result)

    async def _called(self, call: ToolCall, target: ChatTarget) -> Any:
        references = {tool.name: tool.python for tool in target.settings.tools}
        reference = references.get(call.name)
        if reference is None:
            raise ParavalError(f"there is no tool '{call.name}'; there is {', '.join(references)}")
        if not isinstance(call.arguments, Mapping):
            raise ParavalError("the arguments are not a JSON object")
        # Copied: what the function does to them must not change the record.
        given = copy.deepcopy(dict(call.arguments))
        function = self._functions.get(reference) or load_function(reference, target.folder)
        work: Awaitable[Any]
        if is_async(function):
            work = await_in_a_task(lambda: function(**given), ())
        else:
            assert self._threads is not None
            work = self._threads.call(lambda: function(**given))
        return await work


@dataclass(slots=True)
class _ChatAttempt:
    """An attempt in progress: what was asked, answered and done so far."""

    target: ChatTarget
    request: Request
    logs: Logs | None = None
    answers: list[ModelAnswer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def time_left(self) -> float:
        """With tools, the timeout is for the whole attempt."""
        limit = self.target.timeout or self.target.model.timeout
        return max(0.001, limit - (time.monotonic() - self.began))

    def next_request(self) -> Request:
        """The request after all steps so far."""
        if not self.steps:
            return self.request
        messages = [*self.request.messages]
        for step in self.steps:
            calls = step.tool_calls
            messages.append(Message(role="assistant", content=step.text, tool_calls=calls))
            messages += [
                Message(role="tool", content=call.result or "", result_of=call) for call in calls
            ]
        left = None if self.target.timeout is None else self.time_left()
        return replace(self.request, messages=tuple(messages), timeout=left)

    def ended(self) -> TargetAnswer:
        spend, output, failure = self._spend(), None, None
        try:
            output = self._output(spend)
        except InvalidOutputError as error:
            failure = invalid(str(error))
        return self._answer(spend, output=output, failure=failure)

    def failed(self, call: FailedCall) -> TargetAnswer:
        # A refused call was not billed, so its cost is known to be zero.
        answer = self._answer(self._spend() + (call.spend or Spend()), failure=call.failure)
        return replace(
            answer,
            notes=(*answer.notes, *call.notes),
            uses=merged_uses((*answer.uses, call.use)),
        )

    def timed_out(self, call: ToolCall) -> TargetAnswer:
        limit = seconds(self.target.timeout or self.target.model.timeout)
        message = f"tool '{call.name}' did not finish within {limit}"
        note = "the tool may still run in this process"
        failure = Failure(kind=Outcome.TIMEOUT, message=message)
        answer = self._answer(self._spend(), failure=failure)
        return replace(answer, notes=(*answer.notes, note))

    def _answer(
        self, spend: Spend, *, output: Output | None = None, failure: Failure | None = None
    ) -> TargetAnswer:
        notes = [note for answer in self.answers for note in answer.notes] + self.notes
        return TargetAnswer(
            output=output,
            failure=failure,
            notes=tuple(dict.fromkeys(notes)),
            spend=spend,
            uses=merged_uses(answer.use for answer in self.answers),
            activity=self._activity(),
            exchange=Exchange(request=request_data(self.request)),
        )

    def _spend(self) -> Spend:
        if len(self.answers) == 1:
            return self.answers[0].spend
        return sum((answer.spend for answer in self.answers), Spend())

    def _output(self, spend: Spend) -> Output:
        last = self.answers[-1]
        metadata = {**last.metadata}
        metadata.pop("tool_calls", None)
        metadata.pop("cached", None)
        if spend.cached and not spend.calls:
            metadata["cached"] = True
        output = Output(
            text=last.text,
            usage=spend.original_usage,
            cost_usd=spend.original_usd,
            metadata=metadata,
            steps=tuple(self.steps),
        )
        # The rest was checked when it was read.
        return checked(output) if output.steps else output

    def _activity(self) -> Activity | None:
        """None if tools have nothing to do with it."""
        if not self.steps and not self.target.settings.tools:
            return None
        calls = [call for step in self.steps for call in step.tool_calls]
        counts = Counter(call.name for call in calls)
        failed = Counter(call.name for call in calls if call.failed)
        tools = (
            ToolUse(name=name, calls=counts[name], failed=failed[name]) for name in sorted(counts)
        )
        return Activity(turns=len(self.answers), tools=tuple(tools))


def _step(answered: ModelAnswer, calls: Sequence[ToolCall]) -> Step:
    spend = answered.spend
    return Step(
        text=answered.text,
        tool_calls=tuple(calls),
        usage=spend.original_usage,
        cost_usd=spend.original_usd,
    )


def _calls_of(answered: ModelAnswer, turn: int) -> list[ToolCall]:
    """The tool calls of an answer; an id is made up for servers that send none."""
    return [
        ToolCall(
            name=one["name"],
            arguments=_parsed(one["arguments"]),
            id=one.get("id") or f"call_{turn}_{number}",
        )
        for number, one in enumerate(answered.metadata.get("tool_calls", ()), start=1)
    ]


def _parsed(arguments: str) -> Any:
    """Arguments as data; as text if a model wrote something other than JSON."""
    try:
        return parse_strictly(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments


def _own_frames(step: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on; None if their function was not even entered,
    as with wrong arguments."""
    while step is not None and step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        step = step.tb_next
    return step


def _as_result(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def request_for(trial: Trial, folder: str = "") -> Request:
    """Return the request of an attempt at the trial."""
    target = trial.target
    assert isinstance(target, ChatTarget)
    fields = template_fields(trial, folder)
    messages: list[Message] = []
    for one in target.messages:
        messages += _filled(one, fields, target.folder)
    return Request(
        model=target.model,
        messages=tuple(messages),
        temperature=target.temperature,
        max_tokens=target.max_tokens,
        settings=target.settings,
        timeout=target.timeout,
        repeat=trial.repeat,
    )


def _filled(message: Message, fields: TemplateFields, folder: str) -> tuple[Message, ...]:
    """The message of a template, or the messages of the case that it stands for."""
    given = fields.input
    if type(given) is not str and isinstance(given, list | tuple) and _is_input(message.content):
        return read_messages(fields.input, folder)
    return (Message(role=message.role, content=fill(message.content, fields)),)


def _is_input(template: str) -> bool:
    return parse(template) == (Field("input"),)
