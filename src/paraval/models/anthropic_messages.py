"""Anthropic's `/messages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
            "messages": [
                {"role": one.role, "content": one.content}
                for one in request.messages
                if one.role != "system"
            ],
            "stream": stream,
        }
        system = [one.content for one in request.messages if one.role == "system"]
        if system:
            body["system"] = "\n\n".join(system)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body

    def reader(self) -> MessageReader:
        return MessageReader()

    def read(self, whole: Mapping[str, Any]) -> AnswerReading:
        reader = MessageReader()
        reader.take_whole(whole)
        return reader.finish()


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
                self._draft.call(place, block.get("name"), tool_input(given) if given else None)

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
