"""`paraval regrade`: changed graders on stored answers; no target runs or is paid for again."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paraval as library
from paraval.store.store import Store
from paraval.testing import Loopback, loopback
from tests.conftest import Paraval, WriteSuite
from tests.repositories import commit_all, make_repository, run_git
from tests.test_agent_transcripts import suite_of
from tests.test_store import make_plan

SUITE = """
    name: capitals
    cases:
      - {id: france, input: Paris, expect: paris}
      - {id: spain, input: Madrid, expect: madrid}
      - {id: wrong, input: crash, expect: x}
    matrix: {mode: [loud, calm]}
    repeats: 2
    target:
      command: "echo $case_id >> calls; [ $input = crash ] && exit 3; sleep 0.02; echo $input"
      shell: true
    fail_under: 1
    graders:
      - contains
"""
KINDER = SUITE.replace("- contains", "- contains: {ignore_case: true}")


def report_of(folder: Path, name: str = "r.json") -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / name).read_text())
    return report


def outcomes(folder: Path, name: str = "r.json") -> dict[str, str]:
    return {trial["case"]: trial["outcome"] for trial in report_of(folder, name)["trials"]}


def runs_of(folder: Path) -> list[str]:
    """Oldest first."""
    return [run.id for run in reversed(Store(folder / ".paraval").runs())]


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().split())


@pytest.fixture
def graded(write: WriteSuite, paraval: Paraval, folder: Path) -> str:
    """A run whose grader was too strict."""
    write("suite.yaml", SUITE)
    assert paraval("run", "suite.yaml", "-o", "first.json").returncode == 1
    (run,) = runs_of(folder)
    return run


def test_changed_graders_judge_stored_answers_and_no_target_runs(
    graded: str, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    before = calls(folder)
    write("suite.yaml", KINDER)
    ended = paraval("regrade", "last", "-o", "r.json", "-o", "r.md", "-o", "r.html")
    assert ended.returncode == 3, "the errors of the source stay, so the gate is undecided"
    assert calls(folder) == before
    assert outcomes(folder) == {"france": "passed", "spain": "passed", "wrong": "crashed"}
    first, second = report_of(folder, "first.json"), report_of(folder)
    for old, new in zip(first["trials"], second["trials"], strict=True):
        for name in ("case", "variant", "repeat", "output", "target_s", "cost_usd", "exit_code"):
            assert old[name] == new[name]
    new_run = runs_of(folder)[-1]
    assert second["run"]["regraded_from"] == graded
    for text in (ended.stdout, (folder / "r.md").read_text()):
        assert f"Regraded from run {graded}" in text
    assert f"<dt>regraded from</dt><dd>{graded}</dd>" in (folder / "r.html").read_text()
    head, newest, _ = paraval("runs").stdout.splitlines()
    for name in ("started", "state", "errors", "time"):
        assert name in head, "a regrade is marked in few characters"
    assert newest.startswith(f"{new_run}  capitals  2")
    assert "  regraded  " in newest
    assert json.loads(paraval("runs", "--json").stdout)[0]["regraded_from"] == graded
    assert f"compare {graded} {new_run}" in ended.stderr
    compared = paraval("compare", graded, new_run)
    assert "4 case-variant pairs fixed" in compared.stdout
    assert "Changed between the runs: graders" in compared.stdout
    assert "france" in paraval("logs", "last", "--case", "france").stdout
    assert "Paris" in paraval("show", "last", "--case", "france").stdout


def test_the_time_of_an_answer_is_graded_as_it_was(
    graded: str, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE.replace("- contains", "- latency: {max: 0.01}"))
    assert paraval("regrade", "--case", "france", "-o", "r.json").returncode == 1
    (reason,) = {trial["grades"][0]["reason"][:5] for trial in report_of(folder)["trials"]}
    assert reason == "took "


def test_a_regrade_can_be_narrowed_regraded_and_given_another_suite(
    graded: str, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("kinder.yaml", KINDER)
    first = paraval("regrade", graded, "kinder.yaml", "--variant", "mode=calm", "--limit", "2")
    assert first.returncode == 0, first.stderr
    assert "Regrading 4 answers" in first.stderr
    again = paraval("regrade", "last", "suite.yaml", "-o", "r.json", "--fail-under", "0")
    assert again.returncode == 0, again.stderr
    report = report_of(folder)
    assert report["run"]["regraded_from"] == runs_of(folder)[1]
    assert {trial["variant"]["mode"] for trial in report["trials"]} == {"calm"}
    assert outcomes(folder) == {"france": "failed", "spain": "failed"}
    assert "2 of 3 cases" in again.stdout
    assert calls(folder) == 12


def test_comparisons_and_histories_name_a_regrades_source_and_skip_partial_regrades(
    graded: str, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", KINDER)
    paraval("regrade", graded)
    _, whole = runs_of(folder)
    paraval("regrade", graded, "--variant", "mode=calm")
    paraval("regrade", graded, "--case", "france")
    mark = f"regraded from {graded}"
    compared = paraval("compare", "-o", "c.html").stdout
    assert f"before: {whole} of capitals, {mark}\n" in compared
    assert f"after: {runs_of(folder)[-1]} of capitals, {mark}\n" in compared
    assert (folder / "c.html").read_text().count(mark) == 2
    assert paraval("history", "-o", "h.html").stdout.count(mark) == 3
    assert (folder / "h.html").read_text().count(mark) >= 3


def test_python_regrades_by_the_selection(graded: str, folder: Path) -> None:
    suite = library.Suite.load("suite.yaml")
    report = library.run(suite, selection=library.Selection(regrade="last", cases=("spain",)))
    assert report.run.regraded_from == graded
    assert report.summary.failed == 4
    assert calls(folder) == 12


def test_a_changed_expectation_counts_and_a_changed_input_is_skipped(
    graded: str, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    changed = SUITE.replace("expect: paris", "expect: Paris").replace("input: Madrid", "input: Ma")
    write("suite.yaml", changed.replace("- {id: wrong", "- {id: other"))
    ended = paraval("regrade", "-o", "r.json")
    assert ended.returncode == 3, "a trial that is not graded may decide the gate"
    assert outcomes(folder) == {"france": "passed", "spain": "skipped"}
    assert f"4 skipped: its input has changed since run {graded}" in ended.stdout
    assert f"4 answers of run {graded} left out: no longer in the suite" in ended.stderr
    assert calls(folder) == 12


def test_a_changed_prompt_is_said_and_trials_without_an_answer_are_left_out(
    write: WriteSuite, paraval: Paraval
) -> None:
    suite = """
    cases: [{id: a}, {id: b}]
    matrix: {mode: [x, y]}
    target: {command: [echo, "hello {mode}"]}
    graders: [{contains: {value: hello}}]
    """
    write("suite.yaml", suite)
    assert paraval("run", "suite.yaml", "--variant", "mode=x").returncode == 0
    write("suite.yaml", suite.replace("hello {mode}", "bye {mode}"))
    ended = paraval("regrade")
    assert ended.returncode == 0
    assert "2 trials are left out" in ended.stderr
    assert "The suite's prompt has changed since run" in ended.stderr


def test_a_regrade_is_recorded_with_the_prompt_that_its_answers_are_of(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = """
    cases: [{id: a}, {id: b}]
    target: {command: [echo, "hello"]}
    graders: [{contains: {value: hello}}]
    """
    write("suite.yaml", suite)
    assert paraval("run", "suite.yaml").returncode == 0
    write("suite.yaml", suite.replace("[echo", "[echo, oh").replace("value: hello", "value: h"))
    outputs = ("-o", "r.json", "-o", "r.md", "-o", "r.html")
    assert paraval("regrade", *outputs).returncode == 0
    notice = f"The suite's prompt has changed since run {runs_of(folder)[0]}, whose answers"
    assert notice in paraval("report", "last").stdout
    assert notice in (folder / "r.md").read_text()
    assert notice in html.unescape((folder / "r.html").read_text())
    assert notice in report_of(folder)["run"]["notices"][0]["message"]
    assert "Changed between the runs: graders." in paraval("compare").stdout
    assert paraval("run", "suite.yaml").returncode == 0
    assert "Changed between the runs: prompt." in paraval("compare").stdout
    _, regrade, second = json.loads(paraval("history", "--json").stdout)["runs"]
    assert (regrade["changed"], second["changed"]) == (["graders"], ["prompt"])


def test_errors_are_counted_and_grader_errors_graded_as_the_suite_says_now(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = """
    cases: [{id: late}, {id: fine}]
    target:
      command: "[ $case_id = fine ] || sleep 5; echo ok"
      shell: true
      timeout: 0.3
    graders: [{python: {function: "own:grade"}}]
    """
    write("own.py", "def grade(output, case):\n    raise ValueError('not yet')\n")
    write(
        "suite.yaml", suite.replace("timeout: 0.3", "timeout: 0.3\n      errors: {timeout: fail}")
    )
    paraval("run", "suite.yaml", "-o", "r.json")
    assert outcomes(folder) == {"late": "failed", "fine": "grader_error"}
    write("own.py", "def grade(output, case):\n    return output.text == 'ok\\n'\n")
    paraval("regrade", "-o", "r.json")
    assert outcomes(folder) == {"late": "failed", "fine": "passed"}
    (late, _) = report_of(folder)["trials"]
    assert late["error"]["message"].count("counted as failed") == 1
    write("suite.yaml", suite)
    paraval("regrade", "-o", "r.json")
    assert outcomes(folder) == {"late": "timeout", "fine": "passed"}


# ---- models and judges


@pytest.fixture
def server() -> Iterator[Loopback]:
    answers: list[dict[str, Any]] = [
        {"match": "Hello", "text": '{"reason": "it is", "score": 0.9}'},
        {"text": "Hello, friend."},
    ]
    with loopback(answers=answers) as running:
        yield running


def with_judges(server: Loopback, *graders: str) -> str:
    priced = {"price": {"input_per_million": 1000, "output_per_million": 1000}}
    entry = {"provider": "openai", "base_url": server.base_url, "model": "m", **priced}
    return json.dumps(
        {
            "name": "talk",
            "models": {"m": {**entry, "api_key_env": "PATH"}},
            "cases": [{"id": f"c{number}", "input": f"hi {number}"} for number in range(6)],
            "target": {"chat": {"model": "m", "prompt": "{input}"}},
            "limits": {"parallel": 1},
            "graders": [{"judge": {"model": "m", "name": one, "rubric": one}} for one in graders],
        }
    )


def requests_seen(server: Loopback) -> int:
    return server.stats().total.requests


def test_only_new_verdicts_of_judges_are_paid_for(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.json", with_judges(server, "Is it kind?"))
    assert paraval("run", "suite.json", "-o", "first.json").returncode == 0
    assert requests_seen(server) == 12
    write("suite.json", with_judges(server, "Is it kind?", "Is it short?"))
    ended = paraval("regrade", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert requests_seen(server) == 18, "six verdicts of the second judge, and nothing else"
    first, second = report_of(folder, "first.json"), report_of(folder)
    (old, new) = (one["trials"][0] for one in (first, second))
    assert new["cost_usd"] == old["cost_usd"] > 0
    assert (new["spent_usd"], new["calls"], new["cached"]) == (0.0, 0, 1)
    assert (new["target_s"], new["cached_s"]) == (0.0, old["target_s"])
    assert second["summary"]["median_s"] == first["summary"]["median_s"]
    assert (new["judging"]["calls"], new["judging"]["cached"]) == (1, 1)
    assert new["usage"] == old["usage"]
    assert "Is it short?" in paraval("show", "last", "--case", "c1").stdout
    again = paraval("regrade", "last~1", "--budget", "0.01")
    assert again.returncode == 0, again.stderr
    assert requests_seen(server) == 18, "every verdict was cached, so nothing is reserved for it"


def test_a_budget_stops_judges_and_a_resume_goes_on(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    command = {"command": ["echo", "Hello {input}"]}
    suite = {**json.loads(with_judges(server)), "target": command}
    write("suite.json", json.dumps(suite))
    assert paraval("run", "suite.json").returncode == 0
    judged = {**json.loads(with_judges(server, "Is it kind?")), "target": command}
    # Two answers fail before a judge is asked: they report no cost at all.
    judged["graders"].insert(0, {"regex": "hi [2-5]"})
    write("suite.json", json.dumps(judged))
    ended = paraval("regrade", "--budget", "5", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert 0 < requests_seen(server) < 4
    assert "budget" in ended.stdout
    resumed = paraval("resume", "last", "--budget", "7", "-o", "r.json")
    assert resumed.returncode == 0, resumed.stderr
    assert requests_seen(server) == 4
    assert [trial["outcome"] for trial in report_of(folder)["trials"]].count("passed") == 4
    assert len(runs_of(folder)) == 2


def test_a_killed_regrade_is_resumed_from_the_same_answers(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = """
    cases: [{id: a}, {id: b}, {id: c}, {id: d}]
    target: {command: "echo x >> calls; echo $case_id", shell: true}
    graders: [{python: {function: "own:grade"}}]
    limits: {parallel: 1}
    """
    write("own.py", "def grade(output, case):\n    return True\n")
    write("suite.yaml", suite)
    assert paraval("run", "suite.yaml").returncode == 0
    slow = "import time\ndef grade(output, case):\n    open('graded', 'a').write('x')\n"
    write("own.py", f"{slow}    time.sleep(0.3)\n    return case.id < 'd'\n")
    engine = subprocess.Popen(
        [sys.executable, "-m", "paraval", "regrade"], cwd=folder, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 30
    while not (folder / "graded").exists() or len((folder / "graded").read_text()) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    engine.kill()
    engine.wait()
    source, regrade = runs_of(folder)
    ended = paraval("runs", "remove", source)
    assert ended.returncode == 2
    assert f"run {regrade}, which regrades it, is not finished" in ended.stderr
    hidden = shutil.move(folder / ".paraval/runs" / source, folder / "hidden")
    ended = paraval("resume", "last")
    assert ended.returncode == 2
    assert f"run {regrade} grades the answers of run {source}: no run" in ended.stderr
    shutil.move(hidden, folder / ".paraval/runs" / source)
    ended = paraval("resume", "last", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert list(outcomes(folder).values()) == ["passed", "passed", "passed", "failed"]
    assert report_of(folder)["run"]["regraded_from"] == runs_of(folder)[0]
    # What was being graded, and what had just been graded and was not on disk yet.
    assert 4 <= len((folder / "graded").read_text()) <= 6, "no more than two are graded again"
    assert calls(folder) == 4
    assert paraval("runs", "remove", source).returncode == 0
    ended = paraval("resume", "last", "-o", "again.json")
    assert ended.returncode == 0, ended.stderr
    assert report_of(folder, "again.json") == report_of(folder)


# ---- graders that need files

FIX = """
    cases: [{id: fixed}, {id: idle}]
    workspace: {WORKSPACE}
    target: {command: [sh, "{suite}/fix.sh", "{case.id}"]}
    graders: [{diff: {max_files: 9}}]
"""
TESTED = FIX.replace("graders: [", 'graders: [{command: [sh, "{suite}/test.sh"]}, ')
FIX_SH = r"""
[ "$1" = fixed ] || exit 0
echo 'return 2' > code.py
printf 'a\r\nc\r\n' > crlf.txt
tr '\000-\377' '\377\000-\376' < image.bin > new.bin && cat new.bin >> image.bin
mkdir sub && ln -s ../code.py sub/link
printf '#!/bin/sh\nexit 0\n' > sub/run && chmod +x sub/run
rm old.txt
"""
TEST_SH = r"""
[ ! -e old.txt ] && sub/run && [ "$(cat sub/link)" = 'return 2' ] &&
printf 'a\r\nc\r\n' | cmp - crlf.txt && [ $(wc -c < image.bin) = 512 ]
"""


@pytest.fixture
def project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "code.py").write_text("return 1\n")
    (project / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    (project / "image.bin").write_bytes(bytes(range(256)))
    (project / "old.txt").write_text("old\n")
    (folder / "fix.sh").write_text(FIX_SH)
    (folder / "test.sh").write_text(TEST_SH)
    return project


@pytest.mark.parametrize("kind", ["git", "folder"])
def test_a_grader_that_needs_files_gets_the_workspace_as_the_attempt_left_it(
    kind: str, project: Path, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    if kind == "git":
        make_repository(project)
    workspace = f"{kind}: project"
    write("suite.yaml", FIX.replace("WORKSPACE", workspace))
    assert paraval("run", "suite.yaml").returncode == 0
    patch = paraval("diff", "last", "--case", "fixed").stdout
    if kind == "git":
        (project / "code.py").write_text("something else\n")
        commit_all(project)
    (folder / "fix.sh").unlink()
    write("suite.yaml", TESTED.replace("WORKSPACE", workspace))
    for _ in range(2):
        ended = paraval("regrade", "last", "-o", "r.json")
        assert ended.returncode == 0, ended.stderr
        assert outcomes(folder) == {"fixed": "passed", "idle": "failed"}, ended.stdout
        assert report_of(folder)["trials"][0]["change"]["files_added"] == 3
        assert paraval("diff", "last", "--case", "fixed").stdout == patch


def test_a_regrade_says_that_ignored_files_are_not_in_patches(
    project: Path, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (project / ".gitignore").write_text("data/\n")
    make_repository(project)
    suite = """
    cases: [{id: a}]
    workspace: {git: project}
    target: {command: [sh, -c, "mkdir data && echo x > data/out.txt"]}
    graders: [{command: [test, -f, data/out.txt]}]
    """
    write("suite.yaml", suite)
    assert paraval("run", "suite.yaml").returncode == 0
    ended = paraval("regrade", "-o", "r.html")
    assert ended.returncode == 0
    for text in (ended.stderr, ended.stdout, (folder / "r.html").read_text()):
        assert "Files ignored by git are missing, so graders that need them fail." in " ".join(
            text.split()
        )
    write("suite.yaml", suite.replace("command: [test, -f, data/out.txt]", "diff: {max_files: 9}"))
    ended = paraval("regrade", "last~1")
    assert "ignores" not in ended.stderr, "no grader needs files"


def test_a_workspace_that_cannot_be_rebuilt_is_skipped_with_the_reason(
    project: Path, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    make_repository(project)
    write("suite.yaml", FIX.replace("WORKSPACE", "git: project"))
    write("fix.sh", "[ $1 = idle ] && echo $TOKEN > leak\necho 'return 2' > code.py")
    env = {"TOKEN": "sk-a-very-secret-token-0123456789"}
    secret = FIX.replace('"{case.id}"]', '"{case.id}"], pass_env: [TOKEN]')
    write("suite.yaml", secret.replace("WORKSPACE", "git: project"))
    assert paraval("run", "suite.yaml", env=env).returncode == 0
    (patch,) = [
        one
        for one in (folder / ".paraval").rglob("changes.patch")
        if "REDACTED" not in one.read_text()
    ]
    patch.write_text(patch.read_text().replace("-return 1", "-return 7"))
    write("suite.yaml", TESTED.replace("WORKSPACE", "git: project"))
    ended = paraval("regrade", "last", "-o", "r.json")
    assert ended.returncode == 3
    assert outcomes(folder) == {"fixed": "skipped", "idle": "skipped"}
    (fixed, idle) = (trial["error"]["message"] for trial in report_of(folder)["trials"])
    assert "its workspace cannot be rebuilt: its patch does not apply" in fixed
    assert "a key was removed from the patch" in idle


def test_a_lost_commit_or_a_changed_template_is_refused_before_anything_is_done(
    project: Path, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", FIX.replace("WORKSPACE", "folder: project"))
    assert paraval("run", "suite.yaml").returncode == 0
    (project / "code.py").write_text("something else\n")
    write("suite.yaml", TESTED.replace("WORKSPACE", "folder: project"))
    ended = paraval("regrade", "last")
    assert ended.returncode == 2
    assert f"the contents of the folder {project}, or its settings, have changed" in ended.stderr
    write("suite.yaml", FIX.replace("WORKSPACE", "folder: project"))
    assert paraval("regrade", "last").returncode == 0, "no grader needs files"
    commit = make_repository(project)
    write("suite.yaml", FIX.replace("WORKSPACE", "git: project"))
    assert paraval("run", "suite.yaml").returncode == 0
    run_git(project, "commit", "-q", "--amend", "--allow-empty", "-m", "another")
    run_git(project, "reflog", "expire", "--expire=now", "--all")
    run_git(project, "gc", "-q", "--prune=now")
    ended = paraval("regrade", "last")
    assert ended.returncode == 2
    assert f"commit {commit[:12]}, which the run started from, is no longer in" in ended.stderr
    assert len(runs_of(folder)) == 3


def test_graders_see_what_an_agent_did_though_it_is_no_longer_installed(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    inputs = {"fine": "say looking call mcp__search__find say done", "crashed": "silent exit 3"}
    with_server = {"mcp": {"search": {"command": ["sh"]}}, "timeout": 30}
    write("suite.json", suite_of(inputs, target=with_server))
    paraval("run", "suite.json", "-o", "first.json")
    used = "return [call.name for step in steps for call in step.tool_calls]"
    write("own.py", f"def used(output, case, *, steps):\n    {used} == ['search.find']\n")
    gone = {**with_server, "program": ["claude-that-is-gone"]}
    write("suite.json", suite_of(inputs, target=gone, graders=[{"python": "own:used"}]))
    ended = paraval("regrade", "-o", "r.json")
    assert outcomes(folder) == {"fine": "passed", "crashed": "crashed"}, ended.stderr
    old, new = (report_of(folder, name)["trials"][0] for name in ("first.json", "r.json"))
    assert new["activity"] == old["activity"]
    assert (new["target_s"], new["cached_s"]) == (0.0, old["target_s"])
    old_error, new_error = (
        report_of(folder, name)["trials"][1] for name in ("first.json", "r.json")
    )
    assert new_error["target_s"] == old_error["target_s"], "its limit or crash, not an answer"
    assert new["cost_usd"] == old["cost_usd"]
    assert "search.find" in paraval("show", "last", "--case", "fine").stdout


# ---- what cannot be regraded


def test_runs_without_graders_or_answers_are_refused(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    for mark, kind in (("pytest", "pytest session"), ("race", "race")):
        plan = replace(make_plan(1), selection={mark: {}})
        Store(folder / ".paraval").create_run(plan, seed=0).close(interrupted=True, held_back=False)
        ended = paraval("regrade")
        assert ended.returncode == 2
        assert f"is a {kind}, which has no graders" in ended.stderr
    write("suite.yaml", "cases: [{id: a}]\ntarget: {command: [sleep, '5']}\nlimits: {parallel: 1}")
    engine = subprocess.Popen(
        [sys.executable, "-m", "paraval", "run", "suite.yaml"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 30
    while len(runs_of(folder)) < 3:
        assert time.monotonic() < until
        time.sleep(0.05)
    ended = paraval("regrade")
    assert ended.returncode == 2
    assert "is still running" in ended.stderr
    engine.kill()
    engine.wait()
    ended = paraval("regrade")
    assert ended.returncode == 2
    assert "has no answers to grade" in ended.stderr
