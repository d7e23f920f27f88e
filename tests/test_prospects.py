"""What a plan says that it can show: by the textbook, by an earlier run, and in words."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from paraval.cli.commands import plan as prospects
from paraval.cli.commands.plan import prospect_of, prospect_sentence
from paraval.records import AttemptResult, Case, Outcome, Plan, Trial, Variant
from paraval.report.compare.case_results import CaseBook
from paraval.report.plan_power import (
    PlanSize,
    Spread,
    fewest_cases,
    prospect_in,
    size_of,
    spread_in,
)
from paraval.statistics.pairs import mcnemar_mid_p, paired_interval
from paraval.store.store import Store
from tests.conftest import Paraval, WriteSuite
from tests.test_report import ended
from tests.test_store import finish, make_plan

A: Variant = {"model": "a"}
B: Variant = {"model": "b"}
PASSED, FAILED = Outcome.PASSED, Outcome.FAILED


def size(cases: int, repeats: int = 1, variants: int = 2, comparisons: int = 1) -> PlanSize:
    return PlanSize(cases=cases, repeats=repeats, variants=variants, comparisons=comparisons)


def shown(size: PlanSize, spread: Spread | None = None) -> float | None:
    """The smallest difference that a plan shows."""
    found = prospect_in(size, spread or Spread())
    assert found is not None
    return found.rows[0].share


def said(size: PlanSize, spread: Spread | None = None) -> str:
    found = prospect_in(size, spread or Spread())
    assert found is not None
    return prospect_sentence(found)


def plan_of(cases: int, *variants: Variant, repeats: int = 1) -> Plan:
    (any_trial, *_) = make_plan(1).trials
    trials: list[Trial] = []
    for number in range(cases):
        for variant in variants:
            for repeat in range(1, repeats + 1):
                trial = replace(any_trial, case=Case(id=f"c{number}"), variant=variant)
                index = len(trials)
                trials.append(replace(trial, index=index, key=f"k{index}", repeat=repeat))
    return replace(make_plan(1), trials=tuple(trials), variants=variants)


def book_of(*ends: tuple[str, Variant, str]) -> CaseBook:
    """Of a case with a variant: a letter a repeat, `p`assed, `f`ailed or `e`rror."""
    book = CaseBook()
    kinds = {"p": PASSED, "f": FAILED, "e": Outcome.TIMEOUT}
    for case, variant, letters in ends:
        for repeat, letter in enumerate(letters, 1):
            book.add(ended(kinds[letter], case=case, variant=variant, repeat=repeat))
    return book


# ---- by the textbook


@pytest.mark.parametrize(
    ("cases", "repeats", "difference"),
    [(50, 1, 0.2641), (50, 4, 0.1747), (200, 1, 0.1321)],
)
def test_without_history_the_difference_is_millers(
    cases: int, repeats: int, difference: float
) -> None:
    assert shown(size(cases, repeats)) == pytest.approx(difference, abs=5e-5)


def test_larger_plans_stand_below_the_planned_one() -> None:
    found = prospect_in(size(60), Spread())
    assert found is not None
    told = [(one.cases, one.repeats, round(100 * (one.share or 0))) for one in found.rows]
    assert told == [(60, 1, 24), (120, 1, 17), (240, 1, 12), (60, 3, 17)]


def test_the_difference_that_is_promised_is_shown_as_often_as_is_said() -> None:
    """By the very rule of comparisons: the test and the interval, both."""
    spread = Spread(between=0.3, within=0.0)
    difference = shown(size(60), spread)
    assert difference is not None
    discordant = spread.between + difference**2
    wins = (discordant + difference) / 2
    chance, seen = random.Random(1), 0
    for _ in range(1000):
        draws = [chance.random() for _ in range(60)]
        pairs = [1.0 if draw < wins else -1.0 if draw < discordant else 0.0 for draw in draws]
        _, low, _ = paired_interval(pairs)
        seen += mcnemar_mid_p(pairs.count(1.0), pairs.count(-1.0)) < 0.05 and low > 0
    assert 0.75 < seen / 1000 < 0.85


@pytest.mark.parametrize("cases", [20, 40, 100])
def test_a_difference_is_shown_as_often_as_said_though_nothing_varied_before(cases: int) -> None:
    """By the same rule: of a suite in which all passed with both, some cases break."""
    ends = [(f"c{n}", variant, "p") for n in range(cases) for variant in (A, B)]
    difference = shown(size(cases), spread_in(book_of(*ends), plan_of(cases, A, B)))
    assert difference is not None
    chance, seen = random.Random(5), 0
    for _ in range(400):
        broke = sum(chance.random() < difference for _ in range(cases))
        _, low, _ = paired_interval([1.0] * broke + [0.0] * (cases - broke))
        seen += mcnemar_mid_p(broke, 0) < 0.05 and low > 0
    assert 0.65 < seen / 400 < 0.9


def test_repeats_that_nobody_saw_vary_do_not_make_up_for_cases() -> None:
    still = Spread(between=0.001, within=0.0015, cases=30)
    assert shown(size(30, 50), still) == pytest.approx(shown(size(30), still), rel=0.01)
    assert (shown(size(30, 50), replace(still, is_split=True)) or 1) < (shown(size(30), still) or 0)


def test_so_few_cases_that_no_test_could_tell_are_said_to_show_nothing() -> None:
    assert [fewest_cases(size(1, repeats)) for repeats in (1, 3)] == [5, 6]
    assert fewest_cases(size(1, comparisons=6)) == 7
    certain = Spread(between=0.001, within=0.0)
    assert shown(size(4), certain) is None
    assert shown(size(5), certain) is not None


# ---- the plan


def test_the_size_of_a_plan_is_its_cases_repeats_and_comparisons() -> None:
    assert size_of(plan_of(7, A, B, repeats=3)) == size(7, 3)
    assert size_of(plan_of(7, A)) == size(7, variants=1)
    three = plan_of(7, A, B, {"model": "c"})
    assert size_of(three) == size(7, variants=3, comparisons=3)
    six = plan_of(7, *({"model": str(n)} for n in range(6)))
    assert size_of(six) == size(7, variants=6, comparisons=5)
    two_axes = plan_of(7, *({"m": m, "t": t} for m in "ab" for t in (1, True)))
    assert size_of(two_axes) == size(7, variants=4)


def test_a_plan_of_nothing_shows_nothing(tmp_path: Path) -> None:
    empty = plan_of(0, A, B)
    assert prospect_of(empty, Store(tmp_path)) is None


# ---- measured


def test_the_spread_of_pairs_without_repeats_is_that_of_the_comparison() -> None:
    """Its sum is measured; how it splits is assumed."""
    turns = ["pf", "fp", "pp", "ff", "pp", "pf", "pf", "pp"]
    ends = [
        (f"c{n}", variant, turn[side])
        for n, turn in enumerate(turns)
        for side, variant in enumerate((A, B))
    ]
    spread = spread_in(book_of(*ends), plan_of(8, A, B))
    assert spread is not None
    # Three wins, a loss and two made-up pairs among ten.
    variance = 6 / 10 - (2 / 10) ** 2
    assert spread.between + 2 * spread.within == pytest.approx(variance)
    assert spread.within / spread.between == pytest.approx(1.5)
    assert (spread.cases, spread.is_split, spread.rate) == (8, False, 10 / 16)


def test_many_pairs_that_differ_tell_their_spread_by_themselves() -> None:
    """A first run that is just what was assumed must not raise what can be shown."""

    def variance(differ: int) -> float:
        turns = ["pf", "fp"] * (differ // 2) + ["pf"] * (differ % 2) + ["pp"] * 25
        ends = [
            (f"c{n}", variant, turn[side])
            for n, turn in enumerate(turns)
            for side, variant in enumerate((A, B))
        ]
        spread = spread_in(book_of(*ends), plan_of(len(turns), A, B))
        assert spread is not None
        return spread.between + 2 * spread.within

    assert variance(20) == pytest.approx(20 / 44)
    assert variance(20) == pytest.approx(Spread().between + 2 * Spread().within, abs=0.02)
    # One fewer, and two made-up pairs count.
    assert variance(19) == pytest.approx(21 / 46 - (1 / 46) ** 2)


def test_repeats_tell_what_they_vary_and_what_cases_do() -> None:
    ends = [(f"c{n}", variant, "pf") for n in range(10) for variant in (A, B)]
    spread = spread_in(book_of(*ends), plan_of(10, A, B))
    assert spread is not None
    assert (spread.within, spread.is_split) == (0.5, True)
    assert spread.between == 0, "all that is seen is what repeats explain"
    steady = [(f"c{n}", variant, "pp") for n in range(10) for variant in (A, B)]
    spread = spread_in(book_of(*steady), plan_of(10, A, B))
    assert spread is not None
    assert spread.within == 0
    assert spread.between > 0, "cases that all agree cannot show everything"


def test_errors_and_what_left_the_suite_tell_nothing() -> None:
    ends = [(f"c{n}", variant, "p") for n in range(6) for variant in (A, B)]
    with_errors = [*ends, ("c6", A, "e"), ("c6", B, "p"), ("gone", A, "f"), ("gone", B, "p")]
    plan = plan_of(8, A, B)
    assert spread_in(book_of(*with_errors, ("c7", {"model": "c"}, "f")), plan) == replace(
        spread_in(book_of(*ends), plan) or Spread(), rate=1.0
    )


def test_few_cases_tell_less_than_what_is_assumed() -> None:
    ends = [(f"c{n}", variant, "p") for n in range(4) for variant in (A, B)]
    assert spread_in(book_of(*ends), plan_of(4, A, B)) is None
    assert spread_in(book_of(*ends), plan_of(4, A)) is None
    assert spread_in(CaseBook(), plan_of(30, A, B)) is None


def judged(outcome: Outcome) -> AttemptResult:
    return ended(outcome).result


def test_the_last_whole_run_of_the_suite_is_what_tells(tmp_path: Path) -> None:
    store, plan = Store(tmp_path / "store"), plan_of(10, A, B)
    assert (prospect_of(plan, store) or pytest.fail("none")).told_by is None
    whole = {trial.index: judged(PASSED if trial.index % 3 else FAILED) for trial in plan.trials}
    finish(store.create_run(plan, seed=0), whole)
    (run,) = store.runs()
    store.create_run(plan, seed=0).close(interrupted=True)
    finish(store.create_run(replace(plan, name="another"), seed=0), whole)
    found = prospect_of(plan, store)
    assert found is not None
    assert (found.told_by, found.spread.cases) == (run.id, 10)
    (Path(run.folder) / "run.db").write_bytes(b"no database")
    again = prospect_of(plan, store)
    assert again is not None
    assert again.told_by is None


def test_a_small_run_does_not_hide_an_older_one_of_more_cases(tmp_path: Path) -> None:
    store, plan = Store(tmp_path / "store"), plan_of(30, A, B)

    def ran(cases: int, outcome: Outcome = PASSED) -> str:
        """The run's id."""
        part = plan_of(cases, A, B)
        before = {run.id for run in store.runs()}
        finish(
            store.create_run(part, seed=0),
            {trial.index: judged(outcome) for trial in part.trials},
        )
        (run,) = {run.id for run in store.runs()} - before
        return run

    def told_by() -> str | None:
        found = prospect_of(plan, store)
        assert found is not None
        return found.told_by

    ran(30)
    whole = ran(30)
    ran(6)
    assert told_by() == whole, "the newest of those with the most cases"
    larger_of_others = plan_of(40, A, B)
    strange = [replace(one, case=Case(id=f"x-{one.case.id}")) for one in larger_of_others.trials]
    other = replace(larger_of_others, trials=tuple(strange))
    finish(store.create_run(other, seed=0), {one.index: judged(PASSED) for one in strange})
    assert told_by() == whole
    ran(30, Outcome.TIMEOUT)
    assert told_by() == whole, "what has no verdicts tells nothing"
    newest = ran(10)
    assert told_by() == whole, "the fifth run back"
    newest = ran(12)
    assert told_by() == newest, "what is older may be of another suite by now"


def test_of_a_run_that_is_too_large_the_first_cases_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plan = Store(tmp_path / "store"), plan_of(30, A, B)
    finish(store.create_run(plan, seed=0), {one.index: judged(PASSED) for one in plan.trials})
    monkeypatch.setattr(prospects, "MOST_READ", 20)
    found = prospect_of(plan, store)
    assert found is not None
    assert (found.told_by is not None, found.spread.cases) == (True, 10)


# ---- in words


def test_what_will_not_show_is_one_sentence() -> None:
    assert said(size(30)) == "Differences below about 34 points will probably not show."
    assert said(size(10_000)) == "Differences below about 1.9 points will probably not show."
    assert said(size(1)) == "1 case is too few to show any difference."
    assert said(size(30, variants=1)) == "The pass rate will be known to about ±17 points."
    sure = Spread(rate=1.0, within=0.0, cases=30)
    assert said(size(30, 5, variants=1), sure) == "The pass rate will be known to about ±6 points."


def test_plan_says_what_can_be_shown_and_tells_it_to_programs(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    cases = ", ".join(f"{{id: c{n}, expect: {'x' if n % 3 else f'c{n}'}}}" for n in range(12))
    write(
        "suite.yaml",
        f"""
        name: twelve
        cases: [{cases}]
        matrix: {{model: [one, two]}}
        target: {{command: [echo, "{{case.id}}"]}}
        graders: [equals]
        """,
    )
    planned = paraval("plan", "suite.yaml", env={"COLUMNS": "40"}).stdout
    before = " ".join(planned.split())
    assert before.endswith("Differences below about 54 points will probably not show.")
    assert max(len(line) for line in planned.splitlines()[-12:]) <= 40
    in_full = paraval("plan", "suite.yaml", "-v").stdout
    assert "cases  repeats  shown 80% of the time\n" in in_full
    assert "\n24           1              38 points\n" in in_full
    assert in_full.rstrip().endswith("(pass rates assumed to be spread evenly from 0 to 1)")
    assert not (folder / ".paraval").exists()
    paraval("run", "suite.yaml", "--progress", "none")
    told = json.loads(paraval("plan", "suite.yaml", "--json").stdout)["detectable"]
    (run,) = (folder / ".paraval" / "runs").iterdir()
    assert told["told_by"] == run.name
    first = told["sizes"][0]
    assert (first["cases"], first["repeats"]) == (12, 1)
    assert 0.2 < first["difference"] < 0.4
    assert (told["comparisons"], told["confidence"], told["power"]) == (1, 0.95, 0.8)


def test_a_plan_shows_three_trials_and_what_the_first_would_send(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "suite.yaml",
        """
        models: {m: {provider: loopback}}
        cases: [{id: a, input: "hello\\nthere"}, {id: b, input: bye}]
        matrix: {temp: [0, 1]}
        target: {chat: {model: m, system: "Be short.", prompt: "Say {input} at {temp}"}}
        """,
    )
    told = paraval("plan").stdout
    assert "3. b · temp=0\n... and 1 more (-v shows them)\n" in told
    assert "The first, a · temp=0, is sent:\n  system: Be short.\n  user: Say hello\n" in told
    assert "4. b · temp=1\n" in paraval("plan", "-v").stdout
    parts = json.loads(paraval("plan", "--json").stdout)["first_request"]
    assert [one["part"] for one in parts] == ["system", "user"]
    target = 'target: {command: [cat], stdin: "' + "{input} " * 300 + '"}'
    write("suite.yaml", f"cases: [{{id: a, input: hello}}]\n{target}\n")
    assert "(1,800 characters; -v shows all)" in paraval("plan").stdout
