"""The time of a trial is its target's: graders, judges included, take time of their own."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paraval.testing import Loopback, loopback
from tests.conftest import Paraval, WriteSuite

TARGET_S, JUDGE_S = 0.05, 0.5
BETWEEN_S = 0.4
"""Longer than a target takes, shorter than a judge."""


@pytest.fixture
def target() -> Iterator[Loopback]:
    with loopback(latency=TARGET_S) as server:
        yield server


@pytest.fixture
def judge() -> Iterator[Loopback]:
    verdict = json.dumps({"reason": "It greets.", "score": 1.0})
    with loopback(answers=[{"text": verdict}], latency=JUDGE_S) as server:
        yield server


def entry(server: Loopback) -> str:
    asked = {"provider": "openai", "base_url": server.base_url, "model": "sim"}
    return json.dumps({**asked, "api_key_env": "PATH"})


@pytest.fixture
def judged_suite(target: Loopback, judge: Loopback, write: WriteSuite) -> None:
    """Only the answers of `good` reach the judge."""
    write(
        "suite.yaml",
        f"""
        models: {{m: {entry(target)}, j: {entry(judge)}}}
        matrix: {{style: [good, bad]}}
        cases: [{{id: a, input: one}}, {{id: b, input: two}}, {{id: c, input: three}}]
        target: {{chat: {{model: m, prompt: "{{input}} {{style}}"}}}}
        graders: [{{contains: good}}, {{judge: {{model: j, rubric: Is it polite?}}}}]
        fail_under: 0
        """,
    )


def report_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return document


@pytest.mark.usefixtures("judged_suite")
def test_a_slow_judge_makes_no_model_slower_asked_now_or_cached(
    paraval: Paraval, folder: Path
) -> None:
    for _ in range(2):
        outputs = ("-o", "report.json", "-o", "report.csv")
        ended = paraval("run", "suite.yaml", "--progress", "lines", "-v", *outputs)
        assert ended.returncode == 0, ended.stderr
        document = report_of(folder)
        good, bad = document["summary"]["variants"]
        assert (good["passed"], bad["failed"]) == (3, 3)
        for variant in (good, bad):
            assert TARGET_S < variant["median_s"] <= variant["p95_s"] < BETWEEN_S
        compared = paraval("compare", "style=good", "style=bad", "--json")
        assert 0.3 < json.loads(compared.stdout)["comparison"]["seconds"]["ratio"] < 3
        rows = csv.DictReader((folder / "report.csv").read_text().splitlines())
        for trial, row in zip(document["trials"], rows, strict=True):
            assert 0 < trial["target_s"] <= trial["total_s"]
            assert TARGET_S < trial["target_s"] + (trial["cached_s"] or 0) < BETWEEN_S
            shown = float(row["target_s"]) + float(row["cached_s"] or 0)
            assert TARGET_S < shown < BETWEEN_S
    runs = json.loads(paraval("history", "suite.yaml", "--json").stdout)["runs"]
    assert all(TARGET_S < run["median_s"] < BETWEEN_S for run in runs)


def test_a_judge_asked_again_adds_nothing_to_the_targets_time(
    target: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """The second attempt only judges: the answer is there."""
    verdict = json.dumps({"reason": "It greets.", "score": 1.0})
    refusal = {"kind": "status", "status": 429, "retry_after": 0.1, "first": 1}
    with loopback(answers=[{"text": verdict}], latency=JUDGE_S, faults=[refusal]) as judges:
        write(
            "suite.yaml",
            f"""
            models: {{m: {entry(target)}, j: {entry(judges)}}}
            cases: [{{id: a, input: one}}]
            target: {{chat: {{model: m, prompt: "{{input}}"}}}}
            graders: [{{judge: {{model: j, rubric: Is it polite?}}}}]
            """,
        )
        ended = paraval("run", "suite.yaml", "--progress", "json", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    [trial] = report_of(folder)["trials"]
    assert trial["attempts"] == 2
    assert TARGET_S < trial["target_s"] < BETWEEN_S < JUDGE_S < trial["total_s"]
    assert report_of(folder)["summary"]["median_s"] == trial["target_s"]
    events = [json.loads(line) for line in ended.stderr.splitlines()]
    [last] = [event for event in events if event["event"] == "trial_ended"]
    assert (last["target_s"], last["duration_s"] > JUDGE_S) == (0.0, True)


def shown_s(text: str) -> float:
    """`12 ms`, `1.2 s`."""
    number, unit = text.split()
    return float(number) / {"ms": 1000, "s": 1}[unit]


def test_a_slow_command_that_grades_is_in_the_work_but_not_in_the_time(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """A run that was stored before the target's time was measured shows the whole."""
    write(
        "suite.yaml",
        f"""
        cases: [{{id: a, input: hello}}]
        target: {{command: [echo, "{{input}}"]}}
        graders: [{{command: [sleep, "{JUDGE_S}"]}}]
        """,
    )
    outputs = ("-o", "report.json", "-o", "report.html")
    ended = paraval("run", "suite.yaml", "--progress", "lines", "-v", *outputs)
    assert ended.returncode == 0, ended.stderr
    [line] = [line for line in ended.stderr.splitlines() if re.search(r"ms  a$", line)]
    assert shown_s(re.findall(r"[\d.]+ m?s\b", line)[0]) < BETWEEN_S
    summary = report_of(folder)["summary"]
    assert summary["median_s"] < BETWEEN_S < JUDGE_S < summary["serial_s"]
    page = (folder / "report.html").read_text()
    [listed] = re.findall(r'<span class="figures">([\d.]+ m?s)', page)
    assert shown_s(listed) < BETWEEN_S
    [ran] = re.findall(r"Up to 1 at once, [\d.]+ on average, within ([\d.]+ m?s)\.</desc>", page)
    assert shown_s(ran) > JUDGE_S, "how long a slot was taken"

    (database,) = (folder / ".paraval" / "runs").glob("*/run.db")
    with closing(sqlite3.connect(database)) as stored, stored:
        stored.execute("UPDATE attempt SET content = json_remove(content, '$.target_s')")
    paraval("report", "last", "-o", "report.json")
    [trial] = report_of(folder)["trials"]
    assert trial["target_s"] is None
    assert report_of(folder)["summary"]["median_s"] == trial["total_s"] > JUDGE_S
