"""OpenAI's `/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paraval.loopback.exchange import (
    BLANK,
    Finish,
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
)
from paraval.loopback.hearing import Hearing
from paraval.loopback.openai_errors import openai_refusal

FINISH_REASONS = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.TOOL_CALLS: "tool_calls",
}


class OpenAIChat:
    """Speaks `/chat/completions`."""

    def question(self, body: Mapping[str, Any]) -> Question:
        heard = Hearing()
        for message in mappings(body, "messages"):
            role, content = message.get("role"), message.get("content")
            if role in ("tool", "function"):
                heard.tool_result(content)
            else:
                heard.message(content, of_user=role == "user")
        stream = body.get("stream") is True
        options = body.get("stream_options")
        wants_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        return heard.question(
            model=model_of(body),
            tools=body.get("tools") or body.get("functions"),
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

        def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
            return {**head, "choices": [_choice(delta, finish_reason)], **tail}

        content = "" if reply.pieces or not reply.calls else None
        data = [encode(chunk({"role": "assistant", "content": content, "refusal": None}))]
        data += filled(chunk({"content": BLANK}), reply.pieces)
        for index, call in enumerate(reply.calls):
            data.append(encode(chunk(_begun_call(index, call))))
            data += filled(chunk(_call_piece(index, BLANK)), pieces_of(call.arguments))
        data.append(encode(chunk({}, FINISH_REASONS[reply.finish])))
        if question.wants_usage and reply.usage is not None:
            data.append(encode({**head, "choices": [], "usage": _usage(reply.usage)}))
        return [f"data: {one}\n\n" for one in (*data, "[DONE]")]

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


def _choice(delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _begun_call(index: int, call: ToolCall) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **_call(replace(call, arguments=""))}]}


def _call_piece(index: int, piece: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


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
