"""Repeats: how often intervals over them hold the truth, and what they show that others hid."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom, multinomial  # type: ignore[import-untyped]  # scipy ships no types

from paraval.statistics.pairs import paired_interval, sign_flip_p
from paraval.statistics.rates import apart, repeats_step

CHANCES = st.floats(0, 1)
Case = tuple[float, float]
"""How likely it passes on either side."""

SUITES: Mapping[str, Sequence[Case]] = {
    "all waver": [(0.5, 0.5)],
    "hard and easy ones": [(0.1, 0.1), (0.5, 0.5), (0.9, 0.9), (1, 1)],
    "one side is better": [(0.9, 0.7), (0.7, 0.4), (1, 0.9)],
    "one side is far better": [(0.95, 0.5), (0.9, 0.4)],
    "none wavers": [(1, 1)] * 7 + [(1, 0)] * 2 + [(0, 1)],
    "nearly all pass": [(1, 1)] * 15 + [(0.9, 0.9)] * 4 + [(1, 0.5)],
}
BREAKING = [(0.8, 0.8)] * 9 + [(0.8, 0)]
"""Some break for good, among others that waver: the worst there is."""


class Seen(NamedTuple):
    """What a case came to."""

    difference: float
    apart: float


def _interval(cases: Sequence[Seen]) -> tuple[float, float]:
    differences = [one.difference for one in cases]
    squares = math.fsum(value * value for value in differences)
    step = repeats_step(squares, math.fsum(one.apart for one in cases))
    _, low, high = paired_interval(differences, step=step)
    return low, high


def _truth(suite: Sequence[Case]) -> float:
    return sum(one - other for one, other in suite) / len(suite)


# ---- how often they hold the truth


def _kinds(suite: Sequence[Case], repeats: int) -> Mapping[Seen, float]:
    """All that a case can come to, and how likely."""
    kinds: defaultdict[Seen, float] = defaultdict(float)
    counts = range(repeats + 1)
    for one, other in suite:
        first, second = (binom.pmf(counts, repeats, chance) for chance in (one, other))
        for x, y in itertools.product(counts, counts):
            a, b = x / repeats, y / repeats
            seen = Seen((x - y) / repeats, round(apart(a, b), 9))
            kinds[seen] += float(first[x] * second[y]) / len(suite)
    return kinds


def _splits(cases: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """All ways to share cases out over kinds."""
    for bars in itertools.combinations(range(cases + kinds - 1), kinds - 1):
        edges = (-1, *bars, cases + kinds - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize(("cases", "repeats"), [(5, 2), (8, 2), (4, 3)])
def test_intervals_of_few_cases_hold_the_truth_as_often_as_they_say(
    cases: int, repeats: int
) -> None:
    """Counted over all that can happen, not drawn."""
    splits = list(_splits(cases, len(_kinds([(0.5, 0.5)], repeats))))
    kinds = list(_kinds([(0.5, 0.5)], repeats))
    bounds = [
        _interval([kind for kind, count in zip(kinds, split, strict=True) for _ in range(count)])
        for split in splits
    ]
    for name, suite in {**SUITES, "breaking": BREAKING}.items():
        chances = _kinds(suite, repeats)
        likely = multinomial.pmf(splits, cases, [chances.get(kind, 0.0) for kind in kinds])
        truth = _truth(suite)
        held = sum(
            chance
            for chance, (low, high) in zip(likely, bounds, strict=True)
            if low - 1e-9 <= truth <= high + 1e-9
        )
        assert held >= 0.945, (name, held)


def _drawn(rng: random.Random, suite: Sequence[Case], cases: int, repeats: int) -> list[Seen]:
    seen = []
    for chances in rng.choices(suite, k=cases):
        one, other = (sum(rng.random() < p for _ in range(repeats)) / repeats for p in chances)
        seen.append(Seen(one - other, apart(one, other)))
    return seen


@pytest.mark.parametrize(("cases", "repeats"), [(10, 10), (30, 5), (40, 3)])
def test_intervals_over_many_repeats_hold_the_truth_as_often_as_they_say(
    cases: int, repeats: int
) -> None:
    """By simulation, with three standard errors left to chance."""
    rng, runs = random.Random(cases), 120
    for name, suite in SUITES.items():
        held = _held(rng, suite, (cases, repeats), runs)
        assert held >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs), (name, held)


def test_where_some_break_for_good_the_truth_is_held_a_little_less_often() -> None:
    held = _held(random.Random(2), BREAKING, (20, 10), 200)
    assert held >= 0.91 - 3 * math.sqrt(0.91 * 0.09 / 200)


def _held(rng: random.Random, suite: Sequence[Case], size: tuple[int, int], runs: int) -> float:
    truth = _truth(suite)
    intervals = [_interval(_drawn(rng, suite, *size)) for _ in range(runs)]
    return sum(low <= truth <= high for low, high in intervals) / runs


# ---- what they show


def test_ten_cases_of_ten_repeats_show_what_they_hid_with_made_up_pairs_of_1() -> None:
    seen = [Seen(0.2, apart(0.9, 0.7)), Seen(0.3, apart(0.8, 0.5))] * 5
    assert _interval(seen)[0] > 0
    _, low, _ = paired_interval([one.difference for one in seen])
    assert low < 0


def test_flips_and_the_interval_agree_from_20_cases_on() -> None:
    """Simulated. With fewer the interval is the more careful one: of 10 cases with 10 repeats and
    a difference of 20 points the test alone shows it in one run of three."""
    rng, runs = random.Random(5), 150
    apart_ = 0
    for _ in range(runs):
        seen = _drawn(rng, SUITES["one side is better"], 20, 5)
        low, high = _interval(seen)
        apart_ += (sign_flip_p([one.difference for one in seen]) < 0.05) == (low <= 0 <= high)
    assert apart_ / runs <= 0.05


# ---- the step


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(CHANCES, CHANCES), min_size=1, max_size=40))
def test_a_step_is_at_most_1_and_above_0(rates: list[Case]) -> None:
    step = repeats_step(
        math.fsum((one - other) ** 2 for one, other in rates),
        math.fsum(apart(one, other) for one, other in rates),
    )
    assert 0 < step <= 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_cases_that_never_waver_are_worth_one_repeat_each(passes: list[tuple[bool, bool]]) -> None:
    squares = sum((one - other) ** 2 for one, other in passes)
    assert repeats_step(squares, math.fsum(apart(one, other) for one, other in passes)) == 1


@pytest.mark.parametrize("repeats", [2, 5, 10])
def test_many_cases_that_waver_make_it_one_over_their_repeats(repeats: int) -> None:
    """With n of them: both squares and how often they are apart are what is to be expected."""
    n = 100_000
    assert repeats_step(n * 0.5 / repeats, n * 0.5) == pytest.approx(1 / repeats, abs=1e-4)
    assert repeats_step(5 * 0.5 / repeats, 5 * 0.5) > 1 / repeats


def test_rates_that_are_the_same_but_waver_are_not_taken_for_verdicts() -> None:
    """Student's t, not the normal distribution: the spread is guessed."""
    _, _, high = paired_interval([0.0] * 5, step=0.5)
    assert high == pytest.approx(2.776445 * math.sqrt(2 * 0.25) / 7, abs=1e-6)
