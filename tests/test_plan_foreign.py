"""Cases as other programs keep them, and what `mentions` looks for in cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from paraval.documents.problems import Location
from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.cases.files import read_prompt_case
from paraval.plan.suite import Suite
from paraval.records import Case
from paraval.settings import Selection
from tests.conftest import WriteSuite

pytestmark = pytest.mark.usefixtures("folder")

COMMAND = {"command": ["true"]}
NAVIGATE = (
    '{"id":"navigate-001","category":"navigate","description":"Find function definition",'
    '"prompt":"Find where the function CosineSimilarity is defined.",'
    '"ground_truth":{"files":["internal/embedding/math.go"],"symbols":["CosineSimilarity"],'
    '"lines":{"internal/embedding/math.go":[8]},"content":["expected snippet"]},'
    '"difficulty":"easy"}'
)


def problems_of(cases: Any, **words: Any) -> list[str]:
    with pytest.raises(SuiteError) as refused:
        Suite(cases=cases, target=COMMAND, **words)
    return [str(problem) for problem in refused.value.problems]


# ---- prompts with a ground truth


def test_cases_of_repo_search_eval_load_as_they_are(write: WriteSuite) -> None:
    write("navigate.jsonl", f"// navigation\n\n{NAVIGATE}\n")
    suite = Suite(cases="navigate.jsonl", target=COMMAND, graders=["mentions"])
    assert suite.cases == (
        Case(
            id="navigate-001",
            input="Find where the function CosineSimilarity is defined.",
            expect={
                "files": ["internal/embedding/math.go"],
                "symbols": ["CosineSimilarity"],
                "lines": {"internal/embedding/math.go": [8]},
                "content": ["expected snippet"],
            },
            tags=("navigate", "easy"),
            metadata={"description": "Find function definition"},
            description="Find function definition",
        ),
    )
    plan = build_plan(suite, Selection(tags=("easy",)))
    assert plan.grading.graders[0].options == {
        "files": [],
        "symbols": [],
        "lines": {},
        "content": [],
        "score": "recall",
        "pass_at": 1.0,
    }


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"prompt": "x", "ground_truth": {}, "dificulty": "y"}, "did you mean 'difficulty'?"),
        ({"prompt": "x", "ground_truth": {}, "input": "y"}, "unknown key 'input' in a case with"),
        ({"prompt": "x", "ground_truth": {}, "category": 5}, "category: must be text, not 5"),
        ({"prompt": [5], "ground_truth": {}}, "input: must be text, or a mapping, not the list"),
    ],
)
def test_a_near_miss_of_such_a_case_is_an_error(case: dict[str, Any], problem: str) -> None:
    told = problems_of([{"id": "a", **case}])
    assert any(problem in each for each in told), told


# ---- a prompt a file


def test_a_text_file_is_a_case(write: WriteSuite, folder: Path) -> None:
    (folder / "prompts").mkdir()
    write("prompts/two.txt", "Do that.")
    write(
        "prompts/one.md",
        "---\ntags: [smoke]\nexpect: done\nlock: db\nowner: I\nlevel: 1.10\n---\n# Do it\n\nNow.\n",
    )
    both: Any = ["prompts/*.md", "prompts/*.txt"]
    suite = Suite(cases=both, target=COMMAND)
    assert type(suite.cases[0].metadata["level"]) is float
    assert suite.cases == (
        Case(
            id="one",
            input="# Do it\n\nNow.",
            expect="done",
            tags=("smoke",),
            locks=("db",),
            metadata={"owner": "I", "level": 1.1},
        ),
        Case(id="two", input="Do that."),
    )


def test_a_rule_in_a_text_is_no_front_matter(write: WriteSuite) -> None:
    write("a.md", "Before\n---\nAfter\n")
    write("b.md", "---\nno end of it\n")
    first, second = Suite(cases="*.md", target=COMMAND).cases
    assert first.input == "Before\n---\nAfter"
    assert second.input == "---\nno end of it"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.md", "", "a.md: the file is empty"),
        ("a.md", "---\nx: 1\n---\n\n", "a.md: the file is empty"),
        ("a.md", "---\n- x\n---\nText", "a.md:1: front matter must be a mapping"),
        ("a.md", "---\nx: [\n---\nText", "a.md:"),
        ("a.md", "---\nowner: me\ntags: 5\n---\nText", "a.md:3: tags: must be a list of strings"),
        ("a\tb.md", "Text", "a\tb.md: id: must be 1 to 200 visible characters"),
    ],
)
def test_what_is_wrong_in_a_text_file_is_told(
    write: WriteSuite, name: str, text: str, problem: str
) -> None:
    write(name, text)
    [told] = problems_of(name)
    assert problem in told


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("-\n: ax[{#\r\t\"'"), max_size=40))
def test_any_text_is_a_case_or_told(folder: Path, text: str) -> None:
    (folder / "a.md").write_text(text, newline="")
    spot = Location(problems={}, file="a.md")
    assert (read_prompt_case(folder / "a.md", spot) is None) == bool(spot.problems)


# ---- what mentions looks for


@pytest.mark.parametrize(
    "expect",
    [
        {"files": ["a.py"]},
        {"symbols": ["f"], "files": None},
        {"lines": {"a.py": [8]}},
        {"content": ["x"], "more": 1},
        {"ground_truth": {"files": ["a.py"]}},
    ],
)
def test_a_case_tells_what_to_look_for(expect: Any) -> None:
    cases = [{"expect": expect}]
    assert Suite(cases=cases, target=COMMAND, graders=["mentions"]).cases[0].expect == expect


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        (None, "grader 'mentions' needs a mapping of files, symbols, lines or content"),
        ("a.py", "lines or content, not 'a.py'"),
        ({}, "has none of them"),
        ({"files": []}, "has none of them"),
        ({"files": "a.py"}, "needs a list of strings in 'files', not 'a.py'"),
        ({"symbols": [""]}, "needs a list of strings in 'symbols'"),
        ({"lines": [8]}, "a mapping of files to lists of line numbers in 'lines'"),
        ({"lines": {"a.py": [0]}}, "a mapping of files to lists of line numbers"),
        ({"ground_truth": {"files": 5}}, "a list of strings in 'files', not 5"),
    ],
)
def test_a_case_without_anything_to_look_for_is_told(expect: Any, problem: str) -> None:
    [told] = problems_of([{"id": "a", "expect": expect}], graders=["mentions"])
    assert told.startswith("cases[0].expect: case 'a': ")
    assert problem in told


def test_a_grader_may_tell_itself_what_to_look_for() -> None:
    mentions = {"files": ["a.py"], "lines": {"a.py": [1, 2]}, "score": "f1", "pass_at": 0.5}
    suite = Suite(cases=[{}], target=COMMAND, graders=[{"mentions": mentions}])
    options = build_plan(suite, Selection()).grading.graders[0].options
    assert options == {"symbols": [], "content": [], **mentions}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"files": "a"}, "graders[0].mentions.files: must be a list of strings, not 'a'"),
        ({"files": [" "]}, "graders[0].mentions.files[0]: is empty, so every answer would match"),
        ({"lines": {"a": [0]}}, "mentions.lines: must be a mapping of files to lists of line"),
        ({"files": ["a"], "score": "best"}, "score: must be 'recall', 'f1' or 'precision'"),
        ({"files": ["a"], "pass_at": 2}, "pass_at: must be a number from 0 to 1"),
    ],
)
def test_wrong_words_of_mentions_are_told(options: dict[str, Any], problem: str) -> None:
    told = problems_of([{}], graders=[{"mentions": options}])
    assert any(problem in each for each in told), told


# ---- suites as other tools write them


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("assert", "graders: [{contains: ...}]"),
        ("evaluators", "graders: [{contains: ...}]"),
        ("scorer", "graders: [{contains: ...}]"),
        ("grader", "graders"),
        ("vars", "input: {name: value}"),
    ],
)
def test_a_key_that_grades_in_another_tool_is_an_error_and_not_metadata(
    key: str, instead: str
) -> None:
    [problem] = problems_of([{"id": "a", "input": "hey", key: [{"type": "contains"}]}])
    assert f"cases[0].{key}: unknown key '{key}'" in problem
    assert instead in problem


def test_an_assert_left_beside_mapped_fields_is_an_error_and_a_mapped_one_is_used(
    write: WriteSuite,
) -> None:
    write("t.yaml", "- {vars: {name: Ann}, assert: [{type: contains, value: Hi}]}")
    source = {"file": "t.yaml", "input": "vars"}
    [problem] = problems_of(source)
    assert "unknown key 'assert'; write graders: [{contains: ...}] to grade" in problem
    [case] = Suite(cases=source | {"expect": "assert.0.value"}, target=COMMAND).cases
    assert case.expect == "Hi"


def test_a_column_of_promptfoo_assertions_is_explained(write: WriteSuite) -> None:
    write("t.csv", "input,__expected\nhey,contains: Hi\n")
    [problem] = problems_of("t.csv")
    assert "the column '__expected' would go to metadata, but it holds promptfoo" in problem
    assert "cases: {file: ..., expect: __expected}" in problem


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("not-contains", "not: {contains: ...}"),
        ("contains-any", "any: [{contains: ...}, {contains: ...}]"),
        ("icontains", "contains: {value: ..., ignore_case: true}"),
        ("llm-rubric", "judge: {model: ..., rubric: ...}"),
        ("llm_rubric", "judge: {model: ..., rubric: ...}"),
        ("model-graded-closedqa", "judge: {model: ..., rubric: ...}"),
        ("factuality", "judge: {model: ..., preset: factuality}"),
        ("javascript", "command: [node, grade.js]"),
        ("similar", "similarity: "),
        ("is-json", "json"),
    ],
)
def test_a_grader_of_another_tool_is_answered_with_ours(name: str, instead: str) -> None:
    cases = [{"id": "a", "input": "hey", "expect": "x"}]
    [problem] = problems_of(cases, graders=[{name: "x"}])
    assert f"unknown grader '{name}'; write {instead}" in problem
