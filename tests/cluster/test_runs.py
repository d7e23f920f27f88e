"""Whole runs on three nodes, by the command: 1,000 trials each, whatever is lost on the way."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from tests.cluster.world import BIN, World

pytestmark = pytest.mark.cluster

TRIALS = 1000
LIMIT = 20
LEASE_S = 90.0
"""A host ends by itself if its engine is silent for a minute; mostly, Ray ends it sooner."""
SECRET = "sk-that-must-stay-in-memory"
PARAVAL = str(BIN / "paraval")

FUNCTION = """
import asyncio, os, time

async def answer(case, variant):
    began = time.monotonic()
    await asyncio.sleep(0.4 if variant["provider"] == "limited" else 0.05)
    with open(os.path.join({log!r}, f"{{os.uname().nodename}}-{{os.getpid()}}"), "a") as log:
        log.write(f"{{variant['provider']}} {{began}} {{time.monotonic()}}\\n")
    return "hello" if int(case.id) % 10 else "goodbye"
"""
FUNCTIONS = """
name: functions
cases: cases.jsonl
matrix: {provider: [limited, local]}
target: {python: app:answer}
graders: [{contains: hello}]
limits: {parallel: 40, provider: {limited: 20}}
fail_under: 0
"""
COMMANDS = """
name: commands
cases: cases.jsonl
target: {command: [sh, -c, "sleep 0.7; echo hello {case.id}"]}
graders: [{contains: hello}]
limits: {parallel: 15}
"""


def functions(folder: Path) -> Path:
    """A suite of 1,000 trials; half of them share a limit over the whole cluster."""
    log = folder / "log"
    log.mkdir()
    (folder / "app.py").write_text(FUNCTION.format(log=str(log)))
    return _suite(folder, FUNCTIONS, cases=TRIALS // 2)


def commands(folder: Path) -> Path:
    """A suite of 1,000 trials, each a process for 0.7 s."""
    return _suite(folder, COMMANDS, cases=TRIALS)


def _suite(folder: Path, text: str, *, cases: int) -> Path:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"id": str(at), "input": "x"}) for at in range(cases))
    (folder / "cases.jsonl").write_text("\n".join(lines))
    (folder / "suite.yaml").write_text(text)
    return folder


def run(world: World, folder: Path, *more: str) -> dict[str, Any]:
    """A run to its end, and its report."""
    done = world.run(PARAVAL, "run", "suite.yaml", *more, "-o", "report.json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return report(folder)


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def told(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a report says of each trial, apart from times and places."""
    return sorted(
        (one["case"], json.dumps(one["variant"]), one["repeat"], one["outcome"], one["score"])
        for one in found["trials"]
    )


def test_a_report_is_the_same_as_of_one_machine_and_a_limit_holds_for_all_nodes(
    world: World, tmp_path: Path
) -> None:
    folder = functions(tmp_path)

    there = run(world, folder, "--cluster", world.client)
    logs = [*(folder / "log").iterdir()]
    here = run(world, folder)

    assert told(there) == told(here)
    assert len(told(there)) == TRIALS
    assert {log.name[0] for log in logs} == set("abc")
    assert 15 <= most_at_once(logs) <= LIMIT


def test_a_killed_host_costs_no_trial(world: World, tmp_path: Path) -> None:
    with Running(world, commands(tmp_path)) as running:
        running.wait_for("b")
        world.kill_host("b")
        found, said = running.end()

    assert_complete(found)
    assert "Node b was lost" in said
    assert_nothing_left(world)


def test_a_killed_raylet_costs_no_trial(world: World, tmp_path: Path) -> None:
    world.add("raylet-lost")
    with Running(world, commands(tmp_path)) as running:
        running.wait_for("raylet-lost")
        world.kill_raylet("raylet-lost")
        found, said = running.end()
    left = world.processes("raylet-lost")
    world.remove("raylet-lost")

    assert_complete(found)
    assert "Node raylet-lost was lost" in said
    assert "(raylet)" not in said
    assert left == []
    assert_nothing_left(world)


def test_a_link_that_is_cut_and_heals_costs_no_trial(world: World, tmp_path: Path) -> None:
    """It is cut for so long that the node is given up."""
    world.add("cut-off")
    with Running(world, commands(tmp_path)) as running:
        running.wait_for("cut-off")
        world.cut("cut-off")
        time.sleep(40)
        world.heal("cut-off")
        found, said = running.end()
    assert_nothing_left(world)
    world.remove("cut-off")

    assert_complete(found)
    assert "Node cut-off was lost: no sign of life" in said


def test_a_link_that_is_cut_for_a_moment_costs_nothing(world: World, tmp_path: Path) -> None:
    with Running(world, commands(tmp_path)) as running:
        running.wait_for("c")
        world.cut("c")
        time.sleep(5)
        world.heal("c")
        found, said = running.end()

    assert_complete(found)
    assert "lost" not in said
    assert_nothing_left(world)


def test_a_killed_driver_leaves_nothing_running_and_its_run_is_resumed(
    world: World, tmp_path: Path
) -> None:
    folder = commands(tmp_path)
    with Running(world, folder) as running:
        running.wait_for("b")
        running.kill()
    assert_nothing_left(world, within_s=LEASE_S)
    done = world.run(
        *(PARAVAL, "resume", "last", "--cluster", world.native, "-o", "report.json"), cwd=folder
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert_complete(report(folder))
    assert_nothing_left(world)


def test_a_node_whose_disk_is_full_is_left_out_and_named(world: World, tmp_path: Path) -> None:
    node = world.add("full-up", scratch_mb=40)
    with Running(world, commands(tmp_path)) as running:
        running.wait_for("full-up")
        subprocess.run(
            ["nsenter", "-t", str(node.pid()), "-m", "sh", "-c", f"yes > {node.scratch}/full"],
            check=False,
            capture_output=True,
        )
        found, said = running.end()
    left = world.processes("full-up")
    world.remove("full-up")

    assert_complete(found)
    assert "Node full-up is left out" in said
    assert "disk of node full-up is full" in said
    assert left == []


def test_a_node_that_joins_in_mid_run_takes_work(world: World, tmp_path: Path) -> None:
    folder = commands(tmp_path)
    suite = folder / "suite.yaml"
    suite.write_text(suite.read_text().replace("sleep 0.7", "sleep 1.5"))

    with Running(world, folder) as running:
        running.wait_for("b")
        world.add("new")
        running.wait_for("new")
        found, said = running.end()
    world.remove("new")

    assert_complete(found)
    assert "Joined: node new" in said
    assert Counter(one["node"] for one in found["trials"])["new"] > 10


def test_secrets_are_in_no_file_and_no_command_line_of_any_node(
    world: World, tmp_path: Path
) -> None:
    folder = commands(tmp_path)
    suite = folder / "suite.yaml"
    text = suite.read_text().replace("sleep 0.7; echo", "sleep 0.7; test -n $KEY; echo")
    suite.write_text(text.replace("target: {", "target: {pass_env: [KEY], "))

    with Running(world, folder, env={"KEY": SECRET}) as running:
        running.wait_for("b")
        files = world.files_with(SECRET)
        lines = [line for name in world.nodes for line in world.processes(name) if SECRET in line]
        found, _ = running.end()

    assert_complete(found)
    assert (files, lines) == ([], [])
    assert world.files_with(SECRET) == []


def test_plan_and_doctor_show_the_nodes(world: World, tmp_path: Path) -> None:
    folder = commands(tmp_path)

    plan = world.run(PARAVAL, "plan", "suite.yaml", "--cluster", world.client, cwd=folder)
    doctor = world.run(PARAVAL, "doctor", "--cluster", world.client, cwd=folder)

    rows = [line.split()[0] for line in plan.stdout.splitlines() if line.strip()]
    assert {"a", "b", "c"} <= set(rows), plan.stdout
    assert f"the cluster {world.client}: " in doctor.stdout
    assert "token authentication is on" in doctor.stdout
    assert plan.returncode == 0, plan.stderr


def test_a_lost_head_ends_the_run_with_the_command_that_resumes_it(
    other_world: World, tmp_path: Path
) -> None:
    folder = commands(tmp_path / "suite")
    other_world.add("a")
    other_world.add("b")
    with Running(other_world, folder, node="b") as running:
        running.wait_for("b")
        other_world.kill_head()
        said = running.said_at_the_end(code=3)

    assert "the head of the Ray cluster does not answer any more" in said
    assert "paraval resume" in said
    here = other_world.run(PARAVAL, "resume", "last", "-o", "report.json", node="b", cwd=folder)
    assert here.returncode == 0, here.stdout + here.stderr
    assert_complete(report(folder))


class Running:
    """A run by the command on a node, which is killed at the end of the block if need be."""

    def __init__(
        self, world: World, folder: Path, *, node: str = "a", env: Mapping[str, str] | None = None
    ) -> None:
        self._world = world
        self._folder = folder
        command = f"{PARAVAL} run suite.yaml --cluster {world.native} -o report.json"
        self._started = world.start("sh", "-c", f"exec {command} > out 2>&1", node=node, cwd=folder)

    def __enter__(self) -> Self:
        self._process = self._started.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._started.__exit__(*raised)

    def wait_for(self, node: str) -> None:
        """Until attempts run on the node, for a moment."""
        ends = time.monotonic() + 60
        while not any("sleep" in line for line in self._world.processes(node)):
            assert time.monotonic() < ends, self._said()[-2000:]
            assert self._process.poll() is None, self._said()[-2000:]
            time.sleep(0.1)
        time.sleep(1)

    def kill(self) -> None:
        for child in psutil.Process(self._process.pid).children():
            child.kill()

    def end(self) -> tuple[dict[str, Any], str]:
        said = self.said_at_the_end(code=0)
        return report(self._folder), said

    def said_at_the_end(self, *, code: int) -> str:
        try:
            self._process.wait(timeout=200)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._said()[-2000:]) from None
        assert self._process.returncode == code, self._said()[-2000:]
        return " ".join(self._said().split())

    def _said(self) -> str:
        return (self._folder / "out").read_text()


def assert_complete(found: dict[str, Any]) -> None:
    cases = Counter(one["case"] for one in found["trials"])
    assert cases == Counter(str(at) for at in range(TRIALS))
    assert {one["outcome"] for one in found["trials"]} == {"passed"}


def assert_nothing_left(world: World, *, within_s: float = 15.0) -> None:
    ends = time.monotonic() + within_s
    while left := [f"{name}: {line}" for name in world.nodes for line in world.processes(name)]:
        assert time.monotonic() < ends, left
        time.sleep(0.5)


def most_at_once(logs: list[Path]) -> int:
    """Of the trials that share the limit; the nodes of the world have one clock."""
    changes: list[tuple[float, int]] = []
    for line in (line for log in logs for line in log.read_text().splitlines()):
        provider, began, ended = line.split()
        if provider == "limited":
            changes += [(float(began), 1), (float(ended), -1)]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most
