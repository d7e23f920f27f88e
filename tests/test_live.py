"""A run seen and changed from outside while it lasts: its status, and commands to it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import RequestError
from paraval.runner.live import read_live, send_command
from tests.conftest import WriteSuite

SUITE = """
    name: slow
    cases: [{id: a}, {id: b}, {id: c}, {id: d}, {id: e}, {id: f}]
    target: {command: [sh, work.sh, "{case.id}"], grace: 1}
    limits: {parallel: 2}
"""
WORK = """
    echo $$ > pid.$1
    while [ ! -e go ] && [ ! -e go.$1 ]; do sleep 0.05; done
"""
"""A trial lasts until its file is there, or the one of all."""


class Engine:
    """A `paraval run` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "paraval", *options, "--progress", "lines"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def run(self) -> Path:
        (found,) = (self.folder / ".paraval" / "runs").iterdir()
        return found

    def live(self) -> dict[str, Any]:
        """The status now; empty if there is none."""
        runs = self.folder / ".paraval" / "runs"
        return (read_live(self.run) or {}) if runs.exists() and any(runs.iterdir()) else {}

    def until(self, condition: Callable[[dict[str, Any]], object], seconds: float = 30) -> Any:
        deadline = time.monotonic() + seconds
        while not condition(live := self.live()):
            assert time.monotonic() < deadline, live
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        return live

    def until_running(self, *cases: str) -> Any:
        return self.until(lambda live: running(live) == set(cases))

    def send(self, **command: Any) -> None:
        send_command(self.run, command)

    def go(self, name: str = "go") -> None:
        (self.folder / name).touch()

    def end(self) -> tuple[str, str]:
        return self.process.communicate(timeout=60)


def running(live: dict[str, Any]) -> set[str]:
    return {one["case"] for one in live.get("running", ())}


@pytest.fixture
def start(folder: Path, write: WriteSuite) -> Iterator[Callable[..., Engine]]:
    write("suite.yaml", SUITE)
    write("work.sh", WORK)
    started: list[Engine] = []

    def started_with(*options: str) -> Engine:
        started.append(Engine(folder, *(options or ("run", "suite.yaml"))))
        return started[-1]

    yield started_with
    for engine in started:
        engine.process.kill()
        engine.process.communicate()


# ---- the status


def test_a_running_run_shows_what_runs_and_what_the_others_wait_for(
    start: Callable[..., Engine], write: WriteSuite
) -> None:
    more = "    matrix: {mode: [quick, slow]}\n"
    limits = "limits: {parallel: 3, mode: {slow: 1}}"
    write("suite.yaml", SUITE.replace("limits: {parallel: 2}", limits) + more)
    engine = start()
    live = engine.until(lambda live: len(live.get("running", ())) == 3)
    assert live["pid"] == engine.process.pid
    assert (live["parallel"], live["allowed"], live["in_flight"]) == (3, 3, 3)
    assert (live["done"], live["total"]) == (0, 12)
    assert live["spent_usd"] == 0
    assert live["budget_usd"] is None
    first = live["running"][0]
    assert first["case"] == "a"
    assert first["variant"]["mode"] in ("quick", "slow")
    assert (first["attempt"], first["repeat"], first["node"]) == (1, 1, None)
    assert abs(first["started_at"] - time.time()) < 60
    (limit,) = live["limits"]
    assert (limit["name"], limit["in_flight"], limit["limit"]) == ("mode=slow", 1, 1)
    waiting = {one["for"]: one for one in live["waiting"]}
    assert sum(one["trials"] for one in live["waiting"]) == 9
    assert waiting["slot"]["why"] == "3 may run in parallel"
    engine.go("go.a")
    live = engine.until(lambda live: live.get("done") == 2)
    engine.go()
    engine.end()
    assert engine.process.returncode == 0
    assert read_live(engine.run) is None
    assert not (engine.run / "live.json").exists()


def test_a_status_that_a_killed_engine_left_is_not_believed_and_a_resume_replaces_it(
    start: Callable[..., Engine],
) -> None:
    engine = start()
    engine.until_running("a", "b")
    run = engine.run
    engine.send(do="stop")
    engine.process.send_signal(signal.SIGKILL)
    engine.process.wait()
    assert (run / "live.json").exists()
    assert read_live(run) is None
    with pytest.raises(RequestError, match="is not running"):
        engine.send(do="stop")
    again = start("resume", run.name)
    live = again.until(lambda live: len(running(live)) == 2)
    assert live["pid"] == again.process.pid
    again.go()
    again.end()
    # The stop was meant for the engine that was killed.
    assert again.process.returncode == 0
    assert not (run / "live.json").exists()
    assert not (run / "commands").exists()


def test_a_damaged_status_is_none(start: Callable[..., Engine]) -> None:
    engine = start()
    engine.until_running("a", "b")
    for text in ("", "{", "[]", '{"pid": 1}', "[" * 100_000, "\0" * 5_000_000):
        (engine.run / "live.json").write_text(text)
        assert read_live(engine.run) is None


def test_a_run_whose_status_cannot_be_written_goes_on(start: Callable[..., Engine]) -> None:
    engine = start()
    engine.until_running("a", "b")
    (engine.run / "live.json").unlink()
    (engine.run / "live.json" / "in-its-place").mkdir(parents=True)
    engine.go()
    engine.end()
    assert engine.process.returncode == 0


def test_an_account_that_limits_a_run_is_shown_with_its_rate(
    start: Callable[..., Engine], write: WriteSuite
) -> None:
    write("scenario.yaml", "answers: [{text: hello}]\n")
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: hi}, {id: b, input: ho}, {id: c, input: hu}]
        models:
          m:
            provider: loopback
            model: m
            scenario: scenario.yaml
            account: team
            limits: {requests_per_minute: 20}
        target: {chat: {model: m, prompt: "{input}"}}
        """,
    )
    engine = start()
    live = engine.until(lambda live: live.get("waiting"))
    (limit,) = live["limits"]
    assert limit["name"] == "account:team"
    assert limit["rate_per_minute"] == pytest.approx(20)
    (waiting,) = live["waiting"]
    assert waiting["for"] == "account:team"
    assert waiting["why"] == "limited to 20 requests per minute"
