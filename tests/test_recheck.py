"""What got worse than the baseline runs again before it fails a gate."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from paraval.records import Baseline, Outcome
from paraval.report.baseline_gate import judge_regressions
from paraval.report.compare.case_results import CaseBook
from paraval.report.gate import GateVerdict
from tests.conftest import Paraval, WriteSuite
from tests.test_report import ended

SUITE = """
name: varying
cases: [{id: steady}, {id: varies}, {id: broken}]
target: {command: [python3, answer.py, "{case.id}"]}
graders: [{contains: good}]
max_regressed: 0
"""
ANSWER = """
import pathlib, sys
name = sys.argv[1]
with open(f"{name}.calls", "a") as calls:
    calls.write("x")
number = len(pathlib.Path(f"{name}.calls").read_text())
bad = {"steady": (), "varies": VARIES, "broken": BROKEN}[name]
print("bad" if number in bad else "good")
"""


def answers(folder: Path, *, varies: str, broken: str) -> None:
    """Which calls of two cases get a bad answer."""
    text = ANSWER.replace("VARIES", varies).replace("BROKEN", broken)
    (folder / "answer.py").write_text(text)


def calls(folder: Path, case: str) -> int:
    return len((folder / f"{case}.calls").read_text())


@pytest.fixture
def baseline(write: WriteSuite, paraval: Paraval, folder: Path) -> None:
    write("suite.yaml", SUITE)
    answers(folder, varies="()", broken="()")
    assert paraval("run", "suite.yaml").returncode == 0
    assert paraval("baseline", "set", "last").returncode == 0


@pytest.mark.usefixtures("baseline")
def test_a_case_that_only_varied_fails_no_gate(paraval: Paraval, folder: Path) -> None:
    answers(folder, varies="(2, 3)", broken="()")
    gone = paraval("run", "suite.yaml", "-o", "report.json")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert "1 result got worse than the baseline: it runs 3 more times." in gone.stderr
    assert "Gate passed: 0 of 3 cases got worse" in gone.stdout
    assert "flaky, not counted: varies" in gone.stdout
    assert (calls(folder, "varies"), calls(folder, "steady")) == (5, 2)
    told = json.loads((folder / "report.json").read_text())
    assert told["summary"]["trials"] == 3, "second tries are in no pass rate"
    assert told["summary"]["pass_rate"] == pytest.approx(2 / 3)
    # The same from the store, and `last` is the run itself.
    assert "Gate passed: 0 of 3" in paraval("report", "last").stdout
    assert len(paraval("runs").stdout.splitlines()) == 3


@pytest.mark.usefixtures("baseline")
def test_a_case_that_fails_each_time_fails_the_gate(paraval: Paraval, folder: Path) -> None:
    answers(folder, varies="(2,)", broken="range(2, 99)")
    gone = paraval("run", "suite.yaml")
    assert gone.returncode == 1
    assert "Gate failed: 1 of 3 cases got worse" in gone.stdout
    assert "each failed 9 more times" in " ".join(gone.stdout.split())
    assert "1 result got worse than the baseline: it runs 6 more times." in gone.stderr, (
        "after the first three, only what is left"
    )
    assert (calls(folder, "varies"), calls(folder, "broken")) == (5, 11)
    assert paraval("resume", "last").returncode == 1
    assert calls(folder, "broken") == 11, "it is clear already"


MANY = """
name: many
cases: [{cases}]
target: {{python: answers:answer}}
graders: [{{contains: good}}]
max_regressed: 0
{more}
"""


def many(paraval: Paraval, write: WriteSuite, worse: int, more: str = "") -> str:
    """A run in which some of 30 cases got worse for good, and three were fixed; what it says."""
    names = ", ".join(f"{{id: c{number}, input: {number}}}" for number in range(30))
    write("suite.yaml", MANY.format(cases=names, more=more))
    write("answers.py", "def answer(case): return 'bad' if int(case.input) >= 27 else 'good'\n")
    paraval("run", "suite.yaml")
    paraval("baseline", "set", "last")
    write(
        "answers.py", f"def answer(case): return 'bad' if int(case.input) < {worse} else 'good'\n"
    )
    gone = paraval("run", "suite.yaml")
    assert gone.returncode == 1
    return " ".join((gone.stdout + gone.stderr).split())


def test_of_many_that_got_worse_some_run_again_and_then_it_ends(
    paraval: Paraval, write: WriteSuite
) -> None:
    told = many(paraval, write, 12)
    assert "12 results got worse than the baseline: 10 of them run 3 more times." in told
    assert "12 results got worse than the baseline: 10 of them run 6 more times." in told
    assert "10 of them failed 9 more times" in told
    assert told.count("results got worse") == 2


def test_so_many_that_it_cannot_be_chance_do_not_run_again(
    paraval: Paraval, write: WriteSuite
) -> None:
    assert "got worse than the baseline" not in many(paraval, write, 24)


def test_tries_that_end_in_errors_end_too(paraval: Paraval, write: WriteSuite) -> None:
    """They say nothing for the case, nor against it."""
    write(
        "suite.yaml",
        """
        cases: [{id: a}]
        target: {command: [sh, answer.sh]}
        graders: [{contains: good}]
        max_regressed: 0
        """,
    )
    write("answer.sh", "echo good\n")
    paraval("run", "suite.yaml")
    paraval("baseline", "set", "last")
    write("answer.sh", "echo >>calls; test $(wc -l <calls) -lt 2 && echo bad || exit 3\n")
    gone = paraval("run", "suite.yaml")
    assert gone.returncode == 1, gone.stdout + gone.stderr
    assert gone.stderr.count("got worse") == 2


def test_tries_are_paid_from_the_budget_and_their_cost_is_told(
    paraval: Paraval, write: WriteSuite
) -> None:
    """Ten cents an answer: the run's three, three tries of one, and then no six more."""
    names = "[{id: a, input: 1}, {id: b, input: 2}, {id: c, input: 3}]"
    write("suite.yaml", MANY.format(cases=names[1:-1], more="budget: {usd: 0.65}"))
    answer = (
        "import paraval\ndef answer(case):\n    return paraval.Output(text=TEXT, cost_usd=0.1)\n"
    )
    write("answers.py", answer.replace("TEXT", "'good'"))
    paraval("run", "suite.yaml")
    paraval("baseline", "set", "last")
    write("answers.py", answer.replace("TEXT", "'bad' if int(case.input) == 3 else 'good'"))
    gone = paraval("run", "suite.yaml")
    told = " ".join((gone.stdout + gone.stderr).split())
    assert gone.returncode == 1, told
    assert "it runs 3 more times." in told
    assert "Running them again cost $0.30 on top of the run." in told
    assert "Cost: $0.30" in told


@pytest.mark.usefixtures("baseline")
def test_rechecks_can_be_turned_off(paraval: Paraval, folder: Path) -> None:
    answers(folder, varies="(2,)", broken="()")
    (folder / "suite.yaml").write_text(SUITE + "recheck: 0\n")
    assert paraval("run", "suite.yaml").returncode == 1
    assert calls(folder, "varies") == 2
    (folder / "suite.yaml").write_text(SUITE + "recheck: -1\n")
    wrong = paraval("run", "suite.yaml")
    assert "recheck: must be a whole number from 0 to 100" in wrong.stderr


def _steady(rng: random.Random) -> float:
    return 0.9


def _mixed(rng: random.Random) -> float:
    """Most cases always pass, some rarely: intraclass correlation 0.5."""
    return rng.betavariate(0.9, 0.1)


@pytest.mark.parametrize("likely", [_steady, _mixed])
def test_with_nothing_changed_few_gates_fail(likely: Callable[[random.Random], float]) -> None:
    """Simulated: 40 cases with a mean rate of 0.9, nine tries."""
    rng, runs, failed = random.Random(3), 400, 0
    asked = Baseline(name="base", max_regressed=0)
    for _ in range(runs):
        books = CaseBook(), CaseBook(), CaseBook()
        for case in range(40):
            rate = likely(rng)
            for book, tries in zip(books, (1, 1, 9), strict=True):
                for repeat in range(1, tries + 1):
                    outcome = Outcome.PASSED if rng.random() < rate else Outcome.FAILED
                    book.add(ended(outcome, case=f"c{case}", repeat=repeat))
        now, before, again = books
        verdict = judge_regressions(now, before, asked, again).verdict
        failed += verdict is GateVerdict.MISSED
    assert failed / runs <= 0.06
