"""OpenAI's `/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paraval.loopback.exchange import (
    Finish,
    Question,
    Refusal,
    Reply,
    ToolCall,
    Usage,
    encode,
    mappings,
    model_of,
    pieces_of,
    positive_int,
    text_of,
)
from paraval.loopback.openai_errors import openai_refusal

FINISH_REASONS = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.TOOL_CALLS: "tool_calls",
}


class OpenAIChat:
    """Speaks `/chat/completions`."""

    def question(self, body: Mapping[str, Any]) -> Question:
        prompt, characters, tool_results = "", 0, 0
        for message in mappings(body, "messages"):
            text = text_of(message.get("content"))
            characters += len(text)
            role = message.get("role")
            if role == "user":
                prompt = text
            elif role in ("tool", "function"):
                tool_results += 1
        stream = body.get("stream") is True
        options = body.get("stream_options")
        wants_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        return Question(
            model=model_of(body),
            prompt=prompt,
            characters=characters,
            tool_results=tool_results,
            offers_tools=bool(body.get("tools") or body.get("functions")),
            stream=stream,
            wants_usage=wants_usage or not stream,
            max_tokens=positive_int(body, "max_completion_tokens", "max_tokens"),
        )

    def whole(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text if reply.pieces or not reply.calls else None,
            "refusal": None,
        }
        if reply.calls:
            message["tool_calls"] = [_call(call) for call in reply.calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": FINISH_REASONS[reply.finish],
        }
        body = {**_head(reply, "chat.completion"), "choices": [choice]}
        if reply.usage is not None:
            body["usage"] = _usage(reply.usage)
        return body

    def events(self, reply: Reply, question: Question) -> list[str]:
        head = _head(reply, "chat.completion.chunk")
        tail: dict[str, Any] = {"usage": None} if question.wants_usage else {}
        chunks = [{**head, "choices": [_choice(delta)], **tail} for delta in _deltas(reply)]
        last = _choice({}, FINISH_REASONS[reply.finish])
        chunks.append({**head, "choices": [last], **tail})
        if question.wants_usage and reply.usage is not None:
            chunks.append({**head, "choices": [], "usage": _usage(reply.usage)})
        return [*(f"data: {encode(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n"]

    def refusal(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        return openai_refusal(refusal)


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": kind,
        "created": reply.created,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    }


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    content = "" if reply.pieces or not reply.calls else None
    yield {"role": "assistant", "content": content, "refusal": None}
    for piece in reply.pieces:
        yield {"content": piece}
    for index, call in enumerate(reply.calls):
        started = _call(ToolCall(id=call.id, name=call.name, arguments=""))
        yield {"tool_calls": [{"index": index, **started}]}
        for piece in pieces_of(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{call.id}", "type": "function", "function": function}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
