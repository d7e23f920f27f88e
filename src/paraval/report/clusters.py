"""Rates and scores with the case as unit: the repeats of a case go together, as a cluster.

What a case came to is read from a book of cases; how intervals are worked out is the statistics'.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Protocol

from paraval.statistics.means import mean_interval
from paraval.statistics.rates import clustered_rate_interval


class Cell(Protocol):
    """A case with a variant, over its repeats."""

    @property
    def passed(self) -> int: ...
    @property
    def judged(self) -> int: ...
    @property
    def scored(self) -> int:
        """Judged repeats that have a score."""
        ...

    @property
    def sum_score(self) -> float: ...


class Book(Protocol):
    """What each case came to with each variant."""

    def rows(self) -> Iterator[tuple[str, Mapping[str, Cell]]]:
        """A case and its cells, by the keys of the variants."""
        ...


class Clusters:
    """Cases with a verdict: how often each passed, and its mean score."""

    def __init__(self) -> None:
        self._rates: list[tuple[int, int]] = []
        self._scores = array("d")

    def add(self, rate: tuple[int, int], score: float | None) -> None:
        """`rate` is how many repeats passed, and how many were judged."""
        if rate[1]:
            self._rates.append(rate)
        if score is not None:
            self._scores.append(score)

    def __len__(self) -> int:
        """How many cases have a verdict."""
        return len(self._rates)

    def rate_interval(self) -> tuple[float, float] | None:
        return clustered_rate_interval(self._rates) if self._rates else None

    def score(self) -> float | None:
        return fmean(self._scores) if self._scores else None

    def score_interval(self) -> tuple[float, float] | None:
        """None where the cases don't tell how much they vary: one alone, or all the same."""
        if not self._scores or min(self._scores) == max(self._scores):
            return None
        mean, low, high = mean_interval(self._scores)
        # A score lies between 0 and 1; one that does not is shown as it is.
        return (max(low, min(mean, 0.0)), min(high, max(mean, 1.0)))


def clusters_of(book: Book) -> tuple[Clusters, dict[str, Clusters]]:
    """Of the whole run, where all variants of a case go together; and by the variants' keys."""
    whole = Clusters()
    by_variant: dict[str, Clusters] = {}
    # Few pairs of counts come up again and again: each is held once, since there are many cases.
    known: dict[tuple[int, int], tuple[int, int]] = {}
    for _, cells in book.rows():
        for key, cell in cells.items():
            rate = (cell.passed, cell.judged)
            score = cell.sum_score / cell.scored if cell.scored else None
            by_variant.setdefault(key, Clusters()).add(known.setdefault(rate, rate), score)
        rate = (sum(c.passed for c in cells.values()), sum(c.judged for c in cells.values()))
        scored = sum(cell.scored for cell in cells.values())
        total = sum(cell.sum_score for cell in cells.values())
        whole.add(known.setdefault(rate, rate), total / scored if scored else None)
    return whole, by_variant
