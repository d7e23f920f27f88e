"""Models as suites write them: every key of an entry of the registry."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

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
    """What the provider lets the account do. What is left out is found out as the run goes."""

    concurrent: Count | None = Field(None, description="How many calls at once.")
    requests_per_minute: Positive | None = Field(None, description="How many calls a minute.")
    tokens_per_minute: Positive | None = Field(
        None, description="How many tokens a minute, those of the answers included."
    )


class PriceForm(Form):
    """US dollars per million tokens, instead of the price table's."""

    input_per_million: NotNegative = Field(description="For what the model reads.")
    output_per_million: NotNegative = Field(description="For what it writes.")
    cached_input_per_million: NotNegative | None = Field(
        None,
        description="For what it reads from the provider's own cache; by default as other input.",
    )


class ModelForm(Form):
    """An entry of the registry: how a model is reached, and what its account allows."""

    provider: Annotated[
        Literal["openai", "openai-responses", "anthropic", "loopback"],
        PlainWords(f"one of {', '.join(PROVIDERS)}"),
    ] = Field(
        description="The protocol: `openai` for `/chat/completions` of OpenAI and every compatible"
        " server, `openai-responses` for `/responses`, `anthropic` for `/messages`, `loopback` for"
        " a simulated model on this machine."
    )
    model: ModelId | None = Field(
        None, description="As the provider calls it; only a loopback model may do without."
    )
    base_url: Text | None = Field(
        None,
        description="Where the protocol's paths begin: `https://host/v1`; by default the provider's"
        " own.",
    )
    api_key_env: VariableName | None = Field(
        None,
        description="The name of the variable that holds the key; by default the provider's usual"
        " one (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`) at its own address, and no key at any other.",
    )
    account: Name | None = Field(
        None,
        description="What shares a limit: models of the same account. By default those of the same"
        " host and key.",
    )
    timeout: Seconds = Field(600.0, description="The longest that a call may take.")
    idle_timeout: Seconds = Field(120.0, description="The longest that a call may be silent.")
    limits: Annotated[
        SkipValidation[AccountLimitsForm | None], ReferenceNote("a mapping, see below")
    ] = Field(None, description="What the account allows, where it is known.")
    price: Annotated[SkipValidation[PriceForm | None], ReferenceNote("a mapping, see below")] = (
        Field(None, description="What tokens cost, where the price table is not right.")
    )
    options: Annotated[dict[str, Any], PlainWords("a mapping")] = Field(
        {}, description="Sent with every request as they are, such as `{top_p: 0.9}`."
    )
    scenario: Text | None = Field(
        None,
        description="Of a loopback model, how it behaves: the name of a bundled scenario, or the"
        " path of a file, relative to the file that it is written in; by default `fast`.",
    )
