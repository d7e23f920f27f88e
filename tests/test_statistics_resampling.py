"""Flips of signs, and the interval of scores: by hand, and by simulation."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from paraval.statistics import pairs as flips
from paraval.statistics.pairs import sign_flip_p
from paraval.statistics.rates import mean_interval, score_interval

FEW = st.lists(st.floats(-1, 1), min_size=1, max_size=9)


def _by_hand(differences: list[float]) -> float:
    """Over all signs, one after the other."""
    seen = abs(sum(differences)) - 1e-9 * max(1.0, sum(map(abs, differences)))
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(value >= seen for value in sums) / len(sums)


def test_flips_give_the_published_value() -> None:
    assert sign_flip_p([1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]) == 0.125


@settings(max_examples=25, deadline=None)
@given(FEW)
def test_few_differences_are_counted_over_all_signs(differences: list[float]) -> None:
    clear = [value for value in differences if abs(value) > 1e-6]
    if clear:
        assert sign_flip_p(clear) == pytest.approx(_by_hand(clear), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-7, 7), min_size=1, max_size=9), st.sampled_from([1, 3, 7, 10, 64]))
def test_fractions_are_counted_over_all_signs(parts: list[int], whole: int) -> None:
    differences = [max(-1.0, min(1.0, part / whole)) for part in parts]
    assert sign_flip_p(differences) == pytest.approx(_by_hand(differences), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 700), st.integers(0, 700), st.integers(0, 300))
def test_flips_of_pass_and_fail_are_the_exact_test_of_mcnemar(
    wins: int, losses: int, ties: int
) -> None:
    differences = [1.0] * wins + [-1.0] * losses + [0.0] * (ties + 1)
    n, fewer = wins + losses, min(wins, losses)
    expected = min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)
    # Beyond 500 of one size the furthest sums are left out, and said to be likelier than they are.
    assert sign_flip_p(differences) == pytest.approx(expected, rel=1e-9, abs=3e-36)
    assert sign_flip_p(differences) > 0


@settings(max_examples=25, deadline=None)
@given(FEW)
def test_flips_know_no_first_side_and_cases_that_agree_change_nothing(
    differences: list[float],
) -> None:
    p = sign_flip_p(differences)
    assert 0 < p <= 1
    assert sign_flip_p([-value for value in differences]) == p
    assert sign_flip_p([0.0, *differences, 0.0]) == p


def test_cases_that_all_agree_show_nothing() -> None:
    assert sign_flip_p([0.0] * 20) == 1.0


def test_thirds_and_tenths_are_not_told_apart_by_their_rounding() -> None:
    assert sign_flip_p([0.1 + 0.2, -0.3, 1 / 3, 1 - 2 / 3]) == _by_hand([0.3, -0.3, 1 / 3, 1 / 3])


def test_rates_over_repeats_leave_nothing_to_chance() -> None:
    rng = random.Random(3)
    differences = [rng.randint(-3, 4) / 5 for _ in range(300)]
    assert sign_flip_p(differences, seed=1) == sign_flip_p(differences, seed=2)


def test_many_scores_are_drawn_as_close_to_the_count_as_chance_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(5)
    differences = [rng.randint(-9, 12) / 10 for _ in range(60)]
    counted = sign_flip_p(differences)
    monkeypatch.setattr(flips, "MOST_STEPS", 0)
    drawn = [sign_flip_p(differences, seed=seed, resamples=2_000) for seed in range(5)]
    error = math.sqrt(counted * (1 - counted) / 2_000)
    assert len(set(drawn)) > 1
    assert all(abs(p - counted) < 4 * error + 1 / 2_000 for p in drawn)


def test_what_is_drawn_is_the_same_for_the_same_seed_and_never_0() -> None:
    rng = random.Random(1)
    differences = [rng.random() for _ in range(40)]
    assert sign_flip_p(differences, resamples=99) == 1 / 100
    mixed = [value - 0.4 for value in differences]
    assert sign_flip_p(mixed, seed=7) == sign_flip_p(mixed, seed=7)


def test_very_many_scores_are_spread_normally(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(2)
    differences = [rng.random() - 0.47 for _ in range(600)]
    every = sign_flip_p(differences, resamples=4_000)
    monkeypatch.setattr(flips, "MOST_FLIPPED", 64)
    assert sign_flip_p(differences, resamples=4_000) == pytest.approx(every, abs=0.03)


def test_flips_call_equal_sides_different_no_more_often_than_they_say() -> None:
    """Simulated: rates over three repeats of eight cases, both sides alike."""
    rng, runs = random.Random(8), 1_000
    shown = sum(
        sign_flip_p([(_passes(rng) - _passes(rng)) / 3 for _ in range(8)]) <= 0.05
        for _ in range(runs)
    )
    assert shown / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def _passes(rng: random.Random) -> int:
    return sum(rng.random() < 0.6 for _ in range(3))


# ---- the interval of scores


def _rare_loss(rng: random.Random) -> float:
    """A change that costs one case in twenty most of its score."""
    return -0.8 if rng.random() < 0.05 else rng.gauss(0.02, 0.05)


def _rare_failure(rng: random.Random) -> float:
    """Nine cases of ten have the full score."""
    return 1.0 if rng.random() < 0.9 else rng.random()


def _long_tail(rng: random.Random) -> float:
    return min(1.0, rng.expovariate(5))


@pytest.mark.parametrize(
    ("draw", "truth", "least"),
    [
        (_rare_loss, 0.95 * 0.02 - 0.05 * 0.8, -1.0),
        (_rare_failure, 0.95, 0.0),
        (_long_tail, (1 - math.exp(-5)) / 5, 0.0),
    ],
)
@pytest.mark.parametrize("cases", [10, 20, 40, 100])
def test_intervals_of_skewed_scores_hold_the_truth_in_nine_samples_of_ten(
    draw: Callable[[random.Random], float], truth: float, least: float, cases: int
) -> None:
    """Simulated, with three standard errors left to chance. The bootstrap held the first in 42% of
    samples of 10, and in 86% of 40."""
    rng, runs = random.Random(6), 20_000 // cases
    held = 0
    for _ in range(runs):
        _, low, high = score_interval([draw(rng) for _ in range(cases)], least=least)
        held += low <= truth <= high
    assert held / runs >= 0.9


@pytest.mark.parametrize("cases", [20, 40, 100])
def test_the_interval_of_scores_that_vary_much_is_about_students(cases: int) -> None:
    rng = random.Random(1)
    wider = []
    for _ in range(200):
        values = [rng.betavariate(2, 2) for _ in range(cases)]
        (_, low, high), (_, first, last) = score_interval(values), mean_interval(values)
        wider.append((high - low) / (last - first))
    assert 0.99 <= sum(wider) / len(wider) <= 1.05


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.9999])
def test_one_score_leaves_all_open_and_equal_ones_have_a_width(confidence: float) -> None:
    assert score_interval([0.5], confidence, least=-1.0) == (0.5, -1.0, 1.0)
    mean, low, high = score_interval([1.0] * 10, confidence)
    assert low < mean == high == 1.0


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_the_interval_of_differences_is_mirrored_for_swapped_sides(values: list[float]) -> None:
    mean, low, high = score_interval(values, least=-1.0)
    swapped = score_interval([-value for value in values], least=-1.0)
    assert swapped == pytest.approx((-mean, -high, -low))
    assert -1 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
