"""Agents that hang, and what they leave running: ended at their time, with all their children."""

from __future__ import annotations

import uuid

import psutil
import pytest

from tests.agents.conftest import AGENTS, Place, asking

pytestmark = pytest.mark.agents


def commands_with(token: str) -> list[list[str]]:
    commands: list[list[str]] = [
        process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])
    ]
    return [command for command in commands if any(token in word for word in command)]


def test_an_agent_whose_shell_hangs_is_ended_at_its_timeout_with_its_children(
    place: Place,
) -> None:
    token = uuid.uuid4().hex
    before = place.repository_as_it_is()
    place.write_suite(
        cases=asking(*[f"Hang {token}"] * 4),
        target={"agent": "{agent}", "prompt": "{input}", "timeout": 25, "grace": 1},
    )
    report = place.run()
    assert report.all_ended("timeout"), report.outcomes
    for agent in AGENTS:
        told = place.transcripts(report, agent)
        assert any(f"time.sleep(300)  # {token}" in text for text in told), "no shell was reached"
    assert commands_with(token) == []
    assert place.leftovers() == []
    assert place.repository_as_it_is() == before


def test_what_an_agent_leaves_in_a_session_of_its_own_ends_with_it(place: Place) -> None:
    token = uuid.uuid4().hex
    place.write_suite(cases=asking(*[f"Leave {token} behind."] * 2))
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    assert {trial["output"] for trial in report.trials} == {"Left."}
    tools = [tool for trial in report.trials for tool in trial["activity"]["tools"]]
    assert [(tool["calls"], tool["failed"]) for tool in tools] == [(1, 0)] * 4
    assert commands_with(token) == []
    assert place.leftovers() == []


def test_an_agent_that_gets_no_answer_is_ended_at_its_timeout(place: Place) -> None:
    place.write_suite(
        cases=asking("It meets silence."),
        target={"agent": "{agent}", "prompt": "{input}", "timeout": 8, "grace": 1},
    )
    report = place.run()
    assert report.all_ended("timeout"), report.outcomes
    assert place.leftovers() == []
