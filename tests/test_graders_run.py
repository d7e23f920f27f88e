"""Graders of cases, combined graders and skipped ones, run as a user runs them."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paraval as library
from paraval.plan.build import draft_plan
from paraval.settings import Selection
from paraval.testing import Loopback, loopback
from tests.conftest import Paraval, WriteSuite


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def trials_of(folder: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((folder / "report.json").read_text())
    return {trial["case"]: trial for trial in report["trials"]}


def grades_of(trial: dict[str, Any]) -> dict[str, bool]:
    return {grade["grader"]: grade["passed"] for grade in trial["grades"]}


CASES = {
    "added.yaml": """
        - {id: plain, input: Hello Ann, expect: Hello}
        - {id: more, input: Hello Bob, expect: Hello, graders: [{contains: Ann}]}
        - {id: instead, input: Bye, expect: Hello, graders: {replace: [{starts_with: B}]}}
        """,
    "added.jsonl": """\
        {"id": "plain", "input": "Hello Ann", "expect": "Hello"}
        {"id": "more", "input": "Hello Bob", "expect": "Hello", "graders": [{"contains": "Ann"}]}
        {"id": "instead", "input": "Bye", "graders": {"replace": [{"starts_with": "B"}]}}
        """,
}


@pytest.mark.parametrize("file", CASES)
def test_a_case_adds_to_the_graders_of_the_suite_or_replaces_them(
    write: WriteSuite, paraval: Paraval, folder: Path, file: str
) -> None:
    write(file, CASES[file])
    write(
        "suite.yaml",
        f"""
        cases: {file}
        target: {{command: [echo, "{{input}}"]}}
        graders: [contains]
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    trials = trials_of(folder)
    assert grades_of(trials["plain"]) == {"contains": True}
    assert grades_of(trials["more"]) == {"contains": True, "contains#2": False}
    assert grades_of(trials["instead"]) == {"starts_with": True}


def greets(output: library.Output, case: library.Case) -> bool:
    return output.text.startswith("Hello")


def test_a_case_in_python_has_functions_as_graders_and_only_its_key_changes() -> None:
    def planned(**own: Any) -> dict[str, str]:
        suite = library.Suite(
            cases=[library.Case(id="a", input="x", expect="x"), library.Case(id="b", **own)],
            target={"command": ["echo", "Hello"]},
            graders=[{"contains": "Hello"}],
        )
        return {trial.case.id: trial.key for trial in draft_plan(suite, Selection()).trials}

    without, with_own = planned(), planned(graders=[greets])
    assert with_own["a"] == without["a"]
    assert with_own["b"] != without["b"]
    suite = library.Suite(
        cases=[{"id": "b", "graders": {"replace": [greets, {"not": {"contains": "Bye"}}]}}],
        target={"command": ["echo", "Hello"]},
        graders=[{"contains": "nothing"}],
    )
    [spec, other] = suite.definition.grading.of("b")
    assert (spec.name, other.name) == ("greets", "not")


def test_keys_of_suites_from_before_are_still_the_same(write: WriteSuite) -> None:
    """A resume finds results by these keys, and the name of a Python grader is a part of them."""
    write("own.py", "def good(output, case):\n    return True\n")
    path = write(
        "suite.yaml",
        """
        cases: [{id: a, input: x, expect: "7"}]
        target: {command: [echo, x]}
        graders: [contains, json, number, {python: "own:good"}, {python: "own:good"}]
        """,
    )
    suite = library.Suite.load(path)
    names = [spec.name for spec in suite.definition.grading.graders]
    assert names == ["contains", "json", "number", "good", "good#2"]
    [trial] = draft_plan(suite, Selection()).trials
    assert trial.key == "603f881ac70e1a31da0f054cabdb6a51"


def test_a_judge_with_a_preset_is_called_after_it_and_keeps_its_key(write: WriteSuite) -> None:
    path = write(
        "suite.yaml",
        """
        models: {j: {provider: openai, base_url: "http://localhost:1", model: sim}}
        cases: [{id: a, input: x, expect: "7", metadata: {context: y}}]
        target: {command: [echo, x]}
        graders:
          - judge: {model: j, preset: faithfulness}
          - judge: {model: j, rubric: Kind?}
          - judge: {model: j, preset: relevance}
          - judge: {model: j, preset: relevance}
        """,
    )
    suite = library.Suite.load(path)
    names = [spec.name for spec in suite.definition.grading.graders]
    assert names == ["faithfulness", "judge", "relevance", "relevance#2"]
    [trial] = draft_plan(suite, Selection()).trials
    assert trial.key == "a1380d601460c5ce37ff8ed221e32f3f"


@pytest.mark.parametrize("written", ["5000", "601.5"])
def test_a_long_latency_without_a_unit_is_an_error_before_anything_runs(
    write: WriteSuite, paraval: Paraval, written: str
) -> None:
    suite = """
        cases: [{id: a}]
        target: {command: [echo, hello]}
        graders: [{latency: {max: MAX}}]
        """
    write("suite.yaml", suite.replace("MAX", written))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert f"graders[0].latency.max: add a unit: {written}ms or {written}s" in ended.stderr
    write("suite.yaml", suite.replace("MAX", f"{written}ms"))
    assert paraval("run", "suite.yaml").returncode == 0


def test_a_judge_in_a_combination_is_asked_only_if_it_can_decide_and_is_paid_for(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    entry = {
        "provider": "openai",
        "base_url": server.base_url,
        "model": "sim",
        "api_key_env": "PATH",
        "price": {"input_per_million": 1000, "output_per_million": 0},
    }
    write(
        "suite.yaml",
        f"""
        models: {{embedder: {json.dumps(entry)}}}
        cases:
          - {{id: same, input: "the very same words", expect: "words the very same"}}
          - {{id: exact, input: "exactly this", expect: "exactly this"}}
          - {{id: other, input: "nothing alike", expect: "of that kind"}}
        target: {{command: [echo, "{{input}}"]}}
        graders:
          - any: [equals, {{similarity: {{model: embedder}}}}]
        """,
    )
    first = paraval("run", "suite.yaml", "-o", "report.json")
    assert first.returncode == 0, first.stderr
    trials = trials_of(folder)
    outcomes = {case: trial["outcome"] for case, trial in trials.items()}
    assert outcomes == {"same": "passed", "exact": "passed", "other": "failed"}
    assert "similarity 0.00, needs 0.8" in trials["other"]["grades"][0]["reason"]
    judging = {case: trial["judging"] for case, trial in trials.items()}
    assert judging["same"]["cost_usd"] > 0
    assert judging["exact"]["calls"] == 0
    assert server.stats().total.requests == 2
    assert re.search(r"^Cost: \$[\d.]+, all of it judges$", first.stdout, re.MULTILINE)
    paraval("run", "suite.yaml")
    assert server.stats().total.requests == 2, "the second time they come from the cache"


def test_an_unknown_cost_is_skipped_and_a_slow_answer_fails(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a}]
        target: {command: [sh, -c, "sleep 0.2; echo hello"]}
        graders: [{contains: hello}, {latency: {max: 100ms}}, {cost: {max_usd: 0.01}}]
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0
    [trial] = trials_of(folder).values()
    assert grades_of(trial) == {"contains": True, "latency": False}
    assert "allowed 100 ms" in trial["grades"][1]["reason"]
    why = "the cost of the answer is unknown"
    assert trial["notes"] == [f"grader 'cost' skipped: {why}"]
    assert f"Grader cost was skipped in 1 of 1 trial: {why}" in ended.stdout
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["by", "grader", "pass", "rate", "passed", "score", "skipped"] in lines
    assert ["cost", "-", "-", "-", "1"] in lines
    report = json.loads((folder / "report.json").read_text())
    skipped = {"judged": 0, "passed": 0, "score": None, "skipped": 1, "skip_reason": why}
    assert report["summary"]["by_grader"]["cost"].items() >= skipped.items()


def test_every_failed_grader_is_named_with_its_reason_in_reports_and_logs(
    write: WriteSuite, paraval: Paraval
) -> None:
    with loopback(answers=[{"text": '{"reason": "too rude", "score": 0.9}'}]) as judges:
        entry = {"provider": "openai", "base_url": judges.base_url, "model": "sim"}
        write(
            "suite.yaml",
            f"""
            models: {{judge: {json.dumps({**entry, "api_key_env": "PATH"})}}}
            cases: [{{id: a}}, {{id: b, graders: {{replace: [
              {{not: {{judge: {{model: judge, rubric: Is it rude?}}}}}}]}}}}]
            target: {{command: [echo, hello]}}
            graders: [{{contains: Ann}}, {{starts_with: Hi}}, {{contains: hello}}]
            """,
        )
        ended = paraval("run", "suite.yaml")
    told = " ".join(ended.stderr.split())
    assert 'contains: "Ann" not in "hello"; starts_with: ' in told
    reason = "expected not to pass 'judge', score 0.9: too rude, got \"hello\""
    assert reason in told
    rows = {row["case"]: row for row in json.loads(paraval("logs", "last", "--json").stdout)}
    first, _, last = rows["a"]["grades"]
    assert (first["grader"], first["score"], first["passed"]) == ("contains", 0.0, False)
    assert first["reason"] == '"Ann" not in "hello"'
    assert last["passed"]
    assert rows["b"]["grades"][0]["reason"] == reason


@pytest.fixture
def two_styles(write: WriteSuite, paraval: Paraval) -> Iterator[str]:
    """Two variants of two cases. `far` fails `contains` in one of them, where the judge is then not
    asked."""
    write(
        "own.py", "def words(output, case):\n    return len(output.text.split()) / 4, 'few words'\n"
    )
    with loopback(answers=[{"text": '{"reason": "kind", "score": 0.8}'}]) as judges:
        entry = {"provider": "openai", "base_url": judges.base_url, "model": "sim"}
        write(
            "suite.yaml",
            f"""
            models: {{judge: {json.dumps({**entry, "api_key_env": "PATH"})}}}
            cases:
              - {{id: near, input: "yes, I do", expect: "yes", tags: [easy, short]}}
              - {{id: far, input: "no, I don't", expect: "yes", tags: [hard]}}
            matrix: {{style: ["yes", plain]}}
            target: {{command: [echo, "{{style}} {{input}}"]}}
            graders:
              - contains
              - python: {{function: "own:words", pass_at: 0.1}}
              - judge: {{model: judge, rubric: Is it kind?}}
            """,
        )
        ended = paraval("run", "suite.yaml", "-o", "report.json", "-o", "r.csv", "-o", "r.html")
        assert ended.returncode == 0, ended.stderr
        yield ended.stdout


def test_tags_of_one_column_are_shown_together(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "data.csv",
        "input,topic,level\na,geo,easy\nb,math,hard\nc,art,easy\n",
    )
    write(
        "suite.yaml",
        """
        cases: {file: data.csv, input: input, tags: [topic, level]}
        target: {command: [echo, "{input}"]}
        graders: [{contains: {value: a}}]
        """,
    )
    shown = paraval("run", "suite.yaml").stdout.partition("by tag")[2]
    assert re.findall(r"^(geo|math|art|easy|hard)\b", shown, re.MULTILINE) == [
        *("geo", "math", "art"),
        *("easy", "hard"),
    ]


def test_grades_are_shown_by_grader_and_by_tag_in_every_report(
    two_styles: str, folder: Path
) -> None:
    lines = [line.split() for line in two_styles.splitlines()]
    assert ["by", "grader", "yes", "plain"] in lines
    assert ["contains", "100%", "50%"] in lines
    assert ["judge", "100%", "100%"] in lines, "it was skipped once"
    assert ["by", "tag", "(exploratory)", "yes", "plain"] in lines
    assert ["hard", "100%", "(21–100%)", "0%", "(0–79%)"] in lines
    report = json.loads((folder / "report.json").read_text())
    judge = report["summary"]["by_grader"]["judge"]
    figures = {"judged": 3, "passed": 3, "score": pytest.approx(0.8)}
    assert judge.items() >= {**figures, "skipped": 0}.items(), "it was not asked once"
    assert report["summary"]["variants"][1]["by_tag"]["hard"]["passed"] == 0
    with (folder / "r.csv").open() as file:
        rows = {(row["case"], row["variant.style"]): row for row in csv.DictReader(file)}
    skipped = rows["far", "plain"]
    assert (skipped["grade.contains.score"], skipped["grade.words.score"]) == ("0.0", "1.0")
    assert skipped["grade.judge.score"] == "", "missing, and not zero"
    assert (skipped["tags"], skipped["input"], skipped["expect"]) == ("hard", "no, I don't", "yes")
    assert rows["near", "yes"]["tags"] == "easy; short"
    page = (folder / "r.html").read_text()
    assert "Pass rates by grader" in page
    assert "Pass rates by tag" in page


def test_scores_are_compared_only_where_the_same_graders_judged(
    two_styles: str, paraval: Paraval, folder: Path
) -> None:
    """A failed answer without a judge has a mean over two graders, others one over three."""
    trials = json.loads((folder / "report.json").read_text())["trials"]
    scores = {(one["case"], one["variant"]["style"]): one["score"] for one in trials}
    assert scores["far", "plain"] == pytest.approx((0 + 1) / 2)
    assert scores["far", "yes"] == pytest.approx((1 + 1 + 0.8) / 3)
    [header, *_] = two_styles.splitlines()
    assert "score" not in header, "the means of two variants with other graders"
    compared = paraval("compare", "style=yes", "style=plain")
    assert "1 case with the same graders" in compared.stdout, compared.stdout + compared.stderr
    [heading] = [line for line in compared.stdout.splitlines() if line.startswith("side ")]
    assert "score" not in heading


def test_a_cached_answer_has_the_time_and_cost_of_its_first_call(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    with loopback(latency={"seconds": 0.3}) as server:
        entry = {"provider": "openai", "base_url": server.base_url, "model": "sim"}
        price = {"input_per_million": 1000, "output_per_million": 1000}
        write(
            "suite.yaml",
            f"""
            models: {{m: {json.dumps({**entry, "api_key_env": "PATH", "price": price})}}}
            cases: [{{id: a, input: hello}}]
            target: {{chat: {{model: m, prompt: "{{input}}"}}}}
            graders: [{{contains: hello}}, {{latency: 100ms}}, {{cost: {{max_usd: 0.0001}}}}]
            """,
        )
        for _ in range(2):
            paraval("run", "suite.yaml", "-o", "report.json")
            [trial] = trials_of(folder).values()
            assert grades_of(trial) == {"contains": True, "latency": False, "cost": False}
        assert server.stats().total.requests == 1


def test_the_report_begins_with_what_attempts_did_not_see_of_their_setup(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    code = folder / "code"
    code.mkdir()
    write("code/main.py", "")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(code), *words], check=True)
    write(
        "suite.yaml",
        """
        cases: [{id: a}, {id: b}]
        target: {command: ["true"]}
        workspace: {git: code, setup: [touch, AGENTS.md]}
        """,
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("attempts do not see all that setup did: setup left files") == 1
    said = " ".join(ended.stdout.split())
    assert "Attempts did not see all that setup did:" in said
    assert "removed: AGENTS.md" in said
    assert said.index("AGENTS.md") < said.index("variant")
    assert "commit them to a branch" in said


@pytest.mark.parametrize(
    ("grader", "line"),
    [
        ("{command: [sh, -c, 'exit 1']}", ""),
        (
            "{python: {function: checks:alike, name: broken}}",
            "Grader broken failed all 4 trials with the same",
        ),
        (
            "{python: {function: checks:raises, name: broken}}",
            "No trial was graded, for the same reason:",
        ),
    ],
)
def test_a_grader_that_fails_every_trial_alike_is_named_first(
    write: WriteSuite, paraval: Paraval, grader: str, line: str
) -> None:
    write(
        "checks.py",
        "from paraval import Grade\n"
        "def alike(output, case): return Grade(score=0, passed=False, reason='no such file')\n"
        "def raises(output, case): raise ValueError('no such file')\n",
    )
    cases = ", ".join(f"{{id: c{number}, input: x}}" for number in range(4))
    write("suite.yaml", f"cases: [{cases}]\ntarget: {{command: [echo, x]}}\ngraders: [{grader}]\n")
    said = paraval("run", "suite.yaml").stdout
    assert said.startswith(line)
    assert ("the same" in said) is bool(line)


def test_graders_that_tell_nothing_apart_are_named(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "checks.py",
        "from paraval import Grade\n"
        "def half(output, case):\n"
        "    return Grade(score=1, passed=int(case.id[1:]) % 2 == 0, reason='')\n"
        "def never(output, case): return 0.0\n",
    )
    cases = ", ".join(f"{{id: c{number}, input: x}}" for number in range(30))
    graders = (
        "[{contains: x}, {python: {function: checks:half, name: half}}, {python: checks:never}]"
    )
    write("suite.yaml", f"cases: [{cases}]\ntarget: {{command: [echo, x]}}\ngraders: {graders}\n")
    said = paraval("run", "suite.yaml").stdout
    assert "Grader that never failed in 30 trials or more: contains" in said
    assert "Grader that never passed in 30 trials or more: " in said
    assert "half" not in said.partition("Grader that never")[2]


def test_attempts_that_hang_or_crash_are_counted_beside_the_rate(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: ok, input: 'true'}, {id: crash, input: 'exit 3'}, {id: hang, input: sleep 9}]
        target: {command: [sh, -c, "{input}"], timeout: 0.5}
        """,
    )
    said = " ".join(paraval("run", "suite.yaml").stdout.split())
    assert (
        "2 of 3 attempts hung or crashed; to count them as failures:"
        " errors: {timeout: fail, crashed: fail}"
    ) in said


def test_texts_of_graders_and_rubrics_are_filled_in_for_each_trial(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        models: {judge: {provider: loopback}}
        cases:
          - {id: rome, input: 'Rome {1}', metadata: {fact: Rome, shape: [1]}}
          - {id: oslo, input: Bergen, metadata: {fact: Oslo, shape: [1]}}
        matrix: {mode: [plain, loud]}
        target: {command: [echo, '{input} {mode} {{"a": [1], "b": "{metadata.fact}"}}']}
        graders:
          - contains: ["{metadata.fact}", "{mode}", '{{"a"']
          - not: {starts_with: "{metadata.fact}!"}
          - equals: '{input} {mode} {{"a": [1], "b": "{metadata.fact}"}}'
        """,
    )
    ended = paraval("run", "suite.yaml", "-o", "r.json")
    assert ended.returncode == 0, ended.stderr
    trials = json.loads((folder / "r.json").read_text())["trials"]
    assert {one["outcome"] for one in trials} == {"passed"}, ended.stdout
    suite = (folder / "suite.yaml").read_text()
    judge = '{judge: {model: judge, rubric: "Mentions {metadata.fact}, {{not}} {mode}."}}'
    write("suite.yaml", suite.replace("- equals:", f"- {judge}\n  - equals:"))
    graded = paraval("regrade", "last", "--case", "rome", "--variant", "mode=loud")
    assert graded.returncode in (0, 3), graded.stderr
    shown = paraval("show", "last", "--case", "rome").stdout
    assert "Mentions Rome, {not} loud." in shown
