"""Suites on the nodes of a cluster: the same trials, limits, records and reports, elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import paraval
from paraval.errors import RequestError, RunBrokenOffError
from paraval.records import (
    AttemptStarted,
    Happening,
    Notice,
    RunChanged,
    RunStarted,
    Step,
    TrialEnded,
    TrialSkipped,
)
from paraval.report.report import Report
from paraval.runner.cluster.backend import ClusterLostError, ClusterNode
from paraval.runner.cluster.files import Bundle, moved, suite_bundle
from paraval.runner.live import read_live, send_command
from paraval.runner.session import NullObserver
from paraval.settings import Options
from paraval.store.reader import RunReader
from tests.cluster_kit import ProcessCluster

ECHO = """
name: echo
cases:
{cases}
target: {{command: [sh, -c, '{script}'], stdin: "{{input}}", timeout: 60}}
graders: [{{contains: "hello"}}]
limits: {{parallel: {parallel}}}
"""


class Heard(NullObserver):
    """Everything that a run tells, and what to do then."""

    def __init__(self, then: Callable[[Happening], None] = lambda _event: None) -> None:
        self.events: list[Happening] = []
        self._then = then

    def __call__(self, event: Happening) -> None:
        self.events.append(event)
        self._then(event)

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessCluster:
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    found = ProcessCluster(nodes, ["a", "b"])
    found.use(monkeypatch)
    return found


def suite_in(
    folder: Path, *, count: int = 20, script: str = "cat", parallel: int = 2, more: str = ""
) -> Path:
    folder.mkdir(exist_ok=True)
    cases = "\n".join(f"  - {{id: c{at}, input: hello {at}}}" for at in range(count))
    path = folder / "suite.yaml"
    path.write_text(ECHO.format(cases=cases, script=script, parallel=parallel) + more)
    return path


def run(
    suite: Path, tmp_path: Path, *, cluster: bool = True, heard: Heard | None = None, **more: Any
) -> Report:
    options = Options(store=tmp_path / "store", cluster="ray" if cluster else None, **more)
    return paraval.run(suite, options=options, observer=heard)


def told(report: Report) -> list[tuple[Any, ...]]:
    """What a report says of each trial, apart from times and places."""
    return sorted(
        (one.case_id, *one.variant.items(), one.repeat, one.outcome, one.result.score, one.attempts)
        for one in report.trials
    )


def texts_of(report: Report) -> list[str]:
    return ["" if one.result.output is None else one.result.output.text for one in report.trials]


def errors_of(report: Report) -> set[str]:
    return {one.result.error.message for one in report.trials if one.result.error is not None}


def nodes_of(report: Report) -> Counter[str | None]:
    """How many trials each node did."""
    return Counter(trial.get("node") for trial in report.to_dict()["trials"])


def test_a_suite_gives_the_same_report_on_nodes_as_here(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    suite = suite_in(tmp_path / "suite", script="cat; echo note >&2")
    heard = Heard()
    there, here = run(suite, tmp_path, heard=heard), run(suite, tmp_path, cluster=False)
    assert told(there) == told(here)
    assert set(nodes_of(there)) == {"a", "b"}
    assert "Joined: nodes a, b (4 slots)." in heard.notices
    # What attempts left is in the run's folder, and no longer on the nodes.
    folder = tmp_path / "store" / "runs" / there.run.id
    assert len([*folder.rglob("stderr.log")]) == 20
    assert not [*cluster.folder.rglob("stderr.log")]


def test_functions_of_files_go_to_nodes_with_their_modules(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "words.py").write_text("GREETING = 'hello'\n")
    (folder / "app.py").write_text(
        "import os, time, words\n"
        "def answer(case):\n    time.sleep(0.3)\n"
        "    return f'{words.GREETING} {os.getpid()}'\n"
        "def grade(output, case):\n    return output.text.startswith('hello')\n"
    )
    for isolate in ("none", "process"):
        (folder / "suite.yaml").write_text(
            "cases: [{id: a}, {id: b}, {id: c}, {id: d}]\n"
            f"target: {{python: app:answer, isolate: {isolate}}}\n"
            "graders: [{python: app:grade}]\nlimits: {parallel: 2}\n"
        )
        report = run(folder / "suite.yaml", tmp_path)
        assert [one.outcome for one in report.trials] == ["passed"] * 4, errors_of(report)
        pids = {text.split()[1] for text in texts_of(report)}
        assert str(os.getpid()) not in pids
        assert set(nodes_of(report)) == {"a", "b"}


def test_worktrees_are_made_on_nodes_and_patches_come_back(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    repository = tmp_path / "code"
    repository.mkdir()
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(repository))
    (repository / "app.txt").write_text("one\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first"), ("tag", "v1")):
        subprocess.run([*git, *words], check=True)
    (repository / "app.txt").write_text("two\n")
    for uncommitted, line in ((False, "one"), (True, "two")):
        suite = suite_in(
            tmp_path / "suite",
            count=4,
            script="grep -q " + line + " app.txt && git describe --tags && echo $$ >> app.txt"
            " && echo hello",
            more=f"workspace: {{git: {repository}, uncommitted: {str(uncommitted).lower()}}}\n",
        )
        text = suite.read_text().replace(
            'graders: [{contains: "hello"}]',
            'graders: [{contains: hello}, {command: [sh, -c, "test -d .git && cat app.txt"]}]',
        )
        suite.write_text(text)
        report = run(suite, tmp_path)
        assert [one.outcome for one in report.trials] == ["passed"] * 4, errors_of(report)
        changes = [one.result.change for one in report.trials]
        assert all(change is not None and change.lines_added == 1 for change in changes)
        patches = [*(tmp_path / "store" / "runs" / report.run.id).rglob("*.patch")]
        assert len(patches) == 4
        assert all("app.txt" in patch.read_text() for patch in patches)
    # The same commit is sent once to each node; the suite was changed, and sent again.
    puts = Counter(
        host.node.name for host in cluster.hosts for method, _ in host.calls if method == "put"
    )
    assert puts == {"a": 4, "b": 4}
    again = run(suite, tmp_path)
    assert again.exit_code == 0
    assert sum(method == "put" for host in cluster.hosts for method, _ in host.calls) == 8


def test_hidden_files_grade_attempts_on_nodes(tmp_path: Path, cluster: ProcessCluster) -> None:
    folder = tmp_path / "suite"
    more = "workspace: {folder: true}\nhidden: [{from: hidden.txt, to: tests/}]\n"
    suite = suite_in(folder, count=2, script="ls; cat", more=more)
    (folder / "hidden.txt").write_text("hidden\n")
    graders = "graders: [{command: [grep, hidden, tests/hidden.txt]}]"
    suite.write_text(suite.read_text().replace('graders: [{contains: "hello"}]', graders))
    report = run(suite, tmp_path)
    assert [one.outcome for one in report.trials] == ["passed"] * 2, errors_of(report)
    assert all("tests" not in str(one.result.output) for one in report.trials)


def test_a_suite_at_the_top_of_its_repository_runs_on_nodes(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    folder = tmp_path / "suite"
    suite = suite_in(folder, count=4, script="cat app.txt; cat")
    (folder / "app.txt").write_text("text\n")
    (folder / "grade.py").write_text("def grade(output, case):\n    return 'text' in output.text\n")
    (folder / "judge.yaml").write_text('answers: [{text: \'{"score": 1, "reason": "ok"}\'}]\n')
    suite.write_text(
        suite.read_text().replace(
            'graders: [{contains: "hello"}]',
            "models: {j: {provider: loopback, model: j, scenario: judge.yaml}}\n"
            "graders: [{python: grade:grade}, {judge: {model: j, rubric: polite}}]\n"
            "workspace: {git: .}",
        )
    )
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(folder))
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], check=True)
    report = run(suite, tmp_path)
    assert [one.outcome for one in report.trials] == ["passed"] * 4, errors_of(report)


def test_judges_are_asked_here_and_their_verdicts_cached_in_one_place(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    folder = tmp_path / "suite"
    suite = suite_in(folder, count=6, script="sleep 0.3; cat")
    (folder / "scenario.yaml").write_text('answers: [{text: \'{"score": 1, "reason": "ok"}\'}]\n')
    suite.write_text(
        suite.read_text().replace(
            'graders: [{contains: "hello"}]',
            "models: {j: {provider: loopback, model: j, scenario: scenario.yaml}}\n"
            "graders: [{contains: hello}, {judge: {model: j, rubric: polite}}]",
        )
    )
    report = run(suite, tmp_path)
    assert [one.outcome for one in report.trials] == ["passed"] * 6, report.to_dict()["trials"][0]
    assert all(len(one.result.grades) == 2 for one in report.trials)
    assert set(nodes_of(report)) == {"a", "b"}
    assert all(one.target_s and one.total_s >= one.target_s for one in report.trials)
    again = run(suite, tmp_path)
    judged = [one.judging for one in again.trials]
    assert all(spend is not None and spend.cached == 1 and not spend.calls for spend in judged)


@pytest.mark.parametrize("judge", ["", ", {judge: {model: j, rubric: polite}}"])
def test_an_agents_transcript_comes_back_from_nodes(
    tmp_path: Path, cluster: ProcessCluster, judge: str
) -> None:
    """Also if a judge is asked here in between."""
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "scenario.yaml").write_text('answers: [{text: \'{"score": 1, "reason": "ok"}\'}]\n')
    (folder / "suite.yaml").write_text(
        "cases: [{id: a, input: hello}]\n"
        "models: {j: {provider: loopback, model: j, scenario: scenario.yaml}}\n"
        'target: {agent: custom, command: [echo, "{prompt}"], prompt: "{input}", timeout: 60}\n'
        f"graders: [{{contains: hello}}{judge}]\n"
    )
    report = run(folder / "suite.yaml", tmp_path)
    assert [one.outcome for one in report.trials] == ["passed"], errors_of(report)
    assert None not in nodes_of(report)
    with RunReader(tmp_path / "store" / "runs" / report.run.id) as reader:
        asked, *judged = reader.exchanges(0)
    assert (asked.request["prompt"], asked.steps) == ("hello", (Step(text="hello"),))
    assert len(judged) == bool(judge)


def test_chat_targets_stay_here(tmp_path: Path, cluster: ProcessCluster) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "scenario.yaml").write_text("answers: [{text: hello}]\n")
    (folder / "suite.yaml").write_text(
        "cases: [{id: a, input: hi}, {id: b, input: ho}]\n"
        "models: {m: {provider: loopback, model: m, scenario: scenario.yaml}}\n"
        'target: {chat: {model: m, prompt: "{input}"}}\n'
        "graders: [{contains: hello}]\n"
    )
    report = run(folder / "suite.yaml", tmp_path)
    assert nodes_of(report) == {None: 2}


def test_a_host_that_is_killed_costs_no_trial_and_leaves_no_process(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    mark = f"{os.getpid()}.25"
    suite = suite_in(
        tmp_path / "suite", count=60, script=f"sleep 0.0{mark}; setsid sleep 0.1{mark}; cat"
    )
    ended: list[str] = []

    def kill(event: Happening) -> None:
        if isinstance(event, TrialEnded):
            ended.append(event.trial.case.id)
            if len(ended) == 10:
                cluster.kill_host("b")

    heard = Heard(kill)
    report = run(suite, tmp_path, heard=heard)
    assert [one.outcome for one in report.trials] == ["passed"] * 60
    assert len(set(ended)) == len(ended) == 60
    assert any(said.startswith("Node b was lost: its host ended; ") for said in heard.notices)
    # It was started again, and worked on.
    assert sum(host.node.name == "b" for host in cluster.hosts) == 2
    results = [one.result for one in report.source.attempts() if one.result is not None]
    lost = [one for one in results if one.error is not None and one.error.lost]
    assert {one.node for one in lost} == {"b"}
    assert_nothing_runs(mark)


def assert_nothing_runs(mark: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = [
            one for one in psutil.process_iter(["cmdline"]) if mark in str(one.info["cmdline"])
        ]
        if not found:
            return
        time.sleep(0.1)
    raise AssertionError(found)


def test_a_node_without_the_program_is_named_before_the_run_starts(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "only-here").symlink_to("/bin/cat")
    suite = suite_in(tmp_path / "suite", count=4)
    suite.write_text(suite.read_text().replace("[sh, -c, 'cat']", "[only-here]"))
    path = os.environ["PATH"]
    cluster.env_of["b"] = {"PATH": path}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{path}")
        heard = Heard()
        report = run(suite, tmp_path, heard=heard)
        assert nodes_of(report) == {"a": 4}
        assert "Node b: only-here is not installed; it is left out." in heard.notices
        cluster.env_of["a"] = {"PATH": path}
        with pytest.raises(RequestError, match="node a: only-here is not installed"):
            run(suite, tmp_path)


def test_secrets_reach_attempts_but_no_file_and_no_result(
    tmp_path: Path, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "sesame-4711-open")
    suite = suite_in(tmp_path / "suite", count=2, script="cat; echo $SERVICE_TOKEN $OTHER_KEY")
    (tmp_path / "suite" / ".env").write_text("OTHER_KEY=second-0815-secret\n")
    suite.write_text(
        suite.read_text().replace("timeout: 60", "pass_env: [SERVICE_TOKEN, OTHER_KEY]")
    )
    report = run(suite, tmp_path)
    texts = texts_of(report)
    assert all("hello" in text and text.count("[REDACTED]") == 2 for text in texts), texts
    for host in cluster.hosts:
        for method, message in host.calls:
            if method != "secrets":
                everything = message.text.encode() + b"".join(message.files.values())
                assert b"sesame" not in everything
                assert b"second-0815" not in everything
    for path in (tmp_path / "nodes").rglob("*"):
        assert not path.is_file() or b"0815-secret" not in path.read_bytes()


def test_a_node_that_joins_takes_work_and_one_that_always_fails_is_left_out(
    tmp_path: Path, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.runner.cluster.nodes.REST_S", 0.1)
    cluster.names.remove("b")
    template = tmp_path / "suite" / "template"
    suite = suite_in(
        tmp_path / "suite",
        count=80,
        script="sleep 0.1; cat",
        more="workspace:\n  folder: template\n"
        '  setup: [sh, -c, "case $PWD in *node-c*) exit 1;; esac"]\n',
    )
    template.mkdir()
    (template / "file").write_text("text")
    ended: list[str] = []

    def join(event: Happening) -> None:
        if isinstance(event, TrialEnded):
            ended.append(event.trial.case.id)
            if len(ended) == 5:
                cluster.names += ["b", "c"]

    heard = Heard(join)
    report = run(suite, tmp_path, heard=heard)
    assert [one.outcome for one in report.trials] == ["passed"] * 80
    assert {"a", "b"} <= set(nodes_of(report))
    left_out = [said for said in heard.notices if said.startswith("Node c is left out")]
    assert len(left_out) == 1, heard.notices


def test_a_named_limit_holds_over_all_nodes(tmp_path: Path, cluster: ProcessCluster) -> None:
    suite = suite_in(
        tmp_path / "suite",
        count=40,
        parallel=8,
        script="sleep 0.05; cat",
    )
    suite.write_text(
        suite.read_text().replace("{parallel: 8}", "{parallel: 8, mode: {x: 3}}")
        + "matrix: {mode: [x]}\n"
    )
    running, most = set[int](), 0

    def count(event: Happening) -> None:
        nonlocal most
        if isinstance(event, AttemptStarted):
            running.add(event.attempt.trial.index)
            most = max(most, len(running))
        elif isinstance(event, TrialEnded):
            running.discard(event.trial.index)

    report = run(suite, tmp_path, heard=Heard(count))
    assert report.exit_code == 0
    assert set(nodes_of(report)) == {"a", "b"}
    assert most <= 4  # An end is told just after the next start.


def test_a_stop_ends_attempts_on_nodes_and_a_resume_does_the_rest(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    mark = f"{os.getpid()}.5"
    suite = suite_in(tmp_path / "suite", count=8, script=f"test $0 = x || sleep 1{mark}; cat")

    def stop(event: Happening) -> None:
        if isinstance(event, AttemptStarted):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paraval.execute.driver.STOP_GRACE_S", 0.2)
        with pytest.raises(KeyboardInterrupt):
            run(suite, tmp_path, heard=Heard(stop))
    assert_nothing_runs(mark)
    suite.write_text(suite.read_text().replace(f"test $0 = x || sleep 1{mark}; ", ""))
    cluster.hosts.clear()
    report = run(suite, tmp_path, resume="")
    assert [one.outcome for one in report.trials] == ["passed"] * 8


def test_a_run_without_any_node_left_ends_with_the_command_that_resumes_it(
    tmp_path: Path, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.runner.cluster.nodes.REST_S", 0.05)
    monkeypatch.setattr("paraval.runner.cluster.nodes.LOOK_EVERY_S", 0.1)
    suite = suite_in(
        tmp_path / "suite",
        count=4,
        more="workspace:\n  folder: template\n  setup: [sh, -c, 'exit 1']\n",
    )
    (tmp_path / "suite" / "template").mkdir()
    with pytest.raises(RunBrokenOffError, match=r"no node of the cluster is left \(node [ab]: "):
        run(suite, tmp_path)
    suite.write_text(suite.read_text().replace("exit 1", "exit 0"))
    report = run(suite, tmp_path, resume="")
    assert [one.outcome for one in report.trials] == ["passed"] * 4


def test_a_node_that_answers_for_judges_in_between_is_not_left_out_after_three_losses(
    tmp_path: Path, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.runner.cluster.nodes.REST_S", 0.05)
    cluster.names.remove("b")
    folder = tmp_path / "suite"
    suite = suite_in(folder, count=20)
    (folder / "scenario.yaml").write_text('answers: [{text: \'{"score": 1, "reason": "ok"}\'}]\n')
    suite.write_text(
        suite.read_text().replace(
            'graders: [{contains: "hello"}]',
            "models: {j: {provider: loopback, model: j, scenario: scenario.yaml}}\n"
            "graders: [{judge: {model: j, rubric: polite}}]",
        )
    )
    ended: list[str] = []

    def kill(event: Happening) -> None:
        if isinstance(event, TrialEnded):
            ended.append(event.trial.case.id)
            if len(ended) in (2, 5, 8):
                cluster.kill_host("a")

    heard = Heard(kill)
    report = run(suite, tmp_path, heard=heard)
    assert [one.outcome for one in report.trials] == ["passed"] * 20
    assert sum(said.startswith("Node a was lost") for said in heard.notices) == 3


def test_a_node_whose_cluster_does_not_answer_for_a_moment_gets_a_new_host(
    tmp_path: Path, cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.runner.cluster.nodes.LOOK_EVERY_S", 0.1)
    cluster.names.remove("b")
    suite = suite_in(tmp_path / "suite", count=6)
    nodes, refused = cluster.nodes, 0
    ended: list[str] = []

    async def answer() -> list[ClusterNode]:
        nonlocal refused
        task = asyncio.current_task()
        # The watch is not the one that asks at the wrong moment: it would end the run.
        if ended and not refused and "_serve" in str(task):
            refused += 1
            raise ClusterLostError("the head of the cluster does not answer")
        return await nodes()

    def kill(event: Happening) -> None:
        if isinstance(event, TrialEnded):
            ended.append(event.trial.case.id)
            if len(ended) == 1:
                cluster.kill_host("a")

    monkeypatch.setattr(cluster, "nodes", answer)
    report = run(suite, tmp_path, heard=Heard(kill))
    assert [one.outcome for one in report.trials] == ["passed"] * 6
    assert refused == 1
    assert len(cluster.hosts) == 2


def test_fewer_slots_count_for_each_node_and_a_trial_on_a_node_is_canceled(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    mark = f"{os.getpid()}.75"
    suite = suite_in(
        tmp_path / "suite",
        count=24,
        parallel=3,
        script=f'read line; test "$line" = "hello 0" && sleep 1{mark}; sleep 0.2; echo "$line"',
    )
    running: Counter[str | None] = Counter()
    nodes: dict[int, str | None] = {}
    changed: list[RunChanged] = []
    fewer: set[str | None] = set()
    most: Counter[str | None] = Counter()

    def watch(event: Happening) -> None:
        match event:
            case RunStarted():
                folders.append(Path(event.run.folder))
            case AttemptStarted(attempt=attempt):
                node = nodes[attempt.trial.index] = attempt.node
                running[node] += 1
                if node in fewer:
                    most[node] = max(most[node], running[node])
            case TrialEnded() | TrialSkipped():
                node = nodes[event.trial.index]
                running[node] -= 1
                if changed and running[node] == 0:
                    # What was running when it changed has ended.
                    fewer.add(node)
            case RunChanged():
                changed.append(event)

    def send(now: float) -> None:
        if (live := read_live(folders[0])) is None or len(sent) == 3:
            return
        sent.append(live)
        commands = [{"do": "parallel", "value": 1}, {"do": "cancel", "index": 0}]
        for command in commands[len(sent) - 1 : len(sent)]:
            send_command(folders[0], command)

    folders: list[Path] = []
    sent: list[dict[str, Any]] = []
    heard = Heard(watch)
    heard.tick = send  # type: ignore[method-assign]  # what a user does meanwhile
    report = run(suite, tmp_path, heard=heard)
    assert sent[0]["allowed"] == 6
    assert {one["node"] for one in sent[0]["running"]} == {"a", "b"}
    assert Counter(str(one.outcome) for one in report.trials) == {"passed": 23, "skipped": 1}
    assert set(most) == {"a", "b"}
    assert max(most.values()) == 1
    assert_nothing_runs(mark)


def test_functions_passed_as_objects_stay_here(tmp_path: Path, cluster: ProcessCluster) -> None:
    suite = paraval.Suite(
        name="objects",
        cases=[{"id": "a"}, {"id": "b"}],
        target=lambda case: f"{case.id} {os.getpid()}",
        graders=[{"contains": str(os.getpid())}],
    )
    report = paraval.run(suite, options=Options(store=tmp_path / "store", cluster="ray"))
    assert report.exit_code == 0
    assert nodes_of(report) == {None: 2}
    suite = paraval.Suite(
        name="mixed",
        cases=[{"id": "a"}],
        target={"command": ["true"]},
        graders=[lambda output, case: True],
    )
    with pytest.raises(RequestError, match="a function object, which nodes of a cluster"):
        paraval.run(suite, options=Options(store=tmp_path / "store", cluster="ray"))


# ---- files


def names_in(bundle: Bundle) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle.content)) as archive:
        return archive.getnames()


def test_nodes_get_the_suites_folder_without_secrets_stores_and_environments(
    tmp_path: Path,
) -> None:
    for name in ("app.py", "data/a.txt", "data/b.csv", ".env", ".env.local", "ignored.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in (".paraval/runs.db", "__pycache__/app.pyc", ".venv/bin/python", "results/x.db"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("*.bin\n")
    store = tmp_path / "results"
    expected = ["app.py", "data", "data/a.txt", "data/b.csv"]
    found = names_in(suite_bundle(tmp_path, (), store=store))
    assert found == [".gitignore", *expected, "ignored.bin"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    first = suite_bundle(tmp_path, (), store=store)
    assert names_in(first) == [".gitignore", "app.py", "data/a.txt", "data/b.csv"]
    # The same files are the same bundle, whenever they are packed.
    os.utime(tmp_path / "app.py", (1, 1))
    assert suite_bundle(tmp_path, (), store=store).header.name == first.header.name
    named = suite_bundle(tmp_path, ("data", "*.bin", ".env"), store=store)
    assert names_in(named) == ["data/a.txt", "data/b.csv", "ignored.bin"]


def test_a_folder_that_is_too_large_names_the_key_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.runner.cluster.files.MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("")
    with pytest.raises(RequestError) as raised:
        suite_bundle(tmp_path, (), store=tmp_path / "store")
    assert raised.value.hint is not None
    assert "cluster: {send: [...]}" in raised.value.hint


def test_paths_are_moved_and_similar_ones_are_not() -> None:
    folders = {"/home/me/suite": "/tmp/node/suite", "/home/me/suite/repo": "/cache/repo"}
    data = {
        "command": ["/home/me/suite/run.sh", "--at=/home/me/suite", "/home/me/suites/x"],
        "source": "/home/me/suite/repo",
        "list": [1, None, "see /home/me/suite/repo/a, not /srv/home/me/suite/a"],
    }
    assert moved(data, folders) == {
        "command": ["/tmp/node/suite/run.sh", "--at=/tmp/node/suite", "/home/me/suites/x"],
        "source": "/cache/repo",
        "list": [1, None, "see /cache/repo/a, not /srv/home/me/suite/a"],
    }


def test_of_large_files_as_many_come_back_as_fit(tmp_path: Path, cluster: ProcessCluster) -> None:
    suite = suite_in(
        tmp_path / "suite",
        count=1,
        script="cat; head -c 50000000 /dev/zero > $0/a; head -c 50000000 /dev/zero > $0/b;"
        " ln -s /etc/passwd $0/c",
    )
    suite.write_text(suite.read_text().replace("passwd $0/c'", "passwd $0/c', '{folder}'"))
    report = run(suite, tmp_path)
    (trial,) = report.trials
    assert "1 file too large, or too many, to be sent from the node" in trial.result.notes
    left = [*(tmp_path / "store" / "runs" / report.run.id).rglob("files/*")]
    assert [path.name for path in left] == ["a"]


def test_garbage_of_a_target_comes_back_as_it_does_here(
    tmp_path: Path, cluster: ProcessCluster
) -> None:
    suite = suite_in(tmp_path / "suite", count=2)
    garbage = (
        r"printf 'hello \377\000\355\240\200'; mkdir $0/d; "
        r"""printf x > "$0/$(printf 'a\377b')" """
    )
    command = f"[sh, -c, {json.dumps(garbage)}, '{{folder}}']"
    suite.write_text(suite.read_text().replace("[sh, -c, 'cat']", command))
    there, here = run(suite, tmp_path), run(suite, tmp_path, cluster=False)
    assert told(there) == told(here)
    assert texts_of(there) == texts_of(here)
    left = [
        sorted(os.fsencode(path.name) for path in folder.rglob("files/*") if path.is_file())
        for folder in (tmp_path / "store" / "runs" / one.run.id for one in (there, here))
    ]
    assert left[0] == left[1] == [b"a\xffb"] * 2


def test_a_host_that_hears_nothing_ends_itself_and_what_it_runs(tmp_path: Path) -> None:
    mark = f"{os.getpid()}.75"
    program = f"""
import asyncio, json
from paraval.codec import to_data
from paraval.records import Case, CommandTarget, Grading, Workspace
from paraval.runner.cluster import host
from paraval.runner.cluster.backend import Message
host.LEASE_S = 2.0
async def main():
    here = host.Host()
    job = host.Job(run_id="r", node="n", name="s", source=None, grading=Grading(),
                   workspace=Workspace(), parallel=2, auto=False)
    target = CommandTarget(command=("sleep", "6{mark}"), cwd="/")
    opening = {{"job": to_data(job), "targets": [host.target_data(target)]}}
    await here.call("open", Message(text=json.dumps(opening)))
    attempt = dict(index=0, number=1, key="k", case=to_data(Case(id="a")), variant={{}},
                   repeat=1, target=0, folder="artifacts/a")
    await here.call("submit", Message(text=json.dumps({{"attempts": [attempt]}})))
    await asyncio.sleep(60)
asyncio.run(main())
"""
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        timeout=50,
        env={**os.environ, "PARAVAL_SCRATCH": str(tmp_path)},
    )
    assert ended.returncode == 1
    assert time.monotonic() - began < 40
    assert_nothing_runs(f"6{mark}")
