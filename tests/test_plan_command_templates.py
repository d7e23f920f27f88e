"""Templates in the commands of graders and of a workspace's setup."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import Plan
from paraval.settings import Selection
from tests.conftest import WriteSuite

pytestmark = pytest.mark.usefixtures("folder")

WORDS: dict[str, Any] = {
    "cases": [{"id": "a", "input": {"test": "t.py"}}],
    "target": {"command": ["true"]},
    "workspace": {"folder": True},
    "matrix": {"mode": ["fast"]},
}


def plan_of(**words: Any) -> Plan:
    return build_plan(Suite(**{**WORDS, **words}), Selection())


def problems_of(**words: Any) -> list[str]:
    with pytest.raises(SuiteError) as refused:
        Suite(**{**WORDS, **words})
    return [str(problem) for problem in refused.value.problems]


def test_hidden_tests_may_stand_beside_the_suite(folder: Path) -> None:
    command = ["sh", "-c", "{suite}/{input.test}", "{python}", "{mode}", "{{suite}}"]
    plan = plan_of(graders=[{"command": {"command": command, "env": {"PYTHONPATH": "{suite}"}}}])
    [grader] = plan.grading.graders
    assert grader.options["command"] == [
        "sh",
        "-c",
        f"{folder}/{{input.test}}",
        "{python}",
        "{mode}",
        "{{suite}}",
    ]
    assert grader.options["env"] == {"PYTHONPATH": str(folder)}


def test_a_setup_is_filled_in_when_the_plan_is_made(folder: Path) -> None:
    setup = ["{python}", "{suite}/prepare.py", "{{x}}"]
    plan = plan_of(workspace={"folder": True, "setup": setup})
    assert plan.workspace.setup == (sys.executable, f"{folder}/prepare.py", "{x}")


def test_a_key_holds_neither_the_suites_folder_nor_the_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "graders": [{"command": ["sh", "{suite}/x"]}],
        "workspace": {"folder": True, "setup": ["{python}", "{suite}/prepare.py"]},
    }
    here = plan_of(**words).trials[0].key
    (folder / "moved").mkdir()
    monkeypatch.chdir(folder / "moved")
    assert plan_of(**words).trials[0].key == here


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            {"graders": [{"command": ["sh", '{"a":1}']}]},
            "workspace' and 'mode'; write {{ and }} for literal braces",
        ),
        (
            {"graders": [{"command": {"command": ["sh", "{siute}"]}}]},
            "graders[0].command.command[1]: unknown field {siute}, did you mean 'suite'?",
        ),
        (
            {"graders": [{"command": {"command": ["sh"], "env": {"A": "{folder}"}}}]},
            "graders[0].command.env.A: unknown field {folder}",
        ),
        (
            {"graders": [{"command": ["sh", "{workspace}"]}], "workspace": None},
            "graders[0].command[1]: unknown field {workspace}; it needs workspace: in the",
        ),
        (
            {"graders": [{"command": ["sh", "{input.tset}"]}]},
            "graders[0].command[1]: {input.tset} for case 'a': no such key",
        ),
        (
            {"graders": [{"command": ["sh", "${HOME"]}]},
            "graders[0].command[1]: unmatched '{' at character 2",
        ),
        ({"graders": [{"command": ["{suite}/gone"]}]}, "gone' not found"),
        (
            {"workspace": {"folder": True, "setup": ["sh", "{repeat}"]}},
            "workspace.setup[1]: unknown field {repeat}; choose from 'input', 'case.id', 'python'",
        ),
        (
            {"workspace": {"folder": True, "setup": ["sh", "{folder}"]}},
            "workspace.setup[1]: unknown field {folder}",
        ),
        ({"workspace": {"folder": True, "setup": ["{suite}/gone"]}}, "gone' not found"),
    ],
)
def test_a_field_that_no_trial_has_is_told_when_the_suite_is_loaded(
    words: dict[str, Any], problem: str
) -> None:
    told = problems_of(**words)
    assert any(problem in each for each in told), told
    assert len(told) == 1, told


def test_it_is_told_with_its_line(write: WriteSuite) -> None:
    text = """
        cases: [{id: a}]
        target: {command: ['true']}
        graders:
          - command:
              command:
                - sh
                - "{nowhere}"
    """
    with pytest.raises(SuiteError, match=r"suite\.yaml:8: graders\[0\]\.command\.command\[1\]"):
        Suite.load(write("suite.yaml", text))
