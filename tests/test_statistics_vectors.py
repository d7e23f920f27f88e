"""Published figures that our choices rest on: of the methods we use beside those we don't.

Nothing of paraval computes the latter. That they come out as published shows that we would know the
difference.
"""

from __future__ import annotations

import math
from itertools import product
from statistics import correlation, fmean, median, stdev, variance

import pytest
from scipy.stats import (  # type: ignore[import-untyped]  # scipy ships no types
    beta,
    binom,
    friedmanchisquare,
    mannwhitneyu,
    t,
)

from paraval.statistics.rates import clopper_pearson, speedup_interval, wilson

Z = 1.959963984540054
SLOW = [10.1, 10.3, 10.0, 10.6, 10.2, 10.4, 10.1, 12.9]
FAST = [9.6, 9.8, 9.5, 9.7, 10.0, 9.6, 9.9, 9.6]


def wald(successes: int, n: int) -> tuple[float, float]:
    rate = successes / n
    half = Z * math.sqrt(rate * (1 - rate) / n)
    return rate - half, rate + half


# ---- one variant


@pytest.mark.parametrize(
    ("n", "by_wald", "by_wilson", "exact"),
    [(10, 0.773, 0.954, 0.984), (30, 0.879, 0.952, 0.974), (100, 0.926, 0.950, 0.965)],
)
def test_wald_covers_too_little_wilson_as_promised_and_clopper_pearson_more(
    n: int, by_wald: float, by_wilson: float, exact: float
) -> None:
    """On average over all rates: which is why no interval here is Wald's."""
    rates = [step / 200 for step in range(1, 200)]
    for interval, expected in (
        (wald, by_wald),
        (wilson, by_wilson),
        (clopper_pearson, exact),
    ):
        bounds = [interval(k, n) for k in range(n + 1)]
        chances = binom.pmf([[k] for k in range(n + 1)], n, rates)
        held = [
            sum(chances[k][place] for k, (low, high) in enumerate(bounds) if low <= rate <= high)
            for place, rate in enumerate(rates)
        ]
        assert fmean(held) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 10, 0.0023, 0.2849),
        (9, 10, 0.5872, 0.9772),
        (20, 20, 0.8389, 0.9988),
        (7, 30, 0.1186, 0.4110),
        (45, 50, 0.7859, 0.9556),
    ],
)
def test_a_flat_prior_says_nearly_what_wilson_says(k: int, n: int, low: float, high: float) -> None:
    bayes = beta.ppf([0.025, 0.975], k + 1, n - k + 1)
    assert tuple(bayes) == pytest.approx((low, high), abs=5e-5)
    assert wilson(k, n) == pytest.approx(tuple(bayes), abs=0.01)


# ---- two variants


def test_pairs_tell_more_than_two_averages() -> None:
    one, other = [1, 1, 0, 1, 1, 0, 1, 1, 1, 0], [1, 0, 0, 1, 0, 0, 1, 1, 0, 0]
    differences = [a - b for a, b in zip(one, other, strict=True)]
    paired = stdev(differences) / math.sqrt(10)
    unpaired = math.sqrt(variance(one) / 10 + variance(other) / 10)
    assert (paired, unpaired) == pytest.approx((0.152753, 0.223607), abs=5e-7)
    assert correlation(one, other) == pytest.approx(0.5345, abs=5e-5)


def test_a_rank_test_cannot_tell_three_from_three() -> None:
    assert mannwhitneyu([4, 5, 6], [1, 2, 3], method="exact").pvalue == pytest.approx(0.1)
    told = mannwhitneyu(SLOW[:5], [9.6, 9.8, 9.5, 9.7, 9.9], method="exact")
    assert (told.statistic, told.pvalue) == pytest.approx((25, 2 / 252))


# ---- many candidates


def test_races_by_hoeffding_and_bernstein_drop_nobody_soon() -> None:
    """With five candidates and fifty cases: so halving it is."""
    hoeffding = [math.sqrt(math.log(2 * 5 * 50 / 0.05) / (2 * n)) for n in (5, 10, 20, 50)]
    assert hoeffding == pytest.approx([0.9597, 0.6786, 0.4799, 0.3035], abs=5e-5)
    log = math.log(3 * 5 * 50 / 0.05)
    bernstein = [math.sqrt(2 * 0.04 * log / n) + 3 * log / n for n in (10, 50, 200)]
    assert bernstein == pytest.approx([3.16, 0.701, 0.206], abs=6e-3)


def test_five_instances_tell_three_candidates_apart() -> None:
    found = friedmanchisquare(
        [0.9, 0.7, 0.8, 0.6, 0.9], [0.8, 0.6, 0.9, 0.5, 0.7], [0.5, 0.4, 0.3, 0.2, 0.6]
    )
    assert (found.statistic, found.pvalue) == pytest.approx((8.4, 0.0150), abs=5e-5)


# ---- speed


def test_one_slow_process_moves_the_mean_and_not_the_median() -> None:
    logs = [math.log(slow / fast) for slow, fast in zip(SLOW, FAST, strict=True)]
    assert speedup_interval(logs) == pytest.approx((1.08544, 1.00704, 1.16994), abs=5e-6)
    assert median(SLOW) / median(FAST) == pytest.approx(1.06218, abs=5e-6)
    assert min(SLOW) / min(FAST) == pytest.approx(1.05263, abs=5e-6)
    assert fmean(SLOW) / fmean(FAST) == pytest.approx(1.0888, abs=5e-5)
    ratios = [slow / fast for slow, fast in product(SLOW, FAST)]
    assert median(ratios) == pytest.approx(1.06061, abs=5e-6)


def test_more_processes_tell_more_than_more_loops() -> None:
    """Two levels, by Kalibera and Jones."""
    runs = [[10.1, 10.2, 10.0], [10.6, 10.5, 10.7], [9.9, 10.0, 9.8], [10.3, 10.4, 10.2]]
    within = fmean(variance(run) for run in runs)
    between = variance(fmean(run) for run in runs)
    own = between - within / 3
    assert (within, between, own) == pytest.approx((0.01, 0.08917, 0.08583), abs=5e-6)
    half = t.ppf(0.975, 3) * math.sqrt(between / 4)
    assert half == pytest.approx(0.4752, abs=5e-5)
    loops = [math.sqrt(dearer * within / own) for dearer in (20, 5)]
    assert loops == pytest.approx([1.526, 0.763], abs=5e-4)
