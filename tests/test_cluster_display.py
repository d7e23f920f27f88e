"""What users see of a cluster: its options, the suite's key, progress, reports and checks."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import paraval as public
from paraval.cli.main import paraval as command_line
from paraval.codec import to_data
from paraval.errors import RequestError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import AttemptResult, Failure, Outcome
from paraval.report.formats.json_schema import report_schema
from paraval.report.report_file import source_from_file
from paraval.runner.cluster import ray_backend
from paraval.runner.cluster.backend import ClusterNode, HostHandle, Message
from paraval.runner.cluster.survey import FACTS, PlanNeeds, answer, needs_of_plan
from paraval.settings import Options, Selection
from paraval.store.store import Store
from tests.cluster_kit import ProcessCluster
from tests.conftest import Paraval, WriteSuite
from tests.test_store import Desk, judged, make_plan

SUITE = """
    name: small
    cases: [{id: a, expect: a}, {id: b, expect: b}]
    target: {command: [echo, "{case.id}"]}
    graders: [equals]
"""


# ---- options


@pytest.mark.parametrize(
    "address", ["ray", "ray://head:10001", "10.0.0.5:6379", "head.lan:6379", "[fd00::1]:6379"]
)
def test_a_cluster_is_named_by_ray_or_by_an_address(address: str) -> None:
    assert Options(cluster=address).cluster == address


@pytest.mark.parametrize(
    "address",
    ["", "Ray", "head", "ray://head", "http://head:8265", "head:0", "head:65536", "a b:1", "auto"],
)
def test_another_word_for_a_cluster_is_refused_with_the_forms_that_exist(address: str) -> None:
    with pytest.raises(RequestError, match="not the address of a cluster") as refused:
        Options(cluster=address)
    hint = refused.value.hint or ""
    assert all(form in hint for form in ("ray ", "ray://HOST:10001", "HOST:6379"))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_commands_refuse_a_wrong_cluster_before_anything_runs(
    write: WriteSuite, paraval: Paraval, folder: Path, command: str
) -> None:
    write("suite.yaml", SUITE)
    wrong = paraval(command, "suite.yaml", "--cluster", "head")
    assert wrong.returncode == 2
    assert "--cluster head: not the address of a cluster" in wrong.stderr
    assert "ray://HOST:10001" in wrong.stderr
    lone = paraval(command, "suite.yaml", "--insecure-cluster")
    assert lone.returncode == 2
    assert "--insecure-cluster is only for runs with --cluster" in lone.stderr
    assert not (folder / ".paraval").exists()


# ---- the suite's key


def test_the_suite_names_the_files_that_nodes_get_and_no_key_of_a_trial_changes(
    write: WriteSuite, folder: Path
) -> None:
    (folder / "data").mkdir()
    write("data/facts.txt", "2 + 2 = 4")
    plain = build_plan(Suite.load(write("plain.yaml", SUITE)), Selection())
    text = SUITE + "    cluster: {send: [data, 'data/**/*.txt']}\n"
    sending = build_plan(Suite.load(write("sending.yaml", text)), Selection())
    assert plain.send == ()
    assert sending.send == ("data", "data/**/*.txt")
    assert [trial.key for trial in sending.trials] == [trial.key for trial in plain.trials]
    assert sending.parts == plain.parts


def test_a_suite_made_in_python_has_the_same_key(write: WriteSuite) -> None:
    write("facts.txt", "2 + 2 = 4")
    suite = public.Suite(
        cases=[{"id": "a"}], target={"command": ["echo"]}, cluster={"send": ["*.txt"]}
    )
    assert build_plan(suite, Selection()).send == ("*.txt",)


# ---- reports


def on(node: str | None) -> AttemptResult:
    return replace(judged(), duration_s=0.5, artifacts={}, node=node)


@pytest.fixture
def stored(folder: Path) -> str:
    """The id of a run on nodes a and b, one attempt of which was lost with node b."""
    ledger = Store(folder / ".paraval").create_run(make_plan(2), seed=1)
    desk = Desk(ledger)
    lost = Failure(kind=Outcome.INFRA_ERROR, message="node b was lost", lost=True)
    first = desk.start(1, at=1000.0)
    desk.end(first, AttemptResult(outcome=Outcome.INFRA_ERROR, error=lost, node="b"), final=False)
    for index, node in enumerate(("a", "a", "b", None)):
        desk.end(desk.start(index, at=1001.0 + index / 10), on(node))
    desk.wait()
    ledger.close(interrupted=False)
    return ledger.run.id


def test_the_report_names_the_nodes_and_how_many_trials_ran_on_each(
    stored: str, paraval: Paraval
) -> None:
    printed = paraval("report", stored).stdout
    assert "Ran on 2 nodes: a 2, b 1 trials; 1 on the machine of the run" in printed
    assert "Retried: 1 lost with a node" in paraval("report", stored, "-v").stdout


def test_reports_for_programs_have_the_node_of_each_trial_and_can_be_read_back(
    stored: str, paraval: Paraval, folder: Path
) -> None:
    paraval("report", stored, "-o", "report.json", "-o", "report.csv")
    document = json.loads((folder / "report.json").read_text())
    jsonschema.validate(document, report_schema())
    assert [trial["node"] for trial in document["trials"]] == ["a", "a", "b", None]
    assert document["summary"]["nodes"] == {"a": 2, "b": 1}
    [error] = document["trials"][1]["retry_errors"]
    assert (error["message"], error["lost"]) == ("node b was lost", True)
    rows = list(csv.DictReader((folder / "report.csv").read_text().splitlines()))
    assert [row["node"] for row in rows] == ["a", "a", "b", ""]
    read_back = source_from_file(str(folder / "report.json"))
    assert [trial.result.node for trial in read_back.results()] == ["a", "a", "b", None]


def test_logs_name_the_node_of_an_attempt(stored: str, paraval: Paraval) -> None:
    printed = paraval("logs", stored).stdout
    titles = re.findall(r"attempt \d.*(?= <==)", printed)
    assert [title.split(" · ")[0] for title in titles] == [
        *("attempt 1 on a", "attempt 1 on b", "attempt 2 on a", "attempt 1 on b", "attempt 1")
    ]
    attempts = json.loads(paraval("logs", stored, "--json").stdout)
    assert [one["node"] for one in attempts] == ["a", "b", "a", "b", None]


def test_a_run_on_one_machine_shows_nothing_of_nodes(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    ran = paraval("run", "suite.yaml", "-o", "report.html", "-o", "report.csv")
    assert ran.returncode == 0
    assert "node" not in ran.stdout + (folder / "report.csv").read_text()
    assert "node: " not in (folder / "report.html").read_text()


# ---- plans and checks


@dataclass(frozen=True, slots=True)
class HostHere:
    """A host that answers for this machine, and changes what it says about it."""

    node: ClusterNode
    facts: dict[str, Any]

    async def call(self, method: str, message: Message) -> Message:
        assert method == FACTS
        told = json.loads(answer(message).text)
        machine = {**told["machine"], "cpus": 8.0, "memory_bytes": 32_000_000_000}
        changed = {**told, "machine": machine, "sandbox": None, "free_bytes": 64_000_000_000}
        return Message(text=json.dumps({**changed, **self.facts}))

    def kill(self) -> None: ...


class ClusterHere:
    """A cluster of made-up nodes; what is changed about one of them, or why it has no host."""

    def __init__(self, **nodes: dict[str, Any] | str) -> None:
        self._nodes = nodes

    async def nodes(self) -> list[ClusterNode]:
        return [ClusterNode(id=name, name=name, address=name) for name in self._nodes]

    async def start_host(self, node: ClusterNode) -> HostHandle:
        found = self._nodes[node.name]
        if isinstance(found, str):
            raise RequestError(f"node {node.name}: {found}")
        return HostHere(node, found)

    async def close(self) -> None: ...


Connect = Callable[..., None]


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Puts a made-up cluster in the place of Ray."""

    def put(**nodes: dict[str, Any] | str) -> None:
        @asynccontextmanager
        async def connect(address: str, **_: Any) -> AsyncIterator[ClusterHere]:
            assert address == "ray://head:10001"
            yield ClusterHere(**nodes)

        monkeypatch.setattr(ray_backend, "connect", connect)

    return put


def typed(*arguments: str) -> Result:
    given = [*arguments, "--cluster", "ray://head:10001"]
    return CliRunner().invoke(command_line, given, standalone_mode=False)


def test_a_plan_shows_each_node_with_its_slots_and_the_time_on_all_of_them(
    write: WriteSuite, paraval: Paraval, connected: Connect
) -> None:
    write(
        "suite.yaml",
        """
        name: naps
        cases: [{id: a}, {id: b}, {id: c}, {id: d}, {id: e}, {id: f}, {id: g}, {id: h}]
        target: {command: [sleep, "0.2"]}
        limits: {parallel: 2}
        """,
    )
    connected(b={}, a={}, c="paraval is not installed")
    first = typed("plan", "suite.yaml")
    assert first.exit_code == 0, first.output
    assert "naps: 8 trials (8 cases, 1 variant), 4 in parallel on 2 nodes" in first.stdout
    assert [line.split() for line in first.stdout.splitlines() if " GB " in line] == [
        ["a", "8", "32.0", "GB", "2"],
        ["b", "8", "32.0", "GB", "2"],
    ]
    assert re.search(r"c +- +- +0 +paraval is not installed", first.stdout)
    assert "A run would leave out 1 node: c." in first.stdout
    assert paraval("run", "suite.yaml").returncode == 0
    planned = json.loads(typed("plan", "suite.yaml", "--json").stdout)
    assert planned["cluster"]["slots"] == 4
    assert [node["missing"] for node in planned["cluster"]["nodes"]] == [
        *([], [], ["paraval is not installed"])
    ]
    estimate = planned["estimate"]
    assert estimate["decided_by"]["limit"] == "the cluster"
    assert estimate["wall_s"] == pytest.approx(estimate["serial_s"] / 4, rel=0.3)


def test_a_plan_names_the_programs_that_nodes_lack(write: WriteSuite, connected: Connect) -> None:
    write("suite.yaml", SUITE)
    connected(a={"missing": ["claude-code is not installed"]})
    shown = typed("plan", "suite.yaml").stdout
    assert "claude-code is not installed" in shown
    assert "A run would fail to start: no node can run it." in shown


def test_a_host_looks_for_the_programs_of_a_plan(write: WriteSuite, folder: Path) -> None:
    (folder / "beside.sh").write_text("#!/bin/sh\n")
    (folder / "beside.sh").chmod(0o700)
    write(
        "suite.yaml",
        """
        cases: [{id: a}]
        matrix: {program: {here: {command: [echo]}, own: {command: [./beside.sh]}}}
        target: {command: [echo]}
        graders: [{command: [env]}]
        """,
    )
    plan = build_plan(Suite.load("suite.yaml"), Selection())
    needs = needs_of_plan(plan)
    assert needs == PlanNeeds(programs=("echo", "env"))
    lacking = PlanNeeds(programs=("no-such-program", "sh"), agents=("claude-code",))
    told = json.loads(answer(Message(text=json.dumps(to_data(lacking)))).text)
    assert "no-such-program is not installed" in told["missing"]
    assert not any(why.startswith("sh ") for why in told["missing"])


def test_doctor_checks_the_cluster_and_each_node(connected: Connect) -> None:
    connected(
        a={},
        b={"git": None, "free_bytes": 1_000_000, "clock_s": 0.0},
        c="has paraval 0.0.1; this machine has paraval 0.1.0",
    )
    shown = typed("doctor", "-v")
    assert shown.return_value == 0, shown.output
    assert "the cluster ray://head:10001: 3 nodes, 2 of them usable; token auth" in shown.stdout
    assert "a: Python 3." in shown.stdout
    assert "b: git is not installed" in shown.stdout
    assert "b: only 1 MB free in " in shown.stdout
    assert re.search(r"b: its clock is .* behind; synchronize it", shown.stdout)
    assert "c: has paraval 0.0.1; this machine has paraval 0.1.0" in shown.stdout
    assert "a: its clock" not in shown.stdout


def test_agents_need_not_be_installed_here_if_the_nodes_have_them(
    write: WriteSuite, connected: Connect
) -> None:
    write(
        "suite.yaml",
        """
        name: fixes
        cases: [{id: a, input: fix it}]
        target: {agent: codex, prompt: "{input}"}
        """,
    )
    connected(a={"missing": []}, b={"missing": ["codex is not installed"]})
    planned = json.loads(typed("plan", "suite.yaml", "--json").stdout)
    assert planned["estimate"]["absent"] == []
    assert [node["slots"] > 0 for node in planned["cluster"]["nodes"]] == [True, False]
    checked = typed("doctor", "suite.yaml")
    assert checked.return_value == 0, checked.output
    assert "2 nodes, 1 of them usable" in checked.stdout
    assert "b: codex is not installed" in checked.stdout


def test_doctor_fails_if_the_cluster_cannot_be_used(
    write: WriteSuite, connected: Connect, paraval: Paraval
) -> None:
    connected(a="paraval is not installed")
    assert typed("doctor").return_value == 1
    write("suite.yaml", SUITE)
    alone = typed("doctor", "suite.yaml")
    assert alone.return_value == 1
    assert "suite.yaml cannot run here yet." in alone.stdout
    ended = paraval("doctor", "--cluster", "127.0.0.1:1")
    assert ended.returncode == 1
    assert "Run on a cluster: " in ended.stdout


# ---- a whole run, by the command


@pytest.fixture
def two_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessCluster:
    """A cluster whose nodes are processes of this machine."""
    (folder / "nodes").mkdir()
    cluster = ProcessCluster(folder / "nodes", ["a", "b"])
    cluster.use(monkeypatch)
    (folder / "suites").mkdir()
    (folder / "suites" / "words.txt").write_text("hello\n")
    (folder / "suites" / "suite.yaml").write_text(
        """
name: words
cases: [{id: c1}, {id: c2}, {id: c3}, {id: c4}, {id: c5}, {id: c6}, {id: c7}, {id: c8}]
target: {command: [sh, -c, "sleep 0.1; cat words.txt"]}
graders: [{contains: hello}]
limits: {parallel: 2}
cluster: {send: [words.txt]}
"""
    )
    return cluster


def test_one_flag_runs_a_suite_on_nodes_and_progress_and_report_name_them(
    two_nodes: ProcessCluster, folder: Path
) -> None:
    ran = typed("run", "suites/suite.yaml", "--progress", "lines", "-v", "-o", "report.json")
    assert ran.return_value == 0, ran.output
    assert "Joined: nodes a, b (4 slots)." in ran.stderr
    ends = re.findall(r"\[\d/8\] . .*c\d  \(on ([ab])", ran.stderr)
    trials = json.loads((folder / "report.json").read_text())["trials"]
    assert sorted(ends) == sorted(trial["node"] for trial in trials)
    assert set(ends) == {"a", "b"}
    line = f"Ran on 2 nodes: a {ends.count('a')}, b {ends.count('b')} trials"
    assert line in ran.stdout
    assert two_nodes.of("a").process.poll() is not None


def test_json_progress_of_a_run_on_nodes_tells_their_slots(two_nodes: ProcessCluster) -> None:
    ran = typed("run", "suites/suite.yaml", "--progress", "json")
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    changed = {one["node"]: one["slots"] for one in events if one["event"] == "node_changed"}
    assert changed == {"a": 2, "b": 2}
    started = [one["node"] for one in events if one["event"] == "attempt_started"]
    assert set(started) == {"a", "b"}
    assert two_nodes.hosts


def test_plan_and_doctor_ask_the_hosts_of_nodes(two_nodes: ProcessCluster) -> None:
    planned = json.loads(typed("plan", "suites/suite.yaml", "--json").stdout)
    assert planned["cluster"]["slots"] == 4
    assert [node["name"] for node in planned["cluster"]["nodes"]] == ["a", "b"]
    checked = typed("doctor", "suites/suite.yaml", "-v")
    assert checked.return_value == 0, checked.output
    scratch = two_nodes.folder / "node-b"
    assert re.search(rf"b: Python 3\.\d+.* free in {scratch}", checked.stdout)


def test_a_run_on_a_cluster_is_resumed_without_it(
    two_nodes: ProcessCluster, paraval: Paraval
) -> None:
    first = typed("run", "suites/suite.yaml", "--limit", "3")
    assert first.return_value == 0, first.output
    more = paraval("resume", "last", "--repeats", "2")
    assert more.returncode == 0, more.stderr
    assert "Ran on 2 nodes" in more.stdout or "Ran on 1 node" in more.stdout
    assert "; 3 on the machine of the run" in more.stdout
    assert two_nodes.hosts


def test_the_command_that_resumes_a_run_names_its_cluster(
    two_nodes: ProcessCluster, folder: Path
) -> None:
    suite = folder / "suites" / "suite.yaml"
    suite.write_text(suite.read_text() + "budget: {usd: 0.1, per_attempt_usd: 0.04}\n")
    ran = typed("run", "suites/suite.yaml")
    assert "The next trial would exceed the budget" in ran.stderr
    assert re.search(r"paraval resume \S+ --cluster ray://head:10001 --budget", ran.stderr)
    assert two_nodes.hosts
