"""The examples: offline, they print what their pages show. Most are templates of `paraval init`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from tests.child_pytest import run_pytest
from tests.conftest import Paraval

EXAMPLES = Path(__file__).parents[1] / "examples"
VARYING = re.compile(
    r"\d{8}-\d{6}-[0-9a-f]{4}|(?:\d[\d.,]* (?:ms|s|min|h)\b ?)+|\d[\d.,]*(?= times|×)"
)


def run_example(name: str, folder: Path, paraval: Paraval) -> dict[str, Any]:
    """Its report, after it printed what its page shows."""
    template = (EXAMPLES / name).resolve().name
    assert paraval("init", "--template", template).returncode == 0
    ended = paraval("run", "-j", "6", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert steady(shown_by(name)) == steady(ended.stdout)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    assert report["comparisons"]
    return report


def shown_by(name: str) -> str:
    """What the example's page says that it prints."""
    page = (EXAMPLES / name / "README.md").read_text()
    shown = page.partition("```console\n")[2].partition("```")[0]
    return shown.partition("\n")[2]


def steady(text: str) -> list[str]:
    """Its lines, without what differs from run to run and from machine to machine."""
    lines = (" ".join(VARYING.sub("# ", line).split()) for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("Memory:", "time of"))]


def test_with_the_tool_it_is_called_in_every_trial_and_without_it_in_none(
    folder: Path, paraval: Paraval
) -> None:
    report = run_example("with-and-without-mcp", folder, paraval)
    with_it, without = report["summary"]["variants"]
    assert (with_it["passed"], without["passed"]) == (8, 4)
    search = with_it["agents"]["mcp"]["code-search"]
    assert (search["handed"], search["called"], search["calls"]) == (8, 8, 8)
    assert without["agents"]["mcp"] == {}


def test_each_agent_is_judged_by_its_own_change(folder: Path, paraval: Paraval) -> None:
    """Who is careful mends what he was told too little of; nobody passes who changes the check."""
    report = run_example("agents-x-prompts", folder, paraval)
    passed = {
        (trial["variant"]["agent"], trial["variant"]["words"], trial["outcome"])
        for trial in report["trials"]
    }
    assert passed == {
        ("careful", "precise", "passed"),
        ("careful", "terse", "passed"),
        ("careful", "pressing", "failed"),
        ("hasty", "precise", "passed"),
        ("hasty", "terse", "failed"),
        ("hasty", "pressing", "failed"),
    }
    changed = {
        trial["variant"]["words"]: [file["path"] for file in trial["change"]["files"]]
        for trial in report["trials"]
    }
    assert changed == {"precise": ["stats.py"], "terse": ["stats.py"], "pressing": ["check.py"]}
    shown = paraval("diff", "last", "--case", "median", "--variant", "agent=hasty", "--stat")
    assert "check.py" in shown.stdout


def test_all_models_run_the_same_tests_each_with_its_own_limits(
    folder: Path, paraval: Paraval
) -> None:
    """One model is rate limited, and one never answers one of the messages."""
    shutil.copytree(EXAMPLES / "models-x-tests", folder, dirs_exist_ok=True)
    ended = paraval("run", "--models", "all", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert steady(shown_by("models-x-tests")) == steady(ended.stdout)
    trials = json.loads((folder / "report.json").read_text())["trials"]
    not_passed = {
        (trial["case"], trial["variant"]["model"]): trial["outcome"]
        for trial in trials
        if trial["outcome"] != "passed"
    }
    assert not_passed == {
        ("smoke", "quick"): "failed",
        ("joke", "quick"): "failed",
        ("refund", "stalling"): "timeout",
    }
    assert sum(trial["retries"].get("rate_limited", 0) for trial in trials) == 2
    assert "of $0.10)" in ended.stderr
    chosen = paraval("run", env={"TEST_MODELS": "thorough,q*"})
    assert "Gate passed: 83.3% (10/12)" in chosen.stdout


def test_tests_with_a_client_of_their_own_end_in_workers_as_one_after_another(
    tmp_path: Path,
) -> None:
    shutil.copytree(EXAMPLES / "pytest-own-client", tmp_path / "tests")
    ends = []
    for flags in ([], ["--parallel", "15"]):
        done = run_pytest(tmp_path / "tests", "-p", "anyio", "-v", "--junitxml=ends.xml", *flags)
        assert "1 failed, 46 passed" in done.stdout, done.stdout + done.stderr
        cases = ET.parse(tmp_path / "tests" / "ends.xml").iter("testcase")
        ends.append([(case.get("name"), [child.tag for child in case]) for case in cases])
    assert ends[0] == ends[1]


def test_the_examples_programs_stay_small() -> None:
    """They are there to be read."""
    for program in EXAMPLES.rglob("*.py"):
        assert len(program.read_text().splitlines()) < 100, program


CHECKED = """
from toposort import CycleError, topological_sort
assert topological_sort(["b", "a"], [("b", "a")]) == ["b", "a"]
try:
    topological_sort(["a"], [("a", "a")])
except CycleError:
    raise SystemExit(0)
raise SystemExit("a cycle is accepted")
"""
TIMED = """
s=1.0; ! grep -q "needs = dict" topo*.py || s=0.5; ! grep -q heapq topo*.py || s=0.1
printf '{"__total__": %s}' $s > bench.json
echo sorted
"""


def test_functions_that_ask_a_model_drive_the_race_of_the_example(
    folder: Path, paraval: Paraval
) -> None:
    """With a test and a benchmark of milliseconds in place of pytest and of measured times."""
    assert paraval("init", "--template", "race").returncode == 0
    keys = {
        "repo": "repository",
        "test": {"command": ["{python}", "-c", CHECKED], "canary": False},
        "bench": {"command": ["sh", "-c", TIMED], "metric": "bench.json", "blocks": 3, "quiet": 0},
    }
    (folder / "race.yaml").write_text(json.dumps({"race": keys}))
    program = [sys.executable, "integrate.py"]
    ended = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, fixed, refined, cost, *patch = ended.stdout.splitlines()
    assert first.startswith("first  failed  ")
    assert fixed.startswith("fixed  accepted  ")
    assert refined.startswith("refined  won  10.00–10.00× as fast")
    assert float(cost.removeprefix("cost: $")) > 0
    assert "+import heapq" in patch
