"""Benchmarks of agents: SWE-bench files and Harbor tasks as suites, and their solutions checked."""

from __future__ import annotations

import difflib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from paraval.errors import RequestError, SuiteError
from paraval.importers.harbor import read_harbor
from paraval.importers.imported import suite_text
from paraval.importers.swe_bench import SweBenchOptions, read_swe_bench
from paraval.importers.swe_bench_check import (
    PASSED,
    contradiction,
    statuses,
    verdict,
    why_not_run,
)
from tests.conftest import Paraval
from tests.containers_kit import make_image, needs_containers
from tests.repositories import make_repository

RUNNER = """\
import runpy, sys
sys.path.insert(0, ".")
for file in sys.argv[1:]:
    for name, test in runpy.run_path(file).items():
        if name.startswith("test_"):
            try:
                test()
                print("PASSED", f"{file}::{name}")
            except AssertionError as error:
                print("FAILED", f"{file}::{name} - {error}")
"""
"""Prints what `pytest -rA` prints, in a tenth of its time."""


def patch_of(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{name}" if before else "/dev/null",
        f"b/{name}",
    )
    mode = "" if before else "new file mode 100644\n"
    return f"diff --git a/{name} b/{name}\n{mode}" + "".join(lines)


def code(operator: str) -> str:
    return f"def combine(a, b):\n    return a {operator} b\n\n\ndef name():\n    return 'calc'\n"


TEST_FILE = "from calc import combine, name\n\n\ndef test_name():\n    assert name() == 'calc'\n"


def instance(repos: Path, repo: str, operator: str, expected: int, **other: Any) -> dict[str, Any]:
    """A repository with a bug, and its row in the published shape."""
    folder = repos / repo.replace("/", "__")
    (folder / "tests").mkdir(parents=True)
    (folder / "calc.py").write_text(code("-"))
    (folder / "tests" / "test_calc.py").write_text(TEST_FILE)
    tests = TEST_FILE + f"\n\ndef test_combine():\n    assert combine(6, 3) == {expected}\n"
    return {
        "repo": repo,
        "instance_id": f"{repo.replace('/', '__')}-1",
        "base_commit": make_repository(folder),
        "patch": patch_of("calc.py", code("-"), code(operator)),
        "test_patch": patch_of("tests/test_calc.py", TEST_FILE, tests),
        "problem_statement": f"combine() must use {operator}\nIt subtracts.",
        "hints_text": "look at calc.py",
        "created_at": "2024-01-01T00:00:00Z",
        "version": "1.0",
        "FAIL_TO_PASS": json.dumps(["tests/test_calc.py::test_combine"]),
        "PASS_TO_PASS": json.dumps(["tests/test_calc.py::test_name"]),
        "environment_setup_commit": "0" * 40,
        **other,
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def rows(folder: Path) -> list[dict[str, Any]]:
    """Three instances; their clones are in `repos`."""
    repos = folder / "repos"
    (folder / "runner.py").write_text(RUNNER)
    return [
        instance(repos, "team/adder", "+", 9, difficulty="<15 min fix"),
        instance(repos, "team/times", "*", 18),
        instance(repos, "other/power", "**", 216),
    ]


# ---- SWE-bench: reading


def test_jsonl_json_and_parquet_give_the_same_suite(
    folder: Path, rows: list[dict[str, Any]]
) -> None:
    lists = [
        {**row, **{name: json.loads(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}}
        for row in rows
    ]
    write_rows(folder / "set.jsonl", rows)
    (folder / "set.json").write_text(json.dumps(lists))
    parquet.write_table(pa.Table.from_pylist(lists), folder / "set.parquet")
    first, *others = (
        read_swe_bench(folder / f"set.{ending}", SweBenchOptions())[0]
        for ending in ("jsonl", "json", "parquet")
    )
    assert [one.files for one in others] == [first.files, first.files]
    assert [one.suite for one in others] == [first.suite, first.suite]
    case = json.loads(str(first.files["cases.jsonl"]).splitlines()[0])
    assert case["id"] == "team__adder-1"
    assert case["input"] == {
        "repo": "repos/team__adder",
        "base": rows[0]["base_commit"],
        "problem": rows[0]["problem_statement"],
    }
    assert case["expect"]["PASS_TO_PASS"] == ["tests/test_calc.py::test_name"]
    assert case["tags"] == ["team/adder", "<15 min fix"]
    assert case["metadata"]["test_command"] == "python -m pytest -rA tests/test_calc.py"


def test_every_column_is_honored_or_listed(folder: Path, rows: list[dict[str, Any]]) -> None:
    rows[0]["install_config"] = {"python": "3.9"}
    imported, _ = read_swe_bench(write_rows(folder / "set.jsonl", rows), SweBenchOptions())
    listed = {one.key for one in imported.not_honored}
    assert listed == {"hints_text", "environment_setup_commit", "install_config"}
    assert "#   install_config: no part of a suite" in suite_text(imported)


def test_damaged_rows_are_reported_with_file_line_and_column(
    folder: Path, rows: list[dict[str, Any]]
) -> None:
    rows[1]["FAIL_TO_PASS"] = "['single quotes']"
    del rows[2]["test_patch"]
    file = write_rows(folder / "set.jsonl", rows)
    file.write_text(file.read_text() + '{"instance_id": "cut')
    with pytest.raises(SuiteError) as raised:
        read_swe_bench(file, SweBenchOptions())
    text = str(raised.value)
    assert f"{file}:2: FAIL_TO_PASS: must be a JSON list of test names" in text
    assert f"{file}:3: test_patch: other__power-1: missing" in text
    assert f"{file}:4: not valid JSON" in text


def test_values_that_git_would_take_for_options_are_refused_before_anything_is_fetched(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    rows[0]["base_commit"] = f"--upload-pack=touch {folder}/ran;"
    rows[1]["repo"] = "-x/../../y"
    rows[2]["base_commit"] = "main:refs/heads/mine"
    file = write_rows(folder / "set.jsonl", rows)
    ended = paraval("import", "swe-bench", str(file), "--repos", "repos", "--clone")
    assert ended.returncode == 2, ended.stderr
    told = ended.stderr.replace("\n", " ")
    assert "set.jsonl:1: base_commit: team__adder-1: must be a commit, branch or tag" in told
    assert "set.jsonl:2: repo: team__times-1: must be 'owner/name'" in told
    assert "set.jsonl:3: base_commit: other__power-1: must be a commit" in told
    assert not (folder / "ran").exists()


def test_instances_are_chosen_by_name_and_number(folder: Path, rows: list[dict[str, Any]]) -> None:
    file = write_rows(folder / "set.jsonl", rows)
    chosen = SweBenchOptions(instance="team__*", limit=1)
    assert [one.id for one in read_swe_bench(file, chosen)[1]] == ["team__adder-1"]
    with pytest.raises(RequestError, match="3 instances, such as team__adder-1"):
        read_swe_bench(file, SweBenchOptions(instance="nothing*"))


def test_images_and_test_commands_are_templates(folder: Path, rows: list[dict[str, Any]]) -> None:
    rows[0] |= {
        "repo": "django/django",
        "FAIL_TO_PASS": '["test_x (admin.tests.X)"]',
        "PASS_TO_PASS": "[]",
    }
    options = SweBenchOptions(image="bench/sweb.{image_id}:{version}")
    imported, _ = read_swe_bench(write_rows(folder / "set.jsonl", rows), options)
    case = json.loads(str(imported.files["cases.jsonl"]).splitlines()[0])
    assert case["input"]["image"] == "bench/sweb.team_1776_adder-1:1.0"
    assert imported.suite["workspace"]["container"]["image"] == "{input.image}"
    assert case["metadata"]["test_command"].endswith("--parallel 1 test_calc")
    with pytest.raises(RequestError, match="'nope' is not a column"):
        read_swe_bench(folder / "set.jsonl", SweBenchOptions(image="{nope}"))


@pytest.mark.parametrize(
    ("output", "passed"),
    [
        ("PASSED t.py::a\nFAILED t.py::b - assert 1 == 2\nXFAIL t.py::c - why", {"t.py::a"}),
        ("PASSED t.py::a[x y]\n", {"t.py::a[x y]", "t.py::a[x"}),
        ("test_x (m.C) ... ok\ntest_y (m.C) ... FAIL\n", {"test_x (m.C)"}),
        ("A test's docstring. ... ok\n", {"A test's docstring."}),
        ("test_x ok\ntest_y F\ntest_z E\n", {"test_x"}),
    ],
)
def test_the_grader_reads_pytest_unittest_and_sympy(output: str, passed: set[str]) -> None:
    found = {name for name, status in statuses(output).items() if status in PASSED}
    assert found >= passed
    assert not {"t.py::b", "test_y (m.C)", "test_y", "test_z"} & found


def test_a_named_test_that_did_not_run_is_not_resolved() -> None:
    is_resolved, reason = verdict({"FAIL_TO_PASS": ["a", "b"], "PASS_TO_PASS": []}, {"a": "PASSED"})
    assert not is_resolved
    assert reason == "1 of 2 FAIL_TO_PASS passed (not: b (not run)); 0 of 0 PASS_TO_PASS passed"


def test_an_exit_code_that_does_not_fit_to_passed_tests_is_no_success() -> None:
    passed = "PASSED t.py::test_a\n"
    assert contradiction(passed, 0) == ""
    assert contradiction(f"{passed}FAILED t.py::test_b - no\n", 1) == ""
    assert contradiction(passed, 1) == "; but the test command ended with exit code 1"
    assert contradiction(f"{passed}FAILED t.py::test_b - no\n", -9).endswith("exit code -9")


def test_a_solution_whose_test_run_dies_after_its_lines_is_not_resolved(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    with (folder / "runner.py").open("a") as runner:
        runner.write("import os; sys.stdout.flush(); os._exit(3)\n")
    write_rows(folder / "set.jsonl", rows[:1])
    checked = paraval(*importing(folder), "--check-solutions")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert ["team__adder-1", "failed"] in [line.split()[:2] for line in checked.stdout.splitlines()]


def test_a_column_missing_everywhere_is_one_problem_and_a_missing_optional_one_a_note(
    folder: Path, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        del row["PASS_TO_PASS"]
    file = write_rows(folder / "set.jsonl", rows)
    notes = read_swe_bench(file, SweBenchOptions())[0].notes
    assert "PASS_TO_PASS is missing in 3 instances: only FAIL_TO_PASS decides there." in notes
    for row in rows:
        del row["test_patch"]
    with pytest.raises(SuiteError) as raised:
        read_swe_bench(write_rows(file, rows), SweBenchOptions())
    [problem] = raised.value.problems
    assert str(problem) == f"{file}: test_patch: this column is missing (in 3 instances)"


def test_what_images_need_is_noted(folder: Path, rows: list[dict[str, Any]]) -> None:
    file = write_rows(folder / "set.jsonl", rows)
    notes = " ".join(read_swe_bench(file, SweBenchOptions(image="{image_id}"))[0].notes)
    assert "Images need sh, bash, python3" in notes
    assert "- diff: {flagged: false}" in notes


HEADER = "===== test session starts =====\n"


@pytest.mark.parametrize(
    ("output", "code", "why"),
    [
        ("/usr/bin/python: No module named pytest\n", 1, "No module named pytest"),
        ("bash: python: command not found\n", 127, "bash: python: command not found"),
        ("", 137, "nothing was printed (exit code 137)"),
        ("Traceback (x):\n  File \"{here}/run.py\"\nNo module named 'asgiref'", 1, "No module"),
        ("error: unrecognized arguments: --cov\n", 4, "error: unrecognized arguments: --cov"),
        (HEADER + "E   ImportError: cannot import name 'combine'\n", 2, None),
        ("ImportError while loading conftest '/w/conftest.py'.\n", 4, None),
        ('Traceback (x):\n  File "{here}/calc.py"\nSyntaxError: invalid syntax', 1, None),
        ("Traceback (x):\n  File \"run.py\"\nNo module named 'calc.parts'", 1, None),
    ],
)
def test_a_runner_that_did_not_start_is_told_from_code_that_is_broken(
    folder: Path, output: str, code: int, why: str | None
) -> None:
    (folder / "calc.py").write_text("")
    found = why_not_run(output.replace("{here}", str(folder)), code)
    assert found == "" if why is None else found.startswith(why)


# ---- SWE-bench: the command


def importing(folder: Path) -> tuple[str, ...]:
    runner = f"{sys.executable} -S {folder}/runner.py {{tests}}"
    return ("import", "swe-bench", "set.jsonl", "--repos", "repos", "--test-command", runner)


def test_missing_repositories_are_listed_and_cloned(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    hosted = folder / "host" / "team"
    hosted.mkdir(parents=True)
    (folder / "repos" / "team__adder").rename(hosted / "adder")
    write_rows(folder / "set.jsonl", rows[:1])
    host = ("--host", str(folder / "host"))
    listed = paraval("import", "swe-bench", "set.jsonl", *host)
    assert f"git clone --no-tags -- {folder}/host/team/adder set/repos/team__adder" in listed.stderr
    assert not (folder / "set" / "repos").exists()
    done = paraval("import", "swe-bench", "set.jsonl", *host, "--clone")
    assert done.returncode == 0, done.stderr
    assert (folder / "set" / "repos" / "team__adder" / "calc.py").is_file()
    assert "Get what is missing" not in done.stderr

    rows[0]["base_commit"] = "1" * 40
    write_rows(folder / "set.jsonl", rows[:1])
    lost = paraval("import", "swe-bench", "set.jsonl", *host, "--replace")
    assert f"git -C set/repos/team__adder fetch -- origin {'1' * 40}" in lost.stderr


def test_solutions_are_checked_and_an_agent_is_graded_by_hidden_tests(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    write_rows(folder / "set.jsonl", rows)
    checked = paraval(*importing(folder), "--check-solutions")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shown = [line.split() for line in checked.stdout.splitlines()]
    assert ["team__adder-1", "passed", "fails", "ok"] in shown
    assert "Compared by" not in checked.stdout

    # An agent that knows how to add, and looks for the tests that it cannot see.
    suite_file = folder / "set" / "suite.yaml"
    suite = yaml.safe_load(suite_file.read_text())
    script = (
        "import pathlib; p = pathlib.Path('calc.py'); p.write_text(p.read_text().replace('-', '+'))"
    )
    look = "; print('combine' in pathlib.Path('tests/test_calc.py').read_text().split('def ')[-1])"
    suite["target"] = {
        "agent": "custom",
        "command": [sys.executable, "-c", script + look, "{input.problem}"],
    }
    suite_file.write_text(yaml.safe_dump(suite))
    ended = paraval("run", "set/suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((folder / "report.json").read_text())
    outcomes = {trial["case"]: trial["outcome"] for trial in report["trials"]}
    assert outcomes == {
        "team__adder-1": "passed",
        "team__times-1": "failed",
        "other__power-1": "failed",
    }
    assert {str(trial["output"]).strip() for trial in report["trials"]} == {"False"}


def test_a_wrong_solution_and_a_useless_test_are_found(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    rows[0]["patch"] = rows[1]["patch"]
    rows[1]["FAIL_TO_PASS"] = rows[1]["PASS_TO_PASS"]
    write_rows(folder / "set.jsonl", rows)
    checked = paraval(*importing(folder), "--instance", "team__*", "--check-solutions")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    rows_shown = [line.split()[:3] for line in checked.stdout.splitlines()]
    assert ["team__adder-1", "failed", "fails"] in rows_shown
    assert ["team__times-1", "passed", "passes"] in rows_shown


def test_predictions_are_graded_and_compared_by_model(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    def predicted(model: str, patches: list[str | None]) -> list[dict[str, Any]]:
        return [
            {"instance_id": row["instance_id"], "model_name_or_path": model, "model_patch": patch}
            for row, patch in zip(rows, patches, strict=False)
        ]

    add, times, power = (str(row["patch"]) for row in rows)
    stale = times.replace("-    return a - b", "-    return a % b")
    write_rows(folder / "set.jsonl", rows)
    good = predicted("lab/good", [add, times, power.rstrip()])
    write_rows(folder / "good.jsonl", [*good, {**good[0], "instance_id": "elsewhere-1"}])
    weak = predicted("weak", [add.replace("+ b\n", "/ b\n"), stale])
    (folder / "weak.json").write_text(json.dumps({one["instance_id"]: one for one in weak}))
    (folder / "mute.json").write_text(json.dumps(predicted("mute", [None, "", "\n"])))
    files = [
        word
        for name in ("good.jsonl", "weak.json", "mute.json")
        for word in ("--predictions", name)
    ]
    imported = paraval(*importing(folder), *files)
    assert imported.returncode == 0, imported.stderr
    assert "weak has no patch for 1 of 3 instances: failed." in imported.stderr
    assert "predictions for 1 other instance" in imported.stderr
    ended = paraval("run", "set/suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trials = json.loads((folder / "report.json").read_text())["trials"]
    found = {(one["variant"]["model"], one["case"]): one for one in trials}
    passed = {key for key, one in found.items() if one["outcome"] == "passed"}
    assert passed == {("lab__good", row["instance_id"]) for row in rows}
    assert {one["outcome"] for one in trials} == {"passed", "failed"}
    reasons = {key: one["grades"][0]["reason"] for key, one in found.items()}
    assert "0 of 1 FAIL_TO_PASS passed" in reasons["weak", "team__adder-1"]
    assert reasons["weak", "team__times-1"].startswith("the patch does not apply: error: patch")
    assert reasons["weak", "other__power-1"] == "the prediction has no patch"
    assert reasons["mute", "team__adder-1"] == "the prediction has no patch"


def test_damaged_predictions_are_reported_with_file_and_line(
    folder: Path, rows: list[dict[str, Any]]
) -> None:
    file = write_rows(folder / "set.jsonl", rows)
    one = {"instance_id": "team__adder-1", "model_name_or_path": "m", "model_patch": ""}
    lines: list[dict[str, Any]] = [one, {**one, "model_patch": 3}, {"instance_id": "x"}]
    predictions = write_rows(folder / "preds.jsonl", lines)
    with pytest.raises(SuiteError) as raised:
        read_swe_bench(file, SweBenchOptions(predictions=(predictions,)))
    text = str(raised.value)
    assert "preds.jsonl:2: m has another prediction for team__adder-1" in text
    assert "preds.jsonl:2: model_patch: must be the text of a patch, not 3" in text
    assert "preds.jsonl:3: model_name_or_path: must be a text" in text
    write_rows(predictions, [{**one, "instance_id": "elsewhere-1"}])
    with pytest.raises(RequestError, match="is for a chosen instance, such as team__adder-1"):
        read_swe_bench(file, SweBenchOptions(predictions=(predictions,)))


def test_tests_that_cannot_be_started_are_an_error_and_no_proof_of_failing(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    write_rows(folder / "set.jsonl", rows[:1])
    runner = f"{sys.executable} -I -S -m pytest -rA {{tests}}"
    imported = (*importing(folder)[:-1], runner, "--check-solutions")
    checked = paraval(*imported)
    assert checked.returncode == 3, checked.stdout + checked.stderr
    shown = [line.split() for line in checked.stdout.splitlines()]
    assert ["team__adder-1", "grader_error", "grader_error", "error"] in shown
    said = "team__adder-1 · empty: grader 'resolved': No module named pytest (exit code 1): no test"
    assert said in checked.stdout


def test_hidden_tests_that_do_not_apply_are_an_error_with_their_file(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval
) -> None:
    rows[0]["test_patch"] = rows[0]["test_patch"].replace(" def test_name", " def test_other")
    write_rows(folder / "set.jsonl", rows[:1])
    checked = paraval(*importing(folder), "--check-solutions")
    assert checked.returncode == 3, checked.stdout + checked.stderr
    said = "".join(checked.stdout.split())  # A long path is broken anywhere.
    patch = f"{folder}/set/hidden/team__adder-1/test.patch"
    assert f"the hidden patch {patch} does not apply".replace(" ", "") in said


@needs_containers
def test_an_image_without_git_or_python_is_named_as_the_reason(
    folder: Path, rows: list[dict[str, Any]], paraval: Paraval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARAVAL_SCRATCH", str(folder / "scratch"))
    write_rows(folder / "set.jsonl", rows[:1])
    checked = paraval(*importing(folder), "--image", make_image(), "--check-solutions")
    assert checked.returncode == 3, checked.stdout + checked.stderr
    said = " ".join(checked.stdout.split())
    # The engine's words: "git" or `git`.
    assert re.search(r"reference: exit code 127: .*\Wgit\W", said)
    assert "python3: not found" in said


# ---- Harbor

TASK = """\
version = "1.0"

[metadata]
author_name = "Someone"
difficulty = "easy"
category = "programming"
tags = ["files"]

[verifier]
timeout_sec = 120.0

[agent]
timeout_sec = 300.0

[environment]
build_timeout_sec = 600.0
cpus = 2
memory_mb = 2048
storage_mb = 10240
allow_internet = false

[[environment.mcp_servers]]
name = "files"
"""
OLDER_TASK = """\
instruction: |-
  Write 'hello' to hello.txt.
author_name: Someone
difficulty: easy
category: files
tags: [text]
parser_name: pytest
max_agent_timeout_sec: 200.0
max_test_timeout_sec: 30.0
run_tests_in_same_shell: true
"""
COMPOSE = """\
services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    command: [sh, -c, sleep infinity]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
  database:
    image: postgres
"""
TEST_SH = """\
#!/bin/sh
if [ "$(cat hello.txt)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def harbor_task(folder: Path, **changed: str) -> Path:
    return write_tree(
        folder,
        {
            "task.toml": TASK,
            "instruction.md": "Write 'hello' to hello.txt.\n",
            "environment/Dockerfile": "FROM busybox\nWORKDIR /app\n",
            "tests/test.sh": TEST_SH,
            "solution/solve.sh": "#!/bin/sh\necho hello > hello.txt\n",
            **changed,
        },
    )


def cases_of(files: Any, name: str = "cases.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in str(files[name]).splitlines()]


def test_tasks_of_both_generations_become_cases_in_containers(folder: Path) -> None:
    harbor_task(folder / "tasks" / "hello")
    write_tree(
        folder / "tasks" / "older",
        {
            "task.yaml": OLDER_TASK,
            "Dockerfile": "FROM busybox\n",
            "docker-compose.yaml": COMPOSE,
            "run-tests.sh": "#!/bin/sh\ntrue\n",
            "tests/test_outputs.py": "",
        },
    )
    imported = read_harbor(folder / "tasks", folder / "suite")
    hello, older = cases_of(imported.files)
    assert hello["input"] == "Write 'hello' to hello.txt.\n"
    assert hello["timeout"] == 300
    assert hello["metadata"]["test_timeout"] == 120
    assert hello["tags"] == ["easy", "programming", "files"]
    assert hello["workspace"] == {
        "container": {"build": "../tasks/hello/environment", "cpus": 2, "memory": "2048MiB"}
    }
    assert {"from": "../tasks/hello/tests", "to": ".harbor/tests"} in hello["hidden"]
    assert older["timeout"] == 200
    assert older["workspace"]["container"] == {"build": "../tasks/older"}
    assert {"from": "../tasks/older/run-tests.sh", "to": ".harbor/run-tests.sh"} in older["hidden"]
    assert {one.key for one in imported.not_honored} == {
        "hello/environment.storage_mb",
        "hello/environment.build_timeout_sec",
        "hello/environment.allow_internet",
        "hello/environment.mcp_servers",
        "older/run_tests_in_same_shell",
        "older/docker-compose.yaml: services.database",
    }
    [checked] = cases_of(imported.files, "check.jsonl")
    assert checked["hidden"][-1] == {"from": "../tasks/hello/solution", "to": ".harbor/solution"}
    assert imported.notes[0] == "Without a solution to check: older."
    assert "- diff: {flagged: false}" in imported.notes[1]


def test_a_damaged_task_is_reported_with_its_file_and_line(folder: Path) -> None:
    harbor_task(folder / "one", **{"task.toml": 'version = "1.0"\n[agent\n'})
    harbor_task(folder / "two", **{"task.toml": "[agent]\ntimeout_sec = 'long'\n"})
    with pytest.raises(SuiteError) as raised:
        read_harbor(folder, folder / "suite")
    assert f"{folder}/one/task.toml:2: not valid TOML" in str(raised.value)
    assert f"{folder}/two/task.toml:2: agent.timeout_sec: unexpected value 'long'" in str(
        raised.value
    )
    with pytest.raises(RequestError, match="has no tasks"):
        read_harbor(folder / "one" / "tests", folder / "suite")


@needs_containers
def test_tasks_run_in_their_containers_and_their_solutions_are_checked(
    folder: Path, paraval: Paraval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARAVAL_SCRATCH", str(folder / "scratch"))
    image = make_image()
    harbor_task(
        folder / "tasks" / "hello",
        **{"task.toml": f"[environment]\ndocker_image = '{image}'\n[agent]\ntimeout_sec = 60\n"},
    )
    write_tree(
        folder / "tasks" / "older",
        {
            "task.yaml": OLDER_TASK,
            "Dockerfile": f"FROM {image}\nWORKDIR /app\n",
            "run-tests.sh": '#!/bin/sh\nsh "$TEST_DIR/check.sh"\n',
            "tests/check.sh": "grep -q hello /app/hello.txt\n",
            "solution.sh": "#!/bin/sh\necho hello > hello.txt\n",
        },
    )
    checked = paraval("import", "harbor", "tasks", "--check-solutions")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shown = [line.split() for line in checked.stdout.splitlines()]
    assert ["hello", "passed", "fails", "ok"] in shown
    assert ["older", "passed", "fails", "ok"] in shown

    suite_file = folder / "tasks-suite" / "suite.yaml"
    suite = yaml.safe_load(suite_file.read_text())
    script = "ls /tests .harbor; pwd; case $PARAVAL_CASE in hello) echo hello > hello.txt;; esac"
    suite["target"] = {"agent": "custom", "command": ["sh", "-c", script]}
    suite_file.write_text(yaml.safe_dump(suite))
    ended = paraval("run", "tasks-suite/suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trials = json.loads((folder / "report.json").read_text())["trials"]
    outcomes = {trial["case"]: (trial["outcome"], trial["output"].strip()) for trial in trials}
    assert outcomes == {"hello": ("passed", "/work"), "older": ("failed", "/app")}
