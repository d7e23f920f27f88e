from __future__ import annotations

import pytest
from toposort import CycleError, topological_sort


def test_nothing() -> None:
    assert topological_sort([], []) == []


def test_one() -> None:
    assert topological_sort(["a"], []) == ["a"]


def test_a_chain() -> None:
    assert topological_sort(["c", "b", "a"], [("a", "b"), ("b", "c")]) == ["a", "b", "c"]


def test_the_smallest_comes_first() -> None:
    assert topological_sort(["b", "a", "c"], []) == ["a", "b", "c"]


def test_a_diamond() -> None:
    edges = [("d", "b"), ("d", "c"), ("b", "a"), ("c", "a")]
    assert topological_sort(["a", "b", "c", "d"], edges) == ["d", "b", "c", "a"]


def test_an_edge_that_is_there_twice() -> None:
    assert topological_sort(["a", "b"], [("b", "a"), ("b", "a")]) == ["b", "a"]


def test_one_that_becomes_ready_late_comes_before_larger_ones() -> None:
    assert topological_sort(["a", "m", "z"], [("m", "a")]) == ["m", "a", "z"]


def test_a_cycle_is_refused() -> None:
    with pytest.raises(CycleError, match="b, c"):
        topological_sort(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "b")])


def test_one_that_needs_itself_is_refused() -> None:
    with pytest.raises(CycleError):
        topological_sort(["a"], [("a", "a")])
