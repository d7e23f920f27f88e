"""Rate limits and broken servers on the way of real agents."""

from __future__ import annotations

import pytest

from tests.agents.conftest import AGENTS, Place, asking, both

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("limits", ["tell", "keep silent"])
def test_rate_limits_are_waited_for_and_every_trial_passes(place: Place, limits: str) -> None:
    """Twenty requests are refused. Agents ask again a few times each, so that the patience which
    counts in the end is the run's."""
    place.write_suite(
        cases=asking(*(f"Case {number} meets limits that {limits}." for number in range(4)))
    )
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    assert report.summary["retries_by_kind"].get("rate_limited", 0) >= 1
    if limits == "tell":
        assert report.data["run"]["wall_s"] >= 2
    assert place.leftovers() == []


def test_a_broken_server_is_no_wrong_answer_and_is_tried_again(place: Place) -> None:
    place.write_suite(cases=asking("It meets a broken server."))
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    assert set(report.summary["retries_by_kind"]) <= {"infra_error", "rate_limited"}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_dies_late_of_an_overload_is_resumed_and_not_paid_for_again(
    place: Place, agent: str
) -> None:
    """Nine turns, then six refusals: one attempt, and each turn is made once."""
    place.write_suite(
        cases=asking("It takes nine turns."),
        matrix={"agent": {agent: both()[agent]}},
        target={
            "agent": "{agent}",
            "prompt": "{input}",
            "timeout": 100,
            "retries": {"before_first": 1},
        },
        graders=[
            {"equals": {"value": "Nine turns."}},
            {"command": ["sh", "-c", "seq 9 | cmp - turns.txt"]},
        ],
    )
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    (trial,) = report.trials
    assert trial["attempts"] == 1
    assert [(tool["calls"], tool["failed"]) for tool in trial["activity"]["tools"]] == [(9, 0)]
    times = {"claude-code": "3 times", "codex": "1 time"}[agent]
    assert f"session resumed {times} after errors of the provider" in trial["notes"]
    assert place.leftovers() == []
