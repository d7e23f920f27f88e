"""A small benchmark of real agents: three repositories, each case at its own commit, tests that no
agent can see, and an engine that is killed in the middle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agents.conftest import AGENTS, Place, Report, both, content_of, program
from tests.containers_kit import engine as container_engine, needs_containers, why_no_containers
from tests.repositories import commit_all, make_repository

pytestmark = pytest.mark.agents

BUGS = {
    "calc": ("calc.sh", "add() { echo $(($1-$2)); }", "-", "+", "add 2 3", "5"),
    "words": ("words.sh", "greet() { echo Bye, $1; }", "Bye", "Hello", "greet you", "Hello, you"),
    "dates": ("dates.sh", "days() { echo $(($1*5)); }", "5", "7", "days 2", "14"),
}
"""By repository: its file, what is in it, what is wrong there and right, and a test."""
AGENT_WAITS_S = 60.0


@pytest.fixture(
    params=["worktrees", pytest.param("containers", marks=needs_containers)],
)
def benchmark(request: pytest.FixtureRequest, place: Place) -> Place:
    """Six trials, two at once. The repositories have moved on since the commits of their cases."""
    cases = []
    for name, (file, text, wrong, right, call, result) in BUGS.items():
        repository = place.folder / "repositories" / name
        repository.mkdir(parents=True)
        (repository / file).write_text(f"{text}\n")
        base = make_repository(repository)
        (repository / file).write_text("# This file moved.\n")
        commit_all(repository)
        hidden = place.folder / "hidden" / name
        hidden.mkdir(parents=True)
        (hidden / "check.sh").write_text(f'. ./{file}\ntest "$({call})" = "{result}"\n')
        task = f"Fix {file}: replace {wrong} by {right}."
        cases.append({"id": name, "input": {"repo": str(repository), "base": base, "task": task}})
    workspace: dict[str, Any] = {"git": "{input.repo}", "ref": "{input.base}"}
    agents = both()
    if request.param == "containers":
        workspace["container"] = {"image": make_agents_image()}
        agents = {agent: {"model": f"{agent}-model"} for agent in AGENTS}
    place.write_suite(
        cases=cases,
        matrix={"agent": agents},
        target={"agent": "{agent}", "prompt": "{input.task}", "timeout": 100},
        workspace=workspace,
        hidden=[{"from": "hidden/{case}", "to": "tests"}],
        graders=[
            {"command": ["sh", "tests/check.sh"]},
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
    if not _containers(benchmark):
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
    assert _containers(benchmark) == []
    assert content_of(benchmark.folder / "repositories") == before


def make_agents_image() -> str:
    """An image with both agents, a shell and busybox, made unless it is here."""
    programs = {"/usr/bin/claude": program("claude-code"), "/usr/bin/codex": program("codex")}
    busybox = shutil.which("busybox")
    assert busybox is not None
    made_of = {**programs, "/bin/bash": "/bin/bash", "/bin/busybox": busybox}
    for path in (programs["/usr/bin/claude"], "/bin/bash"):
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        made_of |= {word: word for word in listed.split() if word.startswith("/")}
    versions = hashlib.sha256(repr(sorted(made_of.items())).encode()).hexdigest()[:12]
    image = f"localhost/paraval-test-agents:{versions}"
    if container_engine().call("image", "inspect", image).is_well:
        return image
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "image.tar")
        with tarfile.open(archive, "w", dereference=True) as packed:
            for place, path in made_of.items():
                packed.add(os.path.realpath(path), arcname=f".{place}")
            for name in ("sh", "sed", "cat", "sleep", "kill", "mkdir", "ls", "cp", "rm", "env"):
                link = tarfile.TarInfo(f"./bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                packed.addfile(link)
            temporary = tarfile.TarInfo("./tmp")
            temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
            packed.addfile(temporary)
        made = container_engine().call("import", str(archive), image, timeout=200)
        assert made.is_well, made.stderr
    return image


def _containers(place: Place) -> list[str]:
    """The containers of this place, by their labels. After a kill, the next run removes them."""
    if why_no_containers() is not None:
        return []
    listed = container_engine().call("ps", "-a", "--format", "{{.Names}} {{.Labels}}")
    return [line for line in listed.stdout.decode().splitlines() if str(place.folder) in line]


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
