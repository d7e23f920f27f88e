"""The keys of a model in the registry."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from paraval.documents.forms import (
    Count,
    Form,
    Name,
    NotNegative,
    PlainWords,
    Positive,
    ReferenceNote,
    Seconds,
    Text,
    Unchecked,
    VariableName,
)
from paraval.records import Provider

MODEL_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,99}"
ModelId = Annotated[
    str,
    Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,300}$"),
    PlainWords("1 to 300 characters on one line"),
]
PROVIDERS = tuple(provider.value for provider in Provider)


class AccountLimitsForm(Form):
    """The provider's limits for the account, or for the model alone. Limits you don't set are
    discovered during the run."""

    concurrent: Count | None = Field(None, description="Concurrent calls.")
    requests_per_minute: Positive | None = Field(None, description="Calls per minute.")
    tokens_per_minute: Positive | None = Field(
        None, description="Tokens per minute, including those of the answers."
    )
    per: Literal["account", "model"] = Field(
        "account",
        description="Whose limits these are: all models of the account share them, or not.",
    )


class PriceForm(Form):
    """US dollars per million tokens, overriding the built-in price table."""

    input_per_million: NotNegative = Field(description="Input tokens.")
    output_per_million: NotNegative = Field(description="Output tokens.")
    cached_input_per_million: NotNegative | None = Field(
        None,
        description="Input tokens read from the provider's cache; by default the input price.",
    )


class ModelForm(Form):
    """An entry in the registry: how to reach a model, and what its account allows."""

    provider: Annotated[
        Literal["openai", "openai-responses", "anthropic", "loopback"],
        PlainWords(f"one of {', '.join(PROVIDERS)}"),
    ] = Field(
        description="The protocol: `openai` for `/chat/completions` of OpenAI and every compatible"
        " server, `openai-responses` for `/responses`, `anthropic` for `/messages`, `loopback` for"
        " a simulated model on this machine."
    )
    model: ModelId | None = Field(
        None, description="The provider's name for the model; optional only for `loopback`."
    )
    base_url: Text | None = Field(
        None,
        description="The URL before `/chat/completions`, `/responses` or `/messages`, usually with"
        " `/v1`: `https://host/v1`. By default the provider's own.",
    )
    api_key_env: VariableName | None = Field(
        None,
        description="The environment variable that holds the key. By default the provider's usual"
        " one (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`) at the provider's own URL, and no key at any"
        " other.",
    )
    account: Name | None = Field(
        None,
        description="Models with the same account share its limits. By default, models with the"
        " same host and key share an account.",
    )
    timeout: Seconds = Field(600.0, description="Time limit for one call.")
    idle_timeout: Seconds = Field(120.0, description="Time limit without any data.")
    limits: Annotated[
        Unchecked[AccountLimitsForm | None], ReferenceNote("a mapping, see below")
    ] = Field(None, description="The account's limits, if known.")
    price: Annotated[Unchecked[PriceForm | None], ReferenceNote("a mapping, see below")] = Field(
        None, description="Token prices, if the built-in price table is wrong."
    )
    options: Annotated[dict[str, Any], PlainWords("a mapping")] = Field(
        {}, description="Sent unchanged with every request, such as `{top_p: 0.9}`."
    )
    scenario: Text | None = Field(
        None,
        description="How a loopback model behaves: a bundled scenario, or the path of a file,"
        " relative to the file with this entry; by default `fast`.",
    )
