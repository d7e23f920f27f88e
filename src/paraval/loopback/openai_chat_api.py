"""OpenAI's `/chat/completions` and `/embeddings`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from paraval.loopback.exchange import (
    BLANK,
    ErrorReply,
    Finish,
    MalformedError,
    ModelRequest,
    RefusalKind,
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
    tokens_of,
)

# OpenAI's errors, the same in both of its protocols.

_TYPE_AND_CODE: dict[RefusalKind, tuple[str, str | None]] = {
    RefusalKind.MALFORMED: ("invalid_request_error", None),
    RefusalKind.BAD_KEY: ("invalid_request_error", "invalid_api_key"),
    RefusalKind.NO_MODEL: ("invalid_request_error", "model_not_found"),
    RefusalKind.NO_PATH: ("invalid_request_error", "unknown_url"),
    RefusalKind.TOO_LARGE: ("invalid_request_error", None),
    RefusalKind.RATE: ("requests", "rate_limit_exceeded"),
    RefusalKind.QUOTA: ("insufficient_quota", "insufficient_quota"),
}


def openai_refusal(refusal: ErrorReply) -> tuple[int, dict[str, Any]]:
    kind, code = _TYPE_AND_CODE.get(refusal.kind) or _by_status(refusal.status)
    error = {"message": refusal.message, "type": kind, "param": None, "code": code}
    return refusal.status, {"error": error}


def _by_status(status: int) -> tuple[str, str | None]:
    match status:
        case 401:
            return _TYPE_AND_CODE[RefusalKind.BAD_KEY]
        case 429:
            return _TYPE_AND_CODE[RefusalKind.RATE]
        case _ if status >= 500:
            return "server_error", None
    return "invalid_request_error", None


DIMENSIONS = 256
"""Of simulated embeddings."""
FINISH_REASONS = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.TOOL_CALLS: "tool_calls",
}


class OpenAIChatApi:
    """Implements `/chat/completions`."""

    def question(self, body: Mapping[str, Any]) -> ModelRequest:
        heard = RequestBuilder()
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

    def events(self, reply: Reply, question: ModelRequest) -> list[str]:
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

    def refusal(self, refusal: ErrorReply) -> tuple[int, dict[str, Any]]:
        return openai_refusal(refusal)


class OpenAIEmbeddingsApi(OpenAIChatApi):
    """Implements `/embeddings`: texts with many common words have similar vectors."""

    def question(self, body: Mapping[str, Any]) -> ModelRequest:
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise MalformedError("'input' must be a string or a list of strings.")
        heard = RequestBuilder()
        for text in texts:
            heard.message(text, of_user=True)
        question = heard.question(
            model=model_of(body), tools=None, stream=False, wants_usage=True, max_tokens=None
        )
        return replace(question, texts=tuple(texts))

    def embeddings(self, question: ModelRequest, reply: Reply) -> dict[str, Any]:
        vectors = enumerate(map(_vector, question.texts))
        tokens = tokens_of(question.characters)
        return {
            "object": "list",
            "data": [{"object": "embedding", "index": n, "embedding": one} for n, one in vectors],
            "model": reply.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


def _vector(text: str) -> list[float]:
    counts = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.casefold()) or [""]:
        counts[crc32(word.encode("utf-8", "replace")) % DIMENSIONS] += 1.0
    length = math.hypot(*counts)
    return [round(count / length, 6) for count in counts]


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


def _begun_call(index: int, call: ReplyToolCall) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **_call(replace(call, arguments=""))}]}


def _call_piece(index: int, piece: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _call(call: ReplyToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{call.id}", "type": "function", "function": function}


def _usage(usage: TokenUsage) -> dict[str, Any]:
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
