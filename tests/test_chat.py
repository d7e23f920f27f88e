"""Chat models as targets: templates become a request, and what comes of it an output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.models.cache import Cache
from paraval.models.client import Models
from paraval.models.http_call import HttpCaller
from paraval.models.prices import Prices
from paraval.records import (
    Attempt,
    CacheUse,
    Case,
    ChatTarget,
    Message,
    Outcome,
    Price,
    Spend,
    Trial,
)
from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.targets.answer import TargetAnswer
from paraval.targets.chat import ChatAnswerer
from tests.exact_server import (
    ENDING,
    ENVIRONMENT,
    OPENAI,
    STREAMS,
    USAGE,
    Server,
    chat_chunk,
    complaint,
    events,
    http,
    model_of,
)

GOOD = http(events(*STREAMS[OPENAI]))
PRICE = Price(input_per_million=1.0, output_per_million=2.0)


def attempt_at(server: Server, case: Case, **target: Any) -> Attempt:
    messages = (
        Message(role="system", content="Speak {tone}."),
        Message(role="user", content="{case.id}, {repeat}: {input.question} {{as it is}}"),
    )
    made = ChatTarget(model=model_of(server, price=PRICE), messages=messages)
    variant: Mapping[str, str] = {"tone": "softly"}
    trial = Trial(
        index=0,
        key="k",
        case=case,
        variant=variant,
        repeat=2,
        target=replace(made, **target),
        needs=("account:team-a", "model:haiku"),
    )
    return Attempt(trial=trial, number=1, folder="/nowhere")


CASE = Case(id="greeting", input={"question": "Hello {tone}?"})


def answers(
    reply: bytes, *, times: int = 1, cache: Cache | None = None, **target: Any
) -> tuple[list[TargetAnswer], Server]:
    async def go() -> tuple[list[TargetAnswer], Server]:
        async with (
            Server(reply) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            models = Models(
                wire=wire,
                cache=cache,
                use=CacheUse.OFF if cache is None else CacheUse.REUSE,
                prices=Prices(),
                identities={},
            )
            chat = ChatAnswerer(models)
            attempt = attempt_at(server, CASE, **target)
            got = [await chat.answer(attempt) for _ in range(times)]
            await chat.close()
            return got, server

    return asyncio.run(go())


def test_templates_become_the_request() -> None:
    _, server = answers(GOOD, temperature=0.5, max_tokens=50)
    body = server.seen[0].json
    assert body["messages"] == [
        {"role": "system", "content": "Speak softly."},
        {"role": "user", "content": "greeting, 2: Hello {tone}? {as it is}"},
    ]
    assert (body["temperature"], body["max_tokens"]) == (0.5, 50)


def test_an_answer_becomes_an_output_with_its_cost() -> None:
    [answer], _ = answers(GOOD)
    assert answer.failure is None
    assert answer.output is not None
    assert answer.output.text == "Good day"
    assert answer.output.usage == USAGE
    assert answer.output.cost_usd == (11 * 1.0 + 7 * 2.0) / 1e6
    assert answer.output.metadata["finish_reason"] == "stop"
    assert "cached" not in answer.output.metadata
    assert answer.spend is not None
    assert (answer.spend.calls, answer.spend.cached) == (1, 0)
    assert [use.account for use in answer.uses] == ["account:team-a model:claude-x"]


def test_a_cached_answer_costs_nothing_now_and_keeps_the_cost_of_its_first_call(
    tmp_path: Path,
) -> None:
    [_, again], server = answers(GOOD, times=2, cache=Cache(tmp_path / "cache.db"))
    assert len(server.seen) == 1
    assert again.output is not None
    assert again.output.text == "Good day"
    assert again.spend is not None
    assert (again.spend.cost_usd, again.output.cost_usd) == (0, again.spend.cached_usd)
    assert again.output.metadata["cached"] is True
    assert (again.spend.calls, again.spend.cached, again.spend.cached_usage) == (0, 1, USAGE)
    assert again.uses[0].requests == 0


def test_what_is_unknown_stays_unknown() -> None:
    [answer], _ = answers(http(events(chat_chunk("Hm"), *ENDING)))
    assert answer.output is not None
    assert answer.output.cost_usd is None
    assert answer.output.usage == {}
    assert "reported no usage" in answer.notes[0]


def test_a_refusal_by_the_server_is_a_failure_with_its_account() -> None:
    [answer], _ = answers(http(complaint("slow down"), "429 X", "Retry-After: 7\r\n"))
    assert answer.output is None
    assert answer.failure is not None
    assert answer.failure.kind is Outcome.RATE_LIMITED
    assert answer.failure.retry_after == 7
    assert answer.uses[0].refused
    assert answer.spend == Spend(), "known to have cost nothing"


def test_a_targets_own_timeout_goes_before_the_models() -> None:
    async def go() -> TargetAnswer:
        async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read()

        async with (
            Server(hang) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            models = Models(wire=wire, cache=None, use=CacheUse.OFF, prices=Prices(), identities={})
            return await ChatAnswerer(models).answer(attempt_at(server, CASE, timeout=0.1))

    answer = asyncio.run(go())
    assert answer.failure is not None
    assert answer.failure.kind is Outcome.TIMEOUT
    assert "timed out after 0.1 s" in answer.failure.message
    assert answer.spend == Spend(calls=1, cost_usd=None)


def test_metadata_that_is_too_long_is_no_output_but_was_paid_for() -> None:
    arguments = '"' * (ANSWER_LIMIT_BYTES - 10)
    tool = chat_chunk(tool_calls=[{"function": {"name": "x", "arguments": arguments}}])
    usage = {"choices": [], "usage": {"prompt_tokens": 10_000, "completion_tokens": 0}}
    [answer], _ = answers(http(events(tool, usage, *ENDING)))
    assert answer.failure is not None
    assert answer.failure.kind is Outcome.INVALID_OUTPUT
    assert answer.spend is not None
    assert answer.spend.cost_usd == 0.01
