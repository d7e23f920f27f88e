"""Early stops: the published vectors, and how often equal sides are called different by one who
looks after every pair; counted over all that can happen."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from paraval.statistics.anytime import MeanTest
from paraval.statistics.pairs import mcnemar_exact
from paraval.statistics.sequential import mixture_radius, sign_e_value

Decides = Callable[[int, int], bool]


@cache
def by_e_value(wins: int, losses: int) -> bool:
    return sign_e_value(wins, losses) >= 20


@cache
def by_exact_test(wins: int, losses: int) -> bool:
    return mcnemar_exact(wins, losses) <= 0.05


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


# ---- the sign test


@pytest.mark.parametrize(
    ("wins", "losses", "expected"),
    [
        (5, 0, 5.333), (6, 0, 9.143), (7, 0, 16.0), (8, 0, 28.444), (9, 1, 9.309),
        (10, 1, 15.515), (12, 2, 12.003), (15, 5, 3.221), (10, 10, 0.270), (0, 0, 1.0),
    ],
)  # fmt: skip
def test_e_values_are_the_published_ones(wins: int, losses: int, expected: float) -> None:
    assert sign_e_value(wins, losses) == pytest.approx(expected, abs=5e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 400), st.integers(0, 400))
def test_e_values_are_exact_and_know_no_first_side(wins: int, losses: int) -> None:
    n = wins + losses
    exact = 2**n / ((n + 1) * math.comb(n, wins))
    assert sign_e_value(wins, losses) == pytest.approx(exact, rel=1e-9)
    assert sign_e_value(losses, wins) == sign_e_value(wins, losses)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300))
def test_a_bet_is_fair(wins: int, losses: int) -> None:
    """What it is worth on average after one more pair is what it is worth now."""
    after = (sign_e_value(wins + 1, losses) + sign_e_value(wins, losses + 1)) / 2
    assert after == pytest.approx(sign_e_value(wins, losses), rel=1e-9)


def test_a_hundred_thousand_pairs_are_no_trouble() -> None:
    assert sign_e_value(50_000, 50_000) == pytest.approx(0.00396, abs=1e-5)
    assert sign_e_value(100_000, 0) == math.inf
    test = MeanTest()
    assert test.best_possible(100_000) == math.inf
    for _ in range(1_100):
        test.add(1)
    assert test.p == 0.0
    assert test.is_decided(0.05)


@pytest.mark.parametrize(
    ("most", "naive", "ours"), [(20, 0.107, 0.0153), (50, 0.171, 0.0233), (100, 0.227, 0.0276)]
)
def test_one_who_looks_after_every_pair_is_fooled_by_p_values_and_not_by_e_values(
    most: int, naive: float, ours: float
) -> None:
    assert _decided(by_exact_test, 0.5, most)[0] == pytest.approx(naive, abs=5e-4)
    assert _decided(by_e_value, 0.5, most)[0] == pytest.approx(ours, abs=5e-5)


def test_even_after_a_thousand_pairs_equal_sides_are_called_different_less_often_than_said() -> (
    None
):
    assert _decided(by_e_value, 0.5, 1_000)[0] < 0.05


@pytest.mark.parametrize(
    ("share", "power", "pairs"), [(0.6, 0.236, None), (0.75, 0.990, 33.7), (0.9, 1.0, 12.7)]
)
def test_what_differs_is_found_as_often_and_as_early_as_published(
    share: float, power: float, pairs: float | None
) -> None:
    decided, looked_at = _decided(by_e_value, share, 100)
    assert decided == pytest.approx(power, abs=5e-4)
    if pairs is not None:
        assert looked_at == pytest.approx(pairs, abs=0.05)


# ---- as pairs come


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


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="not possible"):
        sign_e_value(-1, 0)
    with pytest.raises(ValueError, match="not possible"):
        MeanTest().best_possible(-1)
    with pytest.raises(ValueError, match="between -1 and 1"):
        MeanTest().add(math.nan)
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        MeanTest().is_decided(0)


# ---- the confidence sequence


@pytest.mark.parametrize(
    ("n", "expected"), [(10, 0.5319), (50, 0.2146), (100, 0.1531), (200, 0.1106), (1_000, 0.0528)]
)
def test_radii_are_the_published_ones(n: int, expected: float) -> None:
    assert mixture_radius(n) == pytest.approx(expected, abs=5e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 10**5), st.integers(1, 1_000), st.floats(0.5, 0.999))
def test_a_radius_is_wider_than_that_for_one_look_and_grows_with_the_range(
    n: int, tuned_for: int, confidence: float
) -> None:
    radius = mixture_radius(n, confidence, tuned_for=tuned_for)
    assert radius > math.sqrt(math.log(2 / (1 - confidence)) / (2 * n))
    twice = mixture_radius(n, confidence, tuned_for=tuned_for, range_=2.0)
    assert twice == pytest.approx(2 * radius)


def test_it_is_narrowest_where_it_is_tuned() -> None:
    radii = {tuned: mixture_radius(200, tuned_for=tuned) for tuned in (10, 50, 200, 1_000, 5_000)}
    assert min(radii, key=radii.__getitem__) == 200


@pytest.mark.parametrize("rate", [0.5, 0.8])
def test_the_truth_is_inside_at_all_times_as_often_as_said(rate: float) -> None:
    """Counted over all ways that 300 values of 0 or 1 can come."""

    def leaves_out(wins: int, losses: int) -> bool:
        n = wins + losses
        return abs(wins / n - rate) > mixture_radius(n)

    assert _decided(leaves_out, rate, 300)[0] <= 0.05


@pytest.mark.parametrize(("n", "tuned_for", "range_"), [(0, 50, 1), (5, 0, 1), (5, 50, 0)])
def test_a_radius_of_nothing_is_refused(n: int, tuned_for: int, range_: float) -> None:
    with pytest.raises(ValueError, match=r"at least one value|wider than 0"):
        mixture_radius(n, tuned_for=tuned_for, range_=range_)
