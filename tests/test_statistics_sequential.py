"""Early stops: a bet on the mean, against the closed form of the sign test."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from paraval.statistics.anytime import MeanTest

Decides = Callable[[int, int], bool]


def sign_e_value(wins: int, losses: int) -> float:
    """What a fair bet against "wins are as likely as losses" made of 1, spread evenly over all
    that the share of wins might be."""
    n = wins + losses
    return float(2**n / ((n + 1) * math.comb(n, wins)))


@cache
def by_e_value(wins: int, losses: int) -> bool:
    return sign_e_value(wins, losses) >= 20


def _decided(decides: Decides, share: float, most: int) -> tuple[float, float]:
    """How likely it is decided within so many pairs when this share of them are wins, and how many
    pairs are looked at: one pair after the other, over all ways to get there."""
    going_on, decided, looked_at = {0: 1.0}, 0.0, 0.0
    for n in range(1, most + 1):
        after: dict[int, float] = {}
        looked_at += sum(going_on.values())
        for wins, chance in going_on.items():
            for won, weight in ((1, share), (0, 1 - share)):
                after[wins + won] = after.get(wins + won, 0.0) + chance * weight
        going_on = {w: chance for w, chance in after.items() if not decides(w, n - w)}
        decided += sum(chance for w, chance in after.items() if decides(w, n - w))
    return decided, looked_at


def test_a_hundred_thousand_pairs_are_no_trouble() -> None:
    test = MeanTest()
    assert test.best_possible(100_000) == math.inf
    for _ in range(1_100):
        test.add(1)
    assert test.p == 0.0
    assert test.is_decided(0.05)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.2, 0.0, 0.5, 1.0]), max_size=60))
def test_the_state_is_what_was_added_and_a_decision_stays(differences: list[float]) -> None:
    test, decided, smallest = MeanTest(), False, 1.0
    for difference in differences:
        test.add(difference)
        assert test.p <= smallest
        smallest = test.p
        assert test.is_decided(0.05) or not decided
        decided = test.is_decided(0.05)
        assert decided == (test.p <= 0.05)
    assert test.wins == sum(value > 0 for value in differences)
    assert test.losses == sum(value < 0 for value in differences)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 90), st.integers(0, 90), st.integers(0, 5))
def test_of_wins_losses_and_ties_the_test_makes_what_the_sign_test_does(
    wins: int, losses: int, ties: int
) -> None:
    test = MeanTest()
    for difference in [1] * wins + [0] * ties + [-1] * losses:
        test.add(difference)
    assert test.e == pytest.approx(sign_e_value(wins, losses), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1, 1), max_size=20), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_bet_on_the_mean_is_fair(seen: list[float], won: float, lost: float) -> None:
    """Were the mean 0, it would be worth after one more pair what it is worth now, on average."""
    now = mean_test_of(seen).e
    after = (lost * mean_test_of([*seen, won]).e + won * mean_test_of([*seen, -lost]).e) / (
        won + lost
    )
    assert after == pytest.approx(now, rel=1e-9)


def mean_test_of(differences: list[float]) -> MeanTest:
    test = MeanTest()
    for difference in differences:
        test.add(difference)
    return test


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1, 1), max_size=12), st.lists(st.floats(-1, 1) | st.just(1.0)))
def test_nothing_that_remains_comes_out_higher_than_the_best_possible(
    seen: list[float], remaining: list[float]
) -> None:
    test = mean_test_of(seen)
    best = max(test.best, test.best_possible(len(remaining)))
    futile = test.is_futile(len(remaining), 0.05)
    for difference in remaining:
        test.add(difference)
    assert test.best <= best * (1 + 1e-12)
    assert not (futile and test.is_decided(0.05))


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_who_stops_when_nothing_can_decide_any_more_claims_the_same_and_pays_less(
    share: float,
) -> None:
    """Simulated: 60 cases, a third of them ties; both sides alike, and one that wins three in
    four. Looking after each case, claims are as many as can be counted, never more than one in
    20 of equal sides, and giving up changes none of them."""
    rng, runs, cases = random.Random(11), 200, 60
    claims = paid = paid_by_patient = 0
    for _ in range(runs):
        order = [_pair(rng, share) for _ in range(cases)]
        told, looked_at = _stopped(order, gives_up=True)
        patient, looked_at_by_patient = _stopped(order, gives_up=False)
        assert told == patient
        claims, paid = claims + told, paid + looked_at
        paid_by_patient += looked_at_by_patient
    counted = sum(
        float(binom.pmf(n, cases, 2 / 3)) * _decided(by_e_value, share, n)[0]
        for n in range(cases + 1)
    )
    assert claims / runs == pytest.approx(
        counted, abs=3 * math.sqrt(counted * (1 - counted) / runs)
    )
    assert counted < 0.05 or share != 0.5
    assert paid < paid_by_patient


def _pair(rng: random.Random, share: float) -> int:
    return 0 if rng.random() < 1 / 3 else 1 if rng.random() < share else -1


def _stopped(order: list[int], *, gives_up: bool) -> tuple[bool, int]:
    test = MeanTest()
    for cases, difference in enumerate(order, 1):
        test.add(difference)
        if test.is_decided(0.05):
            return True, cases
        if gives_up and test.is_futile(len(order) - cases, 0.05):
            return False, cases
    return False, len(order)
