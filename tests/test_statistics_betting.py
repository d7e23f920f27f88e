"""The interval by betting: right at every look, and of one mind with the sign test."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings, strategies as st

from paraval.statistics.anytime import MeanTest, betting_interval
from tests.test_statistics_sequential import sign_e_value

signs = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=60)


@settings(deadline=None, max_examples=150)
@given(signs, st.sampled_from([0.9, 0.95, 0.99]))
def test_no_difference_is_left_out_where_the_sign_test_is_decided(
    values: list[float], confidence: float
) -> None:
    wins, losses = values.count(1.0), values.count(-1.0)
    e = sign_e_value(wins, losses)
    if abs(e * (1 - confidence) - 1) > 0.01:
        low, high = betting_interval(values, confidence)
        assert (low > 0 or high < 0) == (e >= 1 / (1 - confidence))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40))
def test_it_holds_the_mean_and_is_its_own_mirror_image(values: list[float]) -> None:
    low, high = betting_interval(values)
    assert -1 <= low <= math.fsum(values) / len(values) + 1e-6
    assert low <= high + 1e-9
    mirrored = betting_interval([-value for value in values])
    assert mirrored == pytest.approx((-high, -low), abs=1e-9)


def test_nothing_measured_rules_nothing_out() -> None:
    assert betting_interval([]) == (-1, 1)


def test_many_different_values_rule_out_no_more_than_they_may_and_hardly_less() -> None:
    chance = random.Random(5)
    coarse = [chance.choice((-0.513, 0.0, 0.24, 0.487)) for _ in range(200)]
    fine = [value + chance.uniform(-1e-6, 1e-6) for value in coarse]
    exact, told = betting_interval(coarse), betting_interval(fine)
    assert exact[0] - 1e-3 < told[0] <= exact[0] + 1e-5
    assert exact[1] + 1e-3 > told[1] >= exact[1] - 1e-5


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.integers(1, 4))
def test_it_leaves_out_0_just_where_the_test_of_the_mean_is_decided(
    values: list[float], times: int
) -> None:
    test = MeanTest()
    for value in values * times:
        test.add(value)
    if abs(test.e / 20 - 1) > 0.05:
        low, high = betting_interval(values * times)
        assert (low > 0 or high < 0) == (test.e >= 20)


@pytest.mark.parametrize(("wins", "losses"), [(0.1, 0.1), (0.3, 0.1), (0.05, 0.0), (0.5, 0.45)])
def test_the_truth_is_left_out_at_no_look_but_rarely(wins: float, losses: float) -> None:
    """Looked at after every tenth pair up to 60: in 5% of all runs at most, whatever the truth."""
    chance, wrong, runs = random.Random(11), 0, 100
    known: dict[tuple[int, int, int], tuple[float, float]] = {}
    for _ in range(runs):
        counts = [0, 0, 0]
        for number in range(1, 61):
            drawn = chance.random()
            counts[0 if drawn < wins else 1 if drawn < wins + losses else 2] += 1
            if number % 10:
                continue
            look = (counts[0], counts[1], counts[2])
            if look not in known:
                values = [1.0] * look[0] + [-1.0] * look[1] + [0.0] * look[2]
                known[look] = betting_interval(values)
            low, high = known[look]
            if not low <= wins - losses <= high:
                wrong += 1
                break
    assert wrong <= 8
