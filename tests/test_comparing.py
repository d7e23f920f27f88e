"""Two sides on the same cases: what is paired, and what the pairs say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import TrialResult
from paraval.report.compare.case_pairs import UnpairableError, pair_books
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.claims import figure_lines
from paraval.report.compare.comparison import (
    CaseChanges,
    Comparison,
    Difference,
    Finding,
    Interval,
    LeftOut,
    Method,
    PassAtK,
    Ratio,
    Side,
)
from paraval.report.compare.compute import adjusted, compare, finding_of, resamples_for
from paraval.statistics.pairs import paired_interval
from tests.comparing_kit import book_of, by_mode, trial, trials_of

A, B = Side(label="A"), Side(label="B")


def compared(subject: CaseBook, reference: CaseBook) -> Comparison:
    return compare(pair_books(subject, reference).pairs, A, B, resamples=99)


def against(subject: Sequence[str], reference: Sequence[str]) -> Comparison:
    """What each case came to on both sides, a letter a repeat."""
    return compared(by_mode(a=subject), by_mode(a=reference))


# ---- the unit is the case


def test_one_repeat_is_judged_by_mcnemar_and_the_interval_of_bonett_and_price() -> None:
    comparison = against("P" * 9 + "FF" + "P" * 19, "F" * 9 + "PP" + "P" * 19)
    passing = comparison.passing
    assert passing is not None
    assert (passing.wins, passing.losses, comparison.cases) == (9, 2, 30)
    assert passing.method is Method.MCNEMAR
    assert passing.p == pytest.approx(0.03857, abs=5e-6)
    differences = [1.0] * 9 + [-1.0] * 2 + [0.0] * 19
    assert (passing.mean, *passing.interval) == paired_interval(differences)
    assert comparison.finding is Finding.BETTER
    assert (comparison.rate_subject, comparison.rate_reference) == (28 / 30, 21 / 30)


def test_repeats_are_a_cluster_so_more_of_them_are_not_more_cases() -> None:
    once = against("PPFPFFFFPFFF", "FFFFFFFFFFFF").passing
    often = against(["P" * 5 if end == "P" else "F" * 5 for end in "PPFPFFFFPFFF"], ["F" * 5] * 12)
    assert often.cases == 12
    assert often.passing is not None
    assert once is not None
    assert often.passing.method is Method.SIGN_FLIPS
    assert often.passing.p == 0.125
    assert often.passing.interval == once.interval


def test_a_cases_rate_is_the_mean_over_its_judged_repeats() -> None:
    comparison = against(["PPF", "PE", "F"], ["F", "FFP", "FFE"])
    assert comparison.rate_subject == pytest.approx(fmean([2 / 3, 1, 0]))
    assert comparison.rate_reference == pytest.approx(fmean([0, 1 / 3, 0]))
    assert comparison.passing is not None
    assert comparison.passing.mean == pytest.approx(fmean([2 / 3, 2 / 3, 0]))
    assert (comparison.passing.wins, comparison.passing.losses) == (2, 0)


def test_zero_scores_are_scores_of_their_own() -> None:
    """One tool leaves them out, and so says 34.6% and 33.0% where 27.7% and 26.4% is true."""

    def scored(score: float) -> CaseBook:
        scores = [score] * 24 + [0.0] * 6
        return book_of(
            trial(f"c{number}", {}, "P" if value else "F", score=value)
            for number, value in enumerate(scores)
        )

    first = compared(scored(0.346), book_of(trial(f"c{n}", {}, "F") for n in range(30))).score
    both = compared(scored(0.346), scored(0.330)).score
    assert first is not None
    assert both is not None
    assert round(first.mean, 3) == 0.277
    assert both.mean == pytest.approx(0.277 - 0.264, abs=5e-4)


def test_scores_that_only_say_pass_or_fail_are_not_compared_again() -> None:
    assert against("PPF", "FFF").score is None


# ---- errors


def test_an_error_is_missing_and_never_a_wrong_answer() -> None:
    """Made a failure, it would change the difference; as an error it can only be reckoned with."""
    reference = "PFPFPFPF"
    with_error = against("PPPFPFPE", reference)
    without = against("PPPFPFP", reference[:7])
    failed, passed = (against("PPPFPFP" + end, reference) for end in "FP")
    assert with_error.passing == without.passing
    assert with_error.cases == 7
    assert with_error.left_out.unjudged == ("c7",)
    assert with_error.left_out.unjudged_subject == ("c7",)
    for guess in (failed, passed):
        assert guess.passing is not None
        assert guess.passing != with_error.passing
    assert with_error.if_errors == (
        failed.passing and failed.passing.mean,
        passed.passing and passed.passing.mean,
    )


@given(st.lists(st.tuples(st.text("PFE", min_size=1, max_size=2)).map("".join), max_size=4))
@settings(max_examples=40, deadline=None)
def test_whatever_the_errors_hide_lies_within_what_they_could(ends: list[str]) -> None:
    reference = ["PF"[n % 2] for n in range(len(ends))]
    if not ends:
        return
    bounds = against(ends, reference).if_errors
    hidden = "".join(ends).count("E")
    means = []
    for verdicts in product("PF", repeat=hidden):
        left = iter(verdicts)
        told = ["".join(next(left) if end == "E" else end for end in one) for one in ends]
        passing = against(told, reference).passing
        assert passing is not None
        means.append(passing.mean)
    if not hidden:
        assert bounds is None
    else:
        assert bounds == pytest.approx((min(means), max(means)))


@pytest.mark.parametrize(("subject", "reference"), [("EE", "PF"), ("SS", "SS"), ("SE", "ES")])
def test_nothing_is_claimed_where_no_case_is_judged_on_both_sides(
    subject: str, reference: str
) -> None:
    comparison = against(subject, reference)
    assert comparison.passing is None
    assert comparison.finding is Finding.NOT_SHOWN
    assert (comparison.cases, comparison.rate_subject, comparison.detectable) == (0, None, None)
    assert comparison.left_out.unjudged == ("c0", "c1")


# ---- time, cost, repeats, what turned


def test_time_and_cost_are_ratios_over_the_cases_where_both_sides_tell_them() -> None:
    def taking(seconds: float, usd: Sequence[float | None]) -> CaseBook:
        return book_of(
            trial(f"c{n}", {}, "P", seconds=seconds * (n + 1), usd=one) for n, one in enumerate(usd)
        )

    comparison = compared(taking(3, [0.2, 0.0, None, 0.4]), taking(2, [0.1, 0.5, 0.5, 0.2]))
    assert comparison.seconds is not None
    assert comparison.seconds.ratio == pytest.approx(1.5)
    assert comparison.seconds.cases == 4
    assert comparison.cost is not None
    assert comparison.cost.ratio == pytest.approx(0.6 / 0.8)
    assert comparison.cost.cases == 3
    assert compared(taking(1, [None]), taking(1, [None])).cost is None


def test_a_bill_that_fell_is_said_to_have_fallen() -> None:
    """Although most cases cost more; and both are said where few cases take most of the time."""
    usd = [0.002 * 2] * 45 + [1.0 * 0.1] * 5
    before = [0.002] * 45 + [1.0] * 5

    def side(amounts: Sequence[float]) -> CaseBook:
        return book_of(
            trial(f"c{n}", {}, "P", seconds=one * 100, usd=one) for n, one in enumerate(amounts)
        )

    comparison = compared(side(usd), side(before))
    assert comparison.cost is not None
    assert comparison.cost.ratio == pytest.approx(sum(usd) / sum(before))
    assert comparison.cost.interval[1] < 1
    time, cost = figure_lines(comparison, str)
    assert cost.startswith("cost: 0.13 times as much (0.1")
    assert time.startswith("time of a typical case: 1.48 times as long (1.15 to 1.92)")
    assert time.endswith(", but in total 0.13 times as long")
    turned = compared(side(before), side(usd)).cost
    assert turned is not None
    assert turned.interval == pytest.approx([1 / end for end in reversed(comparison.cost.interval)])


def test_time_and_cost_ratios_are_over_judged_trials_and_timeouts_are_counted_beside_them() -> None:
    """Twice as long and as dear, in each case with a verdict on both sides. A side is not quicker
    for a crash or dearer for a timeout."""
    ends = (("P", 2.0), ("F", 4.0), ("E", 60.0), ("P", 6.0))
    others = (("P", 1.0), ("P", 2.0), ("P", 3.0), ("E", 60.0))
    subject, reference = (
        book_of(trial(f"c{n}", {}, end, seconds=by, usd=by) for n, (end, by) in enumerate(side))
        for side in (ends, others)
    )
    comparison = compared(subject, reference)
    assert comparison.seconds is not None
    assert comparison.cost is not None
    assert comparison.seconds.ratio == pytest.approx(2)
    assert comparison.cost.ratio == pytest.approx(2)
    assert (comparison.seconds.cases, comparison.cost.cases) == (2, 2)
    assert (comparison.timeouts_subject, comparison.timeouts_reference) == (1, 1)


def test_repeats_without_a_verdict_do_not_change_the_time_or_cost_of_a_case() -> None:
    def side(*ends: tuple[str, float]) -> CaseBook:
        return book_of(
            trial(f"c{n}", {}, end, seconds=by, usd=by, repeat=repeat)
            for n in range(2)
            for repeat, (end, by) in enumerate(ends, 1)
        )

    comparison = compared(side(("P", 3.0), ("E", 60.0)), side(("P", 2.0), ("P", 4.0)))
    assert comparison.seconds is not None
    assert comparison.cost is not None
    assert comparison.seconds.ratio == pytest.approx(1)
    assert comparison.cost.ratio == pytest.approx(1)
    assert (comparison.timeouts_subject, comparison.timeouts_reference) == (2, 0)


@pytest.mark.parametrize(("slow", "is_told"), [(0.0009, False), (0.009, False), (0.02, True)])
def test_times_that_are_short_on_both_sides_are_no_ground_for_a_ratio(
    slow: float, is_told: bool
) -> None:
    """There it is the machine that is measured; a single pause in between changes nothing."""

    def taking(seconds: float) -> CaseBook:
        paused = [2.0, *[seconds] * 99]
        return book_of(
            trial(f"c{n}", {}, "P", seconds=one, usd=one) for n, one in enumerate(paused)
        )

    for sides in ((taking(slow), taking(0.0005)), (taking(0.0005), taking(slow))):
        comparison = compared(*sides)
        assert (comparison.seconds is not None) is is_told
        assert comparison.cost is not None


def test_pass_at_k_is_told_for_k_repeats_where_both_sides_have_them_in_ten_cases() -> None:
    comparison = against(
        ["P" * 3 + "F" * 9, *["F" * 12] * 9], [*["P" * 12] * 5, *["P" * 6 + "F" * 6] * 5]
    )
    (only,) = comparison.pass_at
    assert (only.k, only.cases) == (12, 10)
    assert (only.any_subject, only.any_reference) == (0.1, 1.0)
    assert (only.all_subject, only.all_reference) == (0.0, 0.5)
    assert against(["PFFFF"] * 9, ["FFFFF"] * 9).pass_at == ()
    assert against("PF" * 10, "FF" * 10).pass_at == ()


def test_k_is_told_of_the_cases_with_as_many_repeats_as_most() -> None:
    (one,) = against(["PPPPP"] * 16 + ["PFFEE"] * 4, ["PPPPF"] * 20).pass_at
    assert (one.k, one.cases, one.all_subject) == (5, 16, 1.0)
    (other,) = against(["PPPPP"] * 14 + ["PFFEE"] * 6, ["PPPPF"] * 20).pass_at
    assert (other.k, other.cases) == (3, 20)


def test_beside_others_a_comparison_can_show_less() -> None:
    """At 1 - alpha / 6: what is said to be shown must be shown by what Holm leaves."""
    one = against("P" * 15 + "F" * 15 + "P" * 70, "F" * 15 + "P" * 85)
    alone, among = one.detectable, adjusted([one] * 6)[0].detectable
    assert alone is not None
    assert among is not None
    assert (round(alone, 2), round(among, 2)) == (0.15, 0.18)
    assert adjusted([one])[0].detectable == alone
    assert adjusted([replace(one, detectable=None)] * 2)[0].detectable is None


def test_cases_that_broke_and_were_mended_are_named_and_flaky_ones_apart() -> None:
    turned = against(["FF", "PP", "PF", "PP", "F"], ["PP", "FF", "FF", "PP", "P"]).turned
    assert turned == CaseChanges(broke=("c0", "c4"), mended=("c1",), flaky=("c2",))


# ---- what holds for every comparison

ENDS = st.lists(
    st.tuples(st.sampled_from("PPPFFFES"), st.integers(0, 10), st.integers(1, 9)), max_size=3
)
SIDES = st.lists(st.tuples(ENDS, ENDS), min_size=1, max_size=25)
Ends = list[tuple[str, int, int]]


def side_of(rows: Sequence[Ends], *, order: Sequence[int] | None = None) -> CaseBook:
    return book_of(
        trial(f"c{n}", {"m": 1}, end, score=score / 10, seconds=by, usd=by / 100, repeat=repeat)
        for n in order or range(len(rows))
        for repeat, (end, score, by) in enumerate(rows[n], 1)
    )


def mirrored(interval: Interval | None) -> object:
    return None if interval is None else pytest.approx((-interval[1], -interval[0]), abs=1e-9)


def assert_mirrored_difference(one: Difference | None, other: Difference | None) -> None:
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.mean == pytest.approx(-other.mean)
        assert one.interval == mirrored(other.interval)
        assert (one.p, one.method) == (other.p, other.method)
        assert (one.wins, one.losses) == (other.losses, other.wins)


def assert_mirrored_ratio(one: Ratio | None, other: Ratio | None) -> None:
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.ratio == pytest.approx(1 / other.ratio)
        assert one.cases == other.cases


@given(SIDES)
@settings(max_examples=60, deadline=None)
def test_exchanging_the_sides_mirrors_everything(rows: list[tuple[Ends, Ends]]) -> None:
    subject, reference = side_of([a for a, _ in rows]), side_of([b for _, b in rows])
    if not len(subject) or not len(reference):
        return
    one, other = compared(subject, reference), compared(reference, subject)
    assert_mirrored_difference(one.passing, other.passing)
    assert_mirrored_difference(one.score, other.score)
    assert_mirrored_ratio(one.seconds, other.seconds)
    assert_mirrored_ratio(one.cost, other.cost)
    assert one.if_errors == mirrored(other.if_errors)
    assert (one.rate_subject, one.rate_reference) == (other.rate_reference, other.rate_subject)
    assert one.detectable == other.detectable
    assert set(one.turned.broke) == set(other.turned.mended)
    assert one.turned.flaky == other.turned.flaky
    assert set(one.left_out.only_subject) == set(other.left_out.only_reference)
    assert one.left_out.unjudged_subject == other.left_out.unjudged_reference
    assert [exchanged(at) for at in one.pass_at] == list(other.pass_at)
    turn = {Finding.BETTER: Finding.WORSE, Finding.WORSE: Finding.BETTER}
    assert turn.get(one.finding, one.finding) is other.finding


def exchanged(at: PassAtK) -> PassAtK:
    return PassAtK(
        k=at.k,
        cases=at.cases,
        any_subject=at.any_reference,
        any_reference=at.any_subject,
        all_subject=at.all_reference,
        all_reference=at.all_subject,
    )


@given(SIDES, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_results_changes_no_figure(
    rows: list[tuple[Ends, Ends]], chance: random.Random
) -> None:
    order = list(range(len(rows)))
    chance.shuffle(order)
    sides = [[a for a, _ in rows], [b for _, b in rows]]
    subject, reference = map(side_of, sides)
    if not len(subject) or not len(reference):
        return
    shuffled = [side_of(side, order=order) for side in sides]
    one, other = compared(subject, reference), compared(*shuffled)
    for name in ("passing", "score", "if_errors", "seconds", "cost", "detectable", "finding"):
        assert getattr(one, name) == getattr(other, name)
    for at, at_other in zip(one.pass_at, other.pass_at, strict=True):
        assert at.any_subject == pytest.approx(at_other.any_subject)


def test_a_seed_gives_the_same_figures_each_time_and_another_seed_others() -> None:
    chance = random.Random(1)
    books = [
        book_of(trial(f"c{n}", {}, "PF"[n % 2], score=chance.random()) for n in range(40))
        for _ in "ab"
    ]
    pairs = pair_books(*books).pairs
    first, again = (compare(pairs, A, B, seed=3, resamples=199).score for _ in "ab")
    assert first == again
    assert compare(pairs, A, B, seed=4, resamples=199).score != first


def test_a_difference_is_shown_only_where_test_and_interval_say_so() -> None:
    def difference(p: float, low: float, high: float) -> Difference:
        return Difference(
            mean=(low + high) / 2,
            interval=(low, high),
            p=p / 3,
            adjusted_p=p,
            method=Method.MCNEMAR,
            wins=1,
            losses=0,
        )

    assert finding_of(difference(0.04, 0.01, 0.2), 0.95) is Finding.BETTER
    assert finding_of(difference(0.04, -0.2, -0.01), 0.95) is Finding.WORSE
    assert finding_of(difference(0.04, -0.01, 0.2), 0.95) is Finding.NOT_SHOWN
    assert finding_of(difference(0.05, 0.01, 0.2), 0.95) is Finding.NOT_SHOWN
    assert finding_of(difference(0.04, 0.01, 0.2), 0.99) is Finding.NOT_SHOWN
    assert finding_of(None, 0.95) is Finding.NOT_SHOWN


def test_holm_makes_up_for_many_comparisons_and_may_take_a_finding_back() -> None:
    once = against("P" * 6 + "F" * 24, "F" * 30)
    assert once.finding is Finding.BETTER
    nothing = against("P", "E")
    three = adjusted([once, nothing, *[against("PF", "FF")] * 3])
    assert [one.among for one in three] == [4] * 5
    assert three[0].passing is not None
    assert once.passing is not None
    assert three[0].passing.adjusted_p == pytest.approx(4 * once.passing.p)
    assert three[0].finding is Finding.NOT_SHOWN
    assert three[1].passing is None


def test_work_is_bounded_by_fewer_resamples_for_more_to_do() -> None:
    assert resamples_for(30, 1) == 9_999
    assert resamples_for(10_000, 6) == 999
    assert 999 < resamples_for(500, 3) < 9_999


# ---- two books


def variants_of(**ends: str) -> list[TrialResult]:
    """`m_x="PF"`: model m in mode x, two cases."""
    return [
        trial(f"c{n}", dict(zip(("model", "mode"), name.split("_"), strict=True)), end)
        for name, told in ends.items()
        for n, end in enumerate(told)
    ]


def test_books_are_paired_by_case_and_variant_where_they_share_some() -> None:
    reference = book_of(variants_of(m_x="PF", m_y="FF", n_x="PP"))
    turned = [
        trial(
            one.case_id,
            dict(reversed(list(one.variant.items()))),
            "P" if one.case_id == "c0" else "F",
        )
        for one in variants_of(m_x="PF", m_y="PF", k_x="PF")
    ]
    books = pair_books(book_of(turned), reference)
    assert [dict(one) for one in books.shared] == [
        {"mode": "x", "model": "m"},
        {"mode": "y", "model": "m"},
    ]
    assert [dict(one) for one in books.only_subject] == [{"mode": "x", "model": "k"}]
    assert [dict(one) for one in books.only_reference] == [{"model": "n", "mode": "x"}]
    assert list(books.pairs.differences) == [0.5, 0.0]
    assert len(books.matchups) == 2


def test_books_of_one_variant_each_are_paired_by_case_whatever_they_are_called() -> None:
    books = pair_books(book_of(variants_of(m_x="PP")), book_of(variants_of(n_y="FP")))
    assert list(books.pairs.differences) == [1.0, 0.0]


def test_books_without_a_variant_in_common_cannot_be_paired() -> None:
    with pytest.raises(UnpairableError, match="no variant in common: choose one of each"):
        pair_books(book_of(variants_of(m_x="P", m_y="P")), book_of(variants_of(n_x="P")))
    with pytest.raises(UnpairableError):
        pair_books(CaseBook(), CaseBook())


def test_cases_that_only_one_side_has_are_said_and_left_out() -> None:
    ours = book_of(trials_of("m", {1: "PPE"}))
    theirs = book_of([trial(case, {"m": 1}, "F") for case in ("c2", "c1", "c9")])
    comparison = compared(ours, theirs)
    assert comparison.cases == 1
    assert comparison.left_out == LeftOut(
        only_subject=("c0",),
        only_reference=("c9",),
        unjudged=("c2",),
        unjudged_subject=("c2",),
    )
    assert comparison.left_out.cases == 3
