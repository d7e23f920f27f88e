"""OpenAI's `/chat/completions`, as OpenAI and all that is compatible with it speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraval.models.conversation import Request
from paraval.models.reading import (
    NO_USAGE,
    Draft,
    Reading,
    TruncatedError,
    UnreadableError,
    amount_in,
    checked_usage,
    elements,
    mapping,
    raise_if_error,
    text_of,
)

OPENAI_ADDRESS = "https://api.openai.com/"


class OpenAIChat:
    """The protocol; loopback models speak it too."""

    path = "/chat/completions"

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model.model,
            "messages": [{"role": one.role, "content": one.content} for one in request.messages],
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            body[_limit_name(request)] = request.max_tokens
        return body

    def reader(self) -> ChatReader:
        return ChatReader()

    def read(self, whole: Mapping[str, Any]) -> Reading:
        reader = ChatReader()
        reader.take_whole(whole)
        return reader.finish()


def _limit_name(request: Request) -> str:
    """OpenAI's newer models refuse `max_tokens`; compatible servers know nothing else."""
    own = request.model.base_url.startswith(OPENAI_ADDRESS)
    return "max_completion_tokens" if own else "max_tokens"


class ChatReader:
    """Puts an answer together from its chunks."""

    def __init__(self) -> None:
        self._draft = Draft()
        self.done = False

    @property
    def size(self) -> int:
        return self._draft.size

    def take(self, event: Mapping[str, Any]) -> None:
        raise_if_error(event)
        draft = self._draft
        if usage := event.get("usage"):
            draft.usage = usage
        if draft.model is None:
            draft.model = event.get("model")
        if choices := event.get("choices"):
            for choice in elements(choices, "choices"):
                self._choice(mapping(choice, "choices"), "delta")

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
        for choice in choices:
            self._choice(mapping(choice, "choices"), "message")
        self.done = True

    def finish(self) -> Reading:
        if not self.done:
            raise TruncatedError
        return self._draft.finished(*_usage(self._draft.usage))

    def _choice(self, choice: Mapping[str, Any], name: str) -> None:
        draft = self._draft
        if choice.get("index"):
            if (note := "several answers came; the first is taken") not in draft.notes:
                draft.notes.append(note)
            return
        said = mapping(choice.get(name) or {}, name)
        if content := said.get("content"):
            draft.add(text_of(content))
        if refusal := said.get("refusal"):
            draft.refuse(refusal)
        if calls := said.get("tool_calls"):
            self._tool_calls(elements(calls, "tool_calls"))
        if reason := choice.get("finish_reason"):
            draft.finish_reason = reason

    def _tool_calls(self, calls: list[Any]) -> None:
        for place, told in enumerate(calls):
            call = mapping(told, "tool_calls")
            function = mapping(call.get("function") or {}, "function")
            self._draft.call(
                call.get("index", place), function.get("name"), function.get("arguments")
            )


def _usage(told: Any) -> tuple[dict[str, float] | None, str]:
    if not isinstance(told, Mapping):
        return None, NO_USAGE
    usage, note = checked_usage(
        {
            "input_tokens": told.get("prompt_tokens"),
            "output_tokens": _output(told),
            "cached_tokens": amount_in(told, "prompt_tokens_details", "cached_tokens"),
            "reasoning_tokens": amount_in(told, "completion_tokens_details", "reasoning_tokens"),
        }
    )
    return usage, note


def _output(told: Mapping[str, Any]) -> Any:
    """Some servers (xAI's) leave reasoning out of the completion, and tell it by the total."""
    asked, output = told.get("prompt_tokens"), told.get("completion_tokens")
    reasoning = amount_in(told, "completion_tokens_details", "reasoning_tokens")
    if not (isinstance(asked, int) and isinstance(output, int) and isinstance(reasoning, int)):
        return output
    apart = told.get("total_tokens") == asked + output + reasoning
    return output + reasoning if apart else output
