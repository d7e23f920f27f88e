"""What is usual for a provider: where it is reached, and which variable holds its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paraval.records import Model, Provider

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
