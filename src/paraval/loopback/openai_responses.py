"""OpenAI's `/responses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paraval.loopback.exchange import (
    Finish,
    MalformedError,
    Question,
    Refusal,
    Reply,
    ToolCall,
    Usage,
    mappings,
    model_of,
    pieces_of,
    positive_int,
    server_events,
    text_of,
)
from paraval.loopback.openai_errors import openai_refusal

Event = dict[str, Any]


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
        status = "incomplete" if reply.finish is Finish.LENGTH else "completed"
        body = _response(reply, status, [item for item, _ in _items(reply)])
        if reply.usage is not None:
            body["usage"] = _usage(reply.usage)
        return body

    def events(self, reply: Reply, question: Question) -> list[str]:  # noqa: ARG002 - the protocol's
        events = list(_events(reply))
        events.append(self._last(reply))
        for number, event in enumerate(events):
            event["sequence_number"] = number
        return server_events(events)

    def refusal(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        return openai_refusal(refusal)

    def _last(self, reply: Reply) -> Event:
        kind = "incomplete" if reply.finish is Finish.LENGTH else "completed"
        return {"type": f"response.{kind}", "response": self.whole(reply)}


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
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": _response(reply, "in_progress", [])}
    for index, (item, made_of) in enumerate(_items(reply)):
        inside = {"item_id": item["id"], "output_index": index}
        if isinstance(made_of, ToolCall):
            begun = _call(made_of, "", "in_progress")
            between = _call_events(made_of, inside)
        else:
            begun = _message(reply, [], "in_progress")
            between = _text_events(made_of, inside)
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        yield from between
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _text_events(reply: Reply, inside: Mapping[str, Any]) -> Iterator[Event]:
    inside = {**inside, "content_index": 0}
    yield {"type": "response.content_part.added", **inside, "part": _part("")}
    for piece in reply.pieces:
        yield {
            "type": "response.output_text.delta",
            **inside,
            "delta": piece,
            "logprobs": [],
        }
    yield {"type": "response.output_text.done", **inside, "text": reply.text, "logprobs": []}
    yield {"type": "response.content_part.done", **inside, "part": _part(reply.text)}


def _call_events(call: ToolCall, inside: Mapping[str, Any]) -> Iterator[Event]:
    kind = "response.function_call_arguments"
    for piece in pieces_of(call.arguments):
        yield {"type": f"{kind}.delta", **inside, "delta": piece}
    yield {"type": f"{kind}.done", **inside, "name": call.name, "arguments": call.arguments}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
