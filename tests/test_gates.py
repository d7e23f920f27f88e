"""Whether a run is good enough against a baseline: shown, ruled out, or nobody can tell."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import pytest

import paraval as api
from paraval.cli.commands.report import report_command
from paraval.cli.commands.run import run_command
from paraval.cli.error_messages import EXIT_WRONG_REQUEST, exit_code_of
from paraval.cli.github import gate_annotations
from paraval.codec import Style, to_data
from paraval.errors import ParavalError
from paraval.records import (
    AttemptResult,
    Baseline,
    Case,
    Failure,
    Outcome,
    Plan,
    RunInfo,
    StopRule,
    TrialResult,
    Variant,
)
from paraval.report.baseline_gate import judge_drop, judge_regressions
from paraval.report.compare.case_results import CaseBook
from paraval.report.contents import Contents, Related, RunSource, order_seed_of
from paraval.report.formats.run_text import AsMarkdown, run_text
from paraval.report.gate import DropVerdict, GateVerdict, RegressionVerdict
from paraval.report.report import Report
from paraval.runner.baseline import check_baseline
from paraval.statistics.anytime import drawn_order
from paraval.text.tables import Page
from tests.conftest import Paraval, WriteSuite
from tests.test_store import make_plan

BASELINE = Baseline(name="20260131-120000-abcd", max_drop=0.05)
NOTHING: Variant = {}

Told = tuple[str, Variant, str]
"""A trial: its case, its variant, and `+` passed, `-` failed, `!` an error, `0` skipped, `e` left
out by an early stop."""

OUTCOMES = {
    "+": Outcome.PASSED,
    "-": Outcome.FAILED,
    "!": Outcome.TIMEOUT,
    "0": Outcome.SKIPPED,
}


RESULTS = {
    sign: AttemptResult(
        outcome=outcome,
        error=None if outcome.is_judged else Failure(kind=outcome, message="no verdict"),
    )
    for sign, outcome in OUTCOMES.items()
}
RESULTS["e"] = AttemptResult(
    outcome=Outcome.SKIPPED,
    error=Failure(kind=Outcome.SKIPPED, message="early stop: decided after 119 of 120 cases"),
)


def ends(signs: str, variant: Variant = NOTHING) -> list[Told]:
    """A case for each sign."""
    return [(f"case-{number}", variant, sign) for number, sign in enumerate(signs)]


def trials(told: Iterable[Told]) -> Iterator[TrialResult]:
    for index, (case, variant, sign) in enumerate(told):
        yield TrialResult(
            index=index, case_id=case, variant=variant, repeat=1, result=RESULTS[sign], attempts=1
        )


def book(told: Iterable[Told]) -> CaseBook:
    made = CaseBook()
    for result in trials(told):
        made.add(result)
    return made


def judged(now: Iterable[Told], before: Iterable[Told], max_drop: float = 0.05) -> DropVerdict:
    return judge_drop(book(now), book(before), replace(BASELINE, max_drop=max_drop))


# ---- verdicts


def test_a_drop_that_is_ruled_out_meets_the_gate() -> None:
    drop = judged(ends("+" * 108 + "-" * 12), ends("-" + "+" * 107 + "-" * 12))
    assert drop.verdict is GateVerdict.MET
    assert drop.sentence == (
        "Gate passed: no drop of more than 5 points against 20260131-120000-abcd (+0.8 points,"
        " 95% CI −2 to +4, 120 cases)"
    )


def test_a_drop_that_is_shown_misses_it() -> None:
    drop = judged(ends("+" * 70 + "-" * 30), ends("+" * 100))
    assert drop.verdict is GateVerdict.MISSED
    assert drop.sentence == (
        "Gate failed: pass rate dropped by more than 5 points against 20260131-120000-abcd"
        " (−30 points, 95% CI −40 to −20, 100 cases)"
    )


def test_between_them_nobody_can_tell_and_it_says_how_many_more_cases_could() -> None:
    drop = judged(ends("--" + "+" * 38), ends("-+" + "+" * 37 + "-"))
    assert drop.verdict is GateVerdict.UNKNOWN
    assert drop.more_cases is not None
    assert drop.sentence == (
        "Gate undecided: drop against 20260131-120000-abcd undecided (0 points, 95% CI −11 to +9,"
        f" 40 cases; allowed 5 points); about {drop.more_cases} more cases would probably decide"
        " it: passed; max_regressed: 0 decides with any number of cases if answers don't vary"
    )


def test_so_many_more_cases_do_tell() -> None:
    """What the sentence promises holds: with as many more like these, the answer is there."""
    now, before = "-+" + "+" * 38, "++" + "+" * 37 + "-"
    drop = judged(ends(now), ends(before))
    assert drop.more_cases is not None
    assert drop.more_cases < 10 or drop.more_cases % 10 == 0
    times = -(-(40 + drop.more_cases * 3 // 2) // 40)
    assert judged(ends(now * times), ends(before * times)).verdict is GateVerdict.MET


def test_where_the_drop_is_what_is_allowed_no_number_of_cases_tells() -> None:
    drop = judged(ends("+" * 38 + "--"), ends("+" * 40))
    assert drop.verdict is GateVerdict.UNKNOWN
    assert drop.more_cases is None
    assert "allowed 5 points); max_regressed: 0" in drop.sentence


def test_a_run_like_its_baseline_meets_the_gate_with_enough_cases_only() -> None:
    assert judged(ends("+" * 71), ends("+" * 71)).verdict is GateVerdict.UNKNOWN
    assert judged(ends("+" * 72), ends("+" * 72)).verdict is GateVerdict.MET


def test_more_cases_passing_meets_it_too() -> None:
    assert judged(ends("+" * 60), ends("-" * 60)).verdict is GateVerdict.MET


def test_repeats_count_as_one_case() -> None:
    """Ten repeats of six cases are six cases, not sixty."""
    now = [(f"case-{n % 6}", NOTHING, "+") for n in range(60)]
    drop = judged(now, now)
    assert drop.verdict is GateVerdict.UNKNOWN
    assert drop.cases == 6


def test_the_promise_is_kept_by_simulation() -> None:
    """Where the truth is a drop of just what is allowed, at most about one in forty is called met,
    and one in forty missed."""
    draw = random.Random(1)
    met = missed = 0
    runs = 120
    for _ in range(runs):
        before = ["+" if draw.random() < 0.85 else "-" for _ in range(100)]
        # Half of the cases keep their verdict; the others are drawn anew, lower by 20 points.
        now = [
            sign if draw.random() < 0.5 else "+" if draw.random() < 0.65 else "-" for sign in before
        ]
        verdict = judged(ends("".join(now)), ends("".join(before)), max_drop=0.10).verdict
        met += verdict is GateVerdict.MET
        missed += verdict is GateVerdict.MISSED
    assert met / runs < 0.07
    assert missed / runs < 0.07


# ---- variants

SMALL: Variant = {"model": "small", "mode": "with-tool"}
LARGE: Variant = {"model": "large", "mode": "with-tool"}


def test_one_variant_that_dropped_misses_the_gate_although_the_whole_did_not() -> None:
    others = [ends("+" * 60, {"model": f"m{number}"}) for number in range(9)]
    before = [told for one in others for told in one] + ends("+" * 60, {"model": "small"})
    now = [told for one in others for told in one] + ends("+" * 36 + "-" * 24, {"model": "small"})
    drop = judged(now, before)
    assert drop.verdict is GateVerdict.MISSED
    assert [one.variant for one in drop.dropped_variants] == ["small"]
    assert "20260131-120000-abcd with small (−40 points, 99.5% CI " in drop.sentence


def test_a_variant_that_dropped_less_than_is_allowed_does_not_miss_it() -> None:
    before = ends("+" * 400, SMALL) + ends("+" * 400, LARGE)
    now = ends("+" * 388 + "-" * 12, SMALL) + ends("+" * 400, LARGE)
    drop = judged(now, before)
    assert not drop.dropped_variants
    assert drop.verdict is GateVerdict.MET


def test_only_shared_variants_are_compared_in_whatever_order_their_axes_are() -> None:
    other_order: Variant = {"mode": "with-tool", "model": "small"}
    drop = judged(
        ends("+" * 80, SMALL) + ends("-" * 80, {"model": "new", "mode": "x"}),
        ends("+" * 80, other_order) + ends("-" * 80, LARGE),
    )
    assert drop.verdict is GateVerdict.MET
    assert drop.difference == 0


def test_a_single_variant_on_each_side_is_compared_whatever_it_is_called() -> None:
    assert judged(ends("+" * 80, SMALL), ends("+" * 80)).verdict is GateVerdict.MET


def test_where_these_two_differ_both_are_named() -> None:
    """Who reads "ruled out" must see that it is one model against another."""
    now, before = ends("+" * 80, {"model": "opus"}), ends("+" * 80, {"model": "haiku"})
    drop = judged(now, before)
    assert drop.sentence == (
        "Gate passed: no drop of more than 5 points against 20260131-120000-abcd (0 points,"
        " opus vs haiku, 95% CI −5 to +3, 80 cases)"
    )
    assert "opus vs haiku" in judged(now[:3], before[:3]).sentence
    assert "opus vs another variant" in judged(now, ends("+" * 80, {"model": "`x`"})).sentence
    assert "opus vs no variant" in judged(now, ends("+" * 80)).sentence
    assert " vs haiku" not in judged(before, before).sentence
    other_order: Variant = {"mode": "with-tool", "model": "small"}
    told = judged(ends("+" * 80, SMALL), ends("+" * 80, other_order)).sentence
    assert " vs " not in told


def test_without_a_variant_or_a_case_in_common_nobody_can_tell() -> None:
    drop = judged(
        ends("+", {"model": "a"}) + ends("+", {"model": "b"}),
        ends("+", {"model": "c"}) + ends("+", {"model": "d"}),
    )
    assert drop.verdict is GateVerdict.UNKNOWN
    assert "no variant in common" in drop.sentence
    drop = judged([("new", NOTHING, "+")], [("old", NOTHING, "+")])
    assert drop.verdict is GateVerdict.UNKNOWN
    assert "no case in common" in drop.sentence
    assert "2 cases left out: 1 only in this run and 1 only in the baseline" in drop.sentence
    assert (drop.only_now, drop.only_baseline) == (1, 1)


# ---- what is missing


def test_cases_that_one_side_lacks_are_said_and_left_out() -> None:
    drop = judged(ends("+" * 82), [*ends("+" * 80), ("gone", NOTHING, "-")])
    assert drop.verdict is GateVerdict.MET
    assert (drop.only_now, drop.only_baseline) == (2, 1)
    assert drop.sentence.endswith("3 cases left out: 2 only in this run and 1 only in the baseline")


def test_errors_are_left_out_and_are_no_wrong_answers() -> None:
    drop = judged(ends("+" * 99 + "!"), ends("+" * 100))
    assert drop.verdict is GateVerdict.MET
    assert (drop.cases, drop.difference) == (99, 0)
    assert drop.unjudged == 1
    assert drop.if_errors == pytest.approx((-0.01, 0))


def test_errors_that_could_turn_the_answer_hide_it() -> None:
    drop = judged(ends("+" * 94 + "!" * 6), ends("+" * 100))
    assert drop.verdict is GateVerdict.UNKNOWN
    assert ": errors and skipped trials could make it −6 to 0 points" in drop.sentence
    drop = judged(ends("-" * 20 + "+" * 20 + "!" * 60), ends("+" * 40 + "-" * 60))
    assert drop.verdict is GateVerdict.UNKNOWN
    assert drop.interval is not None
    assert drop.interval[1] < -0.05


def test_what_was_skipped_hides_the_answer_too() -> None:
    now, before = book(ends("+" * 94 + "0" * 6)), book(ends("+" * 100))
    drop = judge_drop(now, before, BASELINE)
    assert drop.verdict is GateVerdict.UNKNOWN
    assert drop.if_errors == (-0.06, 0)


# ---- runs that may stop early


def in_drawn_order(signs: str, seed: int = 7) -> list[Told]:
    """A case for each sign, the first for the case that was drawn first; in plan order."""
    names = [f"case-{number}" for number in range(len(signs))]
    told = dict(zip(drawn_order(names, seed), signs, strict=True))
    return [(name, NOTHING, told[name]) for name in names]


def at_any_time(now: str, before: str, max_drop: float = 0.05) -> DropVerdict:
    baseline = replace(BASELINE, max_drop=max_drop)
    books = book(in_drawn_order(now)), book(in_drawn_order(before))
    return judge_drop(*books, baseline, at_any_time=True, order_seed=7)


def test_a_run_that_may_stop_early_claims_less() -> None:
    told = book(ends("+" * 80))
    assert judge_drop(told, told, BASELINE).verdict is GateVerdict.MET
    drop = at_any_time("+" * 80, "+" * 80)
    assert drop.verdict is GateVerdict.UNKNOWN
    assert drop.sentence == (
        "Gate undecided: drop against 20260131-120000-abcd undecided (0 points, 95% CI −6 to +6 at"
        " any time, 80 cases; allowed 5 points); max_regressed: 0 decides with any number of cases"
        " if answers don't vary"
    )
    assert at_any_time("+" * 110, "+" * 110).verdict is GateVerdict.MET


def test_what_an_early_stop_left_out_hides_nothing_and_is_counted() -> None:
    drop = at_any_time("+" * 40 + "0" * 60, "+" * 100, max_drop=0.2)
    assert drop.verdict is GateVerdict.MET
    assert (drop.if_errors, drop.unjudged) == (None, 0)
    assert drop.sentence == (
        "Gate passed: no drop of more than 20 points against 20260131-120000-abcd (0 points,"
        " 95% CI −12 to +12 at any time, 40 of 100 cases)"
    )


def test_cases_beyond_the_first_that_has_not_run_do_not_count() -> None:
    """Which of them happened to end may depend on how they ended."""
    drop = at_any_time("+" * 30 + "0" + "-" * 29, "+" * 60, max_drop=0.2)
    assert (drop.difference, drop.cases) == (0, 30)
    assert drop.verdict is GateVerdict.MET
    assert "no case has a verdict in both runs" in at_any_time("0" + "+" * 59, "+" * 60).sentence


def test_errors_among_the_first_cases_are_passed_over_and_hide_what_they_hide() -> None:
    drop = at_any_time("+" * 20 + "!" * 10 + "+" * 20 + "0" * 10, "+" * 60, max_drop=0.15)
    assert (drop.cases, drop.unjudged) == (40, 10)
    assert drop.if_errors == (-0.2, 0)
    assert drop.verdict is GateVerdict.UNKNOWN
    assert ": errors and skipped trials could make it −20 to 0 points" in drop.sentence


def test_a_variant_counts_as_far_as_it_ran_itself() -> None:
    small, large = {"model": "small"}, {"model": "large"}

    def both(of_small: str, of_large: str) -> CaseBook:
        told = [
            (case, variant, sign)
            for signs, variant in ((of_small, small), (of_large, large))
            for case, _, sign in in_drawn_order(signs)
        ]
        return book(told)

    before = both("+" * 60, "+" * 60)
    now = both("-" * 40 + "+" * 20, "+" * 3 + "0" * 57)
    drop = judge_drop(now, before, BASELINE, at_any_time=True, order_seed=7)
    assert drop.cases == 3
    assert drop.verdict is GateVerdict.MISSED
    assert [one.cases for one in drop.dropped_variants] == [60]


def test_without_a_known_order_nothing_is_claimed_of_a_run_that_may_stop() -> None:
    told = book(ends("+" * 200))
    drop = judge_drop(told, told, BASELINE, at_any_time=True)
    assert (drop.verdict, drop.difference) == (GateVerdict.UNKNOWN, None)
    assert drop.sentence == (
        "Gate undecided: drop against 20260131-120000-abcd undecided: one of the runs may stop"
        " early, and they have no known case order in common, as runs with the same seed have"
    )


def test_nothing_at_all_can_be_judged() -> None:
    for now, before in (("", ""), ("!", "+"), ("+", "!"), ("!!", "!!"), ("+", "")):
        drop = judged(ends(now), ends(before))
        assert drop.verdict is GateVerdict.UNKNOWN
        assert drop.difference is None


# ---- names of others


@pytest.mark.parametrize(
    "label",
    [
        "<img src=x>",
        "`x` | y",
        "@everyone",
        "\x1b[31mred",
        "a\n::error::b",
        "modèle",
        "www.evil.de",
    ],
)
def test_names_that_could_act_are_not_in_the_sentence(label: str) -> None:
    before = ends("+" * 60, {"model": label}) + ends("+" * 60, {"model": "other"})
    now = ends("-" * 60, {"model": label}) + ends("+" * 60, {"model": "other"})
    drop = judge_drop(book(now), book(before), Baseline(name=f"/tmp/{label}.json", max_drop=0.6))
    assert drop.verdict is GateVerdict.MISSED
    assert drop.sentence.replace("−", "-").isascii()
    assert drop.sentence.isprintable()
    assert label not in drop.sentence
    assert "against the baseline with one variant (−100 points, " in drop.sentence
    assert to_data(drop, Style.SHOWN)["dropped_variants"][0]["variant"] == label


# ---- the gate of a report


@dataclass(frozen=True)
class FakeRun(RunSource):
    """A run that was never run."""

    told: Sequence[Told]
    run: RunInfo = field(
        default_factory=lambda: RunInfo(
            id="20260201-000000-0001",
            suite="small",
            source=None,
            folder="/runs/20260201-000000-0001",
            trials=0,
            parallel=4,
            seed=0,
            started_at=0.0,
            ended_at=1.0,
            wall_s=1.0,
            resumed=0,
            interrupted=False,
            fail_under=None,
            baseline=BASELINE,
        )
    )

    def info(self) -> RunInfo:
        return replace(self.run, trials=max(self.run.trials, len(self.told)))

    def results(self) -> Iterator[TrialResult]:
        return trials(self.told)


@dataclass(frozen=True)
class Before(Related):
    """What is known about a run is its baseline, if it is not gone."""

    run: RunSource | None

    def baseline(self, name: str) -> RunSource:
        assert name == BASELINE.name
        return self.run or Related.baseline(self, name)


def report_of(now: str, before: str | None, **facts: object) -> Report:
    run = FakeRun(ends(now))
    run = replace(run, run=replace(run.run, **facts))  # type: ignore[arg-type]  # facts of a run
    return Report(run, Before(None if before is None else FakeRun(ends(before))))


def test_with_a_baseline_alone_not_every_trial_must_pass() -> None:
    gate = report_of("+" * 90 + "-" * 10, "+" * 90 + "-" * 10).gate
    assert (gate.verdict, gate.exit_code) == (GateVerdict.MET, 0)


@pytest.mark.parametrize(
    ("now", "before", "fail_under", "verdict", "code"),
    [
        ("+" * 100, "+" * 100, 0.9, GateVerdict.MET, 0),
        ("+" * 80 + "-" * 20, "+" * 80 + "-" * 20, 0.9, GateVerdict.MISSED, 1),
        ("+" * 80 + "-" * 20, "+" * 100, 0.5, GateVerdict.MISSED, 1),
        ("+" * 20, "+" * 20, 0.9, GateVerdict.UNKNOWN, 3),
        ("+" * 10 + "-" * 10, "+" * 10 + "-" * 10, 0.9, GateVerdict.MISSED, 1),
    ],
)
def test_of_two_gates_the_worse_counts_and_both_are_said(
    now: str, before: str, fail_under: float, verdict: GateVerdict, code: int
) -> None:
    gate = report_of(now, before, fail_under=fail_under).gate
    assert (gate.verdict, gate.exit_code) == (verdict, code)
    spoken = {
        GateVerdict.MET: "passed",
        GateVerdict.MISSED: "failed",
        GateVerdict.UNKNOWN: "undecided",
    }
    assert gate.sentence.startswith(f"Gate {spoken[verdict]}: ")
    assert gate.sentence.count("Gate ") == 1
    assert f", required {fail_under:.0%}" in gate.sentence
    assert "5 points" in gate.sentence


def test_the_verdict_of_all_comes_first_and_that_of_each_part_behind_it() -> None:
    undecided = report_of("+" * 20, "+" * 20, fail_under=0.9).gate
    assert undecided.sentence.startswith(
        "Gate undecided: pass rate 100% (20/20), required 90%, within noise (interval 84–100%);"
        " drop against 20260131-120000-abcd undecided (0 points, 95% CI "
    )
    (told,) = gate_annotations(report_of("+" * 20, "+" * 20, fail_under=0.9))
    assert told.startswith("::warning title=paraval%3A small::Gate undecided: ")
    failed = report_of("+" * 10 + "-" * 10, "+" * 10 + "-" * 10, fail_under=0.9).gate
    assert failed.sentence.startswith(
        "Gate failed: pass rate 50% (10/20), required 90%; drop against "
    )


def test_a_baseline_that_is_gone_leaves_the_gate_unknown() -> None:
    gate = report_of("+" * 80, None).gate
    assert (gate.verdict, gate.exit_code) == (GateVerdict.UNKNOWN, 3)
    assert "20260131-120000-abcd undecided: the baseline can no longer be read" in gate.sentence
    assert Report(FakeRun(ends("+"))).gate.exit_code == 3


def test_a_run_that_was_interrupted_or_goes_on_is_not_judged() -> None:
    assert report_of("+", "+", interrupted=True).gate.exit_code == 130
    assert (
        "Gate undecided: the run is still going" in report_of("+", "+", running=True).gate.sentence
    )
    assert "Gate undecided: no trial ran" in report_of("", "+").gate.sentence


def test_a_rule_to_stop_on_either_side_widens_what_is_claimed() -> None:
    assert report_of("+" * 80, "+" * 80).gate.verdict is GateVerdict.MET
    assert report_of("+" * 80, "+" * 80, stop=StopRule()).gate.verdict is GateVerdict.UNKNOWN
    assert report_of("+" * 110, "+" * 110, stop=StopRule()).gate.verdict is GateVerdict.MET


def test_before_it_starts_a_run_says_when_its_cases_cannot_be_enough() -> None:
    (any_trial, *_) = make_plan(1).trials
    cases = [replace(any_trial, index=n, case=Case(id=f"case-{n}")) for n in range(60)]
    plan = replace(make_plan(1), trials=tuple(cases), variants=({},))

    def told(plan: Plan, max_drop: float) -> list[str]:
        baseline = replace(BASELINE, max_drop=max_drop)
        return list(check_baseline(plan, baseline, lambda _: FakeRun(ends("+" * 60))))

    assert told(plan, 0.06) == []
    (few,) = told(plan, 0.05)
    assert few == (
        "Even if no case changes, 60 cases cannot rule out a drop of more than 5 points; 12 more"
        " cases could."
    )
    (few,) = told(replace(plan, stop=StopRule()), 0.05)
    assert few == (
        "Even if no case changes, 60 cases of a run that may stop early cannot rule out a drop of"
        " more than 5 points."
    )
    assert told(replace(plan, stop=StopRule()), 0.09) == []


def test_two_runs_that_may_stop_are_compared_if_they_drew_one_order() -> None:
    stops = replace(FakeRun([]).run, stop=StopRule(), seed=3)
    assert order_seed_of([stops]) == 3
    assert order_seed_of([stops, replace(stops, id="x")]) == 3
    assert order_seed_of([stops, replace(stops, seed=4)]) is None
    assert order_seed_of([]) is None


@pytest.mark.parametrize(("seed", "code"), [(3, 0), (4, 3)])
def test_a_gate_claims_nothing_of_runs_that_drew_different_orders(seed: int, code: int) -> None:
    """As a comparison of the two does."""
    stops = FakeRun(ends("+" * 120), replace(FakeRun([]).run, stop=StopRule(), seed=3))
    gate = Report(stops, Before(replace(stops, run=replace(stops.run, seed=seed)))).gate
    assert gate.exit_code == code
    assert ("no known case order in common" in gate.sentence) is (code == 3)


@pytest.mark.parametrize("now_stops", [True, False])
def test_a_baseline_of_which_nothing_but_its_trials_is_known_tells_by_them_that_it_stopped(
    now_stops: bool,
) -> None:
    """As a .jsonl report does: what drew its cases is not in it, be it the same or not."""
    report = report_of("+" * 120, "+" * 119 + "e", stop=StopRule() if now_stops else None)
    assert report.gate.exit_code == 3
    assert report.gate.sentence.startswith(
        "Gate undecided: drop against 20260131-120000-abcd undecided: one of the runs may stop"
        " early, and they have no known case order in common, as runs with the same seed have"
    )
    assert report_of("+" * 120, "+" * 120).gate.verdict is GateVerdict.MET


def test_every_form_tells_the_gate(tmp_path: Path) -> None:
    report: Contents = report_of("+" * 80, "+" * 80)
    text = run_text(report, Page(width=40, color=False, unicode=False))
    assert text.isascii()
    assert all(len(line) <= 40 for line in text.splitlines())
    with (tmp_path / "report.md").open("w+") as file:
        AsMarkdown().write(report, file)
        file.seek(0)
        assert "**Gate passed: no drop of more than 5 points" in file.read()
    told = report_of("+" * 80, "+" * 80).to_dict()["gate"]
    assert told["baseline"]["name"] == BASELINE.name
    assert told["baseline"]["difference"] == 0
    assert told["baseline"]["cases"] == 80
    assert told["baseline"]["interval"][0] > -0.05


# ---- as a user types it

SUITE = """
    name: small
    cases: cases.jsonl
    target: {{python: "functions:answer"}}
    graders: [equals]
    {more}
"""


@pytest.fixture
def suite(write: WriteSuite) -> WriteSuite:
    """Writes a suite of 80 cases of which the first few are answered wrongly."""
    cases = [json.dumps({"id": f"c{n}", "expect": f"c{n}"}) for n in range(80)]
    write("cases.jsonl", "\n".join(cases))

    def write_suite(wrong: int = 0, more: str = "") -> Path:
        write(
            "functions.py",
            f"def answer(case):\n    return 'x' if int(case.id[1:]) < {wrong} else case.id\n"
            # Of another length each time: Python knows a module by its second and its size.
            + "#" * wrong,
        )
        return write("suite.yaml", SUITE.format(more=more))

    return write_suite


Typed = Callable[..., tuple[int, str]]


@pytest.fixture
def typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Runs the command in this process: its exit code, and all it printed, on one line."""

    def run(name: str, *arguments: str) -> tuple[int, str]:
        command = {"run": run_command, "report": report_command}[name]
        try:
            code = int(command.main(arguments, standalone_mode=False) or 0)
            told = ""
        except ParavalError as error:
            code, told = exit_code_of(error), str(error)
        except click.ClickException as error:
            code, told = EXIT_WRONG_REQUEST, error.format_message()
        printed = capsys.readouterr()
        return code, " ".join(f"{printed.out} {printed.err} {told}".split())

    return run


def test_exit_codes_of_runs_against_a_file(
    suite: WriteSuite, paraval: Paraval, typed: Typed, folder: Path
) -> None:
    api.run(suite()).write("before.json")
    same = paraval("run", "suite.yaml", "--baseline", "before.json")
    assert (same.returncode, "no drop of more than" in same.stdout) == (0, True), same.stderr
    suite(wrong=4)
    few = paraval("run", "suite.yaml", "--baseline", "before.json")
    assert (few.returncode, "Gate undecided" in few.stdout) == (3, True), few.stderr
    suite(wrong=20)
    many = paraval("run", "suite.yaml", "--baseline", "before.json", "-o", "now.json")
    assert (many.returncode, "Gate failed" in many.stdout) == (1, True), many.stderr
    gate = json.loads((folder / "now.json").read_text())["gate"]
    assert gate["baseline"]["name"] == str(folder / "before.json")
    # What the run was begun with is kept: reports judge the same, or as they are asked to.
    assert typed("report", "--check")[0] == 1
    assert typed("report")[0] == 0, "without --check, it only shows the report"
    assert typed("report", "--check", "--max-drop", "0.6")[0] == 0
    assert "Gate" not in typed("report", "--no-baseline")[1]
    code, told = typed("report", "--baseline", "last")
    assert (code, "its own baseline" in told) == (2, True)
    (folder / "before.json").unlink()
    code, told = typed("report", "--check")
    assert (code, "before.json undecided: the baseline can no longer be read" in told) == (3, True)


UNFIT = [
    (("--baseline", "other.json"), "no verdict on any case"),
    (("--baseline", "no.json"), "no.json"),
    (("--baseline", "nothing.json"), "no such file"),
    (("--baseline", "folder.json"), "folder.json: it is a folder"),
    (("--baseline", "pipe.json"), "pipe.json: it is not a regular file"),
    (("--baseline", "loop.json"), "loop.json: Too many levels of symbolic links"),
    (("--max-drop", "5"), "'5' is not a number from 0 to 1; did you mean 0.05?"),
    (("--fail-under", "90%"), "'90%' is not a number from 0 to 1; did you mean 0.9?"),
    (("--fail-under", "101"), "101.0 is not in the range"),
    (("--baseline", "2001"), "no run '2001'"),
    (("--baseline", ""), "name a run"),
    (("--max-drop", "0.1"), "paraval baseline set"),
    (("--max-drop", "nan"), "max-drop"),
    (("--no-baseline", "--baseline", "last"), "--no-baseline cannot be combined with"),
    (("--no-baseline", "--max-drop", "0.1"), "--no-baseline cannot be combined with"),
]


def test_what_cannot_be_held_against_is_told_before_anything_runs(
    suite: WriteSuite, typed: Typed, folder: Path
) -> None:
    suite()
    other = api.Suite(cases=[{"id": "z9"}], target=lambda case: case.id)
    api.run(other, options=api.Options(store=folder / "elsewhere")).write("other.json")
    (folder / "no.json").write_text("{}")
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "loop.json").symlink_to("loop.json")
    for flags, told in UNFIT:
        code, printed = typed("run", "suite.yaml", *flags)
        assert code == 2, (flags, printed)
        assert told in printed
    assert not list(folder.glob(".paraval/runs/*"))


# ---- cases that regressed


def repeated(**signs: str) -> list[Told]:
    """The repeats of each case."""
    return [(case, NOTHING, sign) for case, each in signs.items() for sign in each]


def regressions(now: Sequence[Told], before: Sequence[Told], allowed: int = 0) -> RegressionVerdict:
    baseline = Baseline(name=BASELINE.name, max_regressed=allowed)
    return judge_regressions(book(now), book(before), baseline)


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ("+", "-", "regressed"),
        ("+++", "---", "regressed"),
        ("+++", "--+", "regressed"),
        ("+", "--+", "regressed"),
        ("+!", "-", "regressed"),
        ("+++", "---!", "regressed"),
        ("+++", "-++", "flaky"),
        ("++", "-+", "flaky"),
        ("+-+", "---", "flaky"),
        ("+-+", "-+!", "flaky"),
        ("+", "!", "unknown"),
        ("+", "0", "unknown"),
        ("+++", "-!!", "unknown"),
        ("+++", "++!", None),
        ("+", "+", None),
        ("-", "-", None),
        ("!", "-", None),
        ("+-", "++", None),
    ],
)
def test_a_case_regressed_if_it_passed_each_time_and_mostly_fails_now(
    before: str, now: str, kind: str | None
) -> None:
    found = regressions(repeated(it=now, other="+"), repeated(it=before, other="+"))
    for name in ("regressed", "flaky", "unknown"):
        assert getattr(found, name) == (("it",) if name == kind else ())
    verdicts = {"regressed": GateVerdict.MISSED, "unknown": GateVerdict.UNKNOWN}
    assert found.verdict is verdicts.get(kind or "", GateVerdict.MET)


def test_as_many_may_regress_as_are_allowed_and_errors_count_only_if_they_could_exceed_it() -> None:
    before = repeated(a="+", b="+", c="+")
    assert regressions(repeated(a="-", b="-", c="+"), before, 2).verdict is GateVerdict.MET
    assert regressions(repeated(a="-", b="-", c="!"), before, 2).verdict is GateVerdict.UNKNOWN
    assert regressions(repeated(a="-", b="!", c="+"), before, 2).verdict is GateVerdict.MET
    assert regressions(repeated(a="-", b="-", c="!"), before, 1).verdict is GateVerdict.MISSED
    assert regressions(repeated(new="-"), before).verdict is GateVerdict.UNKNOWN
    assert regressions(repeated(a="+", new="-"), before).verdict is GateVerdict.MET


def test_regressions_are_named_with_their_variants_and_hostile_names_are_only_counted() -> None:
    small, large = {"model": "small"}, {"model": "large"}
    before = [*ends("++++", small), *ends("++++", large)]
    found = regressions([*ends("-+++", small), *ends("++++", large)], before)
    assert found.finding == (
        "1 of 8 results got worse than 20260131-120000-abcd, allowed 0: case-0 - small"
    )
    names = ["[x](http://evil)", "<b>", "plain name"]
    hostile = [(name, NOTHING, "+") for name in names]
    found = regressions([(name, NOTHING, "-") for name in names], hostile)
    assert found.finding.endswith("allowed 0: plain name and 2 more (all: paraval report -v)")
    assert found.regressed == tuple(names)


def test_a_small_suite_is_green_if_nothing_changed_and_red_if_one_case_fails(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    cases = "".join(f"  - {{id: c{n}, input: 'c{n}', expect: ok}}\n" for n in range(12))
    suite = f"""
name: small
cases:
{cases}
target: {{command: [sh, -c, "cat answers/$0", "{{input}}"], cwd: .}}
graders: [contains]
"""
    write("suite.yaml", suite)
    (folder / "answers").mkdir()
    for number in range(12):
        (folder / "answers" / f"c{number}").write_text("no" if number == 11 else "ok")
    paraval("run", "suite.yaml", "-o", "base.json")
    against = ("run", "suite.yaml", "--baseline", "base.json", "-o", "report.json")
    undecided = paraval(*against)
    assert undecided.returncode == 3
    assert "max_regressed: 0 decides with any" in undecided.stdout
    assert "passed:" not in undecided.stdout
    green = paraval(*against, "--max-regressed", "0")
    assert green.returncode == 0, green.stderr
    assert "Gate passed: 0 of 12 cases got worse than base.json, allowed 0" in green.stdout
    (folder / "answers" / "c3").write_text("no")
    red = paraval(*against, "--max-regressed", "0", env={"GITHUB_ACTIONS": "true"})
    assert red.returncode == 1
    sentence = "Gate failed: 1 of 12 cases got worse than base.json, allowed 0: c3"
    assert sentence in red.stdout
    assert f"::error title=paraval%3A small::{sentence}" in red.stderr
    document = json.loads((folder / "report.json").read_text())
    assert document["gate"]["regressions"]["regressed"] == ["c3"]
    assert document["gate"]["baseline"] is None
    assert (document["run"]["baseline"]["max_drop"], document["gate"]["exit_code"]) == (None, 1)
    assert paraval("report", "last", "--check").returncode == 1
    assert paraval("report", "last", "--check", "--max-regressed", "1").returncode == 0
    (folder / "answers" / "c3").unlink()
    lost = paraval(*against, "--max-regressed", "0")
    assert lost.returncode == 3
    assert "Gate undecided: 0 of 12 cases got worse" in lost.stdout
    assert "trials: c3" in lost.stdout
    assert paraval(*against, "--max-regressed", "1").returncode == 0


def test_every_regressed_case_can_be_found_with_its_variant(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = f"""
name: shades
cases: [{", ".join(f"{{id: c{n}, input: ok, expect: ok}}" for n in range(5))}]
matrix: {{tone: [warm, cold]}}
target: {{command: [sh, -c, "test $0 = SHADE && echo no || echo ok", "{{tone}}"]}}
graders: [contains]
"""
    write("suite.yaml", suite)
    paraval("run", "suite.yaml", "-o", "base.json")
    write("suite.yaml", suite.replace("SHADE", "cold"))
    against = ("run", "suite.yaml", "--baseline", "base.json", "--max-regressed", "0")
    red = paraval(*against, "-o", "report.html", "-o", "report.md")
    assert "5 of 10 results got worse than base.json" in red.stdout
    write("suite.yaml", suite.replace("$0 = SHADE", "-n x"))
    red = paraval(*against, "-o", "report.html", "-o", "report.md")
    assert "and 5 more (all: paraval report -v)" in red.stdout.replace("\n", " ")
    names = [f"c{n} · {tone}" for n in range(5) for tone in ("warm", "cold")]
    listed = paraval("report", "-v").stdout.partition("10 regressed against the baseline:")[2]
    assert all(name in listed for name in names)
    listed = (folder / "report.md").read_text().partition("10 regressed against the baseline")[2]
    assert all(name in listed for name in names)
    page = (folder / "report.html").read_text()
    for name in names:
        assert re.search(rf'<a href="#[^"]+">[^\n]*class="name">{name}</span></a>', page), name
    shown = paraval("compare", "base.json", "last", "--all").stdout
    assert "10 case-variant pairs regressed: passed before, failed after" in shown
    assert all(name in shown for name in names)
    shown = paraval("compare", "last~1", "last", "--all").stdout
    assert "5 case-variant pairs regressed: passed before, failed after" in shown
    assert "c4 · warm" in shown
    assert "c4 · cold" not in shown


def test_the_suite_may_say_how_many_cases_may_regress(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    suite = """
name: tiny
cases: [{id: a, input: hi, expect: hi}, {id: b, input: yo, expect: yo}]
target: {command: [cat], stdin: "{input}"}
graders: [contains]
max_regressed: 0
"""
    write("suite.yaml", suite)
    first = paraval("run", "suite.yaml")
    assert "max_regressed is not checked: suite 'tiny' has no baseline" in first.stderr
    paraval("baseline", "set", "last")
    assert paraval("run", "suite.yaml").returncode == 0
    write("suite.yaml", suite.replace('"{input}"', "yo"))
    ended = paraval("run", "suite.yaml", "--fail-under", "0.5")
    assert ended.returncode == 1
    assert "1 of 2 cases got worse than" in " ".join(ended.stdout.split())
    assert paraval("run", "suite.yaml", "--no-baseline", "--fail-under", "0.5").returncode == 0
    assert paraval("run", "suite.yaml", "--no-baseline", "--max-regressed", "0").returncode == 2
    write("wrong.yaml", suite.replace("max_regressed: 0", "max_regressed: -1"))
    wrong = paraval("run", "wrong.yaml")
    assert wrong.returncode == 2
    assert "wrong.yaml:6: max_regressed: must be a whole number, 0 or more" in wrong.stderr


def test_a_run_in_which_nothing_was_judged_is_undecided_even_if_nothing_is_required(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: x}, {id: b, input: x}]
        target: {command: [sh, -c, "exit 9"]}
        fail_under: 0
        """,
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 3, ended.stdout
    assert "Gate undecided: no trial was judged, because of 2 errors" in ended.stdout
