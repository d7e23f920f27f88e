"""Requests to models and their results; and each provider's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Protocol

from paraval.dataclass import dataclass
from paraval.records import (
    AccountUse,
    ChatSettings,
    Failure,
    Message,
    Model,
    Provider,
    Spend,
)

# Each provider's defaults: its address, and the variable that holds its key.

DEFAULT_BASE_URL: Mapping[Provider, str] = {
    Provider.OPENAI: "https://api.openai.com/v1",
    Provider.OPENAI_RESPONSES: "https://api.openai.com/v1",
    Provider.ANTHROPIC: "https://api.anthropic.com/v1",
}
"""None for a loopback model: the run creates its address."""

DEFAULT_KEY_VARIABLE: Mapping[Provider, str] = {
    Provider.OPENAI: "OPENAI_API_KEY",
    Provider.OPENAI_RESPONSES: "OPENAI_API_KEY",
    Provider.ANTHROPIC: "ANTHROPIC_API_KEY",
}
"""None for a loopback model, which needs no key."""


def missing_keys(
    models: Iterable[Model], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """(model, variable) for each model whose key is missing."""
    return tuple(
        (model.name, model.api_key_env)
        for model in models
        if model.api_key_env is not None and not environment.get(model.api_key_env, "").strip()
    )


NO_SETTINGS = ChatSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model, ready to be made."""

    model: Model
    messages: tuple[Message, ...]
    """With templates filled in."""
    temperature: float | None = None
    max_tokens: int | None = None
    settings: ChatSettings = field(default_factory=ChatSettings)
    timeout: float | None = None
    """None: the model's own timeout."""
    repeat: int = 1
    """Distinguishes identical requests: each repeat, and each vote of a judge, is a request of its
    own, even with a cache."""
    embeds: bool = False
    """True: not a conversation. The answer is the cosine of the embeddings of two messages."""


def settings_words(settings: ChatSettings) -> dict[str, Any]:
    """What decides an answer: the parameters that are set, by name."""
    words = {one.name: getattr(settings, one.name) for one in fields(settings)}
    words["tools"] = [(tool.name, tool.description, tool.parameters) for tool in settings.tools]
    return {name: value for name, value in words.items() if value not in (None, (), [], {})}


def request_data(request: Request) -> dict[str, Any]:
    """The request as plain data, for people: what was sent, without addresses and keys."""
    data: dict[str, Any] = {
        "model": request.model.model,
        "provider": request.model.provider.value,
        "messages": [_message_data(message) for message in request.messages],
    }
    if request.temperature is not None:
        data["temperature"] = request.temperature
    if request.max_tokens is not None:
        data["max_tokens"] = request.max_tokens
    if request.settings != NO_SETTINGS:
        data.update(settings_words(request.settings))
        data["tools"] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in request.settings.tools
        ]
    return data


def _message_data(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        data["images"] = [part.source for part in message.parts if not isinstance(part, str)]
    if message.tool_calls:
        data["tool_calls"] = [
            {"name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.result_of is not None:
        data["result_of"] = message.result_of.name
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's complete answer."""

    text: str
    spend: Spend
    use: AccountUse
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """model (as the provider names it), finish_reason, request_id, first_token_s, cached,
    tool_calls."""
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    """How long the call took; of a cached answer, the call that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCall:
    """A call without a usable answer."""

    failure: Failure
    use: AccountUse
    spend: Spend | None = None
    """None: nothing was billed, as far as known."""
    notes: tuple[str, ...] = ()


class ModelClient(Protocol):
    """Asks a model, once."""

    async def ask(self, request: Request) -> ModelAnswer | FailedCall:
        """Never raises for failures of the model, its server or the network."""
        ...


def merged_uses(uses: Iterable[AccountUse]) -> tuple[AccountUse, ...]:
    """Combine several consecutive calls into one use per model."""
    merged: dict[str, AccountUse] = {}
    for use in uses:
        earlier = merged.get(use.account)
        merged[use.account] = use if earlier is None else _after(earlier, use)
    return tuple(merged.values())


def _after(earlier: AccountUse, later: AccountUse) -> AccountUse:
    return replace(
        later,
        requests=earlier.requests + later.requests,
        tokens=earlier.tokens + later.tokens,
        told=earlier.told if later.told is None else later.told,
        refused=earlier.refused or later.refused,
        whole_account=earlier.whole_account or later.whole_account,
        retry_after=earlier.retry_after if later.retry_after is None else later.retry_after,
        overloaded=earlier.overloaded or later.overloaded,
        reached=later.reached or earlier.requests > 0,
    )
