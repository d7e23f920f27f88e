"""Hidden files from end to end: attempts that look for them or tamper with them, and graders that
use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paraval import Case, Suite
from paraval.git.patch_paths import paths_in_patch
from paraval.git.run_git import GitError
from paraval.plan.build import build_plan
from paraval.processes.sandbox import why_no_sandbox
from paraval.settings import Selection
from tests.conftest import Paraval
from tests.repositories import make_repository, run_git

needs_sandbox = pytest.mark.skipif(
    why_no_sandbox() is not None and "CI" not in os.environ, reason="bubblewrap is not to be had"
)
SECRET = "canary-of-the-hidden-test"
TEST = f"""# {SECRET}
import sys
sys.path.insert(0, ".")
from calc import add
assert add(1, 2) == 3
"""
RIGHT = "echo 'def add(a, b): return a + b' > calc.py;"


@pytest.fixture(autouse=True)
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a bug and a test, and hidden tests beside the suite."""
    monkeypatch.setenv("PARAVAL_SCRATCH", str(folder / "scratch"))
    repository = folder / "repository"
    (repository / "tests").mkdir(parents=True)
    (repository / "calc.py").write_text("def add(a, b): return a - b\n")
    (repository / "tests" / "test_old.py").write_text("assert True\n")
    make_repository(repository)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_calc.py").write_text(TEST)
    return folder


def suite_of(*scripts: str, **more: Any) -> dict[str, Any]:
    """A case for each script, which a custom agent runs in its workspace."""
    return {
        "cases": [{"id": f"c{number}", "input": script} for number, script in enumerate(scripts)],
        "target": {
            "agent": "custom",
            "command": ["bash", "-c", 'eval "$TASK"; echo done'],
            "prompt": "{input}",
            "env": {"TASK": "{input}"},
            "timeout": 60,
        },
        "workspace": {"git": "repository"},
        "hidden": ["tests/"],
        "limits": {"parallel": 1},
        "graders": [{"command": [sys.executable, "tests/test_calc.py"]}],
        **more,
    }


def run(paraval: Paraval, suite: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The report of a run, as JSON."""
    Path("suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "suite.json", "-o", "report.json", *flags)
    assert ended.returncode in (0, 1, 3), ended.stderr
    report: dict[str, Any] = json.loads(Path("report.json").read_text())
    return {**report, "stdout": ended.stdout, "stderr": ended.stderr}


def outcomes(report: dict[str, Any]) -> list[str]:
    return [trial["outcome"] for trial in report["trials"]]


def flagged(report: dict[str, Any]) -> list[list[str]]:
    return [trial["change"]["flagged"] for trial in report["trials"]]


def test_hidden_tests_grade_every_attempt_and_none_finds_those_of_the_one_before(
    paraval: Paraval, folder: Path
) -> None:
    script = f"ls tests; {RIGHT} git status --short"
    report = run(paraval, suite_of(script, "ls tests", repeats=2))
    assert outcomes(report) == ["passed", "passed", "failed", "failed"]
    assert {trial["output"] for trial in report["trials"][:2]} == {
        "test_old.py\n M calc.py\ndone\n"
    }
    assert {trial["output"] for trial in report["trials"][2:]} == {"test_old.py\ndone\n"}
    assert flagged(report) == [[]] * 4
    patch = paraval("diff", "last", "--case", "c0").stdout
    assert SECRET not in patch
    assert "calc.py" in patch
    assert not list((folder / "scratch").iterdir())
    assert f"attempts can read the hidden files: {folder}/tests" in report["stderr"]
    planned = paraval("plan", "suite.json").stdout.replace("\n", " ")
    assert "attempts can read the hidden files" in planned
    assert "; 1 hidden file or folder put there before grading" in planned


@needs_sandbox
def test_a_sandboxed_agent_finds_no_hidden_tests_wherever_it_looks(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "secret.patch").write_text(patch_of(folder))
    agent = folder / "tools" / "agent.sh"
    agent.write_text(
        f"#!/bin/bash\n{RIGHT}\ngrep -rl {SECRET} {folder} ..; env;"
        f" ls -a {folder} {folder}/tests {folder}/tools .. ../..;"
        " cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n';"
        f" cat {folder}/tests/* {folder}/tools/*.patch /proc/1/root/{folder}/tests/*; echo done"
    )
    agent.chmod(0o755)
    suite = suite_of("", hidden=["tests/", "tools/secret.patch"])
    suite["target"] |= {"command": ["{suite}/tools/agent.sh"], "env": {}}
    suite["workspace"]["sandbox"] = True
    report = run(paraval, suite)
    (trial,) = report["trials"]
    assert trial["outcome"] == "passed", trial
    assert SECRET not in trial["output"]
    assert "test_calc.py" not in trial["output"]
    assert "secret.patch" not in trial["output"]
    assert "can read the hidden files" not in report["stderr"]


@needs_sandbox
def test_a_sandboxed_agent_cannot_read_the_repository_that_its_case_names(
    paraval: Paraval, folder: Path
) -> None:
    suite = suite_of(f"{RIGHT} ls {folder}/repository/.git/objects")
    suite["cases"][0]["metadata"] = {"repo": "repository", "tests": "tests"}
    suite["workspace"] = {"git": "{metadata.repo}", "sandbox": True}
    suite["hidden"] = [{"from": "{metadata.tests}", "to": "tests"}]
    (trial,) = run(paraval, suite)["trials"]
    assert (trial["outcome"], trial["output"]) == ("passed", "done\n")


def patch_of(folder: Path) -> str:
    """A patch that changes the repository's test, adds one and renames one."""
    repository = folder / "repository"
    (repository / "tests" / "test_old.py").write_text(f"# {SECRET}\nassert 2 > 1\n")
    (repository / "tests" / "test_new.py").write_text(TEST)
    run_git(repository, "add", ".")
    patch = run_git(repository, "diff", "--cached")
    run_git(repository, "reset", "-q", "--hard")
    return f"{patch}\n" if not patch.endswith("\n") else patch


def test_later_commits_of_the_repository_are_not_among_the_objects_of_a_worktree(
    paraval: Paraval, folder: Path
) -> None:
    repository = folder / "repository"
    for number in range(55):
        run_git(repository, "commit", "-q", "--allow-empty", "-m", f"number {number}")
    run_git(repository, "tag", "base")
    (repository / "tests" / "test_calc.py").write_text(TEST)
    run_git(repository, "add", "-A")
    run_git(repository, "commit", "-q", "-m", f"The tests: {SECRET}")
    look = (
        f"git cat-file --batch-all-objects --batch | grep -ac {SECRET}; git log --oneline | wc -l"
    )
    more = "git describe --always; git blame calc.py > /dev/null && git status --short"
    report = run(
        paraval,
        suite_of(f"{look}; {more}; {RIGHT}", workspace={"git": "repository", "ref": "base"}),
    )
    assert outcomes(report) == ["passed"], report["stdout"]
    base = run_git(repository, "rev-parse", "--short", "base")
    assert report["trials"][0]["output"].split() == ["0", "50", base, "done"]


@needs_sandbox
def test_a_script_beside_the_suite_is_readable_without_the_answers_beside_it(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "answers.jsonl").write_text(SECRET)
    (folder / "agent.sh").write_text(f"cat {folder}/answers.jsonl {folder}/repository/calc.py; ls")
    (folder / "evals").mkdir()
    suite = suite_of("", workspace={"git": "../repository", "sandbox": True}, hidden=[], graders=[])
    suite["target"]["command"] = ["sh", "{suite}/../agent.sh"]
    (folder / "evals" / "suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "evals/suite.json", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    output = json.loads((folder / "report.json").read_text())["trials"][0]["output"]
    assert output == "calc.py\ntests\n"


@needs_sandbox
def test_later_commits_are_out_of_reach_whatever_other_cases_and_the_path_bring_along(
    paraval: Paraval, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = folder / "repository"
    run_git(repository, "tag", "base")
    (repository / "bin").mkdir()
    (repository / "bin" / "tool").write_text("exit")
    (repository / "solution").write_text(SECRET)
    run_git(repository, "add", "-A")
    run_git(repository, "commit", "-q", "-m", "The solution")
    monkeypatch.setenv("PATH", f"{repository}/bin:{os.environ['PATH']}")
    look = (
        f"cat {repository}/solution; for o in $(grep -o '/[^ ]*objects' /proc/self/mountinfo);"
        " do GIT_ALTERNATE_OBJECT_DIRECTORIES=$o git cat-file --batch-all-objects --batch; done |"
        f" grep -ao {SECRET}"
    )
    suite = suite_of(look, "true", hidden=[])
    suite["workspace"] = {"git": "repository", "ref": "base", "sandbox": True}
    suite["cases"][0]["hidden"] = ["tests/"]
    suite["graders"] = []
    report = run(paraval, suite)
    assert [trial["output"] for trial in report["trials"]] == ["done\n", "done\n"]


def test_a_patch_applies_whatever_an_attempt_did_to_the_files_that_it_names(
    paraval: Paraval, folder: Path
) -> None:
    """The attempt's own settings of git, which could start programs, have no effect on that."""
    (folder / "fix.patch").write_text(patch_of(folder))
    wild = (
        f"{RIGHT} rm -r tests; ln -s /etc tests; git config filter.x.clean 'touch {folder}/ran';"
        f" git config filter.x.smudge 'touch {folder}/ran'; echo '* filter=x' > .gitattributes"
    )
    edited = f"{RIGHT} echo mine > tests/test_old.py; echo mine > tests/test_new.py"
    suite = suite_of(edited, wild, RIGHT, hidden=["fix.patch"])
    run_both = f"{sys.executable} tests/test_old.py && {sys.executable} tests/test_new.py"
    suite["graders"] = [{"command": ["sh", "-c", f"grep -q {SECRET} tests/* && {run_both}"]}]
    report = run(paraval, suite)
    assert outcomes(report) == ["passed"] * 3, report["trials"]
    assert not (folder / "ran").exists()
    takes_place = "a hidden file takes its place"
    assert flagged(report)[0] == [
        f"added tests/test_new.py: {takes_place}",
        f"changed tests/test_old.py: {takes_place}",
    ]
    assert flagged(report)[2] == []


@pytest.mark.parametrize("path", ["../../../../victim", "{folder}/victim", ".git/config"])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_patch_with_paths_outside_the_workspace_is_refused_and_changes_nothing(
    paraval: Paraval, folder: Path, path: str, quoted: bool
) -> None:
    name = path.format(folder=folder)
    old, new = f"a/{name}", f"b/{name}"
    if quoted:
        old, new = ('"' + one.replace(".", "\\056") + '"' for one in (old, new))
    hunk = f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n"
    (folder / "bad.patch").write_text(f"diff --git {old} {new}\n{hunk}")
    (folder / "victim").write_text("a\n")
    suite = suite_of(RIGHT, hidden=["bad.patch"])
    Path("suite.json").write_text(json.dumps(suite, indent=1))
    ended = paraval("run", "suite.json")
    assert ended.returncode == 2, ended.stdout
    told = ended.stderr.replace("\n", " ")
    assert "suite.json:" in told
    assert "bad.patch names" in told
    assert "not a file of the workspace" in told
    with pytest.raises(GitError, match="not a file of the workspace"):
        paths_in_patch(str(folder / "bad.patch"))
    assert (folder / "victim").read_text() == "a\n"


def test_code_that_looks_like_a_path_outside_is_no_reason_to_refuse_a_patch(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "repository" / "notes.sql").write_text("-- ../up\n-- /etc\n")
    run_git(folder / "repository", "add", ".")
    run_git(folder / "repository", "commit", "-qm", "notes")
    (folder / "fix.patch").write_text(
        "diff --git a/notes.sql b/notes.sql\n--- a/notes.sql\n+++ b/notes.sql\n"
        "@@ -1,2 +1 @@\n--- ../up\n--- /etc\n+done\n"
    )
    suite = suite_of(
        RIGHT, hidden=["fix.patch"], graders=[{"command": ["grep", "done", "notes.sql"]}]
    )
    assert outcomes(run(paraval, suite)) == ["passed"]


def test_an_attempt_that_touches_files_of_its_grading_is_flagged_and_the_hidden_ones_win(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "repository" / "check.py").write_text("raise SystemExit(0)\n")
    run_git(folder / "repository", "add", ".")
    run_git(folder / "repository", "commit", "-qm", "check")
    fake = "echo 'raise SystemExit(0)' > tests/test_calc.py; chmod 555 tests"
    steered = f"{RIGHT} touch conftest.py src.py tests/mine.py; echo pass >> check.py"
    elsewhere = f"{RIGHT} rm -r tests; ln -s {folder}/outside tests"
    (folder / "outside").mkdir()
    suite = suite_of(fake, steered, elsewhere)
    suite["graders"].append({"command": [sys.executable, "check.py"]})
    report = run(paraval, suite)
    assert outcomes(report) == ["failed", "passed", "passed"]
    assert flagged(report) == [
        ["added tests/test_calc.py: a hidden file takes its place"],
        [
            "changed check.py: grader 'command#2' uses it",
            "added conftest.py: it controls how tests run",
        ],
        ["tests was no longer a folder: hidden files take its place"],
    ]
    assert not list((folder / "outside").iterdir())
    assert "3 trials touched files of the grading" in report["stdout"]
    assert "flagged: added conftest.py" in paraval("show", "last", "--case", "c1").stdout
    suite["graders"].append({"diff": {"flagged": False}})
    assert outcomes(run(paraval, suite)) == ["failed", "failed", "failed"]


def test_what_git_ignores_cannot_steer_the_grading_unseen(paraval: Paraval, folder: Path) -> None:
    ignore = "__pycache__/\nenv/\n*.egg-info/\n*.log\n"
    (folder / "repository" / ".gitignore").write_text(ignore)
    run_git(folder / "repository", "add", ".")
    run_git(folder / "repository", "commit", "-qm", "ignore")
    forged = (
        "echo 'def add(a, b): return a + b' > other.py; "
        f'{sys.executable} -c \'import py_compile; py_compile.compile("other.py",'
        ' cfile="__pycache__/calc.{tag}.pyc",'
        " invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)'; rm other.py"
    ).replace("{tag}", sys.implementation.cache_tag or "")
    honest = f"{RIGHT} {sys.executable} -c 'import calc'; echo x > a.log; touch env/__pycache__/b"
    suite = suite_of(
        forged,
        f"{RIGHT} echo 'import os' > env/lib/x.pth; echo mine > env/lib/tool.py",
        f"{RIGHT} mkdir a.egg-info; touch a.egg-info/entry_points.txt",
        honest,
        f"{RIGHT} mkdir _pytest; touch _pytest/__init__.py pyproject.toml src.pth",
        f"{RIGHT} rm -f tests/test_calc.py; mkfifo tests/test_calc.py",
        f"{RIGHT} mkdir tests/test_calc.py",
    )
    left = "mkdir -p env/lib env/__pycache__; touch env/lib/tool.py"
    suite["workspace"]["setup"] = ["sh", "-c", left]
    report = run(paraval, suite)
    assert outcomes(report) == ["failed", *["passed"] * 6]
    ignored = "changed files that git ignores, which tests may load:"
    controls = "it controls how tests run"
    odd = "tests/test_calc.py was no longer a file: a hidden file takes its place"
    assert flagged(report) == [
        [],
        [f"{ignored} env/lib/tool.py, env/lib/x.pth"],
        [f"{ignored} a.egg-info/entry_points.txt"],
        [],
        [
            f"added {name}: {controls}"
            for name in ("_pytest/__init__.py", "pyproject.toml", "src.pth")
        ],
        [odd],
        [odd],
    ]


def test_a_script_in_a_shell_line_or_in_a_field_of_the_case_is_a_file_of_the_grading(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "repository" / "check.sh").write_text("true\n")
    run_git(folder / "repository", "add", ".")
    run_git(folder / "repository", "commit", "-qm", "check")
    suite = suite_of(f"{RIGHT} echo true >> check.sh")
    suite["cases"][0]["metadata"] = {"run": "cd . && sh 'check.sh' -v"}
    suite["graders"] = [
        {"command": {"name": "line", "command": ["bash", "-c", "sh check.sh || exit 1"]}},
        {"command": {"name": "field", "command": ["bash", "-c", "{metadata.run}"]}},
    ]
    used = "changed check.sh: grader '{}' uses it"
    for graders, name in ((suite["graders"][:1], "line"), (suite["graders"][1:], "field")):
        assert flagged(run(paraval, {**suite, "graders": graders})) == [[used.format(name)]]


def test_cases_have_hidden_files_of_their_own_and_paths_are_templates(
    paraval: Paraval, folder: Path
) -> None:
    for name in ("c0", "c1"):
        (folder / "by-case" / name).mkdir(parents=True)
        (folder / "by-case" / name / "name.txt").write_text(name)
    (folder / "extra.txt").write_text("extra")
    suite = suite_of("true", "true", hidden=[{"from": "by-case/{case.id}", "to": "{dir}"}])
    suite["matrix"] = {"dir": ["here", "."]}
    suite["cases"][1]["hidden"] = [{"from": "extra.txt", "to": "docs/"}]
    suite["graders"] = [{"command": ["sh", "-c", "cat {dir}/name.txt docs/*; true"]}]
    report = run(paraval, suite)
    reasons = [trial["grades"][0]["reason"] for trial in report["trials"]]
    assert reasons == ["c0", "c0", "c1extra", "c1extra"]
    (folder / "by-case" / "c1" / "name.txt").write_text("other")
    ended = paraval("resume", "last", "-o", "report.json")
    assert "Changed since the run began: 2 trials" in ended.stderr
    trials = json.loads(Path("report.json").read_text())["trials"]
    assert [it["grades"][0]["reason"] for it in trials] == ["c0", "c0", "otherextra", "otherextra"]


def test_a_regrade_uses_the_hidden_tests_as_they_are_now(paraval: Paraval, folder: Path) -> None:
    report = run(paraval, suite_of(f"{RIGHT} echo x >> tests/test_old.py"))
    assert outcomes(report) == ["passed"]
    (folder / "tests" / "test_calc.py").write_text(TEST + "assert add(1, 1) == 3\n")
    (folder / "tests" / "test_old.py").write_text("")
    paraval("regrade", "last", "suite.json", "-o", "again.json")
    again = json.loads(Path("again.json").read_text())
    assert outcomes(again) == ["failed"], again
    assert flagged(again) == [["changed tests/test_old.py: a hidden file takes its place"]]
    ended = paraval("resume", report["run"]["id"])
    assert "Changed since the run began: 1 trial" in ended.stderr


def test_after_a_kill_in_the_middle_of_grading_a_resume_grades_and_nothing_is_left(
    paraval: Paraval, folder: Path
) -> None:
    wait = f"touch {folder}/grading; ls tests; while ! test -e {folder}/go; do sleep 0.05; done"
    suite = suite_of("ls tests")
    suite["graders"].insert(0, {"command": ["sh", "-c", wait]})
    Path("suite.json").write_text(json.dumps(suite))
    engine = subprocess.Popen(
        [sys.executable, "-m", "paraval", "run", "suite.json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (folder / "grading").exists():
        assert engine.poll() is None
        time.sleep(0.02)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    (folder / "go").touch()
    assert paraval("resume", "last", "-o", "report.json").returncode == 0
    (trial,) = json.loads(Path("report.json").read_text())["trials"]
    assert (trial["outcome"], trial["output"]) == ("failed", "test_old.py\ndone\n")
    assert not list((folder / "scratch").iterdir())


def test_hidden_files_that_change_during_a_run_are_not_used(paraval: Paraval, folder: Path) -> None:
    report = run(paraval, suite_of(f"echo pass > {folder}/tests/test_calc.py"))
    assert outcomes(report) == ["grader_error"]
    assert "has changed since the run was planned" in report["trials"][0]["error"]["message"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hidden": ["nowhere"]}, "no such file or folder"),
        ({"hidden": [{"from": "tests", "to": "../x"}]}, "which is not in the workspace"),
        ({"hidden": ["../tests"]}, "no such file or folder"),
        ({"hidden": [{"from": "a.patch", "to": "x"}]}, "a patch names its own paths"),
        ({"hidden": ["repository/tests"]}, "so attempts start with it"),
        ({"hidden": ["{input.x}/tests"]}, "{input.x}"),
        ({"hidden": ["tests"], "workspace": "none"}, "needs a workspace"),
        ({"hidden": ["a.patch"], "workspace": {"folder": True}}, "needs a workspace with files"),
        ({"hidden": [{"form": "tests"}]}, "did you mean 'from'?"),
        ({"hidden": "tests"}, "must be a list"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    paraval: Paraval, keys: dict[str, Any], message: str
) -> None:
    suite = suite_of("true", **keys)
    suite["graders"] = []
    Path("a.patch").touch()
    Path("suite.json").write_text(json.dumps(suite, indent=1))
    ended = paraval("plan", "suite.json")
    assert ended.returncode == 2
    assert message in ended.stderr.replace("\n", " ")
    assert "suite.json:" in ended.stderr


def test_a_suite_in_python_takes_hidden_files_too(folder: Path) -> None:
    (folder / "extra.txt").write_text("extra")
    suite = Suite(
        cases=[Case(id="a", hidden=[{"from": "extra.txt", "to": "."}]), Case(id="b")],
        target={"command": ["true"]},
        workspace={"git": "repository"},
        hidden=["tests/"],
    )
    first, second = build_plan(suite, Selection()).trials
    assert first.workspace is not None
    assert second.workspace is not None
    assert [files.to for files in first.workspace.hidden] == ["tests", "extra.txt"]
    assert [files.to for files in second.workspace.hidden] == ["tests"]


def test_keys_of_trials_without_hidden_files_are_as_before(folder: Path) -> None:
    def keys(**more: Any) -> list[str]:
        target, workspace = {"command": ["true"]}, {"git": "repository"}
        suite = Suite(cases=[{"id": "a"}, {"id": "b", **more}], target=target, workspace=workspace)
        return [trial.key for trial in build_plan(suite, Selection()).trials]

    plain, hidden = keys(), keys(hidden=["tests/"])
    assert plain[0] == hidden[0]
    assert plain[1] != hidden[1]
    (folder / "tests" / "test_calc.py").write_text("other")
    assert keys(hidden=["tests/"])[1] != hidden[1]
