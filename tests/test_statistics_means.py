"""Means and quantiles: numpy's definition, and what must hold for any values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import (  # type: ignore[import-untyped]  # scipy ships no types
    mstats,
    t as scipy_t,
)

from paraval.statistics.rates import mean_interval, quantile

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_what_is_no_number_has_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite values"):
        mean_interval(values)


def test_the_paired_means_of_ten_cases_have_the_published_error() -> None:
    a = [1, 1, 0, 1, 1, 0, 1, 1, 1, 0]
    b = [1, 0, 0, 1, 0, 0, 1, 1, 0, 0]
    mean, low, high = mean_interval([x - y for x, y in zip(a, b, strict=True)])
    assert mean == pytest.approx(0.3)
    assert (high - low) / 2 / float(scipy_t.ppf(0.975, 9)) == pytest.approx(0.152753, abs=5e-7)


def test_the_four_cases_of_three_repeats_have_the_published_half_width() -> None:
    _, low, high = mean_interval([1, 1 / 3, 2 / 3, 0])
    assert (high - low) / 2 == pytest.approx(0.6848, abs=5e-5)


@settings(max_examples=25, deadline=None)
@given(VALUES, st.floats(0, 1))
def test_a_quantile_is_the_one_that_numpy_gives(values: list[float], share: float) -> None:
    oracle = float(mstats.mquantiles(values, [share], alphap=1, betap=1)[0])
    assert quantile(values, share) == pytest.approx(oracle, rel=1e-9, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(VALUES, st.floats(0, 1))
def test_a_quantile_never_leaves_what_was_measured(values: list[float], share: float) -> None:
    assert min(values) <= quantile(values, share) <= max(values)


def test_the_ends_and_the_middle_are_exact() -> None:
    assert quantile([3.0, 1.0, 2.0], 0) == 1.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 1) == 3.0
    assert quantile([math.inf, math.inf], 0.95) == math.inf
