"""`paraval simulate`: what a very large run would take, from the scheduler alone."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paraval.schedule.simulation import SimulatedLoad, simulate_load
from tests.conftest import Paraval


def test_it_shows_makespan_lower_bound_utilization_and_the_schedulers_cpu(paraval: Paraval) -> None:
    found = paraval(
        "simulate", "--trials", "4,000", "--slots", "100", "--failures", "2%", "--stragglers", "1%"
    )
    assert found.returncode == 0, found.stderr
    names = [line.split("  ")[0] for line in found.stdout.splitlines()]
    assert names == [*("makespan", "lower bound", "utilization", "attempts", "trials", "scheduler")]
    assert "by 100 slots" in found.stdout
    assert "4,000: 4,000 with a result, 0 without" in found.stdout
    assert "µs per trial" in found.stdout
    assert found.stderr == ""


def test_as_json_it_names_what_sets_the_lower_bound(paraval: Paraval) -> None:
    found = paraval(
        *("simulate", "--trials", "3000", "--slots", "300", "--nodes", "30", "--accounts", "3"),
        *("--requests-per-minute", "300", "--json"),
    )
    figures = json.loads(found.stdout)
    assert figures["lower_bound"]["text"] == "300 requests per minute"
    # 3,000 requests; a few attempts come after the last could start.
    assert 590 < figures["lower_bound"]["seconds"] < figures["makespan_s"] < 700
    assert (figures["passed"], figures["refusals"]) == (3000, 0)


def test_a_limit_that_the_scheduler_has_to_find_costs_refusals(paraval: Paraval) -> None:
    found = paraval(
        *("simulate", "--trials", "2000", "--slots", "200", "--seconds", "5"),
        *("--requests-per-minute", "300", "--unknown-limit", "--json"),
    )
    figures = json.loads(found.stdout)
    assert figures["passed"] == 2000
    assert 0 < figures["refusals"] < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "200"], "200 nodes cannot share 100 slots"),
        (["--unknown-limit"], "--unknown-limit needs a limit"),
        (["--failures", "120%"], "'120%' is not a share"),
        (["--trials", "0"], "'0' is not a whole number from 1"),
        (["--trials", "99999999999"], "from 1 to 10,000,000"),
        (["--seconds", "inf"], "not in the range"),
        (["--seconds", "nan"], "'nan' is not a duration"),
    ],
)
def test_a_mistake_is_an_error_that_names_it(
    paraval: Paraval, arguments: list[str], message: str
) -> None:
    found = paraval("simulate", *arguments)
    assert found.returncode == 2
    assert message in found.stderr


@pytest.mark.parametrize(("accounts", "per_minute"), [(1, 5), (8, 5), (8, 60), (3, 300)])
def test_no_run_ends_before_its_lower_bound(accounts: int, per_minute: int) -> None:
    load = SimulatedLoad(
        trials=100, slots=100, accounts=accounts, requests_per_minute=per_minute, seed=1
    )
    figures = simulate_load(load, time.thread_time)
    assert figures.bound.seconds <= figures.makespan_s


def test_the_same_seed_gives_the_same_figures() -> None:
    load = SimulatedLoad(trials=500, slots=20, failures=0.1, stragglers=0.1, seed=3)
    one, other = (simulate_load(load, time.thread_time) for _ in range(2))
    one.cpu_s = other.cpu_s = 0.0
    assert one == other
    assert one.retries > 0
    assert one.passed + one.failed == 500


def test_on_a_terminal_it_shows_progress_and_ctrl_c_ends_it_at_once(folder: Path) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "paraval", "simulate", "--trials", "3000000"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while b"Simulating" not in shown:
        shown += os.read(ours, 1000)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    os.close(ours)
    assert child.returncode == 130
    assert out == b""
