"""Rate limits and broken servers on the way of real agents."""

from __future__ import annotations

import pytest

from tests.agents.conftest import Place, asking

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
