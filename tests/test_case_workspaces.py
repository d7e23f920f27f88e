"""A workspace of its own for each case or variant: repository, commit, setup and time limit."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.processes.children import Warden
from paraval.records import Case, CommandTarget, Trial, Workspace, WorkspaceKind
from paraval.settings import Selection
from paraval.workspaces.opening import open_workspaces_by_case
from paraval.workspaces.workspace import Lease, WorkspaceError
from tests.conftest import Paraval, WriteSuite
from tests.repositories import commit_all, make_repository, run_git
from tests.test_isolation import needs_sandbox

CASES = """
    cases:
      - {id: old, input: {repo: repos/first, base: HEAD~1}, expect: first 1}
      - {id: new, input: {repo: repos/first, base: main}, expect: first 2}
      - {id: other, input: {repo: repos/second, base: main}, expect: second 2}
"""
SUITE = f"""{CASES}
    workspace: {{git: "{{input.repo}}", ref: "{{input.base}}"}}
    target: {{command: [cat, file.txt]}}
    graders: [equals]
"""


@pytest.fixture
def repos(folder: Path) -> Path:
    for name in ("first", "second"):
        repo = folder / "repos" / name
        repo.mkdir(parents=True)
        (repo / ".gitignore").write_text("made\n")
        (repo / "file.txt").write_text(f"{name} 1\n")
        make_repository(repo)
        (repo / "file.txt").write_text(f"{name} 2\n")
        commit_all(repo)
    return folder / "repos"


def outcomes(folder: Path, name: str = "r.json") -> dict[str, str]:
    report = json.loads((folder / name).read_text())
    return {trial["case"]: trial["outcome"] for trial in report["trials"]}


@pytest.mark.usefixtures("repos")
def test_each_case_starts_from_its_own_repository_and_commit(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    planned = paraval("plan", "suite.yaml").stdout
    assert "each in a workspace of its own case or variant: 3 of 2 sources" in planned
    ended = paraval("run", "suite.yaml", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert set(outcomes(folder).values()) == {"passed"}


@pytest.mark.usefixtures("repos")
def test_keys_of_a_case_and_of_an_axis_value_win_over_the_suites(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (folder / "template").mkdir()
    (folder / "template" / "file.txt").write_text("template\n")
    (folder / "template" / ".gitignore").write_text("made\n")
    write(
        "suite.yaml",
        """
        cases:
          - {id: ref, expect: first 1, workspace: {ref: HEAD~1}}
          - {id: folder, expect: template, workspace: {folder: template, ref: null}}
        matrix:
          start:
            plain:
            prepared: {workspace: {setup: [sh, -c, "echo {case.id} > made"]}}
        workspace: {git: repos/first}
        target: {command: [sh, -c, "cat file.txt; cat made 2>/dev/null; true"]}
        graders:
          - contains
          - python: "check:made"
        """,
    )
    write(
        "check.py",
        """
        def made(output, case, variant):
            return (case.id in output.text) == (variant["start"] == "prepared")
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "r.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.usefixtures("repos")
def test_problems_name_the_case_and_stop_before_anything_runs(
    write: WriteSuite, paraval: Paraval
) -> None:
    cases = "\n".join(f'{{"id": "c{n}", "input": {{"repo": "gone"}}}}' for n in range(20))
    write("cases.jsonl", cases)
    write(
        "suite.yaml",
        """
        cases: cases.jsonl
        workspace: {git: "{input.repo}", ref: "{input.base}"}
        target: {command: ["true"]}
        """,
    )
    said = paraval("plan", "suite.yaml").stderr
    assert "case 'c0': unknown field {input.base}" in said
    assert "15 more problems of this kind" in said
    write("suite.yaml", SUITE.replace('ref: "{input.base}"', "ref: gone"))
    said = paraval("plan", "suite.yaml").stderr
    assert "'gone' is not a branch, tag or commit of" in said
    assert all(f"case '{case}'" in said for case in ("old", "new", "other"))
    write("suite.yaml", SUITE.replace("base: main}, expect: first", "base: {}}, expect: first"))
    assert paraval("plan", "suite.yaml").returncode == 2


@pytest.mark.usefixtures("repos")
@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("{sandbox: true}", "must be the same for all trials"),
        ("{gitt: x}", "unknown key 'gitt'"),
        ("{git: repos/gone}", "no such folder"),
    ],
)
def test_a_wrong_key_of_a_case_is_told_where_the_case_is(
    folder: Path, keys: str, problem: str
) -> None:
    file = folder / "suite.yaml"
    file.write_text(
        f"cases:\n  - {{id: a, input: x}}\n  - {{id: b, input: x, workspace: {keys}}}\n"
        "workspace: {git: repos/first}\ntarget: {command: ['true']}\n"
    )
    with pytest.raises(SuiteError, match=problem) as raised:
        Suite.load(file)
    assert {found.line for found in raised.value.problems} == {3}


@pytest.mark.usefixtures("repos")
def test_cases_from_files_need_a_workspace_in_the_suite_which_may_be_empty(folder: Path) -> None:
    case = {"id": "a", "input": "x", "workspace": {"git": "repos/first"}}
    (folder / "cases.jsonl").write_text(json.dumps(case))
    file = folder / "suite.yaml"
    text = "cases: cases.jsonl\ntarget: {command: ['true']}\n"
    file.write_text(text)
    with pytest.raises(SuiteError, match=r"write workspace: \{\}"):
        Suite.load(file)
    file.write_text(f"{text}workspace: {{}}\n")
    (trial,) = build_plan(Suite.load(file), Selection()).trials
    assert trial.workspace is not None
    assert trial.workspace.source == str(folder / "repos" / "first")


def test_a_field_called_workspace_that_is_no_mapping_is_metadata(folder: Path) -> None:
    (folder / "cases.csv").write_text("input,workspace,timeout\nhello,team-a,90\nbye,team-b,\n")
    suite = Suite(cases="cases.csv", target={"command": ["true"], "timeout": 5})
    assert [case.metadata for case in suite.cases] == [
        {"workspace": "team-a"},
        {"workspace": "team-b"},
    ]
    assert [case.timeout for case in suite.cases] == [90.0, None]


@pytest.mark.parametrize("written", ["0", "soon", "-1", "[1]"])
def test_a_time_limit_that_is_none_is_told(folder: Path, written: str) -> None:
    file = folder / "suite.yaml"
    file.write_text(
        f"cases: [{{id: a, input: x, timeout: {written}}}]\ntarget: {{command: ['true']}}\n"
    )
    with pytest.raises(SuiteError, match="timeout: must be a duration"):
        Suite.load(file)


def test_a_case_has_its_own_time_limit(write: WriteSuite, paraval: Paraval, folder: Path) -> None:
    write(
        "suite.yaml",
        """
        cases:
          - {id: short, input: x, timeout: 300ms}
          - {id: usual, input: x}
        target: {command: [sh, -c, "sleep 1; echo x"], timeout: 30}
        """,
    )
    paraval("run", "suite.yaml", "-o", "r.json")
    assert outcomes(folder) == {"short": "timeout", "usual": "passed"}
    paraval("run", "suite.yaml", "--timeout", "20", "-o", "r.json")
    assert outcomes(folder) == {"short": "passed", "usual": "passed"}


def test_a_time_limit_does_not_change_a_trials_key() -> None:
    def key(timeout: float | None) -> str:
        suite = Suite(
            cases=[Case(id="a", input="x", timeout=timeout)], target={"command": ["true"]}
        )
        return build_plan(suite, Selection()).trials[0].key

    assert key(None) == key(7.0)


def test_a_workspace_that_a_template_names_has_the_key_of_one_that_is_written_out(
    repos: Path,
) -> None:
    def key(**keys: Any) -> str:
        suite = Suite(
            cases=[{"id": "a", "input": {"repo": str(repos / "first")}}],
            target={"command": ["cat", "file.txt"]},
            **keys,
        )
        return build_plan(suite, Selection()).trials[0].key

    written_out = key(workspace={"git": str(repos / "first")})
    assert key(workspace={"git": "{input.repo}"}) == written_out
    assert key(workspace={"git": str(repos / "second")}) != written_out


def test_a_resume_starts_from_the_commits_of_the_run(
    repos: Path, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (repos / "second" / "file.txt").write_text("moved\n")
    commit_all(repos / "second")
    write(
        "suite.yaml",
        SUITE.replace("[cat, file.txt]", '[sh, -c, "[ -e {suite}/go ] && cat file.txt"]'),
    )
    assert paraval("run", "suite.yaml", "-o", "r.json").returncode != 0
    assert set(outcomes(folder).values()) == {"crashed"}
    (repos / "second" / "file.txt").write_text("moved again\n")
    commit_all(repos / "second")
    (folder / "go").touch()
    ended = paraval("resume", "--errors", "-o", "r.json")
    report = json.loads((folder / "r.json").read_text())
    texts = {trial["case"]: trial["output"] for trial in report["trials"]}
    assert texts["other"].strip() == "moved", ended.stderr


@pytest.mark.usefixtures("repos")
def test_stored_answers_are_graded_again_in_the_workspace_of_each_case(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = SUITE.replace("[cat, file.txt]", '[sh, -c, "echo {case.id} > answer; cat file.txt"]')
    write("suite.yaml", suite)
    assert paraval("run", "suite.yaml").returncode == 0
    grader = '- command: [sh, -c, "grep -qx {case.id} answer && test -e file.txt"]'
    write("suite.yaml", suite.replace("[equals]", f"\n      {grader}"))
    ended = paraval("regrade", "last", "-o", "r.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert set(outcomes(folder).values()) == {"passed"}


@needs_sandbox
def test_in_a_sandbox_attempts_and_graders_have_their_own_repository(
    repos: Path, write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "work.sh",
        f"""
        cat {repos}/*/file.txt
        touch {repos}/first/x {repos}/second/x
        git log --oneline > /dev/null && cat file.txt
        """,
    )
    workspace = 'workspace: {git: "{input.repo}", ref: "{input.base}", sandbox: true}'
    grader = '- command: [sh, -c, "git log --oneline > /dev/null && test -e file.txt"]'
    write(
        "suite.yaml",
        f"""{CASES}
    {workspace}
    target: {{command: [sh, "{{suite}}/work.sh"]}}
    graders:
      - equals
      {grader}
        """,
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not list(repos.glob("*/x"))


def test_a_plan_of_many_commits_asks_git_about_all_of_them_at_once(
    repos: Path, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    repo = repos / "first"
    for number in range(30):
        run_git(repo, "commit", "-q", "--allow-empty", "-m", str(number))
    commits = run_git(repo, "rev-list", "HEAD").split()
    cases = [{"id": str(n), "input": {"base": one}} for n, one in enumerate(commits)]
    (folder / "cases.json").write_text(json.dumps(cases))
    write(
        "suite.yaml",
        """
        cases: cases.json
        workspace: {git: repos/first, ref: "{input.base}"}
        target: {command: ["true"]}
        """,
    )
    (folder / "bin").mkdir()
    counting = write("bin/git", f'#!/bin/sh\necho >> {folder}/calls\nexec {which("git")} "$@"\n')
    counting.chmod(0o755)
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    planned = paraval("plan", "suite.yaml", "--json", env=env)
    order = json.loads(planned.stdout)["order"]
    assert [trial["workspace"]["commit"] for trial in order] == commits
    assert len((folder / "calls").read_text()) < len(commits)


def text_in(lease: Lease) -> str:
    return Path(lease.path, "file.txt").read_text()


def trial_at(repo: Path, index: int, ref: str = "HEAD") -> Trial:
    commit = run_git(repo, "rev-parse", ref)
    workspace = Workspace(kind=WorkspaceKind.GIT, source=str(repo), ref=ref, commit=commit)
    target = CommandTarget(command=("true",), cwd=".", folder="/")
    return Trial(
        index=index,
        key="",
        case=Case(id=str(index)),
        variant={},
        repeat=1,
        target=target,
        workspace=workspace,
    )


def test_all_pools_together_have_at_most_as_many_slots_as_leases(
    repos: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    trials = [
        trial_at(repos / name, index, ref)
        for index, (name, ref) in enumerate(
            (name, ref) for name in ("first", "second") for ref in ("HEAD", "HEAD~1")
        )
    ]

    def slots() -> int:
        return len([path for path in scratch.glob("case-*/workspaces/slots/*/*") if path.is_dir()])

    async def use() -> tuple[list[str], int]:
        seen, most = [], 0
        async with (
            Warden() as warden,
            open_workspaces_by_case(scratch=scratch, warden=warden, at_most=2) as pools,
        ):
            for _ in range(3):
                leases: list[Lease] = []
                for trial in trials:
                    if len(leases) == 2:
                        await leases.pop(0).release()
                    leases.append(await pools.lease_for(trial))
                    seen.append(text_in(leases[-1]))
                for lease in leases:
                    await lease.release()
                await asyncio.sleep(0.2)
                most = max(most, slots())
        return seen, most

    seen, most = asyncio.run(asyncio.wait_for(use(), 60))
    assert seen == ["first 2\n", "first 1\n", "second 2\n", "second 1\n"] * 3
    assert most <= 2
    assert not list(scratch.glob("case-*/*"))


def test_a_repository_that_is_gone_costs_only_its_own_trials(repos: Path, tmp_path: Path) -> None:
    good = trial_at(repos / "first", 0)
    assert good.workspace is not None
    bad = replace(good, workspace=replace(good.workspace, source=str(tmp_path / "gone")))

    async def use() -> str:
        async with (
            Warden() as warden,
            open_workspaces_by_case(
                scratch=tmp_path / "scratch", warden=warden, at_most=2
            ) as pools,
        ):
            for _ in range(2):
                with pytest.raises(WorkspaceError) as raised:
                    await pools.lease_for(bad)
                assert not raised.value.lasting
            lease = await pools.lease_for(good)
            text = text_in(lease)
            await lease.release()
            return text

    assert asyncio.run(asyncio.wait_for(use(), 60)) == "first 2\n"
