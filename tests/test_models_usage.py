"""Tokens that a provider tells: believed as far as they can be true."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from paraval.models.http_call import CallResult
from paraval.models.requests import FailedCall
from paraval.records import Message
from tests.exact_server import OPENAI, WHOLE, Server, call, http, model_of


def told(usage: tuple[int, int], max_tokens: int | None, **model: Any) -> CallResult:
    said = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    reply = http(json.dumps({**WHOLE[OPENAI], "usage": said}))

    async def go() -> CallResult | FailedCall:
        async with Server(reply) as server:
            return await call(model_of(server, **model), max_tokens=max_tokens)

    got = asyncio.run(go())
    assert isinstance(got, CallResult)
    return got


@pytest.mark.parametrize(
    ("usage", "max_tokens"),
    [
        ((20_000_000, 5), 10),
        ((30_000, 5), None),
        ((10, 20_000_000), 10),
        ((10, 100_001), 10),
        ((10, 1_000_001), None),
        ((10, 200_001), 50_000),
    ],
)
def test_tokens_that_a_request_cannot_have_taken_are_unknown(
    usage: tuple[int, int], max_tokens: int | None
) -> None:
    """A single wrong count would empty a budget, or hold an account up for hours."""
    got = told(usage, max_tokens)
    assert got.usage is None
    assert "is implausible" in got.notes[0]
    assert 0 < got.use.tokens < 100


@pytest.mark.parametrize(
    ("usage", "max_tokens", "options"),
    [
        ((9_000, 5), 10, {}),
        ((10, 90_000), 10, {}),
        ((10, 200_000), 50_000, {}),
        ((10, 900_000), None, {}),
        ((10, 350_000), None, {"max_completion_tokens": 100_000}),
        ((400_000, 5), 10, {"tools": [{"type": "web_search"}]}),
    ],
)
def test_tokens_that_a_request_may_have_taken_are_believed(
    usage: tuple[int, int], max_tokens: int | None, options: dict[str, Any]
) -> None:
    got = told(usage, max_tokens, options=options)
    assert got.usage == {"input_tokens": usage[0], "output_tokens": usage[1]}
    assert got.use.tokens == sum(usage)


def test_a_long_prompt_may_take_many_tokens() -> None:
    whole = {**WHOLE[OPENAI], "usage": {"prompt_tokens": 90_000, "completion_tokens": 1}}

    async def go() -> CallResult | FailedCall:
        async with Server(http(json.dumps(whole))) as server:
            long = Message(role="user", content="é" * 30_000)
            return await call(model_of(server), messages=(long,))

    got = asyncio.run(go())
    assert isinstance(got, CallResult)
    assert got.usage == {"input_tokens": 90_000, "output_tokens": 1}
