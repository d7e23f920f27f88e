"""Chat models as targets: one request for each attempt, built from templates."""

from __future__ import annotations

from paraval.models.messages import read_messages
from paraval.models.requests import FailedCall, ModelAnswer, ModelClient, Request
from paraval.records import Attempt, ChatTarget, Message, Output, Spend, Trial
from paraval.targets.answer import InvalidOutputError, TargetAnswer, checked, invalid
from paraval.targets.command import template_fields
from paraval.templates import Field, TemplateFields, fill, parse


class ChatAnswerer:
    """Calls models."""

    def __init__(self, models: ModelClient | None) -> None:
        """None: a run without models."""
        self._models = models

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        assert self._models is not None
        answered = await self._models.ask(request_for(attempt.trial, attempt.folder))
        if isinstance(answered, FailedCall):
            return TargetAnswer(
                failure=answered.failure,
                notes=answered.notes,
                # A refused call was not billed, so its cost is known to be zero.
                spend=answered.spend or Spend(),
                uses=(answered.use,),
            )
        try:
            output, failure = checked(_output(answered)), None
        except InvalidOutputError as error:
            output, failure = None, invalid(str(error))
        return TargetAnswer(
            output=output,
            failure=failure,
            notes=answered.notes,
            spend=answered.spend,
            uses=(answered.use,),
        )

    async def close(self) -> None:
        """Do nothing: the client is shared with judges, and its owner closes it."""


def request_for(trial: Trial, folder: str = "") -> Request:
    """Return the request of an attempt at the trial."""
    target = trial.target
    assert isinstance(target, ChatTarget)
    fields = template_fields(trial, folder)
    return Request(
        model=target.model,
        messages=tuple(
            message for one in target.messages for message in _filled(one, fields, target.folder)
        ),
        temperature=target.temperature,
        max_tokens=target.max_tokens,
        settings=target.settings,
        timeout=target.timeout,
        repeat=trial.repeat,
    )


def _filled(message: Message, fields: TemplateFields, folder: str) -> tuple[Message, ...]:
    """The message of a template, or the messages of the case that it stands for."""
    if isinstance(fields.input, list | tuple) and parse(message.content) == (Field("input"),):
        return read_messages(fields.input, folder)
    return (Message(role=message.role, content=fill(message.content, fields)),)


def _output(answered: ModelAnswer) -> Output:
    spend = answered.spend
    metadata = dict(answered.metadata)
    if spend.cached and not spend.calls:
        metadata["cached"] = True
    return Output(
        text=answered.text,
        usage=spend.original_usage,
        cost_usd=spend.original_usd,
        metadata=metadata,
    )
