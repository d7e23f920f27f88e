"""Who is measured how often: the published schedule, and what must hold for any number."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from paraval.racing.course.verdicts import (
    FINALISTS,
    FIRST_BLOCKS,
    MOST_BLOCKS,
    final_blocks,
    final_confidence,
    halving_rounds,
    one_of,
    screening_rounds,
)

from paraval.racing.request import BenchSpec


def test_halving_gives_the_published_schedule() -> None:
    assert halving_rounds(8, 96) == [(8, 4), (4, 8), (2, 16)]


@given(n=st.integers(1, 500), budget=st.integers(0, 100_000))
def test_no_schedule_goes_over_its_budget_and_each_round_has_half_as_many(
    n: int, budget: int
) -> None:
    rounds = halving_rounds(n, budget)
    assert sum(left * blocks for left, blocks in rounds) <= budget
    sizes = [left for left, _ in rounds]
    assert sizes[0] == n
    assert all(2 * later in (earlier, earlier + 1) for earlier, later in pairwise(sizes))
    assert sizes[-1] <= 2


def test_nobody_cannot_be_halved() -> None:
    with pytest.raises(ValueError, match="cannot be halved"):
        halving_rounds(0, 96)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_candidates_have_one_round_before_the_finals(n: int) -> None:
    assert screening_rounds(n) == [(n, FIRST_BLOCKS)]


def test_the_rounds_of_a_race_give_the_good_ones_more() -> None:
    assert screening_rounds(8) == [(8, 4), (4, 8)]
    assert screening_rounds(50) == [(50, 4), (25, 8), (13, 15), (7, 15), (4, 15)]


@given(st.integers(1, 1000))
def test_everyone_has_a_first_round_and_nobody_more_blocks_than_say_something(n: int) -> None:
    first, *later = screening_rounds(n)
    assert first == (n, FIRST_BLOCKS)
    assert all(left > FINALISTS and FIRST_BLOCKS <= each <= MOST_BLOCKS for left, each in later)


@pytest.mark.parametrize(
    ("process_s", "blocks"), [(0.0, 15), (0.01, 15), (0.5, 15), (0.75, 10), (1.5, 5), (60, 5)]
)
def test_finals_are_as_long_as_they_are_worth(process_s: float, blocks: int) -> None:
    assert final_blocks(BenchSpec(command=("b",)), process_s) == blocks


def test_whoever_asks_decides_how_long_the_finals_are() -> None:
    assert final_blocks(BenchSpec(command=("b",), blocks=7), 60.0) == 7


def test_each_of_two_finalists_must_show_more_than_a_single_one() -> None:
    assert final_confidence(0.95, 1) == pytest.approx(0.95)
    assert final_confidence(0.95, 2) == pytest.approx(0.975)
    assert one_of(50, 0.95) == pytest.approx(0.999)
