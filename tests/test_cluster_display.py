"""What users see of a cluster: its options, the suite's key, progress, reports and checks."""

from __future__ import annotations

from pathlib import Path

import pytest

import paraval as public
from paraval.errors import RequestError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.settings import Options, Selection
from tests.conftest import Paraval, WriteSuite

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
