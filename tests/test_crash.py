"""kill -9 at any instant, then a resume: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Paraval, WriteSuite
from tests.faults import every_statement
from tests.faults.kills import survive


@pytest.mark.timeout(300)
def test_a_kill_at_every_sql_statement_of_a_run_and_in_its_recovery(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, every_statement.__file__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["points"] >= 20


@pytest.mark.timeout(300)
def test_ten_random_kills_lose_and_double_nothing_and_leave_no_process(tmp_path: Path) -> None:
    tally = survive(tmp_path, kills=10, seed=1)
    assert tally.problems == []
    assert tally.kills == 10


SUITE = """
    name: resumable
    cases: [{id: a}, {id: b}, {id: c}]
    target: {command: "echo {case.id} >> calls; [ {case.id} != b ] || [ -e mended ]", shell: true}
"""


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split()


def test_a_resume_runs_only_what_has_no_result(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = write("suite.yaml", SUITE)
    assert paraval("run", "suite.yaml").returncode == 3
    assert paraval("resume").returncode == 3
    assert sorted(calls(folder)) == ["a", "b", "c"]
    (folder / "mended").touch()
    ended = paraval("run", str(suite), "--resume", "last", "--retry-errors", "-o", "r.json")
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
    ended = paraval("run", "suite.yaml", "--resume", "last")
    assert ended.returncode == 0, ended.stderr
    assert "1 trial" in ended.stderr
    assert sorted(calls(folder)) == ["a", "b", "c", "c"]


def test_without_an_unfinished_run_there_is_nothing_to_resume(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    (folder / "mended").touch()
    paraval("run", "suite.yaml")
    ended = paraval("run", "suite.yaml", "--resume")
    assert ended.returncode == 2
    assert "no unfinished run" in ended.stderr


def test_a_runs_folder_copied_elsewhere_reports_there(
    write: WriteSuite, paraval: Paraval, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write("suite.yaml", SUITE)
    (folder / "mended").touch()
    paraval("run", "suite.yaml")
    (run,) = (folder / ".paraval" / "runs").iterdir()
    copy = tmp_path_factory.mktemp("elsewhere") / "copied-run"
    shutil.copytree(run, copy)
    shutil.rmtree(folder / ".paraval")
    ended = paraval("report", str(copy), "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert "3 trials" in ended.stdout
