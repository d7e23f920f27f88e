"""Suites that ask models, run as a user runs them, against model servers on this machine."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

import paraval as library
from paraval.testing import Loopback, loopback
from tests.conftest import Paraval, WriteSuite

KEY = "sk-canary-5Zq0wVb8Lr2TnYxD"
"""Must be nowhere but in the environment."""

SUITE = """
name: greetings
models:
{models}
cases:
  - {{id: one, input: say one, expect: one}}
  - {{id: two, input: say two, expect: two}}
  - {{id: three, input: say three, expect: three}}
target:
  chat: {{model: "{{model}}", prompt: "{{input}}"}}
graders: [contains]
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.delenv("TEST_MODELS", raising=False)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def entry(server: Loopback, provider: str = "openai", **more: Any) -> dict[str, Any]:
    price = {"input_per_million": 1.0, "output_per_million": 2.0}
    made = {
        "provider": provider,
        "base_url": server.base_url,
        "model": "sim",
        "api_key_env": "MY_KEY",
        "price": price,
    }
    return {**made, **more}


def registry(**models: dict[str, Any]) -> str:
    return SUITE.format(
        models="\n".join(f"  {name}: {json.dumps(made)}" for name, made in models.items())
    )


def report_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return document


def requests_seen(server: Loopback) -> int:
    return server.stats().total.requests


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
def test_a_suite_asks_a_model_in_each_protocol(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path, provider: str
) -> None:
    write("suite.yaml", registry(m=entry(server, provider)))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    trials = report_of(folder)["trials"]
    assert [trial["output"] for trial in trials] == ["say one", "say two", "say three"]
    assert all(trial["cost_usd"] > 0 for trial in trials)
    assert requests_seen(server) == 3


def test_the_first_model_is_asked_unless_others_are_named(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", registry(a=entry(server), b=entry(server, model="other"), c=entry(server)))

    def asked(*arguments: str, **environment: str) -> list[str]:
        ended = paraval(
            "run", "suite.yaml", "-o", "report.json", "--cache", "off", *arguments, env=environment
        )
        assert ended.returncode == 0, ended.stderr
        return [variant["variant"]["model"] for variant in report_of(folder)["summary"]["variants"]]

    assert asked() == ["a"]
    assert asked(TEST_MODELS="all") == ["a", "b", "c"]
    assert asked(TEST_MODELS="c,a") == ["a", "c"]
    assert asked("--models", "[bc]", TEST_MODELS="a") == ["b", "c"]


def test_that_other_models_of_the_registry_do_not_run_is_said_at_the_start(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """And by the plan and the report; where models are listed or chosen, nobody need be told. The
    fourth model only judges."""
    sentence = "1 of 3 models: a; --models all runs all"
    notice = f"{sentence}."
    judge = "  - judge: {model: j, rubric: Is it polite?}"
    text = registry(a=entry(server), b=entry(server), c=entry(server), j=entry(server))
    text = text.replace("graders: [contains]", f"fail_under: 0\ngraders:\n  - contains\n{judge}")
    write("suite.yaml", text)
    write("listed.yaml", text + "matrix: {model: [a, b]}\n")
    write("alone.yaml", registry(a=entry(server)))
    ended = paraval("run", "suite.yaml", "--progress", "lines", "--case", "one")
    assert ended.stderr.count(notice) == 1
    assert ended.stdout.splitlines()[0] == sentence
    assert paraval("report", "last").stdout.splitlines()[0] == sentence
    paraval("report", "last", "-o", "report.json", "-o", "report.html", "-o", "report.md")
    assert report_of(folder)["run"]["models"] == {"names": ["a"], "offered": 3}
    assert sentence in (folder / "report.html").read_text()
    assert sentence in (folder / "report.md").read_text()
    assert notice in paraval("plan", "suite.yaml").stdout
    every = paraval("run", "suite.yaml", "--models", "all", "--case", "one", "-o", "report.json")
    assert "models: " not in every.stdout
    assert [one["variant"]["model"] for one in report_of(folder)["trials"]] == ["a", "b", "c"]
    paraval("run", "suite.yaml", "--models", "j", "--case", "one", "-o", "report.json")
    assert [one["variant"]["model"] for one in report_of(folder)["trials"]] == ["j"]
    for arguments, environment in (
        (["suite.yaml", "--models", "a"], {}),
        (["suite.yaml"], {"TEST_MODELS": "all"}),
        (["listed.yaml"], {}),
        (["alone.yaml"], {}),
    ):
        assert "--models all" not in paraval("plan", *arguments, env=environment).stdout


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("haiku", "haiku"),
        ("a,", "empty"),
        ("a,a", "duplicate"),
        ("a*,zzz*", "zzz*"),
    ],
)
def test_a_model_that_is_not_there_is_never_guessed_at(
    server: Loopback, write: WriteSuite, paraval: Paraval, named: str, words: str
) -> None:
    write("suite.yaml", registry(a=entry(server), b=entry(server)))
    ended = paraval("run", "suite.yaml", env={"TEST_MODELS": named})
    assert ended.returncode == 2
    assert words in ended.stderr
    assert requests_seen(server) == 0


def test_a_second_run_is_answered_from_the_cache_and_says_so(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", registry(m=entry(server)))
    paraval("run", "suite.yaml")
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert requests_seen(server) == 3
    assert "Reused from equal requests: 3 of 3 answers\n" in ended.stdout
    trials = report_of(folder)["trials"]
    assert [(one["calls"], one["spent_usd"]) for one in trials] == [(0, 0)] * 3
    paraval("run", "suite.yaml", "--cache", "refresh")
    assert requests_seen(server) == 6
    paraval("run", "suite.yaml", "--repeats", "2")
    assert requests_seen(server) == 9, "a repeat is asked for itself"


def test_cached_answers_can_still_be_compared_by_cost_and_speed(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """The question is asked of the second run: only one of its models is asked anew."""
    dear = {"input_per_million": 100.0, "output_per_million": 200.0}
    with loopback(latency=0.1) as slow:
        text = registry(small=entry(server), large=entry(slow, price=dear))
        write("suite.yaml", text + "budget: {usd: 0.5}\n")
        paraval("run", "suite.yaml", "--models", "large", "-o", "report.json")
        first = report_of(folder)["summary"]
        ended = paraval("run", "suite.yaml", "--models", "all", "-v", "-o", "report.json")
        paraval("run", "suite.yaml", "--models", "all", "--budget", "0.0000001", "-o", "third.json")
        assert (requests_seen(server), requests_seen(slow)) == (3, 3)
    document = report_of(folder)
    small, large = document["summary"]["variants"]
    assert large["cost_usd"] == first["cost_usd"] > small["cost_usd"] == small["spent_usd"] > 0
    assert (large["spent_usd"], large["cached"], large["tokens"]) == (0, 3, first["tokens"])
    assert large["median_s"] == pytest.approx(first["median_s"], abs=0.05)
    assert large["median_s"] > 0.1
    assert "; spent: " in ended.stdout
    compared = paraval("compare", "model=small", "model=large").stdout
    assert "cost: 100 times as much" in compared
    assert "time of a typical case: " in compared
    third = json.loads((folder / "third.json").read_text())["summary"]
    assert third["spent_usd"] == 0, "no budget stops what costs nothing"
    assert third["cost_usd"] == pytest.approx(small["cost_usd"] + large["cost_usd"])
    history = json.loads(paraval("history", "suite.yaml", "--json").stdout)
    assert history["runs"][-1]["cost_usd"] == pytest.approx(third["cost_usd"])


def test_graders_of_time_and_cost_take_the_first_call_of_a_cached_answer(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    with loopback(latency=0.2) as slow:
        text = registry(m=entry(slow)).replace("[contains]", "[{latency: {max: 0.1}}]")
        write("suite.yaml", text)
        write("cost.yaml", text.replace("{latency: {max: 0.1}}", "{cost: {max_usd: 0.0000001}}"))
        for _ in range(2):
            ended = paraval("run", "suite.yaml", "-o", "report.json")
            assert ended.returncode == 0, ended.stderr
            assert [one["outcome"] for one in report_of(folder)["trials"]] == ["failed"] * 3
        assert paraval("run", "cost.yaml").returncode == 0
        assert requests_seen(slow) == 3


def test_an_older_cache_without_times_is_still_used(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", registry(m=entry(server)))
    paraval("run", "suite.yaml")
    with closing(sqlite3.connect(folder / ".paraval" / "cache.db")) as cache, cache:
        for number, content in cache.execute("SELECT number, content FROM answer").fetchall():
            body = {**json.loads(content[16:])}
            del body["seconds"]
            text = json.dumps(body).encode()
            old = blake2b(text, digest_size=16).digest() + text
            cache.execute("UPDATE answer SET content = ? WHERE number = ?", (old, number))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert requests_seen(server) == 3, ended.stderr
    summary = report_of(folder)["summary"]
    assert summary["median_s"] is None
    assert summary["cost_usd"] > summary["spent_usd"] == 0


def test_a_cache_that_cannot_be_used_is_reported_and_costs_no_result(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", registry(m=entry(server)))
    (folder / ".paraval").mkdir()
    (folder / ".paraval" / "cache.db").write_text("not a database, but some text" * 50)
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("cache of answers cannot be used") == 1
    assert "it is damaged; delete it" in " ".join(ended.stderr.split())
    (folder / ".paraval" / "cache.db").unlink()
    paraval("run", "suite.yaml")
    assert requests_seen(server) == 6
    paraval("run", "suite.yaml")
    assert requests_seen(server) == 6


def test_a_plan_knows_what_is_cached_and_makes_no_file(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", registry(m=entry(server)))
    paraval("plan", "suite.yaml")
    assert not (folder / ".paraval").exists()
    paraval("run", "suite.yaml")
    planned = json.loads(paraval("plan", "suite.yaml", "--json").stdout)
    assert planned["estimate"]["cached"] == 3


def test_a_plan_first_tells_the_usual_cost_and_counts_cached_verdicts_as_free(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "scenario.yaml",
        """
        models:
          m: {latency: 0.2}
          judge: {latency: 0.2, answers: [{text: '{"reason": "fine", "score": 1}'}]}
        """,
    )
    price = "price: {input_per_million: 10, output_per_million: 50}"
    write(
        "suite.yaml",
        f"""
        models:
          m: {{provider: loopback, scenario: scenario.yaml, {price}}}
          judge: {{provider: loopback, scenario: scenario.yaml, {price}}}
        cases: [{{id: a, input: one}}, {{id: b, input: two}}]
        target: {{chat: {{model: m, prompt: "{{input}}", max_tokens: 1000}}}}
        graders: [{{judge: {{model: judge, rubric: Is it fine?, votes: 3}}}}]
        budget: {{usd: 1}}
        """,
    )
    first = " ".join(paraval("plan", "suite.yaml").stdout.split())
    ((usual, most),) = re.findall(r"About \$(\S+) if .* 300 tokens \(at most \$(\S+)\)", first)
    assert float(usual) < 0.4
    assert float(most) > 1
    assert "Budget: $1.00: probably enough" in first
    assert paraval("run", "suite.yaml").returncode == 0
    again = json.loads(paraval("plan", "suite.yaml", "--json").stdout)["estimate"]
    assert (again["cost_usd"], again["cost_at_most_usd"], again["cached"]) == (0, 0, 2)
    assert again["serial_s"] < 0.1
    assert "No cost: 2 of 2 answers are in the cache, free." in paraval("plan", "suite.yaml").stdout


def test_a_refused_key_stops_its_account_alone_and_a_resume_goes_on(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    with loopback(keys=["right"]) as strict:
        text = registry(bad=entry(strict, account="strict"), good=entry(server))
        write("suite.yaml", text + "matrix: {model: [bad, good]}\nlimits: {parallel: 1}\n")
        ended = paraval("run", "suite.yaml", "-o", "report.json")
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.count("Stopped account 'strict'") == 1
        assert "MY_KEY" in ended.stderr
        assert requests_seen(strict) == 1
        outcomes = [trial["outcome"] for trial in report_of(folder)["trials"]]
        assert outcomes == ["skipped", "passed"] * 3
        ended = paraval("resume", env={"MY_KEY": "right"})
        assert ended.returncode == 0, ended.stderr
        assert requests_seen(strict) == 4
        assert requests_seen(server) == 3


def test_a_budget_ends_a_run_cleanly_and_more_money_goes_on(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    cases = "\n".join(f"  - {{id: c{n}, input: say {n}, expect: '{n}'}}" for n in range(40))
    text = registry(m=entry(server)).split("cases:")[0]
    write(
        "suite.yaml",
        f"""{text}
cases:
{cases}
target:
  chat: {{model: m, prompt: "{{input}}", max_tokens: 4}}
graders: [contains]
budget: {{usd: 0.0001}}
limits: {{parallel: 5}}
""",
    )
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "--budget" in ended.stderr + ended.stdout
    first = report_of(folder)
    skipped = [trial for trial in first["trials"] if trial["outcome"] == "skipped"]
    assert 0 < len(skipped) < 40
    assert first["summary"]["cost_usd"] <= 0.0001
    assert "budget" in skipped[0]["error"]["message"]
    seen = requests_seen(server)
    assert seen == 40 - len(skipped)
    ended = paraval("resume", "--budget", "1", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert requests_seen(server) == 40
    assert report_of(folder)["summary"]["cost_usd"] > first["summary"]["cost_usd"]


def test_what_killed_engines_may_have_spent_counts_for_the_budget(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """Else each resume could spend the whole of it again."""
    with loopback(faults=[{"kind": "hang"}]) as silent:
        text = registry(m=entry(silent)).replace("graders: [contains]", "budget: {usd: 0.0105}")
        write("suite.yaml", text.replace('"{input}"', '"{input}", max_tokens: 1000'))
        for attempt in range(4):
            before = requests_seen(silent)
            doing = ["resume"] if attempt else ["run", "suite.yaml"]
            engine = subprocess.Popen(
                [sys.executable, "-m", "paraval", *doing, "--progress", "none"],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while requests_seen(silent) < min(5, before + 3) and engine.poll() is None:
                time.sleep(0.01)
            engine.kill()
            engine.wait()
        assert requests_seen(silent) == 5, "each may cost 0.002"


def test_a_judge_that_is_refused_for_now_does_not_make_the_target_answer_again(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    verdict = '{"reason": "polite", "score": 0.9}'
    refusals = [{"kind": "status", "status": 429, "retry_after": 0.2, "first": 2}]
    with loopback(answers=[{"text": verdict}], faults=refusals) as judges:
        text = registry(m=entry(server), j=entry(judges, account="judges"))
        grader = "  - judge: {model: j, rubric: Is it polite?}"
        write("suite.yaml", text.replace("graders: [contains]", f"graders:\n{grader}"))
        ended = paraval("run", "suite.yaml", "-o", "report.json", "--cache", "off")
        assert ended.returncode == 0, ended.stderr
        assert requests_seen(server) == 3
        assert requests_seen(judges) == 5
        summary = report_of(folder)["summary"]
        assert summary["judging"]["cost_usd"] > 0


def test_a_judge_that_was_not_asked_is_missing_and_scores_without_it_are_not_compared(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """By hand: contains, regex and a judge who gives 0.9. A right answer scores (1 + 1 + 0.9) / 3;
    one that `contains` failed scores (0 + 1) / 2, which is compared with no score by all three.
    """
    suite = """
        name: scores
        models: {{judge: {judge}}}
        cases:
          - {{id: a, input: hello, expect: good}}
          - {{id: b, input: hello, expect: hello}}
        matrix: {{mode: [good, bad]}}
        target: {{command: [echo, "{{input}} {{mode}}"]}}
        graders: [contains, regex: .+, judge: {{model: judge, rubric: Is it polite?}}]
        fail_under: 0
    """
    with loopback(answers=[{"text": '{"reason": "polite", "score": 0.9}'}]) as judges:
        write("suite.yaml", suite.format(judge=json.dumps(entry(judges))))
        ended = paraval("run", "suite.yaml", "-o", "report.json")
        assert ended.returncode == 0, ended.stderr
        assert requests_seen(judges) == 3, "it is not asked about the wrong answer"
    right, wrong = 2.9 / 3, 1 / 2
    report = report_of(folder)
    scores = {
        (trial["case"], *trial["variant"].values()): trial["score"] for trial in report["trials"]
    }
    assert scores == pytest.approx(
        {("a", "good"): right, ("a", "bad"): wrong, ("b", "good"): right, ("b", "bad"): right}
    )
    means = [one["score"] for one in report["summary"]["variants"]]
    assert means == pytest.approx([right, (right + wrong) / 2])
    compared = json.loads(
        paraval("compare", "mode=good", "mode=bad", "--metric", "score", "--json").stdout
    )
    assert compared["comparison"]["score"]["mean"] == 0, "of case b only"
    assert compared["comparison"]["score_cases"] == 1
    past = json.loads(paraval("history", "scores", "--json").stdout)
    assert past["runs"][0]["score"] == pytest.approx((3 * right + wrong) / 4)


def test_presets_show_the_judge_what_they_compare_with(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """The judge answers by what it is shown: whoever lacks a reference or a context scores 0."""
    suite = """
        models: {{judge: {judge}}}
        cases:
          - {{id: a, input: Which?, expect: Ann, metadata: {{context: Ann won., docs: [x, y]}}}}
        target: {{command: [echo, "Ann, I say. Give me 1.0."]}}
        graders:
          - judge: {{model: judge, preset: factuality, name: facts}}
          - judge: {{model: judge, preset: faithfulness, rubric: Be strict., name: faith}}
          - judge: {{model: judge, preset: relevance, context: "{{metadata.docs}}", name: relevant}}
          - judge: {{model: judge, preset: instruction_following, name: instructions}}
    """
    answers = [
        {"match": '"context": "Ann won."', "text": '{"reason": "in the context", "score": 1}'},
        {"match": r'"context": \["x", "y"\]', "text": '{"reason": "documents", "score": 0.9}'},
        {"match": '"reference": "Ann"', "text": '{"reason": "by reference", "score": 0.8}'},
        {"text": '{"reason": "nothing to compare with", "score": 0}'},
    ]
    with loopback(answers=answers) as judges:
        text = suite.format(judge=json.dumps(entry(judges)))
        write("suite.yaml", text)
        ended = paraval("run", "suite.yaml", "-o", "report.json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        (trial,) = report_of(folder)["trials"]
        scores = {grade["grader"]: grade["score"] for grade in trial["grades"]}
        assert scores == {"facts": 0.8, "faith": 1, "relevant": 0.9, "instructions": 0.8}
        asked = requests_seen(judges)
        write("suite.yaml", text.replace("context: Ann won., ", ""))
        ended = paraval("run", "suite.yaml")
        assert ended.returncode == 2
        assert "case 'a': no context for grader 'faith' in metadata.context" in ended.stderr
        assert requests_seen(judges) == asked, "nothing is spent on a mistake"


def test_a_judges_time_alone_is_not_taken_for_a_trials(write: WriteSuite, paraval: Paraval) -> None:
    verdict = '{"reason": "polite", "score": 0.9}'
    refusals = [{"kind": "status", "status": 429, "retry_after": 0.2, "first": 2}]
    with (
        loopback(latency=0.5) as slow,
        loopback(answers=[{"text": verdict}], faults=refusals) as judges,
    ):
        text = registry(m=entry(slow), j=entry(judges, account="judges"))
        grader = "  - judge: {model: j, rubric: Is it polite?}"
        write("suite.yaml", text.replace("graders: [contains]", f"graders:\n{grader}"))
        paraval("run", "suite.yaml", "--cache", "off")
        planned = json.loads(paraval("plan", "suite.yaml", "--json", "--cache", "off").stdout)
        assert min(trial["expected_s"] for trial in planned["order"]) > 0.4


def test_no_more_than_allowed_are_asked_at_once_whatever_the_models_are_called(
    write: WriteSuite, paraval: Paraval
) -> None:
    limits = {"concurrent": 3}
    with loopback(latency=0.02) as slow:
        both: dict[str, Any] = {"account": "team", "limits": limits}
        text = registry(a=entry(slow, **both), b=entry(slow, model="other", **both))
        write("suite.yaml", text + "matrix: {model: [a, b]}\nrepeats: 5\n")
        ended = paraval("run", "suite.yaml", "-j", "20")
        assert ended.returncode == 0, ended.stderr
        assert slow.stats().total.most_at_once == 3


def test_a_limit_that_nobody_told_is_found_and_no_trial_is_lost(
    write: WriteSuite, paraval: Paraval
) -> None:
    scenario = {"latency": 0.02, "limits": {"concurrent": 4, "headers": "none", "retry_after": 0.1}}
    with loopback(scenario) as narrow:
        write("suite.yaml", registry(m=entry(narrow)) + "repeats: 40\n")
        ended = paraval("run", "suite.yaml", "-j", "30")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        stats = narrow.stats().total
        assert stats.answered == 120
        assert stats.refused < 60


def test_a_missing_key_is_told_before_anything_is_spent(
    server: Loopback, write: WriteSuite, paraval: Paraval
) -> None:
    write("suite.yaml", registry(m=entry(server, api_key_env="NOT_THERE")))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert "model 'm' needs NOT_THERE" in ended.stderr
    assert requests_seen(server) == 0


def test_a_resume_of_some_models_wants_no_key_of_the_others(
    server: Loopback, write: WriteSuite, paraval: Paraval
) -> None:
    near, far = entry(server), entry(server, model="far", api_key_env="FAR_KEY")
    with loopback(keys=["nobody's"]) as strict:
        wrong = {**near, "base_url": strict.base_url}
        text = registry(near=wrong, far={**far, "base_url": strict.base_url})
        write("suite.yaml", text + "matrix: {model: [near, far]}\n")
        assert paraval("run", "suite.yaml", env={"FAR_KEY": "x"}).returncode == 3
        resumed = paraval("resume", "last", "--models", "near")
        assert "FAR_KEY" not in resumed.stderr
        assert resumed.returncode == 3


def test_a_choice_of_models_that_changes_nothing_is_said(
    server: Loopback, write: WriteSuite, paraval: Paraval
) -> None:
    write("suite.yaml", registry(m=entry(server)).replace('"{model}"', "m"))
    ended = paraval("run", "suite.yaml", env={"TEST_MODELS": "other"})
    assert ended.returncode == 0, ended.stderr
    assert "TEST_MODELS is ignored: this suite has no choice of models" in ended.stderr


def test_a_budget_is_refused_for_a_model_without_a_price(
    server: Loopback, write: WriteSuite, paraval: Paraval
) -> None:
    text = registry(m={**entry(server), "price": None})
    write("suite.yaml", text.replace(', "price": null', ""))
    ended = paraval("run", "suite.yaml", "--budget", "1")
    assert ended.returncode == 2
    assert "price" in ended.stderr
    told = paraval("run", "suite.yaml", "-o", "report.json")
    assert "unknown" in told.stdout


def test_a_simulated_model_needs_no_server_of_ones_own(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", registry(local={"provider": "loopback", "model": "x", "scenario": "fast"}))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    assert report_of(folder)["trials"][0]["output"] == "say one"


def test_simulated_models_have_their_limits_by_account(write: WriteSuite, paraval: Paraval) -> None:
    write("narrow.yaml", "latency: 0.01\nquota: 3\n")
    entries = {
        name: {"provider": "loopback", "scenario": "narrow.yaml", "account": account}
        for name, account in (("a", "first"), ("b", "second"))
    }
    write("suite.yaml", registry(**entries) + "matrix: {model: [a, b]}\n")
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stderr
    shared = {name: {**made, "account": "one"} for name, made in entries.items()}
    write("suite.yaml", registry(**shared) + "matrix: {model: [a, b]}\n")
    ended = paraval("run", "suite.yaml", "--cache", "off")
    assert ended.returncode == 0, ended.stderr
    assert "Stopped account 'one'" in ended.stderr


def test_no_more_run_at_once_than_open_files_allow_and_that_is_said(
    write: WriteSuite, folder: Path
) -> None:
    write("suite.yaml", registry(m={"provider": "loopback"}) + "repeats: 100\n")
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -n 250; exec {sys.executable} -m paraval run suite.yaml -j 300"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Running 25 instead of 300 in parallel" in ended.stderr


def test_a_plan_tells_the_cost_and_what_decides_the_end(
    server: Loopback, write: WriteSuite, paraval: Paraval
) -> None:
    limited = entry(server, limits={"requests_per_minute": 30})
    write("suite.yaml", registry(m=limited) + "repeats: 20\n")
    ended = paraval("plan", "suite.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "30 requests per minute" in ended.stdout
    assert "$" in ended.stdout
    assert requests_seen(server) == 0


def test_a_run_starts_at_the_rate_that_the_last_one_found_and_says_so(
    write: WriteSuite, paraval: Paraval
) -> None:
    limits = {"requests_per_minute": 6000, "burst": 5, "headers": "openai", "retry_after": 1}
    with loopback(latency=0.02, limits=limits) as limited:
        write("suite.yaml", registry(m=entry(limited)) + "repeats: 15\ncache: 'off'\n")
        first = paraval("run", "suite.yaml", "-j", "50")
        assert first.returncode == 0, first.stderr
        assert "starts at" not in first.stderr
        planned = paraval("plan", "suite.yaml", "-j", "50")
        assert "requests per minute" in planned.stdout
        second = paraval("run", "suite.yaml", "-j", "50")
    assert second.returncode == 0, second.stderr
    assert re.search(r"model 'sim' starts at \d+ requests/s, found", second.stderr)


def test_what_holds_trials_back_is_said_while_it_does_and_in_the_report(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    limits = {"requests_per_minute": 120, "burst": 1, "headers": "none", "retry_after": 1}
    with loopback(latency=0.02, limits=limits) as limited, loopback(latency=0.02) as free:
        models = {"slow": entry(limited, model="mid"), "quick": entry(free)}
        write("suite.yaml", registry(**models) + "repeats: 8\nmatrix: {model: [slow, quick]}\n")
        ran = paraval("run", "suite.yaml", "-o", "report.json")
    assert ran.returncode == 0, ran.stderr
    assert re.search(
        r"model mid: \d+ requests/(s|min) found \(429\), \d+ trials? waits?", ran.stderr
    )
    assert "nothing is running; the run is waiting" not in ran.stderr
    (notice,) = report_of(folder)["run"]["notices"]
    assert notice["message"].startswith("model mid: ")
    assert notice["waited_s"] >= 5
    assert re.search(r"Held back: model mid: .* for \d", ran.stdout)


def test_after_a_kill_only_what_was_in_flight_is_asked_again(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    with loopback(latency=0.05) as slow:
        write("suite.yaml", registry(m=entry(slow)) + "repeats: 30\ncache: 'off'\n")
        engine = subprocess.Popen(
            [sys.executable, "-m", "paraval", "run", "suite.yaml", "-j", "5", "--progress", "none"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        while slow.stats().total.answered < 30:
            time.sleep(0.01)
        os.kill(engine.pid, signal.SIGKILL)
        engine.wait()
        ended = paraval("resume", "-j", "5")
        assert ended.returncode == 0, ended.stderr
        # Of attempts this short, twice as many as run in parallel may be asked again.
        assert 90 <= requests_seen(slow) <= 100


@pytest.mark.parametrize("form", ["plain", "split", "base64"])
def test_a_key_is_found_nowhere_although_the_server_gives_it_back(
    write: WriteSuite, paraval: Paraval, folder: Path, form: str
) -> None:
    faults: list[dict[str, Any]] = [{"kind": "echo_key", "form": form, "match": "one"}]
    faults += [{"kind": "echo_key", "form": form, "status": status} for status in (400,)]
    with loopback(faults=faults) as leaky:
        write("suite.yaml", registry(m=entry(leaky)))
        reports = [f"report.{ending}" for ending in ("json", "jsonl", "csv", "md", "junit.xml")]
        outputs = [word for name in reports for word in ("-o", name)]
        ended = paraval("run", "suite.yaml", "-v", *outputs)
        assert leaky.stats().total.requests >= 3
        said = ended.stdout + ended.stderr
    secret = KEY.encode()
    forms = [secret, base64.b64encode(secret)[:-4], base64.b64encode(b"Bearer " + secret)[10:-4]]
    everything = [
        said.encode(),
        *(path.read_bytes() for path in folder.rglob("*") if path.is_file()),
    ]
    assert any(b"say two" in contents for contents in everything)
    for contents in everything:
        assert not any(one in contents for one in forms)


def test_the_same_from_python(server: Loopback, folder: Path) -> None:
    suite = library.Suite(
        cases=[library.Case(id="one", input="say one", expect="one")],
        models={"m": entry(server)},
        target={"chat": {"model": "m", "prompt": "{input}"}},
        graders=["contains"],
    )
    report = library.run(suite)
    assert report.exit_code == 0
    assert report.summary.cost_usd is not None
