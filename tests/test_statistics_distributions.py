"""Distributions: scipy as the oracle, and what lies outside of them is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import (  # type: ignore[import-untyped]  # scipy ships no types
    beta as scipy_beta,
    t as scipy_t,
)

from paraval.statistics.distributions import (
    beta_quantile,
    coin_chance,
    coin_tail,
    incomplete_beta,
    student_quantile,
    student_tail,
)

SHAPES = st.floats(0.5, 2_000)


def test_student_quantiles_agree_with_scipy() -> None:
    for df in (*range(1, 12), 29, 99, 1_000, 100_000):
        for confidence in (0.8, 0.95, 0.99, 0.999):
            p = 0.5 + confidence / 2
            expected = float(scipy_t.ppf(p, df))
            assert student_quantile(p, df) == pytest.approx(expected, rel=1e-9), (p, df)


def test_students_t_is_the_same_on_both_sides_of_0() -> None:
    assert student_quantile(0.5, 3) == 0.0
    for df in (1, 2, 30):
        assert student_quantile(0.1, df) == pytest.approx(-student_quantile(0.9, df), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(SHAPES, SHAPES, st.floats(0, 1))
def test_the_incomplete_beta_function_agrees_with_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(float(scipy_beta.cdf(x, a, b)), abs=1e-11)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.floats(0, 50))
def test_the_tail_of_students_t_agrees_with_scipy(df: int, t: float) -> None:
    assert student_tail(t, df) == pytest.approx(float(scipy_t.sf(t, df)), rel=1e-8, abs=1e-300)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.001, 0.999), SHAPES, SHAPES)
def test_beta_quantiles_agree_with_scipy(p: float, a: float, b: float) -> None:
    assert beta_quantile(p, a, b) == pytest.approx(float(scipy_beta.ppf(p, a, b)), rel=1e-8)


@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000])
def test_large_counts_keep_their_precision(size: int) -> None:
    for p in (0.025, 0.5, 0.975):
        oracle = float(scipy_beta.ppf(p, 0.6 * size, 0.4 * size))
        assert beta_quantile(p, 0.6 * size, 0.4 * size) == pytest.approx(oracle, abs=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 800).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_fair_coins_are_counted_right(coins: tuple[int, int]) -> None:
    """In whole numbers: far out, where this still tells, scipy says 0."""
    heads, n = coins
    ways = [math.comb(n, k) for k in range(heads + 1)]
    for ours, exact in ((coin_chance, ways[-1]), (coin_tail, sum(ways))):
        expected = float(Fraction(exact, 1 << n))
        assert ours(heads, n) == pytest.approx(expected, rel=1e-8, abs=1e-300)
