"""An assistant of a shop: several questions at once, rate limits, and a bad day."""

import asyncio
import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def instructions():
    """Made once, for all tests of the module."""
    return "You help customers. Answer in JSON."


@pytest.mark.retry_rate_limits
def test_order_is_found(model, instructions):
    """A rate limit refuses the first request: the test runs again when it may."""
    answer = model.ask("Where is order 17?", system=instructions)
    assert json.loads(answer.text)["status"] == "shipped"


@pytest.mark.timeout_s(10)
def test_three_questions_at_once(model, usage):
    async def ask_all():
        return await asyncio.gather(*(model.ask_async(f"Say yes, {n}.") for n in range(3)))

    assert [answer.text for answer in asyncio.run(ask_all())] == ["Yes."] * 3
    assert usage.calls == 3


@pytest.mark.parallel_group("long-answers", limit=2)
@pytest.mark.parametrize("topic", ["refunds", "delivery", "returns"])
def test_policy_is_told(model, instructions, topic):
    assert topic in model.ask(f"Tell me about {topic}.", system=instructions).text


def test_on_a_busy_day(model):
    """The provider is down: no wrong answer, but no answer either."""
    assert "yes" in model.ask("Are you busy?").text


def test_region_by_folder(monkeypatch, tmp_path):
    """It changes the working directory: of its worker only."""
    monkeypatch.chdir(tmp_path)
    Path("region.txt").write_text("eu")
    assert (tmp_path / "region.txt").read_text() == "eu"
