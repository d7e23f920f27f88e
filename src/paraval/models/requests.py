"""What a model is asked and what came of it; and what is usual for each provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from paraval.records import AccountUse, Failure, Message, Model, Provider, Spend

# What is usual for a provider: where it is reached, and which variable holds its key.

DEFAULT_BASE_URL: Mapping[Provider, str] = {
    Provider.OPENAI: "https://api.openai.com/v1",
    Provider.OPENAI_RESPONSES: "https://api.openai.com/v1",
    Provider.ANTHROPIC: "https://api.anthropic.com/v1",
}
"""A loopback model has none: a run makes its address."""

DEFAULT_KEY_VARIABLE: Mapping[Provider, str] = {
    Provider.OPENAI: "OPENAI_API_KEY",
    Provider.OPENAI_RESPONSES: "OPENAI_API_KEY",
    Provider.ANTHROPIC: "ANTHROPIC_API_KEY",
}
"""A loopback model needs no key."""


def missing_keys(
    models: Iterable[Model], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """(model, variable) for each model whose key is not there."""
    return tuple(
        (model.name, model.api_key_env)
        for model in models
        if model.api_key_env is not None and not environment.get(model.api_key_env, "").strip()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model, ready to be made."""

    model: Model
    messages: tuple[Message, ...]
    """Their templates filled in."""
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    """None: the model's own."""
    repeat: int = 1
    """Which of several equal requests this is: each repeat, and each vote of a judge, is asked
    for itself, also with a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's answer, whole."""

    text: str
    spend: Spend
    use: AccountUse
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """model (as the provider names it), finish_reason, request_id, first_token_s, cached."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCall:
    """No answer, or none that can be used."""

    failure: Failure
    use: AccountUse
    spend: Spend | None = None
    """None: nothing was billed, as far as is known."""
    notes: tuple[str, ...] = ()


class ModelClient(Protocol):
    """Where reality enters: asks a model, once."""

    async def ask(self, request: Request) -> ModelAnswer | FailedCall:
        """Never raises for what the model, its server or the way there do."""
        ...


def merged_uses(uses: Iterable[AccountUse]) -> tuple[AccountUse, ...]:
    """What several calls did, one after the other: a single use of each account."""
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
        retry_after=earlier.retry_after if later.retry_after is None else later.retry_after,
        overloaded=earlier.overloaded or later.overloaded,
        reached=later.reached or earlier.requests > 0,
    )
