"""Races on a cluster: tests run on its nodes, everything else here, and the verdicts are the
same."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import paraval
from paraval.cli.main import paraval as program
from paraval.codec import to_data
from paraval.errors import ParavalError
from paraval.racing.steps import STEP
from paraval.records import (
    AttemptStarted,
    Grading,
    Happening,
    Notice,
    TrialEnded,
    Workspace,
)
from paraval.runner.cluster.backend import Message
from paraval.runner.cluster.host import Host, Job
from paraval.runner.session import NullObserver
from paraval.store.store import Store
from tests.cluster_kit import ProcessCluster
from tests.race_kit import Track, telling, track_fixture, whose_test_runs, wrong  # noqa: F401 - a fixture
from tests.workspace_kit import fingerprint

TESTS = ("test", "canary")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessCluster:
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    found = ProcessCluster(nodes, ["a", "b"])
    found.use(monkeypatch)
    return found


class Heard(NullObserver):
    """The notices of a race, and what to do when something happens."""

    def __init__(self, then: Callable[[Happening], None] = lambda _event: None) -> None:
        self.notices: list[str] = []
        self._then = then

    def __call__(self, event: Happening) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.message)
        self._then(event)


def on_cluster(track: Track, **more: Any) -> paraval.Options:
    return paraval.Options(store=track.store, cluster="ray", **more)


def attempts_of(track: Track, report: paraval.RaceReport) -> list[tuple[str, str, str | None]]:
    """Step, candidate and node of every attempt."""
    with Store(track.store).reader(report.run) as reader:
        return [
            (str(one.variant[STEP]), one.case_id, one.result.node)
            for one in reader.attempts()
            if one.result is not None
        ]


def result_of(report: paraval.RaceReport) -> dict[str, Any]:
    """A report as JSON, apart from times and places."""
    document = report.as_json()
    for part in ("run", "cluster"):
        document.pop(part)
    for one in (document["baseline"], *document["candidates"]):
        one.pop("noisy")
    return document


def test_a_race_ends_the_same_on_a_cluster_with_its_tests_on_nodes_and_measurements_here(
    track: Track, cluster: ProcessCluster
) -> None:
    candidates = (
        telling("quick", 0.5),
        telling("slow", 2.0),
        wrong("wrong"),
        {"name": "chatty", "files": {"work.sh": "echo more; echo why >&2\n"}},
        {"name": "broken", "files": {"check.sh": None, "new/deep.sh": "exit 3\n"}},
        whose_test_runs("killed", "kill -9 $$"),
        whose_test_runs("hangs", "sleep 60"),
        whose_test_runs("meddles", "echo x >tests.py; mkdir -p tests; echo y >tests/test_new.py"),
    )
    keys = {"compare": ["stdout"], "test": {"command": ["sh", "check.sh"], "timeout": 2}}
    there = track.race(*candidates, options=on_cluster(track), **keys)
    here = track.race(*candidates, **keys)
    assert result_of(there) == result_of(here)
    assert here.as_json()["cluster"] is None
    assert "node" not in str(here)
    assert {one.name: one.status.value for one in there} == {
        "quick": "won",
        "slow": "slower",
        "wrong": "failed",
        "chatty": "failed",
        "broken": "invalid",
        "killed": "crashed",
        "hangs": "timeout",
        "meddles": "failed",
    }
    places = Counter((step in TESTS, node) for step, _, node in attempts_of(track, there))
    assert set(places) == {(True, "a"), (True, "b"), (False, None)}
    # What tests left is in the run's folder. On nodes, only the commit is left.
    folder = Path(there.run.folder)
    assert len([*folder.rglob("stderr.log")]) == len([*Path(here.run.folder).rglob("stderr.log")])
    assert not [*folder.rglob("*.pack")]
    left = [path.name for node in cluster.folder.iterdir() for path in node.iterdir()]
    assert all(name.startswith("paraval-files-") for name in left), left


def test_the_command_and_its_reports_name_the_nodes_and_the_machine_that_measured(
    track: Track, cluster: ProcessCluster, tmp_path: Path
) -> None:
    patch = tmp_path / "quick.patch"
    patch.write_text("--- a/seconds\n+++ b/seconds\n@@ -1 +1 @@\n-1.0\n+0.5\n")
    race = tmp_path / "race.yaml"
    bench = {"command": "sh bench.sh", "metric": "out.json", "quiet": 0, "blocks": 3}
    keys = track.keys(repo=str(track.repo), bench=bench, candidates=str(patch))
    del keys["options"]
    race.write_text(json.dumps({"race": keys}))
    before = fingerprint(track.repo)
    out = tmp_path / "race.json"
    arguments = ["race", str(race), "--store", str(track.store), "-o", str(out)]
    ended = CliRunner().invoke(program, [*arguments, "--cluster", "ray"])
    assert ended.exit_code == 0, ended.output
    host = socket.gethostname()
    document = json.loads(out.read_text())["cluster"]
    assert set(document["nodes"]) <= {"a", "b"}
    assert document["measured_on"] == [host]
    sentence = f"({', '.join(document['nodes'])}); measured on {host}."
    assert sentence in " ".join(ended.output.split())
    assert fingerprint(track.repo) == before
    shown = CliRunner().invoke(program, ["report", "last", "--store", str(track.store)])
    assert f"Tests ran on {len(document['nodes'])} node" in shown.output


def test_a_host_that_is_killed_in_a_race_costs_no_candidate(
    track: Track, cluster: ProcessCluster
) -> None:
    waits = [whose_test_runs(f"c{at}", f"sleep 0.3; exit {at}") for at in range(1, 7)]
    candidates = [*waits, whose_test_runs("good", "sleep 0.3")]
    killed: list[str] = []
    running, most = set[int](), 0

    def kill(event: Happening) -> None:
        nonlocal most
        if isinstance(event, TrialEnded):
            running.discard(event.trial.index)
        if not isinstance(event, AttemptStarted) or event.attempt.node is None:
            return
        running.add(event.attempt.trial.index)
        most = max(most, len(running))
        if event.attempt.trial.case.id == "c4" and not killed:
            killed.append(event.attempt.node)
            cluster.kill_host(event.attempt.node)

    heard = Heard(kill)
    report = track.race(*candidates, options=on_cluster(track), observer=heard)
    assert {one.name: one.status.value for one in report} == {
        "good": "won",
        **{f"c{at}": "failed" for at in range(1, 7)},
    }
    assert any(one.startswith(f"Node {killed[0]} was lost") for one in heard.notices)
    tested = Counter(name for step, name, _ in attempts_of(track, report) if step == "test")
    assert tested["c4"] == 2
    # Two on each node.
    assert most >= 4


def test_a_working_tree_with_uncommitted_changes_is_raced_on_nodes_and_resumed_here(
    track: Track, cluster: ProcessCluster
) -> None:
    track.write(
        {
            "work.sh": "test -f helper.sh && python3 -B -c 'import mod' || exit 1\n",
            "helper.sh": ":\n",
            "seconds": "0.9\n",
            "mod.py": "def one():\n    return 1\n",
        }
    )
    fixed = track.with_patch(
        {"name": "fixed", "files": {"seconds": "0.3\n", "mod.py": "one = 1\n"}, "parent": "wrong"}
    )
    given = track.with_patch(wrong("wrong"))
    repo = {"git": str(track.repo), "uncommitted": True}

    def propose(ask: Any) -> list[dict[str, Any]]:
        """In the first round, nothing has failed yet."""
        return [fixed for one in ask.candidates if one["status"] == "failed" and ask.round == 2]

    report = track.race(
        given,
        telling("slow", 2.0),
        repo=repo,
        propose={"function": propose, "rounds": 2},
        options=on_cluster(track),
    )
    assert report.winner is not None, str(report)
    assert report.winner.name == "fixed"
    tests = {step: node for step, _, node in attempts_of(track, report) if step in TESTS}
    assert set(tests) == {"test", "canary"}
    assert set(tests.values()) <= {"a", "b"}
    asked = track.keys(
        repo=repo,
        propose={"function": lambda _ask: [], "rounds": 2},
        options=paraval.Options(store=track.store, resume=report.run.id),
    )
    again = paraval.race(candidates=[given], **asked)
    assert result_of(again) == result_of(report)
    assert again.standings.nodes == report.standings.nodes


def test_a_stopped_race_ends_its_tests_on_nodes_and_resumes_there(
    track: Track, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.execute.driver.STOP_GRACE_S", 0.2)
    go = track.folder / "go"
    waits = f"test -e {go} || sleep 60"
    candidates = [*map(track.with_patch, (whose_test_runs("waits", waits), wrong("wrong")))]

    def stop(event: Happening) -> None:
        if isinstance(event, AttemptStarted):
            attempt = event.attempt
            if attempt.node is not None and attempt.trial.case.id == "waits":
                os.kill(os.getpid(), signal.SIGINT)

    asked = track.keys(options=on_cluster(track))
    with pytest.raises(KeyboardInterrupt):
        paraval.race(candidates=candidates, observer=Heard(stop), **asked)
    track.assert_nothing_is_left()
    go.touch()
    runner = CliRunner()
    ended = runner.invoke(program, ["resume", "--store", str(track.store), "--cluster", "ray"])
    assert ended.exit_code == 0, ended.output
    assert "waits won" in ended.output
    assert "Tests ran on" in ended.output


def test_what_a_node_lacks_for_the_tests_is_named_before_the_race_starts(
    track: Track, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = track.folder / "bin"
    programs.mkdir()
    (programs / "only-here").symlink_to("/bin/sh")
    cluster.env = {"PATH": os.environ["PATH"]}
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(ParavalError, match="node a: only-here is not installed"):
        track.race(telling("quick", 0.5), test=["only-here", "check.sh"], options=on_cluster(track))


def test_a_host_opens_only_performers_of_paraval() -> None:
    job = Job(
        run_id="r",
        node="a",
        name="n",
        source=None,
        grading=Grading(),
        workspace=Workspace(),
        parallel=1,
        auto=False,
        performer="os:system",
    )

    async def open_it() -> None:
        host = Host()
        try:
            text = json.dumps({"job": to_data(job), "targets": []})
            await host.call("open", Message(text=text))
        finally:
            await host.close()

    with pytest.raises(ParavalError, match="'os:system' is not a part of paraval"):
        asyncio.run(open_it())
