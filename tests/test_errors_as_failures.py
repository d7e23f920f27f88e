"""Timeouts and crashes that count as failures, because the suite says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.settings import Selection
from tests.conftest import Paraval, WriteSuite

SUITE = """
name: agents
cases:
  - {id: easy, input: "echo ok", expect: ok}
  - {id: wrong, input: "echo no", expect: ok}
  - {id: hard, input: "sleep 30", expect: ok}
  - {id: rude, input: "exit 3", expect: ok}
target: {command: [sh, -c, "{input}"], timeout: 0.5, grace: 0.1, errors: ERRORS}
graders: [contains]
fail_under: 0.2
"""
BOTH = "{timeout: fail, crashed: fail}"


def report_in(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return document


def test_timeouts_and_crashes_count_as_failures_if_the_suite_says_so(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE.replace("ERRORS", BOTH))
    ended = paraval("run", "suite.yaml", "-o", "report.json", "-o", "report.html")
    assert ended.returncode == 0, ended.stderr
    assert "1 timeout and 1 crash count as failures\n" in ended.stdout
    assert "3 failed" in ended.stdout
    assert "Gate passed: 25% (1/4), required 20%" in ended.stdout
    assert "count as failures" in (folder / "report.html").read_text()
    document = report_in(folder)
    summary, trials = document["summary"], document["trials"]
    assert (summary["pass_rate"], summary["failed"], summary["errors"]) == (0.25, 3, 0)
    assert summary["errors_failed"] == {"timeout": 1, "crashed": 1}
    assert [one["outcome"] for one in trials] == ["passed", "failed", "failed", "failed"]
    assert [one["score"] for one in trials] == [1.0, 0.0, 0.0, 0.0]
    assert trials[2]["error"]["kind"] == "timeout"
    assert (
        trials[2]["error"]["message"] == "timeout, counted as failed: not done after 0.5 s; stopped"
    )
    # A time that was cut off is no time: only the two judged answers are measured.
    assert summary["median_s"] < 0.5
    assert summary["timeouts"] == 1
    again = paraval("report", "last", "-v").stdout
    assert "Median and p95 exclude 1 timeout" in again
    assert "1 timeout and 1 crash count as failures\n" in again
    assert "counted as failed: not done after 0.5 s" in paraval("logs", "last").stdout


def test_errors_stay_errors_by_default_and_by_kind(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE.replace("ERRORS", "{crashed: fail, timeout: error}"))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert [one["outcome"] for one in report_in(folder)["trials"]][2:] == ["timeout", "failed"]
    assert "1 crash counts as a failure\n" in ended.stdout
    write("suite.yaml", SUITE.replace(", errors: ERRORS", ""))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert [one["outcome"] for one in report_in(folder)["trials"]][2:] == ["timeout", "crashed"]
    assert "as failures\n" not in ended.stdout
    # The rule decides how results count, not what is run: nothing changed for a resume.
    write("suite.yaml", SUITE.replace("ERRORS", BOTH))
    resumed = paraval("resume", "--errors", "-o", "report.json")
    assert "2 of 4 trials done, 2 to run now" in resumed.stderr
    assert [one["outcome"] for one in report_in(folder)["trials"]][2:] == ["failed", "failed"]


def test_a_timeout_is_retried_first_and_fails_in_the_end(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    text = SUITE.replace("ERRORS", BOTH)
    write("suite.yaml", f"{text}retry: {{attempts: 2, on: [timeout], first_delay: 0}}\n")
    paraval("run", "suite.yaml", "--case", "hard", "-o", "report.json")
    (trial,) = report_in(folder)["trials"]
    assert (trial["outcome"], trial["attempts"], trial["retries"]) == ("failed", 2, {"timeout": 1})


def test_an_agent_that_hangs_has_a_pass_rate_and_no_time(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """Otherwise the one that hangs on hard tasks would look better than one that fails them."""
    write(
        "suite.yaml",
        """
name: agents
cases: [{id: a, input: one, expect: one}, {id: b, input: two, expect: two}]
matrix:
  which:
    good: {command: [echo, "{prompt}"]}
    hang: {command: [sleep, "30"]}
target:
  agent: custom
  prompt: "{input}"
  timeout: 0.6
  grace: 0.1
  errors: {timeout: fail}
graders: [contains]
fail_under: 0
""",
    )
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    good, hang = report_in(folder)["summary"]["variants"]
    assert (good["pass_rate"], hang["pass_rate"]) == (1.0, 0.0)
    assert (hang["median_s"], hang["timeouts"]) == (None, 2)
    compared = paraval("compare", "which=good", "which=hang").stdout
    assert "100" in compared
    assert "times as" not in compared, "what hangs has no time to compare"


def test_a_function_can_fail_by_an_exception(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("mine.py", "def answer(case):\n    raise ValueError('no idea')\n")
    write(
        "suite.yaml",
        "cases: [{id: a, expect: x}]\ntarget: {python: 'mine:answer', errors: {crashed: fail}}\n"
        "graders: [contains]\n",
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0
    assert "crashed, counted as failed: ValueError: no idea" in ended.stdout


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("{infra_error: fail}", "errors.infra_error: unknown key"),
        ("{timeout: failed}", "errors.timeout: must be 'error' or 'fail', not 'failed'"),
        ("fail", "errors: must be a mapping"),
    ],
)
def test_a_mistake_in_errors_is_reported_before_anything_runs(
    write: WriteSuite, paraval: Paraval, errors: str, words: str
) -> None:
    write("suite.yaml", SUITE.replace("ERRORS", errors))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "suite.yaml:8" in ended.stderr


def test_how_errors_count_is_not_part_of_a_trials_key(write: WriteSuite, folder: Path) -> None:
    write("with.yaml", SUITE.replace("ERRORS", BOTH))
    write("without.yaml", SUITE.replace(", errors: ERRORS", ""))
    one, other = (
        build_plan(Suite.load(folder / name), Selection()) for name in ("with.yaml", "without.yaml")
    )
    assert [trial.key for trial in one.trials] == [trial.key for trial in other.trials]
