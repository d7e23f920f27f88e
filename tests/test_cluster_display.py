"""What users see of a cluster: its options, the suite's key, progress, reports and checks."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import paraval as public
from paraval.errors import RequestError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import AttemptResult, Failure, Outcome
from paraval.report.formats.json_schema import report_schema
from paraval.report.report_file import source_from_file
from paraval.settings import Options, Selection
from paraval.store.store import Store
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
    lost = Failure(kind=Outcome.INFRA_ERROR, message="node b was lost")
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
    assert "Retried: 1" in paraval("report", stored, "-v").stdout


def test_reports_for_programs_have_the_node_of_each_trial_and_can_be_read_back(
    stored: str, paraval: Paraval, folder: Path
) -> None:
    paraval("report", stored, "-o", "report.json", "-o", "report.csv")
    document = json.loads((folder / "report.json").read_text())
    jsonschema.validate(document, report_schema())
    assert [trial["node"] for trial in document["trials"]] == ["a", "a", "b", None]
    assert document["summary"]["nodes"] == {"a": 2, "b": 1}
    assert document["trials"][1]["retry_errors"][0]["message"] == "node b was lost"
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


def test_the_timeline_of_the_page_groups_attempts_by_node(
    stored: str, paraval: Paraval, folder: Path
) -> None:
    paraval("report", stored, "-o", "report.html")
    page = (folder / "report.html").read_text()
    timeline = re.search(r'<figure class="chart timeline">.*?</figure>', page, re.DOTALL)
    assert timeline is not None
    names = re.findall(r'<p class="node">(.*?)</p>', timeline[0])
    assert names == ["this machine", "a", "b"]
    assert "in parallel, on 2 nodes, " in timeline[0]
    assert ", on b</title>" in timeline[0]
    assert "node: a" in page


def test_a_run_on_one_machine_shows_nothing_of_nodes(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    ran = paraval("run", "suite.yaml", "-o", "report.html", "-o", "report.csv")
    assert ran.returncode == 0
    assert "node" not in ran.stdout + (folder / "report.csv").read_text()
    assert '<p class="node">' not in (folder / "report.html").read_text()
