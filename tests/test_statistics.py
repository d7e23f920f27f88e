"""Intervals: the published vectors, scipy as the oracle, and what must hold for any counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest  # type: ignore[import-untyped]  # scipy ships no types

from paraval.statistics import wilson


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


@given(n=st.integers(2, 1000))
def test_more_cases_give_a_narrower_interval(n: int) -> None:
    few, many = wilson(0.5 * n, n), wilson(0.5 * (n + 1), n + 1)
    assert many[1] - many[0] < few[1] - few[0]


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (math.nan, 10)])
def test_impossible_counts_are_refused(successes: float, n: int) -> None:
    with pytest.raises(ValueError, match="not possible"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        wilson(1, 2, confidence)
