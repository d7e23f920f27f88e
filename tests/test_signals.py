"""Ctrl-C once, twice, SIGTERM, SIGHUP: a clean stop, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import Paraval, WriteSuite

SUITE = """
    name: stoppable
    cases: {python: "made:cases"}
    target: {command: [sh, work.sh, "{input}"], grace: 1}
"""
CASES = """
    def cases():
        return [dict(id="c%d" % i, input="quick" if i < 2 else "slow") for i in range(20)]
"""
WORK = """
    echo $$ >> pids
    [ "$1" = quick ] && exit 0
    trap '' TERM
    echo "working on $PARAVAL_CASE"
    setsid sleep 300 &
    echo $! >> pids
    sleep 300
"""


def wait_until(condition: object, what: str, seconds: float = 30) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


@pytest.fixture
def engine(write: WriteSuite, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of which two trials are done and four hang, with daemons that ignore SIGTERM."""
    write("suite.yaml", SUITE)
    write("made.py", CASES)
    write("work.sh", WORK)
    process = subprocess.Popen(
        [sys.executable, "-m", "paraval", "run", "suite.yaml", "-j", "4", "--progress", "lines"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(pids(folder)) >= 10, "four trials hang")
    yield process
    process.kill()
    process.communicate()


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it may go between any two looks
        return False


def alive(folder: Path) -> list[int]:
    return [pid for pid in pids(folder) if _is_alive(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_once_stops_cleanly_reports_and_tells_how_to_go_on(
    engine: subprocess.Popen[str], folder: Path, number: signal.Signals
) -> None:
    began = time.monotonic()
    engine.send_signal(number)
    stdout, stderr = engine.communicate(timeout=40)
    assert engine.returncode == 130
    assert time.monotonic() - began < 30
    assert "no new trials start" in stderr
    (run,) = (folder / ".paraval" / "runs").iterdir()
    assert f"paraval resume {run.name}" in stdout
    assert "2 trials" in stdout
    assert alive(folder) == []
    assert len(pids(folder)) == 10


def test_twice_kills_at_once(engine: subprocess.Popen[str], folder: Path) -> None:
    assert engine.stderr is not None
    engine.send_signal(signal.SIGINT)
    for line in engine.stderr:
        if "no new trials start" in line:
            break
    began = time.monotonic()
    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=40)
    assert engine.returncode == 130
    assert time.monotonic() - began < 4
    assert alive(folder) == []


def test_an_interrupted_run_goes_on_with_the_rest(
    engine: subprocess.Popen[str], folder: Path, paraval: Paraval
) -> None:
    engine.send_signal(signal.SIGINT)
    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=40)
    (folder / "work.sh").write_text("exit 0\n")
    ended = paraval("resume", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    report = json.loads((folder / "report.json").read_text())
    assert report["summary"]["passed"] == 20
    assert report["run"]["interrupted"] is False


def test_a_run_that_is_worked_on_is_refused_and_the_pid_is_named(
    engine: subprocess.Popen[str], folder: Path, paraval: Paraval
) -> None:
    began = time.monotonic()
    ended = paraval("resume", "last")
    assert ended.returncode == 75, ended.stderr
    assert str(engine.pid) in ended.stderr
    assert time.monotonic() - began < 5
    ended = paraval("resume")
    assert ended.returncode == 75, ended.stderr
    (listed,) = json.loads(paraval("runs", "--json").stdout)
    assert listed["state"] == "running"
    shown = paraval("report")
    assert "The run is still going, 2 of 20 trials ended" in shown.stdout
    assert "skipped" not in shown.stdout
    assert " pending " in shown.stdout.splitlines()[0]
    cleaned = paraval("clean", "--older-than", "0h", "--yes")
    assert "Nothing to remove: 1 run in" in cleaned.stderr


def test_kill_9_of_the_engine_leaves_no_process_and_its_lock_is_taken_over(
    engine: subprocess.Popen[str], folder: Path, paraval: Paraval
) -> None:
    engine.send_signal(signal.SIGKILL)
    engine.communicate()
    wait_until(lambda: not alive(folder), "everything is gone")
    assert paraval("logs", "--case", "c2").stdout == "working on c2\n"
    (folder / "work.sh").write_text("exit 0\n")
    assert paraval("resume").returncode == 0


def test_ten_runs_at_once_in_one_store_do_not_disturb_one_another(
    write: WriteSuite, folder: Path, paraval: Paraval
) -> None:
    write("made.py", "def cases(): return [dict(id='c%d' % i) for i in range(20)]\n")
    for number in range(10):
        write(
            f"suite{number}.yaml",
            f'name: suite-{number}\ncases: {{python: "made:cases"}}\n'
            "target: {command: [echo, hi]}\n",
        )
    engines = [
        subprocess.Popen(
            [sys.executable, "-m", "paraval", "run", f"suite{number}.yaml", "--progress", "none"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PARAVAL_STORE": ""},
        )
        for number in range(10)
    ]
    assert [engine.wait(90) for engine in engines] == [0] * 10
    listed = json.loads(paraval("runs", "--json").stdout)
    assert sorted(run["suite"] for run in listed) == [f"suite-{number}" for number in range(10)]
    assert all(run["done"] == run["trials"] == 20 for run in listed)


def test_a_run_under_nohup_goes_on_after_a_hangup(write: WriteSuite, folder: Path) -> None:
    write(
        "suite.yaml",
        "cases: [{id: a}, {id: b}]\nlimits: {parallel: 1}\n"
        'target: {shell: true, command: "echo $$ >> pids; sleep 0.7"}\n',
    )
    engine = subprocess.Popen(
        ["nohup", sys.executable, "-m", "paraval", "run", "suite.yaml", "--progress", "none"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: pids(folder), "the first trial runs")
    engine.send_signal(signal.SIGHUP)
    assert engine.wait(60) == 0
