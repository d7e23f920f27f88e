"""Suites, from files and from Python: what they mean, and every message about a wrong one."""

from __future__ import annotations

import functools
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from paraval.errors import Problem, SuiteError
from paraval.plan.build import build_plan
from paraval.plan.schema.suite_form import SuiteForm, json_schema
from paraval.plan.suite import Suite
from paraval.records import (
    Case,
    CommandTarget,
    FunctionTarget,
    Limits,
    Outcome,
    OutputForm,
    Plan,
    RetryPolicy,
)
from paraval.settings import Selection
from tests.conftest import WriteSuite

pytestmark = pytest.mark.usefixtures("folder")

EXAMPLE = """
    name: greetings
    cases:
      - id: hello
        input: Say hello.
        expect: hello
        tags: [smoke]
    matrix:
      model: [small, large]
      mode:
        with-tool: {env: {TOOL: "1"}}
        without-tool: {}
    exclude:
      - {model: large, mode: with-tool}
    repeats: 3
    target:
      command: [python, agent.py, --model, "{model}", "{input}"]
      env: {GREETING: hi}
      pass_env: [API_KEY]
      timeout: 60
      output: stdout
    graders: [contains]
    limits:
      parallel: 4
      mode: {with-tool: 2}
    retry: {attempts: 3}
    fail_under: 0.9
"""


@pytest.fixture(autouse=True)
def python_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A folder on PATH that has `python`, which not every machine has."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def plan_of(suite: Suite) -> Plan:
    return build_plan(suite, Selection())


def problems_of(text: str, name: str = "suite.yaml") -> list[str]:
    Path(name).write_text(text)
    with pytest.raises(SuiteError) as refused:
        Suite.load(name)
    return [str(problem) for problem in refused.value.problems]


def test_the_example_suite_means_what_it_says(write: WriteSuite, folder: Path) -> None:
    plan = plan_of(Suite.load(write("suite.yaml", EXAMPLE)))
    assert plan.name == "greetings"
    assert plan.source == str(folder / "suite.yaml")
    assert plan.axes == {"model": ("small", "large"), "mode": ("with-tool", "without-tool")}
    assert plan.variants == (
        {"model": "small", "mode": "with-tool"},
        {"model": "small", "mode": "without-tool"},
        {"model": "large", "mode": "without-tool"},
    )
    assert [trial.label for trial in plan.trials] == [
        "hello · small · with-tool",
        "hello · small · with-tool · #2",
        "hello · small · with-tool · #3",
        "hello · small · without-tool",
        "hello · small · without-tool · #2",
        "hello · small · without-tool · #3",
        "hello · large · without-tool",
        "hello · large · without-tool · #2",
        "hello · large · without-tool · #3",
    ]
    assert plan.trials[0].needs == ("mode=with-tool",)
    assert plan.trials[3].needs == ()
    assert plan.trials[0].target == CommandTarget(
        command=("python", "agent.py", "--model", "{model}", "{input}"),
        env={"GREETING": "hi", "TOOL": "1"},
        pass_env=("API_KEY",),
        cwd=str(folder),
        timeout=60.0,
    )
    assert plan.limits == Limits(parallel=4, named={"mode=with-tool": 2})
    assert plan.retry == RetryPolicy(attempts=3)
    assert plan.fail_under == 0.9
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_yaml_json_and_toml_make_the_same_plan(write: WriteSuite) -> None:
    from_yaml = Suite.load(write("suite.yaml", EXAMPLE))
    data = yaml.safe_load(EXAMPLE)
    from_json = Suite.load(write("suite.json", json.dumps(data)))
    toml = """
        name = "greetings"
        repeats = 3
        graders = ["contains"]
        retry = {attempts = 3}
        fail_under = 0.9
        exclude = [{model = "large", mode = "with-tool"}]
        [[cases]]
        id = "hello"
        input = "Say hello."
        expect = "hello"
        tags = ["smoke"]
        [matrix]
        model = ["small", "large"]
        mode = {with-tool = {env = {TOOL = "1"}}, without-tool = {}}
        [target]
        command = ["python", "agent.py", "--model", "{model}", "{input}"]
        env = {GREETING = "hi"}
        pass_env = ["API_KEY"]
        timeout = 60
        output = "stdout"
        [limits]
        parallel = 4
        mode = {with-tool = 2}
    """
    from_toml = Suite.load(write("suite.toml", toml))
    assert plan_of(from_json).trials == plan_of(from_yaml).trials
    assert plan_of(from_toml).trials == plan_of(from_yaml).trials
    assert plan_of(from_toml).grading == plan_of(from_yaml).grading


def test_a_suite_is_named_after_its_file_by_default(write: WriteSuite) -> None:
    suite = Suite.load(write("tiny.yaml", "cases: [{}]\ntarget: {command: ['true']}\n"))
    assert suite.name == "tiny"
    assert suite.cases == (Case(id="case-1"),)
    assert suite.seed is None
    [trial] = plan_of(suite).trials
    assert trial.variant == {}


def test_numbers_in_a_command_reach_it_as_they_were_written(write: WriteSuite) -> None:
    text = "cases: [{}]\ntarget: {command: [echo, 1.10, 010, 1e-3, true], env: {V: 1.10}}\n"
    [trial] = plan_of(Suite.load(write("suite.yaml", text))).trials
    assert isinstance(trial.target, CommandTarget)
    assert trial.target.command == ("echo", "1.10", "010", "1e-3", "true")
    assert trial.target.env == {"V": "1.10"}


@pytest.mark.parametrize(
    ("output", "form", "file"),
    [
        ("stdout", OutputForm.STDOUT, None),
        ("json", OutputForm.JSON, None),
        ("answer.txt", OutputForm.FILE, "answer.txt"),
        ("{folder}/answer", OutputForm.FILE, "{folder}/answer"),
    ],
)
def test_an_output_is_a_stream_or_a_file(output: str, form: OutputForm, file: str | None) -> None:
    suite = Suite(cases=[{}], target={"command": ["true"], "output": output})
    [trial] = plan_of(suite).trials
    assert isinstance(trial.target, CommandTarget)
    assert (trial.target.output, trial.target.output_file) == (form, file)


def test_an_exit_code_grader_makes_other_exit_codes_than_0_no_crash() -> None:
    def any_exit_code(graders: list[Any]) -> bool:
        [trial] = plan_of(Suite(cases=[{}], target={"command": ["true"]}, graders=graders)).trials
        assert isinstance(trial.target, CommandTarget)
        return trial.target.any_exit_code

    assert any_exit_code(["exit_code"])
    assert not any_exit_code([{"contains": "x"}])


def test_overlays_replace_the_targets_keys_and_merge_its_env() -> None:
    suite = Suite(
        cases=[{}],
        matrix={
            "a": {"plain": None, "slow": {"timeout": 9, "env": {"X": "2"}}},
            "b": {"one": {"env": {"Y": "3"}}, "other": {"command": ["false"], "pass_env": ["Q"]}},
        },
        target={"command": ["true"], "env": {"X": "1"}, "pass_env": ["P"], "timeout": 1},
    )
    got = [
        (trial.target.command, trial.target.env, trial.target.pass_env, trial.target.timeout)
        for trial in plan_of(suite).trials
        if isinstance(trial.target, CommandTarget)
    ]
    assert got == [
        (("true",), {"X": "1", "Y": "3"}, ("P",), 1.0),
        (("false",), {"X": "1"}, ("Q",), 1.0),
        (("true",), {"X": "2", "Y": "3"}, ("P",), 9.0),
        (("false",), {"X": "2"}, ("Q",), 9.0),
    ]


def test_graders_in_all_their_forms(write: WriteSuite) -> None:
    write("schema.json", '{"type": "object"}')
    write("judge.py", "def judge(output, case): return True\n")
    text = """
        cases: [{expect: x}]
        target: {command: ['true']}
        graders:
          - contains
          - contains: [a, b]
          - contains: {value: c, ignore_case: true, name: says c}
          - regex: '^a+$'
          - json: {schema: schema.json, path: 'a.b[0].c', value: null}
          - number: {value: 5, tolerance: 0.5}
          - exit_code: [0, 1]
          - python: judge:judge
          - command: [grep, 1.10]
    """
    grading = plan_of(Suite.load(write("suite.yaml", text))).grading
    assert [(grader.name, grader.kind, dict(grader.options)) for grader in grading.graders] == [
        ("contains", "contains", {"ignore_case": False, "strict": False}),
        ("contains#2", "contains", {"ignore_case": False, "strict": False, "value": ["a", "b"]}),
        ("says c", "contains", {"ignore_case": True, "strict": False, "value": "c"}),
        ("regex", "regex", {"pattern": "^a+$", "ignore_case": False, "multiline": False}),
        ("json", "json", {"schema": {"type": "object"}, "path": "a.b[0].c", "value": None}),
        ("number", "number", {"value": 5, "tolerance": 0.5}),
        ("exit_code", "exit_code", {"value": [0, 1]}),
        ("judge", "python", {"function": "judge:judge", "pass_at": 1.0, "timeout": 600.0}),
        (
            "command",
            "command",
            {"command": ["grep", "1.10"], "timeout": 60.0, "env": {}, "pass_env": []},
        ),
    ]


def test_weights_come_with_a_score_that_passes() -> None:
    graders = [{"contains": {"value": "a", "weight": 2}}, {"regex": {"pattern": "b", "weight": 1}}]
    plan = plan_of(Suite(cases=[{}], target=lambda case: "", graders=graders, pass_at=0.7))
    assert [grader.weight for grader in plan.grading.graders] == [2.0, 1.0]
    assert plan.grading.pass_at == 0.7


def test_retries_are_as_the_suite_says() -> None:
    retry = {"attempts": 5, "on": ["timeout", "crashed"], "first_delay": 0, "longest_delay": 2}
    plan = plan_of(Suite(cases=[{}], target=lambda case: "", retry=retry))
    assert plan.retry == RetryPolicy(
        attempts=5,
        on=frozenset({Outcome.TIMEOUT, Outcome.CRASHED}),
        first_delay_s=0.0,
        longest_delay_s=2.0,
    )


# ---- in Python


def answer(case: Case) -> str:
    return case.id


def test_functions_stand_beside_the_records_under_their_names() -> None:
    suite = Suite(
        cases=[Case(id="a")],
        target=answer,
        graders=[lambda output, case: True, lambda output, case: False, answer_is_right],
    )
    here = answer.__module__
    [trial] = plan_of(suite).trials
    assert isinstance(trial.target, FunctionTarget)
    assert trial.target.reference == f"{here}:answer"
    test = "test_functions_stand_beside_the_records_under_their_names.<locals>.<lambda>"
    assert list(suite.functions) == [
        f"{here}:answer",
        f"{here}:{test}",
        f"{here}:{test}#2",
        f"{here}:answer_is_right",
    ]
    assert suite.functions[f"{here}:answer"] is answer
    references = [grader.options["function"] for grader in plan_of(suite).grading.graders]
    assert references == list(suite.functions)[1:]
    assert pickle.loads(pickle.dumps(plan_of(suite))) == plan_of(suite)


def answer_is_right(output: Any, case: Case) -> bool:
    return bool(output.text == case.id)


def test_a_target_and_graders_may_be_named_by_text() -> None:
    suite = Suite(
        cases=[{}],
        target=f"{__name__}:answer",
        graders=[f"{__name__}:answer_is_right", {"python": answer_is_right}, {"equals": "a:b"}],
    )
    [trial] = plan_of(suite).trials
    assert isinstance(trial.target, FunctionTarget)
    assert trial.target.reference == f"{__name__}:answer"
    assert list(suite.functions) == [f"{__name__}:answer_is_right"]


def test_overlays_may_hold_functions() -> None:
    suite = Suite(
        cases=[{}],
        matrix={"how": {"named": {}, "other": {"python": lambda case: "x"}}},
        target={"python": answer},
    )
    references = [
        trial.target.reference
        for trial in plan_of(suite).trials
        if isinstance(trial.target, FunctionTarget)
    ]
    assert references == list(suite.functions)


def test_an_isolated_function_must_be_one_that_a_worker_can_import() -> None:
    suite = Suite(cases=[{}], target={"python": answer, "isolate": "process", "env": {"A": 1}})
    [trial] = plan_of(suite).trials
    assert isinstance(trial.target, FunctionTarget)
    assert trial.target.isolate
    with pytest.raises(SuiteError, match="cannot be imported by a worker process"):
        Suite(cases=[{}], target={"python": lambda case: "", "isolate": "process"})


def test_wrong_arguments_are_told_by_their_keys_alone() -> None:
    with pytest.raises(SuiteError) as refused:
        Suite(cases=[{}], target=answer, repeats=0, matrix={"a": []}, fail_under=2)
    assert [str(problem) for problem in refused.value.problems] == [
        "repeats: must be a whole number, 1 or more, not 0",
        "fail_under: must be a number from 0 to 1, not 2",
        "matrix.a: the axis has no values",
    ]


# ---- what is wrong, in plain words

GOOD = "cases: [{id: a, input: {q: x}, expect: x}, {id: b, input: {q: y}, expect: y}]\n"
TARGET = "target: {command: [echo, hi]}\n"


BLOCKS = Path(__file__).with_name("test_plan_messages.txt").read_text().split("\n====\n")


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n--\n")[0])
def test_a_wrong_suite_is_told_in_plain_words(block: str, folder: Path) -> None:
    """Each block of the file is a suite, and after a line of dashes all that is said about it."""
    text, messages = block.split("\n--\n")
    found = problems_of(text.replace("@cases", GOOD.rstrip()).replace("@target", TARGET.rstrip()))
    assert [told.replace(str(folder), "<folder>") for told in found] == messages.splitlines()


def test_a_value_too_long_for_a_command_is_told_before_it_is_started() -> None:
    text = json.dumps(
        {"cases": [{"input": "x" * 131_072}], "target": {"command": ["echo", "{input}"]}}
    )
    [told] = problems_of(text)
    assert told.startswith(
        "suite.yaml:1: target.command[1]: {input} for case 'case-1': the value is 131,072 bytes"
    )


TARGET_CALLS = "function(case) or function(case, variant)"
GRADER_CALLS = "function(output, case) or function(output, case, variant)"


def needs_three(first: Any, second: Any, third: Any) -> str:
    return ""


def needs_four(first: Any, second: Any, third: Any, fourth: Any) -> str:
    return ""


def needs_a_key(*given: Any, key: str) -> str:
    return key


def takes_more(first: Any, second: Any, third: Any = 1, fourth: Any = 2, *, key: int = 0) -> str:
    return ""


@pytest.mark.parametrize(
    ("target", "graders", "key", "needs", "calls"),
    [
        (needs_three, [], "target.python", "3 arguments", TARGET_CALLS),
        (needs_a_key, [], "target.python", "the keyword argument 'key'", TARGET_CALLS),
        (answer, [needs_four], "graders[0].python.function", "4 arguments", GRADER_CALLS),
        (
            answer,
            [needs_a_key],
            "graders[0].python.function",
            "the keyword argument 'key'",
            GRADER_CALLS,
        ),
    ],
)
def test_a_function_that_cannot_be_called_as_it_will_be_is_told(
    target: Any, graders: list[Any], key: str, needs: str, calls: str
) -> None:
    with pytest.raises(SuiteError) as refused:
        Suite(cases=[{}], target=target, graders=graders)
    [told] = refused.value.problems
    name = (graders or [target])[0].__name__
    reference = f"{__name__}:{name}"
    assert str(told) == f"{key}: '{reference}' needs {needs}; it is called as {calls}"


def test_functions_may_take_more_than_they_need() -> None:
    Suite(cases=[{}], target=takes_more, graders=[takes_more, needs_three])
    Suite(cases=[{}], target=functools.partial(needs_a_key, key="x"))


def test_a_schema_in_a_file_is_checked_where_it_stands(write: WriteSuite) -> None:
    write("schema.json", '{"properties": {\n "a": {"type": "strin"},\n "b": {"$ref": "b.json"}}}')
    wrong_type = "schema.json:2: properties.a.type: unknown JSON type 'strin', did you mean"
    graders = "graders: [{json: {schema: schema.json}}]\n"
    [told] = problems_of(GOOD + TARGET + graders)
    assert told.startswith(wrong_type)
    write("schema.json", '{"properties": {\n "b": {"$ref": "b.json"}}}')
    [told] = problems_of(GOOD + TARGET + graders)
    assert told.startswith("schema.json:2: properties.b.$ref: refers to 'b.json', which is not in")


def test_a_schema_may_refer_to_its_own_parts_in_every_way() -> None:
    schema = {
        "$id": "https://example.com/tree",
        "properties": {"left": {"$ref": "#"}, "name": {"$ref": "name"}, "kind": {"$ref": "#kind"}},
        "$defs": {
            "name": {"$id": "name", "type": "string"},
            "kind": {"$anchor": "kind", "const": {"$ref": "text"}},
        },
    }
    Suite(cases=[{}], target=answer, graders=[{"json": {"schema": schema}}])


@pytest.mark.parametrize(
    "reference", ["#/properties/a/0", "#/type", "#/$id/x", "http://[::1", "#b"]
)
def test_a_reference_that_leads_to_no_schema_is_a_problem(reference: str) -> None:
    schema = {"$id": "x:y", "type": "object", "properties": {"a": True}, "$ref": reference}
    with pytest.raises(SuiteError) as refused:
        Suite(cases=[{}], target=answer, graders=[{"json": {"schema": schema}}])
    [told] = refused.value.problems
    assert str(told).startswith(f"graders[0].json.schema.$ref: refers to '{reference}', which is")


@pytest.mark.parametrize("levels", [300, 3000])
def test_a_schema_too_deep_to_be_checked_is_a_problem(levels: int) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"not": schema}
    with pytest.raises(SuiteError, match="nested too deeply"):
        Suite(cases=[{}], target=answer, graders=[{"json": {"schema": schema}}])


def test_every_problem_is_told_in_one_go_and_in_the_order_of_the_file(write: WriteSuite) -> None:
    write("more.jsonl", '{"id": "ok", "expect": "x"}\n{"id": ""}\n')
    found = problems_of(
        "cases: more.jsonl\n"
        "target:\n"
        "  command: [nosuch, '{inpt}']\n"
        "  tiemout: 5\n"
        "graders: [contain]\n"
        "limits: {parallel: none, mode: {a: 1}}\n"
        "fail_under: high\n"
    )
    places = [told.split(": ")[0:2] for told in found]
    assert places == [
        ["suite.yaml:3", "target.command"],
        ["suite.yaml:3", "target.command[1]"],
        ["suite.yaml:4", "target.tiemout"],
        ["suite.yaml:5", "graders[0]"],
        ["suite.yaml:6", "limits.mode"],
        ["suite.yaml:6", "limits.parallel"],
        ["suite.yaml:7", "fail_under"],
        ["more.jsonl:2", "id"],
    ]


def test_json_and_toml_suites_have_lines_too() -> None:
    broken = '{"cases": [{}],\n "target": {"command": ["echo"],\n  "tiemout": 5}}'
    assert problems_of(broken, "suite.json")[0].startswith("suite.json:3: target.tiemout: unknown")
    toml = 'cases = [{}]\n[target]\ncommand = ["echo"]\ntiemout = 5\n'
    assert problems_of(toml, "suite.toml")[0].startswith("suite.toml:4: target.tiemout: unknown")


def test_many_cases_that_suit_no_grader_are_told_one_by_one_then_as_a_number() -> None:
    found = problems_of("cases: [" + "{}, " * 15 + "]\n" + TARGET + "graders: [equals]\n")
    assert len(found) == 11
    assert "5 more cases have no suitable 'expect' for grader 'equals'" in found


def test_a_huge_matrix_is_refused_before_it_is_made() -> None:
    axes = ", ".join(f"a{axis}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for axis in range(12))
    [told] = problems_of(GOOD + TARGET + f"matrix: {{{axes}}}\n")
    assert told.startswith("suite.yaml:3: matrix: makes 1,000,000,000,000 variants; the limit is")


@pytest.mark.parametrize(
    "output", ["{folder}/out.txt", "{case.id}-{m}-{repeat}.txt", "{repeat}/{m}/{input.q}.txt"]
)
def test_output_paths_that_no_two_trials_share_are_fine(output: str) -> None:
    target = json.dumps({"command": ["echo"], "output": output})
    Path("suite.yaml").write_text(GOOD + f"target: {target}\nmatrix: {{m: [1, 2]}}\nrepeats: 3\n")
    assert len(plan_of(Suite.load("suite.yaml")).trials) == 12


def test_a_suite_that_is_not_there_says_so() -> None:
    with pytest.raises(SuiteError, match=r"nowhere\.yaml: no such file"):
        Suite.load("nowhere.yaml")


# ---- the schema for editors


def test_the_schema_takes_the_example_and_every_grader(write: WriteSuite) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    example = yaml.safe_load(EXAMPLE)
    example["graders"] = [
        "contains",
        {"contains": ["a", "b"]},
        {"regex": {"pattern": "x"}},
        {"json": {"schema": {}}},
        {"exit_code": 1},
        {"python": "a:b"},
        {"command": ["x", 1]},
    ]
    jsonschema.validate(example, schema)
    jsonschema.validate({"cases": "*.csv", "target": {"python": "a:b"}}, schema)
    jsonschema.validate({"cases": {"python": "a:b"}, "target": {"python": "a:b"}}, schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": {"command": ["x"]}},
        {"cases": "a.csv", "target": {"command": ["x"], "tiemout": 1}},
        {"cases": "a.csv", "target": {"command": ["x"]}, "nmae": "x"},
        {"cases": "a.csv", "target": {"command": ["x"]}, "matrix": {"a": {"x": {"tiemout": 1}}}},
        {"cases": "a.csv", "target": {"command": ["x"]}, "graders": ["contain"]},
        {"cases": "a.csv", "target": {"command": ["x"]}, "graders": [{"equals": {"vale": 1}}]},
        {"cases": "a.csv", "target": {"command": ["x"]}, "graders": [{"equals": "", "regex": ""}]},
        {"cases": "a.csv", "target": {"command": ["x"]}, "limits": {"mode": 5}},
        {"cases": [{"inptu": "x"}], "target": {"command": ["x"]}},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, json_schema())


def test_every_key_in_the_schema_is_described() -> None:
    for name, described in json_schema()["properties"].items():
        assert described.get("description"), name


# ---- whatever is written

KEYS = "id input expect tags command python shell env cwd stdin timeout output isolate"
OPTIONS = "equals contains regex json number exit_code value pattern schema path weight name"
ODD = "parallel attempts on {input} {input.q} {mode} { mode one a.txt json:loads echo"
WORDS = [*KEYS.split(), *OPTIONS.split(), *ODD.split()]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=4)
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
GOOD_SUITE: dict[str, Any] = {
    "cases": [{"id": "a", "input": {"q": "x"}, "expect": "x"}],
    "matrix": {"mode": {"one": {"env": {"A": "1"}}, "two": {}}},
    "target": {"command": ["echo", "{input.q}"]},
    "graders": ["contains"],
    "limits": {"parallel": 2, "mode": {"one": 1}},
}


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(list(SuiteForm.model_fields)), junk, max_size=4))
def test_whatever_is_written_is_a_suite_or_a_list_of_problems(parts: dict[str, Any]) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        plan = plan_of(Suite(**{**GOOD_SUITE, **parts}))
        assert pickle.loads(pickle.dumps(plan)) == plan
    except SuiteError as error:
        problems = error.problems or (Problem(message="Input should not be refused silently"),)
    for problem in problems:
        assert "Input should" not in problem.message
        assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise ValueError('two\\nlines')", "cannot import '{}': ValueError: two lines"),
        ("import sys\nsys.exit(3)", "cannot import '{}': SystemExit: 3"),
        ("def f(:", "cannot import '{}': SyntaxError: "),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_problem_like_any_other(
    folder: Path, module: str, reason: str
) -> None:
    name = f"broken_{abs(hash(module))}"
    (folder / f"{name}.py").write_text(module)
    for part in ("cases: {python: '%s:f'}\n" + TARGET, GOOD + "target: {python: '%s:f'}\n"):
        [told] = problems_of(part % name)
        assert reason.format(name) in told
