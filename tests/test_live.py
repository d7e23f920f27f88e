"""A run seen and changed from outside while it lasts: its status, and commands to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from paraval.errors import RequestError
from paraval.records import RunInfo
from paraval.runner.live import live_lines, read_live, send_command
from paraval.store.reader import RunReader
from tests.conftest import Paraval, WriteSuite
from tests.repositories import make_repository

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
    limit = next(one for one in live["limits"] if one["name"] == "account:team")
    assert limit["rate_per_minute"] == pytest.approx(20)
    (waiting,) = live["waiting"]
    assert waiting["for"] == "account team"
    assert waiting["why"] == "20 requests/min"


def test_an_account_that_refused_is_shown_with_the_time_until_which_it_is_held(
    start: Callable[..., Engine], write: WriteSuite, paraval: Paraval
) -> None:
    write("scenario.yaml", "faults: [{kind: status, status: 429, share: 1, retry_after: 200}]\n")
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: hi}, {id: b, input: ho}]
        models: {m: {provider: loopback, model: m, scenario: scenario.yaml, account: team}}
        target: {chat: {model: m, prompt: "{input}"}}
        """,
    )
    engine = start()
    live = engine.until(lambda live: not live.get("in_flight", 1) and live["waiting"])
    (limit,) = live["limits"]
    assert 100 < limit["held_until"] - time.time() < 400
    until = time.strftime("%H:%M:%S", time.localtime(limit["held_until"]))
    assert live["waiting"][0]["why"] == f"refused (429), until {until}"
    shown = paraval("control").stdout
    assert f"2 waiting for model m: refused (429), until {until}" in shown
    # A case that waits is canceled, too.
    assert paraval("control", "--cancel", "b").returncode == 0
    engine.until(lambda live: live["waiting"][0]["trials"] == 1)


def test_there_is_no_estimate_while_nothing_can_start() -> None:
    live = {
        "at": time.time(),
        "eta_s": 9.0,
        "done": 5,
        "total": 9,
        "in_flight": 1,
        "allowed": 4,
        "running": [],
        "waiting": [{"for": "retry", "trials": 4, "why": "they wait"}],
        "limits": [],
        "spent_usd": 2.0,
        "budget_usd": None,
        "stopping": False,
    }
    held = {"in_flight": 0, "limits": [{"held_until": 1}]}
    for change, has_estimate in (
        ({}, True),
        ({"budget_usd": 3.0}, True),
        ({"budget_usd": 1.0}, False),
        (held, False),
        ({**held, "in_flight": 1}, True),
        ({"in_flight": 0, "eta_s": 0.0}, False),
    ):
        assert ("ETA" in next(live_lines({**live, **change}))) is has_estimate, change


# ---- commands


def outcomes(engine: Engine) -> dict[str, str]:
    """By case, from the store."""
    with RunReader(engine.run) as reader:
        return {one.case_id: str(one.outcome) for one in reader.results()}


def passed(engine: Engine) -> set[str]:
    return {case for case, outcome in outcomes(engine).items() if outcome == "passed"}


def info_of(engine: Engine) -> RunInfo:
    with RunReader(engine.run) as reader:
        return reader.info()


def test_a_stop_from_outside_is_like_an_interrupt_and_the_run_can_be_resumed(
    start: Callable[..., Engine], paraval: Paraval
) -> None:
    engine = start()
    engine.until_running("a", "b")
    engine.send(do="stop", by="the viewer")
    engine.until(lambda live: live.get("stopping"))
    engine.go("go.a")
    engine.go("go.b")
    stdout, stderr = engine.end()
    assert engine.process.returncode == 130
    assert "Stopped by the viewer: no new trials start" in stderr
    assert f"paraval resume {engine.run.name}" in stdout
    assert passed(engine) == {"a", "b"}
    engine.go()
    assert paraval("resume", engine.run.name).returncode == 0


def test_a_running_trial_and_a_waiting_one_are_canceled_for_good(
    start: Callable[..., Engine], folder: Path, paraval: Paraval
) -> None:
    engine = start()
    engine.until_running("a", "b")
    pid = int((folder / "pid.a").read_text())
    engine.send(do="cancel", index=0)
    engine.send(do="cancel", index=4)
    engine.until_running("b", "c")
    assert not psutil.pid_exists(pid)
    engine.send(do="cancel", index=0)
    engine.until(lambda live: "it is over" in live["message"])
    engine.go()
    _, stderr = engine.end()
    assert "Canceled by another process: a" in stderr
    assert outcomes(engine) == {**dict.fromkeys("bcdf", "passed"), **dict.fromkeys("ae", "skipped")}
    assert not (folder / "pid.e").exists()
    again = paraval("resume", engine.run.name)
    assert "2 skipped: canceled" in again.stdout
    assert " 4/4 " in again.stdout
    assert not (folder / "pid.e").exists()


def test_a_canceled_trial_is_not_pending_after_a_stop(start: Callable[..., Engine]) -> None:
    engine = start()
    engine.until_running("a", "b")
    engine.send(do="cancel", index=0)
    engine.send(do="cancel", index=4)
    engine.until_running("b", "c")
    engine.send(do="stop")
    engine.until(lambda live: live.get("stopping"))
    engine.go("go.b")
    engine.go("go.c")
    stdout, _ = engine.end()
    assert "Interrupted: 2 trials pending." in stdout
    assert info_of(engine).done == 4


def test_more_trials_run_in_parallel_once_that_is_allowed_and_fewer_after_that(
    start: Callable[..., Engine],
) -> None:
    engine = start()
    engine.until_running("a", "b")
    engine.send(do="parallel", value=4)
    live = engine.until_running(*"abcd")
    assert (live["parallel"], live["allowed"]) == (4, 4)
    engine.send(do="parallel", value=1)
    engine.until(lambda live: live.get("parallel") == 1)
    for case in "abc":
        engine.go(f"go.{case}")
    live = engine.until_running("d")
    assert live["waiting"] == [{"for": "slot", "trials": 2, "why": "1 may run in parallel"}]
    engine.send(do="parallel", value="auto")
    engine.until_running(*"def")
    engine.go()
    _, stderr = engine.end()
    assert engine.process.returncode == 0
    assert "Parallel set to 4 by another process." in stderr
    # A resume, and the report, find the last one.
    assert info_of(engine).parallel == 6
    with RunReader(engine.run) as reader:
        assert reader.selection()["parallel"] == "auto"


def test_workspaces_make_room_for_more_trials(
    start: Callable[..., Engine], folder: Path, write: WriteSuite
) -> None:
    (folder / "template").mkdir()
    (folder / "template" / "file").write_text("text")
    write("work.sh", WORK.replace("go", f"{folder}/go").replace("pid.", f"{folder}/pid."))
    command = f'[sh, {folder}/work.sh, "{{case.id}}"]'
    suite = SUITE.replace('[sh, work.sh, "{case.id}"]', command)
    write("suite.yaml", f"{suite}    workspace: {{folder: template}}\n")
    engine = start()
    engine.until_running("a", "b")
    engine.send(do="parallel", value=5)
    engine.until_running(*"abcde")
    deadline = time.monotonic() + 20
    while not all((folder / f"pid.{case}").exists() for case in "abcde"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    engine.go()
    engine.end()
    assert engine.process.returncode == 0


PAID = """
    cases: [{id: a}, {id: b}, {id: c}, {id: d}]
    target: {command: [sh, paid.sh, "{case.id}"], output: json}
    limits: {parallel: 1}
    budget: {usd: 2.5, per_attempt_usd: 1}
"""
PAY = """
    while [ ! -e go ] && [ ! -e go.$1 ]; do sleep 0.05; done
    echo '{"text": "done", "cost_usd": 1.0}'
"""


def test_a_run_goes_on_with_a_higher_budget(
    start: Callable[..., Engine], write: WriteSuite
) -> None:
    write("suite.yaml", PAID)
    write("paid.sh", PAY)
    engine = start("run", "suite.yaml", "--verbose")
    engine.until_running("a")
    engine.send(do="budget", value=10)
    live = engine.until(lambda live: live.get("budget_usd") == 10)
    assert live["spent_usd"] == 0
    for case in "abc":
        engine.go(f"go.{case}")
    live = engine.until_running("d")
    assert live["spent_usd"] == 3
    engine.go()
    _, stderr = engine.end()
    assert passed(engine) == set("abcd")
    assert "Budget set to $10.00 by another process." in stderr
    assert "$3.00 of $10.00" in stderr
    with RunReader(engine.run) as reader:
        assert reader.selection()["budget_usd"] == 10


def test_a_budget_below_what_is_spent_starts_nothing_more(
    start: Callable[..., Engine], write: WriteSuite
) -> None:
    write("suite.yaml", PAID.replace("    budget: {usd: 2.5, per_attempt_usd: 1}\n", ""))
    write("paid.sh", PAY)
    engine = start()
    engine.go("go.a")
    engine.until_running("b")
    engine.send(do="budget", value=0.5)
    engine.until(lambda live: live.get("budget_usd") == 0.5)
    engine.go()
    stdout, _ = engine.end()
    assert "budget of $0.50 reached" in stdout
    assert passed(engine) == {"a", "b"}


def test_commands_that_make_no_sense_are_dropped_with_a_notice(
    start: Callable[..., Engine], folder: Path
) -> None:
    engine = start()
    engine.until_running("a", "b")
    for command in (
        {"do": "fly"},
        {"do": "parallel", "value": 0},
        {"do": "parallel", "value": "many"},
        {"do": "budget", "value": -1},
        {"do": "cancel", "index": "0"},
        {"do": "cancel", "index": 99, "by": "\x1b[31m" + "x" * 1000},
    ):
        engine.send(**command)
    commands = engine.run / "commands"
    (commands / "00-half.json").write_text('{"do": "st')
    (commands / "01-nan.json").write_text('{"do": "budget", "value": NaN}')
    (commands / "02-deep.json").write_text("[" * 9_000)
    (commands / "03-large.json").write_text(" " * 20_000 + '{"do": "stop"}')
    (folder / "secret").write_text('{"do": "stop"}')
    (commands / "04-link.json").symlink_to(folder / "secret")
    (commands / "05-folder.json").mkdir()
    os.mkfifo(commands / "06-pipe.json")
    (commands / "07-unfinished.json.tmp").write_text('{"do": "stop"}')
    engine.until(lambda _: not [*commands.glob("*.json")] or len([*commands.glob("*.json")]) == 1)
    engine.go()
    _, stderr = engine.end()
    assert engine.process.returncode == 0
    assert stderr.count("Ignored a command") == 13
    assert "\x1b" not in stderr
    assert (folder / "secret").exists()
    assert not commands.exists()


def test_a_second_terminal_shows_a_run_and_changes_it(
    start: Callable[..., Engine], paraval: Paraval
) -> None:
    engine = start()
    engine.until_running("a", "b")
    shown = paraval("control").stdout
    assert shown.startswith("0 of 6 done, 2 running (at most 2)\n  a  running for ")
    assert shown.endswith("4 waiting for slot: 2 may run in parallel\n")
    changed = paraval("control", "-j", "3", "--cancel", "a", "--budget", "7")
    assert changed.returncode == 0, changed.stderr
    live = engine.until_running("b", "c", "d")
    assert (live["parallel"], live["budget_usd"]) == (3, 7)
    paraval("control", "--stop")
    engine.until(lambda live: live.get("stopping"))
    engine.go()
    _, stderr = engine.end()
    assert engine.process.returncode == 130
    assert "Parallel set to 3 by paraval control." in stderr
    over = paraval("control", "--stop")
    assert (over.returncode, "is not running" in over.stderr) == (2, True)


def test_a_case_that_waits_is_canceled_from_a_second_terminal(
    start: Callable[..., Engine], write: WriteSuite, paraval: Paraval
) -> None:
    write("suite.yaml", SUITE + "    matrix: {mode: [quick, slow]}\n")
    engine = start()
    engine.until_running("a")
    for wrong, message in {
        ("--cancel", "ff"): "has no case 'ff', did you mean 'f'?",
        ("--cancel", "f", "--variant", "mood=slow"): "has no axis 'mood', did you mean 'mode'?",
        ("--cancel", "f", "--variant", "mode=x"): "no value 'x'; choose from 'quick' and 'slow'",
        ("--variant", "mode=slow"): "--variant needs --cancel CASE",
    }.items():
        done = paraval("control", *wrong)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert paraval("control", "--cancel", "f", "--variant", "mode=slow").returncode == 0
    engine.until(lambda live: "Canceled by paraval control: f" in live["message"])
    again = paraval("control", "--cancel", "f", "--variant", "mode=slow")
    assert "has no matching trial without a result" in again.stderr
    engine.go()
    engine.end()
    with RunReader(engine.run) as reader:
        skipped = [one for one in reader.results() if one.outcome == "skipped"]
    assert [(one.case_id, one.variant["mode"]) for one in skipped] == [("f", "slow")]


def test_a_race_shows_what_runs_and_can_be_stopped_but_not_changed(
    start: Callable[..., Engine], folder: Path, write: WriteSuite
) -> None:
    write("work.sh", WORK.replace("go", f"{folder}/go").replace("pid.", f"{folder}/pid."))
    write("race.yaml", "race: {test: sh work.sh x, bench: 'true', candidates: candidates}")
    write("code.txt", "old\n")
    make_repository(folder)
    (folder / "candidates").mkdir()
    patch = "--- a/code.txt\n+++ b/code.txt\n@@ -1 +1 @@\n-old\n+new\n"
    (folder / "candidates" / "new.patch").write_text(patch)
    engine = start("race", "race.yaml")
    live = engine.until(lambda live: live.get("running"))
    engine.send(do="cancel", index=live["running"][0]["index"])
    engine.until(lambda live: "a race can only be stopped" in live["message"])
    engine.send(do="stop")
    engine.until(lambda live: live.get("stopping"))
    engine.go()
    stdout, _ = engine.end()
    assert engine.process.returncode == 130, stdout
    assert "Resume it with: paraval race --resume" in stdout
