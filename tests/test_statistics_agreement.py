"""A judge corrected by labels, and how far it agrees with people: by hand, and by simulation."""

from __future__ import annotations

import random

import pytest

from paraval.statistics.agreement import Stratum, corrected_rate, kappa_of
from paraval.statistics.rates import wilson


def stratum(trials: int, good: int, bad: int) -> Stratum:
    labels = [True] * good + [False] * bad
    return Stratum(trials=trials, weights=[1] * len(labels), passed=labels)


def test_a_judge_is_corrected_by_the_share_of_its_verdicts_that_people_share() -> None:
    """It passed 180 of 200, where people pass 25 of 30; and failed 20, where they pass 3 of 30."""
    found = corrected_rate(stratum(180, 25, 5), stratum(20, 3, 27), wilson(180, 200))
    assert found is not None
    rate, low, high = found
    assert rate == pytest.approx(0.9 * 25 / 30 + 0.1 * 3 / 30)
    assert 0.6 < low < rate < high < 0.9
    agreement = corrected_rate(
        stratum(180, 25, 5), stratum(20, 3, 27), wilson(180, 200), agreeing=True
    )
    assert agreement is not None
    assert agreement[0] == pytest.approx(0.9 * 25 / 30 + 0.1 * 27 / 30)


def test_labels_that_all_agree_leave_a_width_and_no_labels_say_nothing() -> None:
    judged = wilson(180, 200)
    rate, low, high = corrected_rate(stratum(180, 30, 0), stratum(20, 0, 30), judged) or (0, 0, 0)
    assert rate == pytest.approx(0.9)
    assert high - low > judged[1] - judged[0]
    assert corrected_rate(stratum(180, 30, 0), stratum(20, 0, 0), judged) is None
    assert corrected_rate(stratum(200, 30, 0), stratum(0, 0, 0), wilson(200, 200)) is not None


def test_a_label_counts_for_all_trials_with_its_answer() -> None:
    twice = Stratum(trials=100, weights=[9, 1], passed=[True, False])
    assert twice.share == 0.9
    assert 1 < twice.labels < 2


@pytest.mark.parametrize(
    ("trials", "labels", "kind", "strict"),
    [(200, 20, 0.9, 0.05), (200, 60, 0.97, 0.2), (1_000, 60, 1.0, 0.0), (1_000, 200, 0.8, 0.2)],
)
def test_the_interval_of_a_corrected_rate_holds_the_truth(
    trials: int, labels: int, kind: float, strict: float
) -> None:
    """Simulated: people pass `kind` of what the judge passes, and `strict` of what it fails. Wald's
    interval held it in as few as 25% of samples."""
    rng, runs, held = random.Random(4), 400, 0
    truth = 0.85 * kind + 0.15 * strict
    for _ in range(runs):
        good = sum(rng.random() < 0.85 for _ in range(trials))
        sides = []
        for number, share in ((good, kind), (trials - good, strict)):
            drawn = [rng.random() < share for _ in range(min(labels // 2, number))]
            sides.append(Stratum(trials=number, weights=[1] * len(drawn), passed=drawn))
        found = corrected_rate(sides[0], sides[1], wilson(good, trials))
        held += found is not None and found[1] <= truth <= found[2]
    assert held / runs >= 0.92


def test_kappa_is_what_is_beyond_chance() -> None:
    """The worked example of the encyclopedias: 20 and 15 of 50 agreed, 5 and 10 not."""
    kappa = kappa_of((0.7, 0.55, 0.82), 0.5, 0.6)
    assert kappa is not None
    assert kappa[0] == pytest.approx(0.4)
    assert kappa[1] < 0.4 < kappa[2]
    assert kappa_of((1.0, 0.8, 1.0), 1.0, 1.0) is None
