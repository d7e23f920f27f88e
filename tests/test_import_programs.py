"""Suites and runs from other programs: repo-search, augbench, merged pull requests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paraval import load_report
from paraval.errors import NotWrittenError, RequestError, SuiteError
from paraval.importers import augbench, pull_requests, repo_search
from paraval.importers.imported import ImportedSuite, write_suite
from paraval.importers.results import ImportedTrial, store_run
from paraval.records import Case, Grade, Outcome
from tests.conftest import Paraval, WriteSuite
from tests.repositories import make_repository, run_git

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
    assert regraded.returncode == 0


def test_results_with_the_same_number_are_refused(tmp_path: Path) -> None:
    case = Case(id="a")
    same = [ImportedTrial(case=case, repeat=1, outcome=Outcome.PASSED)] * 2
    with pytest.raises(RequestError, match="two results of case 'a' in the same variant"):
        store_run(same, name="old", source="a file", store=tmp_path)
    counted = [ImportedTrial(case=case, outcome=Outcome.PASSED)] * 2
    assert store_run(counted, name="old", source="a file", store=tmp_path).run.trials == 2


# ---- repo-search

FAKE_CLAUDE = Path(__file__).parent / "fake_agents" / "claude.py"

CASE = {
    "id": "navigate-001",
    "category": "navigate",
    "description": "Find function definition",
    "prompt": "say math.go:8,similarity",
    "ground_truth": {
        "files": ["math.go"],
        "symbols": ["similarity"],
        "lines": {"math.go": [8]},
        "content": None,
    },
    "difficulty": "easy",
}


@pytest.fixture
def agent_programs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose `claude` does what its prompt says."""
    programs = tmp_path_factory.mktemp("programs")
    for name, line in {
        "claude": f'exec {sys.executable} {FAKE_CLAUDE} "$@"',
        "python": f'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {sys.executable} "$@"',
        "codetect": "exit 0",
        "repo-search": "exit 0",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.fixture
def put(folder: Path) -> Callable[[str, str], Path]:
    """Writes a file, and the folders above it."""

    def write(name: str, text: str) -> Path:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        return folder / name

    return write


Put = Callable[[str, str], Path]


def case_lines(*cases: dict[str, Any]) -> str:
    return "// navigation\n\n" + "".join(json.dumps(case) + "\n" for case in cases)


def test_cases_of_repo_search_become_a_suite_with_both_modes(
    folder: Path, put: Put, paraval: Paraval, agent_programs: dict[str, str]
) -> None:
    other = {**CASE, "id": "navigate-002", "prompt": "say other.go", "note": "mine"}
    put("evals/cases/navigate.jsonl", case_lines(CASE, other))
    make_repository(folder)
    imported = paraval("import", "repo-search", "evals/cases", env=agent_programs)
    assert imported.returncode == 0, imported.stderr
    assert "Not honored (1 key):\n  Bash(rg:*)" in imported.stderr
    assert "Next: " in imported.stderr
    again = paraval("import", "repo-search", "evals/cases", env=agent_programs)
    assert "unchanged" in again.stderr
    ran = paraval("run", "repo-search/suite.yaml", "-o", "new.json", env=agent_programs)
    assert ran.returncode == 0, ran.stderr
    trials = json.loads((folder / "new.json").read_text())["trials"]
    assert [(t["case"], t["variant"]["mode"], t["outcome"]) for t in trials] == [
        ("navigate-001", "with_mcp", "passed"),
        ("navigate-001", "without_mcp", "passed"),
        ("navigate-002", "with_mcp", "failed"),
        ("navigate-002", "without_mcp", "failed"),
    ]
    scores = {grade["grader"]: grade["score"] for grade in trials[0]["grades"]}
    assert scores == {"recall": 1.0, "precision": 1.0}
    assert {grade["grader"]: grade["score"] for grade in trials[2]["grades"]} == {
        "recall": 0.0,
        "precision": 0.0,
    }


def test_a_repository_s_own_cases_come_first_and_repeated_ids_get_their_file_s_name(
    folder: Path, put: Put
) -> None:
    put("evals/cases/a.jsonl", case_lines(CASE))
    put(".codetect/evals/cases/one/nav.jsonl", case_lines(CASE, {**CASE, "id": "only"}))
    put(".codetect/evals/cases/two/nav.jsonl", case_lines(CASE))
    source = repo_search.find_cases(folder)
    assert source == folder / ".codetect/evals/cases"
    imported = repo_search.read_repo_search(source, repository=folder, folder=folder / "to")
    lines = str(imported.files[repo_search.CASES_FILE]).splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    assert ids == ["one/nav/navigate-001", "only", "two/nav/navigate-001"]


def test_damaged_cases_are_reported_with_file_and_line(folder: Path, put: Put) -> None:
    text = case_lines(CASE, {**CASE, "prompt": ""}, {**CASE, "ground_truth": {}})
    path = put("cases.jsonl", text + "{half\n")
    with pytest.raises(SuiteError) as caught:
        repo_search.read_repo_search(path, repository=folder, folder=folder / "to")
    message = str(caught.value)
    assert "cases.jsonl:4: prompt: must be a text" in message
    assert "cases.jsonl:5: ground_truth: is empty" in message
    assert "cases.jsonl:6: not valid JSON" in message


def old_results(**others: Any) -> dict[str, Any]:
    """A results file of January 2026: nanoseconds, nulls, and no costs."""

    def verdict(recall: float) -> dict[str, Any]:
        missed = ["math.go"] if recall < 1 else None
        scores = {"precision": recall, "recall": recall, "f1_score": recall}
        return {**scores, "files_found": None, "files_missed": missed, "symbols_missed": None}

    def raw(case: str, mode: str, **others: Any) -> dict[str, Any]:
        done = {"success": True, "output": "similarity", "duration_ns": 10_284_239_666}
        return {"test_case_id": case, "mode": mode, **done, "tokens_used": 0, **others}

    killed = {"success": False, "output": "", "error": "signal: killed: "}
    return {
        "timestamp": "2026-01-09T15:16:44.163705-05:00",
        "config": {"repo_path": "/x", "parallel": 1, "timeout": 300_000_000_000},
        "summary": {"total_cases": 2, "with_mcp": {"avg_accuracy": 0.5, "avg_tokens": 0}},
        "results": [
            {"test_case_id": "navigate-001", "with_mcp": verdict(1), "without_mcp": verdict(0)},
            {"test_case_id": "navigate-002", "with_mcp": verdict(0.5), "without_mcp": verdict(0)},
        ],
        "raw_results": [
            raw("navigate-001", "with_mcp", cost_usd=0.02, input_tokens=3, cache_read_tokens=7),
            raw("navigate-001", "without_mcp"),
            raw("navigate-002", "with_mcp"),
            raw("navigate-002", "without_mcp", **killed, duration_ns=300_000_000_001),
        ],
        **others,
    }


def test_old_results_of_repo_search_compare_with_a_new_run(
    folder: Path, put: Put, paraval: Paraval, agent_programs: dict[str, str]
) -> None:
    put("evals/cases/navigate.jsonl", case_lines(CASE, {**CASE, "id": "navigate-002"}))
    make_repository(folder)
    put("old.json", json.dumps(old_results()))
    words = ("import", "repo-search", "--results", "old.json")
    imported = paraval(*words, env=agent_programs)
    assert imported.returncode == 0, imported.stderr
    assert "4 results stored as run 20260109-201644" in imported.stderr
    assert "already stored as run" in paraval(*words, env=agent_programs).stderr
    old = load_report("last", store=folder / ".paraval")
    found = {(t.case_id, t.variant["mode"]): t.result for t in old.trials}
    assert found["navigate-001", "with_mcp"].outcome is Outcome.PASSED
    assert found["navigate-001", "without_mcp"].score == 0
    assert found["navigate-002", "with_mcp"].score == 0.5
    assert found["navigate-002", "without_mcp"].outcome is Outcome.TIMEOUT
    first = found["navigate-001", "with_mcp"]
    assert first.duration_s == pytest.approx(10.28, abs=0.01)
    assert first.spend is not None
    assert first.spend.usage["input_tokens"] == 10
    assert first.spend.cost_usd == 0.02
    ran = paraval("run", "repo-search/suite.yaml", env=agent_programs)
    assert ran.returncode == 0, ran.stderr
    compared = json.loads(paraval("compare", old.run.id, "last", "--json").stdout)["comparison"]
    assert compared["cases"] == 2
    assert compared["rate_subject"] == 1.0


def test_results_without_raw_rows_keep_their_scores(folder: Path, put: Put) -> None:
    put("cases.jsonl", case_lines(CASE))
    path = put("old.json", json.dumps(old_results(raw_results=None)))
    suite = repo_search.read_repo_search(
        folder / "cases.jsonl", repository=folder, folder=folder / "to"
    )
    trials, when = repo_search.read_results(path, suite)
    assert [trial.grades[0].score for trial in trials] == [1, 0, 0.5, 0]
    assert when is not None
    empty = put("empty.json", "{}")
    with pytest.raises(SuiteError, match=r"empty.json:1: has no results"):
        repo_search.read_results(empty, suite)


# ---- pull requests


def history(folder: Path) -> dict[str, str]:
    """A repository with a squashed pull request, a merged one, and others that do not count."""
    (folder / "shape.py").write_text("def area(r):\n    return 0\n")
    (folder / "notes.md").write_text("Shapes.\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_shape.py").write_text("def test_nothing():\n    pass\n")
    (folder / "tests" / "test_old.py").write_text("from shape import missing\n")
    base = make_repository(folder)
    run_git(folder, "switch", "-q", "-c", "work")
    (folder / "shape.py").write_text("def area(r):\n\treturn 3 * r * r\n")
    (folder / "tests" / "test_shape.py").write_text(
        "from shape import area\n\n\ndef test_area():\n    assert area(2) == 12\n"
    )
    (folder / "tests" / "test_old.py").unlink()
    run_git(folder, "commit", "-qam", "x")
    run_git(folder, "switch", "-q", "main")
    words = ("Merge pull request #7 from me/work", "Area of a circle", "Use 3 for pi.")
    run_git(folder, "merge", "-q", "--no-ff", "work", *[x for one in words for x in ("-m", one)])
    merged = run_git(folder, "rev-parse", "HEAD")
    (folder / "notes.md").write_text("Shapes, and more.\n")
    run_git(folder, "commit", "-qam", "One file only (#8)")
    (folder / "notes.md").write_text("Shapes, and much more.\n")
    (folder / "shape.py").write_text("def area(r):\n\treturn 3 * r * r\n\n\nPI = 3\n")
    run_git(folder, "commit", "-qam", "Add PI (#9)\n\nWith a note.\n\nCo-authored-by: you <y@x>")
    return {"base": base, "merged": merged}


def test_merged_pull_requests_become_cases_with_hidden_tests(
    folder: Path, paraval: Paraval, agent_programs: dict[str, str]
) -> None:
    commits = history(folder)
    imported = paraval("import", "pull-requests", "--last", "5", env=agent_programs)
    assert imported.returncode == 0, imported.stderr
    assert "2 pull requests: pr-7, pr-9." in imported.stderr
    assert "Without tests of their own: pr-9." in imported.stderr
    cases = yaml.safe_load((folder / "pull-requests" / "cases.yaml").read_text())
    assert [case["id"] for case in cases] == ["pr-7", "pr-9"]
    assert cases[0]["input"] == "Area of a circle\n\nUse 3 for pi."
    assert cases[1]["input"] == "Add PI\n\nWith a note."
    assert cases[0]["workspace"] == {"ref": commits["base"]}
    assert cases[1]["workspace"]["ref"] != commits["merged"]
    assert "test_shape" not in cases[0]["expect"]["patch"]
    assert "+    return 3 * r * r" in cases[0]["expect"]["patch"]
    # An agent that makes one change well, and nothing of the other.
    agent = folder / "agent.py"
    agent.write_text(
        "import pathlib, sys\n"
        "print('done')\n"
        "if 'circle' in sys.argv[1]:\n"
        "    assert 'area(2)' not in pathlib.Path('tests/test_shape.py').read_text()\n"
        "    pathlib.Path('shape.py').write_text('def area(r):\\n    return 3 * r * r\\n')\n"
    )
    suite = folder / "pull-requests" / "suite.yaml"
    text = suite.read_text().replace(
        "agent: claude-code",
        f"agent: custom\n  command: [{sys.executable}, {agent}, '{{prompt}}']",
    )
    suite.write_text(text)
    ran = paraval("run", str(suite), "-o", "new.json", env=agent_programs)
    trials = json.loads((folder / "new.json").read_text())["trials"]
    grades = [{one["grader"]: one["score"] for one in trial["grades"]} for trial in trials]
    assert grades == [{"similarity": 1.0, "tests": 1.0}, {"similarity": 0.0}], ran.stderr
    assert [trial["outcome"] for trial in trials] == ["passed", "failed"]


def test_a_history_without_pull_requests_is_said_to_have_none(
    folder: Path, paraval: Paraval
) -> None:
    (folder / "a").write_text("a")
    make_repository(folder)
    ended = paraval("import", "pull-requests")
    assert ended.returncode == 2
    assert "no merged pull requests" in ended.stderr


def test_tests_that_nobody_knows_how_to_run_need_a_command(folder: Path) -> None:
    for number in range(2):
        (folder / "a.pl").write_text(f"print {number};\n")
        (folder / "spec").mkdir(exist_ok=True)
        (folder / "spec" / "a.t").write_text(f"ok {number};\n")
        make_repository(folder) if number == 0 else run_git(folder, "commit", "-qam", "B (#2)")
    asked = pull_requests.PullRequestOptions()
    with pytest.raises(RequestError, match="how do the tests of pr-2 run"):
        pull_requests.read_pull_requests(folder, folder=folder / "to", asked=asked)
    asked = pull_requests.PullRequestOptions(test_command="prove {tests}")
    suite = pull_requests.read_pull_requests(folder, folder=folder / "to", asked=asked)
    case = yaml.safe_load(str(suite.files["cases.yaml"]))[0]
    assert case["graders"][0]["command"]["command"] == ["prove", "spec/a.t"]


# ---- augbench


FIRST = {
    "num_prompts": 2,
    "prompts": ["prompt1.md", "prompt2.md"],
    "assistants": ["Claude Code", "Augment CLI"],
    "runs_per_prompt": 3,
    "parallel_runs": 4,
    "output_filename": "bench",
    "repo_path": "./",
    "metrics": ["response_time", "output_quality", "output_format_success", "steps_per_task"],
    "metrics_config": {
        "agent_success": {"threshold": 6, "mode": "quality"},
        "output_format": {"regex": "^done"},
    },
}


def test_settings_of_the_first_augbench_become_a_suite(folder: Path, put: Put) -> None:
    put("prompt1.md", "Write docs.\n")
    put("prompt2.md", "Write tests.\n")
    path = put("settings.json", json.dumps(FIRST))
    imported = augbench.read_augbench(path, folder=folder / "augbench")
    suite = imported.suite
    assert suite["matrix"]["agent"] == {
        "Claude Code": {"agent": "claude-code"},
        "Augment CLI": {"agent": "auggie"},
    }
    assert suite["repeats"] == 3
    assert suite["limits"] == {"parallel": 8}
    assert suite["workspace"] == {"git": ".."}
    quality, shape = suite["graders"]
    assert quality["judge"]["pass_at"] == 0.6
    assert shape == {"regex": {"name": "output_format_success", "pattern": "^done"}}
    assert [one.key for one in imported.not_honored] == [
        "num_prompts",
        "output_filename",
        "metrics: steps_per_task",
        "LLM_PROVIDER, LLM_MODEL",
    ]
    assert imported.files["prompts/prompt1.md"] == "Write docs.\n"


def test_the_second_augbench_runs_its_commands_and_compares_with_old_results(
    folder: Path, put: Put, paraval: Paraval
) -> None:
    put("prompts/prompt1.md", 'Write "$HOME" & {docs}.\n')
    put(
        "settings.json",
        json.dumps(
            {
                "agents": ["Mine", "Other"],
                "agent_config": {
                    "Mine": {
                        "commandTemplate": 'cat "{prompt}" > {cwd}/got && cat got',
                        "timeout": 30000,
                    },
                    "Other": {"commandTemplate": "echo ${UNSET}other {prompt} | wc -c"},
                },
                "runs_per_prompt": 2,
                "parallel_agents": "false",
                "repo_path": ".",
                "branch": "main",
                "metrics": ["response_time", "diff_metrics"],
                "mode": "LLM_Evaluator",
                "LLM_Evaluator": {"generate_prompts": "true", "prompt_topics": []},
                "mistake": 1,
            }
        ),
    )
    make_repository(folder)
    diff = {"files_added": 1, "files_modified": 0, "lines_added": 4, "lines_deleted": 0}
    run = {"response_time": 2.451, "diff_metrics": diff, "completeness": 9, "clarity": None}
    rows = [
        {"prompt": "prompt1.md", "agent": agent, "runs": [{"run_id": number, **run, **error}]}
        for agent, error in (("Mine", {"error": None}), ("Other", {"error": "Command failed"}))
        for number in (1, 2)
    ]
    about = {"timestamp": "2025-11-01T10:00:00.000Z", "mode": "LLM_Evaluator"}
    put("results/old.json", json.dumps({"metadata": about, "results": rows}))
    words = ("import", "augbench", "settings.json", "--results", "results/old.json")
    imported = paraval(*words)
    assert imported.returncode == 0, imported.stderr
    assert "mistake: unknown" in imported.stderr
    assert "LLM_Evaluator.generate_prompts: no model writes prompts" in imported.stderr
    assert "4 results stored as run 20251101-100000" in imported.stderr
    old = load_report("last", store=folder / ".paraval")
    results = [trial.result for trial in old.trials]
    assert [one.outcome.value for one in results] == ["passed", "passed", "crashed", "crashed"]
    assert results[0].grades[0].score == 0.9
    assert results[0].change is not None
    assert results[0].change.lines_added == 4
    assert results[0].duration_s == 2.451
    ran = paraval("run", "augbench/suite.yaml", "-o", "new.json")
    assert ran.returncode == 0, ran.stderr
    trials = json.loads((folder / "new.json").read_text())["trials"]
    assert len(trials) == 4
    assert trials[0]["variant"] == {"agent": "Mine"}
    assert trials[0]["output"].strip() == 'Write "$HOME" & {docs}.'
    compared = json.loads(paraval("compare", old.run.id, "last", "--json").stdout)
    assert [one["variant"]["agent"] for one in compared["variants"]] == ["Mine", "Other"]


def test_augbench_settings_that_recreate_pull_requests_use_a_clone(folder: Path, put: Put) -> None:
    (folder / "clone").mkdir()
    history(folder / "clone")
    settings = {
        "agents": ["Claude Code"],
        "repo_url": "https://example.com/repo.git",
        "metrics": ["ast_similarity"],
        "mode": "PR_Recreate",
        "branch": "main",
        "PR_Recreate": {"num_prs": 1, "order": "oldest"},
    }
    path = put("settings.json", json.dumps(settings))
    with pytest.raises(RequestError, match="read from a clone"):
        augbench.read_augbench(path, folder=folder / "to")
    suite = augbench.read_augbench(path, folder=folder / "to", repository=folder / "clone")
    assert [case["id"] for case in yaml.safe_load(str(suite.files["cases.yaml"]))] == ["pr-9"]
    assert suite.suite["graders"][0]["diff"]["name"] == "similarity"
    left_out = {one.key: one.why for one in suite.not_honored}
    assert left_out["PR_Recreate.order"] == "unknown"
    assert "similarity" in left_out["metrics: ast_similarity"]
    run = {"run_id": 1, "response_time": 3, "ast_similarity": 8.5, "files_added": 2, "error": None}
    rows = {"results": [{"prompt": "pr_1_9", "agent": "Claude Code", "runs": [run]}]}
    trials, when = augbench.read_results(put("old.json", json.dumps(rows)), suite)
    assert (trials[0].case.id, trials[0].grades[0].score, when) == ("pr-9", 0.85, None)
    bad = put("bad.json", '{"results": [{"prompt": 1}]}')
    with pytest.raises(SuiteError, match=r"bad.json:1: results\[0\]: needs prompt"):
        augbench.read_results(bad, suite)


def test_an_import_that_cannot_be_written_leaves_no_suite_that_looks_complete(
    folder: Path,
) -> None:
    imported = ImportedSuite(source="x", suite={"cases": []}, files={"a.txt": "a", "b/c.txt": "c"})
    (folder / "made").mkdir()
    (folder / "made" / "b").write_text("in the way")
    with pytest.raises(NotWrittenError, match="cannot write to"):
        write_suite(imported, folder / "made")
    assert sorted(path.name for path in (folder / "made").iterdir()) == ["a.txt", "b"]
