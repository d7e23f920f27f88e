"""Pairs: the published vectors, scipy as the oracle, and how often intervals hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import (  # type: ignore[import-untyped]  # scipy ships no types
    binom,
    multinomial,
)

from paraval.statistics.pairs import holm, mcnemar_mid_p, paired_interval

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=1, max_size=60)


# ---- McNemar


@pytest.mark.parametrize(
    ("wins", "losses", "mid_p"),
    [
        (9, 2, 0.03857),
        (5, 0, 0.03125),
        (6, 0, 0.015625),
        (15, 5, 0.0266),
        (0, 0, 1),
        (7, 7, 1),
    ],
)
def test_mcnemar_gives_the_published_values(wins: int, losses: int, mid_p: float) -> None:
    assert mcnemar_mid_p(wins, losses) == pytest.approx(mid_p, abs=5e-6)


def test_mcnemar_agrees_with_scipy_for_thousands_of_tables() -> None:
    """All of up to 90 pairs that differ, and some larger ones; the oracle is the tail of a binomial
    distribution, which is what `binomtest` adds up."""
    for n in (*range(1, 91), 499, 500, 501, 800):
        fewer = range(0, (n + 1) // 2, 1 if n <= 90 else 16)
        tails, chances = binom.cdf(fewer, n, 0.5), binom.pmf(fewer, n, 0.5)
        for k, tail, chance in zip(fewer, tails, chances, strict=True):
            # scipy's own tail is off far out.
            if tail > 1e-200:
                expected = 2 * tail - chance
                assert math.isclose(mcnemar_mid_p(n - k, k), expected, rel_tol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**5), st.integers(0, 10**5))
def test_mcnemar_knows_no_first_side_and_stays_within_0_and_1(wins: int, losses: int) -> None:
    assert mcnemar_mid_p(wins, losses) == mcnemar_mid_p(losses, wins)
    assert 0 <= mcnemar_mid_p(wins, losses) <= 1


def _called_different(test: Callable[[int, int], float], n: int) -> float:
    """How often equal sides are, with so many pairs that differ; over all their splits."""
    chances = binom.pmf(range(n + 1), n, 0.5)
    return sum(float(c) for k, c in enumerate(chances) if test(k, n - k) <= 0.05)


def test_the_mid_p_calls_as_many_equal_sides_different_as_it_says() -> None:
    """Counted over all numbers of pairs that may differ. For one such number alone it may be more,
    as its documentation says."""
    most = 100
    by_number = [_called_different(mcnemar_mid_p, n) for n in range(most + 1)]
    assert max(by_number) == pytest.approx(0.0768, abs=5e-5)
    for cases in (10, 20, 30, 50, 100):
        for share in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9):
            chances = binom.pmf(range(cases + 1), cases, share)
            called = sum(c * by_number[n] for n, c in enumerate(chances))
            assert called <= 0.0505, (cases, share)


# ---- the interval


def _pass_fail(wins: int, losses: int, n: int) -> list[int]:
    return [1] * wins + [-1] * losses + [0] * (n - wins - losses)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_pass_fail_has_the_interval_of_bonett_and_price(wins: int, losses: int, ties: int) -> None:
    n = wins + losses + ties
    if n == 0:
        return
    better, worse = (wins + 1) / (n + 2), (losses + 1) / (n + 2)
    error = math.sqrt((better + worse - (better - worse) ** 2) / (n + 2))
    mean, low, high = paired_interval(_pass_fail(wins, losses, n))
    assert mean == pytest.approx((wins - losses) / n)
    center = better - worse
    assert low == pytest.approx(max(-1, min(mean, center - 1.959964 * error)), abs=1e-6)
    assert high == pytest.approx(min(1, max(mean, center + 1.959964 * error)), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(DIFFERENCES, st.sampled_from([0.8, 0.95, 0.99]), st.sampled_from([0.1, 0.5, 1.0]))
def test_an_interval_has_width_holds_its_mean_and_turns_round_with_its_sides(
    differences: list[float], confidence: float, step: float
) -> None:
    mean, low, high = paired_interval(differences, confidence, step=step)
    assert -1 <= low <= mean <= high <= 1
    assert low < high
    turned = paired_interval([-value for value in differences], confidence, step=step)
    assert turned == pytest.approx((-mean, -high, -low), abs=1e-12)


def test_pairs_that_all_agree_still_leave_something_open() -> None:
    for n in (1, 5, 50, 5_000):
        _, low, high = paired_interval([0] * n)
        assert low < 0 < high
        assert paired_interval([1] * n)[1] < 1


@pytest.mark.parametrize("n", [10, 20, 40])
def test_pass_fail_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    """Counted over all that can happen, not drawn: from a twentieth of the cases that differ to
    seven tenths, from even wins to wins alone. Some dip below 95%, as all do that count whole
    cases; none does below 92%, and on average they are above."""
    splits = [(w, v, n - w - v) for w in range(n + 1) for v in range(n + 1 - w)]
    bounds = [paired_interval(_pass_fail(wins, losses, n)) for wins, losses, _ in splits]
    held_by_truth = []
    for differing in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7):
        for share in (0.5, 0.6, 0.75, 0.9, 1):
            better, worse = differing * share, differing * (1 - share)
            chances = multinomial.pmf(splits, n, [better, worse, 1 - differing])
            truth = better - worse
            held_by_truth.append(
                sum(
                    chance
                    for chance, (_, low, high) in zip(chances, bounds, strict=True)
                    if low - 1e-12 <= truth <= high + 1e-12
                )
            )
    assert min(held_by_truth) >= 0.92
    assert sum(held_by_truth) / len(held_by_truth) >= 0.95


@pytest.mark.parametrize("n", [10, 20, 40])
def test_where_the_test_shows_a_difference_of_passes_the_interval_does_too(n: int) -> None:
    """Counted over all splits. The interval alone shows one now and then, most often for few cases
    nearly all of which differ: then nothing is claimed."""
    for wins in range(n + 1):
        for losses in range(n + 1 - wins):
            _, low, high = paired_interval(_pass_fail(wins, losses, n))
            assert mcnemar_mid_p(wins, losses) >= 0.05 or not low <= 0 <= high, (wins, losses)


# ---- Holm


def test_holm_adjusts_step_by_step_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_makes_a_p_smaller_or_turns_two_round(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p <= larger <= 1 for p, larger in zip(ps, adjusted, strict=True))
    order = sorted(range(len(ps)), key=ps.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)
