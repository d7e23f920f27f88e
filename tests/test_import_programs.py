"""Suites and runs from other programs: repo-search, augbench, merged pull requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paraval import load_report
from paraval.errors import RequestError
from paraval.importers.results import ImportedTrial, store_run
from paraval.records import Case, Grade, Outcome
from tests.conftest import Paraval, WriteSuite

WHEN = 1_768_000_000.0  # 2026-01-09


def results(*, passed: int = 3, of: int = 4) -> list[ImportedTrial]:
    """Results of a program with one axis, in the order in which it reports them."""
    return [
        ImportedTrial(
            case=Case(id=f"c{number}", input=f"question {number}", expect="yes"),
            variant={"mode": mode},
            outcome=Outcome.PASSED if number < passed else Outcome.FAILED,
            grades=(Grade(grader="equals", score=float(number < passed), passed=number < passed),),
            output="yes" if number < passed else "no",
            duration_s=2.0,
            cost_usd=0.01,
            usage={"input_tokens": 10, "output_tokens": 5},
        )
        for number in range(of)
        for mode in ("with", "without")
    ]


SUITE = """
    name: old
    cases:
      - {id: c0, input: question 0, expect: "yes"}
      - {id: c1, input: question 1, expect: "yes"}
      - {id: c2, input: question 2, expect: "yes"}
      - {id: c3, input: question 3, expect: "yes"}
    matrix: {mode: [with, without]}
    target: {command: [echo, "yes"]}
    graders: [equals]
"""


# ---- results as runs


def test_results_of_another_program_are_a_run_like_any_other(
    tmp_path: Path, paraval: Paraval
) -> None:
    store = tmp_path / ".paraval"
    stored = store_run(results(), name="old", source="a file", when=WHEN, store=store)
    assert stored.is_new
    assert stored.run.id.startswith("20260109-")
    assert (stored.run.started_at, stored.run.wall_s) == (WHEN, 16.0)
    report = load_report(stored.run.id, store=store)
    assert (report.summary.passed, report.summary.failed) == (6, 2)
    assert report.summary.cost_usd == pytest.approx(0.08)
    text = paraval("report", "last").stdout
    assert "Imported from a file." in text
    assert "75" in text
    shown = paraval("show", "last", "--case", "c3")
    assert shown.returncode == 0, shown.stderr
    assert "question 3" in shown.stdout
    listed = json.loads(paraval("runs", "--json").stdout)
    assert listed[0]["kind"] == "imported"


def test_the_same_results_are_stored_once(tmp_path: Path) -> None:
    first = store_run(results(), name="old", source="a file", when=WHEN, store=tmp_path)
    again = store_run(results(), name="old", source="a file", when=WHEN, store=tmp_path)
    other = store_run(results(passed=2), name="old", source="a file", when=WHEN, store=tmp_path)
    assert again.run.id == first.run.id
    assert not again.is_new
    assert other.run.id != first.run.id


def test_an_imported_run_is_not_resumed(tmp_path: Path, paraval: Paraval) -> None:
    stored = store_run(
        results(), name="old", source="a file", when=WHEN, store=tmp_path / ".paraval"
    )
    ended = paraval("resume", stored.run.id)
    assert ended.returncode == 2
    assert "was imported from another program, and cannot be resumed" in ended.stderr


def test_a_new_run_is_compared_with_an_imported_one_and_old_answers_are_regraded(
    tmp_path: Path, write: WriteSuite, paraval: Paraval
) -> None:
    stored = store_run(
        results(), name="old", source="a file", when=WHEN, store=tmp_path / ".paraval"
    )
    write("suite.yaml", SUITE)
    assert paraval("run", "suite.yaml").returncode == 0
    compared = json.loads(paraval("compare", stored.run.id, "last", "--json").stdout)
    assert compared["comparison"]["cases"] == 4
    assert compared["comparison"]["turned"]["mended"] == ["c3"]
    assert [one["variant"]["mode"] for one in compared["variants"]] == ["with", "without"]
    regraded = paraval("regrade", stored.run.id, "suite.yaml")
    assert "Regrading 8 answers" in regraded.stderr + regraded.stdout
    assert regraded.returncode == 1


def test_results_with_the_same_number_are_refused(tmp_path: Path) -> None:
    case = Case(id="a")
    same = [ImportedTrial(case=case, repeat=1, outcome=Outcome.PASSED)] * 2
    with pytest.raises(RequestError, match="two results of case 'a' in the same variant"):
        store_run(same, name="old", source="a file", store=tmp_path)
    counted = [ImportedTrial(case=case, outcome=Outcome.PASSED)] * 2
    assert store_run(counted, name="old", source="a file", store=tmp_path).run.trials == 2
