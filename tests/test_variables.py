"""Environment variables in suites, and `.env` files beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from paraval.documents.problems import Location
from paraval.documents.variables import env_file, env_file_of
from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.settings import Selection
from paraval.testing import loopback
from tests.conftest import Paraval, WriteSuite

SECRET = "sk-canary-8Hq2mVb7Lr4TnYxD"

ECHO = """
cases: [{id: a, input: "price: ${HOME}"}]
matrix: {SIZE: [1]}
repeats: ${REPEATS:-2}
target:
  command: [sh, -c, 'echo "$GREETING|$1"', sh, "{input}"]
  env: {GREETING: "${GREETING:-hello} ${{GREETING}}"}
graders: [{contains: "${GREETING:-hello}"}]
"""


def load(write: WriteSuite, text: str) -> Suite:
    write("suite.yaml", text)
    return Suite.load("suite.yaml")


def problems(write: WriteSuite, text: str) -> list[str]:
    with pytest.raises(SuiteError) as refused:
        load(write, text)
    return [str(problem) for problem in refused.value.problems]


def test_variables_are_filled_in_as_if_they_were_written_there(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """Not in cases, which are data, nor in commands, where a shell has variables of its own."""
    write("suite.yaml", ECHO)
    for greeting, repeats, env in (
        ("hello", 2, {}),
        ("good day", 3, {"GREETING": "good day", "REPEATS": "3"}),
    ):
        ended = paraval("run", "suite.yaml", "-o", "report.json", env=env)
        assert ended.returncode == 0, ended.stderr
        trials = json.loads((folder / "report.json").read_text())["trials"]
        outputs = [trial["output"].strip() for trial in trials]
        assert outputs == [f"{greeting} ${{GREETING}}|price: ${{HOME}}"] * repeats


def test_a_reference_in_braces_of_yaml_needs_quotes(
    write: WriteSuite, paraval: Paraval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_USD", "0.5")
    suite = """\
        cases: [{id: a, input: x}]
        target: {command: [echo, x]}
        budget: {usd: %s}
        """
    write("suite.yaml", suite % "${MAX_USD}")
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert "suite.yaml:3: not valid YAML" in ended.stderr
    assert 'write "${MAX_USD}" in quotes' in ended.stderr
    write("suite.yaml", suite % '"${MAX_USD}"')
    budget = Suite.load("suite.yaml").definition.budget
    assert budget is not None
    assert budget.usd == 0.5


def test_what_is_filled_in_is_part_of_a_trials_key(
    write: WriteSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys(greeting: str) -> list[str]:
        monkeypatch.setenv("GREETING", greeting)
        return [trial.key for trial in build_plan(load(write, ECHO), Selection()).trials]

    assert keys("a") == keys("a") != keys("b")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'name: "${NO_SUCH}"',
            (
                "suite.yaml:4: name: ${NO_SUCH} is not set, neither in the environment nor in .env"
                " beside the suite; set it, or write ${NO_SUCH:-DEFAULT} (and $${ for a literal ${)"
            ),
        ),
        (
            "matrix: {a: [x, '${MY_API_KEY:-none}']}",
            (
                "suite.yaml:4: matrix.a[1]: ${MY_API_KEY} looks like a secret, which must not be"
                " part of a suite; name the variable: api_key_env: MY_API_KEY for a model,"
                " pass_env: [MY_API_KEY] for a command"
            ),
        ),
    ],
)
def test_a_variable_that_is_unset_or_secret_is_an_error_with_its_place(
    write: WriteSuite, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    monkeypatch.delenv("NO_SUCH", raising=False)
    suite = f"\ncases: [{{input: x}}]\ntarget: {{command: [echo, '{{input}}']}}\n{line}\n"
    assert problems(write, suite) == [told]


def test_a_dollar_before_a_field_of_a_template_stays_one(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        models: {m: {provider: loopback}}
        cases: [{input: "5"}]
        matrix: {COST: [7]}
        target: {chat: {model: m, prompt: "${input} ${COST} ${{HOME}}"}}
        graders: [{contains: "${{HOME}}"}, {starts_with: "$5 $7"}]
        """,
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stdout + ended.stderr


# ---- .env


ENV_FILE = f"""\
# for the team
export BASE={{base}}
TEAM_MODEL = 'sim' # quoted
TEAM_KEY="{SECRET}"
REGION=from the file
"""

ASKING = """
models: models.yaml
cases: [{id: a, input: x, expect: x}, {id: b, input: y, expect: y}]
target: {chat: {model: m, prompt: "{input} ${REGION}"}}
graders: [contains]
"""
MODELS = """
m: {provider: openai, base_url: "${BASE}", model: "${TEAM_MODEL}", api_key_env: TEAM_KEY}
"""


def test_a_file_beside_the_suite_gives_variables_and_keys(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (folder / "evals").mkdir()
    with loopback() as server:
        write("evals/.env", ENV_FILE.format(base=server.base_url))
        write("evals/models.yaml", MODELS)
        write("evals/suite.yaml", ASKING)
        ended = paraval("run", "evals/suite.yaml", "-o", "r.json", env={"REGION": "set"})
        checked = paraval("doctor", "evals/suite.yaml")
        assert server.stats().total.requests == 2
    assert ended.returncode == 0, ended.stderr
    trials = json.loads((folder / "r.json").read_text())["trials"]
    assert [trial["output"] for trial in trials] == ["x set", "y set"]
    assert "TEAM_KEY" in checked.stdout
    assert checked.returncode == 0
    (folder / "evals" / ".env").unlink()
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


def test_a_secret_of_the_file_is_removed_from_what_a_target_prints(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(".env", f"TEAM_KEY={SECRET}\n")
    write(
        "suite.yaml",
        """
        cases: [{input: x}]
        target: {command: [sh, -c, 'echo "has $TEAM_KEY"'], pass_env: [TEAM_KEY]}
        graders: [{contains: has}]
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    output = json.loads((folder / "r.json").read_text())["trials"][0]["output"]
    assert output == "has [REDACTED]\n"


def test_the_file_is_read_as_others_read_it(folder: Path) -> None:
    (folder / ".env").write_text(
        "\n# comment\nA=1\nexport B = two words # comment\nC='$A \\n # x'\n"
        'D="line\\nbreak \\"q\\""\nE=\nF=#none\nG=a#b\na.b-c=d\nNUL=\0\nH="one\ntwo"\r\nI=last'
    )
    assert env_file_of(folder) == {
        "A": "1",
        "B": "two words",
        "C": "$A \\n # x",
        "D": 'line\nbreak "q"',
        "E": "",
        "F": "",
        "G": "a#b",
        "a.b-c": "d",
        "H": "one\ntwo",
        "I": "last",
    }


def test_a_line_that_is_not_understood_is_an_error_that_does_not_show_it(
    write: WriteSuite,
) -> None:
    write(".env", f"A=1\n{SECRET}\nB='open\n")
    told = problems(write, "cases: [{input: x}]\ntarget: {command: [echo, '{input}']}\n")
    what = "must be NAME=value, a comment or an empty line"
    assert told == [f".env:2: {what}", f".env:3: {what}"]


def test_the_environment_is_as_before_when_the_suite_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENV_FILE_SET", "real")
    monkeypatch.delenv("ENV_FILE_NEW", raising=False)
    (folder / ".env").write_text("ENV_FILE_SET=file\nENV_FILE_NEW=file\n")
    spot = Location(problems={})
    with env_file(folder, spot):
        assert (os.environ["ENV_FILE_SET"], os.environ["ENV_FILE_NEW"]) == ("real", "file")
    assert os.environ["ENV_FILE_SET"] == "real"
    assert "ENV_FILE_NEW" not in os.environ
    assert not spot.problems
