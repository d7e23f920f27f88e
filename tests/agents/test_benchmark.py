"""A small benchmark of real agents: three repositories, each case at its own commit, tests that no
agent can see, and an engine that is killed in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agents.conftest import Place, Report, content_of
from tests.repositories import commit_all, make_repository

pytestmark = pytest.mark.agents

BUGS = {
    "calc": ("calc.py", "def add(a, b):\n    return a - b\n", "a-b", "a+b"),
    "words": ("words.py", "def shout(text):\n    return text.lower()\n", "lower", "upper"),
    "dates": ("dates.py", "def days(weeks):\n    return weeks * 5\n", "5", "7"),
}
"""By repository: its file, what is in it, and what is wrong there and right."""
HIDDEN = {
    "calc": "from calc import add\nassert add(2, 3) == 5\n",
    "words": "from words import shout\nassert shout('a') == 'A'\n",
    "dates": "from dates import days\nassert days(2) == 14\n",
}
AGENT_WAITS_S = 60.0


@pytest.fixture
def benchmark(place: Place) -> Place:
    """Six trials, two at once. The repositories have moved on since the commits of their cases."""
    cases = []
    for name, (file, text, wrong, right) in BUGS.items():
        repository = place.folder / "repositories" / name
        repository.mkdir(parents=True)
        (repository / file).write_text(text.replace("a - b", "a-b"))
        base = make_repository(repository)
        (repository / file).write_text("# This file moved.\n")
        commit_all(repository)
        hidden = place.folder / "hidden" / name
        hidden.mkdir(parents=True)
        (hidden / "check.py").write_text(f"import sys\nsys.path.insert(0, '.')\n{HIDDEN[name]}")
        task = f"Fix {file}: replace {wrong} by {right}."
        cases.append({"id": name, "input": {"repo": str(repository), "base": base, "task": task}})
    place.write_suite(
        cases=cases,
        target={"agent": "{agent}", "prompt": "{input.task}", "timeout": 100},
        workspace={"git": "{input.repo}", "ref": "{input.base}"},
        hidden=[{"from": "hidden/{case}", "to": "tests"}],
        graders=[
            {"command": ["python3", "tests/check.py"]},
            # What the agent saw of the tests, after its edit.
            {"contains": "Nothing of tests."},
        ],
        limits={"parallel": 2},
    )
    return place


def test_an_interrupted_benchmark_is_resumed_to_its_end_and_nothing_is_left(
    benchmark: Place,
) -> None:
    before = content_of(benchmark.folder / "repositories")
    engine = benchmark.start("run", "suite.yaml")
    _wait_for(benchmark, engine, attempts=3)
    os.kill(engine.pid, signal.SIGKILL)
    engine.communicate()
    _wait_until_gone(benchmark)
    ended = benchmark.paraval("resume", "last", "-o", "report.json")
    data = json.loads((benchmark.folder / "report.json").read_text())
    report = Report(told=ended.stdout, notes=ended.stderr, data=data)
    assert re.search(r"[1-5] of 6 trials done, [1-5] to run", ended.stderr), ended.stderr
    assert report.all_ended("passed"), report.outcomes
    assert [_place_of(trial) for trial in report.trials] == [
        (name, agent) for name in BUGS for agent in ("claude-code", "codex")
    ]
    for trial in report.trials:
        assert [file["path"] for file in trial["change"]["files"]] == [BUGS[trial["case"]][0]]
    assert benchmark.leftovers() == []
    assert content_of(benchmark.folder / "repositories") == before


def _wait_for(place: Place, engine: subprocess.Popen[str], *, attempts: int) -> None:
    """Wait until so many attempts have begun: with two at once, one has ended."""
    until = time.monotonic() + AGENT_WAITS_S
    while len(_logs(place)) < attempts:
        assert engine.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < until, "no attempt begins"
        time.sleep(0.02)


def _logs(place: Place) -> list[Path]:
    return list((place.folder / ".paraval" / "runs").rglob("stdout.log"))


def _wait_until_gone(place: Place) -> None:
    """Wait for the processes to end; the next run removes the scratch folder."""
    until = time.monotonic() + 20
    while place.processes():
        assert time.monotonic() < until, place.processes()
        time.sleep(0.1)


def _place_of(trial: dict[str, Any]) -> tuple[str, str]:
    return trial["case"], trial["variant"]["agent"]
