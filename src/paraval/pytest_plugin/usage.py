"""The fixture `usage`: a test records the usage of its own model calls, and can read their cost.

    def test_answer(usage):
        response = client.chat.completions.create(...)
        usage.add(response)
        assert usage.cost_usd is None or usage.cost_usd < 0.01

A response names its model, but not the server that answered: its price comes from the registry, or
else from the API of the model's maker. Unknown costs stay unknown; they are never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any, Protocol

import pytest

from paraval.models.anthropic_messages import usage_told as by_anthropic
from paraval.models.openai_chat import usage_told as by_openai
from paraval.models.openai_responses import usage_told as by_responses
from paraval.models.prices import Prices
from paraval.models.requests import DEFAULT_BASE_URL
from paraval.models.response_reader import checked_usage
from paraval.pytest_plugin.models.choice import choice_in
from paraval.pytest_plugin.models.spending import SpendRecorder
from paraval.pytest_plugin.models.spent import SPENDING
from paraval.records import Model, Provider, Spend

UNNAMED = "unnamed model"
_PRICES = Prices()
_MAKERS = {"openai": Provider.OPENAI, "anthropic": Provider.ANTHROPIC}


class NamedModel(Protocol):
    """The fixture `model`, or anything else with a name."""

    @property
    def name(self) -> str: ...


class Usage:
    """Usage of a test's model calls so far. Can be used from any thread of the test."""

    def __init__(self, spending: SpendRecorder, config: pytest.Config) -> None:
        self._spending = spending
        self._config = config

    def add(
        self,
        response: object = None,
        *,
        model: str | NamedModel | None = None,
        cost_usd: float | None = None,
        **tokens: float,
    ) -> None:
        """Record one call: a client's response (or its JSON), or `input_tokens`, `output_tokens`
        and, if known, `cached_tokens` and `reasoning_tokens`."""
        reported, read, maker = None, None, None
        if response is None:
            read = _given(tokens, cost_usd)
        elif tokens:
            raise TypeError(f"a response has its own token counts; omit {', '.join(tokens)}")
        else:
            reported, read, maker = _read(response)
        named = reported if model is None else str(model)
        known = _known(self._config, named) or _made_by(maker, named)
        if cost_usd is None and known is not None:
            cost_usd = _PRICES.cost_usd(known, read)
        spend = Spend(calls=1, cost_usd=cost_usd, usage=read or {})
        self._spending.add(UNNAMED if named is None else shown(known, named), spend)

    @property
    def by_model(self) -> Mapping[str, Spend]:
        return self._spending.by_model()

    @property
    def total(self) -> Spend:
        return reduce(add, self.by_model.values(), Spend())

    @property
    def cost_usd(self) -> float | None:
        """Cost in US dollars; None: the price of at least one call is unknown."""
        return self.total.cost_usd

    @property
    def calls(self) -> int:
        return self.total.calls

    @property
    def input_tokens(self) -> int:
        """Includes cached tokens."""
        return self._tokens("input_tokens")

    @property
    def output_tokens(self) -> int:
        """Includes reasoning tokens."""
        return self._tokens("output_tokens")

    @property
    def cached_tokens(self) -> int:
        return self._tokens("cached_tokens")

    def _tokens(self, name: str) -> int:
        return int(self.total.usage.get(name, 0))

    def __repr__(self) -> str:
        cost = "unknown" if self.cost_usd is None else f"{self.cost_usd:g}"
        return (
            f"<Usage calls={self.calls} input_tokens={self.input_tokens}"
            f" output_tokens={self.output_tokens} cost_usd={cost}>"
        )


def make_usage(request: pytest.FixtureRequest) -> Usage:
    """Create the fixture's value, with function scope."""
    return Usage(spending_for(request.node), request.config)


def spending_for(item: pytest.Item) -> SpendRecorder:
    recorder: SpendRecorder = item.stash.setdefault(SPENDING, SpendRecorder(item))
    return recorder


def shown(known: Model | None, named: str) -> str:
    """The model's name in the summary: the registry's name, with a note if it is simulated."""
    if known is None:
        return named
    return f"{known.name} (simulated)" if known.provider is Provider.LOOPBACK else known.name


# ---- prices


def _known(config: pytest.Config, named: str | None) -> Model | None:
    """Find a registry entry by its own name, or by its model's name if only one entry has that."""
    choice = choice_in(config)
    if choice is None or named is None:
        return None
    models = choice.registry.models
    if named in models:
        return models[named]
    found = [model for model in models.values() if model.model == named]
    return found[0] if len(found) == 1 else None


def _made_by(maker: Provider | None, named: str | None) -> Model | None:
    if maker is None or named is None:
        return None
    url = DEFAULT_BASE_URL[maker]
    return Model(name=named, provider=maker, model=named, base_url=url, account=maker.value)


# ---- reading usage


def _given(tokens: Mapping[str, float], cost_usd: float | None) -> Mapping[str, float] | None:
    known = {"input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"}
    if unknown := tokens.keys() - known:
        raise TypeError(
            f"usage.add() does not take {', '.join(sorted(unknown))}; it takes a response, or"
            f" {', '.join(sorted(known))}, model and cost_usd"
        )
    if not tokens:
        if cost_usd is None:
            raise TypeError("usage.add() needs a response, or tokens, or cost_usd")
        return None
    checked, note = checked_usage(tokens)
    if checked is None:
        raise ValueError(f"usage.add() needs input_tokens and output_tokens: {note}")
    return checked


def _read(response: object) -> tuple[str | None, Mapping[str, float] | None, Provider | None]:
    """Read the model, the tokens and the maker from a response."""
    data = _data(response)
    usage = _data(data.get("usage") or data.get("usage_metadata") or data.get("usageMetadata"))
    model = data.get("model") or data.get("model_version") or data.get("modelVersion")
    if not usage and not isinstance(model, str):
        raise TypeError(
            f"usage.add() cannot read {type(response).__name__}: it has neither usage nor"
            " model; pass input_tokens=, output_tokens= and model= instead"
        )
    maker = _MAKERS.get(type(response).__module__.partition(".")[0])
    if maker is None and data.get("type") == "message":  # other servers use OpenAI's protocol
        maker = Provider.ANTHROPIC
    return model if isinstance(model, str) else None, _read_usage(usage), maker


def _read_usage(usage: Mapping[str, Any]) -> Mapping[str, float] | None:
    if "prompt_tokens" in usage:
        return by_openai(usage)[0]
    if "prompt_token_count" in usage or "promptTokenCount" in usage:
        return _by_google(usage)
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        return by_anthropic(usage)[0]
    return by_responses(usage)[0]


def _by_google(usage: Mapping[str, Any]) -> Mapping[str, float] | None:
    """Read Google's token counts: `prompt_token_count`, or in JSON `promptTokenCount`."""
    counts = {name.replace("_", "").lower(): amount for name, amount in usage.items()}
    thoughts = counts.get("thoughtstokencount") or 0
    tokens = {
        "input_tokens": counts.get("prompttokencount"),
        "output_tokens": (counts.get("candidatestokencount") or 0) + thoughts,
        "cached_tokens": counts.get("cachedcontenttokencount"),
        "reasoning_tokens": thoughts or None,
    }
    return checked_usage(tokens)[0]


def _data(value: object) -> Mapping[str, Any]:
    """Return a client's object as plain data; at most two levels are needed."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        # Clients keep fields they don't know; values of unexpected types don't concern us.
        found = dump(warnings=False)
        return found if isinstance(found, Mapping) else {}
    return getattr(value, "__dict__", {})
