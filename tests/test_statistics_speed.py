"""Speed: ratios of seconds, their interval, and the order that a drifting machine cannot fool."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from paraval.statistics.rates import block_log_ratio, speedup_interval

BEFORE = [10.1, 10.3, 10.0, 10.6, 10.2, 10.4, 10.1, 12.9]
AFTER = [9.6, 9.8, 9.5, 9.7, 10.0, 9.6, 9.9, 9.6]


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


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_measurements_that_are_no_seconds_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="seconds above 0"):
        block_log_ratio([1.0, 1.0], [1.0, wrong])
    with pytest.raises(ValueError, match="seconds above 0"):
        block_log_ratio([wrong, 1.0], [1.0, 1.0])


def test_a_side_without_measurements_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        block_log_ratio([], [1.0])


@settings(max_examples=25, deadline=None)
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
    """The share of races between two equal sides that end in a difference at 95%, on a machine
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
    assert _false_positives("ABBA" * blocks, 400) < 0.08
    assert _false_positives("AA" * blocks + "BB" * blocks, 400) > 0.5
