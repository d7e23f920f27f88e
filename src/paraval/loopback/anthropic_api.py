"""Anthropic's `/messages`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

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
    server_events,
)

STOP_REASONS = {
    Finish.STOP: "end_turn",
    Finish.LENGTH: "max_tokens",
    Finish.TOOL_CALLS: "tool_use",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
NO_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. "
    "Please go to Plans & Billing to upgrade or purchase credits."
)


class AnthropicApi:
    """Implements `/messages`."""

    def question(self, body: Mapping[str, Any]) -> ModelRequest:
        heard = RequestBuilder()
        heard.message(body.get("system"))
        for message in mappings(body, "messages"):
            content = message.get("content")
            results = _tool_results(content)
            for result in results:
                heard.tool_result(result.get("content"))
            heard.message(content, of_user=message.get("role") == "user" and not results)
        model, max_tokens = model_of(body), positive_int(body, "max_tokens")
        if max_tokens is None:
            raise MalformedError("max_tokens: Field required")
        return heard.question(
            model=model,
            tools=body.get("tools"),
            stream=body.get("stream") is True,
            wants_usage=True,
            max_tokens=max_tokens,
        )

    def whole(self, reply: Reply) -> dict[str, Any]:
        content = [_text_block(reply.text)] if reply.pieces else []
        content += [_call_block(call, json.loads(call.arguments)) for call in reply.calls]
        body = {**_head(reply), "content": content, "stop_reason": STOP_REASONS[reply.finish]}
        if reply.usage is not None:
            body["usage"] = _usage(reply.usage)
        return body

    def events(self, reply: Reply, question: ModelRequest) -> list[str]:  # noqa: ARG002 - required by the protocol
        return list(_events(reply))

    def refusal(self, refusal: ErrorReply) -> tuple[int, dict[str, Any]]:
        status, message = refusal.status, refusal.message
        if refusal.kind is RefusalKind.QUOTA:
            status, message = 400, NO_CREDIT
        kind = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return status, {"type": "error", "error": {"type": kind, "message": message}}


def _tool_results(content: Any) -> list[Mapping[str, Any]]:
    if not isinstance(content, list):
        return []
    return [
        block
        for block in content
        if isinstance(block, Mapping) and block.get("type") == "tool_result"
    ]


def _head(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call_block(call: ReplyToolCall, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": arguments}


def _events(reply: Reply) -> Iterator[str]:
    message = _head(reply)
    if reply.usage is not None:
        # It counts only the first output token here; the rest comes at the end.
        begun = TokenUsage(input=reply.usage.input, output=1, cached=reply.usage.cached)
        message["usage"] = _usage(begun)
    yield from _event({"type": "message_start", "message": message})
    yield from _block_events(reply)
    end: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": STOP_REASONS[reply.finish], "stop_sequence": None},
    }
    if reply.usage is not None:
        end["usage"] = {"output_tokens": reply.usage.output}
    yield from _event(end)
    yield from _event({"type": "message_stop"})


def _event(event: Mapping[str, Any]) -> list[str]:
    return server_events(event["type"], encode(event))


def _block_events(reply: Reply) -> Iterator[str]:
    index = 0
    if reply.pieces:
        delta = {"type": "text_delta", "text": BLANK}
        yield from _block(index, _text_block(""), delta, reply.pieces)
        index += 1
    for call in reply.calls:
        delta = {"type": "input_json_delta", "partial_json": BLANK}
        yield from _block(index, _call_block(call, {}), delta, ("", *pieces_of(call.arguments)))
        index += 1


def _block(
    index: int, begun: Mapping[str, Any], delta: Mapping[str, str], texts: tuple[str, ...]
) -> Iterator[str]:
    yield from _event({"type": "content_block_start", "index": index, "content_block": begun})
    if index == 0:
        yield from _event({"type": "ping"})
    event = {"type": "content_block_delta", "index": index, "delta": delta}
    yield from server_events("content_block_delta", *filled(event, texts))
    yield from _event({"type": "content_block_stop", "index": index})


def _usage(usage: TokenUsage) -> dict[str, Any]:
    # Here, input excludes what came from the cache.
    fresh = usage.input - usage.cached if isinstance(usage.input, int) else usage.input
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }
