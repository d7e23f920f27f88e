"""OpenAI's `/responses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paraval.models.messages import image_url
from paraval.models.openai_chat import function_of, schema_format
from paraval.models.requests import Request
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
    tool_input,
)
from paraval.records import ChatSettings, Image, Message


class OpenAIResponses:
    """The protocol. Nothing is stored with the provider (`store`) unless the options ask for it."""

    path = "/responses"

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model.model,
            "input": [item for one in request.messages for item in _items(one)],
            "stream": stream,
            "store": False,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        return body | _settings(request.settings)

    def reader(self) -> ResponsesReader:
        return ResponsesReader()

    def read(self, whole: Mapping[str, Any]) -> AnswerReading:
        reader = ResponsesReader()
        reader.take_whole(whole)
        return reader.finish()


def _items(message: Message) -> Iterator[dict[str, Any]]:
    """A message, and each of its tool calls, is an item of its own here."""
    if message.result_of is not None:
        identity = message.result_of.id
        yield {"type": "function_call_output", "call_id": identity, "output": message.content}
        return
    if message.parts:
        yield {"role": message.role, "content": [_part(part) for part in message.parts]}
    elif message.content or not message.tool_calls:
        yield {"role": message.role, "content": message.content}
    for call in message.tool_calls:
        arguments = tool_input(call.arguments)
        encoded = {"call_id": call.id, "name": call.name, "arguments": arguments}
        yield {"type": "function_call", **encoded}


def _part(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    return {"type": "input_image", "image_url": image_url(part)}


def _settings(settings: ChatSettings) -> dict[str, Any]:
    """Neither `seed` nor `stop`: this protocol has none, and suites cannot set them."""
    body: dict[str, Any] = {}
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.reasoning_effort is not None:
        body["reasoning"] = {"effort": settings.reasoning_effort}
    if settings.response_format is not None:
        schema = schema_format(settings.response_format)
        body["text"] = {"format": {"type": "json_schema", **schema}}
    if settings.tools:
        # Strict by default here, and not every schema is valid then.
        body["tools"] = [
            {"type": "function", **function_of(tool), "strict": False} for tool in settings.tools
        ]
    return body


class ResponsesReader:
    """Assembles an answer from its events; the last one repeats all of it."""

    def __init__(self) -> None:
        self._deltas = Draft()
        self._whole: Draft | None = None
        self.done = False

    @property
    def size(self) -> int:
        return self._deltas.size

    def take(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "response.output_text.delta":
                delta = event.get("delta")
                self._deltas.add(delta if isinstance(delta, str) else "")
            case "response.refusal.delta":
                self._deltas.refuse(event.get("delta"))
            case (
                "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled"
            ) as kind:
                response = mapping(event.get("response"), "response")
                self.take_whole({"status": kind.removeprefix("response."), **response})
            case "error":
                raise ErrorInStreamError(complaint_of(event.get("error") or event))
            case None:
                raise_if_error(event)

    def take_end(self) -> None:
        """Not part of this protocol."""

    def take_whole(self, whole: Mapping[str, Any]) -> None:
        raise_if_error(whole)
        _check_status(whole.get("status"))
        draft = Draft(model=whole.get("model"), usage=whole.get("usage"))
        for place, item in enumerate(elements(whole.get("output"), "output")):
            _take_item(draft, place, mapping(item, "output"))
        draft.finish_reason = _finish_reason(whole)
        self._whole = draft
        self.done = True

    def finish(self) -> AnswerReading:
        if self._whole is None:
            raise TruncatedError
        whole = self._whole
        if not whole.parts and not whole.refusal:
            whole.parts, whole.refusal = self._deltas.parts, self._deltas.refusal
        return whole.finished(*usage_told(whole.usage))


def _check_status(status: Any) -> None:
    """A queued or running response is not an answer yet: the options ask for `background`."""
    match status:
        case "completed" | "incomplete":
            return
        case "failed" | "cancelled":
            raise ErrorInStreamError(complaint_of(f"it {_ENDED[status]} without a reason"))
        case str():
            raise UnreadableError("its 'status' is not that of a finished answer", quote=status)
    raise UnreadableError(f"its 'status' is {kind_of(status)}")


_ENDED = {"failed": "failed", "cancelled": "was cancelled"}


def _take_item(draft: Draft, place: int, item: Mapping[str, Any]) -> None:
    """Other kinds of items (reasoning, searches) are not part of the answer's text."""
    match item.get("type"):
        case "message":
            for part in elements(item.get("content"), "content"):
                _take_part(draft, mapping(part, "content"))
        case "function_call":
            draft.call(place, item.get("name"), item.get("arguments"), item.get("call_id"))


def _take_part(draft: Draft, part: Mapping[str, Any]) -> None:
    text = part.get("text")
    if part.get("type") == "output_text" and isinstance(text, str):
        draft.add(text)
    elif part.get("type") == "refusal":
        draft.refuse(part.get("refusal"))


def _finish_reason(whole: Mapping[str, Any]) -> Any:
    reason = amount_in(whole, "incomplete_details", "reason")
    return reason if reason is not None else whole.get("status")


def usage_told(usage: Any) -> tuple[dict[str, float] | None, str]:
    if not isinstance(usage, Mapping):
        return None, NO_USAGE
    return checked_usage(
        {
            "input_tokens": usage.get("input_tokens"),
            "output_tokens": usage.get("output_tokens"),
            "cached_tokens": amount_in(usage, "input_tokens_details", "cached_tokens"),
            "reasoning_tokens": amount_in(usage, "output_tokens_details", "reasoning_tokens"),
        }
    )
