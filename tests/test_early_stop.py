"""Early stop as a rule: when it stops, and how often it is wrong although it looks all the time."""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import Case, FunctionTarget, Outcome, Plan, Scalar, StopRule, Trial, Variant
from paraval.report.compare.case_pairs import Pairs
from paraval.report.compare.comparison import Difference, EarlyStopState, Finding, Method, Side
from paraval.report.compare.compute import compare
from paraval.report.compare.early_claims import Missing, anytime_difference, claiming
from paraval.report.compare.variants import ValuePair, axes_of, value_pairs
from paraval.runner.early_stop import EarlyStop
from paraval.statistics.anytime import MeanTest, drawn_order

TARGET = FunctionTarget(reference="m:f", folder="/")
PASSED, FAILED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED


def plan_of(
    cases: int, variants: list[Variant], repeats: int = 1, confidence: float = 0.95
) -> Plan:
    trials: list[Trial] = []
    for case in [Case(id=f"case-{number}") for number in range(cases)]:
        for variant in variants:
            for repeat in range(1, repeats + 1):
                index = len(trials)
                trials.append(
                    Trial(
                        index=index,
                        key=str(index),
                        case=case,
                        variant=variant,
                        repeat=repeat,
                        target=TARGET,
                    )
                )
    return Plan(
        name="p",
        source=None,
        axes={},
        variants=tuple(variants),
        trials=tuple(trials),
        stop=StopRule(confidence=confidence),
    )


def modes(*values: Scalar) -> list[Variant]:
    return [{"mode": value} for value in values]


# ---- what may be claimed at any time


def claims(
    pairs: Sequence[float | Missing | None], planned: int = 60, comparisons: int = 1
) -> EarlyStopState:
    return anytime_difference(pairs, planned, 0.95, comparisons)[1]


def test_eight_wins_in_a_row_decide_and_seven_do_not() -> None:
    assert not claims([1.0] * 7).decided
    difference, stopped = anytime_difference([1.0] * 8, 60, 0.95)
    assert stopped == EarlyStopState(used=8, planned=60, decided=True, futile=False)
    assert difference.p == pytest.approx(1 / 28.444, abs=1e-5)
    assert (difference.wins, difference.losses, difference.method) == (8, 0, Method.ANYTIME)


def test_several_comparisons_must_each_be_surer() -> None:
    difference, stopped = anytime_difference([1.0] * 9, 60, 0.95, 3)
    assert not stopped.decided
    assert difference.adjusted_p == pytest.approx(3 * difference.p)
    assert claims([1.0] * 10, comparisons=3).decided


def test_what_has_not_run_ends_what_counts_and_what_ended_without_a_verdict_does_not() -> None:
    pairs: list[float | Missing | None]
    pairs = [1.0, Missing.ENDED_WITHOUT, 0.0, None, -0.5, Missing.NOT_YET, *[1.0] * 20]
    difference, stopped = anytime_difference(pairs, 60, 0.95)
    assert (stopped.used, difference.wins, difference.losses) == (3, 1, 1)
    assert difference.mean == pytest.approx(0.5 / 3)


def test_a_decision_stays_when_those_that_were_running_go_the_other_way() -> None:
    difference, stopped = anytime_difference([1.0] * 8 + [-1.0] * 6, 60, 0.95)
    assert stopped.decided
    assert difference.p == pytest.approx(1 / 28.444, abs=1e-5)


def test_it_is_futile_once_the_rest_could_not_decide_it() -> None:
    assert not claims([0.0] * 52).futile
    assert claims([0.0] * 53).futile
    assert claims([Missing.ENDED_WITHOUT] * 53).futile, "what has no verdict cannot win any more"
    assert not claims([1.0] * 8, planned=8).futile


def test_without_a_pair_nothing_is_claimed() -> None:
    difference, stopped = anytime_difference([Missing.NOT_YET, 1.0], 60, 0.95)
    assert (difference.interval, difference.p, difference.method) == ((-1, 1), 1, Method.NONE)
    assert stopped == EarlyStopState(used=0, planned=60, decided=False, futile=False)


def test_the_interval_leaves_out_no_difference_just_where_the_test_is_decided() -> None:
    for wins, losses, ties in ((7, 0, 5), (8, 0, 4), (8, 0, 0), (15, 5, 3), (18, 3, 9), (30, 9, 2)):
        pairs = [1.0] * wins + [-1.0] * losses + [0.0] * ties
        difference, stopped = anytime_difference(pairs, 200, 0.95)
        assert (difference.interval[0] > 0) == stopped.decided
        assert difference.interval[0] <= difference.mean <= difference.interval[1]
    assert anytime_difference([1.0] * 100, 200, 0.95)[0].interval[1] == 1


def test_what_was_ruled_out_once_stays_so() -> None:
    """Pairs that were still running when it was decided may speak against it."""
    difference, stopped = anytime_difference([1.0] * 9 + [-1.0, 0.0, -1.0], 60, 0.95)
    assert stopped.decided
    assert difference.interval[0] > 0


def test_more_comparisons_make_wider_intervals() -> None:
    one = anytime_difference([1.0] * 9, 60, 0.95)[0].interval
    three = anytime_difference([1.0] * 9, 60, 0.95, comparisons=3)[0].interval
    assert three[0] < one[0]


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 1.0]), max_size=40))
@settings(max_examples=40, deadline=None)
def test_the_mirrored_pairs_are_judged_alike(pairs: list[float]) -> None:
    one, stopped = anytime_difference(pairs, 40, 0.95)
    other, mirrored = anytime_difference([-pair for pair in pairs], 40, 0.95)
    assert stopped == mirrored
    assert (one.p, one.wins, one.losses) == (other.p, other.losses, other.wins)
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]))


# ---- which comparisons


def test_a_few_values_are_all_compared_and_many_with_the_first() -> None:
    few = value_pairs({"m": ("a", "b", "c"), "alone": (1,)})
    assert few == [ValuePair("m", "b", "a"), ValuePair("m", "c", "a"), ValuePair("m", "c", "b")]
    assert len(value_pairs({"m": "abcd"})) == 6
    assert [pair.subject for pair in value_pairs({"m": "abcde"})] == ["b", "c", "d", "e"]
    assert {pair.reference for pair in value_pairs({"m": "abcde"})} == {"a"}
    assert value_pairs({}) == []


def test_axes_tell_one_from_true() -> None:
    variants: list[Variant] = [{"n": 1, "m": "x"}, {"n": True, "m": "x"}, {"n": 1.0, "m": "y"}]
    assert repr(axes_of(variants)) == "{'n': [1, True, 1.0], 'm': ['x', 'y']}"


# ---- the rule, heard trial by trial


def verdict_of(
    plan: Plan, outcome_of: Callable[[Trial], Outcome], seed: int = 0
) -> tuple[int, str | None]:
    """Trials one after the other in the order of a run: after how many it stops, and why."""
    decider = EarlyStop(plan, seed)
    order = drawn_order(list({trial.case.id: None for trial in plan.trials}), seed)
    in_order = sorted(plan.trials, key=lambda trial: order.index(trial.case.id))
    for number, trial in enumerate(in_order, start=1):
        decider.hear(trial, outcome_of(trial))
        if decider.verdict is not None:
            return number, decider.verdict
    return len(in_order), None


def only(*passing: Scalar) -> Callable[[Trial], Outcome]:
    return lambda trial: PASSED if trial.variant["mode"] in passing else FAILED


def test_a_plain_difference_is_decided_after_eight_cases() -> None:
    told = verdict_of(plan_of(60, modes("a", "b")), only("b"))
    assert told == (16, "early stop: decided after 8 of 60 cases")


def test_without_any_difference_it_stops_when_none_can_be_shown_any_more() -> None:
    trials, verdict = verdict_of(plan_of(60, modes("a", "b")), only())
    assert trials == 106
    assert verdict == (
        "early stop: a difference can no longer be shown (futile) after 53 of 60 cases"
    )


def test_it_goes_on_until_every_comparison_is_decided_or_cannot_be() -> None:
    """Of three values two are alike: what is decided early waits for what is not."""
    trials, verdict = verdict_of(plan_of(60, modes("a", "b", "c")), only("c"))
    assert trials == 3 * 51 - 1, "the last one is compared with nothing that is still open"
    assert verdict == (
        "early stop: 2 of 3 comparisons decided after 51 of 60 cases; in the others a"
        " difference can no longer be shown (futile)"
    )


def test_an_error_is_no_wrong_answer_and_its_case_is_passed_over() -> None:
    def outcome(trial: Trial) -> Outcome:
        is_odd = int(trial.case.id.removeprefix("case-")) % 2
        return ERROR if is_odd and trial.variant["mode"] == "a" else only("b")(trial)

    _, verdict = verdict_of(plan_of(60, modes("a", "b")), outcome)
    order = drawn_order([f"case-{number}" for number in range(60)], 0)
    even = [place for place, case in enumerate(order) if not int(case[5:]) % 2]
    assert verdict == f"early stop: decided after {even[7] + 1} of 60 cases"


def test_repeats_are_one_pair_and_a_case_waits_for_all_of_them() -> None:
    trials, verdict = verdict_of(plan_of(60, modes("a", "b"), repeats=5), only("b"))
    assert (trials, verdict) == (80, "early stop: decided after 8 of 60 cases")


def test_a_surer_decision_takes_more_cases() -> None:
    _, verdict = verdict_of(plan_of(60, modes("a", "b"), confidence=0.999), only("b"))
    assert verdict == "early stop: decided after 14 of 60 cases"


def test_other_axes_are_held_equal_and_a_case_is_one_pair_over_them() -> None:
    variants: list[Variant] = [{"mode": m, "model": n} for m in "ab" for n in "xyz"]
    trials, verdict = verdict_of(plan_of(60, variants), only("b"))
    assert verdict is not None
    assert verdict.startswith("early stop: 1 of 4 comparisons decided")
    assert trials % 6 == 0


def test_with_too_few_cases_for_any_decision_it_never_stops_and_says_so() -> None:
    plan = plan_of(7, modes("a", "b"))
    assert verdict_of(plan, only("b")) == (14, None)
    decider = EarlyStop(plan, 0)
    assert not decider.is_possible
    assert decider.why_impossible() == (
        "No early stop: with 7 cases nothing can be decided at 95% (at least 8 are needed)."
        " Running all of them."
    )
    assert EarlyStop(plan_of(8, modes("a", "b")), 0).is_possible


def test_variants_that_differ_in_every_axis_cannot_be_compared() -> None:
    decider = EarlyStop(plan_of(60, [{"m": "a", "n": 1}, {"m": "b", "n": 2}]), 0)
    assert not decider.is_possible
    assert "no two variants differ in exactly one axis" in decider.why_impossible()


def test_what_was_skipped_by_an_earlier_engine_has_not_run() -> None:
    plan = plan_of(60, modes("a", "b"))
    decider = EarlyStop(plan, 0)
    for trial in plan.trials:
        decider.hear(trial, Outcome.SKIPPED)
    assert decider.verdict is None


@given(
    st.integers(1, 30),
    st.sampled_from([modes("a", "b"), modes("a", "b", "c"), modes(*"abcde"),
                     [{"mode": m, "n": n} for m in "ab" for n in (1, 2)],
                     [{"mode": "a", "n": 1}, {"mode": "b", "n": 1}, {"mode": "b", "n": 2}]]),
    st.integers(1, 3),
    st.floats(0.51, 0.95),
    st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_it_says_what_the_report_will_in_whatever_order_trials_end(
    cases: int, variants: list[Variant], repeats: int, confidence: float, draw: random.Random
) -> None:
    """All comparisons are decided or futile by the report's own figures, as it stops, not before,
    and whether trials end in this order or in that."""
    plan = plan_of(cases, variants, repeats, confidence)
    ends = {
        trial.index: draw.choice([PASSED, FAILED, FAILED, ERROR])
        if trial.variant["mode"] == "a"
        else draw.choice([PASSED, PASSED, PASSED, ERROR])
        for trial in plan.trials
    }
    seen: dict[int, Outcome] = {}
    shuffled = list(plan.trials)
    draw.shuffle(shuffled)
    decider = EarlyStop(plan, 7)
    for trial in shuffled:
        assert decider.verdict is None
        seen[trial.index] = ends[trial.index]
        decider.hear(trial, ends[trial.index])
        settled = all(one.decided or one.futile for _, one in reported(plan, seen, 7))
        assert (decider.verdict is not None) is (settled and decider.is_possible)
        if decider.verdict is not None:
            break
    again = EarlyStop(plan, 7)
    for trial in plan.trials:
        if trial.index in seen:
            again.hear(trial, ends[trial.index])
    assert again.verdict == decider.verdict


def reported(
    plan: Plan, seen: dict[int, Outcome], seed: int
) -> list[tuple[Difference, EarlyStopState]]:
    """The comparisons by hand: slowly, from all trials each time."""
    assert plan.stop is not None
    by_cell: dict[tuple[str, str], list[Outcome | None]] = {}
    for trial in plan.trials:
        cell = by_cell.setdefault((trial.case.id, repr(dict(trial.variant))), [])
        cell.append(seen.get(trial.index))
    order = drawn_order(list({case: None for case, _ in by_cell}), seed)
    pairs = value_pairs(axes_of(plan.variants))
    return [
        anytime_difference(
            [pair_of(by_cell, case, pair, plan.variants) for case in order],
            len(order),
            plan.stop.confidence,
            len(pairs),
        )
        for pair in pairs
        if settings_of(pair, plan.variants)
    ]


def settings_of(pair: ValuePair, variants: tuple[Variant, ...]) -> list[tuple[Variant, Variant]]:
    return [
        (one, other)
        for one in variants
        for other in variants
        if one[pair.axis] == pair.subject and other == {**one, pair.axis: pair.reference}
    ]


def pair_of(
    cells: dict[tuple[str, str], list[Outcome | None]],
    case: str,
    pair: ValuePair,
    variants: tuple[Variant, ...],
) -> float | Missing:
    gaps = []
    for sides in settings_of(pair, variants):
        ends = [cells[case, repr(dict(side))] for side in sides]
        if None in ends[0] + ends[1]:
            return Missing.NOT_YET
        judged = [[end is PASSED for end in side if end is not ERROR] for side in ends]
        if all(judged):
            gaps.append(sum(judged[0]) / len(judged[0]) - sum(judged[1]) / len(judged[1]))
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    return (0.0 if abs(mean) < 1e-9 else mean) if gaps else Missing.ENDED_WITHOUT


# ---- how often it is wrong


@dataclass
class Ended:
    """A simulated run."""

    verdict: str | None
    trials: int

    @property
    def decided(self) -> bool:
        return self.verdict is not None and "decided" in self.verdict

    @property
    def after(self) -> int:
        found = re.search(r"after (\d+) of", self.verdict or "")
        assert found is not None
        return int(found[1])


Ends = Callable[[random.Random], list[tuple[Outcome, float]]]
"""Of a case: how its trials end, and how long they take."""


def run_in_parallel(plan: Plan, ends: Ends, seed: int, parallel: int = 8) -> Ended:
    """As an engine does: case by case in drawn order, several at once, heard as they end."""
    draw = random.Random(seed)
    decider = EarlyStop(plan, seed)
    width = len(plan.variants)
    order = drawn_order([plan.trials[i].case.id for i in range(0, len(plan.trials), width)], seed)
    running: list[tuple[float, int, Outcome]] = []
    now, trials = 0.0, 0
    for case in order:
        first = int(case.removeprefix("case-")) * width
        for offset, (outcome, seconds) in enumerate(ends(draw)):
            if len(running) == parallel:
                now, index, ended = heapq.heappop(running)
                decider.hear(plan.trials[index], ended)
                if decider.verdict is not None:
                    return Ended(decider.verdict, trials)
            heapq.heappush(running, (now + seconds, first + offset, outcome))
            trials += 1
    while running and decider.verdict is None:
        _, index, ended = heapq.heappop(running)
        decider.hear(plan.trials[index], ended)
    return Ended(decider.verdict, trials)


def equal_but_uneven_in_time(draw: random.Random) -> list[tuple[Outcome, float]]:
    """Both pass as often; but where b wins both are quick, and where it loses both are slow."""
    one, other = draw.random() < 0.5, draw.random() < 0.5
    seconds = 0.1 if other > one else 1.0 if other == one else 9.0
    return [(PASSED if passed else FAILED, seconds) for passed in (one, other)]


def test_equal_sides_are_called_different_at_most_once_in_twenty_although_it_always_looks() -> None:
    """500 runs of 60 cases, eight at once, in which the quick ones speak for one side."""
    plan = plan_of(60, modes("a", "b"))
    runs = [run_in_parallel(plan, equal_but_uneven_in_time, seed) for seed in range(500)]
    wrong = sum(run.decided for run in runs) / len(runs)
    assert wrong <= 0.05
    assert sum(run.trials for run in runs) / len(runs) < 119, "futility saves a little"


def test_counted_as_they_end_equal_sides_would_be_called_different_all_the_time() -> None:
    """Why a case counts only when all before it have ended."""
    wrong = 0
    for seed in range(300):
        draw = random.Random(seed)
        cases = [equal_but_uneven_in_time(draw) for _ in range(60)]
        test = MeanTest()
        for (one, _), (other, _) in sorted(cases, key=lambda case: case[0][1]):
            test.add((other is PASSED) - (one is PASSED))
        wrong += test.is_decided(0.05)
    assert wrong / 300 > 0.9


def test_of_three_equal_variants_any_is_called_different_at_most_once_in_twenty() -> None:
    plan = plan_of(40, modes("a", "b", "c"))

    def equal(draw: random.Random) -> list[tuple[Outcome, float]]:
        ability = draw.random()
        passed = [draw.random() < ability for _ in range(3)]
        return [(PASSED if one else FAILED, 0.1 if one else draw.random() * 9) for one in passed]

    runs = [run_in_parallel(plan, equal, seed) for seed in range(250)]
    assert sum(run.decided for run in runs) / len(runs) <= 0.05


@pytest.mark.parametrize(("win", "power", "cases"), [(0.75, 0.990, 33.7), (0.9, 1.0, 12.7)])
def test_a_real_difference_is_found_as_often_and_as_soon_as_it_should(
    win: float, power: float, cases: float
) -> None:
    """Of 100 cases in which one side always wins alone; the figures of an exact calculation, in
    which what is never decided takes all 100."""
    plan = plan_of(100, modes("a", "b"))

    def uneven(draw: random.Random) -> list[tuple[Outcome, float]]:
        better = draw.random() < win
        return [(FAILED if better else PASSED, 1.0), (PASSED if better else FAILED, 1.0)]

    runs = [run_in_parallel(plan, uneven, seed, parallel=1) for seed in range(250)]
    found = sum(run.decided for run in runs) / len(runs)
    assert found == pytest.approx(power, abs=4 * (max(power * (1 - power), 0.002) / 250) ** 0.5)
    took = [run.after if run.decided else 100 for run in runs]
    assert sum(took) / len(took) == pytest.approx(cases, rel=0.12)


Draw = Callable[[random.Random], float]
"""The difference of one case."""


def rate(draw: random.Random, chance: float, repeats: int) -> float:
    return sum(draw.random() < chance for _ in range(repeats)) / repeats


def five_repeats_against_one(draw: random.Random) -> float:
    """Both pass 9 in 10: errors left one side a single verdict, which wins most cases by a little
    and loses some by a lot."""
    return rate(draw, 0.9, 5) - rate(draw, 0.9, 1)


def many_small_wins_and_few_large_losses(draw: random.Random) -> float:
    return 0.2 if draw.random() < 0.8 else -0.8


def finding_of(differences: list[float], planned: int) -> Finding:
    """As a report has it."""
    nothing = compare(Pairs(), Side(label="b"), Side(label="a"), confidence=0.95, resamples=1)
    return claiming(nothing, anytime_difference(differences, planned, 0.95), among=1).finding


@pytest.mark.parametrize(
    "draw_one", [five_repeats_against_one, many_small_wins_and_few_large_losses]
)
def test_equal_rates_are_not_called_different_where_one_side_wins_more_cases(
    draw_one: Draw,
) -> None:
    """The claim is on the mean, so what is tested is the mean: of 200 runs of 100 cases, looked at
    after each, at most one in 20 claims anything."""
    wrong, runs, cases = 0, 200, 100
    for seed in range(runs):
        draw, test, differences = random.Random(seed), MeanTest(), list[float]()
        while len(differences) < cases and not test.is_decided(0.05):
            differences.append(draw_one(draw))
            test.add(differences[-1])
        if test.is_decided(0.05):
            wrong += finding_of(differences, cases) is not Finding.NOT_SHOWN
    assert wrong / runs <= 0.05


def test_what_is_found_is_what_the_mean_says_and_the_interval_shows() -> None:
    assert finding_of([1.0] * 8, 60) is Finding.BETTER
    assert finding_of([-1.0] * 8, 60) is Finding.WORSE
    assert finding_of([0.2] * 30 + [-1.0] * 15, 60) is not Finding.BETTER
    wins_less_often = [-0.05] * 40 + [1.0] * 30
    assert finding_of(wins_less_often, 100) is Finding.BETTER
    turned = [1.0] * 8 + [-1.0] * 9
    assert claims(turned).decided
    assert finding_of(turned, 60) is Finding.NOT_SHOWN
