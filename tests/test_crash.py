"""kill -9 at any instant, then a resume: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from itertools import accumulate
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
    target: {command: "echo $case_id >> calls; [ $case_id != b ] || [ -e mended ]", shell: true}
"""


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split()


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
    ended = paraval("report", str(copy), "--check", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    assert "3 trials" in ended.stdout


def test_attempts_whose_starts_are_recorded_ahead_are_stored_with_their_real_times(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    cases = ", ".join(f"{{id: c{number}}}" for number in range(40))
    write("suite.yaml", f"name: short\ncases: [{cases}]\ntarget: {{command: [sleep, '0.05']}}\n")
    paraval("run", "suite.yaml", "-j", "4")
    (database,) = (folder / ".paraval" / "runs").glob("*/run.db")
    connection = sqlite3.connect(database)
    times = connection.execute("SELECT started_at, ended_at FROM attempt").fetchall()
    connection.close()
    assert len(times) == 40
    steps = sorted([(ended, -1) for _, ended in times] + [(started, 1) for started, _ in times])
    running = list(accumulate(step for _, step in steps))
    assert max(running) <= 4
    assert running[-1] == 0
