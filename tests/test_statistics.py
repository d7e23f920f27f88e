"""Intervals: the published vectors, scipy as the oracle, and what must hold for any counts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest  # type: ignore[import-untyped]  # scipy ships no types
from scipy.stats import t as scipy_t

from paraval.statistics.distributions import student_quantile
from paraval.statistics.means import mean_interval
from paraval.statistics.rates import wilson
from paraval.statistics.speed import block_log_ratio, speedup_interval


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


# ---- speed

BEFORE = [10.1, 10.3, 10.0, 10.6, 10.2, 10.4, 10.1, 12.9]
AFTER = [9.6, 9.8, 9.5, 9.7, 10.0, 9.6, 9.9, 9.6]


def test_student_quantiles_agree_with_scipy() -> None:
    for df in range(1, 201):
        for confidence in (0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999):
            p = 0.5 + confidence / 2
            expected = float(scipy_t.ppf(p, df))
            assert student_quantile(p, df) == pytest.approx(expected, rel=1e-9), (p, df)


def test_students_t_is_the_same_on_both_sides_of_0() -> None:
    assert student_quantile(0.5, 3) == 0.0
    for df in (1, 2, 30):
        assert student_quantile(0.1, df) == pytest.approx(-student_quantile(0.9, df), rel=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (math.nan, 3), (0.9, 0)])
def test_a_quantile_that_cannot_be_is_refused(p: float, df: int) -> None:
    with pytest.raises(ValueError, match=r"lies between|at least one degree"):
        student_quantile(p, df)


def test_a_speedup_has_the_published_interval() -> None:
    ratios = [math.log(a / b) for a, b in zip(BEFORE, AFTER, strict=True)]
    assert speedup_interval(ratios) == pytest.approx((1.08544, 1.00704, 1.16994), abs=5e-6)


def test_one_block_leaves_everything_possible() -> None:
    estimate, low, high = speedup_interval([math.log(2)])
    assert estimate == pytest.approx(2)
    assert (low, high) == (0.0, math.inf)


def test_blocks_that_all_say_the_same_have_an_interval_without_width() -> None:
    assert speedup_interval([math.log(2)] * 5) == pytest.approx((2, 2, 2))


def test_an_interval_beyond_all_numbers_is_infinite_and_no_error() -> None:
    _, low, high = speedup_interval([-700.0, 700.0])
    assert (low, high) == (0.0, math.inf)


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_what_is_no_number_has_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite values"):
        mean_interval(values)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_measurements_that_are_no_seconds_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="seconds above 0"):
        block_log_ratio([1.0, 1.0], [1.0, wrong])
    with pytest.raises(ValueError, match="seconds above 0"):
        block_log_ratio([wrong, 1.0], [1.0, 1.0])


def test_a_side_without_measurements_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        block_log_ratio([], [1.0])


@given(
    st.lists(st.floats(0.001, 1000), min_size=2, max_size=2),
    st.lists(st.floats(0.001, 1000), min_size=2, max_size=2),
    st.floats(0.01, 100),
)
def test_a_log_ratio_knows_no_unit_and_turns_round_with_its_sides(
    a: list[float], b: list[float], unit: float
) -> None:
    ratio = block_log_ratio(a, b)
    assert block_log_ratio(b, a) == pytest.approx(-ratio, abs=1e-9)
    scaled = block_log_ratio([x * unit for x in a], [x * unit for x in b])
    assert scaled == pytest.approx(ratio, abs=1e-9)


def _false_positives(order: str, races: int) -> float:
    """The share of races between two equal sides that end in a difference at 95 %, on a machine
    that slows down or speeds up by up to a tenth meanwhile."""
    rng = random.Random(7)
    shown = 0
    for _ in range(races):
        drift = rng.uniform(-0.1, 0.1) / len(order)
        sides: dict[str, list[float]] = {"A": [], "B": []}
        for moment, side in enumerate(order):
            sides[side].append(math.exp(drift * moment + rng.gauss(0, 0.02)))
        _, low, high = speedup_interval(_ratios(sides["A"], sides["B"]))
        shown += not low <= 1 <= high
    return shown / races


def _ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [block_log_ratio(a[i : i + 2], b[i : i + 2]) for i in range(0, len(a), 2)]


def test_abba_is_not_fooled_by_a_machine_that_drifts_and_one_after_the_other_is() -> None:
    blocks = 10
    assert _false_positives("ABBA" * blocks, 1000) < 0.08
    assert _false_positives("AA" * blocks + "BB" * blocks, 1000) > 0.5
