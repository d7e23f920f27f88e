"""OpenAI's `/responses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from paraval.loopback.exchange import (
    BLANK,
    Finish,
    MalformedError,
    Question,
    Refusal,
    Reply,
    ToolCall,
    Usage,
    encode,
    filled,
    mappings,
    model_of,
    pieces_of,
    positive_int,
    server_events,
    text_of,
)
from paraval.loopback.openai_errors import openai_refusal


class OpenAIResponses:
    """Speaks `/responses`."""

    def question(self, body: Mapping[str, Any]) -> Question:
        prompt, characters, tool_results = _input(body)
        return Question(
            model=model_of(body),
            prompt=prompt,
            characters=characters + len(text_of(body.get("instructions"))),
            tool_results=tool_results,
            offers_tools=bool(body.get("tools")),
            stream=body.get("stream") is True,
            max_tokens=positive_int(body, "max_output_tokens"),
        )

    def whole(self, reply: Reply) -> dict[str, Any]:
        body = _response(reply, _status(reply), [item for item, _ in _items(reply)])
        if reply.usage is not None:
            body["usage"] = _usage(reply.usage)
        return body

    def events(self, reply: Reply, question: Question) -> list[str]:  # noqa: ARG002 - the protocol's
        events = [*_events(reply), _last(reply, self.whole(reply))]
        return [
            sent
            for number, event in enumerate(events)
            for sent in server_events(event.kind, event.numbered(number))
        ]

    def refusal(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        return openai_refusal(refusal)


class Event(NamedTuple):
    """One event, but for its number."""

    kind: str
    data: str

    def numbered(self, number: int) -> str:
        return f'{self.data[:-1]},"sequence_number":{number}}}'


def _event(kind: str, **data: Any) -> Event:
    return Event(kind, encode({"type": kind, **data}))


def _last(reply: Reply, response: dict[str, Any]) -> Event:
    return _event(f"response.{_status(reply)}", response=response)


def _input(body: Mapping[str, Any]) -> tuple[str, int, int]:
    """The prompt, the number of characters, and of tools' results."""
    given = body.get("input")
    if isinstance(given, str):
        return given, len(given), 0
    if given is None:
        raise MalformedError("you must provide an 'input'")
    prompt, characters, tool_results = "", 0, 0
    for item in mappings(body, "input"):
        if item.get("type") == "function_call_output":
            tool_results += 1
            characters += len(text_of(item.get("output")))
            continue
        text = text_of(item.get("content"))
        characters += len(text)
        if item.get("role") == "user":
            prompt = text
    return prompt, characters, tool_results


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


def _items(reply: Reply) -> Iterator[tuple[dict[str, Any], Reply | ToolCall]]:
    """What the output holds, each as it is in the end, and what it is made of."""
    if reply.pieces or not reply.calls:
        yield _message(reply, [_part(reply.text)], _status(reply)), reply
    for call in reply.calls:
        yield _call(call, call.arguments, "completed"), call


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


def _call(call: ToolCall, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "status": status,
        "call_id": f"call_{call.id}",
        "name": call.name,
        "arguments": arguments,
    }


def _events(reply: Reply) -> Iterator[Event]:
    """All but the last."""
    begun = _response(reply, "in_progress", [])
    yield _event("response.created", response=begun)
    yield _event("response.in_progress", response=begun)
    for index, (item, made_of) in enumerate(_items(reply)):
        inside = {"item_id": item["id"], "output_index": index}
        if isinstance(made_of, ToolCall):
            empty = _call(made_of, "", "in_progress")
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


def _call_events(call: ToolCall, inside: Mapping[str, Any]) -> Iterator[Event]:
    kind = "response.function_call_arguments"
    yield from _deltas(f"{kind}.delta", inside, pieces_of(call.arguments))
    yield _event(f"{kind}.done", **inside, name=call.name, arguments=call.arguments)


def _deltas(kind: str, inside: Mapping[str, Any], pieces: tuple[str, ...]) -> Iterator[Event]:
    for data in filled({"type": kind, **inside, "delta": BLANK}, pieces):
        yield Event(kind, data)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
