"""OpenAI's `/responses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from paraval.loopback.exchange import (
    BLANK,
    ErrorReply,
    Finish,
    MalformedError,
    ModelRequest,
    Reply,
    ReplyToolCall,
    RequestBuilder,
    TokenUsage,
    encode,
    filled,
    mappings,
    model_of,
    pieces_of,
    positive_int,
    server_events,
)
from paraval.loopback.openai_chat_api import openai_refusal

RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class OpenAIResponsesApi:
    """Implements `/responses`."""

    def question(self, body: Mapping[str, Any]) -> ModelRequest:
        heard = RequestBuilder()
        heard.message(body.get("instructions"))
        _hear_input(body, heard)
        return heard.question(
            model=model_of(body),
            tools=body.get("tools"),
            stream=body.get("stream") is True,
            wants_usage=True,
            max_tokens=positive_int(body, "max_output_tokens"),
        )

    def whole(self, reply: Reply) -> dict[str, Any]:
        body = _response(reply, _status(reply), [item for item, _ in _items(reply)])
        if reply.usage is not None:
            body["usage"] = _usage(reply.usage)
        return body

    def events(self, reply: Reply, question: ModelRequest) -> list[str]:  # noqa: ARG002 - required by the protocol
        events = [*_events(reply), _last(reply, self.whole(reply))]
        return [
            sent
            for number, event in enumerate(events)
            for sent in server_events(event.kind, event.numbered(number))
        ]

    def refusal(self, refusal: ErrorReply) -> tuple[int, dict[str, Any]]:
        return openai_refusal(refusal)


class Event(NamedTuple):
    """One event, except for its number."""

    kind: str
    data: str

    def numbered(self, number: int) -> str:
        return f'{self.data[:-1]},"sequence_number":{number}}}'


def _event(kind: str, **data: Any) -> Event:
    return Event(kind, encode({"type": kind, **data}))


def _last(reply: Reply, response: dict[str, Any]) -> Event:
    return _event(f"response.{_status(reply)}", response=response)


def _hear_input(body: Mapping[str, Any], heard: RequestBuilder) -> None:
    given = body.get("input")
    if given is None:
        raise MalformedError("you must provide an 'input'")
    if isinstance(given, str):
        heard.message(given, of_user=True)
        return
    for item in mappings(body, "input"):
        if item.get("type") in RESULTS:
            heard.tool_result(item.get("output"))
        else:
            heard.message(item.get("content"), of_user=item.get("role") == "user")


def _response(reply: Reply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": None,
        "incomplete_details": cut,
        "instructions": None,
        "metadata": {"simulated": "true"},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def _items(reply: Reply) -> Iterator[tuple[dict[str, Any], Reply | ReplyToolCall]]:
    """The output's items, each in its final form, and its parts."""
    if reply.pieces or not reply.calls:
        yield _message(reply, [_part(reply.text)], _status(reply)), reply
    for call in reply.calls:
        yield _call(call, "completed"), call


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish is Finish.LENGTH else "completed"


def _message(reply: Reply, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: ReplyToolCall, status: str) -> dict[str, Any]:
    begun = status == "in_progress"
    named: dict[str, Any] = {"call_id": f"call_{call.id}", "name": call.name, "status": status}
    if call.text is not None:
        text = "" if begun else call.text
        return {"id": f"ctc_{call.id}", "type": "custom_tool_call", **named, "input": text}
    if call.namespace is not None:
        named["namespace"] = call.namespace
    arguments = "" if begun else call.arguments
    return {"id": f"fc_{call.id}", "type": "function_call", **named, "arguments": arguments}


def _events(reply: Reply) -> Iterator[Event]:
    """All but the last."""
    begun = _response(reply, "in_progress", [])
    yield _event("response.created", response=begun)
    yield _event("response.in_progress", response=begun)
    for index, (item, made_of) in enumerate(_items(reply)):
        inside = {"item_id": item["id"], "output_index": index}
        if isinstance(made_of, ReplyToolCall):
            empty = _call(made_of, "in_progress")
            between = _call_events(made_of, inside)
        else:
            empty = _message(reply, [], "in_progress")
            between = _text_events(made_of, inside)
        yield _event("response.output_item.added", output_index=index, item=empty)
        yield from between
        yield _event("response.output_item.done", output_index=index, item=item)


def _text_events(reply: Reply, inside: Mapping[str, Any]) -> Iterator[Event]:
    inside = {**inside, "content_index": 0}
    yield _event("response.content_part.added", **inside, part=_part(""))
    yield from _deltas("response.output_text.delta", {**inside, "logprobs": []}, reply.pieces)
    yield _event("response.output_text.done", **inside, text=reply.text, logprobs=[])
    yield _event("response.content_part.done", **inside, part=_part(reply.text))


def _call_events(call: ReplyToolCall, inside: Mapping[str, Any]) -> Iterator[Event]:
    if call.text is not None:
        kind = "response.custom_tool_call_input"
        yield from _deltas(f"{kind}.delta", inside, pieces_of(call.text))
        yield _event(f"{kind}.done", **inside, input=call.text)
        return
    kind = "response.function_call_arguments"
    yield from _deltas(f"{kind}.delta", inside, pieces_of(call.arguments))
    yield _event(f"{kind}.done", **inside, name=call.name, arguments=call.arguments)


def _deltas(kind: str, inside: Mapping[str, Any], pieces: tuple[str, ...]) -> Iterator[Event]:
    for data in filled({"type": kind, **inside, "delta": BLANK}, pieces):
        yield Event(kind, data)


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
