"""Prompts: what they take from a case, from files and from the environment, and which mistakes are
found before anything is spent.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import Plan
from paraval.settings import Selection
from tests.conftest import Paraval, WriteSuite

CASES = """\
models: {m: {provider: loopback}}
cases:
  - {id: a, input: x, expect: x, metadata: {region: north, deep: {list: [p, q]}}}
  - {id: b, input: y, expect: y, metadata: {region: south, deep: {list: [r, s]}}}
"""


def write_suite(write: WriteSuite, lines: str, cases: str = CASES) -> Path:
    return write("suite.yaml", cases + textwrap.dedent(lines).lstrip())


def problems(write: WriteSuite, lines: str, cases: str = CASES) -> list[str]:
    write_suite(write, lines, cases)
    with pytest.raises(SuiteError) as refused:
        Suite.load("suite.yaml")
    return [str(problem) for problem in refused.value.problems]


def plan_of(write: WriteSuite, lines: str, cases: str = CASES) -> Plan:
    return build_plan(Suite.load(write_suite(write, lines, cases)), Selection())


def answers(paraval: Paraval, folder: Path) -> dict[tuple[str, ...], str]:
    """Run the suite; a simulated model repeats its prompt, a command prints what it gets. By the
    case and the variant's values."""
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode in (0, 1), ended.stderr
    trials: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["trials"]
    return {
        (trial["case"], *map(str, trial["variant"].values())): trial["output"] for trial in trials
    }


# ---- the case's metadata


def test_metadata_is_usable_in_prompts_commands_and_environments(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write_suite(
        write,
        """
        target: {chat: {model: m, system: "{metadata.deep.list.1}", prompt: "{metadata.region}"}}
        graders: [{command: {command: [test, "{metadata.region}", "!=", ""]}}]
        """,
    )
    assert answers(paraval, folder) == {("a",): "north", ("b",): "south"}
    write_suite(
        write,
        """
        target:
          command: 'printf "%s %s" {metadata.region} "$LIST"'
          shell: true
          env: {LIST: "{metadata.deep.list}"}
        graders: [contains]
        """,
    )
    assert answers(paraval, folder) == {("a",): 'north ["p","q"]', ("b",): 'south ["r","s"]'}


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("{metadata.regoin}", "no such key, did you mean {metadata.region}?"),
        ("{metadata.deep.x}", "no such key, did you mean {metadata.deep}?"),
        ("{region}", "unknown field {region}, did you mean {metadata.region}?"),
        ("{input} {{region}}", "not filled in; did you mean {metadata.region}?"),
        ("{{ metadata.region }}", "not filled in; did you mean {metadata.region}?"),
    ],
)
def test_metadata_that_is_not_there_is_an_error_with_the_right_form(
    write: WriteSuite, prompt: str, problem: str
) -> None:
    (told,) = problems(write, f'target: {{chat: {{model: m, prompt: "{prompt}"}}}}')
    assert told.startswith("suite.yaml:5: target.chat.prompt: ")
    assert told.endswith(problem)


def test_a_case_without_the_metadata_that_a_prompt_uses_is_named(write: WriteSuite) -> None:
    cases = CASES + "  - {id: c, input: z}\n  - {id: d, input: z}\n"
    (told,) = problems(write, 'target: {chat: {model: m, prompt: "{metadata.region}"}}', cases)
    assert told.endswith("{metadata.region} for case 'c' (and 1 more): it has no metadata")


def test_a_key_of_an_input_in_double_braces_is_an_error_with_the_right_form(
    write: WriteSuite,
) -> None:
    cases = "models: {m: {provider: loopback}}\ncases: [{input: {question: why}}]\n"
    (told,) = problems(write, 'target: {chat: {model: m, prompt: "{{question}}"}}', cases)
    assert told == (
        "suite.yaml:3: target.chat.prompt: {{question}} is literal text and is not filled in;"
        " did you mean {input.question}?"
    )


def test_a_prompt_without_the_case_is_an_error_that_names_its_metadata(write: WriteSuite) -> None:
    cases = """\
models: {m: {provider: loopback}}
cases: [{id: a, metadata: {region: x}}, {id: b, metadata: {region: y}}]
"""
    (told,) = problems(write, "target: {chat: {model: m, prompt: Hello.}}", cases)
    assert told.endswith("all 2 cases would send the same text; did you mean {metadata.region}?")
