"""OpenAI's `/chat/completions` and `/embeddings`, for OpenAI and compatible servers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from paraval.models.messages import image_url
from paraval.models.requests import NO_SETTINGS, Request
from paraval.models.response_reader import (
    NO_USAGE,
    AnswerReading,
    Draft,
    ErrorInStreamError,
    TruncatedError,
    UnreadableError,
    amount_in,
    checked_usage,
    complaint_of,
    elements,
    kind_of,
    mapping,
    raise_if_error,
    text_of,
    tool_input,
)
from paraval.records import ChatSettings, Message, Tool

OPENAI_ADDRESS = "https://api.openai.com/"
FAILED_ENDS = frozenset({"error", "abort", "cancelled"})
"""Finish reasons of gateways and compatible servers for an answer that failed."""


class OpenAIChat:
    """The protocol; loopback models use it too."""

    path = "/chat/completions"

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model.model,
            "messages": [_message(one) for one in request.messages],
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            body[_limit_name(request)] = request.max_tokens
        return body if request.settings == NO_SETTINGS else body | _settings(request.settings)

    def reader(self) -> ChatReader:
        return ChatReader()

    def read(self, whole: Mapping[str, Any]) -> AnswerReading:
        reader = ChatReader()
        reader.take_whole(whole)
        return reader.finish()


class OpenAIEmbeddings(OpenAIChat):
    """`/embeddings` of the same servers, for two texts. The answer is the cosine of the two
    vectors, because the vectors themselves would fill the cache."""

    path = "/embeddings"

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:  # noqa: ARG002 - the protocol's
        return {
            "model": request.model.model,
            "input": [message.content for message in request.messages],
            "encoding_format": "float",
        }

    def read(self, whole: Mapping[str, Any]) -> AnswerReading:
        raise_if_error(whole)
        items = [mapping(item, "data") for item in elements(whole.get("data"), "data")]
        one, other = _two_vectors(items)
        lengths = math.hypot(*one) * math.hypot(*other)
        cosine = sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
        draft = Draft(model=whole.get("model"))
        draft.add(repr(cosine))
        return draft.finished(*usage_told(_without_output(whole.get("usage"))))


def _two_vectors(items: list[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    vectors = [item.get("embedding") for item in sorted(items, key=_index)]
    if len(vectors) != 2:
        raise UnreadableError(f"it has {len(vectors)} embeddings instead of 2")
    one, other = (_vector(vector) for vector in vectors)
    if len(one) != len(other):
        raise UnreadableError("its embeddings differ in length")
    return one, other


def _index(item: Mapping[str, Any]) -> int:
    index = item.get("index", 0)
    return index if isinstance(index, int) else 0


def _vector(value: Any) -> list[float]:
    numbers = value if isinstance(value, list) else []
    if not numbers or not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
        raise UnreadableError("an embedding in it is not a list of numbers")
    return [float(one) for one in numbers]


def _without_output(usage: Any) -> Any:
    """Embeddings have no output, and their usage does not mention it."""
    return {"completion_tokens": 0, **usage} if isinstance(usage, Mapping) else usage


def _message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        encoded["content"] = [
            {"type": "text", "text": part}
            if isinstance(part, str)
            else {"type": "image_url", "image_url": {"url": image_url(part)}}
            for part in message.parts
        ]
    if message.tool_calls:
        encoded["content"] = message.content or None
        encoded["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": tool_input(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.result_of is not None:
        encoded["tool_call_id"] = message.result_of.id
    return encoded


def _settings(settings: ChatSettings) -> dict[str, Any]:
    body: dict[str, Any] = {
        "top_p": settings.top_p,
        "stop": list(settings.stop) or None,
        "seed": settings.seed,
        "reasoning_effort": settings.reasoning_effort,
    }
    if settings.response_format is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": schema_format(settings.response_format),
        }
    if settings.tools:
        body["tools"] = [
            {"type": "function", "function": function_of(tool)} for tool in settings.tools
        ]
    return {name: value for name, value in body.items() if value is not None}


def schema_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Strict only for a schema that closes its object: OpenAI refuses others in strict mode."""
    strict = schema.get("additionalProperties") is False
    return {"name": "answer", "schema": schema, "strict": strict}


def function_of(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _limit_name(request: Request) -> str:
    """OpenAI's newer models reject `max_tokens`; compatible servers know nothing else."""
    own = request.model.base_url.startswith(OPENAI_ADDRESS)
    return "max_completion_tokens" if own else "max_tokens"


class ChatReader:
    """Assembles an answer from its chunks."""

    def __init__(self) -> None:
        self._draft = Draft()
        self._is_whole = False
        self.done = False

    @property
    def size(self) -> int:
        return self._draft.size

    def take(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise_if_error(event)
        draft = self._draft
        if usage := event.get("usage"):
            draft.usage = usage
        if draft.model is None:
            draft.model = event.get("model")
        if choices := event.get("choices"):
            for item in elements(choices, "choices"):
                choice = mapping(item, "choices")
                if choice.get("index"):
                    self._leave_out()
                else:
                    self._take(choice, mapping(choice.get("delta") or {}, "delta"))

    def take_end(self) -> None:
        self.done = True

    def take_whole(self, whole: Mapping[str, Any]) -> None:
        raise_if_error(whole)
        draft = self._draft
        draft.usage = whole.get("usage")
        draft.model = whole.get("model")
        choices = elements(whole.get("choices"), "choices")
        if not choices:
            raise UnreadableError("its 'choices' are empty")
        parsed = [mapping(one, "choices") for one in choices]
        first = [choice for choice in parsed if not choice.get("index")]
        if not first:
            raise UnreadableError("the first of its 'choices' is missing")
        if len(parsed) > 1:
            self._leave_out()
        self._take_message(first[0])
        self.done = True

    def finish(self) -> AnswerReading:
        """A finish reason shows that the answer is complete; `[DONE]` alone does not. Some servers
        end a stream properly without `[DONE]`."""
        if not (self._is_whole or self._draft.finish_reason):
            raise TruncatedError
        return self._draft.finished(*usage_told(self._draft.usage))

    def _leave_out(self) -> None:
        if (note := "got several answers; using the first") not in self._draft.notes:
            self._draft.notes.append(note)

    def _take_message(self, choice: Mapping[str, Any]) -> None:
        """In one piece, the end comes with the rest; some servers then send no finish reason."""
        message = mapping(choice.get("message"), "message")
        self._take(choice, message)
        says_something = isinstance(message.get("content"), str) or message.get("tool_calls")
        if not self._draft.finish_reason and not says_something:
            raise UnreadableError("it has neither text nor a finish reason")
        self._is_whole = True

    def _take(self, choice: Mapping[str, Any], delta: Mapping[str, Any]) -> None:
        draft = self._draft
        if content := delta.get("content"):
            draft.add(text_of(content))
        if refusal := delta.get("refusal"):
            draft.refuse(refusal)
        if calls := delta.get("tool_calls"):
            self._tool_calls(elements(calls, "tool_calls"))
        if choice.get("error"):
            raise_if_error(choice)
        if reason := choice.get("finish_reason"):
            self._end(reason)

    def _end(self, reason: Any) -> None:
        if not isinstance(reason, str):
            raise UnreadableError(f"its 'finish_reason' is {kind_of(reason)}")
        if reason in FAILED_ENDS:
            raise ErrorInStreamError(complaint_of(f"its finish reason is '{reason}'"))
        self._draft.finish_reason = reason

    def _tool_calls(self, calls: list[Any]) -> None:
        for place, item in enumerate(calls):
            call = mapping(item, "tool_calls")
            function = mapping(call.get("function") or {}, "function")
            self._draft.call(
                call.get("index", place),
                function.get("name"),
                function.get("arguments"),
                call.get("id"),
            )


def usage_told(usage: Any) -> tuple[dict[str, float] | None, str]:
    if not isinstance(usage, Mapping):
        return None, NO_USAGE
    usage, note = checked_usage(
        {
            "input_tokens": usage.get("prompt_tokens"),
            "output_tokens": _output(usage),
            "cached_tokens": amount_in(usage, "prompt_tokens_details", "cached_tokens"),
            "reasoning_tokens": amount_in(usage, "completion_tokens_details", "reasoning_tokens"),
        }
    )
    return usage, note


def _output(usage: Mapping[str, Any]) -> Any:
    """Some servers (xAI's) leave reasoning out of the completion count and include it only in the
    total."""
    asked, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    reasoning = amount_in(usage, "completion_tokens_details", "reasoning_tokens")
    if not (isinstance(asked, int) and isinstance(output, int) and isinstance(reasoning, int)):
        return output
    apart = usage.get("total_tokens") == asked + output + reasoning
    return output + reasoning if apart else output
