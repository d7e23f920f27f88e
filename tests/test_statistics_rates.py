"""Rates: the published vectors, scipy as the oracle, and how often intervals hold the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import (  # type: ignore[import-untyped]  # scipy ships no types
    beta,
    betabinom,
    binom,
    binomtest,
    multinomial,
)

from paraval.statistics.rates import (
    clopper_pearson,
    clustered_rate_interval,
    pass_at_k,
    pass_hat_k,
    wilson,
)

COUNTS = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
"""Successes, and of how many."""
CLUSTERS = st.lists(
    st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=30
)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0, 0.2775),
        (9, 10, 0.5958, 0.9821),
        (20, 20, 0.8389, 1),
        (7, 30, 0.1179, 0.4093),
        (45, 50, 0.7864, 0.9565),
    ],
)
def test_wilson_gives_the_published_intervals(
    successes: int, n: int, low: float, high: float
) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (1, 3), (50, 100), (99_999, 100_000)])
def test_wilson_agrees_with_scipy(successes: int, n: int, confidence: float) -> None:
    oracle = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert wilson(successes, n, confidence) == pytest.approx((oracle.low, oracle.high), abs=1e-12)


def test_nothing_measured_leaves_everything_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 10**6), share=st.floats(0, 1))
def test_an_interval_holds_what_was_measured_and_stays_within_0_and_1(n: int, share: float) -> None:
    successes = min(share * n, n)
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= high <= 1


def test_the_ends_are_exact() -> None:
    for n in range(1, 400):
        assert wilson(0, n)[0] == 0.0
        assert wilson(n, n)[1] == 1.0


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 1000))
def test_more_cases_give_a_narrower_interval(n: int) -> None:
    few, many = wilson(0.5 * n, n), wilson(0.5 * (n + 1), n + 1)
    assert many[1] - many[0] < few[1] - few[0]


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        wilson(1, 2, confidence)


# ---- Clopper and Pearson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0, 0.3085),
        (9, 10, 0.5550, 0.9975),
        (20, 20, 0.8316, 1),
        (7, 30, 0.0993, 0.4228),
        (45, 50, 0.7819, 0.9667),
        (0, 0, 0, 1),
    ],
)
def test_clopper_pearson_gives_the_published_intervals(
    successes: int, n: int, low: float, high: float
) -> None:
    assert clopper_pearson(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_clopper_pearson_agrees_with_scipy_for_all_small_counts() -> None:
    tail = 0.025
    for n in (*range(1, 13), 20, 33):
        inner = range(1, n)
        lows = beta.ppf(tail, inner, [n - k + 1 for k in inner])
        highs = beta.ppf(1 - tail, [k + 1 for k in inner], [n - k for k in inner])
        for k, low, high in zip(inner, lows, highs, strict=True):
            assert clopper_pearson(k, n) == pytest.approx((low, high), abs=1e-10)


@settings(max_examples=20, deadline=None)
@given(COUNTS, st.sampled_from([0.8, 0.95, 0.99]))
def test_both_intervals_agree_with_scipy(counts: tuple[int, int], confidence: float) -> None:
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "exact")):
        oracle = binomtest(*counts).proportion_ci(confidence, method=method)
        assert ours(*counts, confidence) == pytest.approx((oracle.low, oracle.high), abs=1e-9)


@pytest.mark.parametrize(("n", "published"), [(10, 0.954), (30, 0.952), (100, 0.950)])
def test_wilson_holds_the_truth_as_often_as_published(n: int, published: float) -> None:
    """On average over all rates, counted, not drawn."""
    bounds = [wilson(k, n) for k in range(n + 1)]
    rates = [(i + 0.5) / 200 for i in range(200)]
    held = 0.0
    for rate in rates:
        chances = binom.pmf(range(n + 1), n, rate)
        held += sum(
            c for c, (low, high) in zip(chances, bounds, strict=True) if low <= rate <= high
        )
    assert held / len(rates) == pytest.approx(published, abs=1.5e-3)


# ---- repeats of cases


@settings(max_examples=25, deadline=None)
@given(CLUSTERS)
def test_an_interval_over_repeats_holds_its_rate_and_is_no_narrower_than_all_apart(
    clusters: list[tuple[int, int]],
) -> None:
    low, high = clustered_rate_interval(clusters)
    passed, judged = sum(p for p, _ in clusters), sum(n for _, n in clusters)
    assert 0 <= low <= high <= 1
    if judged:
        assert low - 1e-12 <= passed / judged <= high + 1e-12
        narrowest = wilson(passed, judged)
        assert high - low >= narrowest[1] - narrowest[0] - 1e-12


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=200), st.sampled_from([0.8, 0.95]))
def test_with_one_repeat_of_each_case_it_is_exactly_wilsons(
    passes: list[bool], confidence: float
) -> None:
    clusters = [(int(passed), 1) for passed in passes]
    assert clustered_rate_interval(clusters, confidence) == wilson(
        sum(passes), len(passes), confidence
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 10))
def test_repeats_that_all_agree_tell_no_more_than_their_cases(
    passes: list[bool], repeats: int
) -> None:
    clusters = [(repeats * passed, repeats) for passed in passes]
    expected = wilson(sum(passes), len(passes))
    assert clustered_rate_interval(clusters) == pytest.approx(expected, abs=1e-12)


def test_cases_without_a_judged_repeat_say_nothing() -> None:
    assert clustered_rate_interval([]) == clustered_rate_interval([(0, 0)]) == (0.0, 1.0)
    assert clustered_rate_interval([(2, 3), (0, 0), (1, 3)]) == clustered_rate_interval(
        [(2, 3), (1, 3)]
    )


def test_one_case_is_one_case_however_often_it_was_repeated() -> None:
    assert clustered_rate_interval([(100, 100)]) == wilson(1, 1)


def test_a_case_with_most_of_the_repeats_does_not_pass_for_many_cases() -> None:
    """Nine cases with one repeat beside one with a hundred: little more than one case is known."""
    low, high = clustered_rate_interval([(100, 100)] + [(1, 1)] * 9)
    assert low == pytest.approx(0.24, abs=0.02)
    assert high == 1.0


def _splits(cases: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """All ways to share cases out over kinds."""
    if kinds == 1:
        yield (cases,)
        return
    for first in range(cases + 1):
        for rest in _splits(cases - first, kinds - 1):
            yield (first, *rest)


def _passed_chances(rate: float, correlation: float, repeats: int) -> Sequence[float]:
    """How likely so many repeats of a case pass, when cases differ with this correlation."""
    kinds = range(repeats + 1)
    if correlation == 0:
        return [float(chance) for chance in binom.pmf(kinds, repeats, rate)]
    size = 1 / correlation - 1
    chances = betabinom.pmf(kinds, repeats, rate * size, (1 - rate) * size)
    return [float(chance) for chance in chances]


@pytest.mark.parametrize(("cases", "repeats"), [(10, 2), (10, 3), (10, 4), (30, 2), (50, 2)])
def test_intervals_over_repeats_hold_the_truth_as_often_as_they_say(
    cases: int, repeats: int
) -> None:
    """Counted over all that can happen, not drawn: for rates near and far from 1, and repeats
    that have nothing or nearly all in common."""
    splits = list(_splits(cases, repeats + 1))
    bounds = [
        clustered_rate_interval(
            [(passed, repeats) for passed, count in enumerate(split) for _ in range(count)]
        )
        for split in splits
    ]
    for rate in (0.5, 0.7, 0.8, 0.9):
        for correlation in (0, 0.1, 0.3, 0.5, 0.7):
            chances = multinomial.pmf(splits, cases, _passed_chances(rate, correlation, repeats))
            held = sum(
                c for c, (low, high) in zip(chances, bounds, strict=True) if low <= rate <= high
            )
            assert held >= 0.94, (rate, correlation, held)


@pytest.mark.parametrize("cases", [10, 50])
def test_ten_repeats_hold_the_truth_as_often_as_they_say(cases: int) -> None:
    """Too many ways to count, so by simulation, with three standard errors left to chance."""
    rng, runs = random.Random(cases), 400
    for rate, correlation in ((0.5, 0.3), (0.8, 0.6), (0.9, 0.6), (0.95, 0.3)):
        chances = _passed_chances(rate, correlation, 10)
        held = 0
        for _ in range(runs):
            passed = rng.choices(range(11), chances, k=cases)
            low, high = clustered_rate_interval([(count, 10) for count in passed])
            held += low <= rate <= high
        assert held / runs >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs), (rate, correlation)


# ---- several repeats


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(10, 3, 1, 0.3), (10, 3, 5, 0.916667), (5, 1, 3, 0.6), (4, 4, 2, 1), (4, 0, 2, 0)],
)
def test_pass_at_k_is_the_published_one(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=5e-7)


def test_pass_hat_k_is_the_published_one() -> None:
    assert pass_hat_k(8, 6, 4) == pytest.approx(15 / 70)
    assert (pass_hat_k(4, 4, 2), pass_hat_k(4, 1, 2)) == (1.0, 0.0)


@settings(max_examples=25, deadline=None)
@given(COUNTS, st.integers(1, 400))
def test_all_of_k_pass_no_more_often_than_one_of_them(counts: tuple[int, int], k: int) -> None:
    c, n = counts
    k = min(k, n)
    assert 0 <= pass_hat_k(n, c, k) <= c / n + 1e-12
    assert c / n - 1e-12 <= pass_at_k(n, c, k) <= 1
