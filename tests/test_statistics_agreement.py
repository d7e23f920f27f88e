"""Cohen's kappa against tables whose values are published or worked out by hand."""

from __future__ import annotations

import random

import pytest

from paraval.statistics.agreement import cohen_kappa
from paraval.statistics.rates import wilson


def pairs(both: int, first: int, second: int, neither: int) -> list[list[tuple[bool, bool]]]:
    """One pair per case: both raters pass, only the first, only the second, neither."""
    table = (
        [(True, True)] * both
        + [(True, False)] * first
        + [(False, True)] * second
        + [(False, False)] * neither
    )
    return [[pair] for pair in table]


@pytest.mark.parametrize(
    ("table", "agreement", "kappa"),
    [
        # The worked examples of the encyclopedias; sklearn's cohen_kappa_score gives the same.
        ((20, 5, 10, 15), 0.7, 0.4),
        ((45, 15, 25, 15), 0.6, 3 / 23),
        ((25, 35, 5, 35), 0.6, 7 / 27),
        ((10, 0, 0, 10), 1.0, 1.0),
        ((0, 10, 10, 0), 0.0, -1.0),
        ((5, 5, 5, 5), 0.5, 0.0),
    ],
)
def test_kappa_is_what_the_textbooks_say(
    table: tuple[int, int, int, int], agreement: float, kappa: float
) -> None:
    found = cohen_kappa(pairs(*table))
    assert found is not None
    assert found.agreement == pytest.approx(agreement)
    assert found.kappa == pytest.approx(kappa)
    assert found.kappa_interval is not None
    assert found.kappa_interval[0] <= kappa <= found.kappa_interval[1]


def test_the_interval_is_that_of_the_agreement_on_kappas_scale() -> None:
    found = cohen_kappa(pairs(20, 5, 10, 15))
    assert found is not None
    low, high = wilson(35, 50)
    assert found.kappa_interval == pytest.approx(((low - 0.5) / 0.5, (high - 0.5) / 0.5))
    assert found.kappa_interval == pytest.approx((0.125, 0.618), abs=0.001)


def test_perfect_agreement_on_few_labels_is_not_certain() -> None:
    found = cohen_kappa(pairs(6, 0, 0, 6))
    assert found is not None
    assert found.kappa_interval is not None
    assert 0.4 < found.kappa_interval[0] < 0.6
    assert found.kappa_interval[1] == 1


def test_kappa_is_undefined_if_nothing_ever_differs_and_without_pairs() -> None:
    found = cohen_kappa(pairs(12, 0, 0, 0))
    assert found is not None
    assert (found.agreement, found.kappa, found.kappa_interval) == (1.0, None, None)
    assert cohen_kappa([]) is None
    assert cohen_kappa([[]]) is None


def test_several_labels_on_one_case_say_less_than_as_many_cases() -> None:
    apart = cohen_kappa(pairs(20, 4, 4, 20))
    together = cohen_kappa([[pair for [pair] in pairs(20, 4, 4, 20)][at::12] for at in range(12)])
    alike = cohen_kappa([[(bool(at % 2), at % 6 != 0)] * 4 for at in range(12)])
    apart_alike = cohen_kappa([[(bool(at % 2), at % 6 != 0)] for at in range(12)] * 4)
    assert apart is not None
    assert together is not None
    assert alike is not None
    assert apart_alike is not None
    assert apart.kappa == together.kappa

    def width(interval: tuple[float, float] | None) -> float:
        assert interval is not None
        return interval[1] - interval[0]

    assert width(alike.kappa_interval) > 1.5 * width(apart_alike.kappa_interval)


def test_the_interval_covers_the_true_kappa_as_often_as_it_says() -> None:
    rng = random.Random(4)
    table = {(True, True): 0.56, (True, False): 0.14, (False, True): 0.09, (False, False): 0.21}
    expected = 0.7 * 0.65 + 0.3 * 0.35
    truth = (0.77 - expected) / (1 - expected)
    hits = 0
    for _ in range(400):
        sample = rng.choices(list(table), weights=list(table.values()), k=24)
        found = cohen_kappa([[pair] for pair in sample])
        assert found is not None
        assert found.kappa_interval is not None
        low, high = found.kappa_interval
        hits += low <= truth <= high
    assert hits >= 0.93 * 400
