"""Power: the published vectors, and that what is promised before comes true after."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraval.statistics.pairs import paired_interval
from paraval.statistics.power import (
    detectable_difference,
    detectable_from,
    pairs_needed,
    pairs_to_tell,
)

WITHIN = (1 / 6, 1 / 6)
PASS_FAIL = st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=2, max_size=60)


@pytest.mark.parametrize(
    ("difference", "within", "repeats", "expected"),
    [
        (0.03, (0.0, 0.0), 1, 969.0),
        (0.03, WITHIN, 1, 3876.0),
        (0.03, WITHIN, 10, 1259.7),
        (0.1, WITHIN, 1, 348.8),
        (0.1, WITHIN, 4, 152.6),
    ],
)
def test_pairs_needed_are_the_published_ones(
    difference: float, within: tuple[float, float], repeats: int, expected: float
) -> None:
    found = pairs_needed(difference, spread=1 / 9, within=within, repeats=(repeats, repeats))
    assert found == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("pairs", "repeats", "expected"), [(50, 1, 0.2641), (50, 4, 0.1747), (200, 1, 0.1321)]
)
def test_detectable_differences_are_the_published_ones(
    pairs: int, repeats: int, expected: float
) -> None:
    found = detectable_difference(pairs, spread=1 / 9, within=WITHIN, repeats=(repeats, repeats))
    assert found == pytest.approx(expected, abs=5e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 10_000), st.floats(0.001, 1), st.integers(1, 20), st.floats(0.5, 0.99))
def test_the_two_are_each_others_inverse(
    pairs: int, spread: float, repeats: int, power: float
) -> None:
    difference = detectable_difference(
        pairs, spread=spread, within=WITHIN, repeats=(repeats, 1), power=power
    )
    found = pairs_needed(
        difference, spread=spread, within=WITHIN, repeats=(repeats, 1), power=power
    )
    assert found == pytest.approx(pairs)


def test_what_is_said_to_be_detectable_is_detected_as_often() -> None:
    """Simulated: 100 cases, a fifth of which differ; the difference that they can show is shown
    in about 80 % of runs, and less often where it is half as large."""
    rng, runs, n = random.Random(4), 400, 100
    typical = [1] * 10 + [-1] * 10 + [0] * 80
    largest = detectable_from(typical)

    def shown(difference: float) -> float:
        better = (0.2 + difference) / 2
        found = 0
        for _ in range(runs):
            weights = (better, 0.2 - better, 0.8)
            _, low, _ = paired_interval(rng.choices([1, -1, 0], weights, k=n))
            found += low > 0
        return found / runs

    assert 0.7 <= shown(largest) <= 0.95
    assert shown(largest / 2) < 0.5


def test_repeats_that_waver_let_cases_show_more_and_tell_sooner() -> None:
    assert detectable_from([0.2, -0.2] * 5, step=0.3) < detectable_from([0.2, -0.2] * 5)
    few, many = (pairs_to_tell([0.2, -0.2] * 5, -0.1, step=step) for step in (0.3, 1.0))
    assert few is not None
    assert many is not None
    assert 0 < few < many


def test_cases_that_all_agree_cannot_show_everything() -> None:
    assert detectable_from([0] * 10) > 0.25
    assert detectable_from([0] * 10) > detectable_from([0] * 1_000) > 0


# ---- how many more


@settings(max_examples=25, deadline=None)
@given(PASS_FAIL, st.sampled_from([-0.2, -0.05, 0.0, 0.1]))
def test_as_many_more_pairs_like_these_tell_and_one_fewer_does_not(
    differences: list[int], bound: float
) -> None:
    more = pairs_to_tell(differences, bound)
    _, low, high = paired_interval(differences)
    if more == 0:
        assert not low <= bound <= high
    elif more is not None:
        assert low <= bound <= high
        n = len(differences)
        mean = sum(differences) / n
        square = sum(value * value for value in differences) / n
        assert _leaves_out(bound, mean, square, n + more)
        assert not _leaves_out(bound, mean, square, n + more - 1)


def _leaves_out(bound: float, mean: float, square: float, pairs: int) -> bool:
    """The interval of Bonett and Price, written down again."""
    centre = pairs * mean / (pairs + 2)
    variance = (pairs * square + 2) / (pairs + 2) - centre**2
    half = 1.959963984540054 * math.sqrt(variance / (pairs + 2))
    return bound < centre - half if mean > bound else bound > centre + half


def test_a_mean_on_the_bound_never_tells() -> None:
    assert pairs_to_tell([1, -1, 0, 0], 0.0) is None
    assert pairs_to_tell([0.5, -0.5], 0.0) is None


def test_a_clear_drop_is_told_already_and_a_faint_one_later() -> None:
    assert pairs_to_tell([-1] * 30, -0.05) == 0
    assert pairs_to_tell([0] * 10, -0.05) == 44
    few, many = (pairs_to_tell([0.3, -0.2, 0.1, 0.2, -0.1] * 4, bound) for bound in (-0.3, 0.0))
    assert few is not None
    assert many is not None
    assert few < many


@pytest.mark.parametrize(
    "ask",
    [
        lambda: pairs_needed(0, spread=0.1),
        lambda: pairs_needed(0.1, spread=-0.1),
        lambda: pairs_needed(0.1, spread=0.1, repeats=(0, 1)),
        lambda: pairs_needed(0.1, spread=0.1, power=1.0),
        lambda: pairs_needed(0.1, spread=0.1, confidence=95),
        lambda: detectable_difference(0, spread=0.1),
        lambda: detectable_from([]),
        lambda: detectable_from([2.0]),
        lambda: detectable_from([0.5], step=0.0),
        lambda: pairs_to_tell([], 0.0),
        lambda: pairs_to_tell([0.1], math.nan),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"not |at least one pair"):
        ask()
