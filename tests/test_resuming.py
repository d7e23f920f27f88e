"""Going on with a run: the right one, all of it, and nothing that was paid for is dropped."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import paraval as library
from paraval.errors import RequestError
from paraval.plan.build import build_plan
from paraval.records import RunInfo
from paraval.runner.resume import how_to_resume, resumed_plan
from paraval.settings import Selection
from tests.conftest import Paraval, WriteSuite
from tests.repositories import commit_all, make_repository

SUITE = """
    name: resumable
    cases: [{id: a}, {id: b}, {id: c}]
    target: {command: "echo $case_id >> calls; [ $case_id != b ] || [ -e mended ]", shell: true}
"""


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split()


def test_a_resume_runs_only_what_has_no_result(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    assert paraval("run", "suite.yaml", "--fail-under", "1").returncode == 3
    assert paraval("resume").returncode == 3
    assert sorted(calls(folder)) == ["a", "b", "c"]
    (folder / "mended").touch()
    ended = paraval("resume", "--errors", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert sorted(calls(folder)) == ["a", "b", "b", "c"]
    report = json.loads((folder / "r.json").read_text())
    assert report["run"]["resumed"]
    assert report["trials"][1]["attempts"] == 2


def test_a_changed_suite_is_resumed_for_what_is_the_same_and_says_so(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    (folder / "mended").touch()
    paraval("run", "suite.yaml")
    write("suite.yaml", SUITE.replace("{id: c}", "{id: c, input: new}"))
    ended = paraval("resume")
    assert ended.returncode == 0, ended.stderr
    assert "1 trial" in ended.stderr
    assert sorted(calls(folder)) == ["a", "b", "c", "c"]


def summary_of(paraval: Paraval, run: str = "last") -> dict[str, Any]:
    report: dict[str, Any] = json.loads(paraval("report", run, "--json").stdout)
    summary: dict[str, Any] = report["summary"]
    return summary


def test_a_run_of_another_suite_is_never_taken_over(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (folder / "mended").touch()
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    (mine,) = [run["id"] for run in json.loads(paraval("runs", "--json").stdout)]
    other = write("other.yaml", "name: other\ncases: [{id: z}]\ntarget: {command: [echo]}\n")
    for name in ("", "last", mine):
        with pytest.raises(RequestError, match=r"has no|belongs to suite 'resumable'"):
            library.run(other, options=library.Options(resume=name))
    paraval("run", "other.yaml")
    ended = paraval("resume", mine)
    assert f"Nothing to run in {mine}: 3 of 3 trials done." in ended.stderr


def test_filters_on_a_resume_narrow_what_runs_now_and_not_the_run(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    (folder / "mended").touch()
    ended = paraval("resume", "--errors", "--case", "a")
    assert "Nothing to run" in ended.stderr
    ended = paraval("resume", "--errors", "--case", "b")
    assert ended.returncode == 0, ended.stderr
    assert sorted(calls(folder)) == ["a", "b", "b", "c"]
    assert summary_of(paraval)["passed"] == 3
    assert paraval("resume").returncode == 0
    assert summary_of(paraval)["trials"] == 3


def test_a_result_that_is_no_longer_in_the_suite_is_not_dropped_in_silence(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    write("suite.yaml", SUITE.replace("{id: b}, ", ""))
    ended = paraval("resume")
    assert "1 result left out of the report: no longer in the suite" in ended.stderr


FAILING = """
    name: failing
    cases: [{id: good, expect: x}, {id: bad, expect: y}, {id: crash, expect: x}]
    matrix: {mode: [plain, loud]}
    repeats: 2
    target:
      command: 'echo $case_id >> calls; [ $case_id != crash -o -e mended ] || exit 3; cat said'
      shell: true
    graders: [contains]
"""


def test_what_failed_runs_again_and_takes_its_place_in_the_report(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", FAILING)
    (folder / "said").write_text("x")
    paraval("run", "suite.yaml", "-j", "1")
    (folder / "said").write_text("y")
    (folder / "calls").unlink()
    ended = paraval("resume", "--failed", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert "4 of 12 trials done, 8 to run now" in ended.stderr
    assert sorted(calls(folder)) == ["bad"] * 4 + ["crash"] * 4
    trials = json.loads((folder / "r.json").read_text())["trials"]
    assert [one["outcome"] for one in trials] == ["passed"] * 8 + ["crashed"] * 4
    told = "4 failed attempts were run again by choice: second tries raise the rate"
    assert told in ended.stdout
    (folder / "mended").touch()
    (folder / "calls").unlink()
    again = paraval("resume", "--errors", "--case", "crash", "--variant", "mode=loud")
    assert calls(folder) == ["crash"] * 2
    assert told in again.stdout
    assert len(json.loads(paraval("runs", "--json").stdout)) == 1


def test_a_failed_answer_from_the_cache_is_told_to_be_no_new_try(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "suite.yaml",
        """
        models: {m: {provider: loopback}}
        cases: [{id: good, input: yes, expect: yes}, {id: bad, input: yes, expect: no}]
        target: {chat: {model: m, prompt: "{input}"}}
        graders: [contains]
        """,
    )
    assert "--cache" not in paraval("run", "suite.yaml").stderr
    hint = "Every answer came from the cache; --cache refresh asks the models again"
    assert hint in paraval("resume", "--failed").stderr
    assert hint not in paraval("resume", "--failed", "--cache", "refresh").stderr


def test_repeats_may_be_added_but_not_taken_away(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    (folder / "mended").touch()
    paraval("run", "suite.yaml", "--repeats", "2")
    assert paraval("resume", "--repeats", "1").returncode == 2
    assert paraval("resume", "--repeats", "3").returncode == 0
    assert len(calls(folder)) == 9
    assert summary_of(paraval)["trials"] == 9


def test_a_copied_run_is_not_resumed_where_it_lies(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    (run,) = (folder / ".paraval" / "runs").iterdir()
    shutil.copytree(run, folder / "copied")
    ended = paraval("resume", str(folder / "copied"))
    assert ended.returncode == 2
    assert "is not in the store" in ended.stderr


def test_the_way_to_go_on_names_the_store_unless_it_is_the_usual_one(
    write: WriteSuite, folder: Path
) -> None:
    suite = write("suite.yaml", SUITE)
    usual = library.run(suite).run
    apart = library.run(suite, options=library.Options(store=folder / "my store")).run
    assert how_to_resume(usual) == f"paraval resume {usual.id}"
    assert how_to_resume(apart) == f"paraval resume {apart.id} --store '{folder}/my store'"


# ---- in a repository


IN_A_REPOSITORY = """
    name: worktrees
    cases: [{id: a}, {id: b}]
    target: {command: "echo $case_id >> $suite/calls; cat version", shell: true}
    workspace: {git: repo}
    graders: [{equals: one}]
"""


def repository(folder: Path) -> Path:
    repo = folder / "repo"
    repo.mkdir()
    (repo / "version").write_text("one\n")
    make_repository(repo)
    return repo


def test_a_run_goes_on_from_the_commit_that_it_began_with(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    repo = repository(folder)
    write("suite.yaml", IN_A_REPOSITORY)
    assert paraval("run", "suite.yaml", "--case", "a").returncode == 0
    paraval("run", "suite.yaml")
    (repo / "version").write_text("two\n")
    commit_all(repo)
    finished = paraval("resume", "last")
    assert finished.returncode == 0, finished.stderr
    assert "Nothing to run" in finished.stderr
    assert calls(folder).count("a") == 2
    more = paraval("resume", "last", "--repeats", "2")
    assert more.returncode == 0, more.stderr
    assert summary_of(paraval)["passed"] == 4
    # A new run begins with what there is now.
    assert paraval("run", "suite.yaml").returncode == 0


def test_a_commit_that_is_gone_is_told(write: WriteSuite, paraval: Paraval, folder: Path) -> None:
    repo = repository(folder)
    write("suite.yaml", IN_A_REPOSITORY)
    paraval("run", "suite.yaml")
    shutil.rmtree(repo / ".git")
    (repo / "version").write_text("other\n")
    make_repository(repo)
    refused = paraval("resume", "last")
    assert refused.returncode == 2
    assert "which the run started from, is no longer in" in refused.stderr
    assert "start a new run" in refused.stderr


def test_another_ref_in_the_suite_is_another_start(folder: Path) -> None:
    repo = repository(folder)
    words: dict[str, Any] = {"cases": [{"id": "a"}], "target": {"command": ["true"]}}
    suite = library.Suite(**words, workspace={"git": "repo"})
    began = Selection.from_mapping(build_plan(suite, Selection()).selection)
    first = began.commit
    (repo / "version").write_text("two\n")
    second = commit_all(repo)
    assert resumed_plan(suite, Selection(), began).workspace.commit == first
    other = library.Suite(**words, workspace={"git": "repo", "ref": "main"})
    assert resumed_plan(other, Selection(), began).workspace.commit == second


def test_a_working_tree_that_has_changed_since_is_not_run_anew_in_silence(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    repo = repository(folder)
    (repo / "new").write_text("before\n")
    write("suite.yaml", IN_A_REPOSITORY.replace("git: repo", "git: repo, uncommitted: true"))
    paraval("run", "suite.yaml")
    assert paraval("resume", "last").returncode == 0
    (repo / "version").write_text("two\n")
    refused = paraval("resume", "last")
    assert refused.returncode == 2
    assert "has changed since" in refused.stderr
    assert "version" in refused.stderr
    assert "restore the tree, or start a new run" in refused.stderr
    assert sorted(calls(folder)) == ["a", "b"]
    (repo / "version").write_text("one\n")
    assert paraval("resume", "last").returncode == 0


def test_what_changed_since_a_run_began_is_named(folder: Path) -> None:
    repo = repository(folder)
    suite = library.Suite(
        cases=[{"id": "a"}],
        target={"command": ["true"]},
        workspace={"git": "repo", "uncommitted": True},
    )
    (repo / "old").write_text("x")
    os.utime(repo / "old", (1000, 1000))
    began = Selection.from_mapping(build_plan(suite, Selection()).selection)
    for name in ("n1", "n2", "n3", "n4"):
        (repo / name).write_text("x")
    with pytest.raises(RequestError) as refused:
        resumed_plan(suite, Selection(), began, run_of(done=3, started_at=2000.0))
    assert refused.value.message == (
        f"the working tree of {os.path.realpath(repo)} has changed since run r1 began"
        " (n1, n2, n3 and 1 more); its 3 results were from the old tree"
    )


def run_of(**fields: Any) -> RunInfo:
    whole: dict[str, Any] = {
        "id": "r1",
        "suite": "s",
        "source": None,
        "folder": "/store/runs/r1",
        "trials": 4,
        "parallel": 1,
        "seed": 0,
        "ended_at": None,
        "wall_s": 1.0,
        "resumed": 0,
        "interrupted": True,
        "fail_under": None,
    }
    return RunInfo(**{**whole, **fields})
