"""Graders of cases, combined graders and skipped ones, run as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paraval as library
from paraval.plan.build import draft_plan
from paraval.settings import Selection
from paraval.testing import Loopback, loopback
from tests.conftest import Paraval, WriteSuite


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def trials_of(folder: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((folder / "report.json").read_text())
    return {trial["case"]: trial for trial in report["trials"]}


def grades_of(trial: dict[str, Any]) -> dict[str, bool]:
    return {grade["grader"]: grade["passed"] for grade in trial["grades"]}


CASES = {
    "added.yaml": """
        - {id: plain, input: Hello Ann, expect: Hello}
        - {id: more, input: Hello Bob, expect: Hello, graders: [{contains: Ann}]}
        - {id: instead, input: Bye, expect: Hello, graders: {replace: [{starts_with: B}]}}
        """,
    "added.jsonl": """\
        {"id": "plain", "input": "Hello Ann", "expect": "Hello"}
        {"id": "more", "input": "Hello Bob", "expect": "Hello", "graders": [{"contains": "Ann"}]}
        {"id": "instead", "input": "Bye", "graders": {"replace": [{"starts_with": "B"}]}}
        """,
}


@pytest.mark.parametrize("file", CASES)
def test_a_case_adds_to_the_graders_of_the_suite_or_replaces_them(
    write: WriteSuite, paraval: Paraval, folder: Path, file: str
) -> None:
    write(file, CASES[file])
    write(
        "suite.yaml",
        f"""
        cases: {file}
        target: {{command: [echo, "{{input}}"]}}
        graders: [contains]
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 1, ended.stderr
    trials = trials_of(folder)
    assert grades_of(trials["plain"]) == {"contains": True}
    assert grades_of(trials["more"]) == {"contains": True, "contains#2": False}
    assert grades_of(trials["instead"]) == {"starts_with": True}


def greets(output: library.Output, case: library.Case) -> bool:
    return output.text.startswith("Hello")


def test_a_case_in_python_has_functions_as_graders_and_only_its_key_changes() -> None:
    def planned(**own: Any) -> dict[str, str]:
        suite = library.Suite(
            cases=[library.Case(id="a", input="x", expect="x"), library.Case(id="b", **own)],
            target={"command": ["echo", "Hello"]},
            graders=[{"contains": "Hello"}],
        )
        return {trial.case.id: trial.key for trial in draft_plan(suite, Selection()).trials}

    without, with_own = planned(), planned(graders=[greets])
    assert with_own["a"] == without["a"]
    assert with_own["b"] != without["b"]
    suite = library.Suite(
        cases=[{"id": "b", "graders": {"replace": [greets, {"not": {"contains": "Bye"}}]}}],
        target={"command": ["echo", "Hello"]},
        graders=[{"contains": "nothing"}],
    )
    [spec, other] = suite.definition.grading.of("b")
    assert (spec.name, other.name) == ("greets", "not")


def test_keys_of_suites_from_before_are_still_the_same(write: WriteSuite) -> None:
    """A resume finds results by these keys, and the name of a Python grader is a part of them."""
    write("own.py", "def good(output, case):\n    return True\n")
    path = write(
        "suite.yaml",
        """
        cases: [{id: a, input: x, expect: "7"}]
        target: {command: [echo, x]}
        graders: [contains, json, number, {python: "own:good"}, {python: "own:good"}]
        """,
    )
    suite = library.Suite.load(path)
    names = [spec.name for spec in suite.definition.grading.graders]
    assert names == ["contains", "json", "number", "good", "good#2"]
    [trial] = draft_plan(suite, Selection()).trials
    assert trial.key == "603f881ac70e1a31da0f054cabdb6a51"


def test_a_judge_in_a_combination_is_asked_only_if_it_can_decide_and_is_paid_for(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    entry = {
        "provider": "openai",
        "base_url": server.base_url,
        "model": "sim",
        "api_key_env": "PATH",
        "price": {"input_per_million": 1000, "output_per_million": 0},
    }
    write(
        "suite.yaml",
        f"""
        models: {{embedder: {json.dumps(entry)}}}
        cases:
          - {{id: same, input: "the very same words", expect: "words the very same"}}
          - {{id: exact, input: "exactly this", expect: "exactly this"}}
          - {{id: other, input: "nothing alike", expect: "of that kind"}}
        target: {{command: [echo, "{{input}}"]}}
        graders:
          - any: [equals, {{similarity: {{model: embedder}}}}]
        """,
    )
    first = paraval("run", "suite.yaml", "-o", "report.json")
    assert first.returncode == 1, first.stderr
    trials = trials_of(folder)
    outcomes = {case: trial["outcome"] for case, trial in trials.items()}
    assert outcomes == {"same": "passed", "exact": "passed", "other": "failed"}
    assert "similarity 0.00, needs 0.8" in trials["other"]["grades"][0]["reason"]
    judging = {case: trial["judging"] for case, trial in trials.items()}
    assert judging["same"]["cost_usd"] > 0
    assert judging["exact"]["calls"] == 0
    assert server.stats().total.requests == 2
    assert "Judges:" in first.stdout
    paraval("run", "suite.yaml")
    assert server.stats().total.requests == 2, "the second time they come from the cache"


def test_an_unknown_cost_is_skipped_and_a_slow_answer_fails(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a}]
        target: {command: [sh, -c, "sleep 0.2; echo hello"]}
        graders: [{contains: hello}, {latency: {max: 100ms}}, {cost: {max_usd: 0.01}}]
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 1
    [trial] = trials_of(folder).values()
    assert grades_of(trial) == {"contains": True, "latency": False}
    assert "allowed 100 ms" in trial["grades"][1]["reason"]
    assert trial["notes"] == ["grader 'cost' skipped: the cost of the answer is unknown"]
