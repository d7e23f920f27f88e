"""Workspaces in suites: what they stand for when a plan is made, and what runs in them."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import CommandTarget, Home, Plan, TargetLimits, Workspace, WorkspaceKind
from paraval.settings import Selection
from tests.conftest import WriteSuite
from tests.repositories import commit_all, make_repository, put_on_path, run_git

pytestmark = pytest.mark.usefixtures("folder", "programs")

CASES = [{"id": "a", "input": "x"}]
COMMAND = {"command": ["sh", "run.sh", "{workspace}"]}


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path_factory.mktemp("bin"), monkeypatch)


def plan_of(**words: Any) -> Plan:
    return build_plan(Suite(**{"cases": CASES, "target": COMMAND, **words}), Selection())


def problems_of(**words: Any) -> list[str]:
    with pytest.raises(SuiteError) as refused:
        plan_of(**words)
    return [str(problem) for problem in refused.value.problems]


def key_of(workspace: Any, **words: Any) -> str:
    [trial] = plan_of(workspace=workspace, **words).trials
    return trial.key


# ---- git


def test_a_repository_stands_for_a_commit_and_its_tree(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    commit = make_repository(folder)
    plan = plan_of(workspace={"git": "."})
    assert plan.workspace == Workspace(
        kind=WorkspaceKind.GIT,
        source=os.path.realpath(folder),
        commit=commit,
        tree=run_git(folder, "rev-parse", "HEAD^{tree}"),
    )
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_ref_names_another_commit(folder: Path) -> None:
    first = make_repository(folder)
    run_git(folder, "tag", "v1")
    (folder / "a.txt").write_text("a")
    commit_all(folder)
    workspace = plan_of(workspace={"git": ".", "ref": "v1"}).workspace
    assert (workspace.ref, workspace.commit) == ("v1", first)


def test_a_folder_in_a_repository_is_where_attempts_begin(folder: Path) -> None:
    (folder / "evals").mkdir()
    (folder / "evals" / "x").write_text("x")
    make_repository(folder)
    workspace = plan_of(workspace={"git": "evals"}).workspace
    assert (workspace.source, workspace.start) == (os.path.realpath(folder), "evals")


def test_the_working_tree_as_it_is_has_a_tree_of_its_own(folder: Path) -> None:
    (folder / ".gitignore").write_text("ignored\n")
    make_repository(folder)
    clean = key_of({"git": ".", "uncommitted": True})
    assert clean == key_of({"git": "."})
    (folder / "ignored").write_text("x")
    assert key_of({"git": ".", "uncommitted": True}) == clean
    (folder / "new").write_text("x")
    assert key_of({"git": ".", "uncommitted": True}) != clean
    assert key_of({"git": "."}) == clean


def test_a_key_holds_the_tree_and_not_how_it_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "a.txt").write_text("a")
    make_repository(folder)
    run_git(folder, "tag", "v1")
    here = key_of({"git": "."})
    assert key_of({"git": ".", "ref": "v1"}) == here
    assert key_of({"git": ".", "setup_timeout": 5}) == here
    assert key_of({"git": ".", "setup": ["make"]}) != here
    run_git(folder, "clone", "-q", ".", "copy")
    assert key_of({"git": "copy"}) == here
    assert key_of({"folder": True}) != here


def test_a_suite_is_resolved_anew_for_every_plan(folder: Path) -> None:
    make_repository(folder)
    suite = Suite(cases=CASES, target=COMMAND, workspace={"git": "."})
    before = build_plan(suite, Selection())
    (folder / "new").write_text("x")
    assert build_plan(suite, Selection()) == before
    commit = commit_all(folder)
    after = build_plan(suite, Selection())
    assert after.workspace.commit == commit
    assert after.trials[0].key != before.trials[0].key


def test_what_is_wrong_with_a_repository_is_told_with_its_line(
    write: WriteSuite, folder: Path
) -> None:
    text = "cases: [{}]\ntarget: {command: ['true']}\nworkspace:\n  git: .\n  ref: gone\n"
    suite = Suite.load(write("suite.yaml", text))
    with pytest.raises(SuiteError) as refused:
        build_plan(suite, Selection())
    where = f"suite.yaml:4: workspace.git: {os.path.realpath(folder)} is not in a git repository"
    assert where in str(refused.value)
    make_repository(folder)
    with pytest.raises(SuiteError) as refused:
        build_plan(suite, Selection())
    top = os.path.realpath(folder)
    where = f"suite.yaml:5: workspace.ref: 'gone' is not a branch, tag or commit of {top}; `git -C"
    assert str(refused.value).startswith(str(folder / where))


def test_a_repository_is_told_of_together_with_all_else_that_is_wrong(folder: Path) -> None:
    told = problems_of(workspace={"git": "."}, retry={"atempts": 2})
    assert [each.partition(":")[0] for each in told] == ["retry.atempts", "workspace.git"]


def test_a_folder_that_is_not_in_the_tree_is_told_with_its_key(folder: Path) -> None:
    (folder / ".gitignore").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build" / "x").write_text("x")
    commit = make_repository(folder)
    top = os.path.realpath(folder)
    [told] = problems_of(workspace={"git": "build"})
    where = f"commit {commit[:12]} of {top}"
    assert told.startswith(f"workspace.git: the folder 'build' is not in {where}, so no")
    [told] = problems_of(workspace={"git": "build", "uncommitted": True})
    assert f"is not in the working tree of {top}, as git sees it" in told


# ---- programs that are looked for in the workspace


def program(*words: str, **others: Any) -> dict[str, Any]:
    return {"target": {"agent": "custom", "command": [*words, "{prompt}"]}, **others}


@pytest.mark.parametrize("written", ["./agent.sh", "../agent.sh", "sub/agent.sh"])
@pytest.mark.parametrize(
    "workspace",
    [{"folder": True}, {"folder": "."}, {"git": "."}, {"git": ".", "uncommitted": True}],
)
def test_a_program_that_no_workspace_has_is_told_with_the_way_to_name_one_beside_the_suite(
    folder: Path, workspace: dict[str, Any], written: str
) -> None:
    make_repository(folder)
    # For a command as for an agent of one's own.
    for words in (program(written), {"target": {"command": [written]}}):
        [told] = problems_of(workspace=workspace, **words)
        assert told.startswith(f"target.command: '{written}' is not in ")
        assert "relative programs are looked up in the workspace" in told
        assert f"write {{suite}}/{written.removeprefix('./')} for one beside the suite" in told


def test_a_program_that_the_tree_has_or_a_setup_may_make_is_fine(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "agent.sh").write_text("x")
    make_repository(folder)
    for workspace in ({"git": "."}, {"git": ".", "uncommitted": True}, {"folder": "."}):
        assert plan_of(workspace=workspace, **program("sub/agent.sh")).trials
    assert plan_of(workspace={"git": "sub"}, **program("./agent.sh")).trials
    in_folder = {"command": ["./agent.sh"], "cwd": "sub"}
    assert plan_of(workspace={"git": "."}, target=in_folder).trials
    assert plan_of(workspace={"git": ".", "setup": ["make"]}, **program("./made.sh")).trials
    [told] = problems_of(workspace={"git": ".", "setup": ["./gone.sh"]}, **program("./made.sh"))
    assert told.startswith("workspace.setup: './gone.sh' is not in commit")


def test_the_users_repository_is_not_touched_by_a_plan(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    make_repository(folder)
    (folder / "a.txt").write_text("changed")
    (folder / "new").write_text("x")

    def state() -> dict[str, tuple[int, bytes]]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    plan_of(workspace={"git": ".", "uncommitted": True})
    assert state() == before


# ---- folders


@pytest.mark.parametrize("empty", [None, True])
def test_a_folder_without_a_template_is_empty(empty: Any) -> None:
    workspace = plan_of(workspace={"folder": empty, "sandbox": True}).workspace
    assert workspace == Workspace(kind=WorkspaceKind.FOLDER, sandbox=True)


def test_what_a_sandbox_lets_be_read_is_found_from_the_suites_folder_or_ones_home(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "data").mkdir()
    (folder / "home" / ".cargo").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder / "home"))
    written = {"folder": True, "sandbox": True, "readable": ["data", "~/.cargo"]}
    paths = (str(folder / "data"), str(folder / "home" / ".cargo"))
    assert plan_of(workspace=written).workspace.readable == paths


def test_a_template_is_known_by_its_contents(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name / "sub").mkdir(parents=True)
        (folder / name / "sub" / "a.txt").write_text("a")
    workspace = plan_of(workspace={"folder": "one"}).workspace
    assert workspace.source == str(folder / "one")
    assert workspace.tree
    assert key_of({"folder": "one"}) == key_of({"folder": "two"})
    (folder / "two" / "sub" / "a.txt").write_text("b")
    assert key_of({"folder": "one"}) != key_of({"folder": "two"})


def test_a_template_that_cannot_be_copied_is_told(folder: Path) -> None:
    (folder / "template").mkdir()
    os.mkfifo(folder / "template" / "pipe")
    [told] = problems_of(workspace={"folder": "template"})
    assert told.startswith("workspace.folder: ")
    assert "pipe" in told


def test_without_a_workspace_nothing_changes() -> None:
    command = {"command": ["true"]}
    assert key_of("none", target=command) == key_of(None, target=command)
    assert plan_of(workspace="none", target=command).workspace == Workspace()


# ---- what runs there


def test_a_command_runs_relative_to_where_attempts_begin() -> None:
    limits = {"memory": "500MB", "cpu": 0.5}
    target = {**COMMAND, "cwd": "sub/../pkg", "home": "mine", "limits": limits}
    [trial] = plan_of(target=target, workspace={"folder": True}).trials
    assert trial.target == CommandTarget(
        command=("sh", "run.sh", "{workspace}"),
        cwd="pkg",
        home=Home.MINE,
        limits=TargetLimits(cpu=0.5, memory_bytes=500_000_000),
    )


def test_a_commands_key_does_not_hold_what_it_may_take() -> None:
    target = {**COMMAND, "home": "mine", "limits": {"cpu": 1}}
    assert key_of({"folder": True}, target=target) == key_of({"folder": True})


def test_the_suites_folder_is_a_value_and_no_text_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    target = {"command": '$suite/run.sh "$input"', "shell": True}
    [trial] = plan_of(target=target, workspace={"folder": True}).trials
    assert isinstance(trial.target, CommandTarget)
    assert trial.target.command == ('$suite/run.sh "$input"',)
    assert trial.target.folder == f"{tmp_path}/a b"


def test_each_attempt_may_write_the_same_file_of_its_own_workspace() -> None:
    target = {**COMMAND, "output": "answer.txt"}
    assert len(plan_of(target=target, workspace={"folder": True}, repeats=3).trials) == 3
    [told] = problems_of(
        target={**COMMAND, "output": "{suite}/answer.txt"}, workspace={"folder": True}, repeats=3
    )
    assert "3 trials would write the same file" in told


def test_programs_of_graders_and_setups_may_be_in_the_workspace(folder: Path) -> None:
    (folder / "template").mkdir()
    (folder / "template" / "setup.sh").write_text("x")
    plan = plan_of(
        workspace={"folder": "template", "setup": ["./setup.sh"]},
        graders=[{"command": {"command": ["./test.sh"], "failing": "any"}}, {"command": ["make"]}],
    )
    assert plan.grading.graders[0].options["failing"] == "any"
    assert plan.workspace.setup == ("./setup.sh",)


FOLDER = {"folder": True}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            {"workspace": "git"},
            "workspace: must be 'none', or a mapping with folder, git or container",
        ),
        (
            {"workspace": 5},
            "workspace: must be 'none', or a mapping with folder, git or container, not 5",
        ),
        ({"workspace": {}}, "workspace: has none of folder, git and container"),
        ({"workspace": {"git": ".", "folder": "."}}, "workspace: has both folder and git"),
        ({"workspace": {"git": "gone"}}, "workspace.git: no such folder"),
        ({"workspace": {"gti": "."}}, "workspace.gti: unknown key 'gti', did you mean 'git'?"),
        (
            {"workspace": {"git": "https://example.com/a.git"}},
            "workspace.git: 'https://example.com/a.git' is a URL; clone it first and give the",
        ),
        ({"workspace": {"git": "git@example.com:a/b"}}, "is a URL; clone it first"),
        ({"workspace": {"folder": "gone"}}, "workspace.folder: no such folder"),
        ({"workspace": {"folder": "\0"}}, "workspace.folder: no such folder"),
        ({"workspace": {"folder": 5}}, "workspace.folder: must be the path of a folder, or true"),
        ({"workspace": {"git": ".", "rev": "x"}}, "unknown key 'rev', did you mean 'ref'?"),
        (
            {"workspace": {"git": ".", "ref": "x", "uncommitted": True}},
            "workspace.ref: cannot be combined with uncommitted: true",
        ),
        ({"workspace": {**FOLDER, "ref": "x"}}, "unknown key 'ref'"),
        ({"workspace": {**FOLDER, "setup": "make deps"}}, "workspace.setup: must be a list"),
        ({"workspace": {**FOLDER, "setup": ["gone"]}}, "program 'gone' not found on PATH"),
        ({"workspace": {**FOLDER, "setup_timeout": 0}}, "setup_timeout: must be a number of"),
        ({"workspace": {**FOLDER, "sandbox": "yes"}}, "sandbox: must be true or false"),
        (
            {"workspace": {**FOLDER, "readable": ["."]}},
            "workspace.readable: needs sandbox: true",
        ),
        (
            {"workspace": {**FOLDER, "sandbox": True, "readable": ["gone", "\0"]}},
            "workspace.readable: no such file or folder",
        ),
        (
            {"workspace": {**FOLDER, "sandbox": True, "readable": [".."]}},
            "contains the suite's whole folder, which is hidden from attempts",
        ),
        ({"workspace": {**FOLDER, "sandbox": True, "readable": "x"}}, "must be a list of paths"),
        ({"workspace": FOLDER, "target": lambda case: ""}, "a Python function does not run"),
        (
            {
                "workspace": FOLDER,
                "models": {"m": {"provider": "loopback"}},
                "target": {"chat": {"model": "m"}},
            },
            "workspace: applies only to commands and agents; a chat model does not run",
        ),
        ({"workspace": FOLDER, "target": {**COMMAND, "cwd": "../x"}}, "target.cwd: must be a"),
        ({"workspace": FOLDER, "target": {**COMMAND, "cwd": "/tmp"}}, "target.cwd: must be a"),
        ({"workspace": FOLDER, "target": {"command": ["gone"]}}, "program 'gone' not found"),
        ({"target": {"command": ["true", "{workspace}"]}}, "it needs workspace: in the suite"),
        ({"target": {"command": ["{suite}/gone"]}}, "gone' not found"),
        ({"matrix": {"workspace": [1]}, "target": {"command": ["true"]}}, "is reserved"),
        (
            {"target": {"command": ["true"]}, "graders": [{"diff": {"max_files": 1}}]},
            "graders[0].diff: needs a workspace",
        ),
        ({"workspace": FOLDER, "graders": [{"diff": {}}]}, "checks nothing"),
        ({"workspace": FOLDER, "graders": ["diff"]}, "checks nothing"),
        (
            {"workspace": FOLDER, "graders": [{"diff": {"empty": True, "max_files": 1}}]},
            "graders[0].diff.empty: already allows no changes",
        ),
        (
            {"workspace": FOLDER, "graders": [{"diff": {"only": []}}]},
            "graders[0].diff.only: must be a list of globs",
        ),
        (
            {"workspace": FOLDER, "graders": [{"command": {"command": ["make"], "failing": [0]}}]},
            "failing: must be 'any', or a list of exit codes from 1 to 255",
        ),
    ],
)
def test_what_is_wrong_with_a_workspace_is_told_with_its_key(
    words: dict[str, Any], problem: str
) -> None:
    told = problems_of(**words)
    assert any(problem in each for each in told), told
    assert len(told) == 1, told


ODD = st.recursive(
    st.sampled_from(["none", ".", "gone", "\0", "", "HEAD", "make"])
    | st.none()
    | st.booleans()
    | st.integers(-1, 9),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
KEYS = st.sampled_from(
    ["folder", "git", "ref", "uncommitted", "setup", "setup_timeout", "sandbox", "readable"]
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ODD | st.dictionaries(KEYS, ODD, max_size=4))
def test_no_words_of_a_workspace_make_anything_but_a_plan_or_an_error_of_the_suite(
    workspace: Any,
) -> None:
    with suppress(SuiteError):
        assert plan_of(workspace=workspace, target={"command": ["true"]}).trials
