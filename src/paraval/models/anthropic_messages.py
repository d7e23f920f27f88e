"""Anthropic's `/messages`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paraval.models.messages import image_url
from paraval.models.requests import Request
from paraval.models.response_reader import (
    NO_USAGE,
    AnswerReading,
    Draft,
    ErrorInStreamError,
    TruncatedError,
    checked_usage,
    complaint_of,
    elements,
    mapping,
    raise_if_error,
    text_of,
    tool_input,
)
from paraval.records import ChatSettings, Image, Message

VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096
"""`max_tokens` to send where none is set: the protocol requires it."""


class AnthropicMessages:
    """The protocol. It keeps system messages apart from the others."""

    path = "/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        headers = {"anthropic-version": VERSION}
        if key is not None:
            headers["x-api-key"] = key
        return headers

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        limit = request.max_tokens
        body: dict[str, Any] = {
            "model": request.model.model,
            "max_tokens": DEFAULT_MAX_TOKENS if limit is None else limit,
            "messages": _messages(request.messages),
            "stream": stream,
        }
        system = [one.content for one in request.messages if one.role == "system"]
        if system:
            body["system"] = "\n\n".join(system)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body | _settings(request.settings)

    def reader(self) -> MessageReader:
        return MessageReader()

    def read(self, whole: Mapping[str, Any]) -> AnswerReading:
        reader = MessageReader()
        reader.take_whole(whole)
        return reader.finish()


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The results of one step's tool calls are one message of the user."""
    encoded: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for message in messages:
        if message.role == "system":
            continue
        if message.result_of is None:
            results = None
            encoded.append({"role": message.role, "content": _content(message)})
            continue
        if results is None:
            results = []
            encoded.append({"role": "user", "content": results})
        results.append(
            {
                "type": "tool_result",
                "tool_use_id": message.result_of.id,
                "content": message.content,
                "is_error": message.result_of.failed,
            }
        )
    return encoded


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not message.parts and not message.tool_calls:
        return message.content
    texts = (message.content,) if message.content else ()
    content = [_block(part) for part in message.parts or texts]
    for call in message.tool_calls:
        given = call.arguments if isinstance(call.arguments, Mapping) else {}
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return content


def _block(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    url = image_url(part)
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _settings(settings: ChatSettings) -> dict[str, Any]:
    """Without `seed`: this protocol has none, and suites cannot set it."""
    body: dict[str, Any] = {}
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.stop:
        body["stop_sequences"] = list(settings.stop)
    output: dict[str, Any] = {}
    if settings.reasoning_effort is not None:
        output["effort"] = settings.reasoning_effort
    if settings.response_format is not None:
        output["format"] = {"type": "json_schema", "schema": settings.response_format}
    if output:
        body["output_config"] = output
    if settings.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in settings.tools
        ]
    return body


class MessageReader:
    """Assembles an answer from its events."""

    def __init__(self) -> None:
        self._draft = Draft()
        self._usage: dict[str, Any] = {}
        self.done = False

    @property
    def size(self) -> int:
        return self._draft.size

    def take(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._delta(event)
            case "content_block_start":
                self._block(event.get("index"), mapping(event.get("content_block"), "block"))
            case "message_start":
                message = mapping(event.get("message"), "message")
                self._draft.model = message.get("model")
                self._tell(message.get("usage"))
            case "message_delta":
                delta = mapping(event.get("delta"), "delta")
                self._draft.finish_reason = delta.get("stop_reason") or self._draft.finish_reason
                self._tell(event.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise ErrorInStreamError(complaint_of(event.get("error")))
            case None:
                raise_if_error(event)

    def take_end(self) -> None:
        """Not part of this protocol."""

    def take_whole(self, whole: Mapping[str, Any]) -> None:
        raise_if_error(whole)
        self._draft.model = whole.get("model")
        self._draft.finish_reason = whole.get("stop_reason")
        self._tell(whole.get("usage"))
        for place, block in enumerate(elements(whole.get("content"), "content")):
            self._block(place, mapping(block, "content"))
        self.done = True

    def finish(self) -> AnswerReading:
        if not (self.done and self._draft.finish_reason):
            raise TruncatedError
        return self._draft.finished(*usage_told(self._usage))

    def _block(self, place: Any, block: Mapping[str, Any]) -> None:
        """Other kinds of blocks (thinking) are not part of the answer's text."""
        match block.get("type"):
            case "text":
                self._draft.add(text_of(block.get("text")))
            case "tool_use":
                given = block.get("input")
                arguments = tool_input(given) if given else None
                self._draft.call(place, block.get("name"), arguments, block.get("id"))

    def _delta(self, event: Mapping[str, Any]) -> None:
        delta = mapping(event.get("delta"), "delta")
        match delta.get("type"):
            case "text_delta":
                self._draft.add(text_of(delta.get("text")))
            case "input_json_delta":
                self._draft.call(event.get("index"), None, delta.get("partial_json"))

    def _tell(self, usage: Any) -> None:
        """Usage is reported at the start and again at the end; later counts replace earlier
        ones."""
        if isinstance(usage, Mapping):
            self._usage.update({name: one for name, one in usage.items() if one is not None})


def usage_told(reported: Mapping[str, Any]) -> tuple[dict[str, float] | None, str]:
    """This protocol counts cached input separately; we count it as input too."""
    if not reported:
        return None, NO_USAGE
    usage, note = checked_usage(
        {
            "input_tokens": reported.get("input_tokens"),
            "output_tokens": reported.get("output_tokens"),
            "read": reported.get("cache_read_input_tokens"),
            "written": reported.get("cache_creation_input_tokens"),
        }
    )
    if usage is None:
        return None, note
    read, written = usage.pop("read", 0), usage.pop("written", 0)
    usage["input_tokens"] += read + written
    usage["cached_tokens"] = read
    if written:
        usage["cache_written_tokens"] = written
    return usage, note
