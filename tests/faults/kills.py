"""Random kill -9 of a real `paraval run`, and resumes, until enough kills have been survived."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from paraval.store.store import Store

TRIALS = 40
PARALLEL = 4

SUITE = """
name: killed
cases: {python: "made:cases"}
target:
  command: [sh, -c, 'echo "{case.id} $$" >> calls; sleep 0.1{input}; echo "$$"']
  timeout: 30
"""
CASES = f"""
def cases():
    return [dict(id="c%d" % i, input=str(i % 9)) for i in range({TRIALS})]
"""


@dataclass(slots=True)
class Tally:
    """What a campaign has seen."""

    kills: int = 0
    campaigns: int = 0
    again: int = 0
    problems: list[str] = field(default_factory=list)


def campaign(folder: Path, tally: Tally, draw: random.Random, most_kills: int) -> None:
    """One suite, killed and resumed until it is through."""
    folder.mkdir()
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "made.py").write_text(CASES)
    (folder / "calls").touch()
    acknowledged: dict[str, str] = {}
    kills = 0
    arguments = ["run", "suite.yaml"]
    while True:
        # The first quarter of a second is Python starting up: kills there teach little.
        patience = draw.uniform(0.2, 1.6) if kills < most_kills else 100.0
        killed = _engine(folder, arguments, patience, acknowledged, tally)
        _check_survivors(folder, tally)
        stored = _check_store(folder, acknowledged, tally)
        if not killed:
            break
        kills += 1
        # One that was killed while it wrote its plan has run nothing: there is nothing to resume.
        if Store(folder / ".paraval").runs():
            arguments = ["resume", "last"]
    again = len((folder / "calls").read_text().splitlines()) - TRIALS
    # Of what had started, but whose end was not on disk: twice as many as run in parallel.
    if again > 2 * PARALLEL * kills:
        tally.problems.append(f"{folder.name}: {again} run again after {kills} kills")
    if stored != TRIALS:
        tally.problems.append(f"{folder.name}: {stored} of {TRIALS} have a result")
    tally.kills += kills
    tally.again += again
    tally.campaigns += 1


def _engine(
    folder: Path, arguments: list[str], patience: float, acknowledged: dict[str, str], tally: Tally
) -> bool:
    """Whether it had to be killed; what it acknowledged before is taken down."""
    command = [sys.executable, "-m", "paraval", *arguments, "-j", str(PARALLEL)]
    with (folder / "events").open("w") as events:
        process = subprocess.Popen(
            [*command, "--progress", "json"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=events,
            env={**os.environ, "PARAVAL_STORE": ""},
        )
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            code = process.wait()
    _take_down(folder / "events", acknowledged, tally)
    if code not in (0, -signal.SIGKILL):
        tally.problems.append(f"exit code {code}: {(folder / 'events').read_text()[-2000:]}")
        return False
    return code != 0


def _take_down(events: Path, acknowledged: dict[str, str], tally: Tally) -> None:
    for line in events.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "trial_ended":
            case = event["case"]
            if case in acknowledged:
                tally.problems.append(f"{case} was acknowledged twice")
            acknowledged[case] = event["outcome"]


def _check_survivors(folder: Path, tally: Tally) -> None:
    """Nothing that a dead engine started may live on: each command runs in its suite's folder."""
    deadline = time.monotonic() + 10
    while survivors := _processes_in(folder):
        if time.monotonic() > deadline:
            tally.problems.append(f"survivors: {survivors}")
            return
        time.sleep(0.02)


def _processes_in(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.cwd() == str(folder):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def _check_store(folder: Path, acknowledged: dict[str, str], tally: Tally) -> int:
    """Holds the store against what was acknowledged; gives how many results there are.

    There may be more: a result may be on disk, and its engine killed before it could say so.
    """
    found = 0
    for database in folder.glob(".paraval/runs/*/run.db"):
        connection = sqlite3.connect(database)
        try:
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                tally.problems.append(f"{database} is damaged")
        finally:
            connection.close()
    store = Store(folder / ".paraval")
    runs = store.runs()
    if acknowledged and not runs:
        tally.problems.append("a run with results is not listed")
    for info in runs:
        with store.reader(info) as reader:
            results = [result for result in reader.results() if result.outcome != "skipped"]
        found += len(results)
        stored = {result.case_id: result.outcome.value for result in results}
        if len(stored) != len(results):
            tally.problems.append("a trial has two results")
        lost = {case for case, outcome in acknowledged.items() if stored.get(case) != outcome}
        if lost:
            tally.problems.append(f"acknowledged results lost: {lost}")
    return found


def survive(base: Path, kills: int, seed: int) -> Tally:
    """Campaigns until there were this many kills."""
    tally = Tally()
    draw = random.Random(seed)
    while tally.kills < kills and not tally.problems:
        name = f"campaign-{tally.campaigns}"
        campaign(base / name, tally, draw, most_kills=min(10, kills - tally.kills))
    return tally
