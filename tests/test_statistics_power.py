"""Power: the published vectors, and that what is promised before comes true after."""

from __future__ import annotations

import math
import random

import pytest

from paraval.statistics.pairs import mcnemar_mid_p, paired_interval
from paraval.statistics.power import detectable_from, seen_spread


def test_what_is_said_to_be_detectable_is_detected_as_often() -> None:
    """Simulated: 100 cases, a fifth of which differ; the difference that they can show is shown
    in about 80% of runs, and less often where it is half as large."""
    rng, runs, n = random.Random(4), 400, 100
    typical = [1] * 10 + [-1] * 10 + [0] * 80
    largest = detectable_from(seen_spread(typical))

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


@pytest.mark.parametrize(
    ("pairs", "wins", "losses"), [(20, 0, 0), (20, 1, 1), (60, 0, 0), (60, 2, 2), (200, 5, 5)]
)
def test_what_few_that_differ_can_show_is_shown_as_often(
    pairs: int, wins: int, losses: int
) -> None:
    """Counted, not drawn: every split of so many cases, where the difference has only the spread
    that it brings itself. It was 18% for 60 cases that all agree."""
    seen = [1] * wins + [-1] * losses + [0] * (pairs - wins - losses)
    for among in (1, 6):
        difference = detectable_from(seen_spread(seen), among=among)
        differing = max((wins + losses) / pairs, difference)
        shares = (differing + difference) / 2, (differing - difference) / 2
        assert 0.75 <= _power(pairs, shares, 0.05 / among) <= 0.92


def _power(pairs: int, shares: tuple[float, float], alpha: float) -> float:
    """How likely a split is by which both the test and the interval show the first side ahead."""
    won, lost = shares
    shown = 0.0
    for wins in range(pairs + 1):
        for losses in range(min(wins, pairs - wins) + 1):
            ways = math.comb(pairs, wins) * math.comb(pairs - wins, losses)
            chance = ways * won**wins * lost**losses * (1 - won - lost) ** (pairs - wins - losses)
            if chance > 1e-9 and mcnemar_mid_p(wins, losses) < alpha:
                split = [1] * wins + [-1] * losses + [0] * (pairs - wins - losses)
                shown += chance * (paired_interval(split)[1] > 0)
    return shown


def test_what_wavering_repeats_can_show_is_shown_as_often() -> None:
    """Simulated: 40 cases of 5 repeats, of which some pass more often by the difference."""
    rng, runs, n, often = random.Random(6), 150, 40, 5

    def rates(chances: list[float]) -> list[float]:
        return [sum(rng.random() < one for _ in range(often)) / often for one in chances]

    equal = [0.7] * n
    seen = [one - other for one, other in zip(rates(equal), rates(equal), strict=True)]
    step = 0.3
    difference = detectable_from(seen_spread(seen, step=step))
    found = 0
    for _ in range(runs):
        better = rates([0.7 + difference] * n)
        gaps = [one - other for one, other in zip(better, rates(equal), strict=True)]
        found += paired_interval(gaps, step=step)[1] > 0
    assert 0.65 <= found / runs <= 0.95


def test_too_few_cases_show_nothing_however_large() -> None:
    """4 wins of 4 have a p of 0.0625; 7 of 7 with repeats one of 0.016, which is too much among
    six."""
    assert detectable_from(seen_spread([0] * 4)) == 1
    assert detectable_from(seen_spread([0] * 5)) < 1
    assert detectable_from(seen_spread([0] * 6), among=6) == 1
    assert detectable_from(seen_spread([0.1, -0.1] * 3, step=0.5), among=6) == 1


def test_repeats_that_waver_let_cases_show_more() -> None:
    wavering, turning = (seen_spread([0.2, -0.2] * 5, step=step) for step in (0.3, 1.0))
    assert detectable_from(wavering) < detectable_from(turning)


def test_cases_that_all_agree_cannot_show_everything() -> None:
    few, many = (detectable_from(seen_spread([0] * number)) for number in (10, 1_000))
    assert few > 0.25
    assert few > many > 0
