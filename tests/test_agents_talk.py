"""Talk is no complaint: what an agent works on must not be taken for what befell it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paraval.agents.catalog import KNOWN_AGENTS
from paraval.agents.program import AgentEnd, AgentJob, Transcript, TranscriptReading
from paraval.agents.provider_errors import end_in

TALK = [
    "implement the rate limit middleware",
    "I added a rate limiter with a limit of 10 requests",
    "API Error handling is covered",
    "run the login tests",
    "run pytest tests/login -q",
    "users who are not logged in see the start page",
    "the handler answers that authentication required a token",
    "wrote tests for when a login required header is absent",
    "a missing API key is missing from the form's checks",
    "the usage limit is a setting now",
]
JOB = AgentJob(prompt="x", workspace="/w", home="/h", temp="/t", program=("a",))


def read(agent: str, stdout: str, stderr: str = "", exit_code: int | None = 1) -> TranscriptReading:
    transcript = Transcript(stdout=stdout, stderr=stderr, exit_code=exit_code)
    return KNOWN_AGENTS[agent].read(JOB, transcript, {})


@pytest.mark.parametrize("words", TALK)
def test_innocent_words_tell_of_no_end(words: str) -> None:
    assert end_in(words) is None


@pytest.mark.parametrize("words", TALK)
@pytest.mark.parametrize("agent", list(KNOWN_AGENTS))
def test_an_agent_that_broke_after_talk_of_it_broke(agent: str, words: str) -> None:
    """Whatever it printed on the way, on stdout or on stderr, it is not refused by anyone."""
    reading = read(agent, f"{words}\n", f"{words}\nTraceback\nKeyError: 'x'\n")
    assert reading.end is AgentEnd.BROKEN


@pytest.mark.parametrize("words", TALK)
def test_aider_with_an_answer_about_it_has_an_answer(words: str) -> None:
    stdout = f"Aider v0.86.2\n\n{words}\n\nTokens: 1.8k sent, 17 received.\nApplied edit to x.py\n"
    assert read("aider", stdout, f"{words}\n", exit_code=0).end is None


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("Rate limit exceeded", AgentEnd.RATE_LIMITED),
        ("You have exceeded the rate limit for your plan", AgentEnd.RATE_LIMITED),
        ("rate_limit_error: slow down", AgentEnd.RATE_LIMITED),
        ("The API provider has rate limited you.", AgentEnd.RATE_LIMITED),
        ("5-hour limit reached ∙ resets 3am", AgentEnd.RATE_LIMITED),
        ("Not logged in · Please run /login", AgentEnd.NO_LOGIN),
        ("Error: You are not logged in.", AgentEnd.NO_LOGIN),
        ("Please run `codex login` first", AgentEnd.NO_LOGIN),
        ("run 'opencode auth login'", AgentEnd.NO_LOGIN),
        ("Error: login required", AgentEnd.NO_LOGIN),
        ("No API key found for provider x", AgentEnd.NO_LOGIN),
    ],
)
def test_complaints_are_still_heard(words: str, end: AgentEnd) -> None:
    assert end_in(words) is end


@pytest.mark.parametrize("exit_code", [150, 170, 200, 255])
def test_an_exit_code_of_gemini_that_is_no_status_tells_of_none(exit_code: int) -> None:
    assert read("gemini", "", "killed", exit_code=exit_code).end is AgentEnd.BROKEN


@pytest.mark.parametrize(
    "line",
    [
        "The API provider is not able to authenticate you. Check your API key.",
        "The API provider's servers are down or overloaded.",
        "Insufficient credits with the API provider.",
        "Model openai/m has hit a token limit!",
    ],
)
def test_aiders_own_complaints_are_heard_in_its_forms(line: str) -> None:
    assert read("aider", f"Aider v0.86.2\n\n{line}\n", exit_code=0).end is not None


# ---- agents that never came to begin


@pytest.mark.parametrize("agent", list(KNOWN_AGENTS))
def test_one_that_never_began_does_not_count_as_one_that_never_called_its_tool(agent: str) -> None:
    assert not read(agent, "", "cannot open x").activity.tells_tools


@pytest.mark.parametrize(
    ("agent", "event"),
    [
        ("claude-code", {"type": "system", "subtype": "init"}),
        ("codex", {"type": "thread.started", "thread_id": "t"}),
        ("opencode", {"type": "step_start", "part": {}}),
        ("gemini", {"type": "init"}),
    ],
)
def test_one_that_began_and_broke_tells_that_it_called_none(
    agent: str, event: dict[str, Any]
) -> None:
    reading = read(agent, json.dumps(event))
    assert reading.activity.tells_tools
    assert reading.has_worked is False
